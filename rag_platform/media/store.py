"""Resolves image references to bytes (in files next to the document, inside it, in data URIs, or on
the network if allowed), and stores each image once under its sha256.

An image's folder holds meta.json, `original.<ext>`, `thumb.webp`, and `display.png` or
`display.webp` if not every client can show the original. The original of an SVG is its sanitised
form; the received bytes, whose hash is the asset_id, are kept as `source.bin` and never shown.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import tempfile
import zipfile
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from urllib.parse import unquote, unquote_to_bytes, urljoin

from rag_platform.config.ingestion import MediaConfig
from rag_platform.config.settings import FetchLimits, Limits
from rag_platform.errors import (
    DocumentError,
    FetchError,
    IntegrityError,
    NotFoundError,
    damaged_file,
)
from rag_platform.intake import isolation
from rag_platform.ir import Facts, Json, MediaLink, MediaRef
from rag_platform.loaders.archives import describe_damage, require_small_directory
from rag_platform.loaders.images import (
    DecodedImage,
    Missing,
    decode_image,
    has_simple_decoder,
    looks_alike,
)
from rag_platform.storage.records import SCHEMA_VERSION
from rag_platform.storage.store import Store, read_json, write_bytes, write_json

PDF_ENGINES = {"pdf": "pymupdf", "pdfium": "pdfium"}  # loader to the engine that extracts images
BLANK = "blank_page"  # reason for a page without text or content, which is not a failure
_META = frozenset({"mime", "width", "height", "size", "original", "thumb", "display"})
_AGAIN = "`rag ingest FILE --policy new_version` of its document stores it again"


@dataclass(frozen=True, slots=True)
class Stored:
    """A stored image."""

    asset_id: str
    mime: str
    width: int
    height: int
    size: int
    new: bool = False  # True if it was not stored before


@dataclass(frozen=True, slots=True)
class Base:
    """The folder or URL against which a document's relative references are resolved. Paths must be
    inside `root` after symlinks are followed.
    """

    folder: Path | None = None
    root: Path | None = None
    url: str = ""


def resolve(
    facts: Facts,
    raw_path: Path,
    store: Store,
    config: MediaConfig,
    base: Base,
    limits: Limits | None = None,
    fetching: FetchLimits | None = None,
    on_new: Callable[[str], None] = lambda asset_id: None,
) -> list[MediaLink]:
    """One link for each reference and each page without text; a missing image has a reason.

    Equal bytes share one asset_id. The network is used only with config.fetch_remote. Images of a
    PDF are extracted in child processes.
    """
    limits = limits or Limits()
    refs = [*facts.media, *page_images(facts)]
    if not refs:
        return []
    known: dict[tuple[str, str], Stored | str] = {}
    with store.scratch() as scratch:
        extracted = _extract(facts.summary.loader_name, refs, raw_path, scratch, config, limits)
        finder = Finder(raw_path, config, base, fetching or FetchLimits(), extracted)
        for ref in refs:
            if (key := (ref.source_type, ref.origin_ref)) not in known:
                try:
                    known[key] = stored = keep(finder.bytes_of(ref), store, config, limits)
                    if stored.new:
                        on_new(stored.asset_id)
                except Missing as error:
                    known[key] = str(error)
    return [_link(ref, known[ref.source_type, ref.origin_ref]) for ref in refs]


def page_images(facts: Facts) -> list[MediaRef]:
    """References to the rendered pages of a PDF that have no text, such as scans."""
    if facts.summary.loader_name not in PDF_ENGINES:
        return []
    first = len(facts.media)
    return [
        MediaRef(f"page-{number:04d}", "pdf", page_target(number), page=number, order=first + at)
        for at, number in enumerate(facts.summary.pages_without_text)
    ]


def page_target(number: int) -> str:
    """The origin_ref of a page's image."""
    return f"pdf:page={number}"


def is_page_image(link: MediaLink) -> bool:
    """True for the image of a whole page."""
    return link.page is not None and link.origin_ref == page_target(link.page)


def _extract(
    loader: str,
    refs: list[MediaRef],
    raw_path: Path,
    scratch: Path,
    config: MediaConfig,
    limits: Limits,
) -> dict[str, Path | str]:
    """The origin_ref of each image in a PDF to a file in `scratch`, or to why there is none."""
    render = f";dpi={config.page_dpi};pixels={min(config.page_pixels, config.max_pixels)}"
    refs_by_target = {
        ref.origin_ref + (render if ref.origin_ref.startswith("pdf:page=") else ""): ref.origin_ref
        for ref in refs
        if ref.source_type == "pdf" and ref.origin_ref.startswith("pdf:")
    }
    if not refs_by_target:
        return {}
    files = isolation.extract_images(
        raw_path, list(refs_by_target), scratch, limits, engine=PDF_ENGINES.get(loader, "pymupdf")
    )
    return {refs_by_target[target]: found for target, found in files.items()}


