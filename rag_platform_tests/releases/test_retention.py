"""Which versions keep their data: literal rows, literal answers."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from rag_platform.config.settings import Retention
from rag_platform.ir import Document, Version
from rag_platform.ledger.schema import Tombstone
from rag_platform.releases.retention import kept_versions
from rag_platform.releases.version_history import is_condemned

NOW = datetime(2026, 3, 31, 12, tzinfo=UTC)
OLD, RECENT = "2026-01-01T00:00:00Z", "2026-03-30T00:00:00Z"


def document(live: str | None = None, **changes: Any) -> Document:
    known = {"wanted_version": live, "updated_at": OLD, **changes}
    return Document(
        "default", "gate-1", "docs", "docs/gate.md", "gate.md", live_version=live, **known
    )


def version(name: str, received_at: str = OLD, status: str = "ready") -> Version:
    return Version(
        name,
        "default",
        "gate-1",
        "docs/gate.md",
        "gate.md",
        name * 8,
        9,
        "text/markdown",
        "markdown",
        "tiny",
        status=status,
        received_at=received_at,
    )


def stone(
    mode: str, version_id: str | None = None, created_at: str = OLD, lifted_at: str = ""
) -> Tombstone:
    return Tombstone(1, "default", "gate-1", version_id, mode, created_at, lifted_at)


def kept(
    *versions: Version,
    of: Document,
    stones: tuple[Tombstone, ...] = (),
    versions_kept: int = 1,
    **more: Any,
) -> set[str]:
    rules = {"needed": (), **more}
    return kept_versions(
        [of],
        versions,
        stones,
        retention=Retention(versions=versions_kept, days=10),
        now=NOW,
        **rules,
    )


def test_the_newest_complete_versions_and_recent_ones_stay() -> None:
    rows = (
        version("a"),
        version("b", RECENT, "failed"),
        version("c"),
        version("d", status="failed"),
        version("e"),
    )
    assert kept(*rows, of=document("e")) == {"b", "e"}
    assert kept(*rows, of=document("e"), versions_kept=2) == {"b", "c", "e"}
    assert kept(*rows, of=document("e"), versions_kept=0) == {"b", "e"}


def test_what_something_points_at_stays() -> None:
    rows = (version("a"), version("b"), version("c"), version("d"), version("e"))
    assert kept(*rows, of=document("b", pinned=True, wanted_version="e"), versions_kept=0) == {
        "b",
        "e",
    }
    assert kept(*rows, of=document("e"), needed={"a", "other", "c"}) == {"a", "c", "e"}


def test_purged_versions_have_nothing_to_keep() -> None:
    assert kept(version("a", RECENT, "purged"), version("b"), of=document("b"), needed={"a"}) == {
        "b"
    }


@pytest.mark.parametrize(("since", "left"), [(RECENT, {"b"}), (OLD, set())])
def test_what_left_the_library_stays_until_retention_ends(since: str, left: set[str]) -> None:
    rows = (version("a"), version("b"))
    assert kept(*rows, of=document(None, status="retired", updated_at=since)) == left
    assert (
        kept(
            *rows,
            of=document(None, status="deleted", updated_at=since),
            stones=(stone("soft", created_at=since),),
        )
        == left
    )
    assert kept(*rows, of=document(None, status="retired", updated_at=OLD), needed={"a"}) == {"a"}


def test_a_version_deleted_softly_leaves_the_others_alone() -> None:
    rows = (version("a"), version("b"), version("c"))
    assert kept(*rows, of=document("c"), versions_kept=3, stones=(stone("soft", "b"),)) == {
        "a",
        "c",
    }


def test_what_is_deleted_hard_keeps_nothing() -> None:
    rows = (version("a", RECENT), version("b", RECENT))
    gone = document(None, status="deleted", updated_at=RECENT)
    assert (
        kept(*rows, of=gone, stones=(stone("hard", created_at=RECENT),), needed={"a", "b"}) == set()
    )
    assert kept(*rows, of=document("b"), stones=(stone("hard", "a", RECENT),), needed={"a"}) == {
        "b"
    }


def test_adding_it_again_saves_the_version_that_came_and_no_older_one() -> None:
    rows = (
        version("a", "2026-03-30T00:00:00Z"),
        version("b", "2026-03-30T01:00:00Z"),
        version("c", "2026-03-30T03:00:00Z"),
    )
    lifted = stone("hard", created_at="2026-03-30T02:00:00Z", lifted_at="2026-03-30T03:00:00Z")
    assert kept(*rows, of=document("c"), stones=(lifted,), versions_kept=3) == {"c"}
    # the same bytes came back
    assert kept(*rows, of=document("b"), stones=(lifted,), versions_kept=3) == {"b", "c"}
    assert is_condemned(rows[0], [lifted], {"c"}) and not is_condemned(rows[2], [lifted], {"c"})
    assert not is_condemned(rows[0], [stone("soft")])


def test_a_file_that_comes_back_after_a_soft_deletion_keeps_its_history() -> None:
    rows = (version("a"), version("b"))
    assert kept(
        *rows, of=document("b"), versions_kept=2, stones=(stone("soft", lifted_at=RECENT),)
    ) == {"a", "b"}
