"""What dependencies report to their makers, switched off."""

from __future__ import annotations

import importlib
import os
from typing import Any

# Each is read when its package is loaded, also by the child processes that inherit it.
SWITCHES = {
    # onnxruntime: the only switch that also stops what it sends while it is being loaded
    "ORT_DISABLE_TELEMETRY": "1",
    "DAGSTER_DISABLE_TELEMETRY": "1",
    "ANONYMIZED_TELEMETRY": "False",  # Chroma
    "HF_HUB_DISABLE_TELEMETRY": "1",
    "DO_NOT_TRACK": "1",  # what others agreed on
}


def switch_off() -> None:
    """Set every switch for this process and its children, whatever the environment says: the
    library promises that nothing is sent.
    """
    os.environ.update(SWITCHES)


def onnxruntime() -> Any:
    """The package onnxruntime, which is also told by its own call to report nothing, should its
    switch ever change its name.
    """
    package = importlib.import_module("onnxruntime")
    package.disable_telemetry_events()
    return package
