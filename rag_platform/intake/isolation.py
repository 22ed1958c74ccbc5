"""Reads files and images in sandboxed child processes with limits of time and memory. A page that
kills its child loses its layout and nothing else; a decoder that crashes affects one image.
"""

from __future__ import annotations

import atexit
import contextlib
import dataclasses
import functools
import hashlib
import logging
import os
import threading
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson

from rag_platform.config.settings import Limits
from rag_platform.errors import ConfigError, DocumentError, ProviderError
from rag_platform.intake import second_readers
from rag_platform.ir import Block, Facts, MediaRef, ParseSummary
from rag_platform.loaders.images import DecodedImage, Missing, looks_like_svg
from rag_platform.loaders.pdf.assembly import PagedLoader, PdfInfo, assemble
from rag_platform.loaders.pdf.pages import PageFacts
from rag_platform.loaders.pdf.quoting import PageQuote
from rag_platform.observability import tracing
from rag_platform.processes.processors import usable_processors
from rag_platform.processes.sandbox import START_SECONDS, ChildLost, SandboxPool
from rag_platform.registry import traits
from rag_platform.storage.records import from_json

log = logging.getLogger(__name__)

# after this many lost children, a document's remaining pages are read as raw text
MAX_LAYOUT_FAILURES = 3
RAW_SHARE = 0.1  # of page_seconds for the raw text of a page that took longer; chosen by hand
MIN_WINDOW_PAGES = 4
# with the layout model a page takes 0.5 s of processor time, on a busy machine 1.5 s
LONG_PDF_PAGES = 1_000
OCR_MEMORY_MB = 4000  # address space; an engine with its models takes 0.7 GB of real memory
# images are read one at a time, on all cores: two engines in parallel would need twice the memory
_ocr_lock = threading.Lock()

OnPage = Callable[[int, int], None]


# --- formats without pages ----------------------------------------------------------------------


def load_in_child(
    path: Path, filename: str, provider: str, options: Mapping[str, Any], limits: Limits
) -> Facts:
    """The facts that the named loader reads from a file, in a child within limits.parse_seconds and
    limits.parse_memory_mb.

    `provider` is a registry name or a dotted path. Raises the loader's own DocumentError,
    `timeout`, `out_of_memory`, `parser_failed` when the child died or the loader raised anything
    else; ConfigError when the loader cannot be built. The next file then gets a fresh child.
    """
    text: list[str] = []
    blocks: list[Block] = []
    media: list[MediaRef] = []
    summary: ParseSummary | None = None
    task = {"task": "load", "filename": filename, "provider": provider, "options": dict(options)}
    left = limits.max_bytes
    for message in _ask_about(path, task, _engine(provider), limits):
        if "text" in message:
            text.append(str(message["text"]))
            left -= len(text[-1])
            if left < 0:
                raise DocumentError(
                    f"the text of {filename} has more than {limits.max_bytes} characters"
                    " (limits.max_bytes); split the file",
                    code="too_large",
                )
        elif "blocks" in message:
            blocks += [from_json(Block, item) for item in message["blocks"]]
        elif "media" in message:
            media += [from_json(MediaRef, item) for item in message["media"]]
        elif "summary" in message:
            summary = from_json(ParseSummary, message["summary"])
    whole = "".join(text)
    if summary is None or hashlib.sha256(whole.encode()).hexdigest() != summary.md_sha256:
        raise DocumentError(
            f"the parsing process handed over only a part of {filename}; ingest the file again",
            code="parser_failed",
        )
    return Facts(whole, tuple(blocks), tuple(media), summary)


_Reasons = dict[int, str]  # block ordinal to why the block differs from the file


def verify_in_child(
    path: Path,
    provider: str,
    options: Mapping[str, Any],
    facts_text: str,
    blocks: Sequence[Block],
    limits: Limits,
) -> _Reasons:
    """The failures that the named loader's `verify_blocks` finds in these blocks, in children under
    the limits of `load_in_child`.

    Blocks with pages are split into windows of limits.pdf_window_pages. Pass all blocks of a page
    together, because a character belongs to the smallest rectangle around it. Raises as
    `load_in_child`.
    """
    task = {"task": "verify", "provider": provider, "options": dict(options)}

    def verify(text: str, group: Sequence[Block]) -> tuple[_Reasons, _Reasons]:
        return _check_blocks(path, task, _engine(provider), text, group, limits)

    return _check_in_windows(verify, facts_text, blocks, limits)[0]


