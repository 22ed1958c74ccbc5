"""The child process that reads files: `python -m rag_platform.intake.loader_child ENGINE`, driven
by `intake.isolation`.

ENGINE is pymupdf, pdfium, or `other` for formats without pages. Tasks arrive on stdin, messages go
out on the original stdout, one JSON object a line. Imports are few, because every start pays for
them.
"""

from __future__ import annotations

import contextlib
import ctypes
import dataclasses
import functools
import importlib
import json
import os
import signal
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

from rag_platform import telemetry
from rag_platform.errors import ConfigError, DocumentError, ProviderError
from rag_platform.intake import second_readers
from rag_platform.ir import Block
from rag_platform.loaders.archives import describe_damage
from rag_platform.loaders.pdf import images as pdf_images
from rag_platform.loaders.pdf import mupdf
from rag_platform.loaders.pdf.opening import load_pymupdf
from rag_platform.loaders.pdf.pages import PageFacts
from rag_platform.observability import faults
from rag_platform.processes.child import JsonLines, take_pipes
from rag_platform.registry import make_provider

_TEXT_PIECE, _RECORDS_PIECE = 1_000_000, 1_000


def main() -> None:
    """Answer tasks until stdin ends."""
    tasks, replies = take_pipes(quiet=True)
    if hasattr(signal, "SIGALRM"):
        # the kernel then ends this process, even inside C code and without a parent
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
    # before the address space is measured: an engine's libraries do not count against a document
    if sys.argv[1] == "pymupdf":
        load_pymupdf()
    elif sys.argv[1] == "pdfium":
        importlib.import_module("rag_platform.loaders.pdf.pdfium")
    baseline = _address_space()
    prepared: set[str] = set()
    _send(replies, {"ready": "start"})
    for line in tasks:
        task = json.loads(line)
        if "layout" not in prepared and task.get("profile") == "layout" and not task["raw"]:
            _limit_memory(baseline, -1)
            _prepare_layout()
            prepared.add("layout")
            baseline = _address_space()
            _send(replies, {"ready": "layout"})
        _limit_memory(baseline, int(task["memory_mb"]))
        with faults.collect() as found:
            answer = _answer(task, replies)
        _alarm(0)
        for fault in found:
            _send(replies, {"fault": fault})
        wear_limit = int(task["memory_mb"]) * 2**20 // 2
        if (
            (provider := task.get("provider"))
            and provider not in prepared
            and _address_space() - baseline < wear_limit
        ):
            prepared.add(provider)
            # a provider's libraries, imported with its first file, do not count either
            baseline = _address_space()
        _send(replies, {**answer, "worn": _address_space() - baseline > wear_limit})


def _answer(task: dict[str, Any], replies: IO[bytes]) -> dict[str, Any]:
    """The last message of a task; whatever the parser raises becomes an error of this document."""
    _alarm(float(task["seconds"]))
    try:
        return _TASKS[task["task"]](task, replies)
    except (DocumentError, ConfigError, ProviderError) as error:
        cause = (
            "".join(traceback.format_exception(error.__cause__))[-4000:] if error.__cause__ else ""
        )
        return {"error": {"code": error.code, "message": error.message, "cause": cause}}
    except MemoryError:
        return {"error": {"code": "out_of_memory", "message": ""}}
    except Exception as error:  # noqa: BLE001 (a parser's process outlives the files that it fails on)
        faults.report(error, "stage.loader")
        return {
            "error": {
                "code": "parser_failed",
                "message": f"the parser failed: {describe_damage(error)}; open the file and save it"
                " again",
            }
        }


# --- tasks about a whole file -------------------------------------------------------------------


def _load(task: dict[str, Any], replies: IO[bytes]) -> dict[str, Any]:
    """Send the facts in pieces, so that neither side holds them a second time as one line."""
    loader = make_provider("loader", task["provider"], task["options"])
    facts = loader.load(Path(task["path"]), task["filename"])
    for start in range(0, len(facts.text), _TEXT_PIECE):
        _send(replies, {"text": facts.text[start : start + _TEXT_PIECE]})
    for name, records in (("blocks", facts.blocks), ("media", facts.media)):
        for start in range(0, len(records), _RECORDS_PIECE):
            piece = records[start : start + _RECORDS_PIECE]
            _send(replies, {name: [dataclasses.asdict(record) for record in piece]})
    _send(replies, {"summary": dataclasses.asdict(facts.summary)})
    return {"done": True}


def _verify(task: dict[str, Any], replies: IO[bytes]) -> dict[str, Any]:
    loader = make_provider("loader", task["provider"], task["options"])
    return {"failures": loader.verify_blocks(Path(task["path"]), task["text"], _blocks(task))}


def _reread(task: dict[str, Any], replies: IO[bytes]) -> dict[str, Any]:
    failures, unread = second_readers.reread(
        Path(task["path"]), task["provider"], task["text"], _blocks(task)
    )
    return {"failures": failures, "unread": unread}


def _locate(task: dict[str, Any], replies: IO[bytes]) -> dict[str, Any]:
    loader = make_provider("loader", task["provider"], task["options"])
    spans = [(int(start), int(end)) for start, end in task["spans"]]
    page, text = int(task["page"]), str(task["text"])
    found = loader.locate(Path(task["path"]), page, text, _blocks(task), spans)
    return {"quote": dataclasses.asdict(found)}


def _blocks(task: dict[str, Any]) -> list[Block]:
    return [
        Block(**{**item, "bbox": item["bbox"] and tuple(item["bbox"])}) for item in task["blocks"]
    ]


# --- pages --------------------------------------------------------------------------------------


