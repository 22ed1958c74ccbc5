"""The commands of docs/tutorial.md in their order: what they print holds what the tutorial says."""

from __future__ import annotations

import re
import shlex
import subprocess
from pathlib import Path
from typing import Any

import pytest

from rag_platform_tests.conftest import WITH_LAYOUT

TUTORIAL = Path(__file__).resolve().parent.parent / "docs" / "tutorial.md"


@pytest.mark.integration
def test_the_tutorial_does_what_it_says(desk: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(desk.folder)
    (desk.folder / "config" / "strategies" / "tiny.yaml").write_text(WITH_LAYOUT)
    blocks = re.findall(r"^```sh\n(.*?)^```", TUTORIAL.read_text("utf-8"), re.M | re.S)
    lines = "".join(blocks).splitlines()
    assert sum(line.startswith("rag ") for line in lines) >= 10
    for line in lines:
        if not line.startswith("rag "):
            subprocess.run(line, shell=True, check=True)
            continue
        command, _, shown = line.partition(" # ")
        answer = desk.call(*shlex.split(command)[1:])
        assert answer.exit_code == 0, answer.output
        assert shown.strip() in answer.data["markdown"], line
