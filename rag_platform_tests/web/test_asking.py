"""Questions in a browser, and their sources as they stand in documents of several formats."""

from __future__ import annotations

import http.client
import io
import json
import re
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import anyio
import pymupdf
import pytest
from openpyxl import Workbook
from PIL import Image
from starlette.testclient import TestClient

from rag_platform.access import Caller, acting_for
from rag_platform.answering.engine import answer
from rag_platform.config.settings import load_settings
from rag_platform.errors import NotFoundError
from rag_platform.ir import QueryRequest
from rag_platform.ledger.ledger import open_ledger
from rag_platform.releases.deletion import record_deletion
from rag_platform.releases.garbage_collection import collect
from rag_platform.releases.publishing import build_candidate, publish_candidate
from rag_platform.retrieval.library import Library
from rag_platform.storage.store import Store
from rag_platform.web.app import create_app
from rag_platform.web.rendering import excerpt, markdown, pieces
from rag_platform.web.waiting import follow
from rag_platform_tests.chat_server import chat_server, streamed
from rag_platform_tests.conftest import TINY, Shelf, write_config
from rag_platform_tests.web.conftest import served

SHEETS = TINY.replace("    - provider: text\n", "    - provider: text\n    - provider: xlsx\n")
BELTS = (
    "The belt stops at once when the hatch opens. The console then names the hatch that is open."
)
HOSTILE = """\
---
title: "<script>alert(1)</script>"
---

# <img src=x onerror=alert(2)>

The quokka opens [the gate](javascript:alert(3)) with data:text/html,<script>alert(4)</script>.
"""
FRAGMENT = {"HX-Request": "true"}


def write_documents(folder: Path) -> None:
    """A PDF of two pages, a sheet, hostile Markdown, and Markdown with a photograph."""
    folder.mkdir(parents=True)
    with pymupdf.open() as document:
        document.new_page().insert_text((72, 90), "Handbook of the sorting hall", fontsize=20)
        page = document.new_page()
        page.insert_text((72, 90), "Safety of belts", fontsize=18)
        page.insert_textbox((72, 120, 420, 200), BELTS, fontsize=11)
        document.save(folder / "belts.pdf")
    book = Workbook()
    book.active.title = "Prices"
    book.active.append(["Part", "Price"])
    for number in range(40):
        book.active.append([f"BX-{number:03d}", 10 + number])
    book.save(folder / "parts.xlsx")
    (folder / "quokka.md").write_text(HOSTILE, encoding="utf-8")
    photograph = Image.new("RGB", (40, 30), (200, 30, 30))
    exif = photograph.getexif()
    exif[0x010E] = "the home of Ada"
    photograph.save(folder / "tower.jpg", exif=exif)
    (folder / "tower.md").write_text(
        "# Tower\n\nThe tower is painted red.\n\n![tower](tower.jpg)\n", encoding="utf-8"
    )


def make_shelf(root: Path) -> Iterator[Shelf]:
    """A published library of those documents."""
    write_documents(root / "docs")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAG_CONFIG", str(write_config(root / "config", tiny=SHEETS)))
        patch.setenv("RAG_HOME", str(root / "home"))
        settings = load_settings()
        ledger = open_ledger(Store.of(settings))
        shelf = Shelf(settings, Store(settings.home), ledger)
        shelf.ingest(root / "docs")
        yield shelf
        ledger.close()


@pytest.fixture(scope="module")
def hall(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shelf]:
    """The library; only for reading."""
    yield from make_shelf(tmp_path_factory.mktemp("hall"))


@pytest.fixture
def own_hall(tmp_path: Path) -> Iterator[Shelf]:
    """The library of one test."""
    yield from make_shelf(tmp_path / "own")


def browse(shelf: Shelf) -> TestClient:
    """A browser before the pages of a library."""
    app = create_app(Library.open(shelf.settings))
    return TestClient(app, base_url="http://127.0.0.1", raise_server_exceptions=False)


@pytest.fixture(scope="module")
def pages(hall: Shelf) -> Iterator[TestClient]:
    """A client of the library that tests only read; the routes take a second to build."""
    with browse(hall) as client:
        yield client


@pytest.fixture
def browser(pages: TestClient) -> TestClient:
    """That client, without the cookies of an earlier test."""
    pages.cookies.clear()
    return pages


