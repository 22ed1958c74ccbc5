"""A batch with good and bad files: the good ones answer, the bad ones are told one by one, and a
mended file is taken in again.
"""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import Any

import dagster as dg
import pymupdf
import pytest

from rag_platform.assets.partitions import document_versions
from rag_platform.config.profiles import INGESTION_STAGES

SAMPLES = Path(__file__).resolve().parent.parent / "rag_platform" / "samples"

pytestmark = pytest.mark.integration

ORDERS = "# Orders\n\nAn order is shipped from the Lisbon depot within two days.\n"
RETURNS = "# 退货\n\n退货须在十四天内提出，运费由买家承担。\n"


def statuses(desk: Any, stage: str) -> dict[str, str]:
    """source_uri to what Dagster's UI shows of the stage's partition; files that never became a
    version are absent.
    """
    with desk.ledger() as ledger, dg.DagsterInstance.get() as instance:
        versions = {v.version_id: v.source_uri for v in ledger.versions("default")}
        keys = instance.get_dynamic_partitions(document_versions.name or "")
        found = instance.get_status_by_partition(dg.AssetKey(stage), keys, document_versions) or {}
        return {versions[key]: status.value if status else "none" for key, status in found.items()}


def failures(answer: Any) -> dict[str, str]:
    """source_uri to code of each failure of an ingest."""
    return {item["source_uri"]: item["code"] for item in answer.data["failures"]}


