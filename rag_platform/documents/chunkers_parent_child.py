"""The chunker `parent_child`: small spans to be found, inside large ones to be read (seed 002, knowledge.chunk)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from rag_platform.documents.chunk_sizes import Span
from rag_platform.documents.chunkers_recursive import Recursive
from rag_platform.errors import ConfigError

PARENT = {"chunk_size": 2000, "chunk_overlap": 0}
CHILD = {"chunk_size": 400, "chunk_overlap": 60}


@dataclass(frozen=True)
class ParentChild:
    """Parents cut as Recursive does, by default 2,000 characters long without overlap, and their children of 400.

    `parent` and `child` take the options of Recursive. Only children are indexed; a parent that one child would fill is no parent, and the
    child stands alone. `max_tokens` bounds children: parents are read, not embedded.
    """

    parent: Mapping[str, Any] = field(default_factory=dict)
    child: Mapping[str, Any] = field(default_factory=dict)
    max_tokens: int = 460
    embedder: str = ""
    embedder_options: Mapping[str, Any] = field(default_factory=dict)

    NAME: ClassVar[str] = "parent_child"
    VERSION: ClassVar[str] = "3"

    def __post_init__(self) -> None:
        parent, child = self._levels()
        if parent.chunk_size <= child.chunk_size:
            raise ConfigError(f"parent.chunk_size {parent.chunk_size} must be above child.chunk_size {child.chunk_size}")

    @staticmethod
    def needs_embedder(options: Mapping[str, Any]) -> bool:
        """True when a level counts tokens."""
        return any(options.get(level, {}).get("length_function") == "tokens" for level in ("parent", "child"))

    def _levels(self) -> tuple[Recursive, Recursive]:
        counted = {"embedder": self.embedder, "embedder_options": self.embedder_options}
        try:
            parent = {**PARENT, **counted, **self.parent}
            return (
                Recursive(**{"max_tokens": 2 * int(parent["chunk_size"]), **parent}),
                Recursive(**{**CHILD, **counted, "max_tokens": self.max_tokens, **self.child}),
            )
        except TypeError as error:
            raise ConfigError(f"parent and child take the options of the chunker `recursive`: {error}") from error

    def families(self, text: str) -> list[tuple[Span | None, list[Span]]]:
        """(parent, its children) in order; None for the parent of a child that stands alone."""
        parent, child = self._levels()
        found: list[tuple[Span | None, list[Span]]] = []
        for start, end in parent.spans(text):
            children = child.spans_within(text, start, end)
            found.append((None if children == [(start, end)] else (start, end), children))
        return found

    def spans(self, text: str) -> list[Span]:
        """The children in order."""
        return [span for _, children in self.families(text) for span in children]