def ask(client: TestClient, question: str, **options: Any) -> Any:
    answered = client.get("/api/ask", params={"q": question, **options})
    assert answered.status_code == 200, answered.text
    return answered.json()


def first_source(client: TestClient, question: str, quote: str) -> tuple[str, dict[str, str]]:
    """(chunk_id, the parameters that cite the quote in it) of the best hit of a question."""
    hit = ask(client, question)["results"][0]
    start = hit["citation"]["text"].index(quote)
    return hit["chunk_id"], {"namespace": "default", "span": f"{start}-{start + len(quote)}"}


# --- questions ----------------------------------------------------------------------------------


def test_an_answer_names_its_trace_and_cites_what_it_says(browser: TestClient) -> None:
    data = ask(browser, "When does the belt stop?")
    assert data["trace_id"].startswith("trc_")
    assert data["results"][0]["citation"]["source_uri"] == "docs/belts.pdf"
    assert data["state"] in ("answered", "closest")
    posted = browser.post("/api/ask", json={"q": "When does the belt stop?", "mode": "sparse"})
    assert posted.json()["effective_mode"] == "sparse"


def test_options_of_an_address_become_filters_that_all_hold(browser: TestClient) -> None:
    data = ask(
        browser,
        "belt",
        source="docs",
        section="Safety",
        since="2020-01-01",
        filters='{"source": "docs", "lang": "en"}',
    )
    assert data["applied_filters"] == {
        "source": "docs",
        "lang": "en",
        "section_path": "Safety",
        "doc_date": {"$gte": "2020-01-01"},
        "$and": [{"source": "docs"}],
    }
    assert {row["citation"]["source_uri"] for row in data["results"]} == {"docs/belts.pdf"}


@pytest.mark.parametrize(
    ("options", "status", "code"),
    [
        ({"filters": "{"}, 400, "invalid_filter"),
        ({"filters": "[1]"}, 400, "invalid_filter"),
        ({"top_k": "0"}, 400, "invalid_arguments"),
        ({"since": "yesterday"}, 400, "invalid_arguments"),
        ({"release": "1999"}, 404, "unknown_release"),
        ({"namespace": "elsewhere"}, 404, "unknown_namespace"),
        ({"q": " "}, 400, "empty_query"),
    ],
)
def test_what_cannot_be_asked_is_refused_with_its_reason(
    browser: TestClient, options: dict[str, str], status: int, code: str
) -> None:
    refused = browser.get("/api/ask", params={"q": "belt", **options})
    assert (refused.status_code, refused.json()["code"]) == (status, code)


def read_events(client: TestClient, path: str, **params: str) -> list[tuple[str, str]]:
    with client.stream("GET", path, params=params) as answered:
        assert answered.headers["content-type"].startswith("text/event-stream")
        text = "".join(answered.iter_text())
    return [
        (event, "\n".join(re.findall(r"^data: ?(.*)$", data, re.M)))
        for event, data in re.findall(r"event: (\w+)\n(.*?)\n\n", text, re.S)
    ]


# in the order in which a question goes through them
SHOWN_STAGES = ("stage.query_norm", "stage.rerank", "stage.context_build", "stage.generate")


def test_the_stream_tells_the_stages_and_ends_with_the_answer_or_the_error(
    browser: TestClient,
) -> None:
    # what no other test asks: of a question that is remembered not every stage runs
    events = read_events(browser, "/api/ask/stream", q="When will the belt stop?")
    assert [event for event, _ in events][-2:] == ["answer", "end"]
    assert json.loads(events[-2][1])["results"]
    begun = [json.loads(data)["name"] for event, data in events if event == "stage"]
    assert [name for name in begun if name in SHOWN_STAGES] == list(SHOWN_STAGES)
    assert events[0][0] == "stage"
    failed = read_events(browser, "/api/ask/stream", q="belt", namespace="elsewhere")
    assert [event for event, _ in failed] == ["error", "end"]
    assert json.loads(failed[0][1])["code"] == "unknown_namespace"


def test_a_wrong_option_is_told_where_the_answer_would_be_and_keeps_what_was_typed(
    browser: TestClient,
) -> None:
    wrong = {"q": "When does the belt stop?", "filters": "{bad"}
    events = read_events(browser, "/ask/stream", **wrong)
    assert [event for event, _ in events] == ["answer", "end"]
    assert "invalid_filter" in events[0][1]
    page = browser.get("/", params=wrong)
    assert page.status_code == 400 and "invalid_filter" in page.text
    assert 'value="When does the belt stop?"' in page.text and 'value="{bad"' in page.text


