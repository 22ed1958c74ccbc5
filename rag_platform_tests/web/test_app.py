"""The application of pages and `/api`: what it answers, whom, and what it sends along."""

from __future__ import annotations

import asyncio
import hashlib
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import httpx
import pytest
from starlette.testclient import TestClient

import rag_platform
from rag_platform.config.settings import Settings, with_http
from rag_platform.errors import ConfigError
from rag_platform.messages import catalogue, choose_language, translate
from rag_platform.registry import PROVIDERS
from rag_platform.retrieval.library import Library
from rag_platform.storage.store import Store
from rag_platform.web.app import create_app
from rag_platform.web.guards import PlainBody
from rag_platform.web.rendering import PAGES, STATIC, markdown
from rag_platform.web.routes.asking import STAGE_MESSAGES
from rag_platform.web.tokens import Tokens
from rag_platform_tests.conftest import Shelf

PACKAGE = Path(rag_platform.__file__).parent
# of the pages: the view for assistants holds its script and style, whose hashes its policy names
TEMPLATES = sorted(
    path
    for path in (PACKAGE / "web" / "templates").rglob("*.html")
    if path.name != "answer_app.html"
)
HTML = {"Accept": "text/html"}


@pytest.fixture(scope="module")
def pages(read_only_shelf: Shelf) -> Iterator[TestClient]:
    """A client of a library that tests only read; the routes take a second to build."""
    app = create_app(Library.open(read_only_shelf.settings))
    with TestClient(app, base_url="http://127.0.0.1") as client:
        yield client


@pytest.fixture
def browser(pages: TestClient) -> TestClient:
    """That client, without the cookies of an earlier test."""
    pages.cookies.clear()
    return pages


def guarded(settings: Settings) -> TestClient:
    """A client that is not told about failures otherwise than a browser is."""
    app = create_app(Library.open(settings))
    return TestClient(app, base_url="http://127.0.0.1", raise_server_exceptions=False)


@pytest.mark.parametrize("path", [path for path, _ in PAGES])
def test_every_page_answers_in_both_languages(browser: TestClient, path: str) -> None:
    english = browser.get(path, headers={**HTML, "Accept-Language": "en"})
    chinese = browser.get(path, headers={**HTML, "Accept-Language": "zh-CN,zh;q=0.9,en;q=0.8"})
    assert english.status_code == chinese.status_code == 200
    assert '<html lang="en"' in english.text
    assert '<html lang="zh"' in chinese.text
    assert "跳到正文" in chinese.text
    assert "跳到正文" not in english.text


def test_every_answer_keeps_foreign_scripts_out(browser: TestClient) -> None:
    for path in ("/", "/api/status", "/nothing-here", "/static/app.css"):
        headers = browser.get(path).headers
        policy = dict(
            part.strip().split(" ", 1) for part in headers["content-security-policy"].split(";")
        )
        assert policy["default-src"] == "'none'"
        assert policy["script-src"] == "'self'"
        assert policy["frame-ancestors"] == "'none'"
        assert headers["x-content-type-options"] == "nosniff"


def test_no_template_holds_a_script_a_style_or_a_foreign_address() -> None:
    risky = r"<script(?![^>]*\bsrc=)|<style|\sstyle=|\son\w+=|\|\s*safe"
    for template in TEMPLATES:
        text = template.read_text(encoding="utf-8")
        assert not re.search(risky, text), template
        assert not re.search(r"""(?:src|href)=["'](?:https?:)?//""", text), template


def test_no_template_or_script_names_a_provider() -> None:
    kinds = ("embedder", "lexical_index", "dense_index", "fusion", "llm", "reranker", "chunker")
    words = {"none", "token", "features", "http", "llm", "recursive", "joined"}  # of English too
    names = {name for kind in kinds for name in PROVIDERS[kind]} - words
    for file in [*TEMPLATES, STATIC / "app.js", STATIC / "app.css"]:
        assert not names & set(re.findall(r"\w+", file.read_text(encoding="utf-8"))), file


