"""The overview: what it says of a published library, of a failed document and of an empty home."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from starlette.testclient import TestClient

from rag_platform.answering.engine import answer
from rag_platform.config.settings import Settings
from rag_platform.ir import QueryRequest
from rag_platform.retrieval.library import Library
from rag_platform.web.app import create_app
from rag_platform.web.routes.overview import show_disk
from rag_platform_tests.conftest import Shelf

MODULES = (
    "llm embedder sectioner chunker encoding_strategy retriever fusion reranker evaluator".split()
)


def client_of(settings: Settings) -> TestClient:
    return TestClient(create_app(Library.open(settings)), base_url="http://127.0.0.1")


def get(client: TestClient, path: str) -> Any:
    answered = client.get(path)
    assert answered.status_code == 200, answered.text
    return answered.json()


def test_a_library_at_a_glance(read_only_shelf: Shelf) -> None:
    library = read_only_shelf.library()
    with client_of(read_only_shelf.settings) as client:
        # other tests ask this library too
        before = get(client, "/api/overview?namespace=default")["last_24h"].get("query", 0)
        # as canaries are asked: nobody's question, so it is not counted
        answer(library, QueryRequest("Which port?", release_id=library.current("default")))
        client.get("/", params={"q": "Which port does the gateway use?"})
        data = get(client, "/api/overview?namespace=default")
        page = client.get("/overview").text
    by_module = {item["module"]: item for item in data["components"]}
    assert set(MODULES) <= set(by_module)
    assert by_module["embedder"]["provider_id"] == "embedder.hashing"
    assert by_module["embedder"]["version"]
    assert by_module["chunker"]["options"]["options"]["chunk_size"] == 400
    assert by_module["evaluator"]["provider_id"] == "evaluator.basic"
    assert by_module["evaluator"]["profile_id"] == data["strategy_config_id"]
    assert by_module["retriever"]["version"] == data["app_version"]
    totals = {item["name"]: (item["total"], item["last_24h"]) for item in data["totals"]}
    assert totals["documents"] == (3, 3)
    assert totals["chunks"][0] == totals["chunks"][1] > 3
    assert totals["images"] == (1, 1)
    (asked,) = [row for row in data["health"] if row["trace_type"] == "query"]
    assert asked["count"] == data["last_24h"]["query"] == before + 1
    assert data["problems"] == []
    assert "embedder.hashing" in page and "<b>1</b> image</p>" in page
    assert str(read_only_shelf.settings.home) not in page


def test_the_problems_of_another_library_are_a_link(shelf: Shelf, tmp_path: Path) -> None:
    for name, namespace in (("ours", "default"), ("theirs", "other")):
        (tmp_path / f"{name}.pdf").write_bytes(b"no pdf")
        shelf.ingest(tmp_path / f"{name}.pdf", namespace=namespace)
    with client_of(shelf.settings) as client:
        data = get(client, "/api/overview?namespace=default")
        page = client.get("/overview?namespace=default").text
    assert len(data["problems"]) == 1 and "ours.pdf" in data["problems"][0]
    assert data["troubled"] == ["other"]
    assert "theirs.pdf" not in page and 'href="/overview?namespace=other"' in page


def test_an_image_that_is_not_there_is_none(shelf: Shelf, tmp_path: Path) -> None:
    (tmp_path / "guide.md").write_text("# Guide\n\n![A gate](gate.png)\n\nThe gate opens.\n")
    shelf.ingest(tmp_path / "guide.md")
    with client_of(shelf.settings) as client:
        totals = get(client, "/api/overview?namespace=default")["totals"]
    assert totals[2] == {"name": "images", "total": 0, "last_24h": 0}


def test_what_came_in_earlier_is_no_news(read_only_shelf: Shelf) -> None:
    tomorrow = datetime.now(UTC) + timedelta(days=1)
    with read_only_shelf.library().lease("default") as lease:
        catalog, moment = lease.release.catalog, f"{tomorrow:%Y-%m-%dT%H:%M:%SZ}"
        assert catalog.versions_since(moment) == []
        assert catalog.count_images(moment) == 0
        assert catalog.count_images("2000-01-01") == catalog.count_images() == 1


def test_disk_use_adds_up(read_only_shelf: Shelf) -> None:
    found = show_disk(read_only_shelf.settings)
    assert found["total"] == sum(part["bytes"] for part in found["parts"]) > 0
    assert [part["bytes"] for part in found["parts"]] == sorted(
        (part["bytes"] for part in found["parts"]), reverse=True
    )
    with client_of(read_only_shelf.settings) as client:
        assert "<meter" in client.get("/overview/disk", headers={"HX-Request": "true"}).text
        assert "<html" in client.get("/overview/disk").text


def test_an_empty_home_and_an_unknown_library(settings: Settings) -> None:
    with client_of(settings) as client:
        data = get(client, "/api/overview")
        assert [item["total"] for item in data["totals"]] == [0, 0, 0]
        assert data["components"]
        assert client.get("/overview").status_code == 200
        for path in ("/overview", "/releases", "/api/overview", "/api/releases"):
            assert client.get(f"{path}?namespace=nope").status_code == 404
            assert client.get(f"{path}?namespace=default").status_code == 200
        assert client.get("/api/overview?namespace=../x").status_code == 404