def let_a_model_answer(config_folder: Path, url: str) -> None:
    """Make the test's strategy answer by a language model at that address."""
    tiny = config_folder / "strategies" / "tiny.yaml"
    model = f"{{model: m, base_url: '{url}', api_key_env: '', retries: 0}}"
    more = "answerer: {provider: llm}\nquery: {rewrite: {enabled: false}}\n"
    tiny.write_text(
        f"{tiny.read_text(encoding='utf-8')}{more}llm: {{provider: openai, options: {model}}}\n",
        encoding="utf-8",
    )


@pytest.fixture
def ports(shelf: Shelf, tmp_path: Path) -> Shelf:
    """A library of one sentence."""
    (tmp_path / "ports.md").write_text(
        "# Ports\n\nThe gateway listens on port 8080.\n", encoding="utf-8"
    )
    shelf.ingest(tmp_path / "ports.md")
    return shelf


def test_what_a_model_writes_is_sent_part_by_part(ports: Shelf, config_folder: Path) -> None:
    parts = ["The gateway listens on port 8080 [1].", " It is <b>the</b> gateway."]
    with chat_server(lambda body, number: streamed(parts)) as server, browse(ports) as client:
        let_a_model_answer(config_folder, server.url)
        events = read_events(client, "/api/ask/stream", q="gateway port")
        shown = read_events(client, "/ask/stream", q="gateway port", mode="sparse")
    said = [json.loads(data)["text"] for event, data in events if event == "text"]
    assert said == parts
    assert json.loads(dict(events)["answer"])["usage"]["calls"] == 1
    drafts = "".join(data for event, data in shown if event == "text")
    assert "&lt;b&gt;the" in drafts and "<b>" not in drafts


@pytest.mark.parametrize("path", ["/api/ask", "/api/ask/stream", "/ask/stream"])
def test_a_question_whose_asker_goes_away_ends(
    ports: Shelf, config_folder: Path, path: str
) -> None:
    over, asked = threading.Event(), threading.Event()

    def hang(body: Any, number: int) -> Any:
        asked.set()
        over.wait(30)
        return streamed(["late"])

    with chat_server(hang) as server:
        let_a_model_answer(config_folder, server.url)
        library = Library.open(ports.settings)
        with served(library) as url:
            host, _, port = url.removeprefix("http://").partition(":")
            connection = http.client.HTTPConnection(host, int(port))
            connection.request("GET", f"{path}?q=gateway+port")
            assert asked.wait(30)
            assert library.load.running
            connection.close()
            while library.load.running:  # ends by itself only after 30 s
                time.sleep(0.01)
            assert not over.is_set()
            over.set()


def test_work_that_nobody_follows_any_more_is_told_so() -> None:
    seen: list[Any] = []

    def work(on_text: Callable[[str], None], gone: Any) -> None:
        seen.append(gone)
        on_text("first")
        assert gone.wait(60)

    async def leave_early() -> None:
        events = follow(work)
        assert await anext(events) == ("text", "first")
        await events.aclose()

    anyio.run(leave_early)
    assert seen[0].is_set()


def test_the_page_streams_into_its_place_and_has_an_address(browser: TestClient) -> None:
    begun = browser.get("/ask", params={"q": "belt", "tags": "a，b", "top_k": ""}, headers=FRAGMENT)
    assert begun.headers["hx-push-url"] == "/?q=belt&tags=a&tags=b"
    assert 'sse-connect="/ask/stream?q=belt&amp;tags=a&amp;tags=b"' in begun.text
    events = read_events(browser, "/ask/stream", q="When does the belt stop?")
    page = browser.get("/", params={"q": "When does the belt stop?"}).text
    notes = [data for event, data in events if event == "note"][-4:]
    assert notes[0] == "Searching the documents …" and notes[-1] == "Answering …"
    place = re.search(r'href="(/source/default/[^"]+)"', dict(events)["answer"])
    assert place is not None
    assert place[0] in page
    plain = browser.get("/ask", params={"q": "belt"}, follow_redirects=False)
    assert plain.headers["location"] == "/?q=belt"


