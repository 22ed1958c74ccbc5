"""The provider of each module under a strategy, with its version and profile, by which differences
between two runs can be explained.
"""

from __future__ import annotations

from collections.abc import Mapping

from rag_platform.config.profiles import (
    STAGE_CODE_VERSIONS,
    index_profile,
    stage_profiles,
    store_profiles,
    text_norm_profile_id,
)
from rag_platform.config.settings import Strategy, fingerprint
from rag_platform.registry import provider_version

Provider = dict[str, str]
# The modules of an evaluation, which says itself what they are.
EVALUATION_MODULES = ("evaluator", "dataset", "metric_set", "judge")


def providers_snapshot(
    strategy: Strategy,
    evaluation: Mapping[str, Provider] | None = None,
    *,
    built: Mapping[str, str] | None = None,
) -> dict[str, Provider]:
    """By module: `provider_id` (kind.name), `version`, and `profile_id`. Empty versions and
    profiles are those of the program and of the whole strategy.

    `loader` names the version of each of its formats as well. Where the stages have the profiles by
    which a release was `built`, no loader, sectioner or chunker works: none is imported, and none
    has a version beside its profile.
    """
    profiles = stage_profiles(strategy) if built is None else built
    stores = store_profiles(strategy, profiles)

    def named(kind: str, name: str, profile: str = "", *, works: bool = True) -> Provider:
        version = provider_version(kind, name) if works and name != "none" else ""
        return {"provider_id": f"{kind}.{name}", "version": version, "profile_id": profile}

    def own(kind: str, name: str, stage: str, profile: str) -> Provider:
        version = STAGE_CODE_VERSIONS.get(stage, "")
        return {"provider_id": f"{kind}.{name}", "version": version, "profile_id": profile}

    def options(part: str) -> str:
        return fingerprint(strategy.model_dump(mode="json", include={part}), length=12)

    builds = built is None
    loaders = [config.provider for config in strategy.loading.loaders] if builds else ()
    embedder = strategy.embedding.provider if strategy.builds_dense else "none"
    dense = strategy.dense.provider if strategy.builds_dense else "none"
    lexical = strategy.lexical.provider if strategy.builds_lexical else "none"
    return {
        "loader": {
            **own("loader", "by_format", "facts", profiles["facts"]),
            **{name: provider_version("loader", name) for name in loaders},
        },
        "asset_normalizer": own("asset_normalizer", "sha256", "media", profiles["media"]),
        "transformer_pre": own(
            "transformer", "edits", "sections", text_norm_profile_id(strategy.cleaning)
        ),
        "sectioner": named(
            "sectioner", strategy.sectioner.provider, profiles["sections"], works=builds
        ),
        "chunker": named("chunker", strategy.chunker.provider, profiles["chunks"], works=builds),
        "transformer_post": own("transformer", "views", "views", profiles["views"]),
        "encoding_strategy": own(
            "encoding_strategy", strategy.encoding, "embeddings", index_profile(strategy, profiles)
        ),
        "embedder": named("embedder", embedder, profiles["embeddings"]),
        "vector_index": named("dense_index", dense, stores["dense_index"]),
        "sparse_index": named("lexical_index", lexical, stores["lexical_index"]),
        "retriever": own("retriever", strategy.retrieval.mode, "", options("retrieval")),
        "fusion": named("fusion", strategy.fusion.provider, options("fusion")),
        "reranker": named("reranker", strategy.reranker.provider, options("reranker")),
        "llm": named("llm", strategy.llm.provider, options("llm")),
        "generator": named("answerer", strategy.answerer.provider, options("answerer")),
        **{name: named(name, "none") for name in EVALUATION_MODULES},
        **(evaluation or {}),
    }
