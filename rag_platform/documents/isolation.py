"""Reads a PDF in warm child processes under limits of time and memory; a page that kills its child costs that page its layout, no more.

The children live as long as this process and are shared by its documents and threads, at most one for each core.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import queue
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from rag_platform.config import Limits
from rag_platform.errors import DocumentError
from rag_platform.ir import Facts
from rag_platform.loaders.pdf import PageFacts, PdfInfo, PdfLoader, Profile, assemble
from rag_platform.loaders.pdf_json import page_from_json

START_SECONDS = 60.0  # allowed for importing the engine and for loading the models, on a busy machine
MAX_LAYOUT_FAILURES = 3  # children lost to one document before its remaining pages are read as raw text
MIN_WINDOW_PAGES = 4

OnPage = Callable[[int, int], None]


class ChildLost(Exception):
    """A child died, hung or broke the protocol; the message says which."""


def load_isolated(path: Path, loader: PdfLoader, limits: Limits, on_page: OnPage | None = None) -> Facts:
    """The facts of a PDF read by children over windows of pages; `on_page(done, total)` follows the progress.

    Raises DocumentError: as `loaders.pdf.describe`, `timeout` after limits.file_seconds, `parser_failed` when not even opening works.
    """
    deadline = time.monotonic() + limits.file_seconds
    reading = _Reading(path, loader.profile, limits, deadline, on_page)
    info = reading.describe()
    reading.total = info.pages
    try:
        if len(windows := _windows(info.pages, limits.pdf_window_pages)) == 1:
            reading.window(*windows[0])
        else:
            with ThreadPoolExecutor(min(_pool.size, len(windows)), thread_name_prefix="pdf") as threads:
                try:
                    list(threads.map(lambda window: reading.window(*window), windows))
                except BaseException:
                    reading.stopped.set()
                    raise
    finally:
        reading.stopped.set()
    return assemble([reading.pages[number] for number in sorted(reading.pages)], info, loader.profile, sorted(reading.warnings))


def extract_images(path: Path, targets: Sequence[str], folder: Path, limits: Limits) -> dict[str, Path | str]:
    """Target (`pdf:xref=N`) to the file in `folder` that holds its encoded bytes, or to the reason why there is none."""
    reading = _Reading(path, "fast", limits, time.monotonic() + limits.file_seconds, None)
    found: dict[str, Path | str] = {}
    while remaining := [target for target in targets if target not in found]:
        place = folder / str(len(found))
        place.mkdir()
        try:
            for message in reading.ask({"task": "images", "targets": remaining, "folder": str(place.absolute())}):
                if "image" in message:
                    found[str(message["image"])] = place / message["file"] if "file" in message else str(message["reason"])
        except ChildLost:
            lost = next((target for target in remaining if target not in found), None)
            if lost is not None:
                found[lost] = "broken_image: its decoder failed"
        except DocumentError as error:
            found.update({target: error.code for target in remaining if target not in found})
        else:
            found.update({target: "broken_image" for target in remaining if target not in found})
    return found


def _windows(pages: int, most: int) -> list[tuple[int, int]]:
    """Half-open page ranges of about equal size, so that every core has one."""
    size = max(MIN_WINDOW_PAGES, min(max(1, most), -(-pages // _pool.size)))
    return [(first, min(first + size, pages)) for first in range(0, pages, size)]


@dataclass
class _Reading:
    """One document on its way through the children."""

    path: Path
    profile: Profile
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
            raise DocumentError(f"the PDF cannot be opened: {error}; repair it or export it again", code="parser_failed") from error
        info = messages[-1]["info"]
        return PdfInfo(int(info["pages"]), {str(key): str(value) for key, value in info["metadata"].items()})

    def window(self, first: int, last: int) -> None:
        """Read the pages [first, last); a page that loses its child is read again as raw text, then given up with a warning."""
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
            self._keep(PageFacts(number + 1, (), (), "failed", (f"page {number + 1}: raw reading failed too ({error})",)))

    def _some(self, first: int, last: int, raw: bool) -> int:
        task = {"task": "window", "first": first, "last": last, "profile": self.profile, "raw": raw}
        with contextlib.closing(self.ask(task)) as messages:  # a callback that raises must not leave its child at work
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
        """The messages of a child for one task. Raises DocumentError for what the file is, ChildLost for what the child did."""
        limits = self.limits
        task = {**task, "path": str(self.path.absolute()), "memory_mb": limits.pdf_memory_mb, "page_seconds": limits.page_seconds}
        with _pool.child() as child:
            for message in child.ask(task, self._patience):
                if error := message.get("error"):
                    raise DocumentError(str(error["message"]), code=str(error["code"]))
                yield message
            child.worn = child.grown_mb > limits.pdf_memory_mb / 2

    def _patience(self) -> float:
        """Seconds the next message may take. Raises DocumentError `timeout` when the file's time is over or its reading was stopped."""
        left = self.deadline - time.monotonic()
        if left <= 0 or self.stopped.is_set():
            raise DocumentError(
                f"stopped after {len(self.pages)} of {self.total} pages, file_seconds = {self.limits.file_seconds:g} are over; "
                "raise limits.file_seconds in settings.yaml, or use the pdf loader's profile `fast`",
                code="timeout",
            )
        return min(left, self.limits.page_seconds)