def test_an_answer_to_keywords_is_framed_in_the_language_of_the_page(browser: TestClient) -> None:
    asked = {"q": "belt tariff Peru Lima"}
    for path in ("/", "/ask/stream", "/api/ask", "/api/ask/stream"):
        chinese = browser.get(path, params=asked, headers={"Accept-Language": "zh"}).text
        assert "最接近的" in chinese and "closest" not in chinese.replace('"closest"', "")
        assert "最接近的" not in browser.get(path, params=asked).text


def test_what_is_told_of_an_answer_is_in_the_language_of_the_page(browser: TestClient) -> None:
    asked = {"q": "the towwer is painted"}
    assert "no text holds 'towwer'" in str(ask(browser, asked["q"])["warnings"])
    page = browser.get("/", params=asked, headers={"Accept-Language": "zh"}).text
    assert "<strong>注意：</strong>没有文本含有" in page and "no text holds" not in page
    assert "<dt>检索方式</dt><dd>词语" in page


def test_a_page_without_a_release_says_so(tmp_path: Path, settings: Any) -> None:
    app = create_app(Library.open(settings))
    with TestClient(app, base_url="http://127.0.0.1", raise_server_exceptions=False) as client:
        assert client.get("/").status_code == 200
        told = client.get("/", params={"q": "anything"})
    assert told.status_code == 404
    assert '“<a href="/ingestion?namespace=default">Add documents</a>”' in told.text
    assert "rag ingest" not in told.text


def test_marks_are_links_outside_of_code_and_of_other_links() -> None:
    html = str(markdown("So [1], `[1]`, [2] and [a [1] b](/x).", {1: {"href": "/source/1"}}))
    assert html.count('href="/source/1"') == 1
    assert "<code>[1]</code>" in html and "[2]" in html


def test_text_is_cut_at_its_spans() -> None:
    assert pieces("abcdef", [[4, 9], [1, 3], [2, 3]]) == [
        ("a", False),
        ("bc", True),
        ("d", False),
        ("ef", True),
    ]


def test_a_long_passage_is_cut_between_sentences_around_what_is_cited() -> None:
    sentences = [f"Sentence {number} is about belts." for number in range(60)]
    text = " ".join(sentences)
    start = text.index(sentences[30])
    shown = excerpt(text, [[start, start + len(sentences[30])]])
    assert shown[0] == ("… ", False) and shown[-1] == (" …", False)
    assert (sentences[30], True) in shown
    assert shown[1][0].startswith("Sentence 2") and shown[-2][0].endswith("belts.")
    assert 500 < sum(len(piece) for piece, _ in shown) < 900
    assert excerpt("Short. Text.", []) == [("Short. Text.", False)]


def test_nothing_of_a_hostile_document_runs(browser: TestClient) -> None:
    chunk_id, cited = first_source(browser, "quokka", "The quokka opens")
    pages = [
        browser.get("/", params={"q": "Who opens the gate, the quokka?"}).text,
        browser.get(f"/source/default/{chunk_id}", params={"span": cited["span"]}).text,
        browser.get(f"/source/default/{chunk_id}", headers=FRAGMENT).text,
    ]
    for page in pages:
        assert "quokka" in page
        assert not re.search(r"<script(?![^>]*src=\"/static)|<img src=x|href=\"javascript:", page)


# --- places -------------------------------------------------------------------------------------


def test_lines_of_markdown_are_those_of_the_file(browser: TestClient) -> None:
    chunk_id, cited = first_source(browser, "quokka", "The quokka opens")
    place = browser.get(f"/api/chunks/{chunk_id}/place", params=cited).json()
    assert place["form"] == "lines"
    marked = [line for line in place["lines"] if line["cited"]]
    assert [(line["number"], line["cited"]) for line in marked] == [(7, [[0, 16]])]
    assert [line["number"] for line in place["lines"] if line["inside"]] == [5, 6, 7]


def test_the_cited_row_of_a_sheet_is_marked_among_its_neighbours(browser: TestClient) -> None:
    chunk_id, cited = first_source(browser, "BX-030", "| BX-030 | 40 |")
    (table,) = browser.get(f"/api/chunks/{chunk_id}/place", params=cited).json()["tables"]
    assert (table["sheet"], table["head"]) == ("Prices", ["Part", "Price"])
    marked = [row for row in table["rows"] if row["cited"]]
    assert [(row["number"], row["cells"]) for row in marked] == [(32, ["BX-030", "40"])]
    page = browser.get(f"/source/default/{chunk_id}", params={"span": cited["span"]}).text
    assert "<mark>BX-030</mark>" in page and "<mark>BX-029</mark>" not in page


