"""How long lists and figures of traces take over 1,000,000 spans.

    python bench/traces.py [--spans 1000000] [--home FOLDER] [--limit-ms 300]

Asks a few real questions of the samples, copies the lines of their traces with other ids and times
until there are so many spans, compacts the logs, and times the pages that are looked at. Fails
where fewer spans lie in the store than asked for, or a page took longer than the limit.
"""

from __future__ import annotations

import argparse
import os
import random
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import IO

from rag_platform.answering.engine import answer
from rag_platform.api.traces import get_trace, list_traces, trace_stats
from rag_platform.cli.output import Context
from rag_platform.ir import QueryRequest
from rag_platform.observability.trace_store.compaction import compact, log_files, whole_lines
from rag_platform.observability.trace_store.parts import read_manifest, traces_dir
from rag_platform.observability.trace_store.queries import TraceFilter
from rag_platform.storage.store import Store

SAMPLES = Path(__file__).resolve().parent.parent / "rag_platform" / "samples"
QUESTIONS = (
    "What is the warranty?",
    "How often is the filter changed?",
    "What does error E42 mean?",
    "保修期是多久？",
    "Which voltage does the pump need?",
    "How do I reset the controller?",
)
ROUNDS = 7
DAYS = 10
_IDS = re.compile(rb"trc_[0-9a-f]{32}|(?:spn|evt)_[0-9a-f]{16}")
_TIMES = re.compile(rb"20\d\d-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z")


def main() -> int:
    """Run it; the exit code is 1 where something is missing or slow."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--spans", type=int, default=1_000_000)
    arguments.add_argument(
        "--home", type=Path, help="where to build it; by default a temporary one"
    )
    arguments.add_argument("--limit-ms", type=float, default=300.0)
    given = arguments.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        return measure(Store(given.home or Path(folder)), given.spans, given.limit_ms)


def measure(store: Store, spans: int, limit_ms: float) -> int:
    """Build the logs where there are none, compact them, and print the times."""
    if not store.logs_dir.is_dir():
        with tempfile.TemporaryDirectory() as folder:
            templates = record_templates(Path(folder))
        started = time.perf_counter()
        written = write_logs(store, templates, spans)
        print(f"wrote {written:,} bytes of logs in {time.perf_counter() - started:.0f} s")
    started = time.perf_counter()
    compact(store.logs_dir)
    manifest = read_manifest(traces_dir(store.logs_dir))
    held = {
        name: sum(part.rows[name] for part in manifest.parts)
        for name in ("traces", "spans", "events")
    }
    print(
        f"compacted in {time.perf_counter() - started:.0f} s: {held['traces']:,} traces,"
        f" {held['spans']:,} spans, {held['events']:,} events, {manifest.bytes / 1e6:.0f} MB in"
        f" {len(manifest.parts)} parts"
    )
    slow = [name for name, act in pages(store).items() if time_of(name, act) > limit_ms]
    if held["spans"] < spans:
        print(f"only {held['spans']:,} of {spans:,} spans were built")
    if slow:
        print(f"over {limit_ms:g} ms: {', '.join(slow)}")
    return int(bool(slow) or held["spans"] < spans)


def record_templates(home: Path) -> list[list[bytes]]:
    """The lines of each trace that an ingest of the samples and a few questions leave."""
    os.environ["RAG_HOME"] = str(home)
    rag = [sys.executable, "-m", "rag_platform.cli.main"]
    subprocess.run([*rag, "ingest", str(SAMPLES)], check=True, stdout=subprocess.DEVNULL)
    context = Context()
    for _ in range(ROUNDS):
        for text in QUESTIONS:
            answer(context.library, QueryRequest(text=text, namespace="default"))
    by_trace: dict[str, list[bytes]] = {}
    for file in log_files(context.store.logs_dir):
        for line, _ in whole_lines(file, {}):
            if found := _IDS.search(line):
                by_trace.setdefault(found[0].decode(), []).append(line)
    return list(by_trace.values())


def write_logs(store: Store, templates: list[list[bytes]], spans: int) -> int:
    """Write copies of the traces over the last ten days, until they have so many spans; returns the
    bytes.
    """
    store.logs_dir.mkdir(parents=True)
    chance = random.Random(16)
    now = datetime.now(UTC)
    written = made = 0
    files: dict[str, IO[bytes]] = {}
    while made < spans:
        lines = chance.choice(templates)
        made += sum(b'"line":"span.end"' in line for line in lines)
        shift = timedelta(seconds=chance.uniform(0, DAYS * 86_400))
        block = copy_trace(lines, now - shift, chance)
        name = f"{now - shift:%Y-%m-%d}-{chance.randrange(4) + 100}.jsonl"
        if name not in files:
            files[name] = open(store.logs_dir / name, "wb")  # noqa: SIM115
        written += files[name].write(block)
    for file in files.values():
        file.close()
    return written


def copy_trace(lines: list[bytes], begin: datetime, chance: random.Random) -> bytes:
    """The lines with ids of their own, at another time."""
    ids: dict[bytes, bytes] = {}
    first = min(_time(found) for line in lines for found in _TIMES.findall(line))

    def change_id(match: re.Match[bytes]) -> bytes:
        prefix, digits = match[0].split(b"_")
        if match[0] not in ids:
            ids[match[0]] = prefix + b"_%0*x" % (len(digits), chance.getrandbits(4 * len(digits)))
        return ids[match[0]]

    def change_time(match: re.Match[bytes]) -> bytes:
        moved = begin + (_time(match[0]) - first)
        return moved.isoformat(timespec="milliseconds").replace("+00:00", "Z").encode()

    block = b"\n".join(lines) + b"\n"
    return _TIMES.sub(change_time, _IDS.sub(change_id, block))


def _time(text: bytes) -> datetime:
    return datetime.fromisoformat(text.decode())


def pages(store: Store) -> dict[str, Callable[[], object]]:
    """What a person looks at, by name."""
    day = datetime.now(UTC) - timedelta(hours=24)
    first = list_traces(store, limit=50)
    cursor = first["next_cursor"]
    middle = first["traces"][-1]["trace_id"]
    return {
        "list, newest": lambda: list_traces(store, limit=50),
        "list, next page": lambda: list_traces(store, limit=50, cursor=cursor),
        "list, one type and words": lambda: list_traces(
            store, TraceFilter(kinds=["query"], words="warranty"), limit=50
        ),
        "list, slow and doubtful": lambda: list_traces(
            store, TraceFilter(min_latency_ms=200, max_confidence=0.4), limit=50
        ),
        "overview, last 24 hours": lambda: trace_stats(store, TraceFilter(since=day)),
        "overview, everything": lambda: trace_stats(store),
        "overview, one namespace": lambda: trace_stats(store, TraceFilter(namespace="default")),
        "one trace": lambda: get_trace(store, middle),
    }


def time_of(name: str, act: Callable[[], object]) -> float:
    """The median of several calls in milliseconds, printed."""
    act()
    times, worked = [], []
    for _ in range(ROUNDS):
        started, before = time.perf_counter(), time.process_time()
        act()
        times.append(1000 * (time.perf_counter() - started))
        worked.append(1000 * (time.process_time() - before))
    middle = statistics.median(times)
    print(
        f"{name:<28} {middle:8.1f} ms  (fastest {min(times):.1f}, slowest {max(times):.1f};"
        f" {statistics.median(worked):.1f} ms of processor time)"
    )
    return middle


if __name__ == "__main__":
    sys.exit(main())
