"""Providers with a bug, for processes that have no log of their own."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

from rag_platform.ir import EmbedderInfo, Facts
from rag_platform.loaders.text import TextLoader
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
class Misreader(TextLoader):
    """Reads 21 in place of WRONG in texts."""

    WRONG: ClassVar[str] = "12"

    def load(self, path: Path, filename: str) -> Facts:
        facts = super().load(path, filename)
        text = facts.text.replace(self.WRONG, "21")
        sha256 = hashlib.sha256(text.encode()).hexdigest()
        return replace(facts, text=text, summary=replace(facts.summary, md_sha256=sha256))


@dataclass(frozen=True)
class BrokenEmbedder:
    """Embeds nothing."""

    VERSION: ClassVar[str] = "1"

    def info(self) -> EmbedderInfo:
        raise NotImplementedError

    def embed(self, texts: Sequence[str], *, query: bool = False) -> Any:
        raise AttributeError("planted in embed")