def test_rectangles_on_a_page_hold_the_cited_words(browser: TestClient, hall: Shelf) -> None:
    chunk_id, cited = first_source(browser, "hatch", "The console then names")
    place = browser.get(f"/api/chunks/{chunk_id}/place", params=cited).json()
    (page,) = place["pages"]
    assert (place["form"], page["page"], place["page_count"]) == ("pages", 2, 2)
    with pymupdf.open(hall.settings.home.parent / "docs" / "belts.pdf") as document:
        words = document[1].get_text("words")
    inside = [
        word[4]
        for word in words
        if any(
            x0 <= (word[0] + word[2]) / 2 <= x1 and y0 <= (word[1] + word[3]) / 2 <= y1
            for x0, y0, x1, y1 in page["cited"]
        )
    ]
    assert inside == ["The", "console", "then", "names"]
    other = browser.get(f"/api/chunks/{chunk_id}/place", params={"page": 1}).json()["pages"]
    assert [(page["page"], page["cited"]) for page in other] == [(1, [])]


@pytest.mark.parametrize(
    ("params", "code"),
    [
        ({"span": "0-99999"}, "bad_span"),
        ({"span": "5-5"}, "bad_span"),
        ({"span": "x"}, "bad_span"),
        ({"page": "3"}, "bad_page"),
    ],
)
def test_places_that_are_not_there_are_refused(
    browser: TestClient, params: dict[str, str], code: str
) -> None:
    chunk_id, _ = first_source(browser, "hatch", "hatch")
    refused = browser.get(f"/api/chunks/{chunk_id}/place", params=params)
    assert (refused.status_code, refused.json()["code"]) == (400, code)


def test_a_source_shows_its_document_and_the_pages_beside_it(browser: TestClient) -> None:
    chunk_id, cited = first_source(browser, "hatch", "The console then names")
    address = f"/source/default/{chunk_id}"
    page = browser.get(address, params={"span": cited["span"]}).text
    assert page.count('<rect class="cited"') == 1
    assert "Page 2 of 2" in page and "Previous page" in page and "Next page" not in page
    panel = browser.get(address, params={"page": 1}, headers=FRAGMENT).text
    assert "<html" not in panel and '<rect class="cited"' not in panel
    assert "Next page" in panel and "the cited page" in panel
    picture = re.search(r'<image href="([^"]+)"', page)
    assert picture is not None
    drawn = browser.get(picture[1])
    assert drawn.headers["content-type"] == "image/png"
    assert Image.open(io.BytesIO(drawn.content)).size == (992, 1404)  # A4 at 120 dots an inch
    assert browser.get(address + "?release=nonsense").status_code == 404


def test_an_image_is_drawn_anew_without_what_its_file_tells(browser: TestClient) -> None:
    hit = ask(browser, "tower")["results"][0]
    (asset_id,) = hit["asset_ids"]
    shown = browser.get(f"/api/assets/{asset_id}")
    assert shown.headers["content-type"] in ("image/png", "image/webp")
    assert b"home of Ada" not in shown.content
    assert Image.open(io.BytesIO(shown.content)).size == (40, 30)
    assert browser.get("/api/assets/" + "0" * 64).status_code == 404
    assert asset_id in browser.get(f"/source/default/{hit['chunk_id']}").text


# --- proofs -------------------------------------------------------------------------------------


def test_a_proof_says_what_it_compared_and_by_which_readers(browser: TestClient) -> None:
    chunk_id, _ = first_source(browser, "hatch", "hatch")
    proof = browser.get(f"/api/chunks/{chunk_id}/proof").json()
    assert (proof["proved"], proof["reason"], proof["state"]) == (True, "", "current")
    compared = {item["what"]: item["detail"] for item in proof["compared"]}
    assert compared["page_letters"] == "pymupdf"
    assert compared["second_reader"] == "pdfium"
    assert compared["file_hash"] == proof["file_sha256"]
    shown = browser.get(f"/source/default/{chunk_id}/proof", headers=FRAGMENT).text
    assert 'data-proof="proved"' in shown


