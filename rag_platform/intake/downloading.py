"""URLs as input: their content is stored like a file's. A server's "not modified" is trusted while
the bytes are still stored.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import PurePosixPath

from rag_platform.config.settings import Settings
from rag_platform.intake import fetching
from rag_platform.loaders.markup.html import START, SUFFIXES
from rag_platform.storage.records import CACHE_REMEDY, SCHEMA_VERSION, from_json, to_json
from rag_platform.storage.store import Store, read_json, write_json

# declared type to the suffixes of such files; a name with another suffix gets the first one
_SUFFIXES: dict[str, tuple[str, ...]] = {
    "text/html": tuple(sorted(SUFFIXES)),
    "application/xhtml+xml": (".xhtml", ".html", ".xht"),
    "application/pdf": (".pdf",),
    "text/markdown": (".md", ".markdown", ".mdx", ".mdown", ".mkd"),
    "text/csv": (".csv",),
    "text/tab-separated-values": (".tsv",),
    "application/json": (".json", ".ipynb"),
    "application/vnd.openxmlformats-officedocument.wordprocessingml.document": (".docx",),
    "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet": (".xlsx",),
    "application/vnd.openxmlformats-officedocument.presentationml.presentation": (".pptx",),
    "application/epub+zip": (".epub",),
    "application/x-ipynb+json": (".ipynb",),
    "message/rfc822": (".eml", ".mhtml", ".mht"),
}


@dataclass(frozen=True, slots=True)
class Downloaded:
    """The content of a URL when last fetched; its bytes are in the store."""

    url: str
    final_url: str
    filename: str
    file_sha256: str
    size: int
    etag: str = ""
    last_modified: str = ""
    charset: str = ""  # as the server declared it


def is_url(text: str) -> bool:
    """True for an http or https URL."""
    return text.strip().lower().startswith(("http://", "https://"))


def normal_url(url: str, settings: Settings) -> str:
    """The canonical URL: without fragment, its host in lower-case ASCII. Raises FetchError."""
    return str(fetching.check_url(url, settings.fetching))


def download(url: str, settings: Settings, store: Store) -> Downloaded:
    """The content of the URL now, stored under its hash. Sends the ETag and date of the last
    download if its bytes are still stored.

    Raises FetchError as `fetching.fetch`; IntegrityError above limits.max_bytes.
    """
    earlier = _earlier(url, store)
    etag, last_modified = (earlier.etag, earlier.last_modified) if earlier else ("", "")
    with fetching.download(
        url,
        settings.fetching,
        etag=etag,
        last_modified=last_modified,
        max_bytes=settings.limits.max_bytes,
    ) as opened:
        if earlier and opened.head.unchanged:
            return earlier
        file_sha256, size = store.spool(
            opened, settings.limits.read_chunk_size_bytes, settings.limits.max_bytes
        )
        head = opened.head
    with open(store.raw_path(file_sha256), "rb") as stored:
        filename = name_with_suffix(head.filename, head.content_type, stored.read(4096))
    found = Downloaded(
        url,
        head.final_url,
        filename,
        file_sha256,
        size,
        head.etag,
        head.last_modified,
        head.charset,
    )
    write_json(store.download_path(url), {"schema_version": SCHEMA_VERSION, **to_json(found)})
    return found


def _earlier(url: str, store: Store) -> Downloaded | None:
    """The last download of the URL by this program version, if its bytes are still stored."""
    path = store.download_path(url)
    data = read_json(path, CACHE_REMEDY) if path.is_file() else {}
    if data.pop("schema_version", None) != SCHEMA_VERSION:
        return None
    earlier = from_json(Downloaded, data)
    return earlier if store.raw_path(earlier.file_sha256).is_file() else None


def name_with_suffix(filename: str, declared: str, head: bytes) -> str:
    """A file name with the suffix of its type: by content for HTML and PDF, else as declared."""
    filename = filename or "index"
    suffix = PurePosixPath(filename).suffix.lower()
    kind = "text/html" if START.match(head) else declared
    if b"%PDF-" in head[:1024]:
        kind = "application/pdf"
    known = _SUFFIXES.get(kind, ())
    if kind == "text/html" and suffix not in SUFFIXES:
        return filename + ".html"
    return filename if not known or suffix in known else filename + known[0]
