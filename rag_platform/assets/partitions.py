"""The two partition definitions (document versions, namespaces), and what Dagster compares to find
stale partitions: the code version of each asset, and the tags of each event.

An asset has one code version for all its partitions, so it joins the profiles of all strategies in
use. With one strategy, exactly the assets affected by a config change become stale; with several, a
change of one also marks partitions of the others as stale, for which `rag rebuild --plan` finds
nothing to do. Nothing else makes a partition stale, so events tell Dagster not to compare inputs.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Sequence
from itertools import groupby

import dagster as dg

from rag_platform.config.profiles import (
    INGESTION_STAGES,
    index_profile,
    stage_profiles,
    store_profiles,
)
from rag_platform.config.settings import Settings, Strategy
from rag_platform.config.strategies import load_strategy, strategy_names
from rag_platform.ir import Version
from rag_platform.ledger.ledger import bound_namespaces
from rag_platform.storage.store import Store

document_versions = dg.DynamicPartitionsDefinition(name="document_versions")
namespaces = dg.DynamicPartitionsDefinition(name="namespaces")


def define_check(
    name: str,
    asset: str,
    partitions: dg.DynamicPartitionsDefinition,
    description: str,
    *,
    blocking: bool = False,
) -> dg.AssetCheckSpec:
    """A check of single partitions, a preview feature, hence the pinned minor version."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", dg.PreviewWarning)
        return dg.AssetCheckSpec(
            name,
            asset=asset,
            description=description,
            blocking=blocking,
            partitions_def=partitions,
        )


NAMESPACE_TAG = "rag/namespace"  # of a run that works for one namespace
PARTITION_TAG = "dagster/partition"  # of a run for one partition
RANGE_START, RANGE_END = "dagster/asset_partition_range_start", "dagster/asset_partition_range_end"


def require_partition(context: dg.AssetExecutionContext) -> None:
    """Fail a run that was started without a partition, as `dagster job execute` does."""
    if not (context.has_partition_key or context.has_partition_key_range):
        raise dg.Failure(
            f"job {context.run.job_name!r} was started without a partition; choose partitions in"
            f""" the UI, or add --tags '{{"{PARTITION_TAG}": "KEY"}}' to `dagster job execute`""",
            allow_retries=False,
        )


def contiguous(keys: Sequence[str], wanted: set[str]) -> list[tuple[str, str]]:
    """(first, last) of each contiguous run of wanted keys, in the order of `keys`.

    >>> contiguous(["a", "b", "c", "d"], {"a", "b", "d"})
    [('a', 'b'), ('d', 'd')]
    """
    runs = [list(run) for is_wanted, run in groupby(keys, wanted.__contains__) if is_wanted]
    return [(run[0], run[-1]) for run in runs]


CODE_VERSION = "dagster/code_version"


def strategies_in_use(settings: Settings) -> list[Strategy]:
    """The strategies that namespaces are ingested with, from their current files; before the first
    ingest the default one.
    """
    bound = set(bound_namespaces(Store.of(settings)).values())
    known = sorted(bound & set(strategy_names(settings))) or [settings.default_strategy]
    return [load_strategy(settings, name) for name in known]


def stage_code_versions(settings: Settings) -> dict[str, str]:
    """Ingestion stage to code version, made of its profiles; `media` includes the texts that models
    read in images.
    """
    profiles = [stage_profiles(strategy) for strategy in strategies_in_use(settings)]
    versions = {stage: _join(profile[stage] for profile in profiles) for stage in INGESTION_STAGES}
    return {
        **versions,
        "media": _join(f"{profile['media']}+{profile['media_texts']}" for profile in profiles),
    }


def release_code_versions(settings: Settings) -> dict[str, str]:
    """Release asset to code version, made of its store's profiles; for the published release of the
    whole index's.
    """
    strategies = strategies_in_use(settings)
    stores = [store_profiles(strategy) for strategy in strategies]
    versions = {store: _join(profile[store] for profile in stores) for store in stores[0]}
    return {**versions, "published_release": _join(map(index_profile, strategies))}


def stage_tags(stage: str, version: Version, profile: str, code_version: str) -> dict[str, str]:
    """The tags of a stage's event, with the code version by which Dagster detects staleness; it
    does not add one to events of a batch.
    """
    upstream = INGESTION_STAGES[
        max(0, INGESTION_STAGES.index(stage) - 1) : INGESTION_STAGES.index(stage)
    ]
    data_version = f"{version.file_sha256[:12]}-{profile}-r{version.revision}"
    return {
        "dagster/data_version": data_version,
        CODE_VERSION: code_version,
        **unread_inputs(upstream),
    }


def unread_inputs(upstream: Sequence[str]) -> dict[str, str]:
    """Tags which declare each input as present, and later events of it as irrelevant for
    staleness.
    """
    tags: dict[str, str] = {}
    for name in upstream:
        tags |= {
            f"dagster/input_data_version/{name}": "by profile",
            f"dagster/input_event_pointer/{name}": "NULL",
        }
    return tags


def _join(profiles: Iterable[str]) -> str:
    return " ".join(sorted(set(profiles)))
