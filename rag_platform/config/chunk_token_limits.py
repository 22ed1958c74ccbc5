"""How chunks depend on embedders: their maximum length, and where they are split."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rag_platform.registry import defaults, make_provider, provider_class, provider_version, traits

if TYPE_CHECKING:
    from rag_platform.config.settings import Strategy


def chunk_tokens(strategy: Strategy) -> int | None:
    """The maximum tokens of a chunk: the chunker's `max_tokens`, but at most nine tenths of the
    embedder's window, to leave room for special tokens, prefixes and estimation errors. None for a
    chunker without the option.
    """
    wanted = _max_tokens(strategy)
    if wanted is None or not strategy.builds_dense:
        return wanted
    return min(wanted, embedder_window(strategy) * 9 // 10)


def embedder_window(strategy: Strategy) -> int:
    """The embedder's window in tokens, from its class or, if not declared there, from the model's
    files.
    """
    windows = [window for window, _ in _windows(strategy)]
    declared = [window for window in windows if window is not None]
    if len(declared) == len(windows):
        return min(declared)
    embedding = strategy.embedding
    return int(make_provider("embedder", embedding.provider, embedding.options).info().max_tokens)


def tokens_seen(strategy: Strategy) -> int | None:
    """How many tokens of a longer text affect its vector; None if all do."""
    windows = [window for window, reads_all in _windows(strategy) if not reads_all]
    declared = [window for window in windows if window is not None]
    if not windows:
        return None
    return min(declared) if len(declared) == len(windows) else embedder_window(strategy)


def _windows(strategy: Strategy) -> list[tuple[int | None, bool]]:
    """(window, whether text beyond it affects the vector) as declared by the embedder's class, or
    by the class of each part of a joined embedder.
    """
    name, options = strategy.embedding.provider, strategy.embedding.options
    parts_of = getattr(provider_class("embedder", name), "parts_of", None)
    names = [name] if parts_of is None else [part for part, _ in parts_of(options)]
    declared = [traits("embedder", part) for part in names]
    return [(part.window, part.reads_all) for part in declared]


def _max_tokens(strategy: Strategy) -> int | None:
    options = {**defaults("chunker", strategy.chunker.provider), **strategy.chunker.options}
    return int(options["max_tokens"]) if "max_tokens" in options else None


def chunking_embedder(strategy: Strategy) -> tuple[str, dict[str, Any]]:
    """(name, options) of the embedder that a chunker uses: from its options, else the default of
    its class, else the strategy's.
    """
    options = strategy.chunker.options
    if name := options.get("embedder") or defaults("chunker", strategy.chunker.provider).get(
        "embedder"
    ):
        return str(name), dict(options.get("embedder_options", {}))
    return strategy.embedding.provider, strategy.embedding.options


def embedder_dependencies(strategy: Strategy) -> list[Any]:
    """What chunks depend on: the strategy's embedder, if its window limits them (or may, if only
    its files say how large it is); and the embedder that the chunker uses to split.
    """
    options, wanted = strategy.chunker.options, _max_tokens(strategy)
    embedding = strategy.embedding.provider, strategy.embedding.options
    found: list[Any] = []
    if wanted is not None and strategy.builds_dense:
        if any(window is None for window, _ in _windows(strategy)):
            found.append(["window", *embedding, provider_version("embedder", embedding[0])])
        elif (most := chunk_tokens(strategy)) != wanted:
            found.append(["max_tokens", most])
    needs = getattr(provider_class("chunker", strategy.chunker.provider), "needs_embedder", None)
    if needs is not None and needs(options):
        name, chosen = chunking_embedder(strategy)
        found.append(["embedder", name, chosen, provider_version("embedder", name)])
    return found
