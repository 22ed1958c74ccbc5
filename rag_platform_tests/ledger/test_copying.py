"""A ledger in another database: every table, in its order, and nothing over what is there."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import pytest

from rag_platform.errors import BusyError, InputError, IntegrityError
from rag_platform.ir import Document, Version
from rag_platform.ledger.copying import copy_ledger
from rag_platform.ledger.ledger import Ledger, open_url
from rag_platform.ledger.schema import Draft, JobItem, Release, Source
from rag_platform.ledger.tables import tables
from rag_platform_tests.postgres_server import PostgresServer


def fill(ledger: Ledger) -> None:
    """Something in every table; what a deletion, a pin and Chinese look like among it."""
    ledger.bind_strategy("lib", "tiny", "scfg_1")
    ledger.put_source(Source("lib", "docs", "folder", "/x", include=("*.md",)))
    for name in ("zebra", "Ärger", "大门"):
        document = Document("lib", name, "docs", f"docs/{name}.md", f"{name}.md", tags=(name,))
        version = Version(
            f"lib.{name}@1", "lib", name, document.source_uri, document.filename,
            "0" * 64, 1, "text/markdown", "markdown", "tiny",
        )  # fmt: skip
        ledger.receive([(document, version)])
        ledger.complete(version.version_id, title=name, counts={"chunks": 3})
    ledger.pin("lib", "zebra", "lib.zebra@1")
    ledger.put_edition("lib.zebra@1", "e1", [{"op": "disable", "chunk_id": "c1"}])
    ledger.put_draft(Draft("lib", "zebra", "lib.zebra@1", ({"op": "edit_text"},)))
    for _ in range(2):
        ledger.delete("lib", "Ärger", None, "soft")
    ledger.register("host-1", "host")
    ledger.acknowledge(1, "host-1")
    item = JobItem("docs/zebra.md", "zebra", "lib.zebra@1", "new", state="done")
    job = ledger.add_job("ingest", "lib", {"release": True}, [item])
    ledger.update_job(job.job_id, state="done")
    for name in ("r2", "r1"):  # of the same second: their order is the one they came in
        ledger.put_release(Release("lib", name, None, "retired", "tiny", "scfg_1", "t"))


@pytest.fixture
def places(tmp_path: Path, postgres: PostgresServer) -> Iterator[list[Ledger]]:
    """A file that is filled, an empty database and an empty file."""
    with ExitStack() as opened:
        urls = (f"sqlite:///{tmp_path}/a", postgres.new_url(), f"sqlite:///{tmp_path}/b")
        made = [opened.enter_context(closing(open_url(url))) for url in urls]
        fill(made[0])
        yield made


@pytest.mark.integration
def test_a_ledger_is_the_same_after_going_there_and_back(places: list[Ledger]) -> None:
    file, database, back = places
    there, again = copy_ledger(file, database), copy_ledger(database, back)
    assert there == again and {part.table for part in there} == set(tables())
    assert {part.table: part.rows for part in there} == {
        "namespaces": 1,
        "sources": 1,
        "documents": 3,
        "versions": 3,
        "jobs": 1,
        "job_items": 1,
        "releases": 2,
        "deletions": 2,
        "drafts": 1,
        "editions": 1,
        "touched": 3,
        "servers": 1,
        "acknowledgements": 1,
    }
    for copy in (database, back):
        assert [row.release_id for row in copy.releases("lib")] == ["r1", "r2"]
        assert copy.documents("lib") == file.documents("lib")
        assert copy.live("lib") == file.live("lib")
        assert copy.delete("lib", "zebra", None, "soft").sequence == 3  # no number comes twice


@pytest.mark.integration
def test_nothing_is_copied_over_a_ledger_or_from_none(places: list[Ledger]) -> None:
    file, database, empty = places
    with pytest.raises(InputError, match="nothing to copy") as raised:
        copy_ledger(empty, database)
    assert raised.value.code == "ledger_empty"
    database.bind_strategy("other", "tiny", "scfg_1")
    with pytest.raises(InputError, match=r"is not empty \(namespaces\)") as raised:
        copy_ledger(file, database)
    assert raised.value.code == "ledger_not_empty" and database.documents("lib") == []


@pytest.mark.integration
def test_nothing_is_copied_under_a_job_or_with_a_difference(places: list[Ledger]) -> None:
    file, database, _ = places
    job = file.add_job("ingest", "lib", {})
    with pytest.raises(BusyError, match=f"{job.job_id} is queued"):
        copy_ledger(file, database)
    file.update_job(job.job_id, state="done", reason="a\0b")  # PostgreSQL keeps no NUL
    with pytest.raises(IntegrityError, match=r"jobs in .* nothing was copied"):
        copy_ledger(file, database)
    assert not any(database.backend.db().execute(f"SELECT 1 FROM {name}") for name in tables())
