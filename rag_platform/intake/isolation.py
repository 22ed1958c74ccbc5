"""Reads files in warm child processes under limits of time and memory; a page that kills its child
costs that page its layout, no more.

Warm child processes that read files for this one: at most one at work for each core, each ended
once it failed, hung or grew.

The children live as long as this process and are shared by its documents and threads. A child
speaks for one engine, so that a file is never read in a process that holds another engine's
library.
"""

from __future__ import annotations

import atexit
import contextlib
import dataclasses
import functools
import hashlib
import json
import logging
import os
import queue
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from rag_platform.config.settings import Limits
from rag_platform.errors import ConfigError, DocumentError
from rag_platform.intake import second_readers
from rag_platform.ir import Block, Facts, MediaRef, ParseSummary
from rag_platform.loaders.pdf.assembly import PagedLoader, PdfInfo
from rag_platform.loaders.pdf.page_json import info_from_json, page_from_json
from rag_platform.loaders.pdf.pages import PageFacts
from rag_platform.observability import faults, tracing
from rag_platform.registry import traits
from rag_platform.storage.records import from_json

log = logging.getLogger(__name__)

# children lost to one document before its remaining pages are read as raw text
MAX_LAYOUT_FAILURES = 3
MIN_WINDOW_PAGES = 4

OnPage = Callable[[int, int], None]


def running() -> list[int]:
    """Process ids of the children that live now, busy or waiting."""
    return sorted(child.process.pid for child in list(pool().all) if child.alive())


# --- formats without pages ----------------------------------------------------------------------


def load_in_child(
    path: Path, filename: str, provider: str, options: Mapping[str, Any], limits: Limits
) -> Facts:
    """The facts that the named loader makes of a file, read in a child within limits.parse_seconds
    and limits.parse_memory_mb.

    `provider` is a registry name or a dotted path. Raises the loader's own DocumentError,
    `timeout`, `out_of_memory`, `parser_failed` when the child died or the loader raised anything
    else; ConfigError when the loader cannot be built. The next file gets a fresh child then.
    """
    text: list[str] = []
    blocks: list[Block] = []
    media: list[MediaRef] = []
    summary: ParseSummary | None = None
    task = {"task": "load", "filename": filename, "provider": provider, "options": dict(options)}
    for message in _asked(path, task, _engine(provider), limits):
        if "text" in message:
            text.append(str(message["text"]))
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


def verify_in_child(
    path: Path,
    provider: str,
    options: Mapping[str, Any],
    facts_text: str,
    blocks: Sequence[Block],
    limits: Limits,
) -> dict[int, str]:
    """What the `verify_blocks` of the named loader says of these blocks, asked of children under
    the limits of `load_in_child`.

    Blocks with pages go in windows of limits.pdf_window_pages; give all blocks of a page together,
    because a character belongs to the smallest rectangle around it. Raises as `load_in_child` does.
    """
    return {
        number: reason
        for part in _by_windows("verify", path, provider, options, facts_text, blocks, limits)
        for number, reason in part[0]
    }


def reread_in_child(
    path: Path, provider: str, facts_text: str, blocks: Sequence[Block], limits: Limits
) -> tuple[dict[int, str], dict[int, str]]:
    """(ordinal to reason of the blocks that a second reader reads otherwise than the named loader,
    of those that it cannot read).

    As `verify_in_child`; what ends the reading of a whole window leaves its blocks unread.
    """
    parts = list(_by_windows("reread", path, provider, {}, facts_text, blocks, limits))
    return {n: reason for part in parts for n, reason in part[0]}, {
        n: reason for part in parts for n, reason in part[1]
    }


_Reasons = list[tuple[int, str]]


def _by_windows(
    task: str,
    path: Path,
    provider: str,
    options: Mapping[str, Any],
    text: str,
    blocks: Sequence[Block],
    limits: Limits,
) -> Iterator[tuple[_Reasons, _Reasons]]:
    """(failures, unread) of each window of pages, and of the blocks without pages."""
    windows: dict[int, list[Block]] = {}
    for block in blocks:
        windows.setdefault(
            -1 if block.page is None else (block.page - 1) // limits.pdf_window_pages, []
        ).append(block)

    def answer(group: Sequence[Block]) -> tuple[_Reasons, _Reasons]:
        return _answered(task, path, provider, options, text, group, limits)

    with ThreadPoolExecutor(pool().size, thread_name_prefix="verify") as threads:
        yield from threads.map(answer, windows.values())