def reread_in_child(
    path: Path, provider: str, facts_text: str, blocks: Sequence[Block], limits: Limits
) -> tuple[_Reasons, _Reasons]:
    """({ordinal: reason} of the blocks that a second reader reads differently, {ordinal: reason} of
    those that it cannot read). Runs like `verify_in_child`; after an error in a window its blocks
    count as unread.
    """
    task = {"task": "reread", "provider": provider}
    engine = second_readers.ENGINES.get(provider, "other")

    def reread(text: str, group: Sequence[Block]) -> tuple[_Reasons, _Reasons]:
        try:
            return _check_blocks(path, task, engine, text, group, limits)
        except DocumentError as error:
            return {}, {block.ordinal: f"{error.code}: {error.message}" for block in group}

    return _check_in_windows(reread, facts_text, blocks, limits)


def locate_in_child(
    path: Path,
    provider: str,
    page: int,
    facts_text: str,
    blocks: Sequence[Block],
    spans: Sequence[tuple[int, int]],
    limits: Limits,
) -> PageQuote:
    """Where spans of the facts are printed on a page, according to the named loader in a child.
    Pass all blocks of the page. Raises as `load_in_child`.
    """
    text, relative = _cut_out(facts_text, blocks)
    start = blocks[0].start if blocks else 0
    task = {
        "task": "locate",
        "provider": provider,
        "options": {},
        "page": page,
        "text": text,
        "blocks": [dataclasses.asdict(block) for block in relative],
        "spans": [(first - start, last - start) for first, last in spans],
    }
    messages = list(_ask_about(path, task, _engine(provider), limits))
    found = next(message["quote"] for message in messages if "quote" in message)
    boxes = tuple(tuple((*box,) for box in group) for group in found["boxes"])
    return PageQuote(float(found["width"]), float(found["height"]), boxes)


def _cut_out(text: str, blocks: Sequence[Block]) -> tuple[str, list[Block]]:
    """The part of a long text that the blocks cover, and the blocks relative to it."""
    start, end = (blocks[0].start, blocks[-1].end) if blocks else (0, 0)
    relative = [dataclasses.replace(b, start=b.start - start, end=b.end - start) for b in blocks]
    return text[start:end], relative


def _check_in_windows(
    check: Callable[[str, Sequence[Block]], tuple[_Reasons, _Reasons]],
    text: str,
    blocks: Sequence[Block],
    limits: Limits,
) -> tuple[_Reasons, _Reasons]:
    """(failures, unread) over the windows of pages and the blocks without pages."""
    windows: dict[int, list[Block]] = {}
    for block in blocks:
        number = -1 if block.page is None else (block.page - 1) // limits.pdf_window_pages
        windows.setdefault(number, []).append(block)

    def check_window(group: Sequence[Block]) -> tuple[_Reasons, _Reasons]:
        if group[0].page is None:
            return check(text, group)
        return check(*_cut_out(text, group))

    failures: _Reasons = {}
    unread: _Reasons = {}
    with ThreadPoolExecutor(pool().size, thread_name_prefix="verify") as threads:
        for wrong, missed in threads.map(check_window, windows.values()):
            failures |= wrong
            unread |= missed
    return failures, unread


def _check_blocks(
    path: Path,
    task: dict[str, Any],
    engine: str,
    text: str,
    blocks: Sequence[Block],
    limits: Limits,
) -> tuple[_Reasons, _Reasons]:
    task = {**task, "text": text, "blocks": [dataclasses.asdict(block) for block in blocks]}
    failures: _Reasons = {}
    unread: _Reasons = {}
    for message in _ask_about(path, task, engine, limits):
        failures |= {int(n): str(reason) for n, reason in message.get("failures", {}).items()}
        unread |= {int(n): str(reason) for n, reason in message.get("unread", {}).items()}
    return failures, unread


def _ask_about(
    path: Path, task: dict[str, Any], engine: str, limits: Limits
) -> Generator[dict[str, Any], None, None]:
    """The messages of a child about one task on a whole file."""
    seconds, memory_mb = min(limits.parse_seconds, limits.file_seconds), limits.parse_memory_mb
    try:
        yield from _ask({**task, "path": str(path.absolute())}, engine, seconds, memory_mb)
    except ChildLost as error:
        if error.hung:
            raise DocumentError(
                f"stopped after {seconds:g} seconds; raise limits.parse_seconds in settings.yaml,"
                " or split the file",
                code="timeout",
                retryable=True,
            ) from error
        raise DocumentError(
            f"the parser failed: {error}; the file may be damaged, or need more than"
            f" limits.parse_memory_mb = {limits.parse_memory_mb}",
            code="parser_failed",
            retryable=True,
        ) from error


