"""One file carries a library to a data root that shares nothing, and a file that somebody touched
carries nothing.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import sqlite3
import tarfile
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from rag_platform.answering.engine import answer
from rag_platform.config.settings import load_settings
from rag_platform.errors import ConfigError, InputError, IntegrityError, ReleaseError
from rag_platform.ir import QueryRequest
from rag_platform.releases import release_store as releases
from rag_platform.releases.exchange import export_release, import_release
from rag_platform.releases.proofs.verification import verify_release
from rag_platform.storage.store import files_below, sha256_file
from rag_platform.workspace import DataRoot
from rag_platform_tests.conftest import Shelf

pytestmark = pytest.mark.integration

KEY = "a key of sixteen or more"
HEAD = "export.json"


@pytest.fixture(scope="module")
def exported(read_only_shelf: Shelf, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The file of the shared shelf, signed."""
    path = tmp_path_factory.mktemp("exported") / "library.tar"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAG_EXPORT_KEY", KEY)
        done = export_release(
            "default", path, store=read_only_shelf.store, ledger=read_only_shelf.ledger
        )
    assert done.signed and done.documents == 3 and path.stat().st_mode & 0o077 == 0
    return path


@pytest.fixture
def root(config_folder: Path, tmp_path: Path) -> Iterator[DataRoot]:
    """A data root with nothing."""
    opened = DataRoot.open(load_settings({"home": tmp_path / "elsewhere"}))
    yield opened
    opened.ledger.close()


def rewrite(source: Path, target: Path, change: Callable[[str, bytes], bytes]) -> Path:
    """A copy of an export with other members; empty ones are left out."""
    with tarfile.open(source) as old, tarfile.open(target, "w") as new:
        for member in old:
            held = old.extractfile(member)
            assert held is not None
            data = change(member.name, held.read())
            if data or not member.size:
                member.size = len(data)
                new.addfile(member, io.BytesIO(data))
    return target


