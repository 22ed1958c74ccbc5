"""A plugin of simonw/llm: the embedding model `e5`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import e5
import llm


class LocalE5(llm.EmbeddingModel):
    """Passages; the question too, since a plugin is not told which is which."""

    model_id = "e5"

    def embed_batch(self, items: Iterable[str | bytes]) -> Iterator[list[float]]:
        """A vector for each text."""
        yield from e5.embed([str(item) for item in items])


@llm.hookimpl
def register_embedding_models(register: Callable[[llm.EmbeddingModel], None]) -> None:
    """Make the model known."""
    register(LocalE5())
