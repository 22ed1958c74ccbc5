"""Every kind of event that is declared happens in real work."""

from __future__ import annotations

import io
import json
import re
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from PIL import Image

from rag_platform.api.traces import list_traces
from rag_platform.config.folders import SHIPPED
from rag_platform.observability.trace_reader import show
from rag_platform.observability.trace_store.tables import open_tables
from rag_platform.observability.tracing import EVENT_KINDS
from rag_platform.storage.evaluation_files import DATABASE
from rag_platform_tests.chat_server import Reply, chat_server, refused, said
from rag_platform_tests.conftest import TINY, Desk, seated

GUIDE = "# Limits\n\nThe largest upload is 50 MB.\n\n![A plug](plug.png)\n"
MANUAL = "# Errors\n\nError PPR-9087 means that the licence server is away.\n"
ZENITH = "".join(
    f"# Part {n}\n\nZenith {text}.\n\n"
    for n, text in enumerate(
        ("has a pump", "needs 5 bar", "is blue", "was built", "is sold", "is old")
    )
)
CAPTION = {
    "image_type": "photo",
    "summary": "A grey square.",
    "key_points": ["a square"],
    "entities": [],
    "numbers": [],
    "uncertainties": [],
}

pytestmark = pytest.mark.e2e


class Model:
    """Describes pictures, answers questions, and fails where it is told to."""

    fails = False

    def __call__(self, body: dict[str, Any], number: int) -> Reply:
        if self.fails:
            return refused(400, "not now")
        if any(isinstance(message["content"], list) for message in body["messages"]):
            return said(json.dumps(CAPTION))
        if "response_format" in body:  # a gate judges no release of which the reranker failed
            ids = re.findall(r'"id": (\d+)', body["messages"][-1]["content"])
            return said(json.dumps({"grades": [{"id": int(n), "grade": 5} for n in ids]}))
        return said("The largest upload is 50 MB. [1]")


def strategy(url: str) -> str:
    options = f"model: m, base_url: '{url}', api_key_env: '', retries: 0"
    model = f"{{provider: openai, options: {{{options}}}}}"
    return (
        TINY
        + f"llm: {model}\n"
        + "answerer: {provider: llm}\n"
        + "query: {rewrite: {enabled: false}}\n"
        + "reranker: {provider: llm}\n"
        + "views: {quality: {observability: {threshold: 1.0, sample_rate: 1.0}}}\n"
        + "media_texts:\n"
        + "  ocr: {provider: 'rag_platform_tests.fake_ocr:SizeOcr'}\n"
        + "  ocr_min_pixels: 0\n"
        + f"  captions: {model[:-1]}, min_pixels: 0}}\n"
    )


def picture() -> bytes:
    target = io.BytesIO()
    Image.new("L", (60, 40), 128).save(target, "PNG")
    return target.getvalue()


def schema(name: str) -> Draft202012Validator:
    path = SHIPPED / "schemas" / f"{name}.v1.json"
    return Draft202012Validator(json.loads(path.read_text(encoding="utf-8")))


def work(desk: Desk, model: Model) -> None:
    """Do everything once that a library sees."""
    desk.write(guide=GUIDE, manual=MANUAL, zenith=ZENITH)
    (desk.docs / "plug.png").write_bytes(picture())
    (desk.docs / "broken.pdf").write_bytes(b"%PDF-1.7\nnothing that follows\n")
    cases = desk.folder / "cases.yaml"
    cases.write_text(
        "- query: What is the largest upload?\n  expected_answer: The largest upload is 50 MB.\n",
        encoding="utf-8",
    )
    gates = desk.folder / "config" / "gates.yaml"
    gates.write_text(f"default: [{{dataset: '{cases}'}}]\n", encoding="utf-8")
    desk.call("ingest", desk.docs)
    desk.call("query", "What is the largest upload?", "--filter", "lang=en")
    desk.call("query", "What is the largets uplaod?")
    desk.call("query", "How many bar does Zenith need?")
    desk.call("query", "What is the largest upload? And what means PPR-9087?")
    desk.call("docs", "summary", "guide")
    model.fails = True
    desk.call("query", "What means PPR-9087?")
    desk.call("docs", "summary", "manual")
    model.fails = False
    desk.call("eval", "run", "--dataset", cases, "--judge", "rules", "--no-reuse")
    with closing(sqlite3.connect(desk.store.home / DATABASE)) as results:
        for (artifacts,) in results.execute("SELECT artifacts FROM eval_case_results"):
            schema("eval_artifacts").validate(json.loads(artifacts))
    desk.write(guide=GUIDE.replace("50", "60"))
    gates.unlink()
    desk.publish(desk.docs / "guide.md")
    desk.call("releases", "rollback")
    desk.call("docs", "delete", "manual", "--mode", "hard", "--yes")
    desk.call("gc")


def test_every_kind_of_event_happens(tmp_path: Path) -> None:
    model = Model()
    with (
        chat_server(model) as server,
        seated(tmp_path / "desk", tiny=strategy(server.url)) as desk,
    ):
        work(desk, model)
        found = set(open_tables(desk.store.logs_dir).read("events", ["kind"])["kind"].to_pylist())
        assert EVENT_KINDS - found == set()
        traces = list_traces(desk.store, limit=1000)["traces"]
        validator = schema("trace_envelope")
        for row in traces:
            validator.validate(show(desk.store.logs_dir, row["trace_id"]))
