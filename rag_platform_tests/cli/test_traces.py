"""`rag trace` lists, measures and exports what the filters say, for people and for programs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

from rag_platform.cli.main import main
from rag_platform.contract.markdown_views import stats_markdown
from rag_platform_tests.conftest import Desk

pytestmark = pytest.mark.e2e


@pytest.fixture(scope="module")
def desk(shared_desk: Any) -> Desk:
    """A desk with a library that was asked twice."""
    shared_desk.write(guide="# Limits\n\nThe largest upload is 50 MB.\n")
    shared_desk.publish()
    shared_desk.call("query", "What is the largest upload?")
    shared_desk.call("query", "Who opens the gate?")
    return shared_desk


def test_questions_are_listed_page_by_page(desk: Desk) -> None:
    first = desk.call("trace", "list", "--type", "query", "--limit", 1).data
    assert "Who opens the gate?" in first["markdown"]
    assert f"more: --cursor {first['next_cursor']}" in first["markdown"]
    second = desk.call("trace", "list", "--type", "query", "--cursor", first["next_cursor"]).data
    assert second["traces"][0]["question"] == "What is the largest upload?"
    assert first["traces"][0]["door"] == "cli"
    assert second["next_cursor"] is None


def test_filters_are_those_that_the_options_say(desk: Desk) -> None:
    asked = desk.call(
        "trace", "list", "--words", "LARGEST upload", "--since", "1h", "--client", "rag"
    )
    (row,) = asked.data["traces"]
    assert row["question"] == "What is the largest upload?"
    assert desk.call("trace", "list", "--type", "query", "--until", "1h").data["traces"] == []
    refused = desk.call("trace", "list", "--since", "yesterday")
    assert refused.exit_code == 2 and "how long ago it was" in refused.error["message"]


def test_one_trace_is_shown_with_its_envelope(desk: Desk) -> None:
    trace_id = desk.call("trace", "list", "--type", "query").data["traces"][0]["trace_id"]
    shown = desk.call("trace", "show", trace_id[:14]).data
    assert shown["trace"]["trace_id"] == trace_id and "stage.fusion" in shown["markdown"]
    assert desk.call("trace", "show", "trc_" + "0" * 32).error["code"] == "unknown_trace"


def test_a_trace_is_shown_in_words_with_what_was_found(desk: Desk) -> None:
    (row,) = desk.call("trace", "list", "--words", "largest").data["traces"]
    shown = CliRunner().invoke(main, ["trace", "show", row["trace_id"]]).output
    assert "question What is the largest upload?" in shown
    assert 'source="sparse"  1 candidates' in shown and "[{" not in shown
    assert "guide.md, Limits" in shown and "The largest upload is 50 MB." in shown


def test_stats_are_tables(desk: Desk) -> None:
    stats = desk.call("trace", "stats", "--type", "query").data
    assert stats["kinds"][0]["count"] == 2
    assert "| query | stage.fusion | 2 | 0 |" in stats["markdown"]
    assert stats_markdown(stats) == stats["markdown"]


def test_an_export_is_parquet_of_what_was_meant(desk: Desk, tmp_path: Path) -> None:
    made = desk.call("trace", "export", tmp_path / "out", "--type", "query").data
    assert made["files"]["traces.parquet"] == 2
    names = pq.read_table(tmp_path / "out" / "spans.parquet").column("name").to_pylist()
    assert names.count("stage.fusion") == 2
    again = desk.call("trace", "export", tmp_path / "out", "--type", "query")
    assert again.error["code"] == "file_exists"


def test_what_the_program_asks_itself_is_listed_with_all(desk: Desk) -> None:
    """A comparison asks both releases the recent questions again."""
    desk.write(doors="# Doors\n\nThe east door is made of oak.\n")
    desk.publish()
    desk.call("releases", "diff")
    mine = desk.call("trace", "list", "--type", "query").data["traces"]
    every = desk.call("trace", "list", "--type", "query", "--all").data["traces"]
    assert [row["question"] for row in mine] == [
        "Who opens the gate?",
        "What is the largest upload?",
    ]
    assert len(every) > 2 and {row["trace_id"] for row in mine} < {row["trace_id"] for row in every}
    desk.call("expect", "add", "Who opens the gate?", "--refuse")
    desk.call("expect", "run")
    for more, expected in (((), False), (("--all",), True)):
        rows = desk.call("trace", "list", *more).data["traces"]
        assert ("evaluation" in {row["trace_type"] for row in rows}) == expected