def _engine() -> Any:
    """The module that reads pages in this process."""
    if sys.argv[1] == "pdfium":
        return importlib.import_module("rag_platform.loaders.pdf.pdfium")
    return mupdf


def _describe(task: dict[str, Any], replies: IO[bytes]) -> dict[str, Any]:
    info = _engine().describe(Path(task["path"]), int(task["max_pages"]))
    return {"info": dataclasses.asdict(info)}


def _page_texts(task: dict[str, Any], replies: IO[bytes]) -> dict[str, Any]:
    pages = _engine().page_texts(Path(task["path"]), int(task["first"]), int(task["last"]))
    for number, text in pages:
        _send(replies, {"page_text": number, "text": text})
        _alarm(float(task["seconds"]))
    return {"done": True}


def _window(task: dict[str, Any], replies: IO[bytes]) -> dict[str, Any]:
    def on_page(page: PageFacts) -> None:
        _send(replies, {"page": dataclasses.asdict(page)})
        _trim_memory()
        _alarm(float(task["seconds"]))

    options: dict[str, Any] = {}
    if sys.argv[1] != "pdfium":
        profile = "layout" if task.get("profile") == "layout" else "fast"
        options = {"profile": profile, "raw": bool(task.get("raw"))}
    _engine().load_window(
        Path(task["path"]), int(task["first"]), int(task["last"]), on_page=on_page, **options
    )
    return {"done": True}


# --- images -------------------------------------------------------------------------------------


def _images(task: dict[str, Any], replies: IO[bytes]) -> dict[str, Any]:
    """Write each image to a numbered file in the folder; report broken ones with their reason."""
    read_images = _engine().read_images if sys.argv[1] == "pdfium" else pdf_images.read_images
    for number, (target, found) in enumerate(read_images(Path(task["path"]), task["targets"])):
        if isinstance(found, str):
            _send(replies, {"image": target, "reason": found})
        else:
            Path(task["folder"], str(number)).write_bytes(found)
            _send(replies, {"image": target, "file": str(number)})
        _alarm(float(task["seconds"]))
    return {"done": True}


def _picture(task: dict[str, Any], replies: IO[bytes]) -> dict[str, Any]:
    """The result of `decode_image`, with its files in the folder, or why the image is missing."""
    from rag_platform.loaders.images import Missing, decode_image

    folder = Path(task["folder"])
    try:
        data, redraw = Path(task["path"]).read_bytes(), bool(task["redraw"])
        found = decode_image(data, int(task["max_pixels"]), redraw=redraw)
    except Missing as error:
        return {"picture": {"reason": str(error)}}
    for name, data in found.variants.items():
        (folder / name).write_bytes(data)
    if found.original is not None:
        (folder / "original").write_bytes(found.original)
    files = {"variants": sorted(found.variants), "original": found.original is not None}
    return {"picture": {**dataclasses.asdict(found), **files}}


def _read_text(task: dict[str, Any], replies: IO[bytes]) -> dict[str, Any]:
    engine = _ocr(task["provider"], json.dumps(task["options"], sort_keys=True))
    text, confidence = engine.read(Path(task["path"]).read_bytes())
    return {"read": {"text": text, "confidence": confidence}}


@functools.lru_cache(maxsize=1)
def _ocr(provider: str, options: str) -> Any:
    """The OCR engine, cached so that its models stay loaded."""
    return make_provider("ocr", provider, json.loads(options))


_TASKS: dict[str, Callable[[dict[str, Any], IO[bytes]], dict[str, Any]]] = {
    "load": _load,
    "verify": _verify,
    "reread": _reread,
    "locate": _locate,
    "describe": _describe,
    "window": _window,
    "texts": _page_texts,
    "images": _images,
    "picture": _picture,
    "ocr": _read_text,
}


# --- this process -------------------------------------------------------------------------------


def _send(replies: IO[bytes], message: dict[str, Any]) -> None:
    with contextlib.suppress(BrokenPipeError):
        JsonLines().write(message, replies)


def _trim_memory() -> None:
    """Return free memory to the system, so that the peak of one crowded page does not stay."""
    with contextlib.suppress(AttributeError):  # not the GNU C library
        ctypes.CDLL(None).malloc_trim(0)


def _alarm(seconds: float) -> None:
    """End this process after twice that time, so that it does not outlive a killed parent."""
    if hasattr(signal, "setitimer"):
        signal.setitimer(signal.ITIMER_REAL, 2 * seconds + 60 if seconds else 0)


def _address_space() -> int:
    """Bytes of address space in use; 0 where the system does not report it."""
    try:
        return int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0]) * os.sysconf(
            "SC_PAGE_SIZE"
        )
    except (OSError, ValueError):
        return 0


def _limit_memory(baseline: int, memory_mb: int) -> None:
    if baseline:
        import resource

        _, hard = resource.getrlimit(resource.RLIMIT_AS)
        wanted = baseline + memory_mb * 2**20 if memory_mb >= 0 else hard
        if hard != resource.RLIM_INFINITY and wanted != hard:
            wanted = min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_AS, (wanted, hard))


def _prepare_layout() -> None:
    """Load the layout model with one thread: two single-threaded children read 1.45 times as many
    pages as one child with two threads.
    """
    onnxruntime = telemetry.onnxruntime()

    class Options(onnxruntime.SessionOptions):  # type: ignore[name-defined,misc]
        def __init__(self) -> None:
            super().__init__()
            self.intra_op_num_threads = 1

    onnxruntime.SessionOptions = Options
    load_pymupdf(layout=True)
    import pymupdf4llm.helpers.document_layout  # noqa: F401  # before the memory limit is set


if __name__ == "__main__":
    main()
