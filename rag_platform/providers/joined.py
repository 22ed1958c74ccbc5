"""The concatenated vectors of several embedders, so that one finds what another misses."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from rag_platform.ir import EmbedderInfo, EmbedderPart
from rag_platform.protocols import Embedder, Vectors
from rag_platform.registry import make_provider
from rag_platform.traits import Traits

_KEYS = {"provider", "options", "weight"}


@dataclass(frozen=True)
class Joined:
    """Concatenates the unit vectors of its parts, each times its weight, and scales the result to
    length 1.

    A part is `{provider, options, weight}`. The similarity of two joined vectors is the mean of the
    parts' similarities, weighted by the squares of the weights: with the weights sqrt(6) and 1 the
    parts count 6 : 1. Vectors are cached by part, so strategies share those of common parts.
    """

    parts: Sequence[Mapping[str, Any]] = ()

    NAME: ClassVar[str] = "joined"
    # of the concatenation; the parts' versions are in the fingerprint of each instance
    VERSION: ClassVar[str] = "1"
    traits: ClassVar[Traits] = Traits()

    _embedders: tuple[Embedder, ...] = field(default=(), init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if len(self.parts) < 2:
            raise ValueError(
                "`parts` must list at least two embedders, each as {provider: NAME, weight: NUMBER}"
            )
        for part in self.parts:
            if unknown := sorted(set(part) - _KEYS):
                raise ValueError(
                    f"a part has no key {unknown[0]!r}; known: {', '.join(sorted(_KEYS))}"
                )
            if part.get("provider") in (None, self.NAME):
                raise ValueError(
                    f"a part must name the provider of one embedder, not {part.get('provider')!r}"
                )
            weight = part.get("weight", 1.0)
            if (
                isinstance(weight, bool)
                or not isinstance(weight, (int, float))
                or not (math.isfinite(weight) and weight > 0)
            ):
                raise ValueError(
                    f"the weight of {part['provider']!r} must be a number above 0, not {weight!r}"
                )
        object.__setattr__(
            self,
            "_embedders",
            tuple(
                make_provider("embedder", *part) for part in self.parts_of({"parts": self.parts})
            ),
        )

    def info(self) -> EmbedderInfo:
        """The fingerprint; its version names the version and the weight of every part."""
        infos = [embedder.info() for embedder in self._embedders]
        parts = tuple(
            EmbedderPart(i.embedder_id, i.version, i.dim, w)
            for i, w in zip(infos, self._part_weights(), strict=True)
        )
        return EmbedderInfo(
            f"{self.NAME}:{'+'.join(part.embedder_id for part in parts)}",
            f"{self.VERSION}({' '.join(f'{part.weight:g}*{part.version}' for part in parts)})",
            sum(part.dim for part in parts),
            min(info.max_tokens for info in infos),
            parts,
        )

    def _part_weights(self) -> list[float]:
        return [float(part.get("weight", 1.0)) for part in self.parts]

    def weights(self) -> list[tuple[Path, str]]:
        """Weight files of all parts, with the sha256 that their versions were measured with."""
        return [
            file for embedder in self._embedders for file in getattr(embedder, "weights", list)()
        ]

    def load(self) -> None:
        """Load every part into memory."""
        for embedder in self._embedders:
            getattr(embedder, "load", lambda: None)()

    def embed(self, texts: Sequence[str], *, query: bool = False) -> Vectors:
        """float32 [len(texts), sum of the parts' dims] of unit rows. Raises what a part raises."""
        return join_vectors(
            [embedder.embed(texts, query=query) for embedder in self._embedders],
            self._part_weights(),
        )

    @property
    def count_tokens(self) -> Callable[[Sequence[str]], list[int]]:
        """The token counter of the part with the smallest window. Raises AttributeError if that
        part has none.
        """
        counts: Callable[[Sequence[str]], list[int]] = min(
            self._embedders, key=lambda part: part.info().max_tokens
        ).count_tokens  # type: ignore[attr-defined]
        return counts

    @staticmethod
    def parts_of(options: Mapping[str, Any]) -> list[tuple[str, dict[str, Any]]]:
        """(provider, options) of each part."""
        return [
            (str(part["provider"]), dict(part.get("options") or {}))
            for part in options.get("parts", ())
        ]


def join_vectors(vectors: Sequence[Vectors], weights: Sequence[float]) -> Vectors:
    """float32 [rows, sum of dims] of unit rows, from each part's unit rows and weight."""
    length = math.sqrt(math.fsum(weight * weight for weight in weights))
    return np.concatenate(
        [rows * np.float32(weight / length) for rows, weight in zip(vectors, weights, strict=True)],
        axis=1,
    )
