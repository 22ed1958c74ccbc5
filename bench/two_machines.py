"""Two machines that share a ledger and a bucket: two data roots, PostgreSQL and an S3 server, all
really started, and processes killed while they carry a release.

    python bench/two_machines.py [--documents 200] [--kills 20] [--seed 1]

A ingests; the release that B pulls is compared file for file, B's answers and scores with A's, and
B's data root is searched for paths of A. Then one document is edited, and what B pulls is counted;
one is deleted, and B asked again. Pushes into an empty bucket and pulls into an empty data root are
killed at random moments and done again. Eight publishers race for one pointer, 100 rounds. Exit
code 1 when something differs.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from rag_platform.config.settings import load_settings
from rag_platform.registry import make_provider
from rag_platform.releases import publishing, transfer
from rag_platform.storage.store import files_below, sha256_file
from rag_platform.workspace import DataRoot
from rag_platform_tests.postgres_server import PostgresServer
from rag_platform_tests.s3_server import S3Server

QUESTIONS = ("When does gate 7 open?", "17号门几点开？", "Who keeps the key of gate 42?")


def rag(home: Path, *words: object) -> Any:
    """The data of a command over a data root."""
    command = [sys.executable, "-m", "rag_platform.cli.main", *map(str, words), "--json"]
    ended = subprocess.run(
        command, capture_output=True, text=True, env={**os.environ, "RAG_HOME": str(home)}
    )
    if ended.returncode:
        sys.exit(f"rag {words} ended with {ended.returncode}: {ended.stdout}{ended.stderr}")
    return json.loads(ended.stdout)["data"]


def write_documents(folder: Path, count: int) -> None:
    """Small documents, a third of them Chinese."""
    folder.mkdir(parents=True)
    for n in range(count):
        text = (
            f"# {n}号门\n\n{n}号门早上{n % 12}点开，钥匙由第{n % 9}班保管。\n"
            if n % 3 == 2
            else f"# Gate {n}\n\nGate {n} opens at {n % 12}:30.\n\n## Keys\n\nShift {n % 9} keeps"
            f" the key of gate {n}.\n"
        )
        (folder / f"gate-{n:04d}.md").write_text(text, encoding="utf-8")


def published(home: Path) -> dict[str, str]:
    """The files of the release that is read, by their sha256; engines' empty lock files apart."""
    folder = home / "releases" / "default"
    release = folder / (folder / "CURRENT").read_text().strip()
    return {
        name: sha256_file(release / name)
        for name in files_below(release)
        if not name.endswith(".lock")
    }


def answers(home: Path) -> list[list[tuple[str, float]]]:
    """Chunks and scores for every question."""
    found = (rag(home, "query", question)["results"] for question in QUESTIONS)
    return [[(hit["chunk_id"], hit["score"]) for hit in hits] for hits in found]


def begin(home: Path, work: str) -> int:
    """The id of a process that pushes or pulls; a fork, for starting Python takes longer than
    that.
    """
    if process := os.fork():
        return process
    try:
        root = DataRoot.open(load_settings({"home": home}))
        does = publishing.push_current if work == "push" else transfer.pull
        does("default", root)
        os._exit(0)
    except BaseException:
        traceback.print_exc()
        os._exit(1)


def killed(home: Path, work: str, after: float) -> bool:
    """Whether a process was still at work when it was killed."""
    process = begin(home, work)
    time.sleep(after)
    os.kill(process, signal.SIGKILL)
    return os.WIFSIGNALED(os.waitpid(process, 0)[1])


def undisturbed(home: Path, work: str) -> float:
    """Seconds of a push or pull."""
    started = time.perf_counter()
    assert os.waitpid(begin(home, work), 0)[1] == 0, (home, work)
    return time.perf_counter() - started