def _answered(
    name: str,
    path: Path,
    provider: str,
    options: Mapping[str, Any],
    facts_text: str,
    blocks: Sequence[Block],
    limits: Limits,
) -> tuple[_Reasons, _Reasons]:
    text, moved = facts_text, list(blocks)
    # a window of pages needs no more than its own part of a long text
    if blocks[0].page is not None:
        start, text = blocks[0].start, facts_text[blocks[0].start : blocks[-1].end]
        moved = [
            dataclasses.replace(block, start=block.start - start, end=block.end - start)
            for block in blocks
        ]
    task = {
        "task": name,
        "provider": provider,
        "options": dict(options),
        "text": text,
        "blocks": [dataclasses.asdict(block) for block in moved],
    }
    failures: _Reasons = []
    unread: _Reasons = []
    engine = (
        second_readers.ENGINES.get(provider, "other") if name == "reread" else _engine(provider)
    )
    try:
        for message in _asked(path, task, engine, limits):
            failures += [
                (int(number), str(reason)) for number, reason in message.get("failures", {}).items()
            ]
            unread += [
                (int(number), str(reason)) for number, reason in message.get("unread", {}).items()
            ]
    except DocumentError as error:
        if name != "reread":
            raise
        return [], [(block.ordinal, f"{error.code}: {error.message}") for block in blocks]
    return failures, unread


def _asked(
    path: Path, task: dict[str, Any], engine: str, limits: Limits
) -> Generator[dict[str, Any], None, None]:
    """The messages of a child for one task about a whole file."""
    seconds = min(limits.parse_seconds, limits.file_seconds)
    task = {
        **task,
        "path": str(path.absolute()),
        "memory_mb": limits.parse_memory_mb,
        "seconds": seconds,
    }
    try:
        with pool().child(engine) as child:
            deadline = time.monotonic() + seconds + (0.0 if child.ready else START_SECONDS)
            for message in child.ask(task, lambda: max(0.01, deadline - time.monotonic())):
                _raise_for(message, limits.parse_memory_mb)
                yield message
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


def _engine(provider: str) -> str:
    return traits("loader", provider).engine or "other"


def _raise_for(message: Mapping[str, Any], memory_mb: int) -> None:
    if error := message.get("error"):
        code, said = str(error["code"]), str(error["message"])
        if error.get("cause"):  # the child has no log of its own
            log.info("reading failed with %s: %s\n%s", code, said, error["cause"])
        if code == "invalid_config":
            raise ConfigError(said)
        if code == "out_of_memory":
            said = (
                f"reading it needs more than {memory_mb} MB; raise the memory limit in"
                " settings.yaml, or split the file"
            )
        raise DocumentError(said, code=code)


# --- PDFs, over windows of pages ----------------------------------------------------------------


def load_isolated(
    path: Path, loader: PagedLoader, limits: Limits, on_page: OnPage | None = None
) -> Facts:
    """The facts of a PDF read by children over windows of pages; `on_page(done, total)` follows the
    progress.

    Raises DocumentError: as `loaders.pdf.mupdf.describe`, `timeout` after limits.file_seconds,
    `parser_failed` when not even opening works.
    """
    deadline = time.monotonic() + limits.file_seconds
    reading = _Reading(path, loader.traits.engine, loader.engine.profile, limits, deadline, on_page)
    info = reading.describe()
    reading.total = info.pages
    try:
        if len(windows := _windows(info.pages, limits.pdf_window_pages)) == 1:
            reading.window(*windows[0])
        else:
            with ThreadPoolExecutor(
                min(pool().size, len(windows)), thread_name_prefix="pdf"
            ) as threads:
                try:
                    reads = [
                        functools.partial(tracing.carry(reading.window), *window)
                        for window in windows
                    ]
                    list(threads.map(lambda read: read(), reads))
                except BaseException:
                    reading.stopped.set()
                    raise
    finally:
        reading.stopped.set()
    return loader.assemble(
        [reading.pages[number] for number in sorted(reading.pages)], info, sorted(reading.warnings)
    )


