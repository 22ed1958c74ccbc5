"""Peak memory of the whole process tree of `rag ingest` on long PDFs.

    python bench/memory.py [FILE.pdf ...] [--pages 1600] [--strategy fast] [--profile layout|fast]

Without files a PDF of `--pages` pages with text, a table and a picture on each is made. PSS shares
out pages that processes have in common, so its sum is the memory that the tree takes; the sum of
RSS counts those pages once for each process. Sampled ten times a second from /proc, so Linux only.
Printed too: pages a second, and how often the job was seen to announce more pages. Exit code 1
where the pages read are not those asked.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import sqlite3
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import yaml
from sizes import require_size

from rag_platform.config.folders import SHIPPED

SAMPLES = 10  # a second


def main() -> None:
    """Measure each file in a fresh data root."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("files", nargs="*", type=Path)
    parser.add_argument("--pages", type=int, default=1600)
    parser.add_argument("--strategy", default="fast")
    parser.add_argument("--profile", choices=("layout", "fast"), default="layout")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="rag-memory-") as scratch:
        folder = Path(scratch)
        config = configured(folder / "config", arguments.strategy, arguments.profile)
        for file in arguments.files or [
            generated(folder / f"{arguments.pages}-pages.pdf", arguments.pages)
        ]:
            read = report(
                file, folder / "home" / file.stem, config, arguments.strategy, arguments.profile
            )
            if not arguments.files:
                require_size(arguments.pages, read, "pages")


def configured(folder: Path, strategy: str, profile: str) -> Path:
    """A copy of the config folder in which the PDF loader has the profile."""
    (folder / "strategies").mkdir(parents=True)
    for source in SHIPPED.rglob("*.yaml"):
        target = folder / source.relative_to(SHIPPED)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(source.read_text(encoding="utf-8"), encoding="utf-8")
    path = folder / "strategies" / f"{strategy}.yaml"
    values = yaml.safe_load(path.read_text(encoding="utf-8"))
    for loader in values["loading"]["loaders"]:
        if loader["provider"] == "pdf":
            loader["options"] = {"profile": profile}
    path.write_text(yaml.safe_dump(values, allow_unicode=True), encoding="utf-8")
    return folder


def generated(path: Path, pages: int) -> Path:
    """A PDF whose pages hold a heading, three paragraphs, a ruled table and one of ten pictures."""
    import pymupdf

    pictures = []
    for number in range(10):
        pixmap = pymupdf.Pixmap(pymupdf.csRGB, pymupdf.IRect(0, 0, 320, 200))
        pixmap.clear_with(20 * number)
        pictures.append(pixmap.tobytes("png"))
    with pymupdf.open() as document:
        for number in range(pages):
            page = document.new_page()
            page.insert_text(
                (72, 80), f"{number + 1} Section about item {number * 7919 % 10007}", fontsize=16
            )
            for part in range(3):
                words = " ".join(
                    f"word{(number * 31 + part * 17 + k * k) % 4999}" for k in range(90)
                )
                page.insert_textbox(
                    (72, 100 + 110 * part, 523, 205 + 110 * part), words, fontsize=10
                )
            for row in range(6):
                for column in range(4):
                    box = pymupdf.Rect(
                        72 + 110 * column, 450 + 20 * row, 182 + 110 * column, 470 + 20 * row
                    )
                    page.draw_rect(box)
                    page.insert_text(
                        (box.x0 + 4, box.y1 - 6), f"r{row}c{column} {number}", fontsize=9
                    )
            page.insert_image(pymupdf.Rect(72, 600, 232, 700), stream=pictures[number % 10])
        document.save(path, deflate=True)
    return path


def report(file: Path, home: Path, config: Path, strategy: str, profile: str) -> int:
    """Print one line about one ingest; returns how many pages it read."""
    environment = {**os.environ, "RAG_HOME": str(home), "RAG_CONFIG": str(config)}
    command = [
        sys.executable,
        "-m",
        "rag_platform.cli.main",
        "ingest",
        str(file),
        "--strategy",
        strategy,
    ]
    started = time.perf_counter()
    progress: set[int] = set()
    with subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    ) as process:
        peak_pss = peak_rss = most = 0
        while process.poll() is None:
            pss, rss, count = tree_memory(process.pid)
            peak_pss, peak_rss, most = max(peak_pss, pss), max(peak_rss, rss), max(most, count)
            progress |= pages_announced(home)
            time.sleep(1 / SAMPLES)
        output = process.stdout.read().decode() if process.stdout else ""
    seconds = time.perf_counter() - started
    pages = pages_read(home)
    print(
        f"{file.name}, {profile}: {pages} pages in {seconds:.0f} s ({pages / seconds:.1f} a"
        f" second), exit {process.returncode}; peak of {most} processes: PSS {peak_pss / 1024:.0f}"
        f" MiB, RSS summed {peak_rss / 1024:.0f} MiB;"
        f" {len(progress)} page counts announced"
    )
    if process.returncode not in (0, 3):
        print(output[-2000:])
    return pages


def tree_memory(root: int) -> tuple[int, int, int]:
    """(PSS, RSS, processes) of a process and all below it, in KiB."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            except OSError:
                continue
            children.setdefault(parent, []).append(int(entry.name))
    pids, found = [root], [0, 0, 0]
    while pids:
        pid = pids.pop()
        pids += children.get(pid, [])
        try:
            rollup = Path(f"/proc/{pid}/smaps_rollup").read_text()
        except OSError:
            continue
        for number, name in enumerate(("Pss", "Rss")):
            if match := re.search(rf"^{name}:\s+(\d+)", rollup, re.M):
                found[number] += int(match[1])
        found[2] += 1
    return found[0], found[1], found[2]


def pages_announced(home: Path) -> set[int]:
    """The number of pages read so far, as the job's row in the ledger has it now."""
    path = home / "ledger.sqlite"
    if not path.is_file():
        return set()
    try:
        with sqlite3.connect(f"file:{path}?mode=ro", uri=True, timeout=0.05) as ledger:
            rows = ledger.execute("SELECT progress FROM jobs").fetchall()
    except sqlite3.Error:
        return set()
    stages = [json.loads(row[0] or "{}").get("stages", {}) for row in rows]
    return {stage["pages"]["done"] for stage in stages if "pages" in stage}


def pages_read(home: Path) -> int:
    """The pages of every version that is ready."""
    with sqlite3.connect(f"file:{home / 'ledger.sqlite'}?mode=ro", uri=True) as ledger:
        counts = ledger.execute("SELECT counts FROM versions WHERE status = 'ready'").fetchall()
    return sum(json.loads(row[0])["pages"] or 0 for row in counts)


if __name__ == "__main__":
    main()
