"""What garbage collection keeps and removes, over real stores."""

from __future__ import annotations

import json
import os
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from rag_platform.config.folders import config_dir
from rag_platform.config.settings import load_settings
from rag_platform.config.strategies import load_strategy
from rag_platform.errors import BusyError, IntegrityError
from rag_platform.indexes.embedding_cache import EmbeddingCache
from rag_platform.ingestion.batches import ingest_versions
from rag_platform.intake.fetching import Downloaded
from rag_platform.ledger.ledger import open_url
from rag_platform.releases import release_store as releases
from rag_platform.releases.deletion import record_deletion
from rag_platform.releases.garbage_collection import CollectionResult, collect, exclude_others
from rag_platform.releases.proofs.deletion_proof import Proof, prove
from rag_platform.releases.proofs.verification import verify_release
from rag_platform.releases.publishing import build_candidate, pin_release, publish_candidate
from rag_platform.releases.stored_artifacts import Belongings, Record, read_record, write_record
from rag_platform.storage.store import write_json
from rag_platform.workspace import DataRoot, Workspace
from rag_platform_tests.partitions import Keys
from rag_platform_tests.release_checks import failed_checks

GATE = (
    "# Gate\n"
    "\n"
    "The north gate opens at 05:30.\n"
    "\n"
    "## Night\n"
    "\n"
    "At night the gate is locked with PORT-9087.\n"
)
DOCK = "# Dock\n\nThe south dock holds 12 trucks.\n"


@pytest.fixture
def bench(shelf: Any, tmp_path: Path) -> Any:
    return Bench(shelf, tmp_path / "docs")


class Bench:
    """A folder of documents, and the three things that happen to it: ingest, deletion,
    collection.
    """

    def __init__(self, shelf: Any, docs: Path) -> None:
        self.shelf, self.store, self.ledger, self.docs = shelf, shelf.store, shelf.ledger, docs
        docs.mkdir()

    def write(self, **texts: str) -> None:
        for name, text in texts.items():
            (self.docs / f"{name}.md").write_text(text, encoding="utf-8")

    def ingest(self, **options: Any) -> str:
        return str(self.shelf.ingest(self.docs, **options))

    def doc_id(self, name: str, namespace: str = "default") -> str:
        return next(d.doc_id for d in self.ledger.documents(namespace) if d.filename == name)

    def versions(self, name: str) -> list[Any]:
        return list(self.ledger.versions("default", self.doc_id(name)))

    def settings(self, versions: int = 0, days: float = 0, keep: int = 2) -> Any:
        settings = load_settings()
        return settings.model_copy(
            update={
                "retention": settings.retention.model_copy(
                    update={"versions": versions, "days": days}
                ),
                "releases": settings.releases.model_copy(update={"keep": keep}),
            }
        )

    def collect(self, scope: Record | None = None, **options: Any) -> CollectionResult:
        rules = {key: options.pop(key) for key in ("versions", "days", "keep") if key in options}
        return collect(
            DataRoot(settings=self.settings(**rules), store=self.store, ledger=self.ledger),
            scope=scope,
            **options,
        )

    def delete(
        self, name: str, version_id: str | None = None, mode: str = "hard", release: bool = True
    ) -> Record:
        record = record_deletion(
            self.ledger.delete("default", self.doc_id(name), version_id, mode), self.shelf.root
        )
        if release:
            self.release(full=mode == "hard")
        return record

    def release(self, full: bool) -> None:
        workspace = self.shelf.workspace()
        manifest, checks = build_candidate("default", workspace, full=full)
        assert all(check.passed for check in checks), checks
        publish_candidate("default", manifest.release_id, workspace)

    def prove(self, name: str, version_id: str | None = None, **options: Any) -> Proof:
        return prove(
            "default",
            self.doc_id(name),
            self.shelf.root,
            version_id,
            **{"partitions": Keys(), **options},
        )

    def files(self) -> list[str]:
        areas = ("raw", "facts", "versions", "media", "cache", "releases")
        paths = (
            path for area in areas for path in (self.store.home / area).rglob("*") if path.is_file()
        )
        return sorted(
            path.relative_to(self.store.home).as_posix()
            for path in paths
            if path.suffix != ".lock" and path.name != ".writer"
        )

    def vectors(self) -> int:
        with EmbeddingCache(self.store.embeddings_path) as cache:
            return sum(1 for _ in cache.entries())

    def proved(self) -> int:
        found = verify_release(self.store, "default", limits=self.shelf.settings.limits)
        assert not found.failures and not failed_checks(self.store, current(self))
        return found.checked


