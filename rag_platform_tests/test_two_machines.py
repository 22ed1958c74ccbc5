"""Two data roots that share a ledger and a bucket, one with documents and one empty: what one
publishes the other reads, file for file, and nothing that was deleted.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import httpx
import pytest

from rag_platform.answering.engine import answer
from rag_platform.api.status import status
from rag_platform.config.settings import ReleasePolicy, Settings, load_settings
from rag_platform.config.strategies import load_strategy
from rag_platform.errors import IntegrityError, LedgerError, ProviderError, ReleaseError
from rag_platform.ingestion.batches import ingest_versions
from rag_platform.intake.receiving import ReceiveOptions, receive
from rag_platform.ir import QueryRequest
from rag_platform.ledger.hiding import LedgerView
from rag_platform.ledger.ledger import open_ledger
from rag_platform.ledger.servers import server_id
from rag_platform.releases import release_store as releases
from rag_platform.releases import servers, transfer
from rag_platform.releases.deletion import record_deletion
from rag_platform.releases.garbage_collection import collect
from rag_platform.releases.manifest import read_manifest
from rag_platform.releases.proofs.deletion_proof import prove
from rag_platform.releases.proofs.verification import verify_release
from rag_platform.releases.publishing import (
    build_candidate,
    publish_candidate,
    push_current,
    roll_back,
)
from rag_platform.releases.servers import following
from rag_platform.retrieval.library import Library
from rag_platform.retrieval.namespaces import require_known
from rag_platform.storage.blobs import open_blobs, open_for_writing, raw_key
from rag_platform.storage.store import Store, files_below, sha256_file
from rag_platform.workspace import DataRoot, Workspace
from rag_platform_tests.conftest import PICTURE, Shelf, wait_until
from rag_platform_tests.postgres_server import PostgresServer
from rag_platform_tests.s3_server import S3Server, why_none

pytestmark = pytest.mark.integration

GATE = "# Gate\n\nThe gate opens at 05:30.\n"
TEXTS = {f"berth{n}": f"# Berth {n}\n\nBerth {n} takes ships of {n} metres.\n" for n in range(5)}


@pytest.fixture
def machines(
    config_folder: Path,
    tmp_path: Path,
    bucket: str,
    postgres: PostgresServer,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[tuple[Shelf, Shelf]]:
    """A, which has the documents, and B, which has nothing."""
    monkeypatch.setenv("RAG_LEDGER", postgres.new_url())
    made = []
    for name in ("alpha", "beta"):
        settings = load_settings({"home": tmp_path / name / "home"})
        store = Store.of(settings)
        made.append(Shelf(settings, store, open_ledger(store)))
    yield made[0], made[1]
    for shelf in made:
        shelf.ledger.close()


def write(folder: Path, **texts: str) -> Path:
    """The folder with a Markdown file for each text."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in texts.items():
        (folder / f"{name}.md").write_text(text, encoding="utf-8")
    return folder


def pull(shelf: Shelf) -> transfer.PullResult:
    """What pulling the default namespace took."""
    return transfer.pull("default", shelf.root)[0]


def hashes(shelf: Shelf, release_id: str) -> dict[str, str]:
    """The files of a release, without the empty ones that engines lock."""
    folder = shelf.store.release_dir("default", release_id)
    return {
        name: sha256_file(folder / name)
        for name in files_below(folder)
        if not name.endswith(".lock")
    }


def scores(shelf: Shelf, question: str) -> list[tuple[str, float]]:
    """What answers a question, and how well."""
    library = shelf.library()
    hits = answer(library, QueryRequest(question)).hits
    library.close()
    return [(hit.chunk_id, hit.score) for hit in hits]


def test_the_other_machine_reads_the_same_release(
    machines: tuple[Shelf, Shelf], tmp_path: Path
) -> None:
    here, there = machines
    docs = write(tmp_path / "alpha" / "docs", gate=GATE, **TEXTS)
    first = here.ingest(docs)
    came = pull(there)
    assert (came.release_id, came.linked) == (first, 0) and came.files > 3
    assert hashes(there, first) == hashes(here, first)
    assert scores(there, "When does the gate open?") == scores(here, "When does the gate open?")
    assert pull(there).files == 0

    write(docs, gate=GATE.replace("05:30", "06:45"))
    second = here.ingest(docs)
    came = pull(there)
    assert came.release_id == second == releases.current(there.store, "default")
    assert came.linked  # what did not change is not carried again
    assert hashes(there, second) == hashes(here, second)
    for path in there.store.home.rglob("*"):
        assert not path.is_file() or str(tmp_path / "alpha").encode() not in path.read_bytes()