def test_every_message_of_the_pages_has_its_chinese() -> None:
    known = catalogue("zh")
    wanted = {name for _, name in PAGES} | set(STAGE_MESSAGES.values())
    for template in TEMPLATES:
        text = template.read_text(encoding="utf-8")
        wanted |= {found[2] for found in re.finditer(r"""_\((["'])(.+?)\1\s*[,)]""", text)}
    assert wanted - set(known) == set()


def test_every_finished_message_is_shown_in_the_language_of_the_page() -> None:
    unread = re.compile(r"\{\{ *[\w.]+\.(reason|message|unread) *\}\}|\{\{ *warning *\}\}")
    shown = {path.name: unread.findall(path.read_text(encoding="utf-8")) for path in TEMPLATES}
    assert {name: found for name, found in shown.items() if found} == {}


def test_messages_fill_their_places_and_fall_back_to_english() -> None:
    assert translate("Ask", "zh") == "提问"
    assert translate("no such message {n}", "zh", n=3) == "no such message 3"
    assert choose_language("fr-FR, zh;q=0.8, en;q=0.5") == "zh"
    assert choose_language("zh_CN.UTF-8") == "zh"
    assert choose_language("fr, de;q=x") == "en"


def test_vendored_files_are_those_that_are_named() -> None:
    folder = STATIC / "vendor"
    listed = json.loads((folder / "vendored.json").read_text(encoding="utf-8"))
    for entry in listed:
        digest = hashlib.sha256((folder / entry["file"]).read_bytes()).hexdigest()
        assert digest == entry["sha256"], entry["file"]
        assert (folder / entry["license_file"]).is_file()
    named = {entry["file"] for entry in listed} | {entry["license_file"] for entry in listed}
    assert {path.name for path in folder.iterdir()} == named | {"vendored.json"}


def test_nothing_in_markdown_runs_or_is_fetched() -> None:
    shown = markdown(
        "<script>alert(1)</script> [a](javascript:alert(1)) [b](data:text/html,x)"
        " ![c](http://example.com/pixel.png) [d](https://example.com)"
    )
    assert "<script" not in shown
    assert "<img" not in shown
    assert 'href="javascript' not in shown
    assert 'href="data' not in shown
    assert '<a href="https://example.com">d</a>' in shown


def test_a_choice_of_language_and_theme_is_kept(browser: TestClient) -> None:
    answer = browser.post("/preferences", data={"next": "/?q=", "language": "zh", "theme": "dark"})
    assert answer.url.path == "/"
    assert '<html lang="zh" data-theme="dark"' in answer.text
    assert "theme: " not in answer.text


def test_a_long_chinese_question_outlives_a_choice_and_a_login(browser: TestClient) -> None:
    asked = "/?" + urlencode({"q": "为什么还不行" * 20})  # 120 characters
    answer = browser.post("/preferences", data={"next": asked}, follow_redirects=False)
    assert answer.headers["location"] == asked
    assert browser.post("/login", data={"next": asked, "token": "wrong"}).status_code == 401


@pytest.mark.parametrize(
    ("sent_to", "page"),
    [
        ("/ingestion/place", "/ingestion"),
        ("/drafts/default/guide/operations", "/drafts/default/guide"),
        ("/preferences", "/"),
        ("/evaluation/run", "/evaluation"),
    ],
)
def test_the_address_of_a_form_leads_to_its_page(
    browser: TestClient, sent_to: str, page: str
) -> None:
    """It is the page's address after an error: reloaded, or shown again in another language."""
    answer = browser.get(sent_to, follow_redirects=False)
    assert (answer.status_code, answer.headers["location"]) == (303, page)


@pytest.mark.parametrize(
    "target",
    ["https://example.com/", "//example.com", "///example.com", "/\\example.com", "//[", "x"],
)
def test_a_form_leads_to_no_other_site(browser: TestClient, target: str) -> None:
    answer = browser.post("/preferences", data={"next": target}, follow_redirects=False)
    assert answer.headers["location"] == "/"