def current(bench: Bench) -> str:
    found = releases.current(bench.store, "default")
    assert found
    return found


def test_what_is_live_loses_nothing(bench: Bench) -> None:
    bench.write(gate=GATE, dock=DOCK)
    bench.ingest()
    before = bench.files()
    assert bench.collect().removed == {} and bench.files() == before and bench.proved() == 3


def test_old_versions_go_with_what_they_alone_needed(bench: Bench) -> None:
    for number in range(4):  # the paragraph about the night stays the same chunk all the time
        bench.write(gate=GATE.replace("05:30", f"05:3{number}"), dock=DOCK)
        bench.ingest()
    first, _, third, fourth = bench.versions("gate.md")
    assert bench.vectors() == 6
    plan = bench.collect(plan=True)
    before = bench.files()
    # a plan touches nothing
    assert bench.collect(plan=True).removed == plan.removed and bench.files() == before
    done = bench.collect()
    assert done.removed == plan.removed
    counts = {name: item["count"] for name, item in done.removed.items()}
    assert counts == {
        "ledger": 2,
        "raw": 2,
        "facts": 2,
        "versions": 2,
        "embeddings": 2,
        "releases": 2,
    }
    assert [v.status for v in bench.versions("gate.md")] == ["purged", "purged", "ready", "ready"]
    assert (
        not bench.store.raw_path(first.file_sha256).exists()
        and not bench.store.version_dir(first).exists()
    )
    assert (
        bench.store.raw_path(third.file_sha256).exists()
        and bench.store.version_dir(fourth).exists()
    )
    assert bench.proved() == 3 and bench.collect().removed == {}

    bench.write(gate=GATE.replace("05:30", "05:30"))  # the bytes of a purged version come back
    bench.ingest()
    assert bench.versions("gate.md")[0].status == "ready" and bench.proved() == 3


def test_retention_keeps_versions(bench: Bench) -> None:
    for number in range(5):
        bench.write(gate=GATE.replace("05:30", f"05:3{number}"))
        bench.ingest()
    bench.collect(versions=4)
    assert [v.status for v in bench.versions("gate.md")] == [
        "purged",
        "ready",
        "ready",
        "ready",
        "ready",
    ]
    bench.collect(versions=0, days=1)  # none is a day old
    assert [v.status for v in bench.versions("gate.md")].count("ready") == 4
    bench.collect()
    # the kept releases hold them
    assert [v.status for v in bench.versions("gate.md")].count("ready") == 2


def test_outputs_of_another_config_go_when_no_kept_release_was_built_with_them(
    bench: Bench, config_folder: Path
) -> None:
    def switch(size: int) -> None:
        path = config_folder / "strategies" / "tiny.yaml"
        lines = [
            f"  options: {{chunk_size: {size}, chunk_overlap: 0}}" if "chunk_size" in line else line
            for line in path.read_text().split("\n")
        ]
        path.write_text("\n".join(lines), encoding="utf-8")
        parts = {
            "settings": bench.shelf.settings,
            "strategy": load_strategy(bench.shelf.settings, "tiny"),
            "store": bench.store,
        }
        ingest_versions(
            [version for _, version in bench.ledger.live("default")],
            Workspace(ledger=bench.ledger, **parts),
        )
        manifest, _ = build_candidate("default", Workspace(ledger=bench.ledger, **parts))
        publish_candidate(
            "default",
            manifest.release_id,
            DataRoot(settings=parts["settings"], store=bench.store, ledger=bench.ledger),
        )

    bench.write(gate=GATE, dock=DOCK)
    bench.ingest()
    first = [name for name in bench.files() if "/chunks/" in name]
    switch(30)
    assert len([name for name in bench.files() if "/chunks/" in name]) == 4
    assert "versions" not in bench.collect().removed  # the release before was built with them
    switch(40)
    removed = bench.collect().removed
    # chunks and views of two documents
    assert removed["versions"]["count"] == 4 and removed["embeddings"]["count"] > 0
    assert not [name for name in first if name in bench.files()] and bench.proved() > 3


def picture(path: Path, colour: str) -> None:
    Image.new("RGB", (16, 16), colour).save(path)


