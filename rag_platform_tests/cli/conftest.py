"""A small published library, and `rag` called within this process."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from rag_platform.cli.main import main
from rag_platform_tests.conftest import PORTS, Shelf


@pytest.fixture
def published(shelf: Shelf, tmp_path: Path) -> Shelf:
    """A shelf with one document in the namespace `default`."""
    folder = tmp_path / "docs"
    folder.mkdir()
    (folder / "ports.md").write_text(PORTS, encoding="utf-8")
    shelf.ingest(folder)
    return shelf


def rag(*arguments: str) -> tuple[int, Any]:
    """The exit code of a command, and the envelope that it prints."""
    found = CliRunner().invoke(main, [*arguments, "--json"])
    return found.exit_code, json.loads(found.stdout)