def test_a_changed_file_is_not_proved_and_a_deleted_one_is_gone(own_hall: Shelf) -> None:
    with browse(own_hall) as client:
        chunk_id, _ = first_source(client, "hatch", "The console then names")
        source = client.get(f"/api/chunks/{chunk_id}").json()
        picture = f"/api/pages/default/{source['version_id']}/2.png"
        assert client.get(picture).status_code == 200
        kept = own_hall.store.home.glob("versions/**/2.image")
        assert len(list(kept)) == 1
        raw = own_hall.store.raw_path(source["history"][0]["file_sha256"])
        whole = raw.read_bytes()
        raw.write_bytes(whole.replace(b"/Type", b"/Typo", 1))
        failed = client.get(f"/api/chunks/{chunk_id}/proof").json()
        assert not failed["proved"]
        assert "raw_changed" in failed["reason"]
        shown = client.get(f"/source/default/{chunk_id}/proof").text
        assert 'data-proof="failed"' in shown and "raw_changed" in shown
        raw.write_bytes(whole)

        record = record_deletion(
            own_hall.ledger.delete("default", source["doc_id"], None, "hard"), own_hall.root
        )
        for path in (picture, f"/api/chunks/{chunk_id}", f"/source/default/{chunk_id}"):
            assert client.get(path).status_code == 404, path
        manifest, _ = build_candidate("default", own_hall.workspace(), full=True)
        publish_candidate("default", manifest.release_id, own_hall.root)
        collect(own_hall.root, scope=record)
        assert not list(own_hall.store.home.glob("versions/**/2.image"))


def test_a_passage_of_an_older_release_says_that_it_changed(own_hall: Shelf) -> None:
    docs = own_hall.settings.home.parent / "docs"
    with browse(own_hall) as client:
        chunk_id, _ = first_source(client, "hatch", "hatch")
        with pymupdf.open() as document:
            document.new_page().insert_text((72, 90), "There are no hatches any more.")
            document.save(docs / "belts.pdf")
        own_hall.ingest(docs)
        source = client.get(f"/api/chunks/{chunk_id}").json()
        assert source["state"] == "changed"
        assert [version["state"] for version in source["history"]] == ["live", "ready"]
        proof = client.get(f"/api/chunks/{chunk_id}/proof").json()
        assert (proof["proved"], proof["state"]) == (False, "changed")
        page = client.get(f"/source/default/{chunk_id}").text
        assert "the published one no longer holds it" in page
        picture = re.search(r'<image href="([^"]+)"', page)
        assert picture is not None
        assert client.get(picture[1].replace("&amp;", "&")).status_code == 200


# --- how it came about --------------------------------------------------------------------------


def test_the_order_of_hits_is_told_by_stage(browser: TestClient) -> None:
    data = ask(browser, "hatch of the belt")
    order = browser.get(f"/api/ask/{data['trace_id']}/order").json()
    assert order["legs"][:3] == ["sparse", "dense", "fusion"]
    shown = [row for row in order["rows"] if "rank" in row]
    assert [row["chunk_id"] for row in shown] == [row["chunk_id"] for row in data["results"]]
    assert shown[0]["legs"]["fusion"]["rank"] == 1
    assert shown[0]["source_uri"] == "docs/belts.pdf"
    page = browser.get(f"/why/{data['trace_id']}").text
    assert "docs/belts.pdf" in page
    assert browser.get("/api/ask/trc_00000000/order").status_code == 404


def test_the_order_of_hits_from_the_cache_is_that_of_their_search(browser: TestClient) -> None:
    first, again = (ask(browser, "where is the hatch of the belt?")["trace_id"] for _ in range(2))
    one, other = (browser.get(f"/api/ask/{trace}/order").json() for trace in (first, again))
    assert "fusion" in other["legs"] and other["notes"] == []
    assert (other["legs"], other["rows"]) == (one["legs"], one["rows"])
    assert f'href="/traces/{first}"' in browser.get(f"/traces/{again}").text


def test_the_order_of_cached_hits_has_no_candidates_of_other_libraries(
    own_hall: Shelf, tmp_path: Path
) -> None:
    from rag_platform.api.trace_details import explain_order

    (tmp_path / "doors.md").write_text("# Doors\n\nThe door of the hall opens as the hatch does.\n")
    own_hall.ingest(tmp_path / "doors.md", namespace="doors")
    library = own_hall.library()
    both = QueryRequest("Where is the hatch?", "default", namespaces=("default", "doors"))
    answer(library, both)
    found = answer(library, QueryRequest("Where is the hatch?", "doors"))
    rows = explain_order(library, found.trace_id)["rows"]
    assert [row["source_uri"].rpartition("/")[2] for row in rows] == ["doors.md"]