def test_a_hard_deletion_leaves_nothing_and_takes_nothing_of_others(
    bench: Bench, tmp_path: Path
) -> None:
    """Shared with others: the raw bytes, a picture, a paragraph. Its own: another picture and the
    rest.
    """
    picture(bench.docs / "shared.png", "red")
    picture(bench.docs / "own.png", "blue")
    shown = "\n\n![a](shared.png)\n"
    bench.write(
        gate=GATE + shown + "\n![b](own.png)\n",
        dock=DOCK + shown + "\n## Night\n\nAt night the gate is locked with PORT-9087.\n",
    )
    bench.ingest()
    copy = tmp_path / "copy"
    copy.mkdir()
    # equal bytes in another namespace
    (copy / "gate.md").write_bytes((bench.docs / "gate.md").read_bytes())
    bench.shelf.ingest(copy, namespace="other")
    before = bench.prove("gate.md")
    assert (
        before.remaining["catalog"] == 2
        and before.remaining["stage_files"] == 5
        and before.shared["raw"] == 1
    )
    assert before.remaining["media"] == 1  # the blue one; in the copy its file is missing

    record = bench.delete("gate.md")
    assert bench.prove("gate.md").total > 0  # hidden and released without it, but not gone
    done = bench.collect(record)
    proof = bench.prove("gate.md")
    assert (proof.remaining, proof.total) == (dict.fromkeys(proof.remaining, 0), 0)
    assert proof.shared == {"raw": 1, "facts": 1, "media": 1, "embeddings": 1}
    assert (
        done.removed["media"]["count"] == 1
        and done.removed["embeddings"]["count"] == 1
        and "raw" not in done.removed
    )
    assert bench.proved() == 2
    assert verify_release(bench.store, "other", limits=bench.shelf.settings.limits).checked == 2
    again = read_record(bench.store, "default", record.sequence)
    assert again and again.purged_at and bench.collect().removed == {}


def test_datasets_of_the_config_folder_that_name_a_deleted_document_are_told(bench: Bench) -> None:
    bench.write(gate=GATE, dock=DOCK)
    bench.ingest()
    folder = config_dir() / "datasets"
    folder.mkdir()
    for name in ("gate", "dock"):
        expected = [{"text": f"the {name}", "file": f"{name}.md"}]
        case = {"case_id": "1", "query": f"What is the {name}?", "expected_citations": expected}
        (folder / f"about-{name}.jsonl").write_text(json.dumps(case), encoding="utf-8")
    bench.collect(bench.delete("gate.md"))
    (told,) = bench.prove("gate.md").open
    assert told.startswith("dataset about-gate.jsonl of the config folder names it")


def test_a_hard_deletion_leaves_the_bytes_of_a_retired_document(bench: Bench) -> None:
    """Two files of equal bytes; one is gone from its folder and in no release: its version can
    still be pinned, so its bytes stay.
    """
    bench.write(gate=GATE, copy=GATE, dock=DOCK)
    bench.ingest()
    (bench.docs / "copy.md").unlink()
    bench.ingest(sync=True)
    record = bench.delete("gate.md")
    bench.collect(record)
    assert bench.prove("gate.md").total == 0
    (version,) = bench.versions("copy.md")
    assert version.status == "ready" and bench.store.raw_path(version.file_sha256).is_file()
    bench.ledger.pin("default", version.doc_id, version.version_id)
    bench.release(full=False)
    assert bench.proved() == 3
    bench.ledger.unpin("default", version.doc_id)
    for _ in range(2):  # releases without it, until none that is kept holds it
        bench.release(full=False)
    bench.collect()
    assert (
        bench.versions("copy.md")[0].status == "purged"
        and not bench.store.raw_path(version.file_sha256).exists()
    )


def test_a_pinned_release_holds_on_until_forced(bench: Bench) -> None:
    bench.write(gate=GATE, dock=DOCK)
    first = bench.ingest()
    pin_release("default", first, True, bench.shelf.root)
    record = bench.delete("gate.md")
    left = bench.collect(record).left
    assert left == [
        f"release {first} of default is pinned and holds {record.doc_id}: unpin it, or use --force"
    ]
    assert bench.prove("gate.md").remaining["catalog"] == 2
    bench.collect(record, force=True)
    assert bench.prove("gate.md").total == 0 and [
        m.release_id for m in releases.list_releases(bench.store, "default")
    ] == [current(bench)]
    assert {row.release_id: row.state for row in bench.ledger.releases("default")}[
        first
    ] == "dropped"


