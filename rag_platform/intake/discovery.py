"""Finding: which files, pages and contents the inputs of a run name, and what is no longer where it
was.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatch
from pathlib import Path

from rag_platform.config.settings import Settings
from rag_platform.errors import FetchError, InputError
from rag_platform.intake.downloading import is_url, normal_url
from rag_platform.intake.fetching import shown
from rag_platform.ir import Document
from rag_platform.ledger.ledger import Ledger
from rag_platform.ledger.schema import JobItem, Source

_OWN_NAMES = ("files", "inline", "urls")  # sources that need no root


@dataclass(frozen=True, slots=True)
class Content:
    """A document that was handed over rather than named: its bytes and the file name that stands
    for them in the source `inline`.
    """

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
    arriving: bool = False  # left alone for now: something may still be writing it


@dataclass(frozen=True, slots=True)
class Asked:
    """What a caller says of the sources that the inputs belong to."""

    source: str | None = None
    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    on_gone: str | None = None  # retire | keep; None leaves a source as it is
    # files of folders that changed within this time are left for the next look
    settle_seconds: float = 0.0


@dataclass
class Finds:
    """The files below the inputs and the other inputs, each once; what is no file; the folders that
    were looked through.
    """

    found: dict[str, Found] = field(default_factory=dict)  # by source_uri
    sources: dict[str, Source] = field(default_factory=dict)  # by name, those the inputs belong to
    refused: list[JobItem] = field(default_factory=list)
    # beginnings of source_uris below which every file was seen
    looked: list[str] = field(default_factory=list)
    unseen: list[str] = field(default_factory=list)  # those below which nothing could be seen

    def missing(self, documents: Iterable[Document]) -> list[Document]:
        """Documents below the folders whose file is no longer there; of folders that cannot be read
        nothing is said.
        """
        seen = {
            file.source_uri for file in self.found.values() if not file.ignored or file.arriving
        }
        return [
            document
            for document in documents
            if document.source_uri.startswith(tuple(self.looked))
            and document.source_uri not in seen
            and not document.source_uri.startswith(tuple(self.unseen))
        ]


def find(
    inputs: Sequence[Input],
    namespace: str,
    settings: Settings,
    known: Iterable[Source],
    documents: Sequence[Document],
    asked: Asked,
) -> Finds:
    """What the inputs name, with a refusal for each path that is not there; `known` and `documents`
    are what the namespace has.

    Raises InputError for a source that cannot be meant.
    """
    sources = {source.name: source for source in known}
    homes = {document.source_uri: document.source for document in documents}
    origins = {
        document.origin: document.source_uri
        for document in documents
        if document.source == "files" and document.origin
    }
    taken = set(origins.values())
    finds = Finds()
    for given in inputs:
        if isinstance(given, Content):
            name = Path(given.filename.replace("\\", "/")).name or "content"
            inline = _own_source("inline", namespace, sources, asked, name)
            finds.found[f"inline/{name}"] = Found(
                Path(name), inline, f"inline/{name}", True, content=given.data
            )
            continue
        if isinstance(given, str) and is_url(given):
            try:
                url = normal_url(given, settings)
            except FetchError as error:
                finds.refused.append(
                    JobItem(shown(given), "", "", "refused", "failed", error.code, str(error))
                )
                continue
            finds.found[url] = Found(
                Path(url), _url_source(homes.get(url), namespace, sources, asked), url, True
            )
            continue
        path = Path(given).expanduser().absolute()
        if path.is_dir():
            source, prefix = _folder_source(path.resolve(), namespace, sources, asked)
            sources[source.name] = source
            _look_through(source, prefix, asked.settle_seconds, finds)
        elif path.is_file():
            file = _single_file(path.resolve(), namespace, sources, origins, taken, asked)
            taken.add(file.source_uri)
            finds.found[file.source_uri] = file
        else:
            code, reason = _not_found(str(given))
            finds.refused.append(
                JobItem(Path(given).name, "", "", "refused", "failed", code, reason)
            )
    finds.sources |= {file.source.name: file.source for file in finds.found.values()}
    return finds


def inputs_to_sync(ledger: Ledger, namespace: str, source: str | None = None) -> list[Input]:
    """What to receive so that a source, or every folder and list of URLs of the namespace, is as it
    is now. Raises InputError.
    """
    sources = [item for item in ledger.sources(namespace) if source in (None, item.name)]
    found: list[Input] = [Path(item.root) for item in sources if item.kind == "folder"]
    for item in sources:
        if item.kind == "urls":
            found += [
                document.source_uri
                for document in ledger.documents(namespace, source=item.name, status="active")
            ]
    if not found:
        named = f"source {source!r}" if source else "folder or list of URLs"
        raise InputError(
            f"namespace {namespace!r} has no {named} to sync; `rag sources list` shows what it has",
            code="unknown_source",
        )
    return found


# --- sources ------------------------------------------------------------------------------------


def _own_source(
    name: str, namespace: str, sources: dict[str, Source], asked: Asked, file: str
) -> Source:
    """The source of what belongs to no folder and no list of URLs. Raises InputError when another
    one is asked for.
    """
    if asked.source not in (None, name):
        raise InputError(
            f"{file!r} stands in no folder of source {asked.source!r}: --source names a folder or a"
            f" list of URLs; leave it out, and the file is a document of {name!r}, or ingest its"
            " folder under that name",
            code="bad_source",
        )
    return sources.get(name) or Source(namespace, name, name, "")


def _url_source(
    known: str | None, namespace: str, sources: dict[str, Source], asked: Asked
) -> Source:
    """The list of URLs a URL belongs to: where it is known already, else the named one. Raises
    InputError for a name of another kind.
    """
    name = known or asked.source or "urls"
    source = sources.get(name) or Source(namespace, name, "urls", "")
    if source.kind != "urls" or "/" in name:
        raise InputError(
            f"source {name!r} is no list of URLs; choose another name with --source NAME",
            code="source_taken",
        )
    sources[name] = replace(source, on_gone=asked.on_gone or source.on_gone)
    return sources[name]


def _not_found(given: str) -> tuple[str, str]:
    """Code and reason for what is neither a file nor a folder; a path has lost one of the slashes
    of an address.
    """
    if (address := re.fullmatch(r"([A-Za-z][A-Za-z0-9+.-]+):/+(.*)", given)) is None:
        return "missing_path", f"no file or folder at {given}"
    scheme, rest = address[1].lower(), address[2]
    remedy = (
        f"give the path: /{rest}"
        if scheme == "file"
        else "download it, and give the path of the file"
    )
    return "scheme_not_allowed", f"{scheme}:// is not read, only http:// and https:// are; {remedy}"


def _folder_source(
    path: Path, namespace: str, sources: dict[str, Source], asked: Asked
) -> tuple[Source, str]:
    """The source a folder belongs to, and the folder's path inside it. Raises InputError when the
    name has another root.
    """
    for source in sources.values():
        if (
            asked.source in (None, source.name)
            and source.kind == "folder"
            and path.is_relative_to(source.root)
        ):
            given = {
                key: value
                for key in ("include", "exclude", "on_gone")
                if (value := getattr(asked, key))
            }
            relative = path.relative_to(source.root).as_posix()
            return replace(source, **given), "" if relative == "." else relative
    name = asked.source or path.name
    if name in _OWN_NAMES or "/" in name or not name:
        raise InputError(
            f"{name!r} cannot name a source; choose another with --source NAME", code="bad_source"
        )
    if name in sources:
        raise InputError(
            f"source {name!r} of namespace {namespace!r} already has another root; give this folder"
            " a name of its own with --source NAME",
            code="source_taken",
        )
    return (
        Source(
            namespace,
            name,
            "folder",
            str(path),
            asked.include,
            asked.exclude,
            on_gone=asked.on_gone or "retire",
        ),
        "",
    )


def _single_file(
    path: Path,
    namespace: str,
    sources: dict[str, Source],
    origins: dict[str, str],
    taken: set[str],
    asked: Asked,
) -> Found:
    for source in sources.values():
        if (
            asked.source in (None, source.name)
            and source.kind == "folder"
            and path.is_relative_to(source.root)
        ):
            return Found(
                path, source, f"{source.name}/{path.relative_to(source.root).as_posix()}", True
            )
    files = _own_source("files", namespace, sources, asked, path.name)
    if str(path) in origins:
        return Found(path, files, origins[str(path)], True)
    # Two files of one name from two folders are two documents: the second takes as much of its path
    # as tells them apart.
    parts = path.parts[1:]
    names = ("files/" + "/".join(parts[-length:]) for length in range(1, len(parts) + 1))
    return Found(
        path,
        files,
        next((name for name in names if name not in taken), "files/" + "/".join(parts)),
        True,
    )


# --- folders ------------------------------------------------------------------------------------


def _look_through(source: Source, prefix: str, settle_seconds: float, finds: Finds) -> None:
    """Add the files of a folder source below `prefix` to what was found."""
    finds.sources[source.name] = source
    locked: list[Path] = []
    for file in _scan(source, prefix, settle_seconds, locked):
        finds.found.setdefault(file.source_uri, file)
    finds.looked.append(f"{source.name}/{prefix}/" if prefix else f"{source.name}/")
    for folder in locked:
        uri = f"{source.name}/{folder.relative_to(source.root).as_posix()}"
        finds.unseen.append(f"{uri}/" if folder != Path(source.root) else f"{source.name}/")
        reason = "the folder cannot be read; its documents stay as they are"
        finds.refused.append(JobItem(uri, "", "", "refused", "failed", "unreadable", reason))


def _scan(
    source: Source, prefix: str, settle_seconds: float, locked: list[Path]
) -> Iterator[Found]:
    """The files of a folder source below `prefix`, in order of their paths; those that are left
    alone carry a reason.

    Folders that cannot be read are added to `locked`.
    """
    root = Path(source.root)
    paths = [
        Path(folder, name)
        for folder, folders, names in os.walk(
            root / prefix, onerror=lambda error: locked.append(Path(error.filename))
        )
        for name in (
            *names,
            *(item for item in folders if os.path.islink(os.path.join(folder, item))),
        )
    ]
    for path in sorted(paths):
        relative = path.relative_to(root).as_posix()
        reason, arriving = "", False
        if any(part.startswith(".") for part in relative.split("/")):
            reason = "hidden file"
        elif not path.resolve().is_relative_to(root):
            reason = "link out of the source's folder"
        elif path.is_dir():
            continue
        elif not path.is_file():
            reason = "not a regular file"
        elif source.include and not any(fnmatch(relative, glob) for glob in source.include):
            reason = "not in include"
        elif any(fnmatch(relative, glob) for glob in source.exclude):
            reason = "in exclude"
        elif settle_seconds and (age := _age(path)) < settle_seconds:
            reason, arriving = f"changed {age:.0f} s ago and may still be written", True
        yield Found(path, source, f"{source.name}/{relative}", False, reason, arriving=arriving)


def _age(path: Path) -> float:
    """Seconds since anything wrote to a file, whatever time it was given afterwards; 0 for one that
    is just being moved away.
    """
    try:
        stat, now = path.stat(), time.time()
    except OSError:
        return 0.0
    return now - max(
        (moment for moment in (stat.st_mtime, stat.st_ctime) if moment <= now), default=now
    )
