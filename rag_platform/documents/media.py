"""Images: references of the facts resolved to bytes, each stored once under its sha256.

A folder of the store holds `original.<ext>`, `thumb.webp`, where the original is not shown by every client `display.png` or `display.webp`,
and meta.json. An SVG's original is its sanitised form; the bytes as received, which name it, are kept as `source.bin` and shown nowhere.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from pathlib import Path

from rag_platform.config import FetchLimits, Limits, MediaConfig
from rag_platform.documents import isolation
from rag_platform.documents.media_bytes import Finder
from rag_platform.documents.picture_children import shown_apart
from rag_platform.documents.pictures import Missing, shown, simple
from rag_platform.ir import Facts, MediaLink, MediaRef
from rag_platform.records import SCHEMA_VERSION
from rag_platform.store import Store, atomic_path, read_json, write_json

_PDF_ENGINES = {"pdf": "pymupdf", "pdfium": "pdfium"}  # loader to what reads its images
BLANK = "blank_page"  # the reason of a page without text that shows nothing: no failure


@dataclass(frozen=True, slots=True)
class Stored:
    """An image as it lies in the store."""

    asset_id: str
    mime: str
    width: int
    height: int
    size: int


def resolve(
    facts: Facts,
    raw_path: Path,
    store: Store,
    config: MediaConfig,
    *,
    base_dir: Path | None,
    root: Path | None,
    limits: Limits | None = None,
    base_url: str = "",
    fetching: FetchLimits | None = None,
) -> list[MediaLink]:
    """One link for each reference, in order, and one for the picture of each page without text; equal bytes share one asset_id, and an
    image that cannot be had carries the reason.

    Relative paths are looked up from `base_dir` and must lie inside `root` after links are followed; those of a document from the network
    from `base_url`. The network is asked only where config.fetch_remote is on. What lies in a PDF is taken out by the parsing children.
    """
    limits = limits or Limits()
    refs = [*facts.media, *page_pictures(facts)]
    if not refs:
        return []
    known: dict[tuple[str, str], Stored | str] = {}
    with store.scratch() as scratch:
        extracted = _extracted(facts.summary.loader_name, refs, raw_path, scratch, config, limits)
        finder = Finder(raw_path, config, base_dir, root, base_url, fetching or FetchLimits(), extracted)
        for ref in refs:
            if (key := (ref.source_type, ref.origin_ref)) not in known:
                try:
                    known[key] = keep(finder.bytes_of(ref), store, config, limits)
                except Missing as error:
                    known[key] = str(error)
    return [_link(ref, known[ref.source_type, ref.origin_ref]) for ref in refs]


def page_pictures(facts: Facts) -> list[MediaRef]:
    """References to the drawn pages of a PDF that have no text, so that a scan in strips is seen and read as the page that it is."""
    if facts.summary.loader_name not in _PDF_ENGINES:
        return []
    return [
        MediaRef(f"page-{number:04d}", "pdf", page_target(number), page=number, order=len(facts.media) + at)
        for at, number in enumerate(facts.summary.pages_without_text)
    ]


def page_target(number: int) -> str:
    """The origin_ref of the picture of a page."""
    return f"pdf:page={number}"


def is_page_picture(link: MediaLink) -> bool:
    """True for the picture of a whole page."""
    return link.page is not None and link.origin_ref == page_target(link.page)


def _extracted(
    loader: str, refs: list[MediaRef], raw_path: Path, scratch: Path, config: MediaConfig, limits: Limits
) -> dict[str, Path | str]:
    """origin_ref of what lies in a PDF to a file in `scratch`, or to the reason why there is none."""
    drawn = f";dpi={config.page_dpi};pixels={min(config.page_pixels, config.max_pixels)}"
    asked = {}
    for ref in refs:
        if ref.source_type == "pdf" and ref.origin_ref.startswith("pdf:"):
            asked[ref.origin_ref + (drawn if ref.origin_ref.startswith("pdf:page=") else "")] = ref.origin_ref
    if not asked:
        return {}
    files = isolation.extract_images(raw_path, list(asked), scratch, limits, engine=_PDF_ENGINES.get(loader, "pymupdf"))
    return {asked[target]: found for target, found in files.items()}


def _link(ref: MediaRef, found: Stored | str) -> MediaLink:
    link = MediaLink(
        ref_id=ref.ref_id,
        asset_id="",
        origin_ref=ref.origin_ref,
        start=ref.start,
        end=ref.end,
        page=ref.page,
        bbox=ref.bbox,
        order=ref.order,
        heading_path=ref.heading_path,
    )
    if isinstance(found, str):
        return replace(link, reason=found)
    return replace(link, asset_id=found.asset_id, mime=found.mime, width=found.width, height=found.height, size=found.size)


def keep(data: bytes, store: Store, config: MediaConfig, limits: Limits | None = None) -> Stored:
    """The stored image of these bytes, under their sha256. Raises Missing with a reason.

    The type comes from the content; size and pixels are judged from the header before a pixel is decoded. Rare types and SVG are decoded in
    a child process. meta.json is written last, so a folder that has one is complete.
    """
    asset_id = hashlib.sha256(data).hexdigest()
    folder = store.media_dir(asset_id)
    meta_path = folder / "meta.json"
    if meta_path.is_file():
        meta = read_json(meta_path)
        if meta["width"] * meta["height"] > config.max_pixels and meta["mime"] != "image/svg+xml":
            raise Missing("too_many_pixels")
        return Stored(asset_id, meta["mime"], meta["width"], meta["height"], meta["size"])
    if simple(data):
        found = shown(data, config.max_pixels)
    else:
        with store.scratch() as scratch:
            found = shown_apart(data, config.max_pixels, limits or Limits(), scratch)
    original = f"original.{found.extension}"
    files = {original: data if found.original is None else found.original, **found.variants}
    if found.original is not None:
        files["source.bin"] = data
    for name, content in files.items():
        with atomic_path(folder / name) as temporary:
            temporary.write_bytes(content)
    display = next((name for name in found.variants if name.startswith("display.")), "")
    meta = {"schema_version": SCHEMA_VERSION, "asset_id": asset_id, "mime": found.mime, "width": found.width, "height": found.height,
            "size": len(data), "original": original, "thumb": "thumb.webp" if "thumb.webp" in found.variants else "",
            "display": display or original}  # fmt: skip
    write_json(meta_path, meta)
    return Stored(asset_id, found.mime, found.width, found.height, len(data))


def display_path(store: Store, asset_id: str) -> Path | None:
    """The file of a stored image that every reader of pictures understands, None for an SVG that could not be drawn."""
    folder = store.media_dir(asset_id)
    meta = read_json(folder / "meta.json")
    name = str(meta.get("display") or meta["original"])
    return None if name.endswith(".svg") else folder / name
