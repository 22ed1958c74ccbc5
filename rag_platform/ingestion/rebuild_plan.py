"""Plans a rebuild without changing anything: which outputs exist under the current config, which
must be built, and what kind of release follows.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from rag_platform.config.profiles import stage_profiles, text_norm_profile_id
from rag_platform.config.settings import Settings, Strategy
from rag_platform.config.strategies import load_strategy, strategy_names
from rag_platform.documents.versions import STAGES, VersionBuild, marker
from rag_platform.errors import RagError
from rag_platform.indexes.embedding import dense_texts, estimate
from rag_platform.indexes.embedding_cache import EmbeddingCache
from rag_platform.intake.receiving import is_given_up
from rag_platform.ir import Document, Json, Version, View
from rag_platform.processes.processors import usable_processors
from rag_platform.releases import release_store as releases
from rag_platform.releases.manifest import embedder_info, lacks_verdict
from rag_platform.releases.publishing import find_equal
from rag_platform.storage.records import to_json
from rag_platform.storage.store import read_records
from rag_platform.text.markdown_blocks import format_table
from rag_platform.text.wording import pluralise
from rag_platform.workspace import DataRoot, Workspace

# Rough costs on two slow cores, without embedding, measured with bench/ingest.py.
_START_SECONDS = 5.0  # starting a process that imports Dagster
_DOCUMENT_SECONDS = 0.05
_PAGE_SECONDS = 0.7  # reading a page of a PDF on one core
_CHUNK_SECONDS = 0.001  # per chunk of a full release
_DELTA_SECONDS = 2.0
_SHOWN = 5


@dataclass(frozen=True, slots=True)
class StagePlan:
    """The numbers of live versions whose output of a stage exists (`reused`) or must be built."""

    stage: str
    profile: str
    reused: int
    built: int


@dataclass(frozen=True, slots=True)
class RebuildPlan:
    """The least work that brings a namespace in line with its config."""

    namespace: str
    strategy: str
    moves_from: str  # the strategy that the namespace leaves, empty if it keeps its own
    documents: int  # live ones
    stages: tuple[StagePlan, ...]
    version_ids: tuple[str, ...]  # live versions that the job must process
    # source_uris of live documents that failed too often under this config; they block the release
    given_up: tuple[str, ...]
    embeddings: int  # known texts that have no vector yet
    uncut: int  # versions not chunked yet, whose embeddings come on top
    release: str  # nothing | delta | full
    reason: str  # why a release of that kind
    seconds: float  # estimated

    @property
    def empty(self) -> bool:
        """True when everything is up to date with the config."""
        return self.release == "nothing" and not self.version_ids and not self.given_up

    def data(self) -> Json:
        """The plan as JSON values, with a readable version under `markdown`."""
        return {"markdown": _markdown(self), **to_json(self)}


def plan(namespace: str, workspace: Workspace, *, full: bool = False) -> RebuildPlan:
    """Plan `rag rebuild` with the workspace's strategy; `full` asks for a full release instead of a
    delta.

    Embeddings are counted exactly where the texts are known; versions that must be chunked again
    count as `uncut`. Raises NotFoundError `unknown_namespace`.
    """
    strategy = workspace.strategy
    bound = workspace.bound_strategy(namespace)
    live = workspace.ledger.live(namespace)
    profiles = stage_profiles(strategy)
    builds = {v.version_id: _build_of(v, strategy, workspace, profiles) for _, v in live}
    existing = {
        stage: {key for key, work in builds.items() if marker(stage, work).is_file()}
        for stage in STAGES
    }
    stale = [
        v for _, v in live if v.profile != profiles["embeddings"] or _is_lost(builds[v.version_id])
    ]
    given_up = [v for v in stale if is_given_up(v, workspace)]
    due = [v for v in stale if v not in given_up]
    release, reason = _choose_release(namespace, workspace, live, due, full)
    wanted = [v for _, v in live] if release == "full" else due  # a full release needs all vectors
    wanted = wanted if strategy.builds_dense else []
    views = {
        v.version_id: _views(builds[v.version_id])
        for v in wanted
        if v.version_id in existing["views"]
    }
    uncut = [v for v in wanted if v.version_id not in views]
    with EmbeddingCache(workspace.store.embeddings_path) as cache:
        missing = _find_missing_texts(views, strategy, cache)
        embedding = _embedding_seconds(missing, uncut, strategy, workspace.settings, cache)
    lacking = {v.version_id for v in uncut} | {
        key for key, found in views.items() if any(view.content_hash in missing for view in found)
    }
    unread = [v for v in due if v.version_id not in existing["facts"]]
    stages = [*existing.items(), ("embeddings", existing["views"] - lacking)]
    return RebuildPlan(
        namespace=namespace,
        strategy=strategy.name,
        moves_from=bound if bound != strategy.name else "",
        documents=len(live),
        stages=tuple(
            StagePlan(stage, profiles[stage], len(found), len(live) - len(found))
            for stage, found in stages
        ),
        version_ids=tuple(v.version_id for v in due),
        given_up=tuple(v.source_uri for v in given_up),
        embeddings=len(missing),
        uncut=len(uncut),
        release=release,
        reason=reason,
        seconds=_total_seconds(due, unread, live, release, embedding),
    )


def find_lost(namespace: str, workspace: Workspace) -> list[Version]:
    """Live versions whose chunks or views are not stored though the ledger knows them as complete,
    as in a data root that was restored in parts.
    """
    strategy = workspace.strategy
    profiles = stage_profiles(strategy)
    return [
        version
        for _, version in workspace.ledger.live(namespace)
        if version.profile == profiles["embeddings"]
        and _is_lost(_build_of(version, strategy, workspace, profiles))
    ]


def _is_lost(work: VersionBuild) -> bool:
    return not all(marker(stage, work).is_file() for stage in ("chunks", "views"))


def _build_of(
    version: Version, strategy: Strategy, root: DataRoot, profiles: dict[str, str]
) -> VersionBuild:
    """A version's build with known profiles, since computing them is the slowest part of a plan."""
    return VersionBuild(version, strategy, root.settings, root.store, profiles=profiles)


