"""What is said of a filter whose conditions no passage meets."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from rag_platform.answering.engine import answer
from rag_platform.ir import QueryRequest

GATE = "# Security at the gate\n\nThe gate opens at 05:30.\n"
DOCK = "# Dock\n\n## Security\n\nThe dock holds 12 trucks.\n"
TOGETHER = "no passage meets all conditions of the filter together"


@pytest.fixture
def library(shelf: Any, tmp_path: Path) -> Any:
    for name, text, tags in (("gate", GATE, ("Ops",)), ("dock", DOCK, ("harbour", "Ops"))):
        (tmp_path / f"{name}.md").write_text(text, encoding="utf-8")
        shelf.ingest(tmp_path / f"{name}.md", tags=tags)
    with closing(shelf.library()) as opened:
        yield opened


@pytest.mark.parametrize(
    ("filters", "said"),
    [
        (
            {"section_path": "security"},
            "no passage has section_path = security (there is: Security at the gate, Dock /"
            " Security)",
        ),
        ({"tags": "ops"}, "no passage has tags = ops (there is: Ops)"),
        ({"filename": "gates.md"}, "no passage has filename = gates.md (there is: gate.md)"),
        ({"tags": {"$in": ["harbor"]}}, "no passage has tags = harbor (there is: harbour)"),
        ({"content_type": "pdf"}, "no passage has content_type = pdf (there is: text/markdown)"),
        ({"token_count": {"$gt": 9000}}, "no passage has token_count above 9000"),
        ({"filename": "gate.md", "title": "Dock"}, TOGETHER),
        ({"$or": [{"filename": "x"}, {"title": "y"}]}, "no passage meets a condition of $or"),
        (
            {"$and": [{"tags": "Ops"}, {"filename": "dock"}]},
            "no passage has filename = dock (there is: dock.md)",
        ),
    ],
)
def test_unmet_conditions_are_told_with_what_there_is(
    library: Any, filters: dict[str, Any], said: str
) -> None:
    result = answer(library, QueryRequest("gate", filters=filters))
    assert result.hits == () and said in result.warnings


def test_a_filter_that_is_met_is_not_explained(library: Any) -> None:
    result = answer(library, QueryRequest("trucks", filters={"tags": "harbour"}))
    assert {hit.filename for hit in result.hits} == {"dock.md"}
    assert not [it for it in result.warnings if it.startswith("no passage")]


def test_nothing_is_told_of_what_was_deleted(library: Any, delete: Any) -> None:
    delete("gate.md")
    result = answer(library, QueryRequest("gate", filters={"filename": "gate"}))
    assert [it for it in result.warnings if it.startswith("no passage")] == [
        "no passage has filename = gate (there is: dock.md)"
    ]