def _ask(
    task: dict[str, Any], engine: str, seconds: float, memory_mb: int
) -> Generator[dict[str, Any], None, None]:
    """The messages of a child about one task, which has this time in all. Raises ChildLost for
    problems of the child, DocumentError and ConfigError for those that it reports.
    """
    task = {**task, "seconds": seconds, "memory_mb": memory_mb}
    with pool().child(engine) as child:
        deadline = time.monotonic() + seconds + (0.0 if child.ready else START_SECONDS)
        for message in child.ask(task, lambda: max(0.01, deadline - time.monotonic())):
            _raise_for(message, memory_mb)
            yield message


def _engine(provider: str) -> str:
    return traits("loader", provider).engine or "other"


def _raise_for(message: Mapping[str, Any], memory_mb: int) -> None:
    if error := message.get("error"):
        code, text = str(error["code"]), str(error["message"])
        if error.get("cause"):  # the child has no log of its own
            log.info("reading failed with %s: %s\n%s", code, text, error["cause"])
        if code == "invalid_config":
            raise ConfigError(text)
        if code == "out_of_memory":
            text = (
                f"reading it needs more than {memory_mb} MB; raise the memory limit in"
                " settings.yaml, or split the file"
            )
        raise DocumentError(text, code=code)


# --- PDFs, over windows of pages ----------------------------------------------------------------