def test_an_imported_library_answers_and_is_proved(
    exported: Path, root: DataRoot, read_only_shelf: Shelf, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RAG_EXPORT_KEY", KEY)
    done = import_release(exported, root)
    assert done.signed and done.release_id == releases.current(root.store, "default")
    proved = verify_release(root.store, "default")
    assert proved.checked and not proved.failures
    folders = [
        store.release_dir("default", done.release_id)
        for store in (root.store, read_only_shelf.store)
    ]
    files = [
        {
            name: sha256_file(folder / name)
            for name in files_below(folder)
            if not name.endswith(".lock") and name != "manifest.json"
        }
        for folder in folders
    ]
    assert files[0] == files[1]
    imported = Shelf(root.settings, root.store, root.ledger)
    question = QueryRequest("Which port does the gateway listen on?")
    found = []
    for shelf in (imported, read_only_shelf):
        library = shelf.library()
        found.append([(hit.chunk_id, hit.score) for hit in answer(library, question).hits])
        library.close()
    assert found[0] == found[1] and found[0]
    with pytest.raises(InputError) as refused:
        import_release(exported, root)
    assert refused.value.code == "namespace_exists"


def test_documents_are_added_to_an_imported_library(
    exported: Path, root: DataRoot, tmp_path: Path
) -> None:
    import_release(exported, root)
    more = tmp_path / "more"
    more.mkdir()
    (more / "gate.md").write_text("# Gate\n\nThe gate opens at 05:30.\n", encoding="utf-8")
    shelf = Shelf(root.settings, root.store, root.ledger)
    release_id = shelf.ingest(more)
    assert not verify_release(root.store, "default").failures
    manifest = releases.manifest_of(root.store, "default", release_id)
    assert manifest.counts["documents"] == 4 and not manifest.delta["full_build"]


@pytest.mark.parametrize(
    ("what", "change"),
    [
        ("a quote", lambda name, data: data.replace(b"8080", b"9090")),
        ("a file more", lambda name, data: data),
        ("the signature", lambda name, data: data if name != "export.sig" else b"0" * 64),
        ("no signature", lambda name, data: data if name != "export.sig" else b""),
        ("a file less", lambda name, data: b"" if name.endswith("catalog.sqlite") else data),
        ("another path", lambda name, data: data.replace(b'"raw/', b'"../')),
    ],
)
def test_a_file_that_somebody_touched_is_refused(
    exported: Path,
    root: DataRoot,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    what: str,
    change: Callable[[str, bytes], bytes],
) -> None:
    monkeypatch.setenv("RAG_EXPORT_KEY", KEY)
    touched = rewrite(exported, tmp_path / "touched.tar", change)
    if what == "a file more":
        with tarfile.open(touched, "a") as bundle:
            bundle.add(__file__, "raw/00/more")
    with pytest.raises(IntegrityError) as refused:
        import_release(touched, root)
    assert refused.value.code == "bad_export", what
    assert releases.current(root.store, "default") is None
    assert not root.ledger.namespaces() and not root.store.area("raw").exists()


def forge(source: Path, target: Path, name: str, kind: bytes = tarfile.REGTYPE) -> Path:
    """An export without a signature that lists one more file, of a kind of member."""
    member = tarfile.TarInfo(name)
    member.type, member.linkname = kind, "/etc/hostname"
    empty = hashlib.sha256().hexdigest()

    def add(held: str, data: bytes) -> bytes:
        if held == "export.json":
            head = json.loads(data)
            head["files"][name] = empty
            return json.dumps(head).encode()
        return b"" if held == "export.sig" else data

    rewrite(source, target, add)
    with tarfile.open(target, "a") as bundle:
        bundle.addfile(member)
    return target


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("tokens.json", tarfile.REGTYPE),
        ("configs/x.json", tarfile.REGTYPE),
        ("raw/../tokens.json", tarfile.REGTYPE),
        ("../x", tarfile.REGTYPE),
        ("/tmp/x", tarfile.REGTYPE),
        ("raw/00/link", tarfile.SYMTYPE),
        ("raw/00/link", tarfile.LNKTYPE),
        ("raw/00/pipe", tarfile.FIFOTYPE),
        ("raw/00/sparse", tarfile.GNUTYPE_SPARSE),
    ],
)
def test_a_listed_file_that_is_none_of_a_library_is_refused(
    exported: Path, root: DataRoot, tmp_path: Path, name: str, kind: bytes
) -> None:
    forged = forge(exported, tmp_path / "forged.tar", name, kind)
    with pytest.raises(IntegrityError, match=f"{name} is not what it should hold"):
        import_release(forged, root)
    assert not root.store.tokens_path.exists() and not root.ledger.namespaces()


def test_a_compressed_file_is_refused_before_it_is_unpacked(
    exported: Path, root: DataRoot, tmp_path: Path
) -> None:
    packed = tmp_path / "library.tar.gz"
    packed.write_bytes(gzip.compress(exported.read_bytes(), 1))
    with pytest.raises(IntegrityError, match="no whole tar file"):
        import_release(packed, root)


@pytest.mark.parametrize("name", ["namespace", "release_id"])
def test_a_name_that_leads_elsewhere_is_refused(
    exported: Path, root: DataRoot, tmp_path: Path, name: str
) -> None:
    def rename(held: str, data: bytes) -> bytes:
        if held == "export.json":
            return json.dumps({**json.loads(data), name: "../../x"}).encode()
        return data

    with pytest.raises(IntegrityError, match="is no name"):
        import_release(rewrite(exported, tmp_path / "renamed.tar", rename), root)
    assert not (root.store.home.parent / "x").exists()


def test_a_document_of_another_folder_is_refused(
    exported: Path, root: DataRoot, tmp_path: Path
) -> None:
    with tarfile.open(exported) as bundle:
        bundle.extractall(tmp_path / "open")  # ours
    changed: dict[str, bytes] = {}
    folder = tmp_path / "open" / "release"
    with closing(sqlite3.connect(folder / "catalog.sqlite")) as catalog:
        for table in ("documents", "versions"):
            catalog.execute(f"UPDATE {table} SET doc_id = '../../' || doc_id")
        catalog.commit()
    changed["release/catalog.sqlite"] = (folder / "catalog.sqlite").read_bytes()
    manifest = json.loads((folder / "manifest.json").read_bytes())
    digest = hashlib.sha256(changed["release/catalog.sqlite"]).hexdigest()
    manifest["files"]["catalog.sqlite"] = digest
    changed["release/manifest.json"] = json.dumps(manifest).encode()

    def change(held: str, data: bytes) -> bytes:
        if held == "export.json":
            head = json.loads(data)
            for name, own in changed.items():
                head["files"][name] = hashlib.sha256(own).hexdigest()
            return json.dumps(head).encode()
        return changed.get(held, data)

    with pytest.raises(IntegrityError, match="is no document of 'default'"):
        import_release(rewrite(exported, tmp_path / "forged.tar", change), root)
    assert not root.ledger.namespaces()