def running() -> list[int]:
    """Process ids of the children that live now, busy or waiting."""
    return sorted(child.process.pid for child in list(_pool.all) if child.alive())


class _Child:
    """One child process and the thread that reads its messages."""

    def __init__(self) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-P", "-m", "rag_platform.documents.loading_child"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={
                **os.environ,
                "MALLOC_ARENA_MAX": "2",
                "PYTHONPATH": os.pathsep.join(item for item in sys.path if item),
                "PYTHONWARNINGS": "ignore",
            },
        )
        self.messages: queue.Queue[str] = queue.Queue()
        self.grown_mb = 0
        self.worn = False
        self.ready: set[str] = set()  # start, layout: what it has loaded
        threading.Thread(target=self._read, name="pdf-child", daemon=True).start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        with contextlib.suppress(ValueError, OSError):
            for line in self.process.stdout:
                self.messages.put(line.decode("utf-8", "replace"))
        self.messages.put("")

    def ask(self, task: dict[str, Any], patience: Callable[[], float]) -> Iterator[dict[str, Any]]:
        """Each message up to the last one of the task; `patience` is asked before each how long it may take."""
        assert self.process.stdin is not None
        try:
            self.process.stdin.write(json.dumps(task).encode() + b"\n")
            self.process.stdin.flush()
        except OSError as error:
            raise ChildLost("the parsing process had ended") from error
        needed = {"start", "layout"} if task["task"] == "window" and task["profile"] == "layout" and not task["raw"] else {"start"}
        while True:
            message = self._next(patience, 0.0 if needed <= self.ready else START_SECONDS)
            if "ready" in message:
                self.ready.add(str(message["ready"]))
                continue
            if "grown_mb" in message:
                self.grown_mb = int(message["grown_mb"])
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
                    raise ChildLost(f"no answer within {allowed:g} seconds") from None
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


class _Pool:
    """Children that wait for work. A process that was forked off starts with none."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.pid = os.getpid()
        self.free: list[_Child] = []
        self.all: set[_Child] = set()
        self.places = threading.BoundedSemaphore(size)
        self.lock = threading.Lock()

    @contextlib.contextmanager
    def child(self) -> Iterator[_Child]:
        """A child for one task; it goes back to wait when the task ended well, and is ended otherwise."""
        with self.places:
            child = self._take()
            healthy = False
            try:
                yield child
                healthy = True
            except DocumentError as error:
                healthy = error.code not in ("timeout", "parser_failed")
                raise
            finally:
                with self.lock:
                    if healthy and not child.worn and child.alive():
                        self.free.append(child)
                    else:
                        self._end(child)

    def _take(self) -> _Child:
        with self.lock:
            while self.free:
                child = self.free.pop()
                if child.alive():
                    return child
                self._end(child)
            child = _Child()
            self.all.add(child)
            return child

    def _end(self, child: _Child) -> None:
        self.all.discard(child)
        child.close()

    def close(self) -> None:
        """End all children, busy ones too, in the process that started them."""
        with self.lock:
            ending, self.all, self.free = list(self.all), set(), []
        if os.getpid() == self.pid:
            for child in ending:
                child.close()


def _fresh_pool() -> _Pool:
    return _Pool(max(1, min(4, os.cpu_count() or 1)))


def _after_fork() -> None:
    global _pool
    _pool = _fresh_pool()


_pool = _fresh_pool()
atexit.register(lambda: _pool.close())
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
