"""Receiving: which files, URLs and contents belong to a namespace, what their bytes are, and what has to be done about them.

One function, `receive`, spools, hashes, sniffs and decides. It runs in whoever launches a job (command line, server, sensor), before the
run, so that nothing is started where nothing changed.
"""

from __future__ import annotations

import hashlib
import io
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatch
from pathlib import Path

from rag_platform.config import Settings, Strategy, stage_profiles, strategy_config_id
from rag_platform.documents.downloading import download, is_url, normal_url
from rag_platform.documents.loading import choose, named_loader, sniff
from rag_platform.errors import DocumentError, FetchError, InputError, IntegrityError
from rag_platform.fetching import shown
from rag_platform.ir import Document, Json, Version
from rag_platform.ledger import Ledger
from rag_platform.ledger_rows import JobItem, Source
from rag_platform.ledger_tables import now
from rag_platform.store import Store, sha256_file

_NAMESPACE = re.compile(r"[a-z0-9][a-z0-9_-]{0,62}")
_HEAD_BYTES = 4096
_GONE = (404, 410)  # what a server answers for a page that is no more


@dataclass(frozen=True, slots=True)
class Content:
    """A document that was handed over rather than named: its bytes and the file name that stands for them in the source `inline`."""

    filename: str
    data: bytes


Input = Path | str | Content  # a file or folder, a URL, or content


@dataclass(frozen=True, slots=True)
class Found:
    """One file to receive; `explicit` when the user named it rather than its folder."""

    path: Path  # of a URL or content only the name
    source: Source
    source_uri: str
    explicit: bool
    ignored: str = ""  # the reason, for files that a folder run leaves alone
    content: bytes | None = None


@dataclass(frozen=True, slots=True)
class _Arrived:
    """The bytes of one file in the store, and the loader that claims them."""

    filename: str
    file_sha256: str
    size: int
    mime: str
    loader: str
    origin: str


@dataclass(frozen=True, slots=True)
class Reception:
    """What receiving decided, file by file."""

    namespace: str
    items: tuple[JobItem, ...]
    to_process: tuple[str, ...]  # version_ids, in order of arrival
    forced: tuple[str, ...]  # those whose stages run again on equal bytes
    retired: tuple[str, ...]  # doc_ids gone from their source
    changed: bool  # documents' tags or metadata differ from what the last release holds

    def count(self, *decisions: str) -> int:
        """How many files got one of these decisions."""
        return sum(item.decision in decisions for item in self.items)


@dataclass(frozen=True, slots=True)
class ReceiveOptions:
    """What the caller wants done with the files."""

    source: str | None = None
    tags: tuple[str, ...] = ()
    metadata: Json = field(default_factory=dict)
    policy: str = "skip"  # skip | new_version
    sync: bool = False
    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()


def receive(
    inputs: Sequence[Input],
    namespace: str,
    *,
    strategy: Strategy,
    settings: Settings,
    store: Store,
    ledger: Ledger,
    options: ReceiveOptions,
) -> Reception:
    """What must be processed so that `namespace` holds the inputs as they are now; their bytes are stored, the ledger knows them.

    A string that is a URL is fetched under settings.fetching; with options.sync a known one that answers 404 or 410 is retired.

    A file that cannot be received becomes an item with decision `refused` and the reason; the others go on. Raises InputError for a bad
    namespace, policy, source name or strategy, before anything is stored.
    """
    check_namespace(namespace)
    if options.policy not in ("skip", "new_version"):
        raise InputError(f"unknown policy {options.policy!r}; known: skip, new_version")
    found, items, scanned = _find(inputs, namespace, settings, ledger, options)
    ledger.bind_strategy(namespace, strategy.name, strategy_config_id(strategy))
    for source in {f.source.name: f.source for f in found}.values():
        ledger.put_source(source)
    documents = {d.source_uri: d for d in ledger.documents(namespace)}
    versions = {v.version_id: v for v in ledger.versions(namespace)}
    complete_profile = stage_profiles(strategy)["embeddings"]
    received: list[tuple[Document, Version]] = []
    forced: list[str] = []
    gone: list[str] = []
    changed = False
    for file in found:
        if file.ignored:
            items.append(JobItem(file.source_uri, "", "", "ignored", "skipped", "ignored", file.ignored))
            continue
        known = documents.get(file.source_uri)
        try:
            document, version = _identify(file, known, strategy, settings, store, options)
        except FetchError as error:
            if options.sync and known and error.details.get("status") in _GONE:
                gone.append(known.doc_id)
            else:
                items.append(_refusal(file, error))
            continue
        except (DocumentError, IntegrityError, OSError) as error:
            items.append(_refusal(file, error))
            continue
        earlier = versions.get(version.version_id)
        decision = _decide(known, version, earlier, complete_profile, options.policy)
        if decision == "skip":
            if known and (document.tags, document.metadata) != (known.tags, known.metadata):
                received.append((document, replace(versions[version.version_id])))
                changed = True
        else:
            if earlier:
                again = decision == "new_version"
                version = replace(version, revision=earlier.revision + again)
                forced += [version.version_id] * again
            received.append((document, version))
        state = "skipped" if decision == "skip" else "queued"
        items.append(JobItem(file.source_uri, document.doc_id, version.version_id, decision, state))
    ledger.receive(received)
    retired = [*gone, *_gone(scanned, found, documents)] if options.sync else []
    ledger.retire(namespace, retired)
    queued = tuple(item.version_id for item in items if item.state == "queued")
    return Reception(namespace, tuple(items), queued, tuple(forced), tuple(retired), changed)