def load_isolated(
    path: Path,
    loader: PagedLoader,
    limits: Limits,
    on_page: OnPage | None = None,
    kept: Path | None = None,
) -> Facts:
    """The facts of a PDF, read by children in windows of pages; `on_page(done, total)` reports
    progress. A long PDF's pages are stored in the file `kept` until all are read; stored ones are
    not read again.

    Raises DocumentError: as `loaders.pdf.mupdf.describe`, `timeout` after limits.file_seconds for
    each LONG_PDF_PAGES begun, `parser_failed` when the file cannot even be opened.
    """
    reading = _Reading(path, loader.traits.engine, limits, loader.engine.profile, on_page)
    info = reading.describe()
    if info.pages > limits.pdf_window_pages:
        reading.kept = _KeptPages(kept)
        reading.pages = reading.kept.read()
    reading.total, reading.reused = info.pages, len(reading.pages)
    reading.deadline += limits.file_seconds * max(0, -(-info.pages // LONG_PDF_PAGES) - 1)
    try:
        if len(windows := _windows(info.pages, limits.pdf_window_pages)) == 1:
            reading.window(*windows[0])
        else:
            with ThreadPoolExecutor(
                min(pool().size, len(windows)), thread_name_prefix="pdf"
            ) as threads:
                try:
                    tasks = [
                        functools.partial(tracing.carry(reading.window), *window)
                        for window in windows
                    ]
                    list(threads.map(lambda read: read(), tasks))
                except BaseException:
                    reading.stopped.set()
                    raise
    finally:
        reading.stopped.set()
    pages = [reading.pages[number] for number in sorted(reading.pages)]
    facts = assemble(pages, info, loader, sorted(reading.warnings))
    reading.kept.drop()
    return facts


def extract_images(
    path: Path, targets: Sequence[str], folder: Path, limits: Limits, *, engine: str = "pymupdf"
) -> dict[str, Path | str]:
    """Target (`pdf:xref=N`) to the file in `folder` with its encoded bytes, or to the reason why
    there is none.

    `engine` is the one whose loader named the targets, pymupdf or pdfium.
    """
    reading = _Reading(path, engine, limits)
    found: dict[str, Path | str] = {}
    while remaining := [target for target in targets if target not in found]:
        batch_folder = folder / str(len(found))
        batch_folder.mkdir()
        try:
            for message in reading.ask(
                {"task": "images", "targets": remaining, "folder": str(batch_folder.absolute())}
            ):
                if "file" in message:
                    found[str(message["image"])] = batch_folder / message["file"]
                elif "image" in message:
                    found[str(message["image"])] = str(message["reason"])
        except ChildLost:
            lost = next((target for target in remaining if target not in found), None)
            if lost is not None:
                found[lost] = "broken_image: its decoder failed"
        except DocumentError as error:
            found.update({target: error.code for target in remaining if target not in found})
        else:
            found.update({target: "broken_image" for target in remaining if target not in found})
    return found


def page_texts_in_child(path: Path, engine: str, pages: int, limits: Limits) -> dict[int, str]:
    """Page to its raw text by an engine, pymupdf or pdfium; without pages on which the engine dies
    or hangs.

    Raises DocumentError as `loaders.pdf.mupdf.describe`, and `timeout` after limits.file_seconds.
    """
    reading = _Reading(path, engine, limits, total=pages)
    found: dict[int, str] = {}
    first = 0
    while first < pages:
        try:
            for message in reading.ask({"task": "texts", "first": first, "last": pages}):
                if "page_text" in message:
                    first = int(message["page_text"])
                    found[first] = str(message["text"])
            return found
        except ChildLost:
            first += 1
    return found


def _windows(pages: int, most: int) -> list[tuple[int, int]]:
    """Half-open page ranges of about equal size, enough to use every core."""
    size = max(MIN_WINDOW_PAGES, min(max(1, most), -(-pages // pool().size)))
    return [(first, min(first + size, pages)) for first in range(0, pages, size)]


class _KeptPages:
    """The pages of a long PDF, stored as they are read so that an interrupted reading can continue:
    one JSON line each; None as path stores nothing.
    """

    def __init__(self, path: Path | None) -> None:
        self._path = path

    def read(self) -> dict[int, PageFacts]:
        """Page number to page. The truncated last line of a killed process is skipped."""
        found: dict[int, PageFacts] = {}
        if self._path is not None and self._path.is_file():
            for line in self._path.read_bytes().splitlines():
                with contextlib.suppress(ValueError, KeyError, TypeError):
                    page = from_json(PageFacts, orjson.loads(line))
                    found[page.page] = page
        return found

    def add(self, page: dict[str, Any]) -> None:
        """Store a page as a child sent it."""
        if self._path is not None:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            with self._path.open("ab") as file:
                # newline first: the last line may be truncated
                file.write(b"\n" + orjson.dumps(page))

    def drop(self) -> None:
        """Delete the stored pages, which are part of the facts now."""
        if self._path is not None:
            self._path.unlink(missing_ok=True)


@dataclass
class _Reading:
    """One document being read by children."""

    path: Path
    engine: str
    limits: Limits
    profile: str = "fast"
    on_page: OnPage | None = None
    total: int = 0
    reused: int = 0  # pages stored by an interrupted reading
    kept: _KeptPages = field(default_factory=lambda: _KeptPages(None))
    pages: dict[int, PageFacts] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)
    stopped: threading.Event = field(default_factory=threading.Event)
    lock: threading.Lock = field(default_factory=threading.Lock)
    failures: int = 0

    def __post_init__(self) -> None:
        self.deadline = time.monotonic() + self.limits.file_seconds

    def describe(self) -> PdfInfo:
        """Page count and metadata, read by a child because opening a broken file can hang too."""
        try:
            messages = list(self.ask({"task": "describe", "max_pages": self.limits.max_pages}))
        except ChildLost as error:
            raise DocumentError(
                f"the PDF cannot be opened: {error}; repair it or export it again",
                code="parser_failed",
                retryable=True,
            ) from error
        return from_json(PdfInfo, messages[-1]["info"])

    def window(self, first: int, last: int) -> None:
        """Read the pages [first, last). A page whose child dies is read again as raw text, in a
        tenth of the time if it hung; if that fails too, it is left out with a warning. One that
        hung as raw text is not read again.
        """
        while (first := self._first_missing(first, last)) < last:
            raw = self.failures >= MAX_LAYOUT_FAILURES
            try:
                self._read(first, last, raw)
            except ChildLost as error:
                first = self._first_missing(first, last)
                if first < last and raw and error.hung:
                    self._leave_out(first, f"raw reading failed ({error})")
                elif first < last:
                    self._retry(first, error)

    def _first_missing(self, first: int, last: int) -> int:
        return next((number for number in range(first, last) if number + 1 not in self.pages), last)

    def _retry(self, number: int, reason: ChildLost) -> None:
        with self.lock:
            self.failures += 1
            self.warnings.append(f"page {number + 1:d}: {reason}; read again as raw text")
        try:
            self._read(number, number + 1, True, RAW_SHARE if reason.hung else 1.0)
        except ChildLost as error:
            self._leave_out(number, f"raw reading failed too ({error})")

    def _leave_out(self, number: int, why: str) -> None:
        self._add_page(PageFacts(number + 1, (), (), "failed", (f"page {number + 1}: {why}",)))

    def _read(self, first: int, last: int, raw: bool, share: float = 1.0) -> None:
        """Read pages, each within this share of limits.page_seconds."""
        task = {"task": "window", "first": first, "last": last, "profile": self.profile, "raw": raw}
        # a callback that raises must not leave its child working
        with contextlib.closing(self.ask(task, share)) as messages:
            for message in messages:
                if "page" in message:
                    if not raw:  # a later reading may get its layout
                        self.kept.add(message["page"])
                    self._add_page(from_json(PageFacts, message["page"]))

    def _add_page(self, page: PageFacts) -> None:
        with self.lock:
            self.pages[page.page] = page
            done = len(self.pages)
        if self.on_page:
            self.on_page(done - self.reused, self.total - self.reused)

    def ask(
        self, task: dict[str, Any], share: float = 1.0
    ) -> Generator[dict[str, Any], None, None]:
        """The messages of a child about one task. Raises DocumentError for problems of the file,
        ChildLost for those of the child.
        """
        limits = self.limits
        task = {
            **task,
            "path": str(self.path.absolute()),
            "memory_mb": limits.pdf_memory_mb,
            "seconds": limits.page_seconds,
        }
        with pool().child(self.engine) as child:
            needs = ("start", "layout") if self._needs_layout(task) else ("start",)
            for message in child.ask(task, lambda: self._message_timeout(share), needs):
                _raise_for(message, limits.pdf_memory_mb)
                yield message

    def _needs_layout(self, task: dict[str, Any]) -> bool:
        return task.get("profile") == "layout" and not task["raw"]

    def _message_timeout(self, share: float) -> float:
        """Seconds to wait for the next message. Raises DocumentError `timeout` when the file's time
        is used up or the reading was stopped.
        """
        left = self.deadline - time.monotonic()
        if left <= 0 or self.stopped.is_set():
            raise DocumentError(
                f"stopped after {len(self.pages)} of {self.total} pages: file_seconds ="
                f" {self.limits.file_seconds:g} for each {LONG_PDF_PAGES} pages are over; raise"
                " limits.file_seconds in settings.yaml, or use the pdf loader's profile `fast`",
                code="timeout",
            )
        return min(left, share * self.limits.page_seconds)


# --- images -------------------------------------------------------------------------------------


def decode_in_child(
    data: bytes, max_pixels: int, limits: Limits, folder: Path, *, redraw: bool = False
) -> DecodedImage:
    """Run `images.decode_image` in a child; `folder` holds the exchanged files. Raises
    Missing.
    """
    (folder / "source").write_bytes(data)
    task = {
        "task": "picture",
        "path": str(folder / "source"),
        "folder": str(folder),
        "max_pixels": max_pixels,
        "redraw": redraw,
    }
    try:
        engine = "pymupdf" if looks_like_svg(data) else "other"
        [message] = _ask(task, engine, limits.page_seconds, limits.parse_memory_mb)
    except ChildLost as error:
        raise Missing(
            "broken_image: its decoder took too long"
            if error.hung
            else "broken_image: its decoder failed"
        ) from None
    except DocumentError as error:
        raise Missing(f"broken_image: {error.code}") from None
    found = message["picture"]
    if "reason" in found:
        raise Missing(str(found["reason"]))
    variants = {name: (folder / name).read_bytes() for name in found["variants"]}
    original = (folder / "original").read_bytes() if found["original"] else None
    return DecodedImage(**{**found, "variants": variants, "original": original})


def ocr_in_child(
    path: Path, provider: str, options: Mapping[str, Any], seconds: float
) -> tuple[str, float | None]:
    """Run `read` of the named OCR provider in a child: (text, confidence). Raises ProviderError."""
    task = {
        "task": "ocr",
        "path": str(path.absolute()),
        "provider": provider,
        "options": dict(options),
    }
    try:
        with _ocr_lock:
            [message] = _ask(task, "ocr", seconds, OCR_MEMORY_MB)
    except ChildLost as error:
        if error.hung:
            raise ProviderError(
                f"{provider} did not read the image within {seconds:g} seconds; raise"
                " media_texts.ocr_seconds",
                code="timeout",
            ) from None
        raise ProviderError(f"{provider} failed: {error}", code="ocr_failed") from None
    except DocumentError as error:
        too_much = "it needs more memory than it may have"
        text = too_much if error.code == "out_of_memory" else error.message
        raise ProviderError(text, code=error.code) from None
    return str(message["read"]["text"]), message["read"]["confidence"]


# --- the pool of this process -------------------------------------------------------------------


def pool() -> SandboxPool:
    """The pool shared by all reading in this process."""
    return _pool


def new_pool(size: int) -> SandboxPool:
    """A pool of children that read files."""
    return SandboxPool("rag_platform.intake.loader_child", size)


def _default_pool() -> SandboxPool:
    return new_pool(min(4, usable_processors()))


def _after_fork() -> None:
    global _pool
    _pool = _default_pool()


_pool = _default_pool()
atexit.register(lambda: _pool.close())
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
