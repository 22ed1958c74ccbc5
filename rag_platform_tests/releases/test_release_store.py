"""Releases built from real stage outputs: by delta as in full, checked, published by one pointer,
cleaned after a crash.
"""

from __future__ import annotations

import dataclasses
import hashlib
import io
import json
import os
import random
import shlex
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rag_platform.config.ingestion import EmbeddingConfig
from rag_platform.config.profiles import stage_profiles, text_norm_profile_id
from rag_platform.config.query import ProviderConfig
from rag_platform.config.settings import Settings, Strategy
from rag_platform.documents.versions import STAGES, VersionBuild, build_stage
from rag_platform.errors import (
    IntegrityError,
    NotFoundError,
    ReleaseError,
    SchemaVersionError,
    StorageError,
)
from rag_platform.indexes import dense, dense_files
from rag_platform.indexes.catalog import CatalogReader
from rag_platform.indexes.embedding_cache import EmbeddingCache
from rag_platform.ir import Document, Version
from rag_platform.providers.hashing import Hashing
from rag_platform.releases import building, release_store
from rag_platform.releases.building import Lineage, build
from rag_platform.releases.checks import CHECKS, IndexChanges, index_differences
from rag_platform.releases.manifest import VERSION_FIELDS, Manifest, embedder_info, read_manifest
from rag_platform.storage.store import Store, read_json, sha256_file
from rag_platform_tests.matrices import write_matrix
from rag_platform_tests.release_checks import check_again, failed_checks

Live = tuple[Document, Version]

GUIDE = (
    "# Guide\n"
    "\n"
    "The gateway listens on port 8080.\n"
    "\n"
    "## Limits\n"
    "\n"
    "Error PPR-9087 means that the licence is missing.\n"
)
HANDBOOK = "# 制度\n\n员工每年有十五天带薪年假。\n\n## 病假\n\n病假需要医生证明。\n"
NOTES = "Version 2.4.1 fixes the crash on start.\n"


def make_public(store: Store, release_id: str) -> None:
    release_store.require_publishable(store, "default", release_id)
    release_store.point_at(store, "default", release_id)


def clean(store: Store) -> list[str]:
    found = release_store.surplus(store, "default", 2)
    for path in found:
        release_store.drop(path)
    return [path.name for path in found]


@pytest.fixture
def make(store: Store, settings: Settings, tiny: Strategy) -> Callable[..., Live]:
    """Store a text as a version of a document and run its stages up to the views."""

    def make(name: str, text: str, strategy: Strategy = tiny, **changes: object) -> Live:
        sha, size = store.spool(io.BytesIO(text.encode()), 1 << 20, 1 << 20)
        doc_id = f"{name}-0123456789"
        suffix, mime, loader = (
            ("md", "text/markdown", "markdown")
            if text.startswith("#")
            else ("txt", "text/plain", "text")
        )
        version = Version(
            f"default.{doc_id}@{sha[:12]}",
            "default",
            doc_id,
            f"docs/{name}.{suffix}",
            f"{name}.{suffix}",
            sha,
            size,
            mime,
            loader,
            strategy.name,
            status="ready",
            received_at="2026-01-01T00:00:00+00:00",
        )
        for stage in STAGES:
            build_stage(stage, VersionBuild(version, strategy, settings, store))
        document = Document(
            "default",
            doc_id,
            "docs",
            version.source_uri,
            version.filename,
            title=name,
            live_version=version.version_id,
        )
        return dataclasses.replace(document, **changes), version  # type: ignore[arg-type]

    return make


@pytest.fixture
def grow(store: Store, settings: Settings, tiny: Strategy) -> Callable[..., Manifest]:
    """Build a release of the live versions and, unless a check failed, publish it."""

    def grow(
        live: list[Live],
        release_id: str,
        parent: str | None = None,
        strategy: Strategy = tiny,
        *,
        publish: bool = True,
    ) -> Manifest:
        with EmbeddingCache(store.embeddings_path) as cache:
            manifest, _ = build(
                store,
                "default",
                strategy,
                building.LiveVersions(live),
                release_id=release_id,
                lineage=Lineage(parent),
                cache=cache,
                settings=settings,
            )
        if publish:
            make_public(store, release_id)
        return manifest

    return grow