def _link(ref: MediaRef, found: Stored | str) -> MediaLink:
    names = ("ref_id", "origin_ref", "start", "end", "page", "bbox", "order", "heading_path")
    place = {name: getattr(ref, name) for name in names}
    if isinstance(found, str):
        return MediaLink(asset_id="", reason=found, **place)
    stored = ("asset_id", "mime", "width", "height", "size")
    return MediaLink(**{name: getattr(found, name) for name in stored}, **place)


def keep(data: bytes, store: Store, config: MediaConfig, limits: Limits | None = None) -> Stored:
    """Store an image under its sha256, or return the stored one. Raises Missing with a reason.

    The type is detected from the content, and dimensions are checked before decoding. Rare types
    and SVG are decoded in a child process. meta.json is written last, so a folder with one is
    complete.
    """
    asset_id = hashlib.sha256(data).hexdigest()
    folder = store.media_dir(asset_id)
    meta_path = folder / "meta.json"
    with suppress(NotFoundError, IntegrityError):
        meta = read_meta(store, asset_id)
        if meta["width"] * meta["height"] > config.max_pixels and meta["mime"] != "image/svg+xml":
            raise Missing("too_many_pixels")
        return Stored(asset_id, meta["mime"], meta["width"], meta["height"], meta["size"])
    found = _decode(data, config, limits or Limits(), store.scratch)
    original = f"original.{found.extension}"
    files = {original: data if found.original is None else found.original, **found.variants}
    if found.original is not None:
        files["source.bin"] = data
    for name, content in files.items():
        write_bytes(folder / name, content)
    display = next((name for name in found.variants if name.startswith("display.")), "")
    meta = {
        "schema_version": SCHEMA_VERSION,
        "asset_id": asset_id,
        "mime": found.mime,
        "width": found.width,
        "height": found.height,
        "size": len(data),
        "original": original,
        "thumb": "thumb.webp" if "thumb.webp" in found.variants else "",
        "display": display or original,
    }
    write_json(meta_path, meta)
    return Stored(asset_id, found.mime, found.width, found.height, len(data), new=True)


def read_meta(store: Store, asset_id: str) -> Json:
    """The metadata of a stored image. Raises NotFoundError `picture_missing`, IntegrityError
    `damaged_file`.
    """
    path = store.media_dir(asset_id) / "meta.json"
    try:
        meta = read_json(path, _AGAIN)
    except FileNotFoundError:
        raise NotFoundError(f"image {asset_id} is gone; {_AGAIN}", code="picture_missing") from None
    if not (isinstance(meta, dict) and _META.issubset(meta)):
        raise damaged_file(path, "keys are missing", _AGAIN)
    return meta


def display_path(store: Store, asset_id: str) -> Path | None:
    """The file of a stored image that every client can show; None for an SVG without one."""
    folder, meta = store.media_dir(asset_id), read_meta(store, asset_id)
    name = str(meta.get("display") or meta["original"])
    return None if name.endswith(".svg") else folder / name


def find_damage(asset_id: str, store: Store, config: MediaConfig, limits: Limits) -> str:
    """Why an image's stored files are damaged, or an empty string. The received bytes are checked
    by their hash, and the derived files by rendering them again.

    Raises Missing if the bytes are intact but cannot be decoded here.
    """
    folder = store.media_dir(asset_id)
    removed = f"remove {folder}, then {_AGAIN}"
    try:
        meta = read_meta(store, asset_id)
    except (NotFoundError, IntegrityError) as error:
        return f"{error.code}: {error.message}"
    names = [str(meta[name]) for name in ("original", "thumb", "display") if meta[name]]
    received = "source.bin" if (folder / "source.bin").is_file() else names[0]
    if lost := [name for name in [*names, received] if not (folder / name).is_file()]:
        return f"picture_missing: {lost[0]} of image {asset_id} is gone; {removed}"
    data = (folder / received).read_bytes()
    if hashlib.sha256(data).hexdigest() != asset_id:
        return f"picture_changed: {received} of image {asset_id} holds other bytes; {removed}"
    # not in the data root, which may be read-only
    rendered = _decode(data, config, limits, tempfile.TemporaryDirectory)
    for name in names[1:]:
        if name == names[0]:
            continue
        picture = rendered.variants.get(name)
        if picture is None or not looks_alike((folder / name).read_bytes(), picture):
            return f"picture_changed: {name} of image {asset_id} shows something else; {removed}"
    return ""


