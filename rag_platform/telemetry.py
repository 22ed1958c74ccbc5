"""Switches off the telemetry of dependencies."""

from __future__ import annotations

import importlib
import os
from typing import Any

# environment variables, read when a package is loaded, also in child processes
SWITCHES = {
    # onnxruntime: the only switch that also covers what it sends while being loaded
    "ORT_DISABLE_TELEMETRY": "1",
    "DAGSTER_DISABLE_TELEMETRY": "1",
    "ANONYMIZED_TELEMETRY": "False",  # Chroma
    "HF_HUB_DISABLE_TELEMETRY": "1",
    "DO_NOT_TRACK": "1",  # the convention of other packages
}


def switch_off() -> None:
    """Set all switches for this process and its children, overriding the environment."""
    os.environ.update(SWITCHES)


def onnxruntime() -> Any:
    """The package onnxruntime with its telemetry also disabled by API, in case the variable is
    renamed.
    """
    package = importlib.import_module("onnxruntime")
    package.disable_telemetry_events()
    return package
