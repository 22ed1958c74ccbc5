"""Answers to people's questions over real documents: found, told, quoted, and how sure.

    python bench/answers.py [--material DIR] [--strategy fast] [--corpus NAME]
    [--half tuned|untouched] [--searches] [--keep HOME] [--results FILE] [--json FILE]

DIR holds `questions` (with their judge, which also says which half a question is of), `markdown`
and `pdf-qa`. Each corpus becomes a namespace of its own, built by the program's own functions
without Dagster; --keep names a data root that is used again. --searches gives the recorded search
phrasings along. --results writes one line a question, as the judge of the questions reads them.

`p(found)` of the reliability table is the share of questions whose evidence is among the first
three hits, which is what confidence tells the probability of.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import sys
import tarfile
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from rag_platform.answering.engine import answer
from rag_platform.config.settings import load_settings
from rag_platform.config.strategies import load_strategy
from rag_platform.ingestion.batches import ingest_versions
from rag_platform.intake.receiving import ReceiveOptions, receive
from rag_platform.ir import Json, QueryRequest
from rag_platform.ledger.ledger import open_ledger
from rag_platform.releases.publishing import build_candidate, publish_candidate
from rag_platform.retrieval.library import Library
from rag_platform.storage.store import Store
from rag_platform.workspace import Workspace

REPOSITORY = Path(__file__).resolve().parent.parent
MATERIAL = Path(os.environ.get("RAG_TEST_DATA") or REPOSITORY.parent / "shared" / "data")
# corpus of the questions: the archive or folder that holds it, and which of an archive's files
CORPORA = {
    "fastapi-en": ("markdown/fastapi-en-zh/r3.tar.gz", "docs/en/"),
    "fastapi-zh": ("markdown/fastapi-en-zh/r3.tar.gz", "docs/zh/"),
    "wsl": ("markdown/wsl-docs/r2.tar.gz", ""),
    "pdf": ("pdf-qa", ""),
}
FOUND_IN = 3  # first hits that hold the evidence of a question that counts as found
BINS = 5


def load_judge(folder: Path) -> Any:
    """The judge that comes with the questions: their halves, and what counts as found."""
    spec = importlib.util.spec_from_file_location("questions_judge", folder / "judge.py")
    assert spec is not None and spec.loader is not None
    judge = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(judge)
    return judge


def read_lines(path: Path) -> list[Json]:
    """The objects of a file of JSON lines."""
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines() if line]


def load_questions(
    folder: Path, judge: Any, half: str | None
) -> tuple[dict[str, Json], dict[str, Json]]:
    """(answerable, unanswerable) questions of one half, or of both, by id."""
    answerable, unknown = (
        {
            row["id"]: row
            for name in ("en", "zh")
            for row in read_lines(folder / f"{name}{kind}.jsonl")
            if half in (None, judge.half(row["id"]))
        }
        for kind in ("", "-unanswerable")
    )
    return answerable, unknown


def find_documents(material: Path, corpus: str, target: Path) -> list[Path]:
    """The folder with the documents of a corpus, unpacked as `target`; PDF files by themselves,
    because questions about them lie beside them.
    """
    place, prefix = CORPORA[corpus]
    if not place.endswith(".tar.gz"):
        return sorted((material / place).glob("*.pdf"))
    if not target.is_dir():
        with tarfile.open(material / place) as archive:
            wanted = [
                member
                for member in archive.getmembers()
                if f"/{prefix}" in f"/{member.name}" and member.name.endswith(".md")
            ]
            archive.extractall(target, wanted, filter="data")
    return [target]


def build(material: Path, corpus: str, strategy_name: str) -> str:
    """The namespace of a corpus, built unless the data root holds it."""
    home = Store(load_settings().home).home
    documents = partial(find_documents, material, corpus, home / "documents" / corpus)
    return publish(documents, f"{corpus}-{strategy_name}", strategy_name)


def publish(documents: Callable[[], list[Path]], namespace: str, strategy_name: str) -> str:
    """The namespace, with its documents published unless the data root holds it."""
    settings = load_settings()
    store = Store(settings.home)
    if store.current_path(namespace).is_file():
        return namespace
    work = Workspace(
        settings=settings,
        strategy=load_strategy(settings, strategy_name),
        store=store,
        ledger=open_ledger(store),
    )
    started = time.perf_counter()
    received = receive(documents(), namespace, work, ReceiveOptions())
    ingest_versions([work.ledger.version(item) for item in received.to_process], work)
    manifest, checks = build_candidate(namespace, work)
    assert all(check.passed for check in checks), checks
    publish_candidate(namespace, manifest.release_id, work)
    print(f"{namespace} built in {time.perf_counter() - started:.0f} s", file=sys.stderr)
    return namespace


def ask_all(
    questions: dict[str, Json], namespaces: dict[str, str], phrasings: dict[str, list[str]]
) -> Iterator[Json]:
    """One result a question, as the judge reads it."""
    settings = load_settings()
    # every question counts once, and none may be answered from memory
    caches = settings.caches.model_copy(update={"retrievals": 0, "responses": 0})
    library = Library(settings.model_copy(update={"caches": caches}), Store(settings.home))
    for question_id, row in questions.items():
        request = QueryRequest(
            row["question"],
            namespaces[row.get("corpus") or row["near"]],
            top_k=10,
            searches=tuple(phrasings.get(question_id, ())),
        )
        started = time.process_time()
        result = answer(library, request)
        yield {
            "id": question_id,
            "state": result.state,
            "signals": result.signals,
            "confidence": result.confidence,
            "answer": result.answer_markdown,
            "hits": [{"uri": hit.source_uri, "text": hit.chunk_text} for hit in result.hits],
            "citations": [{"uri": c.source_uri, "text": c.text} for c in result.citations],
            "cpu_ms": round((time.process_time() - started) * 1000, 1),
        }
    library.close()


def judge_results(judge: Any, questions: dict[str, Json], results: Sequence[Json]) -> list[Json]:
    """What became of each question: type, language, state, rank of the evidence, evidence in the
    answer.
    """
    rows = []
    for result in results:
        question = questions[result["id"]]
        row = {key: result[key] for key in ("id", "state", "confidence", "cpu_ms")}
        if "evidence" not in question:
            other = {"type": "unanswerable", "lang": question["lang"], "rank": None}
            rows.append({**row, **other, "in_answer": False, "answerable": False})
            continue
        hits = [(hit["uri"], hit["text"]) for hit in result["hits"]]
        text = result["answer"].replace("\\", "")
        told = result["state"] != "nothing_found"
        rows.append(
            {
                **row,
                "type": question["type"],
                "lang": question["lang"],
                "corpus": question["corpus"],
                "rank": judge.rank_of(question, hits),
                "in_answer": bool(told and judge.in_answer(question, text)),
                "answerable": True,
            }
        )
    return rows


def share(rows: Sequence[Json], holds: Callable[[Json], bool]) -> float:
    """The share of the rows of which something holds."""
    return sum(map(holds, rows)) / max(1, len(rows))


def figures(rows: Sequence[Json]) -> dict[str, float]:
    """The figures of one group of answerable questions."""
    return {
        "n": len(rows),
        "hit@3": share(rows, lambda row: (row["rank"] or 99) <= 3),
        "hit@10": share(rows, lambda row: (row["rank"] or 99) <= 10),
        "nothing": share(rows, lambda row: row["state"] == "nothing_found"),
        "closest": share(rows, lambda row: row["state"] == "closest"),
        "answered": share(rows, lambda row: row["state"] == "answered"),
        "in answer": share(rows, lambda row: row["in_answer"]),
    }


def reliability(rows: Sequence[Json]) -> tuple[list[tuple[int, float, float]], float]:
    """([number of questions, mean confidence, p(found)] of each fifth of the confidences; the
    expected calibration error (Naeini et al., AAAI 2015)).
    """
    table, error = [], 0.0
    for number in range(BINS):
        inside = [row for row in rows if min(BINS - 1, int(row["confidence"] * BINS)) == number]
        if inside:
            sure = sum(row["confidence"] for row in inside) / len(inside)
            found = share(inside, lambda row: (row["rank"] or 99) <= FOUND_IN)
            table.append((len(inside), sure, found))
            error += len(inside) / len(rows) * abs(sure - found)
    return table, error


def summarize(rows: Sequence[Json]) -> dict[str, Any]:
    """All figures of some results."""
    answerable = [row for row in rows if row["answerable"]]
    unknown = [row for row in rows if not row["answerable"]]
    groups = {"all": answerable}
    groups["Markdown"] = [row for row in answerable if row["corpus"] != "pdf"]
    for key in ("lang", "corpus", "type"):
        for value in sorted({row[key] for row in answerable}):
            groups[f"{key} {value}"] = [row for row in answerable if row[key] == value]
    table, error = reliability(rows)
    return {
        "groups": {name: figures(group) for name, group in groups.items() if group},
        "unanswerable": len(unknown),
        "unanswerable not answered": share(unknown, lambda row: row["state"] != "answered"),
        "unanswerable nothing": share(unknown, lambda row: row["state"] == "nothing_found"),
        "answered by mistake": [row["id"] for row in unknown if row["state"] == "answered"],
        "reliability": table,
        "calibration error": error,
        "cpu_ms": sum(row["cpu_ms"] for row in rows) / max(1, len(rows)),
    }


def show(title: str, found: dict[str, Any]) -> str:
    """The figures for people."""
    names = list(next(iter(found["groups"].values())))
    lines = [title, f"  {'':<20}" + "".join(f"{name:>10}" for name in names)]
    for group, values in found["groups"].items():
        cells = (f"{v:>10}" if name == "n" else f"{v:>10.3f}" for name, v in values.items())
        lines.append(f"  {group:<20}" + "".join(cells))
    lines.append(
        f"  {found['unanswerable']} unanswerable: not answered"
        f" {found['unanswerable not answered']:.3f}, nothing found"
        f" {found['unanswerable nothing']:.3f}"
    )
    lines += [
        f"  confidence {sure:.2f}: p(found) {right:.2f} of {n}"
        for n, sure, right in found["reliability"]
    ]
    lines.append(f"  expected calibration error {found['calibration error']:.3f}")
    lines.append(f"  {found['cpu_ms']:.0f} ms of processor a question")
    return "\n".join(lines)


def main() -> None:
    """Build, ask, print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--material", type=Path, default=MATERIAL)
    parser.add_argument("--strategy", default="fast")
    parser.add_argument(
        "--corpus", action="append", choices=CORPORA, help="repeatable; all, if not given"
    )
    parser.add_argument("--half", choices=("tuned", "untouched"), help="both, if not given")
    parser.add_argument("--searches", action="store_true", help="give the phrasings along")
    parser.add_argument("--keep", type=Path, metavar="HOME", help="a data root to use again")
    parser.add_argument("--results", type=Path, metavar="FILE", help="write the results there")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there")
    given = parser.parse_args()
    folder = given.material / "questions"
    judge = load_judge(folder)
    answerable, unknown = load_questions(folder, judge, given.half)
    corpora = given.corpus or list(CORPORA)
    questions = {
        name: row
        for name, row in {**answerable, **unknown}.items()
        if (row.get("corpus") or row["near"]) in corpora
    }
    recorded = read_lines(folder / "searches.jsonl") if given.searches else []
    with tempfile.TemporaryDirectory() as scratch:
        home = given.keep or Path(scratch)
        os.environ |= {"RAG_HOME": str(home), "RAG_STRATEGY": given.strategy}
        namespaces = {name: build(given.material, name, given.strategy) for name in corpora}
        phrasings = {row["id"]: row["searches"] for row in recorded}
        results = list(ask_all(questions, namespaces, phrasings))
    if given.results:
        lines = [json.dumps(result, ensure_ascii=False) for result in results]
        given.results.write_text("\n".join(lines) + "\n", encoding="utf-8")
    found = summarize(judge_results(judge, questions, results))
    asked = "with searches" if given.searches else "the question alone"
    print(show(f"{given.strategy}, {given.half or 'both halves'}, {asked}", found))
    if given.json:
        given.json.write_text(json.dumps(found, ensure_ascii=False, indent=1) + "\n")


if __name__ == "__main__":
    main()
