"""Does the gate let a harmless release through, and hold a harmful one back, naming the cause?

    python bench/gates.py FOLDER [--strategy fast] [--again 10]

FOLDER holds `r2.tar.gz` and `r3.tar.gz`, two revisions of the FastAPI documentation. The 60
answerable questions of bench/answers_questions.yaml (`tune`, `held_out`) are the gate. With r2
published, r3 must pass, and so must `--again` releases that change no document a question is about.
From r3 on four harmful releases must each be held back: half of the files gone, chunks of 100
characters, the reranker turned round, one document's text replaced. What the gate says is printed;
a wrong verdict ends with exit code 1.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import sys
import tarfile
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from rag_platform.answering.engine import answer
from rag_platform.config.gates import read_gates
from rag_platform.config.profiles import stage_profiles
from rag_platform.config.settings import load_settings
from rag_platform.evaluation.gating import apply_gates
from rag_platform.evaluation.runs import open_library
from rag_platform.evaluation.sources import open_dataset
from rag_platform.ingestion.batches import ingest_versions, stale_versions
from rag_platform.intake.receiving import ReceiveOptions, receive
from rag_platform.ir import Hit, QueryIR, QueryRequest
from rag_platform.releases.manifest import QUALITY_GATE, CheckResult
from rag_platform.releases.publishing import build_candidate, publish_candidate
from rag_platform.releases.release_store import current
from rag_platform.retrieval.lexical_reranker import Features
from rag_platform.workspace import DataRoot, Workspace

REPOSITORY = Path(__file__).resolve().parent.parent
QUESTIONS = Path(__file__).with_name("answers_questions.yaml")
NAMESPACE = "gated"


@dataclass(frozen=True)
class Inverted(Features):
    """The shipped reranker, its order turned round."""

    def score(self, query: QueryIR, hits: Sequence[Hit]) -> list[float]:
        """The best get the least."""
        return [-score for score in super().score(query, hits)]


@dataclass(frozen=True)
class Place:
    """A data root whose namespace is synced with a folder, and gated."""

    root: Path
    docs: Path

    def write_strategy(self, base: str, changes: dict[str, Any]) -> None:
        """Make the strategy `gated` of another one."""
        folder = self.root / "config" / "strategies"
        strategy = yaml.safe_load((folder / f"{base}.yaml").read_text(encoding="utf-8"))
        text = yaml.safe_dump({**strategy, **changes}, allow_unicode=True)
        (folder / "gated.yaml").write_text(text, encoding="utf-8")

    def fill(self, archive: Path) -> None:
        """Make the folder hold a revision."""
        shutil.rmtree(self.docs, ignore_errors=True)
        with tarfile.open(archive) as opened:
            opened.extractall(self.docs, filter="data")

    def release(self, publish: bool) -> tuple[CheckResult | None, float, float]:
        """The verdict on the folder as it is, seconds of building and of judging; published where
        asked for and allowed.
        """
        started = time.perf_counter()
        work = DataRoot.open(load_settings()).workspace(NAMESPACE, "gated")
        options = ReceiveOptions(source="docs", sync=True)
        reception = receive([self.docs], NAMESPACE, work, options)
        stale = stale_versions(work.ledger, NAMESPACE, stage_profiles(work.strategy)["embeddings"])
        wanted = dict.fromkeys([*reception.to_process, *(item.version_id for item in stale)])
        ingest_versions([work.ledger.version(version_id) for version_id in wanted], work)
        manifest, _ = build_candidate(NAMESPACE, work)
        built = time.perf_counter()
        before = current(work.store, NAMESPACE)
        spent = time.process_time()
        manifest = apply_gates(manifest, work)
        spent = time.process_time() - spent
        ended = time.perf_counter()
        if before and read_gates().get(NAMESPACE):
            asked = ask_plainly(work, [before, manifest.release_id])
            print(f"processor time: the gate {spent:.2f} s, its questions alone {asked:.2f} s")
        if publish and not manifest.failures:
            publish_candidate(NAMESPACE, manifest.release_id, work)
        work.ledger.close()
        check = next((item for item in manifest.checks if item.name == QUALITY_GATE), None)
        return check, built - started, ended - built


def ask_plainly(work: Workspace, releases: Sequence[str]) -> float:
    """Processor seconds of asking the gate's questions of the releases, without any evaluation."""
    dataset = open_dataset("sixty")
    started = time.process_time()
    with open_library(work.settings, work.store) as library:
        for release in releases:
            with library.lease(NAMESPACE, release) as lease:
                config = library.config_id(lease.strategy)
            for case in dataset.cases:
                answer(
                    library,
                    QueryRequest(case.query, NAMESPACE, release_id=release, strategy=config),
                )
    return time.process_time() - started


