"""What a rebuild would do, told before and counted after: the least that a change of config asks
for, and nothing for a change back.
"""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from rag_platform.ingestion.rebuild_plan import StagePlan, estimate_embedding, plan
from rag_platform.intake.receiving import ReceiveOptions, receive
from rag_platform.workspace import DataRoot, Workspace

pytestmark = pytest.mark.integration

GATE = "# Gate\n\nThe gate opens at 05:30.\n\n## Night\n\nAt night the guard opens it.\n"
DOCK = "# Dock\n\nThe dock holds 12 trucks.\n"
STAGES = ["raw_document", "facts", "media", "sections", "chunks", "views", "embeddings"]


@pytest.fixture
def library(desk: Any) -> Any:
    """Two documents, published."""
    desk.write(gate=GATE, dock=DOCK)
    desk.publish()
    return desk


def configure(desk: Any, **sections: Any) -> None:
    """Write the tiny strategy with these sections instead of its own; without any as it was."""
    path = desk.folder / "config" / "strategies" / "tiny.yaml"
    kept = path.with_suffix(".kept")
    if not kept.exists():
        kept.write_text(path.read_text(encoding="utf-8"), encoding="utf-8")
    path.write_text(
        yaml.safe_dump({**yaml.safe_load(kept.read_text(encoding="utf-8")), **sections}),
        encoding="utf-8",
    )


def told(desk: Any, *options: str) -> Any:
    """The data of `rag rebuild --plan`."""
    answer = desk.call("rebuild", "--plan", *options)
    assert answer.exit_code == 0, answer.said
    return answer.data


def stages(data: Any) -> dict[str, tuple[int, int]]:
    """Stage to (reused, built)."""
    return {stage["stage"]: (stage["reused"], stage["built"]) for stage in data["stages"]}


def jobs(desk: Any) -> list[str]:
    return [job["job_id"] for job in desk.call("jobs", "list").data["jobs"]]


def outputs(desk: Any) -> dict[str, int]:
    """Stage file to the time it was written."""
    files = [
        *(desk.store.home / "versions").rglob("*.parquet"),
        *(desk.store.home / "facts").rglob("*.*"),
    ]
    return {
        path.relative_to(desk.store.home).as_posix(): path.stat().st_mtime_ns
        for path in files
        if path.is_file()
    }


def test_with_nothing_to_do_no_job_is_started(library: Any) -> None:
    before = jobs(library)
    found = told(library)
    assert (found["release"], found["version_ids"], found["embeddings"], found["seconds"]) == (
        "nothing",
        [],
        0,
        0.0,
    )
    assert "Nothing to do" in found["markdown"] and stages(found) == dict.fromkeys(STAGES, (2, 0))
    done = library.call("rebuild")
    assert done.exit_code == 0 and done.data["release"] == "nothing"
    assert jobs(library) == before
    for section in (
        {"retrieval": {"top_k": 3}},
        {"fusion": {"provider": "rrf"}},
        {"embedding": {"provider": "hashing", "batch_size": 7}},
    ):
        configure(library, **section)
        assert told(library)["release"] == "nothing"


def test_what_was_lost_of_a_version_is_built_again(library: Any) -> None:
    versions = library.store.home / "versions"
    shutil.rmtree(versions)
    assert len(told(library)["version_ids"]) == 2
    assert library.call("rebuild", "--full").exit_code == 0
    assert [*versions.rglob("*.parquet")] and told(library)["release"] == "nothing"


def test_a_change_and_back_again(library: Any) -> None:
    """The change builds what hangs on it; the way back builds nothing but the release, and writes
    no stage's file again.
    """
    first = library.call("releases", "show").data["manifest"]["release_id"]
    written = outputs(library)
    configure(
        library,
        chunker={"provider": "recursive", "options": {"chunk_size": 30, "chunk_overlap": 0}},
    )
    found = told(library)
    assert stages(found) == {
        **dict.fromkeys(STAGES[:4], (2, 0)),
        **dict.fromkeys(STAGES[4:], (0, 2)),
    }
    assert (found["release"], len(found["version_ids"]), found["embeddings"], found["uncut"]) == (
        "full",
        2,
        0,
        2,
    )
    assert (
        "chunks, views, embeddings changed" in found["reason"]
        and "compute: 0, and those of 2 documents to be cut first." in found["markdown"]
    )
    assert (
        outputs(library) == written
        and library.call("releases", "show").data["manifest"]["release_id"] == first
    )

    done = library.call("rebuild")
    assert (
        done.exit_code == 0 and done.data["continued"] == 2 and done.data["embeddings_computed"] > 0
    )
    both = outputs(library)
    # chunks and views of two documents
    assert {name: both[name] for name in written} == written and len(both) == len(written) + 2 * 2
    assert told(library)["release"] == "nothing"

    configure(library)
    back = told(library)
    assert stages(back) == dict.fromkeys(STAGES, (2, 0))
    assert (back["release"], len(back["version_ids"]), back["embeddings"], back["uncut"]) == (
        "full",
        2,
        0,
        0,
    )
    done = library.call("rebuild")
    assert done.exit_code == 0 and (done.data["embeddings_computed"], done.data["continued"]) == (
        0,
        2,
    )
    assert outputs(library) == both
    last = library.call("releases", "show").data["manifest"]
    kept = library.call("releases", "show", first).data["manifest"]
    assert last["release_id"] != first and (last["versions"], last["index_profile"]) == (
        kept["versions"],
        kept["index_profile"],
    )


