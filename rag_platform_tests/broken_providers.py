"""Providers with a bug, for processes that have no log of their own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from rag_platform.ir import EmbedderInfo, Facts
from rag_platform.traits import Traits


@dataclass(frozen=True)
class BrokenLoader:
    """Reads text files in a child process, or rather does not."""

    NAME: ClassVar[str] = "broken"
    VERSION: ClassVar[str] = "1"
    traits: ClassVar[Traits] = Traits(isolated=True)

    def claims(self, filename: str, head: bytes) -> bool:
        return filename.endswith(".txt")

    def load(self, path: Path, filename: str) -> Facts:
        raise AttributeError("planted in load")


@dataclass(frozen=True)
class BrokenEmbedder:
    """Embeds nothing."""

    VERSION: ClassVar[str] = "1"

    def info(self) -> EmbedderInfo:
        raise NotImplementedError

    def embed(self, texts: Sequence[str], *, query: bool = False) -> Any:
        raise AttributeError("planted in embed")
