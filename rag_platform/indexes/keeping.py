"""What a collection of garbage must not touch, found out before anything goes."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from rag_platform.config import Settings, Strategy
from rag_platform.errors import IntegrityError
from rag_platform.indexes import release as releases
from rag_platform.indexes.belongings import Belongings, of_versions
from rag_platform.indexes.deleting import strategies_of
from rag_platform.indexes.embedding_cache import Space, parts_of
from rag_platform.indexes.manifest import Manifest, embedder_info
from rag_platform.indexes.retaining import kept_versions
from rag_platform.ir import Version
from rag_platform.ledger import Ledger
from rag_platform.profiles import stage_profiles, text_norm_profile_id
from rag_platform.store import Store


@dataclass(frozen=True, slots=True)
class Kept:
    """What stays, of one namespace or of all."""

    versions: Mapping[str, Version] = field(default_factory=dict)
    profiles: Mapping[str, frozenset[str]] = field(default_factory=dict)  # by namespace: those of its strategy and of its kept releases
    editions: frozenset[str] = frozenset()
    belongings: Belongings = field(default_factory=Belongings)
    facts: frozenset[Path] = frozenset()
    spaces: frozenset[Space] = frozenset()
    partitions: frozenset[str] = frozenset()  # keys of what is live or on its way

    def __or__(self, other: Kept) -> Kept:
        """What both keep."""
        return Kept(
            {**self.versions, **other.versions},
            {**self.profiles, **other.profiles},
            self.editions | other.editions,
            self.belongings | other.belongings,
            self.facts | other.facts,
            self.spaces | other.spaces,
            self.partitions | other.partitions,
        )


def survey(
    manifests: Mapping[str, Sequence[Manifest]],
    *,
    settings: Settings,
    store: Store,
    ledger: Ledger,
    only: Collection[str] | None = None,
) -> Kept:
    """What stays of every namespace, given the releases of each that stay; with `only`, of versions no others than these may go."""
    kept = Kept()
    for namespace, held in manifests.items():
        kept |= _of_namespace(namespace, held, settings, store, ledger, only)
    return kept


def require_known(store: Store, ledger: Ledger) -> None:
    """Nothing where the ledger knows every release's versions. Raises IntegrityError for one that is lost or older than the data."""
    for path in sorted(store.area("releases").glob("*/CURRENT")):
        namespace = path.parent.name
        known = {version.version_id for version in ledger.versions(namespace)}
        unknown = sorted({v for manifest in releases.list_releases(store, namespace) for v in manifest.versions} - known)
        if unknown:
            raise IntegrityError(
                f"releases of namespace {namespace!r} hold {len(unknown)} versions that the ledger does not know, e.g. {unknown[0]}; "
                "nothing is removed: put back the ledger that belongs to this data root",
                code="unknown_versions",
            )


def _of_namespace(
    namespace: str, manifests: Sequence[Manifest], settings: Settings, store: Store, ledger: Ledger, only: Collection[str] | None
) -> Kept:
    strategies = strategies_of(namespace, settings, ledger, manifests)
    used = [stage_profiles(strategies[0]), *(manifest.profiles for manifest in manifests)]
    profiles = frozenset(profile for each in used for profile in each.values())
    documents = ledger.documents(namespace)
    versions = ledger.versions(namespace)
    ids = kept_versions(
        documents,
        versions,
        ledger.tombstones(namespace, since=0),
        held={version_id for manifest in manifests for version_id in manifest.versions},
        drafted={draft.version_id for draft in ledger.drafts(namespace)},
        retention=settings.retention,
        now=datetime.now(UTC),
    )
    if only is not None:  # bytes that they share with one of these stay theirs
        ids |= {version.version_id for version in versions if version.status != "purged" and version.version_id not in only}
    kept = {version.version_id: version for version in versions if version.version_id in ids}
    editions = [*(version.edition for version in kept.values()), *(e for manifest in manifests for e in manifest.editions.values())]
    return Kept(
        kept,
        {namespace: profiles},
        frozenset(edition for edition in editions if edition),
        of_versions(store, kept.values(), profiles if only is None else None, strategies),
        frozenset(store.facts_dir(version, each["facts"]) for version in kept.values() for each in used if "facts" in each),
        _spaces(strategies[0], manifests),
        frozenset(key for document in documents for key in (document.live_version, document.wanted_version) if key),
    )


def _spaces(strategy: Strategy, manifests: Sequence[Manifest]) -> frozenset[Space]:
    """The spaces of the vectors that a namespace uses."""
    built = [(Strategy.model_validate(manifest.strategy_config), manifest.embedder) for manifest in manifests]
    pairs = [(strategy, embedder_info(strategy)), *built]
    return frozenset(
        (part.embedder_id, part.version, text_norm_profile_id(each.cleaning))
        for each, info in pairs
        if info is not None
        for part in parts_of(info)
    )