def test_a_new_embedder_answers_from_its_release_on(library: Any) -> None:
    """Texts are known, so the count is exact; the old release answers with its own embedder until
    the swap.
    """
    chunks = library.call("releases", "show").data["manifest"]["counts"]["chunks"]
    configure(library, embedding={"provider": "hashing", "options": {"dim": 64}})
    found = told(library)
    assert stages(found) == {**dict.fromkeys(STAGES[:6], (2, 0)), "embeddings": (0, 2)}
    assert (found["embeddings"], found["uncut"], found["release"]) == (chunks, 0, "full")
    assert "hashing-64" in found["reason"] and "hashing-256" in found["reason"]
    question = ("query", "How many trucks does the dock hold?", "--mode", "dense")
    before = library.call(*question)
    assert "12 trucks" in before.data["answer_markdown"] and not before.envelope["warnings"]
    done = library.call("rebuild")
    assert done.data["embeddings_computed"] == chunks
    after = library.call(*question)
    assert (
        "12 trucks" in after.data["answer_markdown"]
        and after.data["release_id"] == done.data["release_id"] != before.data["release_id"]
    )
    earlier = library.call(*question, "--release", before.data["release_id"])
    assert "12 trucks" in earlier.data["answer_markdown"]


def test_only_the_index_is_built_anew(library: Any) -> None:
    configure(library, lexical={"provider": "tantivy", "options": {"headings_boost": 2.0}})
    found = told(library)
    assert (found["release"], found["version_ids"], found["embeddings"]) == ("full", [], 0)
    assert "word index" in found["reason"] and stages(found) == dict.fromkeys(STAGES, (2, 0))
    assert library.call("rebuild").data["documents"] == []
    assert library.call("releases", "show").data["manifest"]["delta"]["full_build"]
    assert told(library)["release"] == "nothing"
    assert told(library, "--full")["reason"] == "asked for"
    assert library.call("rebuild", "--full").exit_code == 0
    assert library.call("releases", "show").data["manifest"]["delta"]["full_build"]


def test_a_document_that_fails_under_the_new_config_stops_the_release(library: Any) -> None:
    """It is named with what can be done; the old release answers; the config put back leaves
    nothing to do.
    """
    with library.ledger() as ledger:
        version = next(v for v in ledger.versions("default") if v.source_uri.endswith("dock.md"))
    raw = library.store.raw_path(version.file_sha256)
    kept = raw.read_bytes()
    raw.unlink()
    configure(library, cleaning={"drop_urls": True})
    refused = library.call("rebuild")
    assert refused.exit_code == 1
    message = refused.error["message"]
    assert "docs/dock.md" in message and "raw_missing" in message
    assert all(remedy in message for remedy in ("config back", "rag docs delete", "rag jobs retry"))
    assert "12 trucks" in library.call("query", "How many trucks?").data["answer_markdown"]

    raw.write_bytes(kept)
    configure(library)
    found = told(library)
    # the gate went over and comes back, the dock never left
    assert (len(found["version_ids"]), found["embeddings"]) == (1, 0)
    assert library.call("rebuild").exit_code == 0 and told(library)["release"] == "nothing"

    configure(library, cleaning={"drop_urls": True})
    assert library.call("rebuild").exit_code == 0
    assert "12 trucks" in library.call("query", "How many trucks?").data["answer_markdown"]


