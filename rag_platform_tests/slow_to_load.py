"""An embedder whose model takes longer to load than a question has."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from rag_platform.ir import EmbedderInfo
from rag_platform.providers.hashing import Hashing

LOADED = threading.Event()
SECONDS = 1.0


@dataclass(frozen=True)
class SlowToLoad:
    """Hashes; the first call waits for the model."""

    VERSION: ClassVar[str] = "1"

    def info(self) -> EmbedderInfo:
        return Hashing().info()

    def load(self) -> None:
        if not LOADED.is_set():
            time.sleep(SECONDS)
            LOADED.set()

    def embed(self, texts: Sequence[str], *, query: bool = False) -> Any:
        self.load()
        return Hashing().embed(texts, query=query)