@pytest.mark.parametrize(
    "name", [f"raw/00/{'00' * 32}", "versions/other/a-0/000000000000/chunks/x.parquet"]
)
def test_a_listed_file_that_no_document_names_is_not_taken(
    exported: Path, root: DataRoot, tmp_path: Path, name: str
) -> None:
    import_release(forge(exported, tmp_path / "forged.tar", name), root)
    assert not (root.store.home / name).exists()


def test_bytes_under_the_hash_of_others_are_refused(
    exported: Path, root: DataRoot, tmp_path: Path
) -> None:
    with tarfile.open(exported) as bundle:
        raw = next(name for name in bundle.getnames() if name.startswith("raw/"))

    def change(held: str, data: bytes) -> bytes:
        if held == "export.json":
            head = json.loads(data)
            head["files"][raw] = hashlib.sha256(b"other").hexdigest()
            return json.dumps(head).encode()
        return b"other" if held == raw else data

    with pytest.raises(IntegrityError, match="are others"):
        import_release(rewrite(exported, tmp_path / "forged.tar", change), root)
    assert not root.store.area("raw").exists()


@pytest.mark.parametrize(
    "wrong",
    [
        {"deletions": [{"doc_id": "x"}]},
        {"deletions": 1},
        {"deletions": ["x"]},
        {"deletions": [{"doc_id": None, "version_id": None, "created_at": ""}]},
        {"operations": [1]},
    ],
)
def test_records_that_a_forger_left_out_are_refused_in_one_line(
    exported: Path, root: DataRoot, tmp_path: Path, wrong: dict[str, object]
) -> None:
    def change(held: str, data: bytes) -> bytes:
        return json.dumps({**json.loads(data), **wrong}).encode() if held == HEAD else data

    with pytest.raises(IntegrityError, match="its records cannot be read") as refused:
        import_release(rewrite(exported, tmp_path / "forged.tar", change), root)
    assert refused.value.code == "bad_export" and not root.ledger.namespaces()


@pytest.mark.parametrize(
    "wrong",
    [
        {"oddity": 1},
        {"profiles": {}},
        {"strategy": None},
        {"strategy_config": {}},
        {"counts": None},
        {"delta": 1},
    ],
)
def test_a_forged_manifest_is_refused_in_one_line(
    exported: Path, root: DataRoot, tmp_path: Path, wrong: dict[str, object]
) -> None:
    name = "release/manifest.json"
    with tarfile.open(exported) as bundle:
        held = bundle.extractfile(name)
        assert held is not None
        forged = json.dumps({**json.loads(held.read()), **wrong}).encode()

    def change(held: str, data: bytes) -> bytes:
        if held != HEAD:
            return forged if held == name else data
        head = json.loads(data)
        head["files"][name] = hashlib.sha256(forged).hexdigest()
        return json.dumps(head).encode()

    with pytest.raises(IntegrityError, match="its records cannot be read"):
        import_release(rewrite(exported, tmp_path / "forged.tar", change), root)
    assert not root.ledger.namespaces()


def test_a_content_nested_without_end_is_refused(
    exported: Path, root: DataRoot, tmp_path: Path
) -> None:
    nested = rewrite(
        exported,
        tmp_path / "nested.tar",
        lambda held, data: b"[" * 100_000 if held == "export.json" else data,
    )
    with pytest.raises(IntegrityError, match="no export that can be trusted"):
        import_release(nested, root)


