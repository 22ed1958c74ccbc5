"""Files uploaded by a browser: they wait in the spool under an id, can be previewed, and are
ingested from there. Garbage collection removes those that nobody ingests.
"""

from __future__ import annotations

import json
import os
import re
import secrets
import shutil
import threading
from collections.abc import Sequence
from contextlib import closing, suppress
from operator import itemgetter
from pathlib import Path
from typing import BinaryIO

from rag_platform import access
from rag_platform.api.envelopes import fill_shape, without_paths
from rag_platform.api.writing import allowed_path, file_name, ingest, owned_path, parse_input
from rag_platform.config.settings import Settings, fingerprint
from rag_platform.config.strategies import load_strategy
from rag_platform.contract.schema import JobData
from rag_platform.contract.upkeep_shapes import PreviewData, RefusedFile, UploadData
from rag_platform.errors import CancelledError, InputError, NotFoundError
from rag_platform.ledger.ledger import open_ledger
from rag_platform.storage.store import Store

_ID = re.compile(r"up_[0-9a-f]{16}(_[0-9a-f]{16})?")  # with the mark of a limited caller
_REFUSED = "..."  # the list of refused files; no name of a file consists of dots
MAX_PREVIEW_CHUNKS = 20


def keep_upload(settings: Settings, files: Sequence[tuple[str, BinaryIO]]) -> UploadData:
    """Store the files, each (client's name, open file), under a new id. Those that are larger than
    the settings allow, or have no proper or another's name, are refused.

    Raises InputError for no files, for more than the settings allow, and if all are refused.
    """
    http = settings.server.http
    if not 1 <= len(files) <= http.max_upload_files:
        raise InputError(
            f"{len(files)} files were handed over; one upload takes 1 to {http.max_upload_files}"
            " (server.http.max_upload_files)",
            code="too_many_files",
        )
    upload_id = f"up_{secrets.token_hex(8)}{_own_mark()}"
    folder = _folder(settings, upload_id)
    folder.mkdir(parents=True)
    refused: list[RefusedFile] = []
    try:
        for name, source in files:
            try:
                _keep(name, source, folder, settings.limits.max_bytes)
            except InputError as error:
                refused.append({"name": name[:300], "code": error.code, "reason": str(error)})
        if len(refused) == len(files):
            reasons = dict.fromkeys(it["reason"] for it in refused)
            raise InputError("\n".join(reasons), code=refused[0]["code"])
        if refused:
            (folder / _REFUSED).write_text(json.dumps(refused), encoding="utf-8")
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    return show_upload(settings, upload_id)


def _keep(given: str, source: BinaryIO, folder: Path, max_bytes: int) -> None:
    """Store a file by the client's name for it. Raises InputError."""
    name = file_name(given, needs_suffix=False)  # the job tells of those that no loader reads
    if (folder / name).exists():
        raise InputError(
            f"two of the files are called {name!r}; rename one, or name their folder instead",
            code="same_name",
        )
    if source.seek(0, os.SEEK_END) > max_bytes:
        raise InputError(
            f"{name!r} is too large: a file has at most {max_bytes} bytes (limits.max_bytes)",
            code="too_large",
        )
    source.seek(0)
    with open(folder / name, "xb") as target:
        shutil.copyfileobj(source, target)


def list_uploads(settings: Settings) -> list[UploadData]:
    """The uploads that wait, newest first; to a token limited to libraries only its own ones."""
    found = []
    for folder in _folder(settings, "").glob(f"up_*{_own_mark()}"):
        with suppress(FileNotFoundError, NotFoundError):  # ingested or dropped meanwhile
            found.append((folder.stat().st_mtime, folder.name, show_upload(settings, folder.name)))
    return [upload for *_, upload in sorted(found, key=itemgetter(0, 1), reverse=True)]


def _own_mark() -> str:
    """What ids of the caller's uploads end with; empty for one who may see every library. A hash,
    as the id of a caller of OAuth is an address.
    """
    caller = access.current()
    return "" if caller.namespaces is None else f"_{fingerprint(caller.token_id)}"


def show_upload(settings: Settings, upload_id: str) -> UploadData:
    """The files that wait under an id. Raises NotFoundError `unknown_upload`."""
    files = _files(settings, upload_id)
    refused = files[0].with_name(_REFUSED)
    return {
        "upload_id": upload_id,
        "files": [{"name": path.name, "size": path.stat().st_size} for path in files],
        "refused": json.loads(refused.read_bytes()) if refused.exists() else [],
    }