def test_the_trace_of_a_library_that_a_caller_may_not_see_is_not_found(hall: Shelf) -> None:
    from rag_platform.api.trace_details import explain_order

    library = hall.library()
    with browse(hall) as client:
        trace_id = ask(client, "hatch")["trace_id"]
    with (
        acting_for(Caller("tok", "read", frozenset({"other"}))),
        pytest.raises(NotFoundError, match="no trace"),
    ):
        explain_order(library, trace_id)


def test_a_question_asked_again_gives_the_same_ranking(browser: TestClient) -> None:
    trace_id = ask(browser, "hatch of the belt")["trace_id"]
    again = browser.get(f"/api/ask/{trace_id}/replay").json()
    assert again["same"] and not again["reasons"]
    assert again["new_trace_id"] != trace_id
    assert all(row["before"] == row["after"] for row in again["rows"])
    assert again["rows"][0]["source_uri"] == "docs/belts.pdf"
    assert "The same ranking as then" in browser.get(f"/replay/{trace_id}").text
    part = browser.get(f"/replay/{trace_id}?release=published", headers=FRAGMENT).text
    assert "The same ranking as then" in part and "<html" not in part
    assert browser.get(f"/api/ask/{trace_id}/replay?release=x").status_code == 400
    assert browser.get(f"/api/ask/trc_{'f' * 32}/replay").status_code == 404


def test_two_ways_to_ask_stand_side_by_side(browser: TestClient) -> None:
    release_id = ask(browser, "hatch")["release_id"]
    params = {"q": "hatch", "left": "strategy:tiny", "right": f"release:{release_id}"}
    data = browser.get("/api/ask/compare", params=params).json()
    assert data["same_answer"] and data["same_ranking"]
    assert browser.get("/compare-answers", params=params).status_code == 200
    refused = browser.get("/api/ask/compare", params={"q": "hatch", "left": "tiny"})
    assert (refused.status_code, refused.json()["code"]) == (400, "bad_way")
    page = browser.get("/compare-answers", params={"q": "hatch", "left": "tiny"})
    assert page.status_code == 400 and "bad_way" in page.text
    assert 'value="hatch"' in page.text and "<option selected>tiny</option>" in page.text


def test_what_was_found_can_be_expected(own_hall: Shelf) -> None:
    with browse(own_hall) as client:
        chunk_id, cited = first_source(client, "hatch", "The console then names")
        form = {"q": "hatch", "namespace": "default", "chunk_id": chunk_id, "span": cited["span"]}
        made = client.post("/api/expectations", json=form).json()
        assert made["new"]
        assert not client.post("/api/expectations", json=form).json()["new"]
        assert made["case_id"] in client.post("/expect", data=form, headers=FRAGMENT).text
        refusal = client.post("/api/expectations", json={"q": "moon", "namespace": "default"})
        assert refusal.json()["new"]
        listed = client.get("/api/expectations").json()
        assert [(it["query"], it["files"], it["refuse"]) for it in listed] == [
            ("hatch", ["docs/belts.pdf"], False),
            ("moon", [], True),
        ]
    lines = (own_hall.store.home / "expectations" / "default.jsonl").read_text(encoding="utf-8")
    first, second = map(json.loads, lines.splitlines())
    assert first["expected_text"][0]["text"] == "The console then names"
    assert first["expected_text"][0]["file"] == "docs/belts.pdf"
    assert second["should_refuse"]
    # what no longer holds would keep every release back
    with browse(own_hall) as client:
        removal = {"namespace": "default", "case_id": made["case_id"]}
        page = client.post("/evaluation/expectations/remove", data=removal)
        assert page.url.path == "/evaluation/expectations"
        assert made["case_id"] not in page.text and "moon" in page.text
        assert client.delete(f"/api/expectations/{made['case_id']}").status_code == 404
        assert client.delete(f"/api/expectations/{second['case_id']}").json()["query"] == "moon"
        assert client.get("/api/expectations").json() == []


def test_that_no_passage_matches_is_said_in_the_language_of_the_page(browser: TestClient) -> None:
    asked = {"q": "When does the belt stop?", "tags": "no-such-tag"}
    chinese = browser.get("/", params=asked, headers={"Accept-Language": "zh"}).text
    assert "没有找到符合过滤条件的段落。" in chinese
    assert "No passage that matches the filters" in browser.get("/", params=asked).text