def content(store: Store, release_id: str) -> dict[str, object]:
    """Everything a reader can learn of a release that does not depend on how it was built."""
    opened = release_store.open_release(store, "default", None, release_id)
    assert opened.lexical is not None and opened.dense is not None
    queries = ("gateway port", "PPR-9087", "带薪年假", "version 2.4.1", "guide")
    found: dict[str, object] = {
        "chunks": {
            c.chunk_id: opened.catalog.chunks([c.chunk_id])
            for v in opened.catalog.versions()
            for c in opened.catalog.chunks_of_version(v)
        },
        "documents": opened.catalog.documents(),
        "sections": {
            d.doc_id: opened.catalog.sections(d.doc_id) for d in opened.catalog.documents()
        },
        "lexical": {query: opened.lexical.search(query, 10) for query in queries},
        "dense ids": opened.dense.ids(),
        "matrix": (
            np.array(
                dense.read_matrix(store.release_dir("default", release_id) / "dense")[1]
            ).tobytes()
        ),
        # which of them are searched as one depends on what was written together
        "words": {
            path.name: path.read_bytes()
            for path in (store.release_dir("default", release_id) / "lexical").iterdir()
            if path.suffix == ".parquet" or path.name == "buckets.json"
        },
        "counts": {
            key: value
            for key, value in opened.manifest.counts.items()
            if not key.endswith("_stale")
        },
    }
    opened.close()
    return found


@pytest.mark.integration
def test_full_build_holds_everything_and_passes_every_check(
    store: Store, make: Callable[..., Live], grow: Callable[..., Manifest]
) -> None:
    live = [make("guide", GUIDE, tags=("ops",)), make("handbook", HANDBOOK), make("notes", NOTES)]
    manifest = grow(live, "r1")
    assert [check.name for check in manifest.checks] == list(CHECKS)
    assert all(check.passed for check in manifest.checks), manifest.checks
    chunks = manifest.counts["chunks"]
    assert (
        manifest.counts["documents"] == 3
        and chunks
        == sum(read_manifest(store.release_dir("default", "r1")).versions.values())
        == manifest.counts["lexical"]
        == manifest.counts["dense"]
    )
    assert set(read_manifest(store.release_dir("default", "r1")).versions) == {
        version.version_id for _, version in live
    }
    assert {"catalog.sqlite", "dense/vectors.npy", "dense/ids.npy", "lexical/meta.json"} <= set(
        manifest.files
    )
    opened = release_store.open_release(store, "default")
    assert opened.lexical is not None and opened.dense is not None
    best = opened.lexical.search("PPR-9087", 1)[0].chunk_id
    row = opened.catalog.rows([best])[best]
    assert "PPR-9087" in row.chunk.chunk_text and (row.source_uri, row.tags) == (
        "docs/guide.md",
        ("ops",),
    )
    vector = np.load(store.release_dir("default", "r1") / "dense" / "vectors.npy")[0]
    assert opened.dense.search(vector, 1)[0][0].chunk_id == opened.dense.ids()[0]
    opened.close()


@pytest.mark.integration
def test_delta_gives_what_a_full_build_gives(
    store: Store, make: Callable[..., Live], grow: Callable[..., Manifest]
) -> None:
    guide, handbook, notes = make("guide", GUIDE), make("handbook", HANDBOOK), make("notes", NOTES)
    grow([guide, handbook, notes], "r1")
    before = content(store, "r1")
    edited = make("guide", GUIDE.replace("8080", "9090") + "\n## New\n\nA new section.\n")
    new = make("faq", "# FAQ\n\nHow many days? Fifteen.\n")
    retitled = (dataclasses.replace(handbook[0], title="Rules", tags=("hr",)), handbook[1])
    manifest = grow([edited, retitled, new], "r2", "r1")
    assert manifest.delta["full_build"] is False
    assert (
        manifest.delta["versions_added"],
        manifest.delta["versions_removed"],
        manifest.delta["versions_unchanged"],
    ) == (2, 2, 1)
    # two of the handbook, and the guide's section that did not change
    assert manifest.delta["chunks_kept"] == 3
    grow([edited, retitled, new], "full", None)
    assert content(store, "r2") == content(store, "full")
    assert content(store, "r1") == before


