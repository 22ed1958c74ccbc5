"""Scanned pages from file to answer: with OCR their words are found with page and picture, without
it they land and are named.
"""

from __future__ import annotations

import dataclasses
import io
from pathlib import Path
from typing import Any

import pytest
from PIL import Image, ImageDraw, ImageFont
from starlette.testclient import TestClient

from rag_platform.answering.engine import answer
from rag_platform.api.documents import get_document
from rag_platform.api.passages import get_chunk
from rag_platform.api.proofs import verify_answer
from rag_platform.api.query_data import answer_data, fit_query
from rag_platform.config.settings import load_settings
from rag_platform.config.strategies import load_strategy
from rag_platform.contract.markdown_views import hit_text
from rag_platform.documents.versions import VersionBuild
from rag_platform.intake import isolation
from rag_platform.ir import Hit, QueryRequest
from rag_platform.ledger.ledger import open_ledger
from rag_platform.storage.store import Store, read_json
from rag_platform.web.app import create_app
from rag_platform_tests.chat_server import Reply, chat_server, refused, said
from rag_platform_tests.conftest import TINY, Shelf, needs, write_config

pytestmark = [pytest.mark.e2e, pytest.mark.integration, needs("rapidocr", "ocr")]

OFF = TINY + "media: {page_pixels: 1000000}  # small pages are read sooner\n"
ON = (
    OFF.replace("- provider: markdown", "- provider: image\n    - provider: markdown")
    + "media_texts:\n  ocr: {provider: rapidocr}\n"
)


@pytest.fixture(autouse=True, scope="module")
def _end_children():
    yield
    isolation.pool().close()