def test_a_server_reads_what_was_published_meanwhile(
    machines: tuple[Shelf, Shelf], tmp_path: Path
) -> None:
    here, there = machines
    with following(with_poll(there.settings, 0.02)):
        docs = write(tmp_path / "docs", gate=GATE)
        for text in (GATE, GATE.replace("05:30", "06:45")):
            release_id = here.ingest(write(docs, gate=text))
            wait_until(
                lambda release_id=release_id: releases.current(there.store, "default") == release_id
            )
            assert hashes(there, release_id) == hashes(here, release_id)


def with_poll(settings: Settings, seconds: float) -> Settings:
    """Settings of a server that looks so often."""
    blobs = settings.blobs.model_copy(update={"poll_seconds": seconds})
    return settings.model_copy(update={"blobs": blobs})


def test_a_deletion_is_hidden_at_the_next_question(
    machines: tuple[Shelf, Shelf], tmp_path: Path
) -> None:
    here, there = machines
    here.ingest(write(tmp_path / "docs", gate=GATE, dock="# Dock\n\nThe dock holds 12 trucks.\n"))
    pull(there)
    library = there.library()

    def found() -> set[str]:
        return {hit.filename for hit in answer(library, QueryRequest("gate opens dock")).hits}

    assert found() == {"gate.md", "dock.md"}
    doc = next(d for d in here.ledger.documents("default") if d.filename == "gate.md")
    here.ledger.delete("default", doc.doc_id, None, "soft")
    assert found() == {"dock.md"}
    library.close()


def test_the_other_machine_proves_everything_and_builds_on(
    machines: tuple[Shelf, Shelf], tmp_path: Path
) -> None:
    here, there = machines
    docs = write(tmp_path / "docs", gate=GATE, pictured="# Map\n\n![map](map.png)\n")
    (docs / "map.png").write_bytes(PICTURE)
    here.ingest(docs)
    pull(there)
    assert not there.store.area("raw").exists()
    proved = verify_release(there.store, "default")
    assert proved.checked and not proved.failures
    for area in ("raw", "facts", "versions", "media"):
        folders = [shelf.store.area(area) for shelf in machines]
        files = [{name: sha256_file(f / name) for name in files_below(f)} for f in folders]
        assert files[0] == files[1] and files[0], area

    shutil.rmtree(there.store.home)
    shutil.move(docs, tmp_path / "away")
    manifest, _ = build_candidate("default", there.workspace(), full=True)
    assert not manifest.failures and manifest.counts["documents"] == 2
    publish_candidate("default", manifest.release_id, there.root)
    assert pull(here).release_id == manifest.release_id
    assert not verify_release(here.store, "default").failures


def test_another_machine_processes_what_this_one_received(
    machines: tuple[Shelf, Shelf], tmp_path: Path
) -> None:
    here, there = machines
    docs = write(tmp_path / "docs", gate=GATE)
    strategy = load_strategy(here.settings, "tiny")
    parts = [
        Workspace(settings=s.settings, store=s.store, ledger=s.ledger, strategy=strategy)
        for s in machines
    ]
    received = receive([docs], "default", parts[0], ReceiveOptions())
    shutil.rmtree(docs)
    ingest_versions([there.ledger.version(name) for name in received.to_process], parts[1])
    manifest, _ = build_candidate("default", here.workspace())
    assert not manifest.failures and manifest.counts["documents"] == 1


def test_a_forged_bundle_is_refused(machines: tuple[Shelf, Shelf], tmp_path: Path) -> None:
    here, there = machines
    here.ingest(write(tmp_path / "docs", gate=GATE))
    pull(there)
    blobs = open_blobs(here.store)
    (key,) = (key for key in objects(here) if key.startswith("versions/"))
    forged = tmp_path / "forged"
    forged.write_bytes(b"no tar")
    blobs.delete([key])
    blobs.put_new(key, forged)
    reasons = [failure.reason for failure in verify_release(there.store, "default").failures]
    assert any("was damaged or replaced" in reason for reason in reasons), reasons


def test_both_machines_publish_and_go_back(machines: tuple[Shelf, Shelf], tmp_path: Path) -> None:
    here, there = machines
    docs = write(tmp_path / "docs", gate=GATE)
    first = here.ingest(docs)
    second = there.ingest(write(tmp_path / "more", dock="# Dock\n\nThe dock holds 12 trucks.\n"))
    assert read_manifest(there.store.release_dir("default", second)).parent == first
    pull(here)
    assert hashes(here, second) == hashes(there, second)
    roll_back("default", None, here.root)
    shutil.rmtree(there.store.release_dir("default", first))
    assert pull(there).release_id == first == releases.current(there.store, "default")
    states = {row.release_id: row.state for row in here.ledger.releases("default")}
    assert states == {first: "published", second: "retired"}