def estimate_embedding(version_ids: Sequence[str], root: DataRoot) -> dict[str, float]:
    """Strategy name to the estimated seconds for embedding these versions, from measured rates;
    texts that have a vector cost nothing.

    A version whose bytes no namespace has chunked under the strategy counts by its size.
    """
    ledger, settings = root.ledger, root.settings
    versions = [ledger.version(version_id) for version_id in version_ids]
    hashes = {version.file_sha256 for version in versions}
    same_bytes = [
        *versions,
        *(
            version
            for namespace in ledger.namespaces()
            for version in ledger.versions(namespace)
            if version.file_sha256 in hashes
        ),
    ]
    seconds = {}
    with EmbeddingCache(root.store.embeddings_path) as cache:
        for strategy in (load_strategy(settings, name) for name in strategy_names(settings)):
            if not strategy.builds_dense:
                continue
            profiles, views = stage_profiles(strategy), {}
            for version in same_bytes:
                work = _build_of(version, strategy, root, profiles)
                if version.file_sha256 not in views and marker("views", work).is_file():
                    views[version.file_sha256] = _views(work)
            uncut = [version for version in versions if version.file_sha256 not in views]
            seconds[strategy.name] = _embedding_seconds(
                _find_missing_texts(views, strategy, cache), uncut, strategy, settings, cache
            )
    return seconds


def _embedding_seconds(
    missing: Mapping[str, str],
    uncut: Iterable[Version],
    strategy: Strategy,
    settings: Settings,
    cache: EmbeddingCache,
) -> float:
    """Estimated seconds for embedding the missing texts and those of versions not chunked yet."""
    return estimate(
        sum(version.text_bytes for version in uncut),
        strategy.embedding,
        cache,
        processes=settings.embedding_processes,
        texts=missing,
        text_norm_profile=text_norm_profile_id(strategy.cleaning),
    )


def _choose_release(
    namespace: str,
    workspace: Workspace,
    live: Sequence[tuple[Document, Version]],
    due: Sequence[Version],
    full: bool,
) -> tuple[str, str]:
    """(nothing | delta | full, reason)."""
    strategy, store = workspace.strategy, workspace.store
    bound = workspace.bound_strategy(namespace)
    published = releases.current(store, namespace)
    if not live and published is None:
        return "nothing", "the library holds no document"
    if full:
        return "full", "asked for"
    wanted = {version.version_id: version.edition for _, version in live}
    if (
        not due
        and bound == strategy.name
        and (newer := _later_release(namespace, wanted, workspace))
    ):
        return (
            "nothing",
            f"release {newer} holds it, and somebody went back from it: `rag releases forward"
            f" --namespace {namespace}` publishes it again",
        )
    if reason := releases.full_build_reason(store, namespace, strategy, published):
        return "full", reason
    assert published is not None
    if bound != strategy.name:
        return "delta", f"the library moves from strategy {bound!r} to {strategy.name!r}"
    if due:
        return "delta", f"built under another config: {pluralise(len(due), 'document')}"
    if find_equal(namespace, strategy, workspace):
        return "nothing", f"release {published} holds what the config asks for"
    manifest = releases.manifest_of(store, namespace, published)
    if manifest.contents != wanted:
        return "delta", f"release {published} does not hold exactly the live versions"
    if lacks_verdict(manifest, strategy):
        return "delta", f"its gates have not judged release {published} yet"
    return "delta", "titles, tags or metadata of documents changed, or what was read of them"