def test_a_page_of_another_origin_changes_nothing(browser: TestClient) -> None:
    foreign = browser.post(
        "/preferences", data={"language": "zh"}, headers={"Origin": "http://localhost:9999"}
    )
    assert foreign.status_code == 403
    assert foreign.json()["error"] == "unknown_origin"
    own = browser.post(
        "/preferences", data={"language": "zh"}, headers={"Origin": "http://127.0.0.1"}
    )
    assert own.status_code == 200


def test_errors_are_json_for_programs_and_a_page_for_people(browser: TestClient) -> None:
    program = browser.get("/api/nothing")
    assert program.status_code == 404
    assert set(program.json()) == {"code", "message", "details"}
    assert (program.json()["code"], program.json()["message"]) == (
        "not_found",
        "there is nothing at /api/nothing; /api/openapi.json lists the addresses and what they"
        " take",
    )
    wrong = browser.get("/api/ingest").json()
    assert wrong["code"] == "method_not_allowed" and "does not take GET; /api/" in wrong["message"]
    assert (
        "/nowhere 处没有内容"
        in browser.get("/nowhere", headers={**HTML, "Accept-Language": "zh"}).text
    )
    body = browser.post("/api/ingest", content="no", headers={"Content-Type": "application/json"})
    assert body.json()["message"] == "the body is not JSON, from character 0 on: Expecting value"
    named = browser.post("/api/ingest", json={"url": "http://a.example", "namespace": "notes"})
    assert named.json()["message"] == (
        "the body takes no 'namespace'; known: path, tags, url; a library is named in the address,"
        " ?namespace=NAME"
    )
    retried = browser.post("/api/jobs/job_0123456789abcdef/retry", json={"namespace": "notes"})
    assert retried.json()["message"] == "the body takes no 'namespace'; known: source_uri"
    for address, body in (
        ("/api/documents/a/delete", {"confrim": "x"}),
        ("/api/expectations", {"q": "a", "namespace": "notes", "chunk": "b"}),
        ("/api/eval/runs", {"dataset": "a", "metrics": []}),
        ("/api/ask", {"q": "a", "topk": 3}),
    ):
        refused = browser.post(address, json=body)
        name = list(body)[-1]
        assert refused.status_code == 400
        assert refused.json()["message"].startswith(f"the body takes no {name!r}; known: ")
    typo = browser.get("/api/documents/a/text?namespce=notes&max_chars=10")
    assert (typo.status_code, typo.json()["message"]) == (
        400,
        "the address takes no 'namespce'; known: cursor, max_chars, namespace, version_id",
    )
    assert browser.get("/api/status?a=1").json()["message"].endswith("; known: none")
    person = browser.get("/?namespace=nothing&q=x", headers=HTML)
    assert person.status_code == 404
    assert "nothing" in person.text
    assert "unknown_namespace" in person.text
    chinese = browser.get("/?namespace=nothing&q=x", headers={**HTML, "Accept-Language": "zh"})
    assert "未知的知识库" in chinese.text
    assert '<a href="/?namespace=nothing">' in browser.get("/source/nothing/chk_1").text


def test_the_menu_of_a_page_about_one_thing_leads_to_the_pages_of_a_library(
    browser: TestClient,
) -> None:
    """What the menu chose there was forgotten: the address names the library."""
    found = browser.get("/source/other/chk_1").text
    assert '<form method="get" action="/" data-submit-on-change>' in found
    assert "<option selected>other</option>" in found
    asked = browser.get("/?q=Which+port%3F&namespace=other").text
    assert '<input type="hidden" name="q" value="Which port?">' in asked
    gaps = browser.get("/evaluation/monitoring?namespace=other").text
    assert '<form method="get" action="/evaluation/monitoring" data' in gaps
    assert 'aria-current="true">Evaluation' in gaps and 'aria-current="page">Monitoring' in gaps