def extract_images(
    path: Path, targets: Sequence[str], folder: Path, limits: Limits, *, engine: str = "pymupdf"
) -> dict[str, Path | str]:
    """Target (`pdf:xref=N`) to the file in `folder` that holds its encoded bytes, or to the reason
    why there is none.

    `engine` is the one whose loader named the targets, pymupdf or pdfium.
    """
    reading = _Reading(path, engine, "fast", limits, time.monotonic() + limits.file_seconds, None)
    found: dict[str, Path | str] = {}
    while remaining := [target for target in targets if target not in found]:
        place = folder / str(len(found))
        place.mkdir()
        try:
            for message in reading.ask(
                {"task": "images", "targets": remaining, "folder": str(place.absolute())}
            ):
                if "image" in message:
                    found[str(message["image"])] = (
                        place / message["file"] if "file" in message else str(message["reason"])
                    )
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
    """Page to its raw text by an engine, pymupdf or pdfium; a page on which the engine dies or
    hangs is left out.

    Raises DocumentError as `loaders.pdf.mupdf.describe` does, and `timeout` after
    limits.file_seconds.
    """
    reading = _Reading(
        path, engine, "fast", limits, time.monotonic() + limits.file_seconds, None, pages
    )
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
    """Half-open page ranges of about equal size, so that every core has one."""
    size = max(MIN_WINDOW_PAGES, min(max(1, most), -(-pages // pool().size)))
    return [(first, min(first + size, pages)) for first in range(0, pages, size)]


@dataclass
class _Reading:
    """One document on its way through the children."""

    path: Path
    engine: str
    profile: str
    limits: Limits
    deadline: float
    on_page: OnPage | None
    total: int = 0
    pages: dict[int, PageFacts] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)
    stopped: threading.Event = field(default_factory=threading.Event)
    lock: threading.Lock = field(default_factory=threading.Lock)
    failures: int = 0

    def describe(self) -> PdfInfo:
        """Page count and metadata, asked of a child because opening a broken file can hang too."""
        try:
            messages = list(self.ask({"task": "describe", "max_pages": self.limits.max_pages}))
        except ChildLost as error:
            raise DocumentError(
                f"the PDF cannot be opened: {error}; repair it or export it again",
                code="parser_failed",
                retryable=True,
            ) from error
        return info_from_json(messages[-1]["info"])

    def window(self, first: int, last: int) -> None:
        """Read the pages [first, last); a page that loses its child is read again as raw text, then
        given up with a warning.
        """
        while first < last:
            raw = self.failures >= MAX_LAYOUT_FAILURES
            try:
                first = self._some(first, last, raw)
            except ChildLost as error:
                first = self._done_up_to(first, last)
                if first < last:
                    self._retry(first, str(error))
                    first += 1

    def _done_up_to(self, first: int, last: int) -> int:
        return next((number for number in range(first, last) if number + 1 not in self.pages), last)

    def _retry(self, number: int, reason: str) -> None:
        with self.lock:
            self.failures += 1
            self.warnings.append(f"page {number + 1:d}: {reason}; read again as raw text")
        try:
            self._some(number, number + 1, True)
        except ChildLost as error:
            self._keep(
                PageFacts(
                    number + 1,
                    (),
                    (),
                    "failed",
                    (f"page {number + 1}: raw reading failed too ({error})",),
                )
            )

    def _some(self, first: int, last: int, raw: bool) -> int:
        task = {"task": "window", "first": first, "last": last, "profile": self.profile, "raw": raw}
        # a callback that raises must not leave its child at work
        with contextlib.closing(self.ask(task)) as messages:
            for message in messages:
                if "page" in message:
                    self._keep(page_from_json(message["page"]))
        return self._done_up_to(first, last)

    def _keep(self, page: PageFacts) -> None:
        with self.lock:
            self.pages[page.page] = page
            done = len(self.pages)
        if self.on_page:
            self.on_page(done, self.total)

    def ask(self, task: dict[str, Any]) -> Generator[dict[str, Any], None, None]:
        """The messages of a child for one task. Raises DocumentError for what the file is,
        ChildLost for what the child did.
        """
        limits = self.limits
        task = {
            **task,
            "path": str(self.path.absolute()),
            "memory_mb": limits.pdf_memory_mb,
            "seconds": limits.page_seconds,
        }
        with pool().child(self.engine) as child:
            for message in child.ask(task, self._patience):
                _raise_for(message, limits.pdf_memory_mb)
                yield message

    def _patience(self) -> float:
        """Seconds the next message may take. Raises DocumentError `timeout` when the file's time is
        over or its reading was stopped.
        """
        left = self.deadline - time.monotonic()
        if left <= 0 or self.stopped.is_set():
            raise DocumentError(
                f"stopped after {len(self.pages)} of {self.total} pages, file_seconds ="
                f" {self.limits.file_seconds:g} are over; raise limits.file_seconds in"
                " settings.yaml, or use the pdf loader's profile `fast`",
                code="timeout",
            )
        return min(left, self.limits.page_seconds)


# allowed for importing the engine and for loading the models, on a busy machine
START_SECONDS = 60.0
_UNHEALTHY = ("timeout", "parser_failed", "out_of_memory")


class ChildLost(Exception):
    """A child died, hung or broke the protocol; the message says which."""

    def __init__(self, message: str, *, hung: bool = False) -> None:
        super().__init__(message)
        self.hung = hung


class Child:
    """One child process and the thread that reads its messages."""

    def __init__(self, engine: str) -> None:
        self.engine = engine
        self.process = subprocess.Popen(
            [sys.executable, "-P", "-m", "rag_platform.intake.loader_child", engine],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={
                **os.environ,
                "MALLOC_ARENA_MAX": "2",
                # equal input gives equal output, also where a parser walks through a set
                "PYTHONHASHSEED": "0",
                "PYTHONPATH": os.pathsep.join(item for item in sys.path if item),
                "PYTHONWARNINGS": "ignore",
            },
        )
        self.messages: queue.Queue[str] = queue.Queue()
        self.worn = False
        self.ready: set[str] = set()  # start, layout: what it has loaded
        threading.Thread(target=self._read, name="parsing-child", daemon=True).start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        with contextlib.suppress(ValueError, OSError):
            for line in self.process.stdout:
                self.messages.put(line.decode("utf-8", "replace"))
        self.messages.put("")

    def ask(self, task: dict[str, Any], patience: Callable[[], float]) -> Iterator[dict[str, Any]]:
        """Each message up to the last one of the task; `patience` is asked before each how long it
        may take.
        """
        assert self.process.stdin is not None
        try:
            self.process.stdin.write(json.dumps(task).encode() + b"\n")
            self.process.stdin.flush()
        except OSError as error:
            raise ChildLost("the parsing process had ended") from error
        needed = (
            {"start", "layout"}
            if task.get("profile") == "layout" and not task["raw"]
            else {"start"}
        )
        while True:
            message = self._next(patience, 0.0 if needed <= self.ready else START_SECONDS)
            if "ready" in message:
                self.ready.add(str(message["ready"]))
                continue
            if "fault" in message:
                faults.record(message["fault"])
                continue
            if "worn" in message:
                self.worn = bool(message["worn"])
                yield message
                return
            yield message

    def _next(self, patience: Callable[[], float], extra: float) -> dict[str, Any]:
        allowed = patience() + extra
        until = time.monotonic() + allowed
        while True:
            patience()  # notices a stop and the end of the file's time
            try:
                line = self.messages.get(timeout=max(0.01, min(0.5, until - time.monotonic())))
                break
            except queue.Empty:
                if time.monotonic() >= until:
                    self.close()
                    raise ChildLost(f"no answer within {allowed:g} seconds", hung=True) from None
        if not line:
            self.process.wait()
            raise ChildLost(_ending(self.process.returncode))
        try:
            message = json.loads(line)
        except ValueError as error:
            raise ChildLost("the parsing process wrote nonsense") from error
        return cast(dict[str, Any], message)

    def alive(self) -> bool:
        """True while it can take a task."""
        return self.process.poll() is None

    def close(self) -> None:
        """End the process now and collect it."""
        self.process.kill()
        self.process.wait()
        for stream in (self.process.stdin, self.process.stdout):
            if stream is not None:
                with contextlib.suppress(OSError, ValueError):
                    stream.close()


def _ending(code: int) -> str:
    if code < 0:
        return f"the parsing process was ended by signal {-code}"
    return f"the parsing process ended with code {code}"


class Pool:
    """Children that wait for work. A process that was forked off starts with none."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.pid = os.getpid()
        self.free: list[Child] = []
        self.all: set[Child] = set()
        self.places = threading.BoundedSemaphore(size)
        self.lock = threading.Lock()

    @contextlib.contextmanager
    def child(self, engine: str) -> Iterator[Child]:
        """A child of that engine for one task; it goes back to wait when the task ended well, and
        is ended otherwise.
        """
        with self.places:
            child = self._take(engine)
            healthy = False
            try:
                yield child
                healthy = True
            except DocumentError as error:
                healthy = error.code not in _UNHEALTHY
                raise
            finally:
                with self.lock:
                    if healthy and not child.worn and child.alive():
                        self.free.append(child)
                    else:
                        self._end(child)

    def _take(self, engine: str) -> Child:
        with self.lock:
            for child in reversed(self.free):
                if child.engine == engine:
                    self.free.remove(child)
                    if child.alive():
                        return child
                    self._end(child)
            child = Child(engine)
            self.all.add(child)
            return child

    def _end(self, child: Child) -> None:
        self.all.discard(child)
        child.close()

    def end_waiting(self) -> None:
        """End the children that wait, to have their memory for something else; the next task starts
        a new one.
        """
        with self.lock:
            for child in self.free:
                self._end(child)
            self.free = []

    def close(self) -> None:
        """End all children, busy ones too, in the process that started them."""
        with self.lock:
            ending, self.all, self.free = list(self.all), set(), []
        if os.getpid() == self.pid:
            for child in ending:
                child.close()


def pool() -> Pool:
    """The pool of this process."""
    return _pool


def _fresh_pool() -> Pool:
    return Pool(max(1, min(4, os.cpu_count() or 1)))


def _after_fork() -> None:
    global _pool
    _pool = _fresh_pool()


_pool = _fresh_pool()
atexit.register(lambda: _pool.close())
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
