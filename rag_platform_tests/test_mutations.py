"""A library forged in one place at a time: `rag verify` finds each, also for the citations of an
answer.
"""

from __future__ import annotations

import importlib.util
import sqlite3
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from rag_platform_tests.conftest import THOROUGH

BENCH = Path(__file__).resolve().parent.parent / "bench"

pytestmark = pytest.mark.integration


@pytest.fixture(scope="module")
def mutations() -> Iterator[Any]:
    """The module bench/mutations.py."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(BENCH))
        spec = importlib.util.spec_from_file_location("mutations", BENCH / "mutations.py")
        assert spec and spec.loader
        module = importlib.util.module_from_spec(spec)
        patch.setitem(sys.modules, spec.name, module)
        spec.loader.exec_module(module)
        yield module


def test_every_mutation_is_found(
    mutations: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("RAG_CONFIG", "RAG_HOME", "TMPDIR", "RAG_STRATEGY", "RAG_NAMESPACE"):
        monkeypatch.setenv(name, "set so that it is put back")
    place = mutations.make_library(tmp_path / "library")
    code, sound = mutations.verified(place)
    assert (code, sound.checked > 8, sound.warnings) == ("", True, ())
    count = 60 if THOROUGH else 24
    result = mutations.run(
        place, count, seed=7, alone=False, every=max(1, len(mutations.all_mutations()) // count)
    )
    assert (result.made, result.missed) == (count, [])
    assert mutations.verified(place)[0] == ""  # all was put back


def test_a_forged_citation_of_an_answer_is_not_proved(desk: Any) -> None:
    desk.write(
        gates=(
            "# Gates\n"
            "\n"
            "The north gate opens at 05:30.\n"
            "\n"
            "## Docks\n"
            "\n"
            "The south dock holds twelve trucks.\n"
        )
    )
    desk.publish()
    citations = desk.call("query", "How many trucks does the south dock hold?").data["citations"]
    assert citations
    chunk_ids = [citation["chunk_id"] for citation in citations]
    assert [desk.call("verify", chunk_id).exit_code for chunk_id in chunk_ids] == [0] * len(
        chunk_ids
    )
    release_id = desk.store.current_path("default").read_text(encoding="utf-8").strip()
    path = desk.store.release_dir("default", release_id) / "catalog.sqlite"
    sound = path.read_bytes()
    shown = {
        "doc_id": ("chunks", "doc_id"),
        "version_id": ("chunks", "version_id"),
        "source_uri": ("documents", "source_uri"),
        "section_path": ("chunks", "section_path"),
        "text": ("chunks", "chunk_text"),
        "line_range": ("chunks", "line_end"),
        "locator": ("chunks", "locator"),
    }
    assert set(shown) <= {*citations[0], "locator", "line_range"}
    for table, column in shown.values():
        with closing(sqlite3.connect(path)) as db, db:
            db.execute(
                f"UPDATE {table} SET {column} = {column} + 7"
                if column == "line_end"
                else f"UPDATE {table} SET {column} = 'forged'"
            )
        for chunk_id in chunk_ids:
            answer = desk.call("verify", chunk_id)
            assert (answer.exit_code, answer.error["code"]) == (1, "unproved_chunks"), column
        path.write_bytes(sound)
    assert desk.call("verify", chunk_ids[0]).exit_code == 0
