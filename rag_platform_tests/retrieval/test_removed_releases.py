"""A release that is removed while it is read, or is about to be: every way in which the two can
cross.
"""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from rag_platform.answering.engine import answer
from rag_platform.api import document_views
from rag_platform.api.documents import get_document
from rag_platform.errors import IntegrityError, NotFoundError
from rag_platform.indexes import catalog, dense
from rag_platform.ir import QueryRequest
from rag_platform.releases import release_store as releases
from rag_platform.retrieval.library import Lease, Library
from rag_platform.storage.store import Store, write_text
from rag_platform_tests.conftest import wait_until

OLD = {"guide": [("Limits", "The maximum upload size is 50 MB.")]}
NEW = {"guide": [("Limits", "The maximum upload size is 80 MB.")]}


def in_new_thread(function: Callable[[], Any]) -> Any:
    """What `function` returns or raises in a thread that has opened nothing yet."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(function).result()


def text_of(library: Library, release_id: str | None = None) -> str:
    """What the first hit says."""
    question, patient = "What is the maximum upload size?", 60_000  # on a machine that is busy
    found = answer(
        library, QueryRequest(question, top_k=1, release_id=release_id, timeout_ms=patient)
    )
    assert not found.warnings and found.effective_mode == "hybrid", found.warnings
    return found.hits[0].chunk_text


@pytest.fixture(params=["tantivy", "fts5"])
def published(request: Any, publish: Any, vary: Any) -> Callable[..., str]:
    """Publishes with either word index."""
    name = vary(request.param, f"lexical: {{provider: {request.param}}}\n")
    return lambda documents, release_id: publish(documents, strategy=name, release_id=release_id)


def test_a_leased_release_is_read_to_the_end_by_threads_that_come_later(
    published: Any, library: Library, store: Store
) -> None:
    published(OLD, "r1")
    with library.lease("default") as lease:
        published(NEW, "r2")
        assert "80 MB" in text_of(library)
        releases.drop(store.release_dir("default", "r1"))
        release = lease.release

        def read() -> Any:
            words = release.lexical.search("upload size", 3)
            ids = release.dense.ids()
            release.dense.prepare()
            vector = release.dense.vectors_of(ids)[0]
            return (
                words[0].chunk_id,
                release.dense.search(vector, 1)[0][0].chunk_id,
                release.catalog.rows(ids)["guide-0"].chunk.chunk_text,
            )

        assert {in_new_thread(read) for _ in range(3)} == {
            ("guide-0", "guide-0", OLD["guide"][0][1])
        }
        assert (
            release.dense.search(release.dense.vectors_of(["guide-0"])[0], 1, approximate=True)[1]
            == "exact"
        )
    assert not store.release_dir("default", "r1").exists()


def test_a_retained_release_that_was_removed_is_unknown_at_once(
    published: Any, library: Library, store: Store
) -> None:
    """Open or not, in whatever thread: the collector has said that it is gone."""
    published(OLD, "r1")
    published(NEW, "r2")
    assert "50 MB" in text_of(library, "r1")
    releases.drop(store.release_dir("default", "r1"))
    for ask in (
        lambda: text_of(library, "r1"),
        lambda: in_new_thread(lambda: text_of(library, "r1")),
    ):
        with pytest.raises(NotFoundError, match="no release 'r1'") as told:
            ask()
        assert told.value.code == "unknown_release"
    assert "80 MB" in text_of(library)


MOMENTS: dict[str, tuple[Any, str]] = {
    "manifest": (releases, "read_manifest"),
    "catalog": (releases, "CatalogReader"),
    "catalog's file": (catalog, "LastingFile"),
    "lexical": (releases.lexical, "open_reader"),
    "dense": (dense, "DenseVectors"),
    "opened": (releases, "OpenRelease"),
}


@pytest.mark.parametrize("asked", ["r1", None])
@pytest.mark.parametrize("moment", MOMENTS)
def test_a_release_removed_while_it_is_opened(
    publish: Any,
    library: Library,
    store: Store,
    monkeypatch: pytest.MonkeyPatch,
    moment: str,
    asked: str | None,
) -> None:
    """Asked for by name it is unknown; a question to what is published is answered by what replaced
    it.
    """
    publish(OLD, release_id="r1")
    real = getattr(*MOMENTS[moment])
    calls: list[str] = []

    def crossing(*arguments: Any, **options: Any) -> Any:
        calls.append(moment)
        before = real(*arguments, **options) if moment in ("manifest", "opened") else None
        if len(calls) == 1:
            publish(NEW, release_id="r2")
            releases.drop(store.release_dir("default", "r1"))
        return before if before is not None else real(*arguments, **options)

    monkeypatch.setattr(*MOMENTS[moment], crossing)
    if asked is None:
        assert "80 MB" in text_of(library)
    else:
        with pytest.raises(NotFoundError) as told:
            text_of(library, asked)
        assert told.value.code == "unknown_release"
    assert calls and not library._opening


def test_releases_are_listed_while_others_are_removed(
    publish: Any, store: Store, settings: Any
) -> None:
    for number in range(12):
        publish(OLD, release_id=f"r{number:02}")
    write_text(store.current_path("default"), "r11\n")
    stop, wrong = threading.Event(), list[Exception]()

    def listing() -> None:
        while not stop.is_set():
            try:
                assert releases.list_releases(store, "default")[0].release_id == "r11"
                releases.sizes(store, "default", "r03")
            except Exception as error:
                wrong.append(error)

    reader = threading.Thread(target=listing)
    reader.start()
    for number in range(11):
        releases.drop(store.release_dir("default", f"r{number:02}"))
    stop.set()
    reader.join()
    assert not wrong and [
        manifest.release_id for manifest in releases.list_releases(store, "default")
    ] == ["r11"]


def test_many_readers_of_every_kind_while_releases_come_and_go(
    published: Any, library: Library, store: Store
) -> None:
    """Each answer is wholly of one release; one that was named and is gone is unknown, nothing else
    is ever raised.
    """
    published(OLD, "r00")
    stop, seen, wrong = threading.Event(), set[str](), list[Exception]()

    def ask(named: bool) -> None:
        while not stop.is_set():
            release_id = (
                store.current_path("default").read_text(encoding="utf-8").strip() if named else None
            )
            try:
                seen.add(text_of(library, release_id))
            except NotFoundError as error:
                if not named or error.code != "unknown_release":
                    wrong.append(error)
            except Exception as error:
                wrong.append(error)

    readers = [threading.Thread(target=ask, args=(number % 2 == 1,)) for number in range(4)]
    for reader in readers:
        reader.start()
    wait_until(lambda: seen or wrong)
    for number in range(1, 8):
        published(NEW if number % 2 else OLD, f"r{number:02}")
        releases.drop(store.release_dir("default", f"r{number - 1:02}"))
    wait_until(lambda: len(seen) == 2 or wrong)
    stop.set()
    for reader in readers:
        reader.join()
    assert not wrong, wrong[:3]
    assert seen == {OLD["guide"][0][1], NEW["guide"][0][1]}


def test_a_document_whose_data_is_collected_while_it_is_read(
    shelf: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is read in the version that replaced it; without one, what is gone is named."""
    note = tmp_path / "note.md"
    note.write_text("# Gate\n\nThe gate opens at 05:30.\n", encoding="utf-8")
    shelf.ingest(note)
    library = shelf.library()
    real = document_views.FORMS["md"]
    updates = ["06:00", ""]

    def crossing(
        lease: Lease, store: Store, found: document_views.PublishedDocument, *limits: Any
    ) -> Any:
        if update := updates.pop(0):
            note.write_text(f"# Gate\n\nThe gate opens at {update}.\n", encoding="utf-8")
            shelf.ingest(note)
            shutil.rmtree(store.facts_dir(found.version, lease.release.manifest.profiles["facts"]))
        return real(lease, store, found, *limits)

    monkeypatch.setitem(document_views.FORMS, "md", crossing)
    doc_id = shelf.ledger.documents("default")[0].doc_id
    assert "06:00" in get_document(library, "default", doc_id)["markdown"] and not updates
    monkeypatch.undo()
    shutil.rmtree(shelf.store.area("facts"))
    with pytest.raises(IntegrityError, match=r"facts\.md of default\.") as told:
        get_document(library, "default", doc_id)
    assert told.value.code == "files_missing"
    library.close()
