"""Receiving: which files, which identity, which decision."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from rag_platform.config.settings import Settings, Strategy
from rag_platform.errors import InputError
from rag_platform.intake.receiving import Reception, document_id
from rag_platform.ledger.schema import Source
from rag_platform_tests.receiver import Receiver


@pytest.fixture
def library(settings: Settings, tiny: Strategy, tmp_path: Path) -> Library:
    return Library(settings, tiny, tmp_path / "docs")


class Library(Receiver):
    """A data root and a folder of documents."""

    def __init__(self, settings: Settings, strategy: Strategy, folder: Path) -> None:
        super().__init__(settings, strategy)
        self.folder = folder
        self.folder.mkdir()

    def write(self, name: str, content: str | bytes) -> Path:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return path

    def receive(self, *paths: Path, **options: Any) -> Reception:
        return super().receive(*(paths or (self.folder,)), **options)


def decisions(reception: Reception) -> dict[str, str]:
    return {item.source_uri: item.decision for item in reception.items}


def test_a_folder_is_a_source_and_its_files_are_documents(library: Library) -> None:
    library.write("a.md", "# A\n\ntext")
    library.write("sub/b.md", "# B\n\ntext")
    reception = library.receive(tags=("x",), metadata={"team": "core"})
    assert decisions(reception) == {"docs/a.md": "new", "docs/sub/b.md": "new"}
    [a, _] = library.ledger.documents("lib")
    assert (a.source, a.filename, a.tags, a.metadata) == ("docs", "a.md", ("x",), {"team": "core"})
    version = library.ledger.version(reception.to_process[0])
    assert version.version_id == f"lib.{a.doc_id}@{version.file_sha256[:12]}"
    assert library.store.raw_path(version.file_sha256).read_bytes() == b"# A\n\ntext"


def test_nothing_changed_nothing_to_do(library: Library) -> None:
    library.write("a.md", "# A")
    library.complete(library.receive())
    again = library.receive()
    assert decisions(again) == {"docs/a.md": "skip"}
    assert (again.to_process, again.changed) == ((), False)


def test_changed_bytes_are_a_new_version_and_returning_bytes_go_on_where_they_were(
    library: Library,
) -> None:
    path = library.write("a.md", "# A")
    first = library.receive()
    library.complete(first)
    path.write_text("# B", encoding="utf-8")
    second = library.receive()
    assert decisions(second) == {"docs/a.md": "new_version"}
    library.complete(second)
    path.write_text("# A", encoding="utf-8")
    third = library.receive()
    assert decisions(third) == {"docs/a.md": "continue"}
    assert third.to_process == first.to_process


def test_a_version_that_never_finished_is_continued(library: Library) -> None:
    library.write("a.md", "# A")
    library.receive()
    assert decisions(library.receive()) == {"docs/a.md": "continue"}


def test_policy_new_version_records_a_revision_of_the_same_bytes(library: Library) -> None:
    library.write("a.md", "# A")
    library.complete(library.receive())
    again = library.receive(policy="new_version")
    assert decisions(again) == {"docs/a.md": "new_version"}
    assert again.forced == again.to_process
    assert library.ledger.version(again.to_process[0]).revision == 2


def test_a_config_change_makes_equal_bytes_incomplete(library: Library) -> None:
    library.write("a.md", "# A")
    library.complete(library.receive())
    chunker = library.strategy.chunker.model_copy(
        update={"options": {"chunk_size": 300, "chunk_overlap": 0}}
    )
    library.strategy = library.strategy.model_copy(update={"chunker": chunker})
    assert decisions(library.receive()) == {"docs/a.md": "continue"}


def test_equal_bytes_at_two_places_are_two_documents_over_one_file(library: Library) -> None:
    library.write("a.md", "# Same")
    library.write("b.md", "# Same")
    reception = library.receive()
    versions = [library.ledger.version(v) for v in reception.to_process]
    assert len({v.doc_id for v in versions}) == 2
    assert len({v.file_sha256 for v in versions}) == 1


def test_unreadable_kinds_are_ignored_in_a_folder_and_refused_by_name(library: Library) -> None:
    library.write("a.md", "# A")
    image = library.write("logo.png", b"\x89PNG\r\n\x1a\n" + b"\0" * 20)
    library.write(".hidden.md", "# H")
    in_folder = library.receive()
    assert decisions(in_folder) == {
        "docs/a.md": "new",
        "docs/logo.png": "ignored",
        "docs/.hidden.md": "ignored",
    }
    by_name = library.receive(image)
    [item] = by_name.items
    assert (item.decision, item.code) == ("refused", "unsupported_type")
    assert "image/png" in item.reason


def test_files_that_are_all_refused_leave_no_namespace(library: Library) -> None:
    library.folder.mkdir(exist_ok=True)
    assert decisions(library.receive()) == {} and library.ledger.namespaces() == {}
    image = library.write("logo.png", b"\x89PNG\r\n\x1a\n" + b"\0" * 20)
    assert decisions(library.receive(image)) == {"files/logo.png": "refused"}
    assert library.ledger.namespaces() == {} and library.ledger.sources("lib") == []
    library.write("a.md", "# A")
    library.receive()
    assert list(library.ledger.namespaces()) == ["lib"]


def test_a_file_that_is_not_what_its_name_says_becomes_a_version_that_will_fail(
    library: Library,
) -> None:
    library.write("scan.pdf", b"\x89PNG\r\n\x1a\n" + b"\0" * 20)
    reception = library.receive()
    assert decisions(reception) == {"docs/scan.pdf": "new"}
    assert library.ledger.version(reception.to_process[0]).loader == "pdf"


def test_a_link_to_a_folder_or_out_of_the_source_is_ignored(
    library: Library, tmp_path: Path
) -> None:
    outside = tmp_path / "secret.md"
    outside.write_text("# secret", encoding="utf-8")
    library.write("a.md", "# A")
    library.write("sub/b.md", "# B")
    (library.folder / "link.md").symlink_to(outside)
    (library.folder / "same").symlink_to(library.folder / "sub")
    (library.folder / "sub" / "loop").symlink_to(library.folder)
    (library.folder / "stale.md").symlink_to(tmp_path / "none.md")
    ignored = [item for item in library.receive().items if item.decision == "ignored"]
    assert {item.source_uri: item.reason for item in ignored} == {
        "docs/link.md": "link out of the source's folder",
        "docs/same": "link to a folder inside the source, which is not followed",
        "docs/sub/loop": "link to a folder inside the source, which is not followed",
        "docs/stale.md": "link to what does not exist",
    }


def test_a_missing_path_is_refused_and_the_rest_goes_on(library: Library) -> None:
    path = library.write("a.md", "# A")
    reception = library.receive(path, library.folder / "none.md")
    assert {item.source_uri: item.code for item in reception.items} == {
        "none.md": "missing_path",
        "files/a.md": "",
    }
    assert len(reception.to_process) == 1


def test_include_and_exclude(library: Library) -> None:
    for name in ("a.md", "b.md", "c.txt"):
        library.write(name, "text")
    reception = library.receive(include=("*.md",), exclude=("b*",))
    assert decisions(reception) == {
        "docs/a.md": "new",
        "docs/b.md": "ignored",
        "docs/c.txt": "ignored",
    }


def test_a_new_folder_of_which_nothing_is_taken_becomes_no_source(library: Library) -> None:
    library.complete(library.receive(library.write("a.md", "# A")))
    library.write("b.md", "# B")
    assert decisions(library.receive(exclude=("*.md",)))["docs/b.md"] == "ignored"
    assert [source.name for source in library.ledger.sources("lib")] == ["files"]
    library.receive()
    library.receive(exclude=("*.md",))
    [_, known] = sorted(library.ledger.sources("lib"), key=lambda source: source.name != "files")
    assert (known.name, known.exclude) == ("docs", ("*.md",))
    library.receive(exclude=("",))
    assert [it.exclude for it in library.ledger.sources("lib") if it.name == "docs"] == [()]


def test_a_file_inside_a_known_folder_belongs_to_that_source(library: Library) -> None:
    path = library.write("sub/a.md", "# A")
    library.complete(library.receive())
    assert decisions(library.receive(path)) == {"docs/sub/a.md": "skip"}
    assert decisions(library.receive(path.parent)) == {"docs/sub/a.md": "skip"}


def test_single_files_of_one_name_from_two_folders_are_two_documents(
    library: Library, tmp_path: Path
) -> None:
    one, two = tmp_path / "one" / "readme.md", tmp_path / "two" / "readme.md"
    for path in (one, two):
        path.parent.mkdir()
        path.write_text(f"# {path.parent.name}", encoding="utf-8")
    assert decisions(library.receive(one)) == {"files/readme.md": "new"}
    assert decisions(library.receive(two)) == {"files/two/readme.md": "new"}
    assert decisions(library.receive(one)) == {"files/readme.md": "continue"}


def test_a_second_root_under_a_known_name_is_refused_with_the_remedy(
    library: Library, tmp_path: Path
) -> None:
    library.write("a.md", "# A")
    library.receive()
    other = tmp_path / "elsewhere" / "docs"
    other.mkdir(parents=True)
    with pytest.raises(InputError, match="--source NAME"):
        library.receive(other)
    assert library.receive(other, source="manuals").items == ()


def test_a_folder_that_moved_goes_on_with_its_documents(library: Library) -> None:
    library.write("a.md", "# A")
    library.write("sub/b.md", "# B")
    library.complete(library.receive(on_gone="keep"))
    moved = library.folder.rename(library.folder.parent / "elsewhere")
    (moved / "a.md").write_text("# A, later", encoding="utf-8")
    reception = library.receive(moved, source="docs", moved=True)
    assert decisions(reception) == {"docs/a.md": "new_version", "docs/sub/b.md": "skip"}
    [source] = library.ledger.sources("lib")
    assert (source.name, source.root, source.on_gone) == ("docs", str(moved), "keep")


def move_three_files(library: Library) -> Path:
    """The new place of the folder of three documents, `elsewhere`."""
    for name in ("a.md", "b.md", "sub/c.md"):
        library.write(name, f"# {name}")
    library.complete(library.receive())
    return library.folder.rename(library.folder.parent / "elsewhere")


def test_a_folder_with_the_files_of_one_that_is_gone_is_not_read_as_another(
    library: Library,
) -> None:
    moved = move_three_files(library)
    with pytest.raises(InputError, match=r"--source docs --moved; .* --source elsewhere"):
        library.receive(moved, sync=True)
    assert [it.name for it in library.ledger.sources("lib")] == ["docs"]
    _, *others = library.ledger.documents("lib")
    library.ledger.retire("lib", [it.doc_id for it in others])  # what is retired is not there twice
    (moved / "a.md").rename(moved / "d.md")
    assert "elsewhere/b.md" in decisions(library.receive(moved))


def test_another_folder_whose_files_have_the_same_names_is_a_source_of_its_own(
    library: Library, tmp_path: Path
) -> None:
    library.write("README.md", "# Pumps")
    library.complete(library.receive())
    library.folder.rename(tmp_path / "away")
    far = Source("lib", "far", "folder", f"/{'x' * 300}")  # a root that the system refuses to name
    library.ledger.put_source(far)
    (other := tmp_path / "valves").mkdir()
    (other / "README.md").write_text("# Valves", encoding="utf-8")
    assert decisions(library.receive(other)) == {"valves/README.md": "new"}


def test_a_folder_with_few_files_of_one_that_is_gone_is_a_source_of_its_own(
    library: Library,
) -> None:
    moved = move_three_files(library)
    (moved / "sub" / "c.md").unlink()
    (moved / "b.md").unlink()  # a third of them are no longer most
    assert decisions(library.receive(moved)) == {"elsewhere/a.md": "new"}
    assert set(decisions(library.receive(moved, source="docs", moved=True))) >= {"docs/a.md"}


def test_another_folder_that_shares_one_file_with_one_that_is_gone_is_a_source_of_its_own(
    library: Library,
) -> None:
    other = move_three_files(library)
    for name in ("b.md", "sub/c.md"):
        (other / name).write_text("# Other", encoding="utf-8")
    assert set(decisions(library.receive(other)).values()) == {"new"}


def test_a_folder_of_a_reserved_name_is_named_after_its_parent_too(
    library: Library, tmp_path: Path
) -> None:
    folder = tmp_path / "home" / "files"
    folder.mkdir(parents=True)
    (folder / "a.md").write_text("# A", encoding="utf-8")
    assert decisions(library.receive(folder)) == {"home-files/a.md": "new"}


def test_sync_retires_what_is_gone_below_the_given_folder_only(library: Library) -> None:
    gone, kept = library.write("sub/gone.md", "# G"), library.write("kept.md", "# K")
    library.complete(library.receive())
    gone.unlink()
    kept.unlink()
    reception = library.receive(library.folder / "sub", sync=True, retire_all=True)
    assert [library.ledger.document("lib", doc_id).source_uri for doc_id in reception.retired] == [
        "docs/sub/gone.md"
    ]
    assert library.receive().retired == ()


def test_a_sync_of_a_folder_without_a_file_to_read_retires_only_what_is_said(
    library: Library,
) -> None:
    """As a drive that is not mounted leaves it: with a file of another kind, or none."""
    for name in ("a.md", "b.md"):
        library.write(name, f"# {name}")
    library.complete(library.receive())
    for name in ("a.md", "b.md"):
        (library.folder / name).unlink()
    library.write("mount-here.xyz", b"\x00")
    reception = library.receive(sync=True)
    [refused] = [item for item in reception.items if item.decision == "refused"]
    assert (refused.source_uri, refused.code, reception.retired) == ("docs/", "emptied", ())
    assert "2 documents, e.g. docs/a.md" in refused.reason
    assert len(library.receive(sync=True, retire_all=True).retired) == 2
    assert decisions(library.receive(sync=True)) == {"docs/mount-here.xyz": "ignored"}


def lose_files(library: Library, lost: int, *, of: int) -> None:
    """Receive so many documents, then remove the files of the first ones."""
    for number in range(of):
        library.write(f"{number}.md", f"# Part {number}")
    library.complete(library.receive())
    for number in range(lost):
        (library.folder / f"{number}.md").unlink()


def test_a_sync_of_an_empty_folder_says_so_whatever_came_from_it(library: Library) -> None:
    lose_files(library, 7, of=7)
    library.write(".stignore", "")
    reception = library.receive(sync=True)
    [refused] = [item for item in reception.items if item.decision == "refused"]
    assert refused.code == "emptied" and "7 documents, e.g. docs/0.md" in refused.reason
    assert (reception.retired, len(library.ledger.live("lib"))) == ((), 7)


def test_a_sync_of_another_disk_in_the_same_place_reads_and_retires_nothing_unasked(
    library: Library,
) -> None:
    lose_files(library, 6, of=10)
    library.write("photos.md", "# Holidays")
    reception = library.receive(sync=True)
    [refused] = reception.items
    assert (refused.source_uri, refused.code, reception.retired) == ("docs/", "mostly_gone", ())
    assert "6 of 10 documents from here are gone, e.g. docs/0.md, docs/1.md" in refused.reason
    assert len(library.ledger.documents("lib", status="active")) == 10
    # what was only moved is not gone
    library.write("old/0.md", "# Part 0")
    assert len(library.receive(sync=True).retired) == 6


def test_a_sync_may_retire_most_of_a_source_where_it_is_told_so(library: Library) -> None:
    lose_files(library, 6, of=10)
    library.settings = library.settings.model_copy(update={"max_gone_share": 0.6})
    assert len(library.receive(sync=True).retired) == 6
    # of the four that are left, three are but a handful
    for number in range(6, 9):
        (library.folder / f"{number}.md").unlink()
    library.settings = library.settings.model_copy(update={"max_gone_share": 0.0})
    assert len(library.receive(sync=True).retired) == 3


def test_new_tags_alone_ask_for_a_release(library: Library) -> None:
    library.write("a.md", "# A")
    library.complete(library.receive())
    again = library.receive(tags=("news",))
    assert (decisions(again), again.to_process, again.changed) == ({"docs/a.md": "skip"}, (), True)
    assert library.ledger.documents("lib")[0].tags == ("news",)
    assert len(library.ledger.live("lib")) == 1


@pytest.mark.parametrize("namespace", ["", "Lib", "a b", "-x", "x" * 64, "a/b"])
def test_bad_namespaces_are_refused(library: Library, namespace: str) -> None:
    with pytest.raises(InputError, match="bad library"):
        library.receive(namespace=namespace)


def test_a_large_file_is_refused_with_the_limit(library: Library) -> None:
    library.settings = library.settings.model_copy(
        update={"limits": library.settings.limits.model_copy(update={"max_bytes": 3})}
    )
    library.write("a.md", "# Alpha")
    [item] = library.receive().items
    assert (item.decision, item.code) == ("refused", "too_large")


def test_doc_ids_are_readable_and_of_one_identity() -> None:
    assert document_id("lib", "docs/tutorial/path-params.md").startswith("path-params-tutorial-")
    assert document_id("lib", "docs/a.md") != document_id("other", "docs/a.md")
    assert document_id("lib", "文档/年假 制度.md").startswith("年假-制度-文档-")
    assert document_id("lib", "!!/??.md").startswith("doc-")


# --- what users did stays done ------------------------------------------------------------------


def test_a_deleted_document_stays_away_until_its_file_is_named(library: Library) -> None:
    path = library.write("a.md", "# A")
    library.complete(library.receive(tags=("old",)))
    [document] = library.ledger.documents("lib")
    stone = library.ledger.delete("lib", document.doc_id, None, "soft")
    scanned = library.receive(sync=True)
    [item] = scanned.items
    assert (item.decision, item.code, scanned.to_process, scanned.retired) == (
        "ignored",
        "deleted",
        (),
        (),
    )
    assert item.reason == f"it was deleted on {stone.created_at[:10]}; name the file to add it"
    assert library.ledger.document("lib", document.doc_id).status == "deleted"
    named = library.receive(path)
    assert decisions(named) == {"docs/a.md": "new"}
    library.complete(named)
    again = library.ledger.document("lib", document.doc_id)
    assert (again.status, again.live_version, again.tags) == ("active", named.to_process[0], ())
    assert library.ledger.tombstones("lib") == []
    assert decisions(library.receive(sync=True)) == {"docs/a.md": "skip"}


def test_where_a_deleted_file_was_gone_a_later_file_is_a_new_one(library: Library) -> None:
    path = library.write("a.md", "# A")
    library.complete(library.receive())
    doc_id = library.ledger.documents("lib")[0].doc_id
    library.ledger.delete("lib", doc_id, None, "soft")
    path.unlink()
    gone = library.receive(sync=True)
    assert (gone.items, gone.retired) == ((), ())
    assert (
        library.ledger.document("lib", doc_id).status == "retired"
        and len(library.ledger.tombstones("lib")) == 1
    )
    library.write("a.md", "# A")
    assert decisions(library.receive(sync=True)) == {"docs/a.md": "new"}


def test_the_bytes_of_a_deleted_version_stay_away_and_what_is_live_stays(library: Library) -> None:
    path = library.write("a.md", "# A")
    first = library.receive()
    library.complete(first)
    path.write_text("# B", encoding="utf-8")
    second = library.receive()
    library.complete(second)
    doc_id = library.ledger.documents("lib")[0].doc_id
    library.ledger.delete("lib", doc_id, first.to_process[0], "soft")
    path.write_text("# A", encoding="utf-8")
    [item] = library.receive(sync=True).items
    assert (item.decision, item.code, item.version_id) == (
        "ignored",
        "deleted",
        first.to_process[0],
    )
    assert library.ledger.document("lib", doc_id).live_version == second.to_process[0]
    assert decisions(library.receive(path)) == {"docs/a.md": "continue"}


def test_a_pinned_document_tells_of_the_newer_file_and_keeps_its_version(library: Library) -> None:
    path = library.write("a.md", "# A")
    first = library.receive()
    library.complete(first)
    [document] = library.ledger.documents("lib")
    library.ledger.pin("lib", document.doc_id, first.to_process[0])
    path.write_text("# B", encoding="utf-8")
    newer = library.receive(sync=True)
    [item] = newer.items
    assert (item.decision, item.state, item.code) == ("new_version", "queued", "")
    assert item.reason.startswith(f"pinned to {first.to_process[0]}") and "--unpin" in item.reason
    library.complete(newer)
    [again] = library.receive(sync=True).items
    assert (again.decision, again.reason) == ("skip", item.reason)
    held = library.ledger.document("lib", document.doc_id)
    assert (held.live_version, held.wanted_version) == (first.to_process[0], newer.to_process[0])
    library.ledger.unpin("lib", document.doc_id)
    assert library.ledger.document("lib", document.doc_id).live_version == newer.to_process[0]


def test_a_pinned_document_survives_the_loss_of_its_file(library: Library) -> None:
    path = library.write("a.md", "# A")
    library.complete(library.receive())
    [document] = library.ledger.documents("lib")
    library.ledger.pin("lib", document.doc_id, document.live_version or "")
    path.unlink()
    for _ in range(2):
        reception = library.receive(sync=True)
        [item] = reception.items
        assert (item.decision, reception.retired) == ("kept", ()) and "pinned to" in item.reason
    library.ledger.unpin("lib", document.doc_id)
    assert library.ledger.document("lib", document.doc_id).status == "retired"


def test_a_source_may_keep_what_is_gone(library: Library) -> None:
    path = library.write("a.md", "# A")
    library.write("b.md", "# B")
    library.complete(library.receive(on_gone="keep"))
    path.unlink()
    kept = library.receive(sync=True)
    assert (decisions(kept), kept.retired) == ({"docs/b.md": "skip", "docs/a.md": "kept"}, ())
    assert len(library.ledger.live("lib")) == 2
    retired = library.receive(sync=True, on_gone="retire")
    assert decisions(retired) == {"docs/b.md": "skip", "docs/a.md": "retired"}
    assert [library.ledger.document("lib", doc_id).source_uri for doc_id in retired.retired] == [
        "docs/a.md"
    ]
    with pytest.raises(InputError, match="unknown on_gone 'forget'; known: retire, keep"):
        library.receive(on_gone="forget")


def test_a_source_that_went_back_is_known_to_hold_what_it_holds(library: Library) -> None:
    """A file changes, the change cannot be read, the file goes back; reading the change later must
    not make it live.
    """
    path = library.write("a.md", "# A")
    first = library.receive()
    library.complete(first)
    path.write_text("# B", encoding="utf-8")
    second = library.receive()
    library.ledger.fail(second.to_process[0], "broken_file", "it is broken")
    path.write_text("# A", encoding="utf-8")
    assert decisions(library.receive()) == {"docs/a.md": "skip"}
    library.complete(second)
    assert library.ledger.documents("lib")[0].live_version == first.to_process[0]


def test_what_a_build_came_to_is_known_when_its_bytes_return(library: Library) -> None:
    path = library.write("a.md", "# A")
    [version_id] = library.receive().to_process
    library.ledger.complete(
        version_id, title="t", counts={"profile": "p", "built": {"chunk_count": 1}, "chunks": 1}
    )
    path.write_text("# B", encoding="utf-8")
    library.receive()
    path.write_text("# A", encoding="utf-8")
    library.receive()
    version = library.ledger.version(version_id)
    assert (version.status, version.counts) == (
        "received",
        {"profile": "p", "built": {"chunk_count": 1}, "chunks": 1},
    )


def test_a_moved_file_is_a_new_document_and_keeps_nothing_silently(library: Library) -> None:
    path = library.write("a.md", "# A")
    library.complete(library.receive(tags=("x",)))
    path.rename(path.with_name("b.md"))
    moved = library.receive(sync=True)
    assert decisions(moved) == {"docs/b.md": "new", "docs/a.md": "retired"}
    assert {d.source_uri: (d.status, d.tags) for d in library.ledger.documents("lib")} == {
        "docs/a.md": ("retired", ("x",)),
        "docs/b.md": ("active", ()),
    }


# --- what is named, and what is still on its way ------------------------------------------------


def test_a_single_file_takes_no_source_but_that_of_its_folder(
    library: Library, tmp_path: Path
) -> None:
    inside, alone = library.write("a.md", "# A"), tmp_path / "alone.md"
    alone.write_text("# Alone", encoding="utf-8")
    library.receive()
    assert decisions(library.receive(inside, source="docs")) == {"docs/a.md": "continue"}
    assert decisions(library.receive(alone, source="files")) == {"files/alone.md": "new"}
    for path in (alone, inside):
        with pytest.raises(InputError, match="--source names a folder or a list of URLs"):
            library.receive(path, source="manuals")


def test_a_file_that_was_just_written_is_left_for_the_next_look(library: Library) -> None:
    library.complete(library.receive(library.write("a.md", "# A").parent))
    library.write("a.md", "# A, half a senten")
    arriving = library.receive(sync=True, settle_seconds=3600)
    [item] = arriving.items
    assert (item.decision, item.code, arriving.retired) == ("ignored", "arriving", ())
    assert "may still be written" in item.reason
    assert decisions(library.receive(sync=True, settle_seconds=1e-6)) == {
        "docs/a.md": "new_version"
    }


def test_a_file_name_that_is_no_utf8_is_refused_and_the_folder_goes_on(library: Library) -> None:
    library.write("a.md", "# A")
    bad = library.folder / os.fsdecode("说明".encode("gbk") + b".md")
    bad.write_bytes(b"# B")
    reception = library.receive()
    assert decisions(reception) == {"docs/a.md": "new", r"docs/˵\xc3\xf7.md": "refused"}
    assert [item.code for item in reception.items if item.decision == "refused"] == ["bad_name"]
    link = library.folder.parent / "link.md"
    link.symlink_to(bad)
    for given in (bad, link):
        [named] = library.receive(given).items
        assert named.code == "bad_name"
        named.source_uri.encode()


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads every folder")
def test_documents_of_a_folder_that_cannot_be_read_stay(library: Library) -> None:
    path = library.write("sub/a.md", "# A")
    library.complete(library.receive())
    path.parent.chmod(0)
    try:
        reception = library.receive(sync=True)
    finally:
        path.parent.chmod(0o755)
    assert ([item.code for item in reception.items], reception.retired) == (["unreadable"], ())