@pytest.mark.parametrize("lost", ["manifest.json", "versions.json"])
def test_a_damaged_release_keeps_nothing_from_being_removed(bench: Bench, lost: str) -> None:
    bench.write(gate=GATE, dock=DOCK)
    first = bench.ingest()
    bench.write(dock=DOCK.replace("12", "14"))
    bench.ingest()
    path = bench.store.release_dir("default", first) / lost
    path.unlink()  # other releases may share the file
    path.write_bytes(b'{"torn')
    record = bench.delete("gate.md", release=False)
    assert f"release {first} is damaged" in bench.prove("gate.md").open[-1]
    bench.release(full=True)
    left = bench.collect(record).left
    # the publication removed the one whose manifest is damaged
    said = [f"release {first} of default is damaged and goes from this data root"]
    assert left == (said if lost == "versions.json" else [])
    assert not path.parent.exists() and bench.prove("gate.md").total == 0
    assert bench.proved() == 1


def test_a_damaged_published_release_is_named(bench: Bench) -> None:
    bench.write(gate=GATE)
    path = bench.store.release_dir("default", bench.ingest()) / "versions.json"
    path.write_bytes(b'{"torn')
    with pytest.raises(IntegrityError, match=r"versions\.json of release .* cannot be read"):
        bench.collect()
    assert path.parent.exists()


def test_what_is_published_is_never_taken_away(bench: Bench) -> None:
    bench.write(gate=GATE, dock=DOCK)
    bench.ingest()
    record = bench.delete("gate.md", release=False)
    (left,) = bench.collect(record, force=True).left
    assert "is published and holds" in left and bench.prove("gate.md").remaining["catalog"] == 2
    assert read_record(bench.store, "default", record.sequence) == record  # not called purged
    # its file still lies there and is left alone; the release takes files over from the one before
    bench.ingest()
    (left,) = bench.collect().left
    assert "`rag rebuild --full --namespace " in left and bench.prove("gate.md").total > 0
    bench.release(full=True)
    assert not bench.collect().left and bench.prove("gate.md").total == 0


def test_one_version_deleted_hard(bench: Bench) -> None:
    bench.write(gate=GATE, dock=DOCK)
    bench.ingest()
    bench.write(gate=GATE.replace("05:30", "06:45"))
    bench.ingest()
    old, new = (version.version_id for version in bench.versions("gate.md"))
    bench.write(gate=GATE.replace("05:30", "07:15"))
    bench.ingest()
    middle, new = new, bench.versions("gate.md")[-1].version_id
    record = bench.delete("gate.md", old)
    # its two rows, in the release before and in the base that the release after it shares
    assert bench.prove("gate.md", old).remaining["catalog"] == 4
    bench.collect(record)
    assert bench.prove("gate.md", old).total == 0
    assert (
        bench.ledger.version(middle).status == "ready"
        and bench.prove("gate.md", middle).remaining["stage_files"] == 5
    )
    assert bench.ledger.document("default", bench.doc_id("gate.md")).live_version == new
    assert bench.prove("gate.md").remaining["catalog"] == 2 and bench.proved() == 3


def test_a_soft_deletion_goes_when_retention_ends(bench: Bench) -> None:
    bench.write(gate=GATE, dock=DOCK)
    bench.ingest()
    bench.delete("gate.md", mode="soft")
    kept = bench.prove("gate.md").remaining
    assert (kept["raw"], kept["facts"], kept["releases"]) == (1, 1, 1)
    bench.collect(versions=3, days=30)
    assert bench.prove("gate.md").remaining["raw"] == 1
    bench.collect()  # the release before still holds it
    assert bench.prove("gate.md").remaining["raw"] == 1
    for text in ("13 trucks", "14 trucks"):
        bench.write(dock=DOCK.replace("12 trucks", text))
        bench.ingest()
    bench.collect()

    def left() -> set[str]:
        return {name for name, count in bench.prove("gate.md").remaining.items() if count}

    # title and figures stay as history, as for any purged version; rows leave with the next
    # release, vectors with the base that releases share
    assert left() == {"ledger", "catalog", "vectors"}
    bench.write(dock=DOCK.replace("12 trucks", "15 trucks"))
    bench.ingest()
    bench.write(dock=DOCK.replace("12 trucks", "16 trucks"))
    bench.ingest()
    bench.collect()
    assert left() == {"ledger", "vectors"}