@pytest.mark.parametrize("share", [0, 0.5, None])
def test_what_is_no_whole_tar_file_is_refused_in_one_line(
    exported: Path, root: DataRoot, tmp_path: Path, share: float | None
) -> None:
    part = tmp_path / "part.tar"
    whole = exported.read_bytes()
    part.write_bytes(b"# A title" if share is None else whole[: int(len(whole) * share)])
    with pytest.raises(IntegrityError, match="is no export") as refused:
        import_release(part, root)
    assert refused.value.code == "bad_export" and "\n" not in refused.value.message


def test_another_or_a_short_key_is_refused(
    exported: Path, root: DataRoot, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RAG_EXPORT_KEY", "another key, just as long")
    with pytest.raises(IntegrityError, match="was not made with RAG_EXPORT_KEY"):
        import_release(exported, root)
    monkeypatch.setenv("RAG_EXPORT_KEY", "short")
    with pytest.raises(ConfigError, match="has 5 characters"):
        import_release(exported, root)


def test_what_was_deleted_stays_deleted_where_it_is_imported(
    shelf: Shelf, root: DataRoot, tmp_path: Path
) -> None:
    docs = tmp_path / "docs"
    docs.mkdir()
    (docs / "gate.md").write_text("# Gate\n\nThe gate opens at 05:30.\n", encoding="utf-8")
    (docs / "dock.md").write_text("# Dock\n\nThe dock holds trucks.\n", encoding="utf-8")
    shelf.ingest(docs)
    (gate,) = [it for it in shelf.ledger.documents("default") if it.filename == "gate.md"]
    stone = shelf.ledger.delete("default", gate.doc_id, None, "hard", created_at="2026-01-02")
    (dock,) = [it for it in shelf.ledger.documents("default") if it.filename == "dock.md"]
    old = dock.live_version
    (docs / "dock.md").write_text("# Dock\n\nThe dock holds crates.\n", encoding="utf-8")
    shelf.ingest(docs)
    shelf.ledger.delete("default", dock.doc_id, old, "soft")
    (docs / "yard.md").write_text("# Yard\n\nThe yard is empty.\n", encoding="utf-8")
    shelf.ingest(docs)

    path = tmp_path / "library.tar"
    assert export_release("default", path, store=shelf.store, ledger=shelf.ledger).deletions == 2
    assert b"05:30" not in path.read_bytes()
    done = import_release(path, root)
    assert (done.documents, done.deletions) == (2, 2)
    assert [(it.doc_id, it.version_id, it.mode) for it in root.ledger.tombstones("default")] == [
        (gate.doc_id, None, "soft"),
        (dock.doc_id, old, "soft"),
    ]
    assert root.ledger.tombstones("default")[0].created_at == stone.created_at

    there = Shelf(root.settings, root.store, root.ledger)
    (docs / "dock.md").write_text("# Dock\n\nThe dock holds trucks.\n", encoding="utf-8")
    there.ingest(docs, sync=True)
    names = [it.filename for it in root.ledger.documents("default", status="active")]
    assert sorted(names) == ["dock.md", "yard.md"]
    with there.library().lease("default") as lease:
        rows = [
            chunk.chunk_text
            for chunk in lease.release.catalog.chunks(lease.release.catalog.chunk_ids()).values()
        ]
    assert not any("05:30" in text or "trucks" in text for text in rows)
    there.ingest(docs / "gate.md")  # named, it comes back
    names = [it.filename for it in root.ledger.documents("default", status="active")]
    assert "gate.md" in names


def test_an_export_makes_no_folder(shelf: Shelf, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"there is no folder .*/slip'; make it first"):
        export_release("default", tmp_path / "slip/file", store=shelf.store, ledger=shelf.ledger)
    assert not (tmp_path / "slip").exists()


def test_what_was_deleted_is_not_exported(shelf: Shelf, tmp_path: Path) -> None:
    docs = tmp_path / "docs"
    docs.mkdir()
    (docs / "gate.md").write_text("# Gate\n\nThe gate opens at 05:30.\n", encoding="utf-8")
    shelf.ingest(docs)
    (document,) = shelf.ledger.documents("default")
    shelf.ledger.delete("default", document.doc_id, None, "soft")
    with pytest.raises(ReleaseError) as refused:
        export_release("default", tmp_path / "file", store=shelf.store, ledger=shelf.ledger)
    assert refused.value.code == "holds_deleted" and not (tmp_path / "file").exists()