def test_a_move_to_another_strategy(library: Any) -> None:
    folder = library.folder / "config" / "strategies"
    text = (folder / "tiny.yaml").read_text(encoding="utf-8")
    (folder / "same.yaml").write_text(text, encoding="utf-8")
    (folder / "words.yaml").write_text(
        text.replace("encoding: hybrid", "encoding: sparse_only"), encoding="utf-8"
    )
    same = told(library, "--strategy", "same")
    assert (same["release"], same["version_ids"], same["moves_from"]) == ("delta", [], "tiny")
    words = told(library, "--strategy", "words")
    assert (words["release"], len(words["version_ids"]), words["embeddings"]) == ("full", 2, 0)
    (folder / "words.yaml").write_text(
        text.replace("encoding: hybrid", "encoding: sparse_only").replace(
            "chunk_size: 400", "chunk_size: 30"
        )
    )
    # nothing of what is cut will be embedded
    assert told(library, "--strategy", "words")["uncut"] == 0
    with library.ledger() as ledger:
        assert ledger.namespaces() == {"default": "tiny"}
    assert library.call("rebuild", "--strategy", "same").exit_code == 0
    assert library.call("releases", "show").data["manifest"]["strategy"] == "same"
    assert told(library)["release"] == "nothing"


def test_what_needs_no_stage_but_a_release(library: Any) -> None:
    with library.ledger() as ledger:
        (dock, _), _ = ledger.live("default")
        edited = type(dock)(
            **{**{name: getattr(dock, name) for name in dock.__slots__}, "tags": ("harbour",)}
        )
        ledger.put_document(edited)
    found = told(library)
    assert (found["release"], found["version_ids"]) == ("delta", [])
    assert found["reason"].startswith("titles, tags or metadata of documents changed")
    assert library.call("rebuild").exit_code == 0 and told(library)["release"] == "nothing"
    assert library.call("releases", "rollback").exit_code == 0
    library.write(dock=DOCK, gate=GATE + "\nMore.\n")
    assert library.call("ingest", library.docs).exit_code == 0
    assert library.call("releases", "rollback").exit_code == 0
    gone_back = told(library)
    assert gone_back["release"] == "nothing" and "rag releases forward" in gone_back["reason"]

    configure(
        library,
        chunker={"provider": "recursive", "options": {"chunk_size": 30, "chunk_overlap": 0}},
    )
    assert library.call("rebuild").exit_code == 0
    assert library.call("releases", "rollback").exit_code == 0  # the same versions, cut otherwise
    gone_back = told(library)
    assert gone_back["release"] == "nothing" and "rag releases forward" in gone_back["reason"]
    configure(library)
    # the release that is read has the config's index, its documents are another's
    assert told(library)["release"] == "delta"


def test_an_unknown_namespace(library: Any, tmp_path: Path) -> None:
    refused = library.call("rebuild", "--plan", "--namespace", "nowhere")
    assert refused.error["code"] == "unknown_namespace"


def test_bytes_whose_vectors_are_known_take_no_time(shelf: Any, tiny: Any, tmp_path: Path) -> None:
    """In another namespace the same file is another version; its texts have their vectors all the
    same. Pictures in a file are no text.
    """
    (tmp_path / "a.md").write_text(
        f"# Dock\n\n{'The dock holds 12 trucks. ' * 2000}", encoding="utf-8"
    )
    shelf.ingest(tmp_path / "a.md")
    parts = {"settings": shelf.settings, "store": shelf.store, "ledger": shelf.ledger}
    taken = receive(
        [tmp_path / "a.md"], "other", Workspace(strategy=tiny, **parts), ReceiveOptions()
    )
    assert (
        len(taken.to_process) == 1
        and estimate_embedding(taken.to_process, DataRoot(**parts))["tiny"] == 0.0
    )
    version = shelf.ledger.version(taken.to_process[0])
    assert version.text_bytes == version.size == 52_008
    assert replace(version, mime="application/pdf", counts={}).text_bytes == 1_560
    assert replace(version, mime="application/pdf", counts={"text_chars": 1234}).text_bytes == 1234
    assert replace(version, mime="image/png", counts={}).text_bytes == 0


def test_counts_of_documents_that_share_texts(shelf: Any, tiny: Any, tmp_path: Path) -> None:
    """A text counts once, whoever holds it: two equal files and an own one are two texts to
    embed.
    """
    for name, text in (("a", DOCK), ("b", DOCK), ("c", "# Gate\n\nOpen.\n")):
        (tmp_path / f"{name}.md").write_text(text, encoding="utf-8")
    shelf.ingest(*(tmp_path / f"{name}.md" for name in "abc"))
    other = tiny.model_copy(
        update={"embedding": tiny.embedding.model_copy(update={"options": {"dim": 32}})}
    )
    parts = {"settings": shelf.settings, "store": shelf.store, "ledger": shelf.ledger}
    found = plan("default", Workspace(strategy=other, **parts))
    assert (found.embeddings, found.documents, found.release) == (2, 3, "full")
    assert (
        found.stages[-1] == StagePlan("embeddings", found.stages[-1].profile, 0, 3)
        and found.seconds > 0
    )
    assert plan("default", Workspace(strategy=tiny, **parts)).empty
