"""Discovery: the files, pages and uploads that the inputs of a run name."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatch, translate
from pathlib import Path
from typing import Any

from rag_platform.config.settings import Settings
from rag_platform.errors import FetchError, InputError, did_you_mean
from rag_platform.intake.fetching import is_url, normal_url, printable_url
from rag_platform.ir import Document
from rag_platform.ledger.ledger import Ledger
from rag_platform.ledger.schema import JobItem, Source
from rag_platform.loaders.languages import ENVIRONMENTS
from rag_platform.storage.store import sha256_file

_ROOTLESS = ("files", "inline", "urls")  # names of the built-in sources without a root
# a file in the folder that a documentation tool builds, and what else there holds no documentation
_SPHINX = ("_modules/*", "_sources/*", "_static/*.js", "_static/*.css", "genindex*", "search/*")
_YARD = ("class_list.html", "file_list.html", "method_list.html", "_index.html", "frames.html")
_BUILT = {"objects.inv": (*_SPHINX, "search.html", "py-modindex*"), "method_list.html": _YARD}
_BUILT_PATTERNS = {
    mark: re.compile("|".join(map(translate, globs))) for mark, globs in _BUILT.items()
}
_INSTALLED = frozenset({"node_modules", "site-packages"})  # folders of other people's packages
_ANY_FOLDERS = re.compile(r"/(?:\*\*/)+")


@dataclass(frozen=True, slots=True)
class Content:
    """An uploaded document: its bytes, or the file that holds them until received, and its file
    name in the source `inline`.
    """

    filename: str
    data: bytes | Path


Input = Path | str | Content  # a file or folder, a URL, or content


@dataclass(frozen=True, slots=True)
class Found:
    """One file to receive; `explicit` when the user named it rather than its folder."""

    path: Path  # for a URL or an upload only the name
    source: Source
    source_uri: str
    explicit: bool
    ignored: str = ""  # the reason why a folder's file is not read
    content: bytes | Path | None = None
    arriving: bool = False  # ignored for now: something may still be writing it


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceOptions:
    """Options of the sources that the inputs belong to."""

    source: str | None = None
    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    # retire | keep: what a sync does with documents whose file is gone; None: as the source has it
    on_gone: str | None = None
    # files of folders that changed within this time are left for the next scan
    settle_seconds: float = 0.0
    # whether the folder is the source's root in a new place; its documents stay the same
    moved: bool = False


@dataclass
class Finds:
    """The files that the inputs of a run name, each once."""

    found: dict[str, Found] = field(default_factory=dict)  # by source_uri
    sources: dict[str, Source] = field(default_factory=dict)  # by name, those the inputs belong to
    refused: list[JobItem] = field(default_factory=list)
    # prefixes of source_uris below which every file was seen
    looked: list[str] = field(default_factory=list)
    unseen: list[str] = field(default_factory=list)  # prefixes below which nothing could be read

    def held(self) -> set[str]:
        """The source_uris of the files that are read, now or by the next scan."""
        return {it.source_uri for it in self.found.values() if not it.ignored or it.arriving}

    def missing(self, documents: Iterable[Document]) -> list[Document]:
        """Documents below the scanned folders whose file is gone; none below unreadable folders."""
        seen = self.held()
        return [
            document
            for document in documents
            if document.source_uri.startswith(tuple(self.looked))
            and document.source_uri not in seen
            and not document.source_uri.startswith(tuple(self.unseen))
        ]

    def add(self, file: Found) -> None:
        """Add a file and its source."""
        self.found[file.source_uri] = file
        self.sources[file.source.name] = file.source

    def skip(self, place: str) -> None:
        """Leave out a scanned place: none of its files is received, none counts as missing."""
        self.found = {uri: it for uri, it in self.found.items() if not uri.startswith(place)}
        self.unseen.append(place)

    def refuse(self, source_uri: str, code: str, reason: str) -> None:
        """Add an input that is not read."""
        self.refused.append(JobItem(source_uri, "", "", "refused", "failed", code, reason))

    def refuse_name(self, source_uri: str) -> None:
        """Refuse an input whose name is not UTF-8, as names from old Windows archives may be."""
        shown = os.fsencode(source_uri).decode("utf-8", "backslashreplace")
        reason = (
            "the file name is not UTF-8, so no citation could name it; rename it (for a Chinese"
            " name of Windows: `convmv -f GBK -t UTF-8 --notest` and the path)"
        )
        self.refuse(shown, "bad_name", reason)


def find(
    inputs: Sequence[Input],
    namespace: str,
    settings: Settings,
    known: Iterable[Source],
    documents: Sequence[Document],
    options: SourceOptions,
) -> Finds:
    """The files that the inputs name, with a refusal for each path that does not exist; `known` and
    `documents` are the namespace's.

    Raises InputError for an impossible source.
    """
    finder = _Finder(namespace, {source.name: source for source in known}, documents, options)
    for item in inputs:
        if isinstance(item, Content):
            finder.add_content(item)
        elif isinstance(item, str) and is_url(item):
            finder.add_url(item, settings)
        else:
            finder.add_path(item)
    return finder.finds


class _Finder:
    """Determines the source and source_uri of each input of one run."""

    def __init__(
        self,
        namespace: str,
        sources: dict[str, Source],
        documents: Sequence[Document],
        options: SourceOptions,
    ) -> None:
        self.finds = Finds()
        self._namespace, self._sources, self._options = namespace, sources, options
        self._source_of = {document.source_uri: document.source for document in documents}
        self._active = {
            it.source_uri: it.live_version or it.wanted_version or ""
            for it in documents
            if it.status == "active"
        }
        self._origins = {
            document.origin: document.source_uri
            for document in documents
            if document.source == "files" and document.origin
        }
        self._used_uris = set(self._origins.values())

    def add_content(self, content: Content) -> None:
        name = Path(content.filename.replace("\\", "/")).name or "content"
        source = self._rootless_source("inline", name)
        self.finds.add(Found(Path(name), source, f"inline/{name}", True, content=content.data))

    def add_url(self, given: str, settings: Settings) -> None:
        try:
            url = normal_url(given, settings)
        except FetchError as error:
            self.finds.refuse(printable_url(given), error.code, str(error))
        else:
            self.finds.add(Found(Path(url), self._url_source(url), url, True))

    def add_path(self, path_or_text: Path | str) -> None:
        path = Path(path_or_text).expanduser().absolute()
        if not _is_utf8(str(path)):
            self.finds.refuse_name(str(path_or_text))
        elif not _is_utf8(target := os.path.realpath(path)):
            self.finds.refuse_name(target)
        elif path.is_dir():
            source, prefix = self._folder_source(path.resolve())
            is_new = source.name not in self._sources
            self._sources[source.name] = source
            _add_folder(source, prefix, self._options.settle_seconds, self.finds)
            if is_new and not self._options.source:
                self._refuse_moved(source)
        elif path.is_file():
            path = path.resolve()
            source = self._containing_source(path) or self._rootless_source("files", path.name)
            uri = _uri_below(source, path) if source.kind == "folder" else self._file_uri(path)
            self._used_uris.add(uri)
            self.finds.add(Found(path, source, uri, True))
        elif gone := next((it for it in self._sources.values() if it.root == str(path)), None):
            reason = (
                f"no folder at {path} any more: mount it, or if it stands elsewhere now, `rag"
                f" ingest FOLDER --source {gone.name} --moved --sync`"
            )
            self.finds.refuse(gone.name, "missing_path", reason)
        else:
            self.finds.refuse(Path(path_or_text).name, *why_missing(str(path_or_text)))

    def _refuse_moved(self, new: Source) -> None:
        """Raise InputError when a folder has most files of a source whose own folder is gone, and
        they are unchanged: a README.md and the same licence are in many folders.
        """
        start = f"{new.name}/"
        held = {uri.removeprefix(start) for uri in self.finds.held() if uri.startswith(start)}
        for source in self._sources.values():
            if source.kind != "folder" or os.path.isdir(source.root):
                continue
            versions = {
                uri.removeprefix(f"{source.name}/"): version
                for uri, version in self._active.items()
                if self._source_of[uri] == source.name
            }
            paths = {name: self.finds.found[start + name].path for name in held & versions.keys()}
            unchanged = sum(
                os.access(path, os.R_OK) and versions[name].endswith(f"@{sha256_file(path)[:12]}")
                for name, path in paths.items()
            )
            if 2 * unchanged > len(versions):
                raise InputError(
                    f"the folder of source {source.name!r}, {source.root}, is gone, and most of its"
                    f" files are here: where it was moved, repeat with --source {source.name}"
                    f" --moved; to read this folder besides, with --source {new.name}",
                    code="source_moved",
                )

    def _rootless_source(self, name: str, file: str) -> Source:
        """The source of an input outside of folders and lists of URLs. Raises InputError when the
        options name another one.
        """
        if self._options.source not in (None, name):
            raise InputError(
                f"{file!r} stands in no folder of source {self._options.source!r}: --source names a"
                " folder or a list of URLs; leave it out, and the file is a document of"
                f" {name!r}, or ingest its folder under that name",
                code="bad_source",
            )
        return self._sources.get(name) or Source(self._namespace, name, name, "")

    def _url_source(self, url: str) -> Source:
        """The list of URLs that a URL belongs to: its document's, else the one the options name.
        Raises InputError for a name of another kind.
        """
        name = self._source_of.get(url) or self._options.source or "urls"
        source = self._sources.get(name) or Source(self._namespace, name, "urls", "")
        if source.kind != "urls" or "/" in name:
            raise InputError(
                f"source {name!r} is no list of URLs; choose another name with --source NAME",
                code="source_taken",
            )
        self._sources[name] = replace(source, on_gone=self._options.on_gone or source.on_gone)
        return self._sources[name]

    def _containing_source(self, path: Path) -> Source | None:
        """The folder source that a path is in, limited to the one that the options name."""
        for source in self._sources.values():
            if (
                self._options.source in (None, source.name)
                and source.kind == "folder"
                and path.is_relative_to(source.root)
            ):
                return source
        return None

    def _folder_source(self, path: Path) -> tuple[Source, str]:
        """(source of a folder, path inside it). Raises InputError when the name has another
        root.
        """
        options, namespace = self._options, self._namespace
        options_given: dict[str, Any] = {
            key: tuple(filter(None, value)) if isinstance(value, tuple) else value
            for key in ("include", "exclude", "on_gone")
            if (value := getattr(options, key))
        }
        if source := self._containing_source(path):
            relative = path.relative_to(source.root).as_posix()
            return replace(source, **options_given), "" if relative == "." else relative
        name = options.source or path.name
        if name in _ROOTLESS and not options.source:
            name = f"{path.parent.name}-{name}"
        if name in _ROOTLESS or "/" in name or not name:
            raise InputError(
                f"{name!r} cannot name a source; choose another with --source NAME",
                code="bad_source",
            )
        if known := self._sources.get(name):
            if options.moved and known.kind == "folder":
                return replace(known, root=str(path), **options_given), ""
            raise InputError(
                f"source {name!r} of library {namespace!r} already has another root; where this"
                " is the same folder in another place, say --moved, else give it a name of its own"
                " with --source NAME",
                code="source_taken",
            )
        return Source(namespace, name, "folder", str(path), **options_given), ""

    def _file_uri(self, path: Path) -> str:
        """`files/NAME`, with as many parent folders as needed to be unique."""
        if str(path) in self._origins:
            return self._origins[str(path)]
        parts = path.parts[1:]
        names = ["files/" + "/".join(parts[-length:]) for length in range(1, len(parts) + 1)]
        return next((name for name in names if name not in self._used_uris), names[-1])


def require_there(paths: Sequence[str]) -> None:
    """Raise InputError for the first path that does not exist, suggesting a similar name."""
    given = next((given for given in paths if not os.path.lexists(given)), None)
    if given is not None:
        path = Path(given)
        code, reason = why_missing(given)
        beside = path.parent.iterdir() if path.parent.is_dir() else ()
        near = did_you_mean(path.name, [other.name for other in beside])
        raise InputError(f"{reason}{near}", code=code)


def why_missing(given: str) -> tuple[str, str]:
    """(code, reason) for a path that does not exist, or a URL that was parsed as a path."""
    if (url := re.fullmatch(r"([A-Za-z][A-Za-z0-9+.-]+):/+(.*)", given)) is None:
        return "missing_path", f"no file or folder at {given}"
    scheme, rest = url[1].lower(), url[2]
    remedy = (
        f"give the path: /{rest}"
        if scheme == "file"
        else "download it, and give the path of the file"
    )
    return "scheme_not_allowed", f"{scheme}:// is not read, only http:// and https:// are; {remedy}"


def _uri_below(source: Source, path: Path) -> str:
    return f"{source.name}/{path.relative_to(source.root).as_posix()}"


def inputs_to_sync(ledger: Ledger, namespace: str, source: str | None = None) -> list[Input]:
    """The inputs that bring a source, or every folder and list of URLs of the namespace, up to
    date. Raises InputError.
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
            f"library {namespace!r} has no {named} to sync; `rag sources list --namespace"
            f" {namespace}` shows what it has",
            code="unknown_source",
        )
    return found


