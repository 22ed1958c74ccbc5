"""The samples from folder to cited answer, driven as a user drives the program. The first ingest, a
question and the proof are processes of their own; what only does so once more runs in this one.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp import Client, StdioServerParameters
from mcp.client.stdio import stdio_client

from rag_platform.observability.trace_reader import show
from rag_platform_tests.conftest import WITH_LAYOUT

SAMPLES = Path(__file__).resolve().parent.parent / "rag_platform" / "samples"

pytestmark = pytest.mark.e2e


@pytest.fixture(scope="module")
def samples(shared_desk: Any) -> Path:
    """A copy of the samples that a test may change."""
    return Path(shutil.copytree(SAMPLES, shared_desk.folder / "samples"))


@pytest.fixture(scope="module")
def first(shared_desk: Any, samples: Path) -> Any:
    """The answer of the first `rag ingest samples`, PDF pages read with the layout model."""
    strategy = shared_desk.folder / "config" / "strategies" / "tiny.yaml"
    strategy.write_text(WITH_LAYOUT)
    return shared_desk.rag("ingest", samples, "--tag", "pegasus")


def test_the_first_ingest_tells_what_it_did(first: Any, shared_desk: Any) -> None:
    assert first.exit_code == 0 and first.envelope["ok"] and first.envelope["error"] is None
    assert first.envelope["trace_id"].startswith("trc_")
    told = {
        key: first.data[key]
        for key in ("new", "new_versions", "skipped", "failed", "ignored", "failures", "warnings")
    }
    assert told == {
        "new": 5,
        "new_versions": 0,
        "skipped": 0,
        "failed": 0,
        "ignored": 1,
        "failures": [],
        "warnings": [],
    }
    assert [(d["source_uri"], d["decision"]) for d in first.data["documents"]] == [
        ("samples/changelog.md", "new"),
        ("samples/datasheet.pdf", "new"),
        ("samples/faq-zh.md", "new"),
        ("samples/guide-zh.md", "new"),
        ("samples/handbook.md", "new"),
    ]
    assert all(
        d["version_id"].startswith(f"default.{d['doc_id']}@") for d in first.data["documents"]
    )
    assert (
        first.data["chunks"] == first.data["embeddings_computed"] > 30
        and first.data["embeddings_reused"] == 0
    )
    assert first.data["job_id"].startswith("job_") and first.data["seconds"] > 0
    assert (
        shared_desk.store.current_path("default").read_text(encoding="utf-8").strip()
        == first.data["release_id"]
    )
    assert str(shared_desk.folder) not in first.data["markdown"]


@pytest.mark.usefixtures("first")
def test_a_chinese_question_is_answered_with_its_lines(shared_desk: Any, samples: Path) -> None:
    data = shared_desk.rag("query", "主机失去心跳多久后备机接管？").data
    assert (
        "主机失去心跳超过 5 秒后，备机自动接管" in data["answer_markdown"]
        and "[1]" in data["answer_markdown"]
    )
    cited = data["citations"][0]
    assert (cited["source_uri"], cited["section_path"]) == (
        "samples/guide-zh.md",
        "Pegasus 分拣系统使用手册 / 系统组成",
    )
    begin, end = cited["line_range"]
    lines = (samples / "guide-zh.md").read_text(encoding="utf-8").split("\n")[begin - 1 : end]
    assert cited["text"] == "\n".join(lines).strip()


@pytest.mark.usefixtures("first")
def test_a_value_of_a_pdf_table_is_answered_with_its_page(shared_desk: Any) -> None:
    # by words: the vectors of the strategy `tiny` mean nothing
    data = shared_desk.call(
        "query", "What is the maximum throughput of the PX-40?", "--mode", "sparse"
    ).data
    assert (
        "| Maximum throughput | 6,200 parcels/h | 11,400 parcels/h | 15,800 parcels/h |"
        in data["answer_markdown"]
    )
    cited = data["citations"][0]
    assert (cited["source_uri"], cited["page_range"]) == ("samples/datasheet.pdf", [2, 2])
    assert cited["section_path"].endswith("2 Technical data")
    assert (
        "samples/datasheet.pdf, Pegasus PX series data sheet / 2 Technical data / 2.1 Ratings,"
        " page 2" in data["markdown"]
    )


@pytest.mark.usefixtures("first")
def test_an_identifier_comes_first(shared_desk: Any) -> None:
    data = shared_desk.call("query", "PPR-9087").data
    assert ["PPR-9087" in r["citation"]["text"] for r in data["results"][:3]] == [True, True, False]
    assert (
        data["results"][0]["citation"]["source_uri"] == "samples/changelog.md"
        and data["effective_mode"] == "hybrid"
    )


@pytest.mark.usefixtures("first")
def test_every_quote_is_proved(shared_desk: Any, first: Any) -> None:
    answer = shared_desk.rag("verify", "--all")
    assert answer.exit_code == 0
    assert (answer.data["checked"], answer.data["failed"], answer.data["failures"]) == (
        first.data["chunks"],
        0,
        [],
    )
    one = shared_desk.call("query", "PPR-9087").data["results"][0]["chunk_id"]
    assert shared_desk.call("verify", one).data["checked"] == 1


@pytest.mark.usefixtures("first")
def test_a_second_ingest_starts_no_process(shared_desk: Any, samples: Path) -> None:
    jobs_before = sorted((shared_desk.store.logs_dir / "jobs").iterdir())
    again = shared_desk.rag("ingest", samples)
    assert again.exit_code == 0
    told = {
        key: again.data[key]
        for key in ("new", "new_versions", "skipped", "failed", "chunks", "embeddings_computed")
    }
    assert told == {
        "new": 0,
        "new_versions": 0,
        "skipped": 5,
        "failed": 0,
        "chunks": 0,
        "embeddings_computed": 0,
    }
    assert sorted((shared_desk.store.logs_dir / "jobs").iterdir()) == jobs_before
    with shared_desk.ledger() as ledger:
        assert (
            ledger.job(again.data["job_id"]).state == "done"
            and ledger.job(again.data["job_id"]).pid == 0
        )


@pytest.mark.usefixtures("first")
def test_what_is_there_can_be_listed_and_shown(shared_desk: Any, first: Any) -> None:
    listed = shared_desk.call("docs", "list", "--group-by", "tags").data
    groups = {group["key"]: group for group in listed["groups"]}
    assert (listed["total"], groups["pegasus"]["count"], groups["handbook"]["count"]) == (5, 5, 1)
    handbook = groups["handbook"]["documents"][0]
    assert (handbook["title"], handbook["status"], handbook["filename"]) == (
        "Pegasus Operator Handbook",
        "active",
        "handbook.md",
    )
    # the first was given with the ingest, the second stands in the front matter
    assert {"pegasus", "handbook"} <= set(handbook["tags"])

    shown = shared_desk.call("docs", "show", handbook["doc_id"]).data["document"]
    assert [s["title"] for s in shown["sections"] if s["level"] == 2][:3] == [
        "Concepts",
        "Daily operation",
        "Configuration",
    ]
    text = shared_desk.call("docs", "show", handbook["doc_id"], "--format", "md").data["document"][
        "md_text"
    ]
    (asset,) = shown["asset_ids"]
    original = (SAMPLES / "handbook.md").read_text(encoding="utf-8")
    assert text == original.replace("images/parcel-flow.png", f"asset://{asset}")

    datasheet = next(d for d in groups["pegasus"]["documents"] if d["filename"] == "datasheet.pdf")
    dropped = shared_desk.call("docs", "show", datasheet["doc_id"], "--dropped").data
    header = {  # the first of them stays
        "page": 2,
        "reason": "repeated_header",
        "text": "Pegasus PX series - data sheet DS-7714, revision C",
    }
    assert dropped["dropped"][:2] == [
        {"page": 1, "reason": "repeated_footer", "text": "Page 1 of 4"},
        header,
    ]
    assert dropped["words"] == {"repeated_footer": 16, "repeated_header": 27}
    assert dropped["text_kept"]["found"] / dropped["text_kept"]["words"] > 0.98
    assert "- page 1: repeated_footer: Page 1 of 4" in dropped["markdown"]

    sources = shared_desk.call("sources", "list").data["sources"]
    assert [(s["name"], s["kind"], s["documents"]) for s in sources] == [("samples", "folder", 5)]
    releases = shared_desk.call("releases", "list").data["releases"]
    assert [(r["release_id"], r["state"], r["counts"]["documents"]) for r in releases] == [
        (first.data["release_id"], "published", 5)
    ]
    manifest = shared_desk.call("releases", "show").data["manifest"]
    assert (
        manifest["release_id"] == first.data["release_id"]
        and sum(manifest["versions"].values()) == first.data["chunks"]
    )
    assert (
        all(check["passed"] for check in manifest["checks"])
        and manifest["embedder"]["embedder_id"] == "hashing-256"
    )


@pytest.mark.usefixtures("first")
def test_what_happened_can_be_read(shared_desk: Any, first: Any) -> None:
    asked = shared_desk.call("query", "emergency stop").envelope["trace_id"]
    traces = shared_desk.call("trace", "list").data["traces"]
    assert asked in [t["trace_id"] for t in traces]
    assert {
        t["trace_type"]
        for t in shared_desk.call("trace", "list", "--type", "ingestion").data["traces"]
    } == {"ingestion"}
    shown = shared_desk.call("trace", "show", asked[:14])
    assert shown.envelope["trace_id"] == asked and "stage.retrieve_sparse" in shown.data["markdown"]
    stages = {
        span["name"]
        for span in show(shared_desk.store.logs_dir, first.envelope["trace_id"])["spans"]
    }
    assert {"stage.loader", "stage.sectioner", "stage.chunker", "stage.embedding"} <= stages
    findings = shared_desk.call("doctor")
    assert findings.exit_code == 0 and {f["level"] for f in findings.data["findings"]} <= {
        "ok",
        "warning",
    }
    assert str(shared_desk.folder) not in json.dumps(findings.data["config"])


@pytest.mark.usefixtures("first")
def test_an_edit_a_rollback_and_the_way_forward_again(
    shared_desk: Any, samples: Path, first: Any
) -> None:
    """Every process reads what is published at that moment; going back computes nothing, going
    forward again neither.
    """

    def answer() -> str:
        return str(
            shared_desk.call(
                "query", "How many rounds before the exception chute?", "--mode", "sparse"
            ).data["answer_markdown"]
        )

    handbook = samples / "handbook.md"
    assert "After three rounds" in answer()
    handbook.write_text(
        handbook.read_text(encoding="utf-8").replace("After three rounds", "After seven rounds"),
        encoding="utf-8",
    )
    edited = shared_desk.call("ingest", samples)
    told = {
        key: edited.data[key] for key in ("new", "new_versions", "skipped", "embeddings_computed")
    }
    assert told == {"new": 0, "new_versions": 1, "skipped": 4, "embeddings_computed": 1}
    assert "After seven rounds" in answer()

    back = shared_desk.call("releases", "rollback")
    assert (
        back.data["release"]["release_id"] == first.data["release_id"]
        and back.data["release"]["state"] == "published"
    )
    assert "After three rounds" in answer()
    states = [r["state"] for r in shared_desk.call("releases", "list").data["releases"]]
    assert states == ["retired", "published"]

    # A rollback is a decision: taking in files that did not change, as every night does, leaves it
    # standing.
    again = shared_desk.call("ingest", samples)
    assert (again.exit_code, again.data["skipped"], again.data["release_id"]) == (
        0,
        5,
        first.data["release_id"],
    )
    assert "After three rounds" in answer()

    forward = shared_desk.call("releases", "rollback", edited.data["release_id"])
    assert forward.data["release"]["release_id"] == edited.data["release_id"]
    assert "After seven rounds" in answer()
    assert shared_desk.call("verify", "--all").exit_code == 0


@pytest.mark.usefixtures("first")
def test_a_served_library_moves_to_a_new_release_without_a_restart(shared_desk: Any) -> None:
    """An assistant's session stays open over an ingest: its next question sees the new release, and
    none fails meanwhile.
    """
    extra = shared_desk.folder / "extra"
    extra.mkdir()
    (extra / "badge.md").write_text(
        "# Badge\n\nVisitors get badge 4711 at the porter.\n", encoding="utf-8"
    )

    async def ask(client: Client) -> Any:
        return (
            await client.call_tool("library_query", {"query": "badge 4711", "mode": "sparse"})
        ).structured_content["data"]

    async def session() -> tuple[list[str], dict[str, Any], int]:
        server = StdioServerParameters(
            command=sys.executable,
            args=["-m", "rag_platform.cli.main", "serve"],
            env=dict(os.environ),
        )
        with open(shared_desk.folder / "serve.txt", "w", encoding="utf-8") as log:
            async with Client(stdio_client(server, errlog=log)) as client:
                seen = [(await ask(client))["release_id"]]
                process = shared_desk.start("ingest", extra)
                asked = 0
                while process.poll() is None:
                    seen.append((await ask(client))["release_id"])
                    asked += 1
                    await anyio.sleep(0.05)
                said, _ = process.communicate()
                assert process.returncode == 0, said
                return seen, await ask(client), asked

    seen, last, asked = anyio.run(session)
    published = shared_desk.store.current_path("default").read_text(encoding="utf-8").strip()
    assert asked > 3 and set(seen) <= {seen[0], published} and published != seen[0]
    assert last["release_id"] == published and "badge 4711" in last["answer_markdown"]
    [source] = last["documents"].values()
    assert source["source_uri"] == "extra/badge.md"
