"""Queries without a pause while another process publishes: no error, each answer wholly of one
release, nothing deleted, no slow swap.

    python bench/serving.py [--door server library] [--chunks 2000] [--updates 20] [--deletions 5]
    [--rollbacks 3]

`server` asks a real server process through the MCP client over stdio, `library` asks the read side
from three threads of this process. The other process edits, adds and removes files and publishes,
deletes documents and goes back to the release before, and writes down when each was done. Judged
afterwards: every answer's chunks are chunks of the release it names, and of no other version; the
release is the one that was published when the question was asked, or a later one; no document is
shown once its deletion was recorded. Printed: latencies before anything is published, while the
other process works, and of the questions asked within a second of a new pointer. Exit code 1 for
any wrong answer; `--judge-latency` also when the last p95 is more than twice the first.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import random
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from corpus import write_corpus
from sizes import described, require_size
from small_library import NAMESPACE, Place, pairs_of

from rag_platform.answering.engine import answer
from rag_platform.ir import QueryRequest
from rag_platform.releases import release_store as releases

SWAP_SECONDS = 1.0
DONE = "done"


@dataclass(frozen=True)
class Answer:
    """One question and what came back."""

    asked: float
    seconds: float
    release_id: str = ""
    found: tuple[tuple[str, str, str], ...] = ()  # (chunk_id, version_id, doc_id)
    error: str = ""


# --- the process that publishes -----------------------------------------------------------------


def publish_all(place: Place, journal: Path, updates: int, deletions: int, rollbacks: int) -> None:
    """Do everything in a random order that is always the same, one line in the journal for each
    thing done.
    """
    rng = random.Random(3)
    work = [edit] * updates + [delete] * deletions + [go_back] * rollbacks
    rng.shuffle(work)
    for number, step in enumerate([edit, *work]):
        step(place, rng, number, lambda **fields: _note(journal, **fields))
    _note(journal, kind=DONE)


def _note(journal: Path, **fields: Any) -> None:
    with open(journal, "a", encoding="utf-8") as target:
        target.write(json.dumps({"at": time.monotonic(), **fields}) + "\n")


def edit(place: Place, rng: random.Random, number: int, note: Callable[..., None]) -> None:
    """Change two files, add one and remove one, then publish."""
    files = sorted(place.docs.rglob("*.md"))
    for path in rng.sample(files, 2):
        path.write_text(
            path.read_text(encoding="utf-8")
            + f"\n## Change {number}\n\nThe belt NT-{number:05d} was moved.\n",
            encoding="utf-8",
        )
    rng.choice(files).unlink()
    (place.docs / f"added-{number}.md").write_text(
        f"# Added {number}\n\nThe new scanner NT-9{number:04d} reads labels.\n", encoding="utf-8"
    )
    place.update()
    _published(place, "update", note)


def delete(place: Place, rng: random.Random, number: int, note: Callable[..., None]) -> None:
    """Delete a document: recorded, and only then published without it."""
    document, _ = rng.choice(place.ledger.live(NAMESPACE))
    with place.store.writer(NAMESPACE, "delete"):
        place.ledger.delete(NAMESPACE, document.doc_id, None, "soft")
        note(kind="deleted", doc_id=document.doc_id)
        place.publish()
    _published(place, "deletion", note)


def go_back(place: Place, rng: random.Random, number: int, note: Callable[..., None]) -> None:
    """Publish the release before once more."""
    kept = [manifest.release_id for manifest in releases.list_releases(place.store, NAMESPACE)]
    current = releases.current(place.store, NAMESPACE)
    place.roll_back(next(release_id for release_id in kept if release_id != current))
    _published(place, "rollback", note)
    time.sleep(0.3)


def _published(place: Place, kind: str, note: Callable[..., None]) -> None:
    at = time.monotonic()
    release_id = releases.current(place.store, NAMESPACE) or ""
    moved = time.monotonic() - (time.time() - place.store.current_path(NAMESPACE).stat().st_mtime)
    pairs = pairs_of(place.store.release_dir(NAMESPACE, release_id))
    note(kind=kind, release_id=release_id, moved=moved, done=at, pairs=pairs)


# --- the doors ----------------------------------------------------------------------------------


def questions(chunks: int) -> list[str]:
    """Questions whose answers are spread over the library."""
    rng = random.Random(1)
    words = (
        "router scanner belt retry threshold label sensor 扫描站 重试 阈值 窗口 throughput latency"
    ).split()
    notes = [f"NT-{rng.randrange(max(1, chunks // 10)):05d}-{rng.randrange(5)}" for _ in range(20)]
    return [
        *notes,
        *(" ".join(rng.choices(words, k=3)) for _ in range(40)),
        "new scanner reads labels",
        "which belt was moved",
    ]


def ask_library(
    place: Place, texts: Sequence[str], over: threading.Event, threads: int = 3
) -> list[Answer]:
    """The answers that several threads got from one read side until it is over."""
    library = place.library()
    answers: list[Answer] = []

    def ask(offset: int) -> None:
        number = offset
        while not over.is_set():
            number += 1
            began, clock = time.monotonic(), time.perf_counter()
            try:
                result = answer(
                    library, QueryRequest(texts[number % len(texts)], NAMESPACE, top_k=10)
                )
                found = tuple((hit.chunk_id, hit.version_id, hit.doc_id) for hit in result.hits)
                wrong = (
                    ""
                    if result.effective_mode == "hybrid"
                    else f"one retriever failed: {result.warnings}"
                )
                answers.append(
                    Answer(began, time.perf_counter() - clock, result.release_id, found, wrong)
                )
            except Exception as error:
                answers.append(
                    Answer(
                        began, time.perf_counter() - clock, error=f"{type(error).__name__}: {error}"
                    )
                )

    workers = [threading.Thread(target=ask, args=(7 * number,)) for number in range(threads)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    library.close()
    return answers


def ask_server(place: Place, texts: Sequence[str], over: threading.Event) -> list[Answer]:
    """The answers of one server process, asked through the MCP client over stdio until it is
    over.
    """
    import anyio
    from mcp import Client, StdioServerParameters
    from mcp.client.stdio import stdio_client

    answers: list[Answer] = []
    command = StdioServerParameters(
        command=sys.executable, args=["-m", "rag_platform.cli.main", "serve"], env=dict(os.environ)
    )

    async def talk() -> None:
        with open(place.folder / "server.log", "w", encoding="utf-8") as log:
            async with Client(stdio_client(command, errlog=log)) as client:
                number = 0
                while not over.is_set():
                    number += 1
                    began, clock = time.monotonic(), time.perf_counter()
                    arguments = {"query": texts[number % len(texts)], "top_k": 10}
                    result = await client.call_tool("library_query", arguments)
                    seconds = time.perf_counter() - clock
                    said = result.structured_content or {}
                    if result.is_error or not said.get("ok"):
                        answers.append(
                            Answer(
                                began,
                                seconds,
                                error=json.dumps(said.get("error") or str(result.content))[:300],
                            )
                        )
                        continue
                    hits = said["data"]["results"]
                    found = tuple(
                        (
                            hit["uri"].removeprefix("chunk://"),
                            said["data"]["documents"][hit["doc_id"]]["version_id"],
                            hit["doc_id"],
                        )
                        for hit in hits
                    )
                    fallen = (
                        ""
                        if said["data"]["effective_mode"] == "hybrid"
                        else f"one retriever failed: {said['warnings']}"
                    )
                    answers.append(
                        Answer(began, seconds, said["data"]["release_id"], found, fallen)
                    )

    anyio.run(talk)
    return answers


# --- judging ------------------------------------------------------------------------------------


def wrong_answers(answers: Sequence[Answer], journal: Sequence[dict[str, Any]]) -> list[str]:
    """What is wrong with each answer that is."""
    published = [line for line in journal if "release_id" in line]
    shown: dict[str, set[tuple[str, str]]] = {}
    for line in published:
        shown.setdefault(line["release_id"], set()).update(map(tuple, line["pairs"]))
    deleted = {line["doc_id"]: line["at"] for line in journal if line["kind"] == "deleted"}
    wrong = []
    for item in answers:
        if item.error:
            wrong.append(f"an error: {item.error}")
            continue
        strangers = {hit[:2] for hit in item.found} - shown.get(item.release_id, set())
        if strangers:
            wrong.append(
                f"chunks that release {item.release_id} does not hold: {sorted(strangers)[:2]}"
            )
        before = [line["release_id"] for line in published if line["done"] <= item.asked][-1:]
        # the journal is written after the pointer moved
        since = [line["release_id"] for line in published if item.asked < line["done"]]
        if item.release_id not in (*before, *since):
            wrong.append(f"release {item.release_id}, which was published before {before}")
        wrong += [
            f"{hit[2]}, which was deleted before the question"
            for hit in item.found
            if deleted.get(hit[2], float("inf")) < item.asked
        ]
    return wrong


def p95(seconds: Sequence[float]) -> float:
    """Milliseconds."""
    return 1000 * (statistics.quantiles(seconds, n=20)[-1] if len(seconds) > 1 else sum(seconds))


def figures(answers: Sequence[Answer], journal: Sequence[dict[str, Any]]) -> float:
    """Print the latencies; returns the p95 of questions beside a swap over that of the quiet
    time, no number where nobody asked then.
    """
    began = journal[1]["moved"]  # the first line is the release that was there
    swaps = [line["moved"] for line in journal[1:] if "moved" in line]
    # the first ones load what is loaded on use
    answers = sorted(answers, key=lambda item: item.asked)[5:]
    quiet = [item.seconds for item in answers if item.asked < began - 2 * SWAP_SECONDS]
    busy = [item.seconds for item in answers if item.asked >= began]
    near = [
        item.seconds
        for item in answers
        if any(-item.seconds <= item.asked - at <= SWAP_SECONDS for at in swaps)
    ]
    for name, part in (
        ("quiet", quiet),
        ("while the other process works", busy),
        ("within a second of a swap", near),
    ):
        print(
            f"  {name:32} {len(part):6} questions  p50 {1000 * statistics.median(part or [0]):7.1f}"
            f" ms  p95 {p95(part):7.1f} ms  slowest {1000 * max(part, default=0):7.1f} ms"
        )
    return p95(near) / p95(quiet) if quiet else math.nan


def measure(door: str, options: argparse.Namespace) -> tuple[int, float]:
    """(wrong answers, p95 beside a swap over p95 of the quiet time) of one door, printed."""
    with tempfile.TemporaryDirectory(prefix="rag-serving-") as folder:
        place = Place(Path(folder), Path(folder) / "home").enter()
        place.home.mkdir()
        write_corpus(place.docs, options.chunks, place.strategy, place.settings)
        place.update()
        built = described(place.store, NAMESPACE, place.strategy)
        journal = place.folder / "journal"
        _published(place, "first", lambda **fields: _note(journal, **fields))
        over, answers = threading.Event(), []
        ask = {"server": ask_server, "library": ask_library}[door]
        client = threading.Thread(
            target=lambda: answers.extend(ask(place, questions(options.chunks), over))
        )
        client.start()
        time.sleep(options.quiet + (4 if door == "server" else 1))
        counts = [str(options.updates), str(options.deletions), str(options.rollbacks)]
        ended = subprocess.run(
            [sys.executable, __file__, "--publish", folder, *counts], check=False
        )
        over.set()
        client.join()
        lines = [json.loads(line) for line in journal.read_text(encoding="utf-8").splitlines()]
        if ended.returncode or lines[-1]["kind"] != DONE:
            raise RuntimeError(f"the process that publishes failed: {ended.returncode}")
        kinds = {
            kind: sum(line["kind"] == kind for line in lines)
            for kind in ("update", "deletion", "rollback")
        }
        require_size(options.chunks, len(lines[0]["pairs"]))
        print(
            f"\n"
            f"{door}: {len(answers)} questions during {kinds}; load average"
            f" {os.getloadavg()[0]:.1f}\n"
            f"  {built}"
        )
        wrong = wrong_answers(answers, lines)
        ratio = figures(answers, lines)
        print(f"  p95 beside a swap / quiet: {ratio:.2f}; wrong answers: {len(wrong)}")
        for line in wrong[:5]:
            print(f"    WRONG {line}")
        return len(wrong), ratio


def main() -> int:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--door", nargs="*", default=["server", "library"], choices=["server", "library"]
    )
    parser.add_argument("--chunks", type=int, default=2000)
    parser.add_argument("--updates", type=int, default=20)
    parser.add_argument("--deletions", type=int, default=5)
    parser.add_argument("--rollbacks", type=int, default=3)
    parser.add_argument(
        "--quiet", type=float, default=5.0, help="seconds before anything is published"
    )
    parser.add_argument("--judge-latency", action="store_true")
    parser.add_argument(
        "--publish",
        nargs=4,
        metavar=("FOLDER", "UPDATES", "DELETIONS", "ROLLBACKS"),
        help=argparse.SUPPRESS,
    )
    options = parser.parse_args()
    if options.publish:
        folder, *counts = options.publish
        place = Place(Path(folder), Path(folder) / "home").enter()
        publish_all(place, place.folder / "journal", *map(int, counts))
        return 0
    found = [measure(door, options) for door in options.door]
    slow = options.judge_latency and any(not ratio <= 2 for _, ratio in found)
    return 1 if slow or any(wrong for wrong, _ in found) else 0


if __name__ == "__main__":
    sys.exit(main())
