"""How embedders limit chunks: how long one may be, and whose tokens or vectors decide where it
ends.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rag_platform.registry import build, defaults, provider_class, provider_version, traits

if TYPE_CHECKING:
    from rag_platform.config.settings import Strategy


def chunk_tokens(strategy: Strategy) -> int | None:
    """The most tokens that a chunk may cost: the chunker's `max_tokens`, within nine tenths of the
    embedder's window, which leaves room for marks, prefixes and errors of the estimate. None for a
    chunker without the option.
    """
    wanted = _max_tokens(strategy)
    if wanted is None or not strategy.builds_dense:
        return wanted
    return min(wanted, embedder_window(strategy) * 9 // 10)


def embedder_window(strategy: Strategy) -> int:
    """How many tokens of a text the embedder reads at once; from the model's files where its class
    does not declare it.
    """
    windows = [window for window, _ in _windows(strategy)]
    declared = [window for window in windows if window is not None]
    if len(declared) == len(windows):
        return min(declared)
    embedding = strategy.embedding
    return int(build("embedder", embedding.provider, embedding.options).info().max_tokens)


def tokens_seen(strategy: Strategy) -> int | None:
    """How many tokens of a longer text move its vector, None where all do, as several windows of
    one text.
    """
    windows = [window for window, reads_all in _windows(strategy) if not reads_all]
    declared = [window for window in windows if window is not None]
    if not windows:
        return None
    return min(declared) if len(declared) == len(windows) else embedder_window(strategy)


def _windows(strategy: Strategy) -> list[tuple[int | None, bool]]:
    """(window, whether it reads beyond it) as the embedder's class declares them; of a joined
    embedder, those of each part's class.
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
    """(name, options) of the embedder that a chunker uses: the one its options name, else the one
    its class names, else the strategy's.
    """
    options = strategy.chunker.options
    if name := options.get("embedder") or defaults("chunker", strategy.chunker.provider).get(
        "embedder"
    ):
        return str(name), dict(options.get("embedder_options", {}))
    return strategy.embedding.provider, strategy.embedding.options


def embedder_dependencies(strategy: Strategy) -> list[Any]:
    """What the chunks depend on: the strategy's embedder where its window cuts them shorter, or may
    do so because only its files tell the window; and the one whose tokenizer or vectors decide
    where to cut.
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
