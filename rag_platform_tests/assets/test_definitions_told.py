"""What the documents say of Dagster beyond one machine is what the code and its drivers need."""

from __future__ import annotations

import re
from pathlib import Path

import dagster as dg
import pytest

from rag_platform.definitions import defs

DOCS = Path(__file__).parents[2] / "docs"


def test_runs_start_no_process_of_their_own() -> None:
    assert defs.executor is dg.in_process_executor  # a Celery worker cannot start any


@pytest.mark.parametrize("page", ["architecture.md", "cluster.md"])
def test_dagsters_storage_is_told_with_its_driver(page: str) -> None:
    text = (DOCS / page).read_text(encoding="utf-8")
    told = re.findall(r"(?:postgres_url: \"|PostgreSQL: `)(\S+?)://", text)
    assert told and set(told) == {"postgresql+psycopg2"}  # SQLAlchemy's own choice is another
