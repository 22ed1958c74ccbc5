"""The child process that reads files: `python -m rag_platform.intake.loader_child ENGINE`, driven
by `intake.isolation`.

ENGINE is pymupdf, pdfium, or other for the formats without pages. One JSON object a line: tasks
come in on stdin, messages go out on the original stdout. Nothing is unpickled, so a file that takes
over this process cannot make its parent run code. Imports stay few, because every start pays for
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
from collections.abc import Iterable
from pathlib import Path
from typing import IO, Any

from rag_platform import telemetry
from rag_platform.errors import ConfigError, DocumentError, ProviderError
from rag_platform.intake import second_readers
from rag_platform.ir import Block, Facts
from rag_platform.loaders.archives import damage
from rag_platform.loaders.pdf import characters, mupdf
from rag_platform.loaders.pdf import images as pdf_images
from rag_platform.loaders.pdf.page_json import page_to_json
from rag_platform.loaders.pdf.pages import PageFacts
from rag_platform.observability import faults
from rag_platform.registry import build

_TEXT_PIECE, _RECORDS_PIECE = 1_000_000, 1_000


def main() -> None:
    """Answer tasks until stdin ends."""
    # Ctrl+C reaches the whole group; the parent decides
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    replies = os.fdopen(os.dup(1), "w", encoding="utf-8")
    with open(os.devnull, "w", encoding="utf-8") as nowhere:
        os.dup2(nowhere.fileno(), 1)
        os.dup2(nowhere.fileno(), 2)
    if hasattr(signal, "SIGALRM"):
        # the kernel ends this process, even inside C code and without a parent
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
    # before the address space is measured: an engine's libraries are no document's fault
    if sys.argv[1] == "pymupdf":
        characters.load_pymupdf()
    elif sys.argv[1] == "pdfium":
        importlib.import_module("rag_platform.loaders.pdf.pdfium")
    baseline = _address_space()
    prepared: set[str] = set()
    _send(replies, {"ready": "start"})
    for line in sys.stdin:
        task = json.loads(line)
        if "layout" not in prepared and task.get("profile") == "layout" and not task["raw"]:
            _limit_memory(baseline, -1)
            _prepare_layout()
            prepared.add("layout")
            baseline = _address_space()
            _send(replies, {"ready": "layout"})
        _limit_memory(baseline, int(task["memory_mb"]))
        with faults.collect() as found:
            answer = _guarded(task, replies)
        _alarm(0)
        for fault in found:
            _send(replies, {"fault": fault})
        allowed = int(task["memory_mb"]) * 2**20 // 2
        if (
            (provider := task.get("provider"))
            and provider not in prepared
            and _address_space() - baseline < allowed
        ):
            prepared.add(provider)
            # the libraries of a provider are imported with its first file
            baseline = _address_space()
        _send(replies, {**answer, "worn": _address_space() - baseline > allowed})


def _guarded(task: dict[str, Any], replies: IO[str]) -> dict[str, Any]:
    """The last message of a task; whatever the parser raises becomes an error of this one
    document.
    """
    try:
        return _answer(task, replies)
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
                "message": f"the parser failed: {damage(error)}; open the file and save it again",
            }
        }


def _answer(task: dict[str, Any], replies: IO[str]) -> dict[str, Any]:
    path, seconds = Path(task["path"]), float(task["seconds"])
    _alarm(seconds)
    if task["task"] == "load":
        _send_facts(
            build("loader", task["provider"], task["options"]).load(path, task["filename"]), replies
        )
        return {"done": True}

    if task["task"] in ("verify", "reread"):
        blocks = [
            Block(**{**item, "bbox": item["bbox"] and tuple(item["bbox"])})
            for item in task["blocks"]
        ]
        if task["task"] == "verify":
            return {
                "failures": (
                    build("loader", task["provider"], task["options"]).verify_blocks(
                        path, task["text"], blocks
                    )
                )
            }
        failures, unread = second_readers.reread(path, task["provider"], task["text"], blocks)
        return {"failures": failures, "unread": unread}

    if task["task"] == "picture":
        return {"picture": _picture(path, Path(task["folder"]), int(task["max_pixels"]))}

    if task["task"] == "ocr":
        text, confidence = _ocr(task["provider"], json.dumps(task["options"], sort_keys=True)).read(
            path.read_bytes()
        )
        return {"read": {"text": text, "confidence": confidence}}

    if sys.argv[1] == "pdfium":
        from rag_platform.loaders.pdf import pdfium

        describe, read_images, load_window, page_texts = (
            pdfium.describe,
            pdfium.read_images,
            pdfium.load_window,
            pdfium.page_texts,
        )
    else:
        describe, read_images, page_texts = mupdf.describe, pdf_images.read_images, mupdf.page_texts
        profile: mupdf.Profile = "layout" if task.get("profile") == "layout" else "fast"
        load_window = functools.partial(
            mupdf.load_window, profile=profile, raw=bool(task.get("raw"))
        )

    if task["task"] == "describe":
        return {"info": dataclasses.asdict(describe(path, int(task["max_pages"])))}

    if task["task"] == "images":
        return _images(read_images(path, task["targets"]), Path(task["folder"]), seconds, replies)

    if task["task"] == "texts":
        for number, text in page_texts(path, int(task["first"]), int(task["last"])):
            _send(replies, {"page_text": number, "text": text})
            _alarm(seconds)
        return {"done": True}

    def on_page(page: PageFacts) -> None:
        _send(replies, {"page": page_to_json(page)})
        _give_back()
        _alarm(seconds)

    load_window(path, int(task["first"]), int(task["last"]), on_page=on_page)
    return {"done": True}


def _picture(path: Path, folder: Path, max_pixels: int) -> dict[str, Any]:
    """What `decode_image` says, the files written to the folder; or why the image is missing."""
    from rag_platform.loaders.image_decoding import Missing, decode_image

    try:
        found = decode_image(path.read_bytes(), max_pixels)
    except Missing as error:
        return {"reason": str(error)}
    for name, data in found.variants.items():
        (folder / name).write_bytes(data)
    if found.original is not None:
        (folder / "original").write_bytes(found.original)
    return {
        "extension": found.extension,
        "mime": found.mime,
        "width": found.width,
        "height": found.height,
        "variants": sorted(found.variants),
        "original": found.original is not None,
    }


@functools.lru_cache(maxsize=1)
def _ocr(provider: str, options: str) -> Any:
    """The OCR engine, which keeps its models loaded."""
    return build("ocr", provider, json.loads(options))


def _send_facts(facts: Facts, replies: IO[str]) -> None:
    """Facts in pieces, so that neither side holds them a second time as one line."""
    for start in range(0, len(facts.text), _TEXT_PIECE):
        _send(replies, {"text": facts.text[start : start + _TEXT_PIECE]})
    for name, records in (("blocks", facts.blocks), ("media", facts.media)):
        for start in range(0, len(records), _RECORDS_PIECE):
            _send(
                replies,
                {
                    name: [
                        dataclasses.asdict(record)
                        for record in records[start : start + _RECORDS_PIECE]
                    ]
                },
            )
    _send(replies, {"summary": dataclasses.asdict(facts.summary)})


def _images(
    images: Iterable[tuple[str, bytes | str]], folder: Path, seconds: float, replies: IO[str]
) -> dict[str, Any]:
    """Write the bytes of each image to a numbered file of the folder; a broken one is told with its
    reason.
    """
    for number, (target, found) in enumerate(images):
        if isinstance(found, str):
            _send(replies, {"image": target, "reason": found})
        else:
            (folder / str(number)).write_bytes(found)
            _send(replies, {"image": target, "file": str(number)})
        _alarm(seconds)
    return {"done": True}


def _send(replies: IO[str], message: dict[str, Any]) -> None:
    with contextlib.suppress(BrokenPipeError):
        replies.write(json.dumps(message, ensure_ascii=True) + "\n")
        replies.flush()


def _give_back() -> None:
    """Hand free memory back to the system: one crowded page would otherwise leave its peak to all
    that follow.
    """
    with contextlib.suppress(AttributeError):  # not the GNU C library
        ctypes.CDLL(None).malloc_trim(0)


def _alarm(seconds: float) -> None:
    """End this process in twice that time: it must not outlive a parent that was killed."""
    if hasattr(signal, "setitimer"):
        signal.setitimer(signal.ITIMER_REAL, 2 * seconds + 60 if seconds else 0)


def _address_space() -> int:
    """Bytes of address space in use; 0 where the system does not say."""
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
        resource.setrlimit(
            resource.RLIMIT_AS,
            (
                wanted if hard == resource.RLIM_INFINITY or wanted == hard else min(wanted, hard),
                hard,
            ),
        )


def _prepare_layout() -> None:
    """Load the layout model with one thread: two children side by side read 1.45 times as many
    pages as two threads in one.
    """
    onnxruntime = telemetry.onnxruntime()

    class Options(onnxruntime.SessionOptions):  # type: ignore[name-defined,misc]
        def __init__(self) -> None:
            super().__init__()
            self.intra_op_num_threads = 1

    onnxruntime.SessionOptions = Options
    characters.load_pymupdf(layout=True)
    import pymupdf4llm.helpers.document_layout  # noqa: F401  # before the memory limit is set


if __name__ == "__main__":
    main()