def _decode(
    data: bytes,
    config: MediaConfig,
    limits: Limits,
    scratch: Callable[[], AbstractContextManager[str | Path]],
) -> DecodedImage:
    """Decode an image; all but simple types are decoded in a child with a `scratch` folder."""
    if has_simple_decoder(data):
        return decode_image(data, config.max_pixels)
    with scratch() as folder:
        return isolation.decode_in_child(data, config.max_pixels, limits, Path(folder))


_WEB = ("http:", "https:", "//")


@dataclass(frozen=True)
class Finder:
    """Reads the bytes of one document's references. `extracted` maps references into a PDF to a
    file, or to the reason why there is none.
    """

    raw_path: Path
    config: MediaConfig
    base: Base
    fetching: FetchLimits
    extracted: Mapping[str, Path | str]

    def bytes_of(self, ref: MediaRef) -> bytes:
        """The bytes of a reference, 1 to config.max_bytes. Raises Missing."""
        data = self._read_stored(ref)
        if not data:
            raise Missing("empty_file")
        if len(data) > self.config.max_bytes:
            raise Missing("too_large")
        return data

    def _read_stored(self, ref: MediaRef) -> bytes:
        target = ref.origin_ref.strip()
        lowered = target.lower()
        if ref.origin_ref in self.extracted:
            found = self.extracted[ref.origin_ref]
            if isinstance(found, str):
                raise Missing(found)
            return self._read(found)
        if ref.source_type == "image":
            return self._read(self.raw_path)
        if ref.source_type in ("docx", "pptx", "epub") and lowered.startswith(("docx:", "part:")):
            return self._member(target[len("part:") :])
        if lowered.startswith("data:"):
            return self._data_uri(target)
        if lowered.startswith(_WEB):
            return self._fetch(urljoin(self.base.url or "https:", target))
        if ":" in target.split("/")[0] and not (len(target) > 1 and target[1] == ":"):
            raise Missing("scheme_not_allowed")
        if self.base.url:
            return self._fetch(urljoin(self.base.url, target))
        return self._local(target)

    def _read(self, path: Path) -> bytes:
        if path.stat().st_size > self.config.max_bytes:
            raise Missing("too_large")
        return path.read_bytes()

    def _fetch(self, url: str) -> bytes:
        if not self.config.fetch_remote:
            raise Missing("remote_not_fetched")
        from rag_platform.intake.fetching import fetch

        try:
            return fetch(url, self.fetching, max_bytes=self.config.max_bytes).data
        except FetchError as error:
            raise Missing(f"fetch_failed: {error.code}") from error

    def _member(self, name: str) -> bytes:
        """A member of the document's ZIP archive, read without unpacking it to disk."""
        try:
            require_small_directory(self.raw_path)
            with zipfile.ZipFile(self.raw_path) as archive, archive.open(name) as member:
                return member.read(self.config.max_bytes + 1)
        except KeyError:
            raise Missing("not_found") from None
        except DocumentError as error:
            raise Missing(error.code) from error
        except (
            zipfile.BadZipFile,
            OSError,
            ValueError,
            RuntimeError,
            EOFError,
            NotImplementedError,
        ) as error:
            raise Missing(f"broken_archive: {describe_damage(error)}") from error

    def _data_uri(self, target: str) -> bytes:
        head, comma, body = target[5:].partition(",")
        if not comma:
            raise Missing("broken_data_uri")
        if len(body) > 3 * self.config.max_bytes:
            raise Missing("too_large")
        raw = unquote_to_bytes(body)
        if not head.lower().endswith(";base64"):
            return raw
        try:
            return base64.b64decode(b"".join(raw.split()), validate=True)
        except (binascii.Error, ValueError):
            raise Missing("broken_data_uri") from None

    def _local(self, target: str) -> bytes:
        """The bytes of a file inside the root, after symlinks are followed."""
        if self.base.folder is None or self.base.root is None:
            raise Missing("no_base_folder")
        if (
            "\x00" in target
            or PurePosixPath(target).is_absolute()
            or "\\" in target[:2]
            or (len(target) > 1 and target[1] == ":")
        ):
            raise Missing("outside_root")
        allowed = self.base.root.resolve()
        for name in dict.fromkeys(
            (target, unquote(target), unquote(target.split("#")[0].split("?")[0]))
        ):
            try:
                path = (self.base.folder / name).resolve()
                if not path.is_relative_to(allowed):
                    raise Missing("outside_root")
                if path.is_file():
                    return self._read(path)
            except (OSError, ValueError, RuntimeError):
                continue
        raise Missing("not_found")