def test_a_candidate_that_another_machine_overtook_is_refused(
    machines: tuple[Shelf, Shelf], tmp_path: Path
) -> None:
    here, there = machines
    first = here.ingest(write(tmp_path / "docs", gate=GATE))
    manifest = read_manifest(here.store.release_dir("default", first))
    before = transfer.push(here.store, manifest)
    blobs = open_blobs(there.store)
    state = blobs.read_pointer("releases/default/CURRENT")
    assert state and blobs.swap_pointer("releases/default/CURRENT", state[0] + b" ", state[1])
    with pytest.raises(ReleaseError) as refused:
        transfer.swap(here.store, manifest, before)
    assert refused.value.code == "outdated_candidate"


def test_a_forged_object_is_refused_and_the_rest_is_not_fetched_again(
    machines: tuple[Shelf, Shelf], tmp_path: Path
) -> None:
    here, there = machines
    release_id = here.ingest(write(tmp_path / "docs", gate=GATE, **TEXTS))
    manifest = read_manifest(here.store.release_dir("default", release_id))
    blobs, key = (
        open_blobs(here.store),
        f"releases/default/files/{manifest.files['catalog.sqlite']}",
    )
    forged = tmp_path / "forged"
    forged.write_bytes(b"another catalog")
    blobs.delete([key])
    assert blobs.put_new(key, forged)
    with pytest.raises(IntegrityError) as refused:
        pull(there)
    assert refused.value.code == "forged_blob" and key in refused.value.message
    assert releases.current(there.store, "default") is None
    assert not there.store.release_dir("default", release_id).exists()
    blobs.delete([key])
    assert blobs.put_new(key, here.store.release_dir("default", release_id) / "catalog.sqlite")
    assert pull(there).files < len(set(manifest.files.values()))
    assert hashes(there, release_id) == hashes(here, release_id)