def check_namespace(namespace: str) -> None:
    """Nothing for a well-formed namespace. Raises InputError with the rule otherwise."""
    if not _NAMESPACE.fullmatch(namespace):
        raise InputError(f"bad namespace {namespace!r}: 1-63 of a-z, 0-9, _ and -, beginning with a letter or digit", code="bad_namespace")


def document_id(namespace: str, source_uri: str) -> str:
    """A readable slug of the file's name and folder plus 10 hex digits of the identity, e.g. `fastapi-tutorial-3f2a9c1b7d`."""
    stem = re.sub(r"\.[A-Za-z0-9]{1,8}$", "", "-".join(source_uri.split("/")[-2:]))
    slug = re.sub(r"[^a-z0-9]+", "-", stem.lower()).strip("-")[:48].strip("-") or "doc"
    digest = hashlib.sha256(f"{namespace}\n{source_uri}".encode()).hexdigest()
    return f"{slug}-{digest[:10]}"


def version_id(namespace: str, doc_id: str, file_sha256: str) -> str:
    """`<namespace>.<doc_id>@<first 12 of file_sha256>`: the Dagster partition key."""
    return f"{namespace}.{doc_id}@{file_sha256[:12]}"


def _identify(
    file: Found, known: Document | None, strategy: Strategy, settings: Settings, store: Store, options: ReceiveOptions
) -> tuple[Document, Version]:
    """The document and version records of a file, its bytes stored."""
    arrived = _arrive(file, known, strategy, settings, store)
    doc_id = known.doc_id if known else document_id(file.source.namespace, file.source_uri)
    document = Document(
        namespace=file.source.namespace,
        doc_id=doc_id,
        source=file.source.name,
        source_uri=file.source_uri,
        filename=arrived.filename,
        title=known.title if known else "",
        tags=tuple(sorted({*(known.tags if known else ()), *options.tags})),
        categories=known.categories if known else (),
        metadata={**(known.metadata if known else {}), **options.metadata},
        status="active",
        origin=arrived.origin,
        created_at=known.created_at if known else now(),
        updated_at=now(),
    )
    version = Version(
        version_id=version_id(file.source.namespace, doc_id, arrived.file_sha256),
        namespace=file.source.namespace,
        doc_id=doc_id,
        source_uri=file.source_uri,
        filename=arrived.filename,
        file_sha256=arrived.file_sha256,
        size=arrived.size,
        mime=arrived.mime,
        loader=arrived.loader,
        strategy=strategy.name,
        received_at=now(),
    )
    return document, version


def _arrive(file: Found, known: Document | None, strategy: Strategy, settings: Settings, store: Store) -> _Arrived:
    """The bytes of a file, a URL or content, stored. Raises DocumentError where no loader claims them."""
    limits = settings.limits
    if is_url(file.source_uri):
        got = download(file.source_uri, settings, store)
        filename, file_sha256, size, origin = got.filename, got.file_sha256, got.size, got.final_url
        path = store.raw_path(file_sha256)
    elif file.content is not None:
        filename, origin = file.path.name, ""
        file_sha256, size = store.spool(io.BytesIO(file.content), limits.read_chunk_size_bytes, limits.max_bytes)
        path = store.raw_path(file_sha256)
    else:
        filename, path, origin, file_sha256, size = file.path.name, file.path, str(file.path), "", 0
    with open(path, "rb") as opened:
        head = opened.read(_HEAD_BYTES)
    loader = _loader(filename, head, path, strategy)
    if not file_sha256:  # a file that nobody reads is not copied
        file_sha256, size = _stored(path, known is not None, settings, store)
    return _Arrived(filename, file_sha256, size, sniff(filename, head, path), loader, origin)