def test_a_purged_version_leaves_the_base_with_the_next_release(bench: Bench) -> None:
    bench.write(gate=GATE, dock=DOCK)
    bench.ingest()
    bench.write(gate=GATE.replace("05:30", "06:45"))
    bench.ingest()
    old = bench.versions("gate.md")[0].version_id
    for text in ("13 trucks", "14 trucks"):
        bench.write(dock=DOCK.replace("12 trucks", text))
        bench.ingest()
    bench.collect()
    assert bench.ledger.version(old).status == "purged"
    # its two rows, in the base that both releases which are kept share
    assert bench.prove("gate.md", old).remaining["catalog"] == 4
    for text in ("15 trucks", "16 trucks"):
        bench.write(dock=DOCK.replace("12 trucks", text))
        bench.ingest()
    bench.collect()
    assert bench.prove("gate.md", old).remaining["catalog"] == 0


def test_what_crashes_left_goes(bench: Bench) -> None:
    bench.write(gate=GATE, dock=DOCK)
    bench.ingest()
    (version,) = bench.versions("gate.md")
    home, before = bench.store.home, bench.files()
    lost = [
        home / "raw" / "ab" / ("ab" * 32),
        home / "facts" / "ab" / ("ab" * 32) / "c0ffee-markdown" / "summary.json",
        bench.store.version_dir(version).with_name(".trash-0123") / "views" / "c0ffee.parquet",
        home / "media" / ("cd" * 32) / "meta.json",
        home / "media" / f".trash-{'ef' * 32}" / "original.png",
        bench.store.releases_dir("default") / ".building-x" / "catalog.sqlite",
        home / "spool" / "tmp1",
        bench.store.facts_dir(version, "c0ffee") / ".facts.md.x1",
    ]
    young = [home / "spool" / "tmp2", bench.store.raw_path(version.file_sha256).with_name(".x")]
    for path in (*lost, *young):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("x", encoding="utf-8")
    for path in lost:
        os.utime(path, (time.time() - 7200,) * 2)
    write_json(
        bench.store.download_path("https://example.org/a"),
        Downloaded("https://example.org/a", "", "a", "ab" * 32, 1),
    )
    bench.collect()
    assert bench.files() == sorted([*before, young[1].relative_to(home).as_posix()])
    assert all(path.exists() for path in young) and not any(path.exists() for path in lost)
    assert not (home / "raw" / "ab").exists() and bench.proved() == 3


def test_nobody_writes_or_receives_meanwhile(bench: Bench, elsewhere: Any) -> None:
    bench.write(gate=GATE)
    bench.ingest()

    def be_alone() -> Any:
        return exclude_others(bench.store, ["default"], "gc", wait=0)

    with (
        elsewhere(bench.store.writer("default", "ingest job_1")),
        pytest.raises(BusyError, match="ingest job_1"),
        be_alone(),
    ):
        pass
    with (
        elsewhere(bench.store.receiving()),
        pytest.raises(BusyError, match="being received"),
        be_alone(),
    ):
        pass
    with be_alone():
        seen: list[BaseException] = []

        def receive() -> None:
            try:
                with bench.store.receiving(wait=0):
                    pass
            except BusyError as error:
                seen.append(error)

        thread = threading.Thread(target=receive)
        thread.start()
        thread.join()
        assert "garbage is being collected by gc" in str(seen[0])


def test_a_ledger_that_does_not_belong_to_the_data_costs_nothing(
    bench: Bench, tmp_path: Path
) -> None:
    bench.write(gate=GATE)
    bench.ingest()
    before = bench.files()
    stranger = open_url(f"sqlite:///{tmp_path}/other.sqlite")
    with pytest.raises(IntegrityError, match="versions that the ledger does not know"):
        collect(DataRoot(settings=bench.settings(), store=bench.store, ledger=stranger))
    stranger.close()
    assert bench.files() == before


def test_a_record_comes_back_as_it_was(bench: Bench) -> None:
    record = Record(
        7,
        "default",
        "gate-1",
        ("v1",),
        "hard",
        "2026-01-01T00:00:00Z",
        Belongings(chunk_ids=frozenset({"chk_1", "chk_2"})),
    )
    write_record(bench.store, record)
    assert (
        read_record(bench.store, "default", 7) == record
        and read_record(bench.store, "default", 8) is None
    )
