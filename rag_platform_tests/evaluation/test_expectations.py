"""Expectations: pinned once, asked like cases, and met or not for a named reason."""

from __future__ import annotations

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
        (result(stale=({"label": "text 1", "reason": "text_gone"},)), "the text is gone"),
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