def drop_upload(settings: Settings, upload_id: str) -> None:
    """Forget the files that wait under an id. Raises NotFoundError."""
    _files(settings, upload_id)
    shutil.rmtree(_folder(settings, upload_id), ignore_errors=True)


def preview_upload(
    settings: Settings,
    namespace: str,
    upload_id: str,
    name: str,
    cancelled: threading.Event | None = None,
) -> PreviewData:
    """What ingesting one of the files would give, with its first chunks. Setting `cancelled` ends
    it after the current page. Raises NotFoundError, CancelledError, and what
    `documents.previewing.preview` raises.
    """
    path = next((it for it in _files(settings, upload_id) if it.name == name), None)
    if path is None:
        raise NotFoundError(f"the upload has no file {name[:80]!r}", code="unknown_file")
    return _preview(settings, namespace, path, cancelled)


def preview_path(settings: Settings, namespace: str, given: str) -> PreviewData:
    """The same for a file on the server's machine. Raises InputError."""
    return _preview(settings, namespace, _check_path(given, settings))


def _preview(
    settings: Settings,
    namespace: str,
    path: Path,
    cancelled: threading.Event | None = None,
) -> PreviewData:
    from rag_platform.documents.previewing import preview, preview_data

    def go_on(done: int, total: int) -> None:
        if cancelled is not None and cancelled.is_set():
            raise CancelledError(f"the preview ended after {done} of {total} pages")

    with closing(open_ledger(Store.of(settings))) as ledger:
        bound = ledger.namespaces().get(namespace)
    chosen = load_strategy(settings, bound, ingestion=True)
    found = preview(path, chosen, settings, go_on)
    data = preview_data(found, MAX_PREVIEW_CHUNKS)
    return fill_shape(
        PreviewData,
        data,
        sections=[section["section_path"] for section in data["sections"]],
        images=len(data["media"]),
        warnings=without_paths(found.warnings),
    )


def ingest_upload(
    settings: Settings, namespace: str, upload_id: str, tags: Sequence[str] = ()
) -> JobData:
    """Start a job that ingests the files of an upload, which are received before this returns.
    Raises NotFoundError, BusyError.
    """
    from rag_platform.intake.discovery import Content
    from rag_platform.intake.receiving import ReceiveOptions

    given = [Content(path.name, path) for path in _files(settings, upload_id)]
    job = ingest(settings, given, namespace, ReceiveOptions(tags=tuple(tags)))
    shutil.rmtree(_folder(settings, upload_id), ignore_errors=True)
    return job


def ingest_place(
    settings: Settings,
    namespace: str,
    *,
    path: str | None = None,
    url: str | None = None,
    tags: Sequence[str] = (),
) -> JobData:
    """Start a job that ingests a file or folder of the server's machine, or a URL.

    The owner of the data root may name any path, as they can read the machine's files anyway; the
    holder of a token only paths in `server.ingest_roots`. Raises InputError, BusyError.
    """
    from rag_platform.intake.receiving import ReceiveOptions

    given = (
        _check_path(path, settings)
        if path and not url
        else parse_input(path, url, None, None, settings)
    )
    return ingest(settings, [given], namespace, ReceiveOptions(tags=tuple(tags)))


def _check_path(given: str, settings: Settings) -> Path:
    if access.current() == access.OWNER:
        return owned_path(given, settings.home)
    return allowed_path(given, settings.server.ingest_roots, settings.home)


def _folder(settings: Settings, upload_id: str) -> Path:
    return Store.of(settings).spool_dir / "uploads" / upload_id


def _files(settings: Settings, upload_id: str) -> list[Path]:
    """The files that wait under an id. Raises NotFoundError `unknown_upload`."""
    folder = _folder(settings, upload_id)
    known = _ID.fullmatch(upload_id) and folder.is_dir()
    found = sorted(path for path in folder.iterdir() if path.name != _REFUSED) if known else []
    if not found:
        raise NotFoundError(
            f"no files wait under {upload_id[:40]!r}: they were ingested, or collected as garbage;"
            " hand them over again",
            code="unknown_upload",
        )
    return found
