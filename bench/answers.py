"""Answers over a real library: are they proved, do they hold what was asked, and does the library
say so when it does not know?

    python bench/answers.py FOLDER [--set tune] [--strategy fast] [--keep HOME] [--show] [--json]

FOLDER is what a set of bench/answers_questions.yaml was written for: the Chinese and English
FastAPI documentation (`tune`, `held_out`) or the WSL documentation (`other`). It is indexed by the
functions of documents/ and indexes/, without Dagster; `--keep` names a data root that is used
again. A citation counts as proved when its chunk is proved against the raw bytes of the file and
each of its spans is a slice of it; a needle counts as found when the text of a citation holds it.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import yaml

from rag_platform.answering.engine import answer
from rag_platform.config.settings import load_settings, load_strategy
from rag_platform.ingestion.batches import ingest_versions
from rag_platform.intake.receiving import ReceiveOptions, receive
from rag_platform.ir import Citation, QueryRequest, QueryResult
from rag_platform.ledger.ledger import Ledger
from rag_platform.releases.publishing import build_candidate, publish_candidate
from rag_platform.releases.verification import verify_release
from rag_platform.retrieval.library import Library
from rag_platform.storage.store import Store
from rag_platform.workspace import Workspace

QUESTIONS = Path(__file__).with_name("answers_questions.yaml")
NAMESPACE = "answers"


@dataclass
class Report:
    """The figures of one set of questions; the lists name the questions that went wrong."""

    set: str
    strategy: str
    answerable: int = 0
    unknown: int = 0
    citations: int = 0
    proved: int = 0
    found: int = 0  # answers of which a citation holds the needle
    first: int = 0  # answers whose text itself holds the needle
    flagged: int = 0  # answers with a sentence that the check calls unsupported
    refused_known: list[str] = field(default_factory=list)
    answered_unknown: list[str] = field(default_factory=list)
    missed: list[str] = field(default_factory=list)
    seconds: float = 0.0


def build(home: Path, folder: Path, strategy_name: str) -> None:
    """Index a folder in the namespace of this benchmark, unless the data root holds it."""
    os.environ |= {"RAG_HOME": str(home), "RAG_STRATEGY": strategy_name}
    settings = load_settings()
    store = Store(settings.home)
    if store.current_path(NAMESPACE).is_file():
        return
    parts: dict[str, Any] = {
        "settings": settings,
        "strategy": load_strategy(settings),
        "store": store,
        "ledger": Ledger(store.ledger_path),
    }
    received = receive([folder], NAMESPACE, Workspace(**parts), ReceiveOptions())
    ingest_versions(
        [parts["ledger"].version(item) for item in received.to_process], Workspace(**parts)
    )
    manifest, checks = build_candidate(NAMESPACE, **parts)
    assert all(check.passed for check in checks), checks
    publish_candidate(
        NAMESPACE, manifest.release_id, settings=settings, store=store, ledger=parts["ledger"]
    )


def is_proved(store: Store, citation: Citation) -> bool:
    """True when the chunk is proved against the raw bytes and the spans lie in its text."""
    proof = verify_release(store, NAMESPACE, chunk_id=citation.chunk_id)
    return (
        proof.checked == 1
        and not proof.failures
        and all(0 <= a < b <= len(citation.text) for a, b in citation.spans)
    )


def ask_all(name: str, questions: dict[str, Any], strategy: str, show: bool) -> Report:
    """The report of a set, asked of the library in force."""
    settings = load_settings()
    store = Store(settings.home)
    library = Library(settings, store)
    report = Report(name, strategy, len(questions["answerable"]), len(questions["unknown"]))

    def asked(text: str) -> QueryResult:
        started = time.perf_counter()
        result = answer(library, QueryRequest(text, NAMESPACE))
        report.seconds += time.perf_counter() - started
        if show:
            print(
                f"\n"
                f"--- {text}\n"
                f"[{'answered' if result.answered else 'refused'} {result.confidence}]\n"
                f"{result.answer_markdown[:700]}"
            )
        return result

    for row in questions["answerable"]:
        result = asked(row["ask"])
        if not result.answered:
            report.refused_known.append(row["ask"])
            continue
        report.citations += len(result.citations)
        report.proved += sum(is_proved(store, citation) for citation in result.citations)
        found = any(row["needle"] in citation.text for citation in result.citations)
        report.found += found
        report.first += row["needle"] in result.answer_markdown
        report.flagged += bool(result.flags.get("unsupported"))
        if not found:
            report.missed.append(row["ask"])
    report.answered_unknown = [text for text in questions["unknown"] if asked(text).answered]
    library.close()
    return report


def table(report: Report) -> str:
    """The report for people."""
    lines = [
        (
            f"{report.set}, strategy {report.strategy}:"
            f" {report.seconds / max(1, report.answerable + report.unknown) * 1000:.0f} ms a"
            " question"
        ),
        f"  citations proved                {report.proved} of {report.citations}",
        (
            f"  answerable, a citation holds it {report.found} of {report.answerable} (the answer"
            f" itself {report.first})"
        ),
        f"  answerable but refused          {len(report.refused_known)} (goal 0)",
        (
            f"  not answerable and refused      {report.unknown - len(report.answered_unknown)} of"
            f" {report.unknown} (goal 13 of 15)"
        ),
        f"  answers with a flagged sentence {report.flagged}",
    ]
    lines += [
        f"  {label}: {text}"
        for label, texts in (
            ("refused", report.refused_known),
            ("answered", report.answered_unknown),
            ("not cited", report.missed),
        )
        for text in texts
    ]
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> None:
    """Index, ask, print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument(
        "--set", dest="sets", action="append", help="tune, held_out or other; may be repeated"
    )
    parser.add_argument("--strategy", default="fast")
    parser.add_argument("--keep", type=Path, help="a data root to use again")
    parser.add_argument("--show", action="store_true", help="print every answer")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args(arguments)
    questions = yaml.safe_load(QUESTIONS.read_text(encoding="utf-8"))
    with tempfile.TemporaryDirectory() as scratch:
        build(given.keep or Path(scratch), given.folder, given.strategy)
        reports = [
            ask_all(name, questions[name], given.strategy, given.show)
            for name in given.sets or ["tune"]
        ]
    print(
        json.dumps([asdict(report) for report in reports], ensure_ascii=False)
        if given.json
        else "\n\n".join(map(table, reports))
    )


if __name__ == "__main__":
    main()