def test_the_bucket_of_another_library_is_refused(
    machines: tuple[Shelf, Shelf],
    tmp_path: Path,
    postgres: PostgresServer,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    here, _ = machines
    here.ingest(write(tmp_path / "docs", gate=GATE))
    monkeypatch.setenv("RAG_LEDGER", postgres.new_url())
    root = DataRoot.open(load_settings({"home": tmp_path / "gamma"}))
    with pytest.raises(ReleaseError) as refused:
        transfer.pull("default", root)
    assert refused.value.code == "foreign_release"
    root.ledger.close()


def test_a_published_release_that_was_not_pushed_is_pushed(
    machines: tuple[Shelf, Shelf], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here, there = machines
    alone = Shelf(here.settings, Store(here.store.home, here.store.database), here.ledger)
    release_id = alone.ingest(write(tmp_path / "docs", gate=GATE))
    assert pull(there).release_id == ""
    for _ in range(2):
        pushed = push_current("default", here.root)
        assert pushed == release_id == pull(there).release_id


def test_a_store_that_ignores_conditions_is_refused(
    tmp_path: Path, config_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if reason := why_none("s3rver", "RAG_TEST_S3RVER"):
        pytest.skip(reason)
    server = S3Server.careless(tmp_path / "careless")
    try:
        for name, value in server.variables().items():
            monkeypatch.setenv(name, value)
        with pytest.raises(ProviderError) as refused:
            open_for_writing(Store.of(load_settings({"home": tmp_path / "home"})))
        assert refused.value.code == "unconditional_writes"
    finally:
        server.kill()


def objects(shelf: Shelf) -> set[str]:
    """The keys of what the bucket holds."""
    return {blob.key for blob in open_blobs(shelf.store).list("")}


def test_collection_keeps_in_the_bucket_what_is_kept(
    machines: tuple[Shelf, Shelf], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here, there = machines
    monkeypatch.setattr(transfer, "_GRACE", timedelta(0))
    docs = write(tmp_path / "docs", gate=GATE)
    made = [here.ingest(docs)]
    for hour in range(6, 8):
        write(docs, gate=GATE.replace("05:30", f"{hour}:30"))
        made.append(here.ingest(docs))
    kept = here.settings.model_copy(update={"releases": ReleasePolicy(keep=2)})
    collect(DataRoot(settings=kept, store=here.store, ledger=here.ledger))
    manifests = [read_manifest(here.store.release_dir("default", name)) for name in made[-2:]]
    assert {key for key in objects(here) if key.startswith("releases/")} == {
        "releases/default/CURRENT",
        *(f"releases/default/{name}.json" for name in made[-2:]),
        *(f"releases/default/files/{sha}" for m in manifests for sha in m.files.values()),
    }
    states = {row.release_id: row.state for row in here.ledger.releases("default")}
    assert [states[name] for name in made] == ["dropped", "retired", "published"]
    assert pull(there).release_id == made[-1]


@pytest.mark.parametrize("lost", ["manifest.json", "versions.json"])
def test_the_bucket_keeps_the_sound_copy_of_a_release_that_is_damaged_here(
    machines: tuple[Shelf, Shelf], tmp_path: Path, lost: str
) -> None:
    here, _ = machines
    docs = write(tmp_path / "alpha" / "docs", gate=GATE)
    first = here.ingest(docs)
    write(docs, gate=GATE.replace("05:30", "06:45"))
    here.ingest(docs)
    path = here.store.release_dir("default", first) / lost
    path.unlink()
    path.write_bytes(b'{"torn')
    collect(here.root)
    assert not path.exists() and first in transfer.list_pushed(here.store, "default")
    transfer.fetch_release(here.store, "default", first)
    roll_back("default", first, here.root)
    assert releases.current(here.store, "default") == first


def test_a_hard_deletion_reaches_the_bucket(machines: tuple[Shelf, Shelf], tmp_path: Path) -> None:
    here, there = machines
    docs = write(tmp_path / "docs", gate=GATE, dock="# Dock\n\nThe dock holds 12 trucks.\n")
    first = here.ingest(docs)
    pull(there)
    doc_id = next(d.doc_id for d in here.ledger.documents("default") if d.filename == "gate.md")
    versions = here.ledger.versions("default", doc_id)
    alone = {version.file_sha256 for version in versions}

    def left() -> tuple[int, list[str]]:
        return transfer.count_in_bucket("default", versions, alone, here.store)

    # a release, a bundle, the bytes; and a data root that cannot be looked into from here
    assert (left()[0], len(left()[1])) == (3, 1)
    here.ledger.delete("default", doc_id, None, "hard")
    (docs / "gate.md").unlink()
    second = here.ingest(docs)
    collect(here.root)
    assert (left()[0], len(left()[1])) == (0, 1)
    assert f"releases/default/{first}.json" not in objects(here)
    assert pull(there).release_id == second
    assert [path.name for path in there.store.releases_dir("default").glob("[!.]*/")] == [second]


def test_a_hard_deletion_removes_earlier_versions_of_objects(
    machines: tuple[Shelf, Shelf], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here, _ = machines
    blobs = here.settings.blobs
    address = f"{os.environ['AWS_ENDPOINT_URL']}/{blobs.bucket}"
    versioned = "<VersioningConfiguration><Status>Enabled</Status></VersioningConfiguration>"
    httpx.put(f"{address}?versioning", content=versioned).raise_for_status()
    docs = write(tmp_path / "docs", gate=GATE, dock="# Dock\n\nThe dock holds 12 trucks.\n")
    here.ingest(docs)
    document = next(d for d in here.ledger.documents("default") if d.filename == "gate.md")
    versions = here.ledger.versions("default", document.doc_id)
    here.ledger.delete("default", document.doc_id, None, "hard")
    (docs / "gate.md").unlink()
    here.ingest(docs)
    key = "AWS_ACCESS_KEY_ID"
    with monkeypatch.context() as without:
        without.delenv(key)
        assert transfer.remove_versions("default", here.store)[1]
    blob = raw_key(versions[0].file_sha256)
    found = collect(here.root)
    assert found.removed["blob_versions"]["count"] >= 8
    assert not any("earlier versions" in line for line in found.left)
    listed = httpx.get(f"{address}?versions").text
    assert blob not in listed
    assert set(re.findall("<Key>(.*?)</Key>", listed.partition("<DeleteMarker>")[0])) == {
        *objects(here),
        *(key for key in re.findall("<Key>(.*?)</Key>", listed) if key.startswith("probe/")),
    }
    assert transfer.remove_versions("default", here.store, plan=True) == (0, ())


def contains(folder: Path, words: str) -> list[Path]:
    """The files below a folder that hold these words."""
    files = [path for path in folder.rglob("*") if path.is_file()]
    return [path for path in files if words.encode() in path.read_bytes()]


def test_a_hard_deletion_waits_until_every_server_carried_it_out(
    machines: tuple[Shelf, Shelf], tmp_path: Path
) -> None:
    here, there = machines
    docs = write(tmp_path / "docs", gate=GATE, dock="# Dock\n\nThe dock holds 12 trucks.\n")
    here.ingest(docs)
    here.ledger.register("lost-1", "lost")
    settings = with_poll(there.settings, 0.02)
    with following(settings):
        wait_until(lambda: len(here.ledger.servers()) == 2)
        wait_until(lambda: releases.current(there.store, "default") is not None)
    scores(there, "When does the gate open?")  # and into its log
    assert contains(there.store.home, "gate")
    document = next(d for d in here.ledger.documents("default") if d.filename == "gate.md")
    stone = here.ledger.delete("default", document.doc_id, None, "hard")
    record_deletion(stone, here.root)
    # as the job of a deletion does
    manifest, _ = build_candidate("default", here.workspace(), full=True)
    publish_candidate("default", manifest.release_id, here.root)
    collect(here.root)

    def waiting() -> set[str]:
        return {server.server_id for _, server in here.ledger.find_unacknowledged("default")}

    own = server_id(there.store)
    assert waiting() == {"lost-1", own}
    proof = prove("default", document.doc_id, here.root, partitions="not looked into")
    assert sum("has not acknowledged" in line for line in proof.open) == 2
    with following(settings):
        wait_until(lambda: own not in waiting())
    assert waiting() == {"lost-1"}
    assert not contains(there.store.home, "The gate opens")
    assert not contains(there.store.home, "gate.md")
    brief = here.settings.model_copy(
        update={"blobs": here.settings.blobs.model_copy(update={"acknowledge_seconds": 0.0})}
    )
    [told] = servers.wait_for_servers(stone.sequence, brief, here.ledger)
    assert "server lost-1 has not acknowledged" in told and "rag servers remove" not in told
    with here.ledger.backend.write() as db:
        db.execute("UPDATE servers SET seen_at = '2026-01-01T00:00:00Z' WHERE server_id = 'lost-1'")
    [told] = servers.wait_for_servers(stone.sequence, here.settings, here.ledger)  # at once
    assert "last seen at 2026-01-01T00:00:00Z" in told and "rag servers remove lost-1" in told
    here.ledger.remove_server("lost-1")
    assert waiting() == set()


def test_status_says_how_far_a_server_is_behind_and_who_else_there_is(
    machines: tuple[Shelf, Shelf], tmp_path: Path
) -> None:
    here, there = machines
    docs = write(tmp_path / "docs", gate=GATE)
    made = [here.ingest(docs)]
    pull(there)
    servers.register(there.store, there.ledger)
    servers.send_heartbeat(there.store, there.ledger)
    for hour in (6, 7):
        made.append(here.ingest(write(docs, gate=GATE.replace("05:30", f"{hour}:30"))))
    library = there.library()
    data = status(library)
    [row] = data["namespaces"]
    assert (row["release_id"], row["behind"], data["ledger_problem"]) == (made[0], 2, "")
    own = server_id(there.store)
    [server] = data["servers"]
    assert (server["server"], server["here"], server["gone"]) == (own, True, False)
    assert server["releases"] == {"default": made[0]} and server["unacknowledged"] == 0
    assert "2 publications did not come here yet" in data["markdown"]
    pull(there)
    [row] = status(library)["namespaces"]
    assert (row["release_id"], row["behind"]) == (made[2], 0)
    library.close()


def test_status_says_that_the_ledger_is_away(
    machines: tuple[Shelf, Shelf], tmp_path: Path, postgres: PostgresServer
) -> None:
    here, _ = machines
    here.ingest(write(tmp_path / "docs", gate=GATE))
    away = Store(here.store.home, "postgresql://rag@127.0.0.1:1/rag", here.store.remote)
    library = Library(here.settings, away, LedgerView(away))
    data = status(library)
    require_known(library, "default")
    with pytest.raises(LedgerError, match="cannot be reached"):
        require_known(library, "new")  # nothing of it is published: only the ledger may know it
    library.close()
    assert (
        "cannot be reached" in data["ledger_problem"] and data["ledger_problem"] in data["problems"]
    )
    [row] = data["namespaces"]
    assert "cannot be reached" in row["problem"]


def test_a_server_that_begins_with_nothing_has_nothing_to_remove(
    machines: tuple[Shelf, Shelf], tmp_path: Path
) -> None:
    here, there = machines
    docs = write(tmp_path / "docs", gate=GATE, dock="# Dock\n\nThe dock holds 12 trucks.\n")
    here.ingest(docs)
    document = next(d for d in here.ledger.documents("default") if d.filename == "gate.md")
    here.ledger.delete("default", document.doc_id, None, "hard")
    servers.register(there.store, there.ledger)
    servers.register(here.store, here.ledger)
    found = {server.server_id for _, server in here.ledger.find_unacknowledged()}
    assert found == {server_id(here.store)}
