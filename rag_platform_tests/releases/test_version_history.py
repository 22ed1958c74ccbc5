"""The history of a document and the differences of its versions, over real stores."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rag_platform.config.strategies import load_strategy
from rag_platform.errors import NotFoundError
from rag_platform.ingestion.request import Hooks
from rag_platform.ir import Document, Json
from rag_platform.releases.version_history import difference, history
from rag_platform.workspace import Workspace

GATE = "# Gate\n\nThe gate opens at 05:30.\n\n## Rules\n\nNo trucks.\n"
LATER = GATE.replace("05:30", "06:45") + "\n## Night\n\nClosed.\n"


@pytest.fixture
def docs(tmp_path: Path) -> Path:
    folder = tmp_path / "docs"
    folder.mkdir()
    return folder


@pytest.fixture
def two_versions(shelf: Any, docs: Path) -> Document:
    for text in (GATE, LATER):
        (docs / "gate.md").write_text(text, encoding="utf-8")
        shelf.ingest(docs)
    (document,) = shelf.ledger.documents("default")
    return document  # type: ignore[no-any-return]


def parts(shelf: Any) -> dict[str, Any]:
    return {
        "strategy": load_strategy(shelf.settings, "tiny"),
        "store": shelf.store,
        "ledger": shelf.ledger,
    }


def rows(shelf: Any, document: Document) -> list[Json]:
    return history(
        shelf.ledger.document("default", document.doc_id), store=shelf.store, ledger=shelf.ledger
    )["versions"]  # type: ignore[no-any-return]


def test_every_version_newest_first_with_what_became_of_it(
    shelf: Any, two_versions: Document
) -> None:
    new, old = rows(shelf, two_versions)
    assert (new["live"], new["wanted"], new["chunks"], new["status"]) == (True, True, 3, "ready")
    assert (old["live"], old["wanted"], old["chunks"], old["status"]) == (False, False, 2, "ready")
    assert [len(row["releases"]) for row in (new, old)] == [1, 1] and new["releases"] != old[
        "releases"
    ]
    assert (new["drift"]["kind"], new["drift"]["against"], old["drift"]) == (
        "content",
        old["version_id"],
        None,
    )
    assert (new["size"], new["deleted_at"], new["pinned"]) == (len(LATER), "", False)


def _told(shelf: Any, document: Document) -> str:
    return str(history(document, store=shelf.store, ledger=shelf.ledger)["markdown"])


def test_pins_deletions_and_failures_show(shelf: Any, two_versions: Document) -> None:
    new, old = (row["version_id"] for row in rows(shelf, two_versions))
    shelf.ledger.pin("default", two_versions.doc_id, old)
    shelf.ledger.fail(new, "broken_file", "it is broken")
    data = history(
        shelf.ledger.document("default", two_versions.doc_id),
        store=shelf.store,
        ledger=shelf.ledger,
    )
    assert [(row["pinned"], row["wanted"], row["code"]) for row in data["versions"]] == [
        (False, True, "broken_file"),
        (True, False, ""),
    ]
    assert (
        "what the source holds" in data["markdown"]
        and "[broken_file] it is broken" in data["markdown"]
    )
    shelf.ledger.delete("default", two_versions.doc_id, old, "soft")
    assert [bool(row["deleted_at"]) for row in rows(shelf, two_versions)] == [False, True]
    shelf.ledger.delete("default", two_versions.doc_id, None, "soft")
    data = history(
        shelf.ledger.document("default", two_versions.doc_id),
        store=shelf.store,
        ledger=shelf.ledger,
    )
    assert data["status"] == "deleted" and all(row["deleted_at"] for row in data["versions"])


def test_a_file_that_was_ingested_anew_shows_its_revision(
    shelf: Any, two_versions: Document
) -> None:
    assert "revision" not in _told(shelf, two_versions)
    again = replace(
        shelf.ledger.version(str(two_versions.live_version)),
        version_id=f"{two_versions.live_version}r2",
        revision=2,
    )
    shelf.ledger.receive([(two_versions, again)])
    assert _told(shelf, two_versions).count(", revision 2 |") == 1


def test_the_live_version_is_compared_with_the_one_before(
    shelf: Any, two_versions: Document
) -> None:
    data = difference(two_versions, None, None, **parts(shelf))
    new, old = (row["version_id"] for row in rows(shelf, two_versions))
    assert (data["before"], data["after"]) == (old, new)
    assert [row["section_path"] for row in data["sections"]["added"]] == ["Gate / Night"]
    assert [row["section_path"] for row in data["sections"]["changed"]] == ["Gate"]
    assert (data["sections"]["unchanged"], data["chunks"]["unchanged"]) == (1, 1)
    assert "-The gate opens at 05:30.\n+The gate opens at 06:45." in data["markdown"]
    back = difference(two_versions, new.rpartition("@")[2], old.rpartition("@")[2], **parts(shelf))
    assert [row["section_path"] for row in back["sections"]["removed"]] == ["Gate / Night"]


def test_versions_are_compared_under_a_config_that_built_both(
    shelf: Any, docs: Path, two_versions: Document, config_folder: Path
) -> None:
    before = difference(two_versions, None, None, **parts(shelf))
    strategy = config_folder / "strategies" / "tiny.yaml"
    strategy.write_text(
        strategy.read_text(encoding="utf-8").replace("chunk_size: 400", "chunk_size: 300"),
        encoding="utf-8",
    )
    # nothing was rebuilt: the profiles of the last builds are those of both
    assert difference(two_versions, None, None, **parts(shelf)) == before
    (docs / "gate.md").write_text(LATER + "\nNobody.\n", encoding="utf-8")
    shelf.ingest(docs)
    document = shelf.ledger.document("default", two_versions.doc_id)
    with pytest.raises(
        NotFoundError, match=r"was not built under the config as it is now.*`rag docs live"
    ) as caught:
        difference(document, None, None, **parts(shelf))
    assert caught.value.code == "outputs_gone"


def test_what_was_deleted_or_collected_is_not_shown(shelf: Any, two_versions: Document) -> None:
    old = rows(shelf, two_versions)[1]["version_id"]
    with pytest.raises(NotFoundError, match="has no version 'feed'"):
        difference(two_versions, "feed", None, **parts(shelf))
    shelf.ledger.delete("default", two_versions.doc_id, old, "soft")
    with pytest.raises(NotFoundError, match=f"{old} was deleted on 20"):
        difference(two_versions, None, None, **parts(shelf))


def test_one_version_has_nothing_to_be_compared_with(shelf: Any, docs: Path) -> None:
    (docs / "gate.md").write_text(GATE, encoding="utf-8")
    shelf.ingest(docs)
    (document,) = shelf.ledger.documents("default")
    with pytest.raises(NotFoundError, match="has one version only"):
        difference(document, None, None, **parts(shelf))


def test_a_moved_file_computes_nothing_and_keeps_no_place(shelf: Any, docs: Path) -> None:
    """A renamed file is a new document over known facts and vectors; the old one is retired."""
    from rag_platform.ingestion.batches import ingest_versions
    from rag_platform.intake.receiving import ReceiveOptions, receive

    path = docs / "gate.md"
    path.write_text(LATER, encoding="utf-8")
    shelf.ingest(docs, tags=("old",))
    path.rename(docs / "door.md")
    reused: dict[str, bool] = {}
    given = {"settings": shelf.settings, **parts(shelf)}
    reception = receive([docs], "default", Workspace(**given), ReceiveOptions(sync=True))
    totals = ingest_versions(
        [shelf.ledger.version(item) for item in reception.to_process],
        Workspace(**given),
        hooks=Hooks(
            on_outcome=lambda version, outcome: reused.update({outcome.stage: outcome.reused})
        ),
    )
    assert (
        totals.embeddings_computed,
        totals.embeddings_reused,
        reused["facts"],
        reused["chunks"],
    ) == (0, 3, True, False)
    assert [(d.source_uri, d.status, d.tags) for d in shelf.ledger.documents("default")] == [
        ("docs/door.md", "active", ()),
        ("docs/gate.md", "retired", ("old",)),
    ]
    assert "drift" not in shelf.ledger.version(reception.to_process[0]).counts