def write_golden(config: Path) -> int:
    """Write the 60 questions as a dataset; their number."""
    sets = yaml.safe_load(QUESTIONS.read_text(encoding="utf-8"))
    cases = [
        {
            "case_id": f"{name}-{number}",
            "query": item["ask"],
            "expected_text": {"text": item["needle"], "file": item["file"]},
        }
        for name in ("tune", "held_out")
        for number, item in enumerate(sets[name]["answerable"])
    ]
    (config / "datasets").mkdir(exist_ok=True)
    text = yaml.safe_dump(cases, allow_unicode=True)
    (config / "datasets" / "sixty.yaml").write_text(text, encoding="utf-8")
    (config / "gates.yaml").write_text(f"{NAMESPACE}: [{{dataset: sixty}}]\n", encoding="utf-8")
    return len(cases)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("--strategy", default="fast")
    parser.add_argument("--again", type=int, default=10, metavar="N")
    options = parser.parse_args()
    root = Path(tempfile.mkdtemp(prefix="rag-gates-"))
    config = root / "config"
    shutil.copytree(REPOSITORY / "rag_platform" / "defaults", config)
    os.environ |= {"RAG_CONFIG": str(config), "RAG_HOME": str(root / "home")}
    place = Place(root, root / "docs")
    questions = write_golden(config)
    (config / "gates.yaml").rename(config / "gates.off")
    place.write_strategy(options.strategy, {})
    place.fill(options.folder / "r2.tar.gz")
    place.release(publish=True)
    (config / "gates.off").rename(config / "gates.yaml")
    print(f"r2 is published without a gate; {questions} questions are the gate from now on")
    wrong = 0

    def show(name: str, passes: bool, cause: str = "", publish: bool = False) -> None:
        nonlocal wrong
        check, built, judged = place.release(publish)
        assert check is not None
        good = check.passed == passes and cause in check.details
        wrong += not good
        print(
            f"\n{'right' if good else 'WRONG'}: {name}: {'passed' if check.passed else 'held back'}"
            f" (built in {built:.1f} s, judged in {judged:.1f} s)"
        )
        if not passes or not good:
            print(check.details)

    place.fill(options.folder / "r3.tar.gz")
    show("r3", True, publish=True)
    files = sorted(place.docs.rglob("*.md"))
    for number in range(options.again):
        (place.docs / f"note-{number}.md").write_text(
            f"# Note {number}\n\nThe office plant was watered {number} times.\n", "utf-8"
        )
        show(f"a harmless release, {number + 1}", True, publish=True)

    chosen = random.Random(1).sample(files, len(files) // 2)
    kept = {path: path.read_bytes() for path in files}
    for path in chosen:
        path.unlink()
    show("half of the files gone", False, "its document is gone")
    for path in chosen:
        path.write_bytes(kept[path])
    path = place.docs / "docs" / "en" / "docs" / "tutorial" / "cors.md"
    noise = random.Random(2)
    letters = "abcdefghijklmnopqrstuvwxyz"
    words = ["".join(noise.choices(letters, k=6)) for _ in range(800)]
    path.write_text("# Noise\n\n" + " ".join(words) + "\n", encoding="utf-8")
    show("one document's text replaced by noise", False, "was replaced")
    path.write_bytes(kept[path])
    place.write_strategy(options.strategy, {"reranker": {"provider": "gates:Inverted"}})
    show("the reranker turned round", False, "config reranker.provider")
    place.write_strategy(
        options.strategy,
        {"chunker": {"provider": "recursive", "options": {"chunk_size": 100, "chunk_overlap": 0}}},
    )
    show("chunks of 100 characters", False, "chunk_size: 1600 -> 100")
    shutil.rmtree(root)
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
