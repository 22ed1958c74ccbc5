"""Metric sets on results made by hand, and what a run keeps of how a case went."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path

import pytest

from rag_platform.answering.citations import make_citation
from rag_platform.evaluation.cases import Dataset, EvalCase, ExpectedText
from rag_platform.evaluation.judges import RulesJudge
from rag_platform.evaluation.labels import Labels, StaleLabel
from rag_platform.evaluation.measuring import AskedCase
from rag_platform.evaluation.metric_sets.shipped import (
    Answers,
    Citations,
    JudgedAnswers,
    Retrieval,
)
from rag_platform.evaluation.results import ResultStore
from rag_platform.evaluation.runs import CitationProof, RunOptions, evaluate, open_library
from rag_platform.ir import Hit, QueryResult
from rag_platform.observability.trace_reader import show
from rag_platform_tests.conftest import Shelf

GATEWAY = "The gateway listens on port 8080 for plain requests."
BACKUP = "Backups of the archive are kept for ninety days in Lisbon."
QUESTION = "Which port does the gateway listen on?"


def hit(chunk_id: str, text: str) -> Hit:
    return Hit(
        rank=1, chunk_id=chunk_id, score=1.0, source="hybrid", doc_id="doc", version_id="ver",
        source_uri="ports.md", filename="ports.md", doc_title="Ports", section_path="Ports",
        chunk_index=0, chunk_text=text,
    )  # fmt: skip


HITS = (hit("c1", GATEWAY), hit("c2", BACKUP))


def asked(answer: str, *, hits: tuple[Hit, ...] = HITS, proved: str = "c1 c2") -> AskedCase:
    result = QueryResult(
        answer, (make_citation(1, HITS[0]), make_citation(2, HITS[1])), hits, 0.9, "hybrid", {},
        None, "rel", "trc", answered=True,
    )  # fmt: skip
    case = EvalCase(
        case_id="one", query=QUESTION,
        expected_citations=(ExpectedText(text="port 8080", file="ports.md"),),
    )  # fmt: skip
    return AskedCase(case, Labels("document"), result, proved=frozenset(proved.split()))


def cited(item: AskedCase) -> dict[str, float]:
    return Citations().compute([item], (1,))["one"]


GOOD = f"{GATEWAY} [1] {BACKUP} [2]"


def test_citations_that_are_proved_and_bear_their_sentences() -> None:
    assert cited(asked(GOOD)) == {
        "citation.precision": 1.0, "citation.provenance": 1.0, "citation.coverage": 1.0,
        "citation.recall": 1.0,
    }  # fmt: skip


def test_a_citation_behind_a_false_sentence_does_not_count() -> None:
    found = cited(asked(f"The gateway listens on port 9999 for plain requests. [1] {BACKUP} [2]"))
    assert found["citation.precision"] == 0.5
    assert found["citation.provenance"] == found["citation.coverage"] == 1.0


def test_a_citation_that_is_not_proved_or_not_returned_does_not_count() -> None:
    found = cited(asked(GOOD, proved="c1"))
    assert found["citation.precision"] == found["citation.provenance"] == 0.5
    assert cited(asked(GOOD, hits=HITS[:1]))["citation.precision"] == 0.5


def test_sentences_without_a_citation_are_not_covered() -> None:
    assert cited(asked(f"{GATEWAY} [1] {BACKUP}"))["citation.coverage"] == 0.5


def test_a_mark_covers_the_sentences_before_it_that_its_passage_contains() -> None:
    item = asked(f"{GATEWAY} {BACKUP} [1]")
    result = dataclasses.replace(
        item.result, citations=(make_citation(1, hit("c1", f"{GATEWAY} {BACKUP}")),)
    )
    assert cited(dataclasses.replace(item, result=result))["citation.coverage"] == 1.0
    other = f"The gateway listens on port 9999. {BACKUP} [1]"
    result = dataclasses.replace(result, answer_markdown=other)
    assert cited(dataclasses.replace(item, result=result))["citation.coverage"] == 0.5


def test_a_refusal_has_no_citations() -> None:
    item = asked(GOOD)
    refused = dataclasses.replace(item.result, answered=False)
    found = cited(dataclasses.replace(item, result=refused))
    assert found == {"citation.recall": 0.0}


def test_an_empty_result_counts_0_a_repeated_hit_once_and_no_label_nothing() -> None:
    labels = Labels("document", grades={"doc": 1, "other": 1}, documents={"doc": "doc"})
    item = dataclasses.replace(asked(GOOD), labels=labels, in_scope=frozenset({"c1"}))
    found = Retrieval().compute([item], (2,))["one"]
    # both hits are of one document: it counts at its first place, and once
    assert found["retrieval.recall@2"] == 0.5 and found["retrieval.mrr@2"] == 1.0
    assert found["retrieval.coverage"] == 0.5
    empty = dataclasses.replace(item, result=dataclasses.replace(item.result, hits=()))
    assert set(Retrieval().compute([empty], (2,))["one"].values()) == {0.0}
    unlabelled = dataclasses.replace(item, labels=Labels("document"), in_scope=None)
    assert Retrieval().compute([unlabelled], (2,))["one"] == {}


def test_a_text_that_is_gone_counts_for_nothing_and_the_others_do() -> None:
    labels = Labels("chunk", stale=[StaleLabel("text 1", "text_gone")])
    item = asked("")
    case = EvalCase(case_id="one", query=QUESTION, expected_text=(ExpectedText(text="port 9090"),))
    refused = dataclasses.replace(
        item, case=case, labels=labels, result=dataclasses.replace(item.result, answered=False)
    )
    assert Answers().compute([refused], (1,))["one"] == {}
    assert JudgedAnswers().compute([refused], (1,), RulesJudge())["one"] == {}
    both = dataclasses.replace(
        case, expected_text=(*case.expected_text, ExpectedText(text="port 8080"))
    )
    held = Labels("chunk", {"text 2": 1}, stale=labels.stale)
    answered = dataclasses.replace(asked(GOOD), case=both, labels=held)
    assert Answers().compute([answered], (1,))["one"] == {
        "refusal.right": 1.0,
        "answer.evidence": 1.0,
    }
    refusal = dataclasses.replace(refused, case=dataclasses.replace(case, should_refuse=True))
    assert Answers().compute([refusal], (1,))["one"] == {"refusal.right": 1.0}


@pytest.fixture
def results(tmp_path: Path) -> Iterator[ResultStore]:
    store = ResultStore(tmp_path)
    yield store
    store.close()


def test_a_run_keeps_what_each_stage_made(read_only_shelf: Shelf, results: ResultStore) -> None:
    case = EvalCase(
        case_id="port", query=QUESTION, tags=("ports",), expected_files=("ports.md",),
        doc_scope={"lang": "en"},
    )  # fmt: skip
    leave = EvalCase(case_id="leave", query="员工有多少天年假？", expected_files=("休假.md",))
    data = Dataset(dataset_id="small", version="1", cases=(case, leave), k_values=(1,))
    with open_library(read_only_shelf.settings, read_only_shelf.store) as library:
        run = evaluate(library, data, RunOptions(namespace="default"), results)
    port, _ = results.cases(run.run_id)
    made = port.artifacts
    assert made["before_fusion"]["sparse"] and made["after_fusion"] and made["context_chunks"]
    assert {item["chunk_id"] for item in made["retrieved"]} <= {
        item["chunk_id"] for item in made["after_fusion"]
    }
    assert made["latency_ms"]["total"] > made["latency_ms"]["stage.generate"] > 0
    assert set(made["citations"]) <= set(made["context_chunks"])
    assert "8080" not in str(made)  # no words of any document
    assert port.metrics["retrieval.coverage"] == 1.0
    assert port.metrics["citation.precision"] == port.metrics["citation.provenance"] == 1.0
    groups = run.figures["groups"]
    assert groups["tag"]["ports"]["retrieval.mrr@1"] == {"value": 1.0, "cases": 1}
    assert set(groups["language"]) == {"en", "zh"}
    assert groups["file_type"]["md"]["retrieval.mrr@1"]["cases"] == 2
    told = show(read_only_shelf.store.logs_dir, port.trace_id)["eval"]
    assert {**told, "metrics": dict((m["name"], m["value"]) for m in told["metrics"])} == {
        "eval_run_id": run.run_id, "case_id": "port", "dataset_id": "small",
        "metric_set_id": "retrieval@4+answers@4+citations@3", "judge_profile_id": "",
        "expected_documents": ["ports.md"], "metrics": port.metrics,
    }  # fmt: skip


def test_a_quote_that_is_not_in_the_bytes_is_not_proved(shelf: Shelf, tmp_path: Path) -> None:
    source = tmp_path / "ports.md"
    source.write_text(f"# Ports\n\n{GATEWAY}\n", encoding="utf-8")
    shelf.ingest(source)
    with open_library(shelf.settings, shelf.store) as library, library.lease("default") as lease:
        (chunk_id,) = lease.release.catalog.chunk_ids()
        row = lease.release.catalog.chunks([chunk_id])[chunk_id]
        quote = make_citation(1, dataclasses.replace(hit(chunk_id, row.chunk_text)))
        assert CitationProof(library, lease).find_proved([quote]) == {chunk_id}
        other = dataclasses.replace(quote, text="The gateway listens on port 9999.")
        assert CitationProof(library, lease).find_proved([other]) == frozenset()
        (raw,) = [path for path in (shelf.store.home / "raw").rglob("*") if path.is_file()]
        raw.chmod(0o644)
        raw.write_bytes(raw.read_bytes().replace(b"8080", b"8081"))
        assert CitationProof(library, lease).find_proved([quote]) == frozenset()


def test_generation_only_answers_from_the_chunks_of_the_case(
    read_only_shelf: Shelf, results: ResultStore
) -> None:
    with open_library(read_only_shelf.settings, read_only_shelf.store) as library:
        with library.lease("default") as lease:
            ids = {
                version.source_uri.rsplit("/", 1)[-1]: chunk.chunk_id
                for version in lease.release.catalog.versions().values()
                for chunk in lease.release.catalog.chunks_of_version(version.version_id)
                if version.source_uri.endswith("休假.md") or "8080" in chunk.chunk_text
            }
        quote = (ExpectedText(text="port 8080"),)
        cases = (
            EvalCase(case_id="own", query=QUESTION, expected_text=quote),
            EvalCase(
                case_id="wrong", query=QUESTION, should_refuse=True,
                context_chunks=(ids["休假.md"],),
            ),
            EvalCase(case_id="none", query=QUESTION, expected_files=("ports.md",)),
            EvalCase(case_id="refuse", query=QUESTION, should_refuse=True),
            EvalCase(case_id="gone", query=QUESTION, expected_text=quote, context_chunks=("x",)),
        )  # fmt: skip
        data = Dataset(dataset_id="given", version="1", cases=cases, k_values=(1,))
        options = RunOptions(namespace="default", mode="generation_only")
        run = evaluate(library, data, options, results)
    found = {item.case_id: item for item in results.cases(run.run_id)}
    assert found["own"].artifacts["context_chunks"] == [ids["ports.md"]]
    assert found["own"].metrics["answer.evidence"] == 1.0
    assert found["own"].metrics["citation.precision"] == 1.0
    assert found["own"].artifacts["before_fusion"] == {"dense": [], "sparse": []}
    assert found["wrong"].metrics["refusal.right"] == 1.0
    assert found["none"].error.startswith("no_context: case 'none' has no chunks")
    assert found["gone"].error.startswith("unknown_chunk: ")
    assert "refuse" not in found and run.cases == 4