def _loader(filename: str, head: bytes, path: Path, strategy: Strategy) -> str:
    """The loader that claims the file; for content that is not what its name says, the one its name asks for, which tells why it fails.

    Without that a damaged PDF in a folder would pass as a file nobody reads, and never show as a failed partition.
    """
    try:
        return choose(filename, head, strategy, path)
    except DocumentError:
        if named := named_loader(filename, strategy):
            return named
        raise


def _stored(path: Path, maybe_known: bool, settings: Settings, store: Store) -> tuple[str, int]:
    """(file_sha256, size) of a file whose bytes now lie under raw/; a file seen before is hashed without being copied again."""
    limits = settings.limits
    size = path.stat().st_size
    if size > limits.max_bytes:
        raise DocumentError(
            f"{size} bytes is above max_bytes = {limits.max_bytes}; raise limits.max_bytes in settings.yaml", code="too_large"
        )
    if maybe_known:
        digest = sha256_file(path, limits.read_chunk_size_bytes)
        if store.raw_path(digest).is_file():
            return digest, size
    with open(path, "rb") as source:
        return store.spool(source, limits.read_chunk_size_bytes, limits.max_bytes)


def _decide(known: Document | None, version: Version, earlier: Version | None, complete_profile: str, policy: str) -> str:
    if known is None:
        return "new"
    if earlier is None:
        return "new_version"
    live = known.live_version == version.version_id and known.status == "active"
    if live and policy == "new_version":
        return "new_version"
    complete = earlier.status == "ready" and earlier.counts.get("profile") == complete_profile
    return "skip" if live and complete else "continue"


def _refusal(file: Found, error: Exception) -> JobItem:
    code = getattr(error, "code", "unreadable")
    if code == "unsupported_type" and not file.explicit:
        return JobItem(file.source_uri, "", "", "ignored", "skipped", code, str(error))
    return JobItem(file.source_uri, "", "", "refused", "failed", code, str(error))


# --- finding files -----------------------------------------------------------------------------------------------------


def synced_inputs(ledger: Ledger, namespace: str, source: str | None = None) -> list[Input]:
    """What to receive so that a source, or every folder and list of URLs of the namespace, is as it is now. Raises InputError."""
    sources = [item for item in ledger.sources(namespace) if source in (None, item.name)]
    found: list[Input] = [Path(item.root) for item in sources if item.kind == "folder"]
    for item in sources:
        if item.kind == "urls":
            found += [document.source_uri for document in ledger.documents(namespace, source=item.name, status="active")]
    if not found:
        named = f"source {source!r}" if source else "folder or list of URLs"
        raise InputError(f"namespace {namespace!r} has no {named} to sync; `rag sources list` shows what it has", code="unknown_source")
    return found


def _find(
    inputs: Sequence[Input], namespace: str, settings: Settings, ledger: Ledger, options: ReceiveOptions
) -> tuple[list[Found], list[JobItem], list[tuple[str, str]]]:
    """The files below the given paths and the other inputs, each once; a refusal for each missing path; (source, folder) pairs scanned."""
    sources = {s.name: s for s in ledger.sources(namespace)}
    documents = ledger.documents(namespace)
    homes = {d.source_uri: d.source for d in documents}
    origins = {d.origin: d.source_uri for d in documents if d.source == "files"}
    taken = set(origins.values())
    found: dict[str, Found] = {}
    missing: list[JobItem] = []
    scanned: list[tuple[str, str]] = []
    for given in inputs:
        if isinstance(given, Content):
            name = Path(given.filename.replace("\\", "/")).name or "content"
            inline = sources.get("inline") or Source(namespace, "inline", "inline", "")
            found[f"inline/{name}"] = Found(Path(name), inline, f"inline/{name}", True, content=given.data)
            continue
        if isinstance(given, str) and is_url(given):
            try:
                url = normal_url(given, settings)
            except FetchError as error:
                missing.append(JobItem(shown(given), "", "", "refused", "failed", error.code, str(error)))
                continue
            found[url] = Found(Path(url), _url_source(homes.get(url), namespace, sources, options), url, True)
            continue
        path = Path(given).expanduser().absolute()
        if path.is_dir():
            source, prefix = _folder_source(path.resolve(), namespace, sources, options)
            sources[source.name] = source
            scanned.append((source.name, prefix))
            for file in _scan(source, prefix):
                found.setdefault(file.source_uri, file)
        elif path.is_file():
            file = _single_file(path.resolve(), namespace, sources, origins, taken)
            taken.add(file.source_uri)
            found[file.source_uri] = file
        else:
            missing.append(JobItem(Path(given).name, "", "", "refused", "failed", "missing_path", f"no file or folder at {given}"))
    return list(found.values()), missing, scanned