def _later_release(namespace: str, wanted: Mapping[str, str], workspace: Workspace) -> str:
    """The newest release, later than the published one and once published itself, with exactly the
    wanted versions under the current config; empty where there is none.
    """
    store, strategy = workspace.store, workspace.strategy
    published = releases.current(store, namespace)
    newer = releases.list_newer(namespace, published, store, workspace.ledger)
    newer_ids = {row.release_id for row in newer}
    for manifest in releases.list_releases(store, namespace):
        name = manifest.release_id
        held = name in newer_ids and manifest.contents == wanted
        if held and not releases.full_build_reason(store, namespace, strategy, name):
            return name
    return ""


def _views(work: VersionBuild) -> list[View]:
    """The views of a version and of its edition, if it has one. Damaged files count as none: only
    the rebuild itself reports them.
    """
    path = work.path("views", edition=work.version.edition)
    try:
        own = read_records(path, View) if work.version.edition and path.is_file() else []
        return [*work.views, *own]
    except (RagError, OSError, ValueError):
        return []


def _find_missing_texts(
    views: Mapping[str, Iterable[View]], strategy: Strategy, cache: EmbeddingCache
) -> dict[str, str]:
    """content_hash to text for the texts without a vector of the strategy's embedder."""
    info = embedder_info(strategy)
    if info is None:
        return {}
    texts = dense_texts((view for rows in views.values() for view in rows), strategy.cleaning)
    known = cache.hits(texts, info, text_norm_profile_id(strategy.cleaning))
    return {key: text for key, text in texts.items() if key not in known}


def _total_seconds(
    due: Sequence[Version],
    unread: Sequence[Version],
    live: Sequence[tuple[Document, Version]],
    release: str,
    embedding: float,
) -> float:
    if release == "nothing" and not due:
        return 0.0
    pages = sum(int(version.counts.get("pages", 0)) for version in unread)
    chunks = sum(int(version.counts.get("chunks", 0)) for _, version in live)
    reading = pages * _PAGE_SECONDS / min(4, usable_processors())
    releasing = chunks * _CHUNK_SECONDS + _DELTA_SECONDS if release == "full" else _DELTA_SECONDS
    return round(_START_SECONDS + len(due) * _DOCUMENT_SECONDS + reading + embedding + releasing, 1)


def _markdown(found: RebuildPlan) -> str:
    lines = [
        f"Library {found.namespace!r}, strategy {found.strategy!r},"
        f" {pluralise(found.documents, 'live document')}."
    ]
    if found.moves_from:
        lines[0] += f" It moves from strategy {found.moves_from!r}."
    if found.empty:
        return f"{lines[0]}\nNothing to do: {found.reason}."
    rows = [(stage.stage, stage.reused, stage.built) for stage in found.stages]
    lines += ["", *format_table(("stage", "there already", "to build"), rows)]
    more = (
        f", and those of {pluralise(found.uncut, 'document')} to be cut first"
        if found.uncut
        else ""
    )
    lines += [
        "",
        f"Through the stages: {pluralise(len(found.version_ids), 'document')}.",
        f"Embeddings to compute: {found.embeddings}{more}.",
        (
            f"Release: {found.release} ({found.reason}). The published one serves until the new one"
            " passed its checks."
        ),
        f"About {found.seconds:.0f} s.",
    ]
    if found.given_up:
        shown = ", ".join(found.given_up[:_SHOWN]) + (", …" if len(found.given_up) > _SHOWN else "")
        lines.append(
            f"Failed too often under this config and left alone: {len(found.given_up)} ({shown})."
            " They stop the release: put the config back, delete them with `rag docs delete DOC"
            f" --namespace {found.namespace}`, or try them again with `rag jobs retry --all"
            f" --namespace {found.namespace}`."
        )
    return "\n".join(lines)