def test_a_browser_logs_in_with_a_token(settings: Settings, store: Store) -> None:
    _, secret = Tokens(store).create("reader")
    with guarded(settings) as client:
        assert client.get("/api/status").status_code == 401
        asked = client.get("/?q=x&mode=dense", headers=HTML)
        assert asked.url.path == "/login"
        refused = client.post("/login", data={"token": "rag_wrong", "next": "/"})
        assert refused.status_code == 401
        kept = asked.url.params["next"]
        told = client.post("/login", data={"token": secret, "next": kept}, follow_redirects=False)
        assert told.headers["location"] == "/?q=x&mode=dense"
        assert client.get("/api/status").status_code == 200
        client.post("/logout")
        assert client.get("/api/status").status_code == 401
        assert "was revoked" not in client.get("/browser", headers=HTML).text
        client.post("/login", data={"token": secret})
        Tokens(store).revoke("reader")
        assert "was revoked" in client.get("/browser", headers=HTML).text
        part = client.get(
            "/browser", headers={"HX-Request": "true", "HX-Current-URL": "http://h/drafts?a=b"}
        )
        assert (part.status_code, part.headers["hx-redirect"]) == (
            401,
            "/login?next=/drafts%3Fa%3Db",
        )
        for page, kept in (("http://h/ingestion?a=b", "/ingestion%3Fa%3Db"), ("http://[h", "")):
            headers = {**HTML, "Referer": page, "Origin": "http://127.0.0.1"}
            sent = client.post("/ingestion/place", headers=headers, follow_redirects=False)
            assert sent.headers["location"] == f"/login?next={kept}"


def test_the_login_page_names_no_library(shelf: Shelf, tmp_path: Path) -> None:
    for name in ("payroll", "merger"):
        (tmp_path / f"{name}.md").write_text(f"# {name}\n\nA text.\n", encoding="utf-8")
        shelf.ingest(tmp_path / f"{name}.md", namespace=name)
    Tokens(Store.of(shelf.settings)).create("reader")
    with guarded(shelf.settings) as client:
        page = client.get("/releases?namespace=payroll", headers=HTML)
    assert page.url.path == "/login"
    menu = page.text.partition("<main")[0]
    assert "<option>" not in menu and "merger" not in page.text and "jinja2" not in page.text


def test_the_cookie_is_no_token_for_assistants(settings: Settings, store: Store) -> None:
    _, secret = Tokens(store).create("reader")
    with guarded(settings) as client:
        client.cookies.set("rag_token", secret)
        assert client.post("/mcp", json={}).status_code == 401


def test_other_machines_are_let_in_with_tokens_only(settings: Settings) -> None:
    with pytest.raises(ConfigError, match="no token yet"):
        create_app(Library.open(with_http(settings, {"host": "0.0.0.0"})))


def test_the_schema_lists_every_route_under_api(browser: TestClient) -> None:
    schema: httpx.Response = browser.get("/api/openapi.json")
    assert "/api/status" in schema.json()["paths"]
    assert all(path.startswith("/api/") for path in schema.json()["paths"])


def test_an_empty_library_shows_its_pages(settings: Settings) -> None:
    with guarded(settings) as client:
        for path, _ in PAGES:
            assert client.get(path, headers=HTML).status_code == 200, path


@pytest.mark.parametrize(
    ("content_type", "status"), [("multipart/form-data; boundary=x", 200), ("text/plain", 408)]
)
def test_files_may_take_longer_than_other_bodies(content_type: str, status: int) -> None:
    parts = [True, True, True, False]
    sent: list[Any] = []

    async def receive() -> Any:
        await asyncio.sleep(0.2)
        return {"type": "http.request", "body": b"x", "more_body": parts.pop(0)}

    async def send(message: Any) -> None:
        sent.append(message)

    async def read(scope: Any, receive: Any, send: Any) -> None:
        while (await receive())["more_body"]:
            pass
        await send({"type": "http.response.start", "status": 200, "headers": []})

    headers = [(b"content-type", content_type.encode())]
    scope = {"type": "http", "method": "POST", "path": "/", "headers": headers}
    asyncio.run(PlainBody(read, seconds=0.5)(scope, receive, send))
    assert sent[0]["status"] == status