@pytest.mark.integration
def test_documents_that_nobody_asked_for_are_taken_over_unseen(
    store: Store, settings: Settings, tiny: Strategy, make: Callable[..., Live]
) -> None:
    guide, handbook = make("guide", GUIDE, tags=("ops",)), make("handbook", HANDBOOK)
    notes, newer = make("notes", NOTES), make("notes", NOTES + "A newer line.\n")

    def built(release_id: str, live: building.LiveVersions, parent: str | None = None) -> Manifest:
        with EmbeddingCache(store.embeddings_path) as cache:
            build(
                store,
                "default",
                tiny,
                live,
                release_id=release_id,
                lineage=Lineage(parent),
                cache=cache,
                settings=settings,
            )
        make_public(store, release_id)
        return read_manifest(store.release_dir("default", release_id))

    built("r1", building.LiveVersions([guide, handbook, notes]))
    renamed = dataclasses.replace(handbook[0], title="Another title"), handbook[1]
    asked = {handbook[0].doc_id, notes[0].doc_id}
    grown = built("r2", building.LiveVersions([renamed, newer], asked), "r1")
    counts = ("versions_added", "versions_removed", "versions_unchanged")
    assert [grown.delta[name] for name in counts] == [1, 1, 2]
    whole = built("whole", building.LiveVersions([guide, renamed, newer]))
    assert content(store, "r2") == content(store, "whole")
    assert [getattr(grown, name) for name in VERSION_FIELDS] == [
        getattr(whole, name) for name in VERSION_FIELDS
    ]
    first, second = (store.release_dir("default", name) for name in ("r1", "r2"))
    assert (first / "versions.json").samefile(second / "versions.json")
    smaller = built("r3", building.LiveVersions([], {guide[0].doc_id}), "r2")
    assert smaller.delta["versions_removed"] == 1
    # the base still has the rows of what left, and readers do not
    assert (first / "catalog.sqlite").samefile(
        store.release_dir("default", "r3") / "catalog.sqlite"
    )
    built("less", building.LiveVersions([renamed, newer]))
    assert content(store, "r3") == content(store, "less")
    less = read_manifest(store.release_dir("default", "less"))
    assert [getattr(smaller, name) for name in VERSION_FIELDS] == [
        getattr(less, name) for name in VERSION_FIELDS
    ]
    again = built("r4", building.LiveVersions([guide], {guide[0].doc_id}), "r3")
    assert content(store, "r4") == content(store, "whole")
    assert again.given == whole.given and again.versions == whole.versions


@pytest.mark.integration
def test_what_was_not_asked_for_but_left_is_noticed(
    store: Store,
    settings: Settings,
    tiny: Strategy,
    make: Callable[..., Live],
    grow: Callable[..., Manifest],
) -> None:
    grow([make("guide", GUIDE), make("notes", NOTES)], "r1")
    path = store.release_dir("default", "r1") / "catalog.sqlite"
    with closing(sqlite3.connect(path)) as db, db:
        db.execute("DELETE FROM documents WHERE doc_id LIKE 'notes%'")
    os.utime(path, (0, 0))  # what was written after the manifest is not taken over
    newer = make("guide", GUIDE + "A newer line.\n")
    with EmbeddingCache(store.embeddings_path) as cache:
        manifest, _ = build(
            store,
            "default",
            tiny,
            building.LiveVersions([newer], {newer[0].doc_id}),
            release_id="r2",
            lineage=Lineage("r1"),
            cache=cache,
            settings=settings,
        )
    assert {check.name: check.details for check in manifest.failures} == {
        "versions_complete": "2 versions of 1 document, expected 2"
    }


@pytest.mark.integration
def test_the_check_of_an_edit_finds_what_an_index_did_not_take_or_give_up(
    store: Store, tiny: Strategy, make: Callable[..., Live], grow: Callable[..., Manifest]
) -> None:
    grow([make("guide", GUIDE)], "r1")
    directory = store.release_dir("default", "r1")
    with closing(CatalogReader(directory / "catalog.sqlite")) as catalog:
        (held, *_), nothing = catalog.chunk_ids(), set[str]()
        for lost, got, reason in (
            ({"x"}, {held}, []),
            ({held}, nothing, ["too many"] * 2),
            (nothing, {"x"}, ["missing"] * 2),
        ):
            found = index_differences(
                directory, tiny, catalog, (IndexChanges(lost, got), IndexChanges(lost, got))
            )
            assert len(found) == len(reason) and all(
                word in text for word, text in zip(reason, found, strict=True)
            )


@pytest.mark.integration
def test_a_delta_shares_what_it_does_not_change_and_says_so(
    store: Store, make: Callable[..., Live], grow: Callable[..., Manifest], tiny: Strategy
) -> None:
    asking = tiny.model_copy(
        update={"retrieval": tiny.retrieval.model_copy(update={"exact_scan_rows": 0})}
    )
    guide, handbook = make("guide", GUIDE), make("handbook", HANDBOOK)
    grow([guide, handbook], "r1", strategy=asking)
    edited = make("guide", GUIDE.replace("8080", "9090"))
    manifest = grow([edited, handbook], "r2", "r1", asking)
    assert manifest.delta["chunks_added"] == manifest.delta["chunks_removed"] == 1
    first, second = store.release_dir("default", "r1"), store.release_dir("default", "r2")
    for name in (
        "dense/vectors.npy",
        "dense/ids.npy",
        *(name for name in manifest.files if "/ann/" in name),
    ):
        assert (first / name).samefile(second / name), name
    details = {check.name: check.details for check in manifest.checks}
    assert (
        details["vectors_valid"]
        == "1 vector of length 1, 4 in the file that was proved with release r1"
    )
    assert details["counts_agree"].endswith("the approximate index over 4 of them as in release r1")
    whole = check_again(store, "r2")
    assert (
        whole["vectors_valid"] == "4 vectors of length 1"
        and "release r1" not in whole["counts_agree"]
    )
    opened = release_store.open_release(store, "default")
    assert opened.lexical is not None
    assert opened.lexical.search("8080", 5) == [] and len(opened.lexical.search("9090", 5)) == 1
    opened.close()
    grow([guide, handbook], "r3", "r2", asking)  # A, B, A
    assert content(store, "r3") == content(store, "r1")