def _url_source(known: str | None, namespace: str, sources: dict[str, Source], options: ReceiveOptions) -> Source:
    """The list of URLs a URL belongs to: where it is known already, else the named one. Raises InputError for a name of another kind."""
    name = known or options.source or "urls"
    source = sources.setdefault(name, Source(namespace, name, "urls", ""))
    if source.kind != "urls" or "/" in name:
        raise InputError(f"source {name!r} is no list of URLs; choose another name with --source NAME", code="source_taken")
    return source


def _folder_source(path: Path, namespace: str, sources: dict[str, Source], options: ReceiveOptions) -> tuple[Source, str]:
    """The source a folder belongs to, and the folder's path inside it. Raises InputError when the name has another root."""
    for source in sources.values():
        if options.source in (None, source.name) and source.kind == "folder" and path.is_relative_to(source.root):
            globs = {key: value for key in ("include", "exclude") if (value := getattr(options, key))}
            relative = path.relative_to(source.root).as_posix()
            return replace(source, **globs), "" if relative == "." else relative
    name = options.source or path.name
    if name in ("files", "inline", "urls") or "/" in name or not name:
        raise InputError(f"{name!r} cannot name a source; choose another with --source NAME", code="bad_source")
    if name in sources:
        raise InputError(
            f"source {name!r} of namespace {namespace!r} already has another root; give this folder a name of its own with --source NAME",
            code="source_taken",
        )
    return Source(namespace, name, "folder", str(path), options.include, options.exclude), ""


def _single_file(path: Path, namespace: str, sources: dict[str, Source], origins: dict[str, str], taken: set[str]) -> Found:
    for source in sources.values():
        if source.kind == "folder" and path.is_relative_to(source.root):
            return Found(path, source, f"{source.name}/{path.relative_to(source.root).as_posix()}", True)
    files = sources.get("files") or Source(namespace, "files", "files", "")
    if str(path) in origins:
        return Found(path, files, origins[str(path)], True)
    # Two files of one name from two folders are two documents: the second takes as much of its path as tells them apart.
    parts = path.parts[1:]
    names = ("files/" + "/".join(parts[-length:]) for length in range(1, len(parts) + 1))
    return Found(path, files, next((name for name in names if name not in taken), "files/" + "/".join(parts)), True)


def _scan(source: Source, prefix: str) -> Iterator[Found]:
    """The files of a folder source below `prefix`, in order of their paths; hidden files and links out of the root carry a reason."""
    root = Path(source.root)
    for path in sorted((root / prefix).rglob("*")):
        relative = path.relative_to(root).as_posix()
        if path.is_dir():
            continue
        reason = ""
        if any(part.startswith(".") for part in relative.split("/")):
            reason = "hidden file"
        elif not path.resolve().is_relative_to(root):
            reason = "link out of the source's folder"
        elif not path.is_file():
            reason = "not a regular file"
        elif source.include and not any(fnmatch(relative, glob) for glob in source.include):
            reason = "not in include"
        elif any(fnmatch(relative, glob) for glob in source.exclude):
            reason = "in exclude"
        yield Found(path, source, f"{source.name}/{relative}", False, reason)


def _gone(scanned: Sequence[tuple[str, str]], found: Sequence[Found], documents: dict[str, Document]) -> list[str]:
    """doc_ids of active documents below the scanned folders whose file is no longer there."""
    seen = {f.source_uri for f in found if not f.ignored}
    below = tuple(f"{name}/{prefix}/" if prefix else f"{name}/" for name, prefix in scanned)
    return [d.doc_id for d in documents.values() if d.status == "active" and d.source_uri.startswith(below) and d.source_uri not in seen]