# --- folders ------------------------------------------------------------------------------------


def _add_folder(source: Source, prefix: str, settle_seconds: float, finds: Finds) -> None:
    """Add the files of a folder source below `prefix` to the finds."""
    finds.sources[source.name] = source
    locked: list[Path] = []
    for file in _scan(source, prefix, settle_seconds, locked):
        if _is_utf8(file.source_uri):
            finds.found.setdefault(file.source_uri, file)
        elif not file.ignored:
            finds.refuse_name(file.source_uri)
    finds.looked.append(f"{source.name}/{prefix}/" if prefix else f"{source.name}/")
    for folder in locked:
        uri = _uri_below(source, folder)
        if not _is_utf8(uri):  # it has no documents
            finds.refuse_name(uri)
            continue
        finds.unseen.append(f"{uri}/".replace("/./", "/"))
        reason = "the folder cannot be read; its documents stay as they are"
        finds.refuse(uri, "unreadable", reason)


def _scan(
    source: Source, prefix: str, settle_seconds: float, locked: list[Path]
) -> Iterator[Found]:
    """The files of a folder source below `prefix`, sorted by path; ignored ones carry the reason.

    Unreadable folders are added to `locked`.
    """
    root = Path(source.root)
    paths = [
        Path(folder, name)
        for folder, folders, names in os.walk(
            root / prefix, onerror=lambda error: locked.append(Path(error.filename))
        )
        for name in (*names, *(item for item in folders if Path(folder, item).is_symlink()))
    ]
    for path in sorted(paths):
        if reason := _reason_to_ignore(path, source):
            yield Found(path, source, _uri_below(source, path), False, reason)
        else:
            age = _age(path) if settle_seconds else 0.0
            arriving = age < settle_seconds
            reason = f"changed {age:.0f} s ago and may still be written" if arriving else ""
            yield Found(path, source, _uri_below(source, path), False, reason, arriving=arriving)