def kill_often(server: S3Server, here: Path, there: Path, count: int, rng: random.Random) -> Any:
    """How many pushes and pulls were killed at work, and what was not whole afterwards."""
    wrong: list[str] = []
    hits: Counter[str] = Counter()
    lasts: dict[str, float] = {}
    for trial in range(-1, count):
        os.environ.update(server.variables())
        shutil.rmtree(there, ignore_errors=True)
        for home, work in ((here, "push"), (there, "pull")):
            if trial < 0:
                lasts[work] = undisturbed(home, work)
                continue
            hits[work] += killed(home, work, rng.uniform(0, lasts[work]))
            if work == "push":
                if (there / "releases").exists():
                    wrong.append(f"{trial}: something was pulled before it was pushed")
            elif (there / "releases/default/CURRENT").is_file() and published(there) != published(
                here
            ):
                wrong.append(f"{trial}: half a release is read")
            undisturbed(home, work)
        if published(there) != published(here):
            wrong.append(f"{trial}: the release that was pulled differs")
    return hits, lasts, wrong


def race(rounds: int = 100, publishers: int = 8) -> Counter[int]:
    """Winners a round of publishers that saw the same pointer."""
    blobs = make_provider("blobs", "s3", {"bucket": os.environ["RAG_BLOBS__BUCKET"]})
    winners: Counter[int] = Counter()
    tag = ""
    with ThreadPoolExecutor(publishers) as pool:
        for turn in range(rounds):
            start = threading.Barrier(publishers)

            def publish(n: int, turn: int = turn, start: Any = start, tag: str = tag) -> bool:
                start.wait()
                won: bool = blobs.swap_pointer("race", f"{turn} {n}".encode(), tag)
                return won

            winners[sum(pool.map(publish, range(publishers)))] += 1
            tag = blobs.read_pointer("race")[1]
    return winners


def main() -> int:
    """The report; 1 when something is not as it must be."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--documents", type=int, default=200)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    if given.documents < 8:
        parser.error(f"--documents is {given.documents}; gate 7, which is edited, needs 8")
    folder = Path(tempfile.mkdtemp(prefix="rag-cluster-"))
    here, there, docs = folder / "alpha" / "home", folder / "beta" / "home", folder / "alpha/docs"
    database, server = PostgresServer(), S3Server.moto()
    os.environ.update(server.variables(), RAG_LEDGER=database.new_url(), RAG_STRATEGY="fast")
    wrong: list[str] = []

    def check(holds: bool, what: str) -> None:
        print(f"{'ok   ' if holds else 'WRONG'} {what}", flush=True)
        if not holds:
            wrong.append(what)

    try:
        write_documents(docs, given.documents)
        rag(here, "ingest", docs)
        row = rag(there, "releases", "pull")["pulled"][0]
        print(f"first pull: {row['files']} files, {row['bytes']:,} bytes")
        check(published(there) == published(here), "the release of B is that of A, file for file")
        check(answers(there) == answers(here), "B answers with the scores of A")
        proved = rag(there, "verify", "--all")
        check(not proved["failed"], f"B proves all of its {proved['checked']} chunks")

        text = docs / "gate-0007.md"
        text.write_text(text.read_text().replace("7:30", "23:45"))
        rag(here, "ingest", docs)
        row = rag(there, "releases", "pull")["pulled"][0]
        print(
            f"pull of an edit of one document: {row['files']} files, {row['bytes']:,} bytes;"
            f" {row['linked']} linked"
        )
        check(published(there) == published(here), "and after the edit")
        rag(here, "docs", "delete", "gate-0007.md", "--yes")
        hits = rag(there, "query", QUESTIONS[0])["results"]
        check(
            all(not hit["citation"]["source_uri"].endswith(text.name) for hit in hits),
            "what A deleted, B does not show",
        )
        traces = [
            path
            for path in there.rglob("*")
            if path.is_file() and str(folder / "alpha").encode() in path.read_bytes()
        ]
        check(not traces, f"B holds no path of A {traces or ''}")

        hits, lasts, lost = kill_often(server, here, there, given.kills, random.Random(given.seed))
        whole = ", ".join(f"{work} {seconds:.1f} s" for work, seconds in lasts.items())
        print(f"killed at work: {dict(hits)}, of {given.kills} each; undisturbed: {whole}")
        check(not lost, f"after each kill and another try everything is whole {lost or ''}")
        winners = race()
        check(winners == {1: 100}, f"winners a round of eight publishers: {dict(winners)}")
    finally:
        server.kill()
        database.close()
        shutil.rmtree(folder, ignore_errors=True)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
