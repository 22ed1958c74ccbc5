"""Expectations: pinned once, asked like cases, and met or not for a named reason."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import pytest

from rag_platform.errors import InputError, NotFoundError
from rag_platform.evaluation.expectations import (
    add_expectation,
    drop_for_document,
    expectation,
    judge,
    read_expectations,
    remove_expectation,
)
from rag_platform.evaluation.results import CaseResult
from rag_platform.storage.store import Store
from rag_platform_tests.conftest import Shelf


def result(**changes: object) -> CaseResult:
    return CaseResult(case_id="exp_1", position=0, key="k", query="q", **changes)  # type: ignore[arg-type]


def test_what_is_pinned_is_kept_in_order_and_once(tmp_path: Path) -> None:
    store = Store(tmp_path)
    port = expectation("which port?", file="ports.md", text="port 8080")
    zebra = expectation("zebra quotas", refuse=True)
    assert add_expectation(store, "notes", port) and add_expectation(store, "notes", zebra)
    assert not add_expectation(
        store, "notes", expectation("which port?", file="ports.md", text="port 8080")
    )
    assert read_expectations(store, "notes").cases == (port, zebra)
    assert read_expectations(store, "other").cases == ()
    assert remove_expectation(store, "notes", port.case_id) == port
    assert read_expectations(store, "notes").cases == (zebra,)
    with pytest.raises(NotFoundError, match="rag expect list"):
        remove_expectation(store, "notes", port.case_id)


def test_no_change_at_the_same_time_is_lost(tmp_path: Path) -> None:
    store = Store(tmp_path)
    pinned = [expectation(f"zebra {number}", refuse=True) for number in range(12)]
    with ThreadPoolExecutor(12) as threads:
        assert all(threads.map(partial(add_expectation, store, "notes"), pinned))
        ids = [case.case_id for case in read_expectations(store, "notes").cases]
        assert len(list(threads.map(partial(remove_expectation, store, "notes"), ids))) == 12
    assert read_expectations(store, "notes").cases == ()


@pytest.mark.parametrize("question", ["", " \n "])
def test_nothing_is_expected_of_no_question(question: str) -> None:
    with pytest.raises(InputError, match="the question is empty") as refused:
        expectation(question, refuse=True)
    assert refused.value.code == "empty_query"


def test_a_damaged_line_is_named(tmp_path: Path) -> None:
    store = Store(tmp_path)
    add_expectation(store, "notes", expectation("zebra quotas", refuse=True))
    (path,) = tmp_path.rglob("notes.jsonl")
    path.write_text(path.read_text(encoding="utf-8") + "{x\n", encoding="utf-8")
    with pytest.raises(InputError, match=r"notes\.jsonl, line 2 is not JSON"):
        read_expectations(store, "notes")


def test_a_document_that_is_not_published_is_not_expected(shelf: Shelf, tmp_path: Path) -> None:
    before = expectation("who is on call?", file="oncall.md")
    assert add_expectation(shelf.store, "default", before)  # nothing is published yet
    (tmp_path / "ports.md").write_text("# Ports\n\nThe port is 8080.\n", encoding="utf-8")
    shelf.ingest(tmp_path / "ports.md")
    for case in (
        expectation("which port?", file="prots.md"),
        expectation("which port?", file="prots.md", text="8080"),
    ):
        with pytest.raises(NotFoundError, match=r"did you mean .*ports\.md\?") as raised:
            add_expectation(shelf.store, "default", case)
        assert raised.value.code == "unknown_document"
    assert read_expectations(shelf.store, "default").cases == (before,)
    assert add_expectation(shelf.store, "default", expectation("which port?", file="ports.md"))
    assert add_expectation(shelf.store, "default", expectation("which port?", text="8443"))


@pytest.mark.parametrize(
    "wanted",
    [{}, {"file": "a.md", "refuse": True}, {"section": "Ports", "file": "a.md"}],
)
def test_an_expectation_says_one_thing(wanted: dict[str, object]) -> None:
    with pytest.raises(InputError) as raised:
        expectation("q", **wanted)  # type: ignore[arg-type]
    assert raised.value.code == "usage"


@pytest.mark.parametrize(
    ("found", "reason"),
    [
        (result(metrics={"retrieval.hit_rate@3": 1.0, "refusal.right": 0.0}), ""),
        (result(metrics={"retrieval.hit_rate@3": 0.0}), "not among the first 3 hits"),
        (result(metrics={"refusal.right": 1.0}), ""),
        (result(metrics={"refusal.right": 0.0}), "answered, where a refusal is expected"),
        (result(stale=({"label": "text 1", "reason": "text_gone"},)), "the text is not there"),
        (result(error="no_release: gone", metrics={}), "no_release: gone"),
    ],
)
def test_a_verdict_gives_its_reason(found: CaseResult, reason: str) -> None:
    verdict = judge(found)
    assert (verdict.met, verdict.reason) == (not reason, reason)


def test_expectations_of_a_deleted_document_go_with_it(tmp_path: Path) -> None:
    store = Store(tmp_path)
    port = expectation("which port?", file="ports.md", text="port 8080")
    other = expectation("who?", file="oncall.md")
    zebra = expectation("zebra quotas", refuse=True)
    for case in (port, other, zebra):
        add_expectation(store, "notes", case)
    assert drop_for_document(store, "notes", "docs/ports.md") == [port]
    assert read_expectations(store, "notes").cases == (other, zebra)
    assert drop_for_document(store, "notes", "docs/supports.md") == []
