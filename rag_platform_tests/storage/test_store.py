"""The store: atomic files, spooling with its hash, records through Parquet."""

from __future__ import annotations

import hashlib
import io
import os
import threading
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from rag_platform.assets.instance import prepare
from rag_platform.errors import BusyError, IntegrityError, SchemaVersionError
from rag_platform.ir import Block, Chunk, Facts, MediaRef, ParseSummary, Section
from rag_platform.ledger.ledger import open_ledger
from rag_platform.ledger.servers import server_id
from rag_platform.storage import records as records_module
from rag_platform.storage.records import from_json, to_json
from rag_platform.storage.store import (
    Store,
    atomic_path,
    read_columns,
    read_json,
    read_record,
    read_records,
    write_json,
    write_records,
)
from rag_platform.web.tokens import Tokens


def test_spooling_stores_the_bytes_under_their_hash(tmp_path: Path) -> None:
    store = Store(tmp_path)
    digest, size = store.spool(io.BytesIO(b"hello world"), chunk_size=4, max_bytes=100)
    assert (digest, size) == (hashlib.sha256(b"hello world").hexdigest(), 11)
    assert store.raw_path(digest).read_bytes() == b"hello world"
    assert list(store.spool_dir.iterdir()) == []


def test_a_new_data_root_is_for_its_owner_and_one_that_is_there_stays_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("DAGSTER_HOME", "DAGSTER_EVENT_BATCH_SIZE"):  # set by `prepare`
        monkeypatch.setenv(name, "")
    shared = tmp_path / "shared"
    shared.mkdir(mode=0o755)
    for home, mode in ((tmp_path / "above" / "new", 0o700), (shared, 0o755)):
        store = Store(home)
        with store.writer("default", "test"), store.scratch():
            assert home.stat().st_mode & 0o777 == mode
    for number, write in enumerate(
        (server_id, lambda it: Tokens(it).create("joe", "read"), prepare)
    ):
        store = Store(tmp_path / str(number))
        write(store)
        assert store.home.stat().st_mode & 0o777 == 0o700
    with closing(open_ledger(Store(tmp_path / "ledger"))) as ledger:
        ledger.bind_strategy("default", "default", "x")
    assert (tmp_path / "ledger").stat().st_mode & 0o777 == 0o700


def test_a_file_above_the_limit_leaves_nothing_behind(tmp_path: Path) -> None:
    store = Store(tmp_path)
    with pytest.raises(IntegrityError, match="max_bytes = 10"):
        store.spool(io.BytesIO(b"x" * 11), chunk_size=4, max_bytes=10)
    assert list(store.spool_dir.iterdir()) == []
    assert not (tmp_path / "raw").exists()


def test_a_failed_write_keeps_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "pointer"
    path.write_text("old", encoding="utf-8")
    with pytest.raises(RuntimeError), atomic_path(path) as temporary:
        temporary.write_text("half", encoding="utf-8")
        raise RuntimeError
    assert path.read_text(encoding="utf-8") == "old"
    assert [p.name for p in tmp_path.iterdir()] == ["pointer"]


def test_records_survive_parquet(tmp_path: Path) -> None:
    rows = [
        Block(0, "heading", 0, 5, level=1, byte_start=0, byte_end=7, line_start=1, line_end=1),
        Block(1, "table", 6, 40, page=3, bbox=(1.0, 2.5, 3.0, 4.0)),
    ]
    path = tmp_path / "blocks.parquet"
    write_records(path, Block, rows)
    assert read_records(path, Block) == rows
    write_records(path, Block, [])
    assert read_records(path, Block) == []


def test_equal_records_give_equal_bytes(tmp_path: Path) -> None:
    rows = [Section("sec_1", "A / B", 2, 0, 0, 10, title="B")]
    assert write_records(tmp_path / "a.parquet", Section, rows) == write_records(
        tmp_path / "b.parquet", Section, rows
    )


def test_a_file_of_another_record_or_schema_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "x.parquet"
    write_records(path, Section, [])
    with pytest.raises(SchemaVersionError, match="Section"):
        read_records(path, Chunk)
    monkeypatch.setattr(records_module, "SCHEMA_VERSION", 2)
    with pytest.raises(SchemaVersionError, match="schema 1"):
        read_records(path, Section)


