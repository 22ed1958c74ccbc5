"""Partition keys without Dagster."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from rag_platform.observability.redaction import Names


@dataclass(frozen=True)
class Keys:
    """Keys in memory, under which nothing is recorded."""

    held: frozenset[str] = frozenset()

    def keys(self) -> set[str]:
        return set(self.held)

    def drop(self, keys: Collection[str]) -> None:
        raise NotImplementedError

    def forget(self, keys: Collection[str], names: Names) -> tuple[int, list[str]]:
        raise NotImplementedError

    def count_records(self, keys: Collection[str], names: Names) -> tuple[int, list[str]]:
        return 0, []

    def prune(
        self, kept: Collection[str], days: float, *, plan: bool
    ) -> dict[str, tuple[int, int]]:
        return {}