@pytest.mark.integration
def test_a_chain_of_deltas_gives_what_full_builds_give(
    store: Store,
    tiny: Strategy,
    make: Callable[..., Live],
    grow: Callable[..., Manifest],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(dense_files, "FRESH_ROWS", 6)
    small = tiny.model_copy(
        update={
            "lexical": ProviderConfig(
                provider="tantivy", options={"bucket_rows": 2, "max_buckets": 6}
            )
        }
    )
    names, rng = [f"note{n}" for n in range(8)], random.Random(11)
    texts = {name: GUIDE.replace("8080", str(n)) for n, name in enumerate(names)}
    parent = None
    for step in range(5):
        live = [make(name, text, small) for name, text in sorted(texts.items())]
        manifest = grow(live, f"r{step}", parent, small)
        assert not manifest.failures and manifest.delta["full_build"] is (step == 0)
        grow(live, f"full{step}", None, small, publish=False)
        assert content(store, f"r{step}") == content(store, f"full{step}")
        parent = f"r{step}"
        for name in rng.sample(names, 3):
            if name in texts and rng.random() < 0.4:
                del texts[name]
            else:
                texts[name] = (
                    rng.choice([GUIDE, HANDBOOK, NOTES]) + f"\nNumber {rng.randrange(100)}.\n"
                )


@pytest.mark.integration
def test_nothing_live_is_an_empty_release(
    store: Store, make: Callable[..., Live], grow: Callable[..., Manifest]
) -> None:
    grow([make("guide", GUIDE)], "r1")
    manifest = grow([], "r2", "r1")
    assert manifest.counts["chunks"] == 0 and not manifest.failures
    grow([], "r3", None)
    opened = release_store.open_release(store, "default", release_id="r3")
    assert opened.lexical is not None and opened.lexical.search("gateway", 3) == []
    opened.close()


@pytest.mark.integration
@pytest.mark.parametrize("encoding", ["sparse_only", "dense_only"])
def test_encoding_decides_which_indexes_exist(
    store: Store,
    tiny: Strategy,
    make: Callable[..., Live],
    grow: Callable[..., Manifest],
    encoding: str,
) -> None:
    strategy = tiny.model_copy(update={"encoding": encoding})
    manifest = grow([make("guide", GUIDE, strategy)], "r1", None, strategy)
    assert not manifest.failures
    opened = release_store.open_release(store, "default", strategy)
    assert (opened.lexical is None, opened.dense is None) == (
        encoding == "dense_only",
        encoding == "sparse_only",
    )
    assert (manifest.embedder is None) == (encoding == "sparse_only")
    opened.close()


@pytest.mark.integration
def test_another_index_profile_forces_a_full_build(
    tiny: Strategy, make: Callable[..., Live], grow: Callable[..., Manifest]
) -> None:
    grow([make("guide", GUIDE)], "r1")
    other = tiny.model_copy(
        update={"embedding": EmbeddingConfig(provider="hashing", options={"dim": 64})}
    )
    manifest = grow([make("guide", GUIDE, other)], "r2", "r1", other)
    assert (
        manifest.delta["full_build"] is True
        and manifest.embedder is not None
        and manifest.embedder.dim == 64
    )


@pytest.mark.integration
def test_a_release_takes_over_no_damaged_file(
    store: Store, make: Callable[..., Live], grow: Callable[..., Manifest]
) -> None:
    """Each vector is still valid, but two stand for the wrong chunks."""
    live = [make("guide", GUIDE), make("notes", NOTES)]
    grow(live, "r1")
    directory = store.release_dir("default", "r1") / "dense"
    ids, sound = dense.read_matrix(directory)
    sound = np.array(sound)
    damaged = np.load(directory / "vectors.npy", mmap_mode="r+")
    damaged[[0, 1]] = damaged[[1, 0]]
    damaged.flush()
    written = (store.release_dir("default", "r1") / "manifest.json").stat().st_mtime_ns
    os.utime(directory / "vectors.npy", ns=(written + 1, written + 1))
    later = [*live, make("dock", "# Dock\n\nThe dock is wet.\n")]
    assert grow(later, "r2", "r1").delta["full_build"] is True
    after_ids, after = dense.read_matrix(store.release_dir("default", "r2") / "dense")
    by_id = dict(zip(after_ids, after, strict=True))
    assert all(np.array_equal(by_id[name], row) for name, row in zip(ids, sound, strict=True))
    # a file that was only touched is whole
    os.utime(store.release_dir("default", "r2") / "catalog.sqlite")
    assert grow(live, "r3", "r2").delta["full_build"] is False


# --- checks -------------------------------------------------------------------------------------


@pytest.mark.integration
def test_a_failed_check_is_recorded_and_never_published(
    store: Store, make: Callable[..., Live], grow: Callable[..., Manifest]
) -> None:
    grow([make("guide", GUIDE)], "r1")
    notes = make("notes", NOTES)
    store.raw_path(notes[1].file_sha256).write_bytes(b"other bytes")
    manifest = grow([make("guide", GUIDE), notes], "r2", "r1", publish=False)
    assert [failure.name for failure in manifest.failures] == ["provenance_proved"]
    assert "docs/notes.txt" in manifest.failures[0].details
    with pytest.raises(ReleaseError, match="provenance_proved") as caught:
        make_public(store, "r2")
    assert caught.value.code == "checks_failed"
    assert release_store.current(store, "default") == "r1"


@pytest.mark.integration
def test_a_text_that_cannot_be_embedded_fails_the_release_until_it_can(
    store: Store,
    tiny: Strategy,
    make: Callable[..., Live],
    grow: Callable[..., Manifest],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from rag_platform.indexes.embedding import EmbeddingReport

    live = [make("guide", GUIDE), make("notes", NOTES)]
    failing = {hashlib.sha256(b"x").hexdigest(): "refused"}

    def refuse(texts: dict[str, str], *_: object, **__: object) -> EmbeddingReport:
        failing.update(
            dict.fromkeys((key for key, text in texts.items() if "2.4.1" in text), "refused")
        )
        return embed(texts, *_, **__) and EmbeddingReport(failed=failing)  # type: ignore[arg-type]

    embed = building.embed_texts
    monkeypatch.setattr(building, "embed_texts", refuse)
    manifest = grow(live, "r1", publish=False)
    assert [failure.name for failure in manifest.failures] == ["embeddings_complete"]
    assert (manifest.counts["failed_embed"], manifest.counts["lexical"]) == (
        1,
        manifest.counts["chunks"],
    )
    monkeypatch.setattr(building, "embed_texts", embed)
    assert not grow(live, "r2", "r1").failures


@pytest.mark.integration
def test_texts_that_share_one_vector_are_not_published(
    store: Store,
    make: Callable[..., Live],
    grow: Callable[..., Manifest],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As an embedder gives that ignores its input: each vector is of length 1."""
    parts = [f"# Part {number}\n\nBay {number} holds crates.\n" for number in range(12)]
    live = [make("guide", GUIDE), make("parts", "\n".join(parts))]
    embed = Hashing.embed

    def same(self: Hashing, texts: Sequence[str]) -> Any:
        return np.repeat(embed(self, ["crates"]), len(texts), axis=0)

    monkeypatch.setattr(Hashing, "embed", same)
    (failure,) = grow(live, "r1", publish=False).failures
    assert failure.name == "vectors_valid" and "texts have the same vector" in failure.details


@pytest.mark.integration
def test_checks_find_damage(
    store: Store, make: Callable[..., Live], grow: Callable[..., Manifest]
) -> None:
    grow([make("guide", GUIDE), make("notes", NOTES)], "r1")
    assert failed_checks(store, "r1") == {}
    directory = store.release_dir("default", "r1") / "dense"
    ids, matrix = dense.read_matrix(directory)
    damaged = np.array(matrix)
    damaged[0] = 0.0
    write_matrix(directory, dim=damaged.shape[1], removed=ids, ids=ids, vectors=damaged)
    failed = failed_checks(store, "r1")
    assert set(failed) == {"vectors_valid", "files_intact"}
    assert ids[0] in failed["vectors_valid"] and "dense/vectors.npy" in failed["files_intact"]
    damaged[:] = matrix[0]
    write_matrix(directory, dim=damaged.shape[1], removed=ids, ids=ids, vectors=damaged)
    assert "texts have the same vector" not in str(failed_checks(store, "r1"))  # of too few texts
    write_matrix(directory, dim=damaged.shape[1], removed=ids[:1], ids=[], vectors=damaged[:0])
    failed = failed_checks(store, "r1")
    assert "1 chunk missing" in failed["counts_agree"]


@pytest.mark.integration
def test_a_missing_stage_output_names_the_version(
    store: Store, tiny: Strategy, make: Callable[..., Live], grow: Callable[..., Manifest]
) -> None:
    guide = make("guide", GUIDE)
    store.version_path(guide[1], "views", stage_profiles(tiny)["views"]).unlink()
    with pytest.raises(IntegrityError, match="has no views") as caught:
        grow([guide], "r1")
    # neither `rag ingest` nor `rag rebuild` runs the stages of what is complete in the ledger
    assert "`rag ingest FILE --policy new_version` makes it anew" in caught.value.message
    assert caught.value.code == "stage_missing"
    assert release_store.list_releases(store, "default") == []


@pytest.mark.integration
def test_a_lost_cache_costs_time_only(
    store: Store, tiny: Strategy, make: Callable[..., Live], grow: Callable[..., Manifest]
) -> None:
    guide = make("guide", GUIDE)
    grow([guide], "r1")
    store.embeddings_path.unlink()
    assert not grow([guide], "r2", None).failures
    info = embedder_info(tiny)
    assert info is not None
    with EmbeddingCache(store.embeddings_path) as cache:
        assert cache.rate(info) is None
        assert (
            len(cache.hits([guide[1].file_sha256], info, text_norm_profile_id(tiny.cleaning))) == 0
        )


# --- a full disk --------------------------------------------------------------------------------


@pytest.mark.integration
def test_a_release_is_not_begun_without_room_for_it(
    store: Store,
    make: Callable[..., Live],
    grow: Callable[..., Manifest],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    guide = make("guide", GUIDE)
    grow([guide], "r1")
    usage = shutil.disk_usage(store.home)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage._replace(free=20_000_000))
    with pytest.raises(
        StorageError, match=r"20\.0 MB are free.*may take [\d.]+ MB.*rag gc"
    ) as caught:
        grow([guide, make("notes", NOTES)], "r2", "r1")
    assert (
        caught.value.code == "disk_full"
        and caught.value.details["needed"] > caught.value.details["free"] == 20_000_000
    )
    assert release_store.current(store, "default") == "r1"
    assert sorted(path.name for path in store.releases_dir("default").iterdir()) == [
        "CURRENT",
        "r1",
    ]


FULL = """
import sys
from rag_platform.config.settings import load_settings
from rag_platform.config.strategies import load_strategy
from rag_platform.errors import StorageError
from rag_platform.releases import building, release_store
from rag_platform.indexes.embedding_cache import EmbeddingCache
from rag_platform.ir import Document, Version
from rag_platform.storage.records import from_json
from rag_platform.storage.store import Store, read_json
building.RESERVE = 0
settings = load_settings()
live = [(from_json(Document, d), from_json(Version, v)) for d, v in read_json(settings.home / \
"live.json")]
store = Store(settings.home)
with EmbeddingCache(store.embeddings_path) as cache:
    try:
        building.build(store, "default", load_strategy(settings), building.LiveVersions(live), \
release_id="r2", lineage=building.Lineage("r1"), cache=cache, settings=settings)
    except StorageError as error:
        print(error.code, [path.name for path in sorted(store.releases_dir("default").iterdir())], \
release_store.current(store, "default"))
"""


@pytest.mark.integration
@pytest.mark.skipif(
    not hasattr(os, "geteuid") or os.geteuid() != 0, reason="mounting a small disk takes root"
)
def test_a_disk_that_fills_up_leaves_the_old_release_live(
    store: Store, make: Callable[..., Live], grow: Callable[..., Manifest]
) -> None:
    from rag_platform.storage.store import write_json

    grow([make("guide", GUIDE)], "r1")
    write_json(store.home / "live.json", [make("guide", GUIDE), make("notes", NOTES)])
    home = shlex.quote(str(store.home))
    # enough for a copy of the home, too few for another release
    inodes = sum(1 for _ in store.home.rglob("*")) + 12
    script = (
        f"cp -a {home} {home}.kept && mount -t tmpfs -o size=64m,nr_inodes={inodes} none {home} &&"
        f" cp -a {home}.kept/. {home}/ && exec {shlex.quote(sys.executable)} -c {shlex.quote(FULL)}"
    )
    done = subprocess.run(
        ["unshare", "-m", "sh", "-c", script], capture_output=True, text=True, check=False
    )
    if "unshare" in done.stderr or "mount" in done.stderr:
        pytest.skip(f"no small disk can be mounted here: {done.stderr.strip()}")
    assert done.stdout.strip() == "disk_full ['CURRENT', 'r1'] r1", done.stderr


# --- publishing ---------------------------------------------------------------------------------


@pytest.mark.integration
def test_rollback_goes_to_the_parent_or_to_a_named_release(
    store: Store, make: Callable[..., Live], grow: Callable[..., Manifest]
) -> None:
    for number, parent in ((1, None), (2, "r1"), (3, "r2")):
        grow([make("guide", GUIDE.replace("8080", str(number)))], f"r{number}", parent)
    assert [manifest.release_id for manifest in release_store.list_releases(store, "default")] == [
        "r3",
        "r2",
        "r1",
    ]
    for parent in ("r2", "r1"):
        assert release_store.before_current(store, "default") == parent
        make_public(store, parent)
    with pytest.raises(ReleaseError, match=r"kept: r3, r2\)"):
        release_store.before_current(store, "default")
    make_public(store, "r3")
    with pytest.raises(NotFoundError, match="r9"):
        make_public(store, "r9")
    assert release_store.current(store, "default") == "r3"


@pytest.mark.integration
def test_clean_keeps_the_published_its_parent_and_the_newest(
    store: Store, make: Callable[..., Live], grow: Callable[..., Manifest]
) -> None:
    for number, parent in ((1, None), (2, "r1"), (3, "r2"), (4, "r3"), (5, "r4")):
        grow([make("guide", GUIDE.replace("8080", str(number)))], f"r{number}", parent)
    make_public(store, "r2")
    (store.releases_dir("default") / ".building-r6" / "lexical").mkdir(parents=True)
    (store.release_dir("default", "half")).mkdir()
    assert sorted(clean(store)) == [
        ".building-r6",
        "half",
        "r3",
    ]
    assert [manifest.release_id for manifest in release_store.list_releases(store, "default")] == [
        "r5",
        "r4",
        "r2",
        "r1",
    ]
    opened = release_store.open_release(store, "default")
    assert opened.manifest.release_id == "r2"
    opened.close()


@pytest.mark.integration
def test_an_open_release_answers_while_the_next_is_built_and_published(
    store: Store, make: Callable[..., Live], grow: Callable[..., Manifest]
) -> None:
    grow([make("guide", GUIDE), make("notes", NOTES)], "r1")
    opened = release_store.open_release(store, "default")
    assert opened.lexical is not None and opened.dense is not None
    vector = np.load(store.release_dir("default", "r1") / "dense" / "vectors.npy")[0]
    before = (
        opened.lexical.search("gateway 8080", 5),
        opened.dense.search(vector, 5, approximate=True),
        opened.catalog.counts(),
    )
    grow([make("guide", GUIDE.replace("8080", "9090"))], "r2", "r1")
    assert (
        opened.lexical.search("gateway 8080", 5),
        opened.dense.search(vector, 5, approximate=True),
        opened.catalog.counts(),
    ) == before
    opened.close()
    assert failed_checks(store, "r1") == {}


KILLED = """
import os, sys
from rag_platform.releases import building
from rag_platform.indexes.embedding_cache import EmbeddingCache
where = sys.argv[1]
def die(*args, **kwargs):
    os.kill(os.getpid(), 9)
module, name = {"replace": (os, "replace"), "flush": (building, "_flush")}.get(where, \
(building, where))
setattr(module, name, die)
from rag_platform.config.settings import load_settings
from rag_platform.config.strategies import load_strategy
from rag_platform.ir import Document, Version
from rag_platform.storage.records import from_json
from rag_platform.storage.store import Store, read_json
settings = load_settings()
live = [(from_json(Document, d), from_json(Version, v)) for d, v in read_json(settings.home / \
"live.json")]
store = Store(settings.home)
with EmbeddingCache(store.embeddings_path) as cache:
    building.build(store, "default", load_strategy(settings), building.LiveVersions(live), \
release_id="r2", lineage=building.Lineage("r1"), cache=cache, settings=settings)
"""


@pytest.mark.integration
@pytest.mark.parametrize("where", ["hash_files", "write_manifest", "flush", "replace"])
def test_kill_at_any_point_leaves_the_old_release_live_and_the_next_run_clean(
    store: Store, make: Callable[..., Live], grow: Callable[..., Manifest], where: str
) -> None:
    from rag_platform.storage.store import write_json

    grow([make("guide", GUIDE)], "r1")
    live = [make("guide", GUIDE), make("notes", NOTES)]
    write_json(store.home / "live.json", live)
    done = subprocess.run([sys.executable, "-c", KILLED, where], env=dict(os.environ), check=False)
    assert done.returncode == -9
    assert release_store.current(store, "default") == "r1"
    assert [manifest.release_id for manifest in release_store.list_releases(store, "default")] == [
        "r1"
    ]
    assert failed_checks(store, "r1") == {}
    assert not grow(live, "r2", "r1").failures
    assert clean(store) == []


# --- opening ------------------------------------------------------------------------------------


def test_opening_says_what_is_missing(store: Store) -> None:
    with pytest.raises(NotFoundError, match="'nowhere'") as caught:
        release_store.open_release(store, "nowhere")
    assert caught.value.code == "unknown_namespace"
    store.releases_dir("default").mkdir(parents=True)
    with pytest.raises(NotFoundError, match="rag ingest") as caught:
        release_store.open_release(store, "default")
    assert caught.value.code == "no_release"
    with pytest.raises(NotFoundError) as caught:
        release_store.open_release(store, "default", release_id="r7")
    assert caught.value.code == "unknown_release"


@pytest.mark.integration
def test_another_embedder_is_refused_naming_both_and_the_remedy(
    store: Store, tiny: Strategy, make: Callable[..., Live], grow: Callable[..., Manifest]
) -> None:
    grow([make("guide", GUIDE)], "r1")
    other = tiny.model_copy(
        update={
            "name": "other",
            "embedding": EmbeddingConfig(provider="hashing", options={"dim": 64}),
        }
    )
    with pytest.raises(
        ReleaseError,
        match=r"vectors of hashing-256, .* with hashing-64; .*rag rebuild --strategy other",
    ) as caught:
        release_store.open_release(store, "default", other)
    assert caught.value.code == "embedder_mismatch"
    release_store.open_release(
        store, "default", tiny.model_copy(update={"encoding": "sparse_only"})
    ).close()


@pytest.mark.integration
def test_a_release_of_a_newer_program_is_refused(
    store: Store, make: Callable[..., Live], grow: Callable[..., Manifest]
) -> None:
    grow([make("guide", GUIDE)], "r1")
    path = store.release_dir("default", "r1") / "manifest.json"
    path.write_text(
        json.dumps({**json.loads(path.read_text()), "schema_version": 99}), encoding="utf-8"
    )
    with pytest.raises(SchemaVersionError, match="schema 99"):
        release_store.open_release(store, "default")


@pytest.mark.integration
def test_a_release_of_the_program_before_is_read(
    store: Store, make: Callable[..., Live], grow: Callable[..., Manifest]
) -> None:
    """Its manifest says everything of versions, and its ids are lines of text."""
    grow([make("guide", GUIDE), make("handbook", HANDBOOK)], "r1")
    before, directory = content(store, "r1"), store.release_dir("default", "r1")
    manifest = read_manifest(directory)
    told = read_json(directory / "manifest.json") | {
        name: getattr(manifest, name) for name in VERSION_FIELDS
    }
    ids = [chunk_id + "\n" for chunk_id in dense_files.read_parts(directory / "dense").ids]
    (directory / "dense" / "ids.txt").write_text("".join(ids), encoding="utf-8")
    for name in ("versions.json", "dense/ids.npy"):
        (directory / name).unlink()
        del told["files"][name]
    told["files"]["dense/ids.txt"] = sha256_file(directory / "dense" / "ids.txt")
    (directory / "manifest.json").write_text(
        json.dumps(told | {"schema_version": 1}), encoding="utf-8"
    )
    assert read_manifest(directory).versions == manifest.versions
    assert [head.versions for head in release_store.list_heads(store, "default")] == [{}]
    assert content(store, "r1") == before and failed_checks(store, "r1") == {}


@pytest.mark.integration
def test_manifest_comes_back_equal(
    store: Store, make: Callable[..., Live], grow: Callable[..., Manifest]
) -> None:
    manifest = grow([make("guide", GUIDE)], "r1")
    assert read_manifest(store.release_dir("default", "r1"), ()) == manifest
    assert Strategy.model_validate(manifest.strategy_config).name == "tiny"
    assert not list(Path(store.releases_dir("default")).glob(".building-*"))


@pytest.mark.parametrize(
    ("name", "before", "after"),
    [
        ("manifest.json", b'"schema_version"', b'"schema_version'),
        ("versions.json", b'"gone"', b'"gone'),
        ("versions.json", b'"fields"', b'"gields"'),
    ],
)
def test_a_damaged_manifest_is_named(
    store: Store,
    make: Callable[..., Live],
    grow: Callable[..., Manifest],
    name: str,
    before: bytes,
    after: bytes,
) -> None:
    grow([make("guide", GUIDE)], "r1")
    path = store.release_dir("default", "r1") / name
    data = path.read_bytes()
    assert before in data
    path.write_bytes(data.replace(before, after))
    with pytest.raises(IntegrityError, match=f"{name} of release r1 cannot be read") as caught:
        read_manifest(path.parent)
    assert caught.value.code == "manifest_damaged"
