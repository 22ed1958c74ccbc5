"""What a benchmark really built, in one line, and the refusal of what is not what was asked for."""

from __future__ import annotations

from rag_platform.config.profiles import strategy_config_id
from rag_platform.config.settings import Strategy
from rag_platform.indexes.catalog import CatalogReader
from rag_platform.releases import release_store as releases
from rag_platform.releases.manifest import read_manifest
from rag_platform.storage.store import Store

TOLERANCE = 0.02
SPARE = 10  # the last document is written whole


def require_size(asked: int, built: int, what: str = "chunks") -> None:
    """Raises SystemExit with both numbers when what was built is not what was asked for, but for
    two percent.
    """
    if abs(built - asked) > max(SPARE, TOLERANCE * asked):
        raise SystemExit(
            f"{asked} {what} were asked for and {built} are there: no figure of this run would be"
            f" one at {asked} {what}"
        )


def require_kept(store: Store, namespace: str, strategy: Strategy, asked: int) -> None:
    """Raises SystemExit when the published library that was kept has another size, another
    strategy, or was built by other code.
    """
    published = releases.current(store, namespace)
    if published is None:
        raise SystemExit(
            f"{store.home} holds no published release of {namespace!r}: it was left half built;"
            " remove the folder"
        )
    manifest = read_manifest(store.release_dir(namespace, published))
    if (held := manifest.strategy_config_id) != (wanted := strategy_config_id(strategy)):
        raise SystemExit(
            f"the library kept in {store.home} was built with strategy {held}, today's is {wanted};"
            " remove the folder"
        )
    if reason := releases.full_build_reason(store, namespace, strategy, published):
        raise SystemExit(
            f"the library kept in {store.home} was built by other code: {reason}; remove the folder"
        )
    require_size(asked, int(manifest.counts["chunks"]))


def described(store: Store, namespace: str, strategy: Strategy) -> str:
    """The published library in one line: documents, chunks, vectors, bytes, strategy and length of
    its chunks.
    """
    published = releases.require_current(store, namespace)
    directory = store.release_dir(namespace, published)
    manifest = read_manifest(directory)
    catalog = CatalogReader(directory / "catalog.sqlite")
    try:
        texts = sum(version.size for version in catalog.versions().values())
    finally:
        catalog.close()
    size, counts = releases.sizes(store, namespace, published)[0], manifest.counts
    dim = manifest.embedder.dim if manifest.embedder else 0
    held = (
        f"{counts['documents']} documents of {texts / 1e6:.1f} MB, {counts['chunks']} chunks,"
        f" {counts['dense']} vectors of {dim} numbers"
    )
    return f"built: {held}, a release of {size / 1e6:.0f} MB; {of_strategy(strategy)}"


def of_strategy(strategy: Strategy) -> str:
    """Name, fingerprint, embedder and length of chunks of a strategy."""
    options = strategy.chunker.options
    length = options.get("chunk_size", options.get("size", "?"))
    return (
        f"strategy {strategy.name} ({strategy_config_id(strategy)}, embedder"
        f" {strategy.embedding.provider}), {strategy.chunker.provider} chunks of {length}"
    )