@pytest.fixture
def shelves(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Two shelves, `off` without OCR and `on` with it."""
    monkeypatch.setenv("RAG_CONFIG", str(write_config(tmp_path / "config", on=ON, off=OFF)))
    opened = []

    def shelf(name: str) -> Shelf:
        settings = load_settings({"home": tmp_path / name, "default_strategy": name})
        store = Store(settings.home)
        ledger = open_ledger(store)
        opened.append(ledger)
        return Shelf(settings, store, ledger)

    yield {"off": shelf("off"), "on": shelf("on")}
    for ledger in opened:
        ledger.close()


def printed(*lines: str, strips: int = 1) -> list[Image.Image]:
    """A page with these lines, cut into strips as some scanners do."""
    page = Image.new("RGB", (420, 400), "white")
    font = ImageFont.load_default(size=26)
    for number, line in enumerate(lines):
        ImageDraw.Draw(page).text((20, 40 + 60 * number), line, fill="black", font=font)
    height = 400 // strips
    return [page.crop((0, n * height, 420, (n + 1) * height)) for n in range(strips)]


def scan(path: Path, *pages: list[Image.Image]) -> Path:
    """A PDF of 210 x 200 points a page that holds nothing but the strips; a page without strips is
    blank.
    """
    import pymupdf

    with pymupdf.open() as document:
        for strips in pages:
            page = document.new_page(width=210, height=200)
            for number, strip in enumerate(strips):
                stream = io.BytesIO()
                strip.save(stream, "PNG")
                height = 200 / len(strips)
                page.insert_image(
                    (0, number * height, 210, (number + 1) * height), stream=stream.getvalue()
                )
        document.save(path)
    return path


def ingested(shelves: dict[str, Shelf], *paths: Path) -> dict[str, VersionBuild]:
    built = {}
    for name, shelf in shelves.items():
        shelf.ingest(*paths, strategy=name)
        version = shelf.ledger.versions("default")[0]
        built[name] = VersionBuild(
            version, load_strategy(shelf.settings, name), shelf.settings, shelf.store
        )
    return built


def hits(shelf: Shelf, question: str) -> list[Hit]:
    library = shelf.library()
    try:
        return list(answer(library, QueryRequest(question, mode="sparse", answer=False)).hits)
    finally:
        library.close()


def test_a_scan_in_strips_is_found_by_its_words_with_page_and_picture(
    tmp_path: Path, shelves: dict[str, Shelf]
) -> None:
    path = scan(
        tmp_path / "scan.pdf",
        printed("The blue heron sleeps", strips=4),
        [],
        printed("under the old bridge"),
    )
    built = ingested(shelves, path)
    off, on = built["off"], built["on"]
    assert on.facts == off.facts and on.links == off.links
    assert [chunk.chunk_id for chunk in on.chunks] == [chunk.chunk_id for chunk in off.chunks]
    assert [(chunk.page_start, chunk.chunk_text, len(chunk.asset_ids)) for chunk in on.chunks] == [
        (1, "", 1),
        (3, "", 1),
    ]
    assert [link.reason for link in on.links if link.origin_ref == "pdf:page=2"] == ["blank_page"]
    advice = "what they say is found with OCR (media_texts.ocr in the strategy)"
    assert any(
        warning.startswith("pages 1, 3: ") and warning.endswith(advice)
        for warning in off.version.counts["warnings"]
    )
    assert on.version.counts["warnings"] == ["page 2: neither text nor pictures"]
    assert hits(shelves["off"], "heron bridge") == []
    found = hits(shelves["on"], "heron")
    assert [hit.page_range for hit in found] == [(1, 1)]
    assert [hit.page_range for hit in hits(shelves["on"], "bridge")] == [(3, 3)]
    asset = found[0].asset_ids[0]
    assert (found[0].chunk_text, found[0].picture_text) == ("", "The blue heron sleeps")
    assert hit_text(found[0]) == f"(picture asset://{asset}) read by a model: The blue heron sleeps"
    meta = read_json(on.store.media_dir(asset) / "meta.json")
    assert (meta["mime"], meta["width"], meta["height"]) == ("image/png", 438, 417)


def test_an_answer_from_scans_shows_what_a_model_read(
    tmp_path: Path, shelves: dict[str, Shelf]
) -> None:
    pages = [printed("Crews meet at noon."), printed("The blue heron sleeps", "by the old bridge.")]
    shelves["on"].ingest(scan(tmp_path / "scan.pdf", *pages), strategy="on")
    library = shelves["on"].library()
    result = answer(library, QueryRequest("where does the blue heron sleep", mode="sparse"))
    assert (result.state, [c.page_range for c in result.citations]) == ("closest", [(2, 2)])
    text = (
        f"(picture asset://{result.hits[0].asset_ids[0]}) read by a model:"
        " The blue heron sleeps\nby the old bridge."
    )
    assert result.answer_markdown.startswith("No text can be quoted, but a model read this")
    assert " ".join(text.split()) in result.answer_markdown
    data, _ = fit_query(result)
    assert data["citations"][0]["text"] == data["results"][0]["citation"]["text"] == text
    chunk_id, doc_id = result.hits[0].chunk_id, result.hits[0].doc_id
    whole = get_document(library, "default", doc_id, format="chunks")["document"]["chunks"]
    assert [row["text"].endswith("Crews meet at noon.") for row in whole] == [True, False]
    assert whole[1]["text"] == text
    with TestClient(create_app(library), base_url="http://localhost") as browser:
        listed = browser.get(f"/api/documents/{doc_id}/chunks?namespace=default").json()
    assert listed["chunks"][1]["text"] == text
    assert get_chunk(library, chunk_id)["chunks"][0]["text"] == text
    given = answer(library, QueryRequest("where does it sleep", context_chunks=(chunk_id,)))
    assert " ".join(text.split()) in given.answer_markdown
    for sources, reason in (
        ([chunk_id], "it cites a picture"),
        ([], "no passage of the library clearly bears it out"),
    ):
        mark = " [1]" if sources else ""
        proof = verify_answer(library, f"The blue heron sleeps by the old bridge.{mark}", sources)
        assert proof["sentences"][0]["state"] == "unsupported"
        assert proof["sentences"][0]["reason"].startswith(reason)
    data, _ = fit_query(result, "brief")
    assert data["results"][0]["citation"]["text"] == (
        "(picture) read by a model: The blue heron sleeps\nby the old bridge."
    )
    library.close()


def test_a_scan_nearer_than_all_text_is_shown_in_place_of_quotes(
    tmp_path: Path, shelves: dict[str, Shelf]
) -> None:
    text = tmp_path / "birds.md"
    text.write_text("# Birds\n\nThe heron is a wading animal.\n\nThe blue stork eats frogs.\n")
    scanned = scan(tmp_path / "scan.pdf", printed("The heron nests in May"))
    shelves["on"].ingest(scanned, text, strategy="on")
    library = shelves["on"].library()
    nests = answer(library, QueryRequest("when does the heron nest?", mode="sparse"))
    assert nests.state == "closest"
    assert "read by a model: The heron nests in May [1]" in nests.answer_markdown
    eats = answer(library, QueryRequest("what does the blue stork eat?", mode="sparse"))
    assert (eats.state, eats.answer_markdown) == ("answered", "The blue stork eats frogs. [1]")
    library.close()


def test_a_text_is_quoted_although_a_scan_with_its_words_is_nearer(
    tmp_path: Path, shelves: dict[str, Shelf]
) -> None:
    lines = ("The blue heron nests by the", "old bridge from the middle", "of May until September.")
    text = tmp_path / "birds.md"
    text.write_text(f"# Notes\n\nFrogs jump.\n\n# Habits\n\n{' '.join(lines)}\n")
    shelves["on"].ingest(scan(tmp_path / "heron.pdf", printed(*lines)), text, strategy="on")
    library = shelves["on"].library()
    result = answer(library, QueryRequest("where does the blue heron nest?", mode="sparse"))
    assert [hit.filename for hit in result.hits] == ["heron.pdf", "birds.md"]
    assert (result.state, result.answer_markdown) == ("answered", f"{' '.join(lines)} [1]")
    library.close()


def test_a_language_model_reads_what_stands_in_pictures(
    tmp_path: Path, shelves: dict[str, Shelf]
) -> None:
    text = tmp_path / "birds.md"
    text.write_text("# Birds\n\nThe stork eats frogs.\n\n![where it nests](nest.png)\n")
    printed("The stork nests on roofs")[0].save(tmp_path / "nest.png")
    pages = [printed("Crews meet at noon."), printed("The blue heron sleeps", "by the old bridge.")]
    shelves["on"].ingest(scan(tmp_path / "scan.pdf", *pages), text, strategy="on")
    asked = QueryRequest("where does the blue heron sleep", strategy="model", mode="sparse")

    def reply(body: dict[str, Any], _: int) -> Reply:
        read = "by the old bridge" in body["messages"][-1]["content"]
        if "by the bridge, the stork?" in body["messages"][-1]["content"]:
            return refused(400, "no model")
        return said("The blue heron sleeps by the old bridge. [1]" if read else "NOT_IN_PASSAGES")

    with chat_server(reply) as server:
        model = (
            f"{ON}answerer: {{provider: llm}}\nquery: {{rewrite: {{enabled: false}}}}\n"
            f"llm: {{provider: openai, options: {{model: m, base_url: '{server.url}',"
            " api_key_env: ''}}\n"
        )
        (tmp_path / "config/strategies/model.yaml").write_text(model)
        library = shelves["on"].library()
        result = answer(library, asked)
        stork = answer(library, dataclasses.replace(asked, text="where does the stork nest?"))
        phrased = dataclasses.replace(
            asked, text="its place at night?", searches=("blue heron sleeps", "heron bridge stork")
        )
        assert answer(library, phrased).answer_markdown == result.answer_markdown
        # no quotes of another text
        failed = answer(
            library, dataclasses.replace(asked, text="the heron sleeps by the bridge, the stork?")
        )
    assert failed.state == "closest"
    assert failed.answer_markdown.startswith("The answer could not be written")
    assert failed.citations[0].page_range == (2, 2)
    assert (result.answer_markdown, result.state, result.warnings) == (
        "The blue heron sleeps by the old bridge. [1]",
        "answered",
        (),
    )
    assert [(c.page_range, c.text) for c in result.citations] == [((2, 2), "")]
    shown = server.requests[1]["messages"][-1]["content"]
    assert "> The stork eats frogs.\n" in shown
    assert "read by a model: The stork nests on roofs\n" in shown
    assert fit_query(stork)[0]["results"][0]["picture_text"] == "The stork nests on roofs"
    told = f"\n> (picture asset://{stork.hits[0].asset_ids[0]}) read by a model: The stork nests on"
    for detail, linked in (("full", True), ("full", False), ("brief", True)):
        data, _ = fit_query(stork, detail, linked=linked)
        assert (told in data["markdown"]) == (detail == "full")
        assert answer_data(data)["results"][0]["picture_text"] == "The stork nests on roofs"
    with TestClient(create_app(library), base_url="http://localhost") as browser:
        page = browser.get("/", params={"q": "where does the stork nest?", "mode": "sparse"})
    assert '<pre class="text">The stork nests on roofs</pre>' in page.text
    chunk = get_chunk(library, stork.hits[0].chunk_id)
    assert chunk["chunks"][0]["picture_text"] == "The stork nests on roofs"
    assert told.removeprefix("\n> ") in chunk["markdown"]
    library.close()


def test_drawn_pages_are_the_same_bytes_each_time(
    tmp_path: Path, shelves: dict[str, Shelf]
) -> None:
    path = scan(tmp_path / "scan.pdf", printed("The blue heron sleeps", strips=2))
    first = [link.asset_id for link in ingested({"off": shelves["off"]}, path)["off"].links]
    other = Shelf(shelves["on"].settings, shelves["on"].store, shelves["on"].ledger)
    again = [link.asset_id for link in ingested({"off": other}, path)["off"].links]
    assert first == again and all(first)


def test_an_image_file_is_a_document_where_its_loader_is_listed(
    tmp_path: Path, shelves: dict[str, Shelf]
) -> None:
    printed("Valve seven is open")[0].save(tmp_path / "valve.png")
    built = ingested({"on": shelves["on"]}, tmp_path / "valve.png")["on"]
    assert [(chunk.chunk_text, len(chunk.asset_ids)) for chunk in built.chunks] == [("", 1)]
    found = hits(shelves["on"], "valve seven")
    assert [hit.filename for hit in found] == ["valve.png"]
    assert found[0].asset_ids == (built.links[0].asset_id,)


def test_a_real_scan_in_strips_and_a_turned_one(
    tmp_path: Path, shelves: dict[str, Shelf], material: Path
) -> None:
    import pymupdf

    with (
        pymupdf.open(material / "pdf-special" / "mineru__small_ocr.pdf") as whole,
        pymupdf.open() as first,
    ):
        first.insert_pdf(whole, to_page=0)
        first.save(tmp_path / "book.pdf")
    turned = material / "pdf-special" / "docling__ocr_test_rotated_90.pdf"
    built = ingested(shelves, tmp_path / "book.pdf")
    assert [chunk.chunk_id for chunk in built["on"].chunks] == [
        chunk.chunk_id for chunk in built["off"].chunks
    ]
    assert built["off"].facts.summary.pages_without_text == (1,)
    found = hits(shelves["on"], "商品的使用价值为商品学和商业成规")
    assert [(hit.page_range, len(hit.asset_ids)) for hit in found[:1]] == [((1, 1), 1)]
    shelves["on"].ingest(turned, strategy="on")
    assert (
        "ocr_test_rotated_90"
        in hits(shelves["on"], "JSON and Markdown in an easy self contained package")[0].filename
    )
