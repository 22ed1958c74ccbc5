"""Stores the pages of a long PDF as they are read, so that an interrupted reading can continue."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Any

import orjson

from rag_platform.loaders.pdf.page_json import page_from_json
from rag_platform.loaders.pdf.pages import PageFacts


class KeptPages:
    """The pages of one file under one profile, one JSON line each; None as path stores nothing."""

    def __init__(self, path: Path | None) -> None:
        self._path = path

    def read(self) -> dict[int, PageFacts]:
        """Page number to page. The truncated last line of a killed process is skipped."""
        found: dict[int, PageFacts] = {}
        if self._path is not None and self._path.is_file():
            for line in self._path.read_bytes().splitlines():
                with suppress(ValueError, KeyError, TypeError):
                    page = page_from_json(orjson.loads(line))
                    found[page.page] = page
        return found

    def add(self, page: dict[str, Any]) -> None:
        """Store a page as a child sent it."""
        if self._path is not None:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            with self._path.open("ab") as file:
                file.write(
                    b"\n" + orjson.dumps(page)
                )  # newline first: the last line may be truncated

    def drop(self) -> None:
        """Delete the stored pages, which are part of the facts now."""
        if self._path is not None:
            self._path.unlink(missing_ok=True)
