"""Profiles: fingerprints of everything that determines a stage's output or a release's store, used
in paths, caches and Dagster; and snapshots of a strategy's providers, which explain differences
between two runs.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from rag_platform.config import prompts
from rag_platform.config.chunk_token_limits import embedder_dependencies
from rag_platform.config.folders import config_file
from rag_platform.config.ingestion import DESCRIBE_FIELDS, CleaningConfig, ViewConfig
from rag_platform.config.settings import Strategy, fingerprint
from rag_platform.registry import provider_class, provider_version

INGESTION_STAGES = ("raw_document", "facts", "media", "sections", "chunks", "views", "embeddings")

# A stage's code version changes when equal input and config would give a different output.
STAGE_CODE_VERSIONS = {
    "raw_document": "1",
    "facts": "2",
    "media": "3",
    "sections": "5",
    "chunks": "9",
    "views": "5",
    "embeddings": "1",
}
Provider = dict[str, str]
# The modules that only an evaluation sets.
EVALUATION_MODULES = ("evaluator", "dataset", "metric_set", "judge")
_EDITION_CODE_VERSION = "1"  # of the semantics of edits by hand


def strategy_config_id(strategy: Strategy) -> str:
    """`scfg_` and 16 hex digits over the strategy without its name and description."""
    return config_id_of(strategy.model_dump(mode="json"))


def config_id_of(config: Mapping[str, object]) -> str:
    """The same for a strategy as JSON."""
    named = ("name", "description")
    return "scfg_" + fingerprint({key: value for key, value in config.items() if key not in named})


def is_config_id(name: str) -> bool:
    """True for the id of a config, as opposed to the name of a strategy."""
    return re.fullmatch(r"scfg_[0-9a-f]{16}", name) is not None


def text_norm_profile_id(cleaning: CleaningConfig) -> str:
    """The version of `canonical()`: part of every fingerprint and cache key."""
    return fingerprint(
        {
            "unicode_form": cleaning.unicode_form,
            "max_blank_lines": cleaning.max_blank_lines,
            "allowed_ctl": ["\n", "\t"],
        }
    )


def stage_profiles(strategy: Strategy) -> dict[str, str]:
    """Stage name to profile, h(own config section, code version, upstream profile), for the seven
    ingestion stages; and `media_texts`, which the stage `media` produces, but on which only the
    views depend, not sections and chunks.
    """
    dump = strategy.model_dump(mode="json")
    own: dict[str, Any] = {
        "raw_document": "sha256",
        "facts": [
            [item, provider_version("loader", item["provider"])]
            for item in dump["loading"]["loaders"]
        ],
        "media": dump["media"],
        "sections": [
            dump["cleaning"],
            dump["sectioner"],
            provider_version("sectioner", strategy.sectioner.provider),
        ],
        "chunks": [
            dump["chunker"],
            provider_version("chunker", strategy.chunker.provider),
            *embedder_dependencies(strategy),
        ],
        "views": [dump["views"], *_outside_views(strategy.views)],
        "embeddings": [
            dump["embedding"]["provider"],
            dump["embedding"]["options"],
            strategy.builds_dense,
            provider_version("embedder", strategy.embedding.provider),
        ],
    }
    profiles: dict[str, str] = {}
    upstream = ""
    for stage in INGESTION_STAGES:
        if stage == "views":
            own["views"].append(profiles["media_texts"])
        upstream = fingerprint(own[stage], STAGE_CODE_VERSIONS[stage], upstream, length=12)
        profiles[stage] = upstream
        if stage == "media":
            profiles["media_texts"] = fingerprint(
                *_media_texts_parts(strategy), STAGE_CODE_VERSIONS["media"], upstream, length=12
            )
    return profiles


def _outside_views(views: ViewConfig) -> list[str]:
    """What views depend on besides their config: the file of stop words, the describing model's
    provider version and prompt.
    """
    found: list[str] = []
    if path := views.keyphrases.stopwords.path:
        file = config_file(path)
        found.append(hashlib.sha256(file.read_bytes()).hexdigest() if file.is_file() else "")
    if views.describe.provider != "none":
        found += [
            provider_version("llm", views.describe.provider),
            prompts.load("describe/chunk", DESCRIBE_FIELDS).profile_id,
        ]
    return found


def _media_texts_parts(strategy: Strategy) -> list[Any]:
    """What determines the texts of images: options, provider versions, and the prompts if captions
    are on.
    """
    config = strategy.media_texts
    parts: list[Any] = [
        config.model_dump(mode="json"),
        provider_version("ocr", config.ocr.provider),
    ]
    if config.captions.provider != "none" or config.captions.preset:
        parts += [
            provider_version("llm", config.captions.provider),
            prompts.wording("caption"),
            "2",  # of the choice between them
        ]
    return parts


def edition_name(operations: Sequence[Any], chunks_profile: str) -> str:
    """The fingerprint of edits by hand of the chunks of a profile; empty without edits."""
    if not operations:
        return ""
    return fingerprint(list(operations), chunks_profile, _EDITION_CODE_VERSION, length=12)


def index_profile(strategy: Strategy, stages: Mapping[str, str] | None = None) -> str:
    """The fingerprint of a release's content: stage profiles (by default those of
    `stage_profiles`), encoding and index providers. A different one forces a full build.
    """
    stages = stage_profiles(strategy) if stages is None else stages
    dump = strategy.model_dump(mode="json", include={"encoding", "lexical", "dense"})
    return fingerprint(
        dump,
        *_outside_lexical(strategy),
        provider_version("lexical_index", strategy.lexical.provider),
        provider_version("dense_index", strategy.dense.provider),
        stages["embeddings"],
    )


def _outside_lexical(strategy: Strategy) -> list[str]:
    """What the lexical index depends on besides its config, such as a dictionary file."""
    outside: Callable[[dict[str, Any]], str] | None = getattr(
        provider_class("lexical_index", strategy.lexical.provider), "outside", None
    )
    found = outside(strategy.lexical.options) if outside is not None else ""
    return [found] if found else []


def store_profiles(strategy: Strategy, stages: Mapping[str, str] | None = None) -> dict[str, str]:
    """Store of a release (`catalog`, `lexical_index`, `dense_index`) to the fingerprint of its
    content; `stages` as for `index_profile`.

    A different index profile rebuilds all three, as they share a directory; these say which of them
    would change.
    """
    stages = stage_profiles(strategy) if stages is None else stages
    dump = strategy.model_dump(mode="json", include={"lexical", "dense"})
    lexical_version = provider_version("lexical_index", strategy.lexical.provider)
    dense_version = provider_version("dense_index", strategy.dense.provider)
    lexical = [dump["lexical"], *_outside_lexical(strategy), lexical_version, stages["views"]]
    dense = [dump["dense"], dense_version, stages["embeddings"]]
    return {
        "catalog": fingerprint(stages["embeddings"], strategy.encoding, length=12),
        "lexical_index": fingerprint(*(lexical if strategy.builds_lexical else ()), length=12),
        "dense_index": fingerprint(*(dense if strategy.builds_dense else ()), length=12),
    }


def providers_snapshot(
    strategy: Strategy,
    evaluation: Mapping[str, Provider] | None = None,
    *,
    built: Mapping[str, str] | None = None,
) -> dict[str, Provider]:
    """Module to `provider_id` (kind.name), `version` and `profile_id`. Empty versions mean the
    program's, empty profiles the whole strategy's.

    `loader` also has the version of each format. With the stage profiles by which a release was
    `built`, loaders, sectioner and chunker are not imported, and have no version.
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