def _is_utf8(name: str) -> bool:
    """False for a name that Python decoded with surrogates because its bytes are not UTF-8."""
    return not any("\udc80" <= char <= "\udcff" for char in name)


def _reason_to_ignore(path: Path, source: Source) -> str:
    relative = path.relative_to(source.root).as_posix()
    *folders, name = relative.split("/")
    if any(it.startswith(".") for it in folders) or (
        name.startswith(".") and name.lower() not in ENVIRONMENTS
    ):
        return "hidden file"
    if path.is_symlink() and not path.exists():
        return "link to what does not exist"
    if not path.resolve().is_relative_to(source.root):
        return "link out of the source's folder"
    if path.is_dir():
        return "link to a folder inside the source, which is not followed"
    if not path.is_file():
        return "not a regular file"
    if source.include and not any(_is_matched(relative, glob) for glob in source.include):
        return "not in include"
    if any(_is_matched(relative, glob) for glob in source.exclude):
        return "in exclude"
    return "" if source.include else _reason_to_leave_out(relative, Path(source.root))


def _is_matched(relative: str, glob: str) -> bool:
    """True if a glob names the path or a folder above it; `**/` may stand for no folder."""
    # with a mark before each slash, `MARK*/` stands for any number of folders
    path = f"/{relative}".replace("/", "\0/")
    parts = _ANY_FOLDERS.split("/" + glob.removeprefix("./").rstrip("/"))
    wanted = "\0*/".join(part.replace("/", "\0/") for part in parts)
    return fnmatch(path, wanted) or fnmatch(path, wanted + "\0/*")


def _reason_to_leave_out(relative: str, root: Path) -> str:
    """Why a file is read only where `include` names it: it belongs to an installed package, or is a
    page of an index or search, or a copy of source code, in a folder that a documentation tool
    built, which repeats names without saying what they are.
    """
    if not _INSTALLED.isdisjoint(relative.split("/")[:-1]):
        return "installed package; to have it anyway, name it in include"
    folders = [0, *(it.end() for it in re.finditer("/", relative))]
    is_built = any(
        built.match(relative, at) and (root / relative[:at] / mark).is_file()
        for mark, built in _BUILT_PATTERNS.items()
        for at in folders
    )
    return "index, search or copied source of a documentation tool" if is_built else ""


def _age(path: Path) -> float:
    """Seconds since the last write to a file or its metadata; 0 for one that just disappeared."""
    try:
        stat, now = path.stat(), time.time()
    except OSError:
        return 0.0
    return now - max(
        (moment for moment in (stat.st_mtime, stat.st_ctime) if moment <= now), default=now
    )
