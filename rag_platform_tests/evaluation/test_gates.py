"""Gates between two releases: what passes, what is held back, and the cause that is named."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from rag_platform.config.folders import SHIPPED
from rag_platform.config.gates import (
    _RANKED,
    _WHOLE,
    GateConfig,
    find_gate_problems,
    read_gates,
)
from rag_platform.drafts.lifecycle import Drafts
from rag_platform.errors import ConfigError, ProviderError
from rag_platform.evaluation.cases import Dataset, EvalCase, ExpectedText
from rag_platform.evaluation.expectations import expectation
from rag_platform.evaluation.gates import Verdict, _find_stage, judge_candidate, verdict_markdown
from rag_platform.evaluation.gating import open_gates
from rag_platform.evaluation.labels import Labels
from rag_platform.evaluation.results import CaseResult, ResultStore
from rag_platform.evaluation.runs import open_library
from rag_platform.ingestion.batches import ingest_versions
from rag_platform.releases.manifest import gates_id
from rag_platform.releases.publishing import build_candidate
from rag_platform_tests.chat_server import refused
from rag_platform_tests.conftest import TINY, Shelf
from rag_platform_tests.embeddings_server import embedded, embeddings_server

TOPICS = {
    "ports": "The gateway listens on port 8080.",
    "keys": "Signing keys rotate every ninety days.",
    "backup": "Backups are written at two in the morning.",
    "quota": "A project may hold forty buckets.",
    "alerts": "Alerts are sent to the duty phone.",
    "login": "Sessions end after fifteen idle minutes.",
    "mirror": "The mirror in Oslo is read only.",
    "limits": "Uploads above fifty megabytes are refused.",
}
QUESTIONS = {
    "ports": "which port does the gateway listen on",
    "keys": "how often do signing keys rotate",
    "backup": "when are backups written",
    "quota": "how many buckets may a project hold",
    "alerts": "where are alerts sent",
    "login": "when do idle sessions end",
    "mirror": "which mirror is read only",
    "limits": "which uploads are refused",
}
GOLDEN = Dataset(
    dataset_id="golden",
    version="1",
    cases=tuple(
        EvalCase(
            case_id=name,
            query=question,
            expected_text=(ExpectedText(text=TOPICS[name], file=f"{name}.md"),),
        )
        for name, question in QUESTIONS.items()
    ),
)
GATE = GateConfig(dataset="golden")


@pytest.fixture
def folder(shelf: Shelf, tmp_path: Path) -> Path:
    docs = tmp_path / "docs"
    docs.mkdir()
    for name, text in TOPICS.items():
        (docs / f"{name}.md").write_text(f"# {name}\n\n{text}\n", encoding="utf-8")
    return docs


@pytest.fixture
def results(tmp_path: Path) -> Iterator[ResultStore]:
    store = ResultStore(tmp_path / "results")
    yield store
    store.close()


def judged(
    shelf: Shelf,
    before: str | None,
    after: str,
    results: ResultStore,
    gate: GateConfig | None = GATE,
    expectations: Dataset | None = None,
    asked: Dataset = GOLDEN,
) -> Verdict:
    with open_library(shelf.settings, shelf.store) as library:
        gates = [(gate, asked)] if gate else []
        return judge_candidate(library, "default", after, before, gates, expectations, results)[-1]


def test_the_same_content_passes(shelf: Shelf, folder: Path, results: ResultStore) -> None:
    first = shelf.ingest(folder, sync=True)
    (folder / "new.md").write_text("# New\n\nThe canteen opens at noon.\n", encoding="utf-8")
    second = shelf.ingest(folder, sync=True)
    found = judged(shelf, first, second, results)
    assert found.passed and found.lost == ()
    floors = {"retrieval.hit_rate@10": 0.99, "generation.faithfulness": 0.99}
    gate = GateConfig(dataset="golden", floors=floors, judge="rules")
    found = judged(shelf, None, second, results, gate)
    assert found.passed and verdict_markdown(found) == (
        "golden: passed\n"
        "- retrieval.hit_rate@10 is 1.000 over 8 questions and reaches the floor, 0.99\n"
        "- generation.faithfulness is 1.000 over 8 questions and reaches the floor, 0.99"
    )
    at_twenty = GateConfig(dataset="golden", floors={"retrieval.recall@20": 0.99})
    assert judged(shelf, None, second, results, at_twenty).passed
    without = GateConfig(dataset="golden", floors={"retrieval.coverage": 0.5})
    (said,) = judged(shelf, None, second, results, without).reasons
    assert said.startswith("retrieval.coverage has a floor and was not measured; measured: ")
    assert "retrieval.hit_rate@10" in said


def test_questions_asked_without_the_embedder_tell_nothing(
    shelf: Shelf, folder: Path, results: ResultStore, config_folder: Path
) -> None:
    """Only vectors find `xyzzy`; the other question words find as well, and yet nobody knows what
    the vectors would have put before its passage.
    """
    case = dataclasses.replace(GOLDEN.cases[0], query="xyzzy")
    asked = dataclasses.replace(GOLDEN, cases=(case,))
    gate = GateConfig(dataset="golden", floors={"retrieval.hit_rate@10": 0.9})
    up = [True]
    with embeddings_server(
        lambda body, number: embedded(body) if up else refused(503, "away")
    ) as server:
        options = f"{{model: m, base_url: '{server.url}', api_key_env: '', dim: 256, retries: 0}}"
        remote = TINY.replace("provider: hashing", f"provider: openai\n  options: {options}")
        (config_folder / "strategies" / "remote.yaml").write_text(remote, encoding="utf-8")
        release = shelf.ingest(folder, strategy="remote")
        up.clear()
        for questions in (asked, GOLDEN):
            with pytest.raises(ProviderError, match="while this failed: dense"):
                judged(shelf, None, release, results, gate, asked=questions)
        with pytest.raises(ProviderError, match="of expectations were asked"):
            pinned = dataclasses.replace(GOLDEN, dataset_id="expectations")
            judged(shelf, None, release, results, None, pinned)
        # the model of the published release may be gone for ever: that is only told
        (config_folder / "strategies" / "remote.yaml").write_text(TINY, encoding="utf-8")
        local = shelf.ingest(folder, strategy="remote")
        found = judged(shelf, release, local, results, gate)
        assert found.passed and "published release was asked while" in " ".join(found.notes)
        up.append(True)
        # and what was asked in between is not taken for an answer
        assert judged(shelf, None, release, results, gate, asked=asked).passed


def test_what_was_not_measured_is_told_and_nothing_measured_is_no_pass(
    shelf: Shelf, folder: Path, results: ResultStore
) -> None:
    refused = EvalCase(case_id="price", query="what does a berth cost", should_refuse=True)
    foreign = EvalCase(case_id="tide", query="when is high tide", expected_files=("tides.md",))
    about_nothing = Dataset(dataset_id="harbour", version="1", cases=(refused, foreign))
    release = shelf.ingest(folder, sync=True)
    said = "could not be measured, for the release holds nothing that they expect to find: tide"
    for gate in (GATE, GateConfig(dataset="harbour", floors={"refusal.right": 0.1})):
        found = judged(shelf, release, release, results, gate, asked=about_nothing)
        assert not found.passed and found.reasons == (
            "harbour names nothing to be found in this release; name a dataset about the library in"
            " gates.yaml",
        )
        assert f"- 1 of 2 questions {said}" in verdict_markdown(found)
    only_refusals = Dataset(dataset_id="harbour", version="1", cases=(refused,))
    assert judged(shelf, None, release, results, asked=only_refusals).passed
    partly = Dataset(dataset_id="golden", version="1", cases=(*GOLDEN.cases, foreign))
    found = judged(shelf, None, release, results, asked=partly)
    assert found.passed and verdict_markdown(found) == f"golden: passed\n- 1 of 9 questions {said}"


def test_a_dataset_most_of_which_is_about_nothing_is_no_pass(
    shelf: Shelf, folder: Path, results: ResultStore
) -> None:
    """The one question left of three has the mean 1."""
    nowhere = tuple(
        dataclasses.replace(case, expected_text=(ExpectedText(text="stands nowhere"),))
        for case in GOLDEN.cases[1:3]
    )
    vanished = dataclasses.replace(GOLDEN, cases=(GOLDEN.cases[0], *nowhere))
    release = shelf.ingest(folder, sync=True)
    floors = {"retrieval.hit_rate@10": 0.9}
    gate = GateConfig(dataset="golden", floors=floors)
    found = judged(shelf, release, release, results, gate, asked=vanished)
    assert found.reasons == (
        "only 1 of 3 questions with something to find could be measured; mend what golden expects,"
        " or lower least_measured of the gate",
    )
    assert "- retrieval.hit_rate@10 is 1.000 over 1 question and" in verdict_markdown(found)
    shared = GateConfig(dataset="golden", floors=floors, least_measured=0.3)
    assert judged(shelf, release, release, results, shared, asked=vanished).passed


def test_every_floor_that_is_allowed_is_measured(
    shelf: Shelf, folder: Path, results: ResultStore
) -> None:
    case = dataclasses.replace(
        GOLDEN.cases[0],
        doc_scope={"filename": "ports.md"},
        expected_citations=GOLDEN.cases[0].expected_text,
        expected_answer="port 8080",
    )
    floors = dict.fromkeys((*(f"{name}@7" for name in _RANKED), *_WHOLE), 0.0)
    gate = GateConfig(dataset="golden", floors=floors, judge="rules")
    release = shelf.ingest(folder, sync=True)
    asked = dataclasses.replace(GOLDEN, cases=(case,))
    assert judged(shelf, None, release, results, gate, asked=asked).reasons == ()


def test_documents_that_are_gone_are_the_cause(
    shelf: Shelf, folder: Path, results: ResultStore
) -> None:
    first = shelf.ingest(folder, sync=True)
    for name in ("ports", "keys", "backup", "quota"):
        (folder / f"{name}.md").unlink()
    second = shelf.ingest(folder, sync=True)
    found = judged(shelf, first, second, results)
    assert not found.passed
    assert {item.case_id for item in found.lost} == {"ports", "keys", "backup", "quota"}
    assert {item.cause for item in found.lost} == {"its document is gone"}
    assert found.lost[0].before == "rank 1"
    assert "4 documents gone, first default.backup-docs" in " ".join(found.changes)
    assert "its document is gone" in verdict_markdown(found)


def test_a_document_that_was_replaced_is_named(
    shelf: Shelf, folder: Path, results: ResultStore
) -> None:
    first = shelf.ingest(folder, sync=True)
    (folder / "keys.md").write_text("# keys\n\nqwe rty uio pas dfg hjk lzx.\n", encoding="utf-8")
    second = shelf.ingest(folder, sync=True)
    least = {"retrieval.hit_rate@10": 0.95, "retrieval.hit_rate@3": 0.95}
    floor = GateConfig(dataset="golden", floors=least)
    found = judged(shelf, first, second, results, floor)
    (lost,) = found.lost
    assert lost.case_id == "keys"
    assert re.fullmatch(r"the text of document keys-docs-\w{10} was replaced", lost.cause)
    assert found.reasons == (
        "retrieval.hit_rate@10 is 0.875 over 8 questions, the floor is 0.95",
        "retrieval.hit_rate@3 is 0.875 over 8 questions, the floor is 0.95",
        "the expected text or document is gone of 1 question: keys",
    )
    assert found.means["retrieval.hit_rate@10"] == found.means["retrieval.recall@5"] == 0.875
    named = f"with their traces: `rag eval cases {found.run_id} --failed`"
    assert verdict_markdown(found).endswith(named)


@pytest.mark.parametrize(
    ("name", "cause"),
    [
        ("before_fusion", "its passage is there, but the retrievers find other passages first"),
        ("after_fusion", "its passage is found, but the fusion puts other passages first"),
        ("after_rerank", "its passage is found, but the reranker puts other passages first"),
        ("", "its passage is there, but other passages come first"),
    ],
)
def test_a_passage_is_lost_by_the_first_stage_without_it(name: str, cause: str) -> None:
    held = {
        stage: [{"chunk_id": "c3" if stage == name else "c1"}]
        for stage in ("before_fusion", "after_fusion", "after_rerank")
    }
    artifacts = {**held, "before_fusion": {"dense": held["before_fusion"], "sparse": []}}
    expected = Labels("chunk", chunks={"c1": {"text"}})
    assert _find_stage(expected, CaseResult("q", 0, "k", "?", artifacts=artifacts)) == cause


def test_the_document_that_is_named_held_what_was_expected(
    shelf: Shelf, folder: Path, results: ResultStore
) -> None:
    others = [f"again{number}" for number in range(6)]
    for name in others:
        (folder / f"{name}.md").write_text(f"# {name}\n\n{QUESTIONS['keys']}?\n", "utf-8")
    first = shelf.ingest(folder, sync=True)
    for name in (*others, "keys"):
        (folder / f"{name}.md").write_text("# New\n\nqwe rty uio pas dfg hjk.\n", "utf-8")
    second = shelf.ingest(folder, sync=True)
    (lost,) = judged(shelf, first, second, results).lost
    assert lost.cause.startswith("the text of document keys-docs-")


def test_an_edited_document_makes_labels_stale_and_loses_nothing(
    shelf: Shelf, folder: Path, results: ResultStore
) -> None:
    long = "\n\n".join(f"## Part {n}\n\n{'words of a part ' * 30}{n}" for n in range(6))
    (folder / "keys.md").write_text(f"# keys\n\n{TOPICS['keys']}\n\n{long}\n", encoding="utf-8")
    first = shelf.ingest(folder, sync=True)
    (folder / "keys.md").write_text(
        f"# keys\n\nSigning keys rotate every sixty days.\n\n{long}\n", encoding="utf-8"
    )
    second = shelf.ingest(folder, sync=True)
    found = judged(shelf, first, second, results)
    assert found.passed and found.lost == ()


def test_a_text_that_only_the_config_dropped_is_lost(
    shelf: Shelf, folder: Path, results: ResultStore
) -> None:
    long = "\n\n".join(f"## Part {n}\n\n{'words of a part ' * 30}{n}" for n in range(6))
    (folder / "keys.md").write_text(f"# keys\n\n{TOPICS['keys']}\n\n{long}\n", encoding="utf-8")
    first = shelf.ingest(folder, sync=True)
    strategies = Path(shelf.settings.strategies_dir or "")
    noise = "cleaning: {noise: [{pattern: 'Signing keys.*'}]}\n"
    (strategies / "deaf.yaml").write_text(TINY + noise, encoding="utf-8")
    workspace = shelf.workspace("deaf")
    ingest_versions([version for _, version in shelf.ledger.live("default")], workspace)
    second, _ = build_candidate("default", workspace)
    found = judged(shelf, first, second.release_id, results)
    (lost,) = found.lost
    assert not found.passed and lost.case_id == "keys"
    assert re.fullmatch(
        r"document keys-docs-\w{10} is unchanged, but no passage has the text any more", lost.cause
    )


def test_a_document_that_is_gone_is_lost_beside_one_that_was_edited(
    shelf: Shelf, folder: Path, results: ResultStore
) -> None:
    long = "\n\n".join(f"## Part {n}\n\n{'words of a part ' * 30}{n}" for n in range(6))
    (folder / "keys.md").write_text(f"# keys\n\n{TOPICS['keys']}\n\n{long}\n", encoding="utf-8")
    first = shelf.ingest(folder, sync=True)
    (folder / "keys.md").write_text(f"# keys\n\nKeys rotate yearly.\n\n{long}\n", encoding="utf-8")
    second = shelf.ingest(folder, sync=True)
    (folder / "ports.md").unlink()
    third = shelf.ingest(folder, sync=True)
    texts = [ExpectedText(text=TOPICS[name], file=f"{name}.md") for name in ("keys", "ports")]
    both = EvalCase(case_id="both", query=" and ".join(TOPICS.values()), expected_text=(*texts,))
    asked = Dataset(dataset_id="golden", version="1", cases=(*GOLDEN.cases[2:], both))
    for before in (first, second):
        found = judged(shelf, before, third, results, asked=asked)
        assert not found.passed
        assert [(item.case_id, item.cause) for item in found.lost] == [
            ("both", "its document is gone")
        ]


def test_releases_are_compared_whatever_cutoffs_the_dataset_has(
    shelf: Shelf, folder: Path, results: ResultStore
) -> None:
    first = shelf.ingest(folder, sync=True)
    for name, question in QUESTIONS.items():
        for number in range(12):
            crowd = folder / f"{name}{number}.md"
            crowd.write_text(f"# {question}\n\n{question}: {question}\n", encoding="utf-8")
    second = shelf.ingest(folder, sync=True)
    asked = dataclasses.replace(GOLDEN, k_values=(1, 3))
    found = judged(shelf, first, second, results, asked=asked)
    worse = {reason.partition(" falls")[0] for reason in found.reasons}
    assert worse >= {"retrieval.mrr@10", "retrieval.ndcg@10"}


def test_a_fall_that_may_be_chance_is_told(
    shelf: Shelf, folder: Path, results: ResultStore
) -> None:
    first = shelf.ingest(folder, sync=True)
    for number in range(12):
        text = f"# {QUESTIONS['ports']}\n\n{QUESTIONS['ports']}: {number}\n"
        (folder / f"ports{number}.md").write_text(text, encoding="utf-8")
    found = judged(shelf, first, shelf.ingest(folder, sync=True), results)
    assert found.passed
    assert re.search(
        r"- retrieval\.mrr@10 falls by 0\.\d+ over 8 questions \(95 % -0\.\d+ \.\. \+0\.000\),"
        " which may be chance; more questions would tell",
        verdict_markdown(found),
    )


def test_a_question_that_is_refused_now_is_lost(
    shelf: Shelf, folder: Path, results: ResultStore
) -> None:
    first = shelf.ingest(folder, sync=True)
    strategies = Path(shelf.settings.strategies_dir or "")
    (strategies / "shy.yaml").write_text(
        TINY + "answerer: {min_confidence: 1.0}\n", encoding="utf-8"
    )
    workspace = shelf.workspace("shy")
    second, _ = build_candidate("default", workspace)
    found = judged(shelf, first, second.release_id, results)
    assert not found.passed
    assert {(item.before, item.after, item.cause) for item in found.lost} == {
        ("rank 1", "rank 1, refused", "it is refused now")
    }


def test_expectations_hold_a_release_back(shelf: Shelf, folder: Path, results: ResultStore) -> None:
    first = shelf.ingest(folder, sync=True)
    pinned = Dataset(
        dataset_id="expectations-default",
        version="1",
        cases=(
            expectation("which port does the gateway listen on", file="ports.md"),
            expectation("how often do signing keys rotate", file="keys.md", text="ninety days"),
        ),
        k_values=(3,),
    )
    assert judged(shelf, None, first, results, expectations=pinned).passed
    (folder / "keys.md").write_text("# keys\n\nKeys rotate every sixty days.\n", encoding="utf-8")
    second = shelf.ingest(folder, sync=True)
    found = judged(shelf, first, second, results, expectations=pinned)
    assert found.reasons == ("1 of 2 expectations not met",)
    (lost,) = found.lost
    assert (lost.before, lost.after, lost.cause) == ("met", "not met", "the text is not there")
    assert lost.trace_before and lost.trace_after and found.unmet == ()


def test_an_edit_by_hand_is_named_with_the_way_back(
    shelf: Shelf, folder: Path, results: ResultStore
) -> None:
    first, workspace = shelf.ingest(folder, sync=True), shelf.workspace()
    keys = Drafts("default", workspace).open("keys")
    (chunk,) = [piece.chunk.chunk_id for piece in keys.edited.pieces]
    edit = {"op": "edit_text", "chunk_id": chunk, "text": "Nobody rotates a thing."}
    ingest_versions([keys.version], workspace, drafted={keys.version.version_id: [edit]})
    second = build_candidate("default", workspace)[0].release_id
    undo = f"`rag drafts revert {keys.document.doc_id} --namespace default` undoes it"
    found = judged(shelf, first, second, results)
    assert [lost.case_id for lost in found.lost] == ["keys"]
    assert found.changes == (f"1 document edited by hand, first {keys.document.doc_id}; {undo}",)


def test_an_expectation_that_was_never_met_is_not_lost(
    shelf: Shelf, folder: Path, results: ResultStore
) -> None:
    first = shelf.ingest(folder, sync=True)
    case = expectation("who is on call", file="oncall.md")
    pinned = Dataset(dataset_id="expectations-default", version="1", cases=(case,), k_values=(3,))
    (folder / "keys.md").write_text("# keys\n\nKeys rotate every sixty days.\n", encoding="utf-8")
    second = shelf.ingest(folder, sync=True)
    for before in (None, first):
        found = judged(shelf, before, second, results, expectations=pinned)
        assert not found.passed and found.lost == ()
        said = verdict_markdown(found)
        assert "gone:" not in said and "lost:" not in said
        assert (
            "not met before either:\n"
            f"- {case.case_id}: who is on call (not met -> not met): no such document is there"
        ) in said


def test_gates_are_read_and_checked(home: Path, config_folder: Path) -> None:
    path = config_folder / "gates.yaml"
    assert read_gates() == {}
    shipped = (SHIPPED / "gates.yaml").read_text(encoding="utf-8")
    path.write_text(shipped + "notes:\n  - {dataset: golden, max_seconds: 60}\n", encoding="utf-8")
    assert read_gates() == {"notes": (GateConfig(dataset="golden", max_seconds=60.0),)}
    path.write_text("notes:\n  - {dataset: golden, floor: 1}\n", encoding="utf-8")
    with pytest.raises(ConfigError, match="floor"):
        read_gates()
    path.write_text(
        "notes:\n  - {dataset: golden, floors: {generation.faithfulness: 0.9}}\n", encoding="utf-8"
    )
    with pytest.raises(ConfigError, match=r"generation\.faithfulness needs `judge`"):
        read_gates()
    path.write_text(
        "notes:\n  - dataset: golden\n    floors:\n      retrieval.mrr@10: 70\n", encoding="utf-8"
    )
    with pytest.raises(ConfigError, match=r"gates\.yaml:4: .*write 0\.7 for 70 % \(value: 70\)"):
        read_gates()
    for floor, said in (
        ("retrieval.hitrate@10: 0.5", r"gates\.yaml:4: .*mean 'retrieval\.hit_rate@10'\?"),
        ("retrieval.mrr: 0.5", r"floors\.retrieval\.mrr: no gate measures retrieval.mrr; known: "),
        ("retrieval.mrr@0: 0.5", "with K from 1 to 100"),
        ("retrieval.mrr@10: true", r"gates\.yaml:4: .*valid number \(value: True\)"),
    ):
        path.write_text(f"notes:\n  - dataset: golden\n    floors:\n      {floor}\n", "utf-8")
        with pytest.raises(ConfigError, match=said):
            read_gates()
    path.write_text("notes: golden\n", encoding="utf-8")
    with pytest.raises(ConfigError, match="must be a library with a list of gates"):
        read_gates()


def test_a_gate_asks_the_dataset_of_its_name_wherever_it_runs(
    config_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (config_folder / "datasets").mkdir()
    (config_folder / "datasets" / "asked.yaml").write_text(
        "- {case_id: own, query: which port?, expected_files: [ports.md]}\n", encoding="utf-8"
    )
    (tmp_path / "asked").mkdir()
    monkeypatch.chdir(tmp_path)
    ((_, found),) = open_gates("default", [GateConfig(dataset="asked")])
    assert [case.case_id for case in found.cases] == ["own"]


def test_a_setting_at_its_default_makes_no_other_gate() -> None:
    """Nor does one that a later program adds."""
    plain = gates_id([GateConfig(dataset="golden")])
    assert plain == gates_id([GateConfig(dataset="golden", not_worse=True)])
    assert plain != gates_id([GateConfig(dataset="golden", not_worse=False)])


def test_gates_of_a_library_that_is_not_there_are_told(home: Path, config_folder: Path) -> None:
    text = "notes: [{dataset: golden}]\n\nntoes: [{dataset: golden}]\n"
    (config_folder / "gates.yaml").write_text(text, encoding="utf-8")
    (said,) = find_gate_problems(lambda: ["demo", "notes"])
    assert "gates.yaml:3: there is no library 'ntoes'" in said and "mean 'notes'?" in said