@pytest.fixture(scope="module")
def batch(shared_desk: Any) -> Any:
    """The answer of an ingest over four good files, seven bad ones, one that no loader reads and
    one that is not there.
    """
    docs = shared_desk.docs
    (docs / "orders.md").write_text(ORDERS, encoding="utf-8")
    (docs / "退货.md").write_text(RETURNS, encoding="utf-8")
    (docs / "odd.md").write_bytes(
        "# Odd\n\nThe café sells ".encode() + b"\xed\xa0\x80 and \xff tea.\n"
    )
    (docs / "empty.md").write_bytes(b"")
    (docs / "blank.md").write_text(" \n\n", encoding="utf-8")
    (docs / "picture.pdf").write_bytes((SAMPLES / "images" / "parcel-flow.png").read_bytes())
    whole = (SAMPLES / "datasheet.pdf").read_bytes()
    (docs / "half.pdf").write_bytes(whole[: len(whole) // 2])
    (docs / "cut.pdf").write_bytes(whole[:400])
    (docs / "program.md").write_bytes(b"\x7fELF\x02\x01\x01\x00" + bytes(range(256)) * 4)
    with pymupdf.open() as document:
        document.new_page().insert_text((72, 72), "Nobody can read this.")
        document.save(
            docs / "locked.pdf",
            encryption=pymupdf.PDF_ENCRYPT_AES_256,
            user_pw="secret",
            owner_pw="owner",
        )
    with zipfile.ZipFile(docs / "letter.docx", "w") as letter:
        letter.writestr("[Content_Types].xml", "<Types/>")
        letter.writestr("word/document.xml", "<document/>")
    return shared_desk.call("ingest", docs)


def test_the_batch_is_done_in_part(batch: Any) -> None:
    assert batch.exit_code == 3 and batch.envelope["ok"]
    assert (batch.data["new"], batch.data["ignored"]) == (4, 1)
    assert failures(batch) == {
        "docs/blank.md": "empty_file",
        "docs/cut.pdf": "broken_file",
        "docs/empty.md": "empty_file",
        "docs/locked.pdf": "encrypted",
        "docs/picture.pdf": "unsupported_type",
        "docs/program.md": "binary_content",
    }
    assert batch.data["failed"] == 6
    reasons = {item["source_uri"]: item["reason"] for item in batch.data["failures"]}
    assert (
        "image/png" in reasons["docs/picture.pdf"]
        and "password" in reasons["docs/locked.pdf"]
        and "qpdf" in reasons["docs/cut.pdf"]
    )
    assert [item["source_uri"] for item in batch.data["ignored_files"]] == ["docs/letter.docx"]
    assert "add the loader `docx`" in batch.data["ignored_files"][0]["reason"]
    assert "- ignored: 1 (no loader reads .docx files): docs/letter.docx" in batch.data["markdown"]
    for item in batch.data["failures"]:
        assert (
            f"- failed: {item['source_uri']}: [{item['code']}] {item['reason']}"
            in batch.data["markdown"]
        )


def test_the_good_ones_answer(shared_desk: Any, batch: Any) -> None:
    orders = shared_desk.call("query", "Where is an order shipped from?", "--mode", "sparse").data
    assert (
        "Lisbon depot" in orders["answer_markdown"]
        and orders["citations"][0]["source_uri"] == "docs/orders.md"
    )
    assert (
        "十四天"
        in shared_desk.call("query", "退货须在几天内提出", "--mode", "sparse").data[
            "answer_markdown"
        ]
    )
    odd = shared_desk.call("query", "What does the café sell?", "--mode", "sparse").data
    assert odd["citations"][0]["source_uri"] == "docs/odd.md"
    assert [w for w in batch.envelope["warnings"] if w.startswith("docs/odd.md") and "UTF-8" in w]
    assert shared_desk.call("verify", "--all").data["failed"] == 0


def test_a_pdf_in_part_is_never_silent(shared_desk: Any, batch: Any) -> None:
    data = shared_desk.call(
        "query", "What is the maximum throughput of the PX-40?", "--mode", "sparse"
    ).data
    assert (
        data["citations"][0]["source_uri"] == "docs/half.pdf"
        and "11,400 parcels/h" in data["answer_markdown"]
    )
    assert [w for w in batch.envelope["warnings"] if "half.pdf" in w] == [
        "docs/half.pdf: pages 3-4: nothing could be read",
        "docs/half.pdf: pages 3-4: its content is missing from the file",
    ]


@pytest.mark.usefixtures("batch")
def test_dagster_leaves_exactly_the_failed_partitions_empty(shared_desk: Any) -> None:
    embeddings = statuses(shared_desk, "embeddings")
    good = {"docs/orders.md", "docs/退货.md", "docs/odd.md", "docs/half.pdf"}
    assert {uri for uri, status in embeddings.items() if status == "MATERIALIZED"} == good
    assert {uri: status for uri, status in embeddings.items() if uri not in good} == dict.fromkeys(
        (
            "docs/blank.md",
            "docs/cut.pdf",
            "docs/empty.md",
            "docs/locked.pdf",
            "docs/picture.pdf",
            "docs/program.md",
        ),
        "none",
    )
    for stage in INGESTION_STAGES:
        assert {
            uri for uri, status in statuses(shared_desk, stage).items() if status == "MATERIALIZED"
        } >= good
    # the bytes of a bad file are stored and proved: only what could not be made of them failed
    assert statuses(shared_desk, "raw_document")["docs/cut.pdf"] == "MATERIALIZED"


@pytest.mark.usefixtures("batch")
def test_a_document_that_failed_is_told_as_that(shared_desk: Any, batch: Any) -> None:
    reasons = {item["source_uri"]: item["reason"] for item in batch.data["failures"]}
    error = shared_desk.call("docs", "show", "docs/cut.pdf").error
    assert error["code"] == "not_published"
    assert error["message"].endswith(f"[broken_file] {reasons['docs/cut.pdf']}")


def test_a_list_of_documents_shows_the_failed_ones(shared_desk: Any) -> None:
    failed = shared_desk.call("docs", "list", "--filter", "status=failed").data
    assert sorted(d["filename"] for d in failed["groups"][0]["documents"]) == [
        "blank.md",
        "cut.pdf",
        "empty.md",
        "locked.pdf",
        "picture.pdf",
        "program.md",
    ]


@pytest.mark.usefixtures("batch")
def test_a_mended_file_clears_its_failure_and_the_others_are_tried_again(shared_desk: Any) -> None:
    docs = shared_desk.docs
    (docs / "empty.md").write_text("# Filled\n\nThe quota is 40 pallets.\n", encoding="utf-8")
    (docs / "picture.pdf").unlink()
    again = shared_desk.call("ingest", docs, "--sync")
    assert again.exit_code == 3
    assert (again.data["new_versions"], again.data["skipped"], again.data["retired"]) == (1, 4, 1)
    assert sorted(failures(again)) == [
        "docs/blank.md",
        "docs/cut.pdf",
        "docs/locked.pdf",
        "docs/program.md",
    ]
    assert statuses(shared_desk, "embeddings")["docs/empty.md"] == "MATERIALIZED"
    quota = shared_desk.call("query", "What is the quota?", "--mode", "sparse").data
    assert "40 pallets" in quota["answer_markdown"]
    listed = shared_desk.call("docs", "list", "--filter", "status=failed").data
    assert "empty.md" not in [d["filename"] for g in listed["groups"] for d in g["documents"]]


@pytest.mark.usefixtures("batch")
def test_a_broken_change_leaves_the_earlier_version_live(shared_desk: Any) -> None:
    orders = shared_desk.docs / "orders.md"
    before = shared_desk.call("query", "Where is an order shipped from?", "--mode", "sparse").data[
        "citations"
    ][0]
    orders.write_bytes(b"\x7fELF\x02\x01\x01\x00" + bytes(range(256)) * 4)
    broken = shared_desk.call("ingest", orders)
    assert broken.exit_code == 1 and failures(broken) == {"docs/orders.md": "binary_content"}
    data = shared_desk.call("query", "Where is an order shipped from?", "--mode", "sparse").data
    assert data["citations"][0] == before and "Lisbon depot" in data["answer_markdown"]
    with shared_desk.ledger() as ledger:
        assert ledger.document("default", before["doc_id"]).live_version == before["version_id"]

    orders.write_text(ORDERS.replace("Lisbon", "Porto"), encoding="utf-8")
    assert shared_desk.call("ingest", orders).exit_code == 0
    data = shared_desk.call("query", "Where is an order shipped from?", "--mode", "sparse").data
    assert (
        "Porto depot" in data["answer_markdown"]
        and data["citations"][0]["doc_id"] == before["doc_id"]
    )


def test_nothing_but_bad_files_is_nothing_done(desk: Any) -> None:
    (desk.docs / "empty.md").write_bytes(b"")
    answer = desk.call("ingest", desk.docs)
    assert answer.exit_code == 1 and failures(answer) == {"docs/empty.md": "empty_file"}
    assert answer.error["code"] == "empty_file" and not answer.envelope["ok"]
    assert answer.data["release_id"] is None and "Nothing is published." in answer.data["markdown"]


@pytest.mark.parametrize(
    ("name", "meant"), [("gone.md", "did you mean 'gome.md'?"), ("elsewhere", "")]
)
def test_a_missing_path_is_wrong_usage_and_starts_nothing(desk: Any, name: str, meant: str) -> None:
    (desk.docs / "gome.md").touch()
    answer = desk.call("ingest", desk.docs / "gome.md", desk.docs / name)
    assert answer.exit_code == 2 and answer.envelope["error"]["code"] == "missing_path"
    assert answer.envelope["error"]["message"].partition("; ")[2] == meant
    assert desk.call("namespaces", "list").data["namespaces"] == []
    assert not (desk.store.logs_dir / "jobs").exists() and not desk.store.dagster_dir.exists()


def test_a_document_that_another_config_cannot_read_is_told(desk: Any) -> None:
    """Everything live is rebuilt under the new config; what cannot be is named with its reason, and
    the published release stays.
    """
    desk.write(orders=ORDERS, dock="# Dock\n\nThe dock holds 12 trucks.\n")
    first = desk.call("ingest", desk.docs).data["release_id"]
    with desk.ledger() as ledger:
        lost = next(
            version for _, version in ledger.live("default") if version.filename == "dock.md"
        )
    desk.store.raw_path(lost.file_sha256).unlink()
    (desk.docs / "dock.md").unlink()
    strategy = desk.folder / "config" / "strategies" / "tiny.yaml"
    strategy.write_text(
        strategy.read_text(encoding="utf-8").replace("chunk_size: 400", "chunk_size: 300"),
        encoding="utf-8",
    )
    told = desk.call("ingest", desk.docs)
    assert told.exit_code == 1 and "raw_missing" in told.error["message"]
    assert [(item["source_uri"], item["code"]) for item in told.error["details"]["failures"]] == [
        ("docs/dock.md", "raw_missing")
    ]
    assert told.error["details"]["release_id"] == first

    (desk.docs / "dock.md").write_text("# Dock\n\nThe dock holds 12 trucks.\n", encoding="utf-8")
    mended = desk.call("ingest", desk.docs)
    assert mended.exit_code == 0 and mended.data["release_id"] != first


def test_an_embedder_that_is_not_set_up_stops_an_ingest_before_its_job(desk: Any) -> None:
    """Nothing is received, so that no document counts as failed once the config is mended."""
    desk.write(orders=ORDERS)
    strategy = desk.folder / "config" / "strategies" / "tiny.yaml"
    remote = "provider: openai\n  options: {model: small}\n"
    strategy.write_text(
        strategy.read_text(encoding="utf-8").replace("provider: hashing\n", remote),
        encoding="utf-8",
    )
    told = desk.call("ingest", desk.docs)
    assert (told.exit_code, told.error["code"]) == (1, "invalid_config")
    assert "`dim`, the length of its vectors" in told.error["message"]
    with desk.ledger() as ledger:
        assert (ledger.jobs("default"), ledger.namespaces()) == ([], {})