def test_records_survive_json(tmp_path: Path) -> None:
    summary = ParseSummary(
        "markdown",
        "1",
        "markdown-it-py",
        "4",
        "p",
        "0" * 64,
        12,
        pages_without_text=(2, 3),
        metadata={"a": [1]},
        warnings=("w",),
    )
    write_json(tmp_path / "s.json", summary)
    assert from_json(ParseSummary, read_json(tmp_path / "s.json")) == summary
    assert (
        to_json(Facts("t", (), (MediaRef("r", "pdf", "pdf:xref=1"),), summary))["media"][0][
            "origin_ref"
        ]
        == "pdf:xref=1"
    )


def test_a_second_writer_is_told_who_holds_the_lock_and_for_how_long(
    tmp_path: Path, elsewhere: Any
) -> None:
    store = Store(tmp_path)
    with elsewhere(store.writer("lib", "run 1")):
        with (
            pytest.raises(BusyError, match=rf"run 1 \(process {os.getpid()}, for \d s\)") as raised,
            store.writer("lib", "run 2"),
        ):
            pass
        assert raised.value.details["owner"] == "run 1"
        with store.writer("other", "run 2"):
            pass


def test_a_writer_may_take_its_lock_again(tmp_path: Path, elsewhere: Any) -> None:
    store = Store(tmp_path)
    with store.writer("lib", "job 1"), store.writer("lib", "its run"), elsewhere(store.receiving()):
        with store.receiving():
            pass
        with pytest.raises(BusyError, match="files are being received"), store.collecting("gc"):
            pass


def test_a_writer_may_wait_for_another(tmp_path: Path) -> None:
    store, inside = Store(tmp_path), threading.Event()

    def hold() -> None:
        with store.writer("lib", "run 1"):
            inside.set()
            time.sleep(0.3)

    thread = threading.Thread(target=hold)
    thread.start()
    assert inside.wait(60)
    with store.writer("lib", "run 2", wait=60):
        thread.join(60)
        assert not thread.is_alive()


def test_who_shares_a_lock_cannot_hold_it_alone_as_well(tmp_path: Path, elsewhere: Any) -> None:
    store = Store(tmp_path)
    with elsewhere(store.receiving()), store.receiving():
        with pytest.raises(BusyError, match="by this thread itself"), store.collecting("gc"):
            pytest.fail("somebody else receives, and garbage is collected")
        with store.receiving():
            pass
    # alone is more than shared
    with store.collecting("gc"), store.collecting("gc"), store.receiving():
        pass


@pytest.mark.parametrize("written", [b"", b'{"pages": ', b"\xff\xfe", b"[]", b"7", b'{"other": 1}'])
def test_a_damaged_json_file_is_named_with_the_remedy(tmp_path: Path, written: bytes) -> None:
    path = tmp_path / "facts" / "summary.json"
    path.parent.mkdir()
    (tmp_path / "releases").mkdir()
    path.write_bytes(written)
    with pytest.raises(
        IntegrityError, match=r"\); `rag ingest FILE --policy new_version`"
    ) as raised:
        read_record(path, ParseSummary)
    assert raised.value.code == "damaged_file"
    assert raised.value.message.startswith("facts/summary.json is damaged (")


def test_a_damaged_parquet_file_is_named_with_the_remedy(tmp_path: Path) -> None:
    path = tmp_path / "sections.parquet"
    write_records(path, Section, [Section("sec_1", "A / B", 2, 0, 0, 10, title="B")])
    whole = path.read_bytes()
    for data in (b"", whole[:50], whole[:-40] + bytes(40), whole[:8] + b"\x5a" * 200 + whole[-8:]):
        path.write_bytes(data)
        for read in (
            lambda: read_records(path, Section, "take another"),
            lambda: read_columns(path, ("section_id",)),
        ):
            with pytest.raises(IntegrityError) as raised:
                read()
            assert raised.value.code == "damaged_file"
            assert raised.value.message.startswith(f"{path} is damaged (")
            assert raised.value.message.isprintable()
    with pytest.raises(IntegrityError, match=r"\); take another$"):
        read_records(path, Section, "take another")
    with pytest.raises(IntegrityError, match=r"--policy new_version` makes it anew$"):
        read_records(path, Section)
