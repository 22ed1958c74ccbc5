"""Pages and /api of documents, drafts, ingestion and releases."""

from __future__ import annotations

import io
import os
import re
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pymupdf
import pytest
from starlette.testclient import TestClient

from rag_platform import access
from rag_platform.api.uploads import keep_upload, list_uploads, preview_upload
from rag_platform.api.writing import file_name, get_job
from rag_platform.config.settings import Settings, with_http
from rag_platform.errors import CancelledError, InputError
from rag_platform.ledger.schema import JobItem
from rag_platform.processes import jobs
from rag_platform.retrieval.library import Library
from rag_platform.storage.store import Store
from rag_platform.web.app import create_app
from rag_platform.web.tokens import Tokens
from rag_platform_tests.conftest import Shelf

HOSTILE = (
    "Before.\n\n# <script>alert(1)</script> \u202egnp.exe\n\n"
    "[x](javascript:alert(1)) [y](data:text/html,z)"
    ' <img src=x onerror="alert(1)">\n\nThe gateway listens on port 8080.\n'
)


def client_of(shelf: Shelf) -> TestClient:
    """A client of the pages of a shelf, which sees failures as a browser does."""
    app = create_app(Library.open(shelf.settings))
    return TestClient(app, base_url="http://127.0.0.1", raise_server_exceptions=False)


@pytest.fixture(scope="module")
def pages(read_only_shelf: Shelf) -> Iterator[TestClient]:
    """A client of a library that tests only read; the routes take a second to build."""
    with client_of(read_only_shelf) as client:
        yield client


@pytest.fixture
def browser(pages: TestClient) -> TestClient:
    """That client, without the cookies of an earlier test."""
    pages.cookies.clear()
    return pages


@pytest.fixture
def desk(shelf: Shelf, tmp_path: Path) -> Iterator[TestClient]:
    """A client of a library that tests change: two sections of one document."""
    (tmp_path / "guide.md").write_text(
        "# One\n\nAlpha says a thing.\n\n# Two\n\nBeta says another.\n", encoding="utf-8"
    )
    shelf.ingest(tmp_path / "guide.md")
    with client_of(shelf) as client:
        yield client


def doc_id_of(client: TestClient, name: str = "") -> str:
    """The doc_id of the first document whose name has the word."""
    found = client.get("/api/documents", params={"words": name}).json()
    return str(found["groups"][0]["documents"][0]["doc_id"])


# --- documents ----------------------------------------------------------------------------------


def test_documents_are_filtered_grouped_and_paged(browser: TestClient) -> None:
    assert browser.get("/api/documents").json()["total"] == 3
    assert browser.get("/api/documents?tags=hr").json()["total"] == 1
    assert browser.get("/api/documents?words=PORT+guide").json()["total"] == 1
    assert browser.get("/api/documents?since=2999-01-01").json()["total"] == 0
    grouped = browser.get("/api/documents?group_by=tags&limit=2").json()
    assert [(it["key"], it["count"]) for it in grouped["groups"]] == [("guide", 2)]
    after = browser.get(f"/api/documents?group_by=tags&cursor={grouped['next_cursor']}").json()
    assert [it["key"] for it in after["groups"]] == ["hr", "ops"]


def test_the_list_says_what_there_is_and_leads_on(browser: TestClient) -> None:
    page = browser.get("/browser?group_by=&tags=&status=&words=&source=&since=&until=")
    assert page.status_code == 200
    assert "Port guide" in page.text
    assert "休假制度" in page.text
    first = browser.get("/browser?limit=1").text
    following = re.search(r'href="(/browser\?[^"]+)" rel="next"', first)
    assert following is not None
    second = browser.get(following[1].replace("&amp;", "&")).text
    assert first.count("<tbody>") == second.count("<tbody>") == 1
    assert "No document matches" in browser.get("/browser?words=nothing-like-this").text


def test_an_empty_library_says_how_to_add_documents(tmp_path: Path, settings: Settings) -> None:
    with TestClient(create_app(Library.open(settings)), base_url="http://127.0.0.1") as client:
        page = client.get("/browser").text
    assert "There are no documents yet." in page and "No document matches" not in page


def test_a_document_shows_versions_outline_chunks_text_and_what_was_dropped(
    browser: TestClient,
) -> None:
    doc_id = doc_id_of(browser, "ports")
    data = browser.get(f"/api/documents/{doc_id}").json()
    assert [row["live"] for row in data["versions"]] == [True]
    assert [row["title"] for row in data["sections"]] == ["Ports", "Limits"]
    assert data["tags"] == ["guide", "ops"]
    page = browser.get(f"/documents/default/{doc_id}").text
    assert "Port guide" in page
    assert "requests per minute" in page
    assert "port 8080" in browser.get(f"/documents/default/{doc_id}/text").text
    assert browser.get(f"/documents/default/{doc_id}/dropped").status_code == 200
    section_id = data["sections"][1]["section_id"]
    chunks = browser.get(f"/api/documents/{doc_id}/chunks?section_id={section_id}").json()
    assert chunks["total"] == len(chunks["chunks"]) < data["chunks"]


def test_chunks_of_a_document_come_in_pages(browser: TestClient) -> None:
    address = f"/api/documents/{doc_id_of(browser, 'ports')}/chunks"
    whole = browser.get(address).json()
    seen: list[str] = []
    cursor: str | None = ""
    while cursor is not None:
        page = browser.get(f"{address}?limit=1{f'&cursor={cursor}' if cursor else ''}").json()
        seen += [it["chunk_id"] for it in page["chunks"]]
        cursor = page["next_cursor"]
    assert seen == [it["chunk_id"] for it in whole["chunks"]]
    assert whole["total"] == len(seen) > 1


def test_a_chunk_shows_its_place_and_what_retrievers_read(browser: TestClient) -> None:
    doc_id = doc_id_of(browser, "ports")
    chunk = browser.get(f"/api/documents/{doc_id}/chunks").json()["chunks"][0]
    data = browser.get(f"/api/chunks/{chunk['chunk_id']}/texts").json()
    assert data["chunk"] == chunk
    assert "8080" in data["dense_text"]
    assert "8080" in data["sparse_text"]
    assert data["before"] == ""
    page = browser.get(f"/chunks/default/{chunk['chunk_id']}").text
    assert f'href="/source/default/{chunk["chunk_id"]}"' in page
    assert data["after"] in page


@pytest.mark.parametrize(
    "path",
    [
        "/documents/default/no-such",
        "/chunks/default/chk_no",
        "/documents/nowhere/x",
        "/ingestion/jobs/job_no",
        "/ingestion/uploads/up_0123456789abcdef",
        "/ingestion/uploads/up_..",
        "/drafts/default/no-such",
        "/api/jobs/job_no/events",
    ],
)
def test_what_is_not_there_is_said(browser: TestClient, path: str) -> None:
    answer = browser.get(path)
    assert answer.status_code == 404
    assert "/home" not in answer.text


def test_hostile_titles_and_texts_run_nowhere(shelf: Shelf, tmp_path: Path) -> None:
    file = tmp_path / "\u202etxt.evil.md"  # would read as dm.live.txt
    file.write_text(HOSTILE, encoding="utf-8")
    shelf.ingest(file)
    with client_of(shelf) as client:
        doc_id = doc_id_of(client)
        chunk_id = client.get(f"/api/documents/{doc_id}/chunks").json()["chunks"][0]["chunk_id"]
        for path in (
            "/browser",
            f"/documents/default/{doc_id}",
            f"/documents/default/{doc_id}/text",
            f"/chunks/default/{chunk_id}",
            f"/drafts/default/{doc_id}",
        ):
            page = client.get(path)
            assert page.status_code == 200, path
            for risky in ("<script>alert", "<img src=x", 'href="javascript', 'href="data'):
                assert risky not in page.text, (path, risky)
            assert "\u202e" not in page.text and "__preamble__" not in page.text, path


def test_two_versions_of_a_document_are_compared(
    desk: TestClient, shelf: Shelf, tmp_path: Path
) -> None:
    doc_id = doc_id_of(desk)
    assert desk.get(f"/documents/default/{doc_id}/diff").status_code == 404
    changed = (tmp_path / "guide.md").read_text(encoding="utf-8").replace("another", "more")
    (tmp_path / "guide.md").write_text(changed, encoding="utf-8")
    shelf.ingest(tmp_path / "guide.md")
    page = desk.get(f"/documents/default/{doc_id}").text
    link = re.search(r'href="([^"]+/diff[^"]+)"', page)
    assert link is not None
    shown = desk.get(link[1].replace("&amp;", "&")).text
    assert "-Beta says another." in shown
    assert "+Beta says more." in shown
    data = desk.get(f"/api/documents/{doc_id}/diff").json()
    assert len(data["chunks"]["changed"]) == 1
    assert data["chunks"]["unchanged"] == 1


# --- drafts -------------------------------------------------------------------------------------


LONG = f"Alpha says nothing, {'and more, ' * 20}at length."


def test_chunks_are_edited_split_undone_and_errors_are_told(desk: TestClient) -> None:
    doc_id = doc_id_of(desk)
    here = f"/drafts/default/{doc_id}"
    first, second = desk.get(f"/api/drafts/{doc_id}").json()["chunks"]
    edit = {"op": "edit_text", "chunk_id": first["chunk_id"], "text": LONG}
    shown = desk.post(f"{here}/operations", data=edit)
    assert LONG in shown.text
    draft = desk.get(f"/api/drafts/{doc_id}").json()
    assert [it["edited"] for it in draft["chunks"]] == [True, False]
    preview = desk.get(f"/api/drafts/{doc_id}/preview").json()
    assert (preview["chunks_added"], preview["chunks_removed"]) == (1, 1)
    page = desk.get(f"{here}/preview").text
    assert LONG in page
    split = {"op": "split_at", "chunk_id": second["chunk_id"], "offset": 9999}
    refused = desk.post(f"{here}/operations", data=split)
    assert refused.status_code == 400
    assert "bad_offset" in refused.text
    # what was typed is not lost where it cannot be kept
    blank = {"op": "edit_text", "chunk_id": first["chunk_id"], "text": "typed with care"}
    assert "typed with care" in refused_edit(desk, here, blank)
    assert "invalid_arguments" in desk.post(f"{here}/unknown").text
    assert "operations" in desk.post(f"/api/drafts/{doc_id}/undo").json()
    assert desk.get(f"/api/drafts/{doc_id}").json()["state"] == "none"
    assert "No document is edited" in desk.get("/drafts").text


def refused_edit(desk: TestClient, here: str, edit: dict[str, Any]) -> str:
    """The page that refuses an edit of a chunk that an earlier edit changed."""
    answer = desk.post(f"{here}/operations", data=edit)
    assert answer.status_code == 400
    return answer.text


def test_a_page_of_chunks_begins_where_it_is_asked_to(desk: TestClient) -> None:
    doc_id = doc_id_of(desk)
    first, second = desk.get(f"/api/drafts/{doc_id}").json()["chunks"]
    page = desk.get(f"/api/drafts/{doc_id}?limit=1").json()
    assert [it["chunk_id"] for it in page["chunks"]] == [first["chunk_id"]]
    page = desk.get(f"/api/drafts/{doc_id}?limit=1&cursor={page['next_cursor']}").json()
    assert [it["chunk_id"] for it in page["chunks"]] == [second["chunk_id"]]
    named = desk.get(f"/api/drafts/{doc_id}?chunk_id={second['chunk_id']}").json()
    assert (named["total"], [it["chunk_id"] for it in named["chunks"]]) == (
        2,
        [second["chunk_id"]],
    )


# --- ingestion ----------------------------------------------------------------------------------


def upload(client: TestClient, *files: tuple[str, bytes]) -> Any:
    """The answer to files that are handed over."""
    return client.post("/api/uploads", files=[("files", file) for file in files])


def test_files_wait_are_looked_at_and_forgotten(desk: TestClient, store: Store) -> None:
    kept = upload(desk, ("../../etc/no\u202etes.md", b"# A\n\nText."), ("b.txt", b"Plain.")).json()
    assert [(it["name"], it["size"]) for it in kept["files"]] == [("b.txt", 6), ("notes.md", 10)]
    address = f"/api/uploads/{kept['upload_id']}"
    preview = desk.get(f"{address}/preview", params={"name": "notes.md"}).json()
    assert (preview["title"], preview["chunks_total"]) == ("A", 1)
    assert desk.get(f"{address}/preview?name=../b.txt").status_code == 404
    assert desk.get(f"/ingestion/uploads/{kept['upload_id']}").status_code == 200
    assert f"/ingestion/uploads/{kept['upload_id']}" in desk.get("/ingestion").text
    assert desk.delete(address).status_code == 204
    assert desk.get(address).status_code == 404
    assert not list((store.spool_dir / "uploads").iterdir())
    assert desk.get("/api/documents").json()["total"] == 1


def test_a_token_for_one_library_sees_only_its_own_uploads(desk: TestClient, shelf: Shelf) -> None:
    theirs = upload(desk, ("salaries.md", b"# A")).json()["upload_id"]
    token, secret = Tokens(shelf.store).create("w", scope="write", namespaces=["default"])
    with client_of(shelf) as client:
        client.headers["Authorization"] = f"Bearer {secret}"
        own = upload(client, ("mine.md", b"# B")).json()["upload_id"]
        page = client.get("/ingestion").text
        assert own in page and "salaries.md" not in page
        assert client.get(f"/api/uploads/{own}").json()["files"][0]["name"] == "mine.md"
    Tokens(shelf.store).revoke(token.token_id)
    assert theirs in (page := desk.get("/ingestion").text) and own in page


def test_a_caller_of_oauth_for_one_library_uploads_files(settings: Settings) -> None:
    """Its id is an address, with a slash."""
    callers = [
        access.Caller(f"https://idp.example/#{name}", "write", frozenset({"default"}))
        for name in ("ann", "ben")
    ]
    for caller in callers:
        with access.acting_for(caller):
            kept = keep_upload(settings, [("a.md", io.BytesIO(b"# A"))])
            assert list_uploads(settings) == [kept]
    assert len(list_uploads(settings)) == 2


def test_a_preview_that_nobody_waits_for_ends(desk: TestClient, shelf: Shelf) -> None:
    with pymupdf.open() as document:
        document.new_page().insert_text((72, 90), "The gate opens at six.")
        made = upload(desk, ("gate.pdf", document.tobytes())).json()
    gone = threading.Event()
    gone.set()
    with pytest.raises(CancelledError, match="after 1 of 1 pages"):
        preview_upload(shelf.settings, "default", made["upload_id"], "gate.pdf", cancelled=gone)


def test_names_of_files_keep_what_people_see_of_their_last_part() -> None:
    assert file_name("..\\..\\a\u202eb\x00.md") == "ab.md"
    assert file_name("/etc/休假 (1).md") == "休假 (1).md"
    for bad in ("", "..", "notes", "\x00\x01.md", "x" * 200 + ".md"):
        with pytest.raises(InputError, match="suffix"):
            file_name(bad)
    assert file_name("src/LICENSE", needs_suffix=False) == "LICENSE"  # among other files
    for bad in ("", "..", " . ", "x" * 201):
        with pytest.raises(InputError, match="at most 200 bytes"):
            file_name(bad, needs_suffix=False)


def test_uploads_have_limits(shelf: Shelf) -> None:
    small = with_http(shelf.settings, {"max_upload_bytes": 4000, "max_upload_files": 2})
    limits = small.limits.model_copy(update={"max_bytes": 1000})
    settings = small.model_copy(update={"limits": limits})
    with client_of(Shelf(settings, shelf.store, shelf.ledger)) as client:
        for files, code in (
            ([("a.md", b"x" * 1001)], "too_large"),
            ([("a.md", b"x" * 9000)], "too_large"),
            ([("x" * 201, b"x")], "bad_filename"),
            ([("a.md", b"x")] * 3, "http_error"),
        ):
            answer = upload(client, *files)
            assert (answer.status_code, answer.json()["code"]) == (400, code)
        assert client.post("/api/uploads", content=b"x").json()["code"] == "no_files"
        assert not list((shelf.store.spool_dir / "uploads").glob("*/*"))
        sent = {"namespace": "notes", "tags": "a, b"}
        for size in (1001, 9000):  # before and after the form is read
            files = {"files": ("a.md", b"x" * size)}
            again = client.post("/ingestion/upload", data=sent, files=files)
            assert again.status_code == 400 and 'type="file"' in again.text
            assert "is too large" in again.text or "the upload has" in again.text
            assert ('value="a, b"' in again.text) == (size == 1001)


def test_a_refused_file_leaves_the_others_of_its_upload(shelf: Shelf) -> None:
    limits = shelf.settings.limits.model_copy(update={"max_bytes": 1000})
    settings = shelf.settings.model_copy(update={"limits": limits})
    long, same = "x" * 201, "b/a.md"
    with client_of(Shelf(settings, shelf.store, shelf.ledger)) as client:
        given = [("a.md", b"x"), ("big.md", b"x" * 1001), (long, b"x"), (same, b"y"), ("c", b"")]
        kept = upload(client, *given).json()
        assert kept["files"] == [{"name": "a.md", "size": 1}, {"name": "c", "size": 0}]
        assert [(it["name"], it["code"]) for it in kept["refused"]] == [
            ("big.md", "too_large"),
            (long, "bad_filename"),
            (same, "same_name"),
        ]
        page = client.get(f"/ingestion/uploads/{kept['upload_id']}").text
        assert "Not taken: 3." in page and "big.md&#39; is too large: a file has at most" in page
        assert client.get("/api/uploads/" + kept["upload_id"]).json() == kept


def test_a_refused_form_leads_back_to_its_page(desk: TestClient) -> None:
    page = "http://127.0.0.1/ingestion/uploads/up_0123456789abcdef?tags=a"
    address, sent = page.partition("?")[0], {"namespace": "default"}
    for origin, referer in (("http://127.0.0.1", page), ("http://127.0.0.1", "http://x.example/")):
        headers = {"Origin": origin, "Referer": referer}
        told = desk.post(address, data=sent, headers=headers)
        assert (told.status_code, f'href="{referer}">Back' in told.text) == (404, referer == page)
    assert "Back</a>" not in desk.get(address, headers={"Referer": page}).text


def test_names_of_files_are_decoded_as_browsers_encode_them(desk: TestClient) -> None:
    body = (
        b'--b\r\nContent-Disposition: form-data; name="files"; filename="a %22b%22%0D%0A%20%25.md"'
        b"\r\n\r\nText.\r\n--b--\r\n"
    )
    form = {"Content-Type": "multipart/form-data; boundary=b"}
    kept = desk.post("/api/uploads", content=body, headers=form).json()
    assert kept["files"][0]["name"] == 'a "b"%20%25.md'


def test_only_the_owner_names_any_path(shelf: Shelf, tmp_path: Path) -> None:
    (tmp_path / "note.md").write_text("# A\n\nText.", encoding="utf-8")
    place = {"path": str(tmp_path / "note.md")}
    secret = Tokens(shelf.store).create("writer", scope="write")[1]
    with client_of(shelf) as client:
        refused = client.post(
            "/api/ingest", json=place, headers={"Authorization": f"Bearer {secret}"}
        )
        assert (refused.status_code, refused.json()["code"]) == (400, "path_not_allowed")
    for token in Tokens(shelf.store).all():
        Tokens(shelf.store).revoke(token.token_id)


def test_the_data_root_is_no_place_of_documents(shelf: Shelf) -> None:
    with client_of(shelf) as client:
        for path in (shelf.settings.home, shelf.settings.home.parent, "/no/such/file.md"):
            shown = client.post(
                "/ingestion/place", data={"place": str(path), "namespace": "default"}
            )
            assert shown.status_code == 400, path
        shown = client.post(
            "/ingestion/place",
            data={"place": "http://127.0.0.1:1/x", "namespace": "default", "action": "preview"},
        )
        assert "no_preview" in shown.text


def test_a_place_that_cannot_be_taken_leaves_the_form_filled(shelf: Shelf) -> None:
    with client_of(shelf) as client:
        again = client.post(
            "/ingestion/place", data={"place": "/no/such.md", "namespace": "notes", "tags": "a, b"}
        )
        assert again.status_code == 400 and "missing_path" in again.text
        for typed in ("/no/such.md", "notes", "a, b"):
            assert f'value="{typed}"' in again.text


def test_a_failed_job_shows_its_documents_and_streams_its_end(
    desk: TestClient, shelf: Shelf
) -> None:
    items = [
        JobItem(f"files/{n}.md", f"d{n}", f"default.d{n}@1", "new", state)
        for n, state in enumerate(["done", "failed", "queued"])
    ]
    job = shelf.ledger.add_job("ingest", "default", {"retry_of": "all"}, items)
    reason = (
        "the disk is full: 0.1 MB are free under /srv; what is published stays as it is. Free some"
        " space (`rag gc` removes what nothing needs); `rag jobs retry"
        f" {job.job_id}` does the work then"
    )
    progress = {"stages": {"documents": {"done": 1, "total": 3}}}
    shelf.ledger.update_job(job.job_id, state="running", pid=os.getpid(), progress=progress)
    page = desk.get(f"/ingestion/jobs/{job.job_id}").text
    assert "1 in progress" in page and "queued" not in page and "jobs/all" not in page
    shelf.ledger.update_job(job.job_id, state="failed", reason=reason, ended_at="x")
    shelf.ledger.update_job(job.job_id, ended_at="2026-11-23T10:00:00Z", trace_id="tr_1")
    page = desk.get(f"/ingestion/jobs/{job.job_id}?").text
    assert "the disk is full" in page
    told = desk.get(f"/ingestion/jobs/{job.job_id}?", headers={"Accept-Language": "zh"}).text
    assert "磁盘已满：仅剩 0.1 MB" in told
    again = f'“<a href="/ingestion/jobs/{job.job_id}?namespace=default">重试</a>” 会完成工作'
    assert again in told and "<code>rag gc</code> （在终端中执行）" in told
    assert desk.get(f"/api/jobs/{job.job_id}").json()["code"] == "disk_full"
    given = get_job(shelf.settings, job.job_id)
    assert given["code"] == "disk_full" and "[disk_full] the disk is full" in given["markdown"]
    assert page.count("Try this one again") == 1
    shelf.ledger.update_job_item(job.job_id, "default.d1@1", "failed", "empty_file", "no text")
    page = desk.get(f"/ingestion/jobs/{job.job_id}?").text
    assert "empty_file" in page and "Try this one again" not in page
    assert "<button>Try again<" in page
    data = desk.get(f"/api/jobs/{job.job_id}?limit=1").json()
    assert [it["state"] for it in data["items"]] == ["failed"]
    assert data["counts"] == {"done": 1, "failed": 1, "unprocessed": 1}
    assert "unprocessed" in page and "queued" not in page
    after = desk.get(f"/api/jobs/{job.job_id}?limit=2&cursor={data['next_cursor']}").json()
    assert [it["source_uri"] for it in after["items"]] == ["files/0.md", "files/2.md"]
    assert [it["state"] for it in after["items"]] == ["done", "unprocessed"]
    assert after["next_cursor"] is None
    stream = desk.get(f"/api/jobs/{job.job_id}/events").text
    assert stream.startswith("event: end\n")
    assert '"state":"failed"' in stream
    assert "event: end" in desk.get(f"/ingestion/jobs/{job.job_id}/events").text
    # nothing is left but a file that has to be replaced
    shelf.ledger.update_job(job.job_id, state="partly")
    shelf.ledger.update_job_item(job.job_id, "default.d2@1", "skipped")
    assert "<button>Try again<" not in desk.get(f"/ingestion/jobs/{job.job_id}?").text


def test_jobs_come_in_pages_newest_first(desk: TestClient, shelf: Shelf) -> None:
    made = [shelf.ledger.add_job("gc", "default", {}).job_id for _ in range(3)]
    for job_id in made:
        shelf.ledger.update_job(job_id, state="done")
    page = desk.get("/api/jobs?limit=2").json()
    assert [job["job_id"] for job in page["jobs"]] == made[:0:-1]
    page = desk.get(f"/api/jobs?limit=2&cursor={page['next_cursor']}").json()
    assert [job["job_id"] for job in page["jobs"]] == made[:1]
    assert page["next_cursor"] is None


def test_jobs_link_to_dagster_where_its_address_is_set(shelf: Shelf) -> None:
    job = shelf.ledger.add_job("ingest", "default", {"run_id": "abc"})
    shelf.ledger.update_job(job.job_id, state="done")
    server = shelf.settings.server.model_copy(update={"dagster_url": "http://127.0.0.1:3000/"})
    settings = shelf.settings.model_copy(update={"server": server})
    for chosen, link in ((settings, "http://127.0.0.1:3000/runs/abc"), (shelf.settings, "")):
        with client_of(Shelf(chosen, shelf.store, shelf.ledger)) as client:
            assert client.get(f"/api/jobs/{job.job_id}").json()["run_url"] == link


# --- deletion and releases ----------------------------------------------------------------------


def test_a_deletion_shows_what_goes_and_takes_its_own_code(
    desk: TestClient, shelf: Shelf, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jobs, "launch", lambda job, settings, store: jobs.Started(job, None))
    doc_id = doc_id_of(desk)
    page = desk.get(f"/documents/default/{doc_id}/delete?mode=hard").text
    uri = desk.get(f"/api/documents/{doc_id}").json()["source_uri"]
    assert f"<bdi>{uri}</bdi>" in page
    code = re.search(r'name="confirm" value="([0-9a-f]{8})"', page)
    assert code is not None
    wrong = desk.post(f"/documents/default/{doc_id}/delete", data={"confirm": "00000000"})
    assert (wrong.status_code, "wrong_confirmation" in wrong.text) == (400, True)
    assert desk.get("/api/documents").json()["total"] == 1
    gone = desk.post(
        f"/documents/default/{doc_id}/delete", data={"confirm": code[1], "mode": "hard"}
    )
    assert gone.url.path.startswith("/ingestion/jobs/")
    assert desk.get("/api/documents").json()["total"] == 0
    shown = desk.get(f"/documents/default/{doc_id}").text
    assert "Ingesting the file again brings it back" in shown and "waits for" not in shown
    proof = desk.get(f"/api/documents/{doc_id}/proof").json()
    told = desk.get(f"/documents/default/{doc_id}/proof", headers={"Accept-Language": "zh"}).text
    assert not re.search(r"<tr><td>[a-z ]+</td>", told)
    assert proof["remaining"]["raw"] == 1
    assert proof["not_looked_into"]


def test_releases_are_compared_rolled_back_forward_and_pinned(
    desk: TestClient, shelf: Shelf, tmp_path: Path
) -> None:
    (tmp_path / "more.md").write_text("# More\n\nGamma says a third.", encoding="utf-8")
    shelf.ingest(tmp_path / "more.md")
    data = desk.get("/api/releases").json()
    newest, first = (row["release_id"] for row in data["releases"])
    assert (data["can_roll_back"], data["can_go_forward"]) == (True, False)
    diff = desk.get("/api/releases/diff").json()
    assert [(it["change"], it["chunks_added"]) for it in diff["documents"]] == [("added", 1)]
    assert "files/more.md" in desk.get("/releases/diff").text
    told = desk.get("/releases", headers={"Accept-Language": "zh"}).text
    assert "1 个文档的 2 个文本块；没有近似索引" in told and "1 个在用版本" in told
    back = desk.post("/releases/rollback", data={"namespace": "default"})
    assert back.url.path == "/releases"
    assert desk.get("/api/documents?status=active").json()["total"] == 1
    assert desk.post("/api/releases/forward").json()["releases"][0]["state"] == "published"
    desk.post("/releases/pin", data={"namespace": "default", "release_id": first})
    rows = {row["release_id"]: row for row in desk.get("/api/releases").json()["releases"]}
    assert (rows[first]["pinned"], rows[newest]["pinned"]) == (True, False)
    assert all(check["passed"] for check in rows[newest]["checks"])
    assert desk.post("/api/releases/forward").status_code == 409
    assert (
        desk.post(
            "/releases/rollback", data={"namespace": "default", "release_id": "../x"}
        ).status_code
        == 400
    )


def test_the_published_release_is_compared_with_what_waits(
    desk: TestClient, shelf: Shelf, tmp_path: Path
) -> None:
    (first,) = (row.release_id for row in shelf.ledger.releases("default"))
    made: list[str] = []
    for name in ("two", "three"):
        (tmp_path / f"{name}.md").write_text(f"# {name}\n\nIt says {name}.", encoding="utf-8")
        made.append(shelf.ingest(tmp_path / f"{name}.md"))
    for release_id in made:  # as if the gate had held both back
        shelf.ledger.update_release("default", release_id, state="rejected", published_at="")
    pointer = shelf.store.current_path("default")
    pointer.write_text(first, encoding="utf-8")

    def chosen() -> list[str]:
        return re.findall(r"<option selected>([^<]+)", desk.get("/releases").text)

    assert chosen() == [first, made[1]]  # before, after
    # once it is published all the same, the one that readers had before it is the other
    published_at = shelf.ledger.releases("default")[-1].published_at
    shelf.ledger.update_release("default", made[1], state="published", published_at=published_at)
    pointer.write_text(made[1], encoding="utf-8")
    assert chosen() == [first, made[1]]


def test_readers_may_not_change_anything(desk: TestClient, shelf: Shelf) -> None:
    doc_id = doc_id_of(desk)
    secret = Tokens(shelf.store).create("reader", scope="read")[1]
    with client_of(shelf) as client:
        client.headers["Authorization"] = f"Bearer {secret}"
        for path in (
            "/api/ingest",
            "/api/uploads",
            f"/api/drafts/{doc_id}/undo",
            f"/api/documents/{doc_id}/delete",
            "/api/releases/rollback",
            "/ingestion/place",
            "/releases/pin",
            f"/documents/default/{doc_id}/delete",
            f"/drafts/default/{doc_id}/publish",
        ):
            assert client.post(path, json={}).status_code == 403, path
        assert "Your token may read only" in client.get("/ingestion").text
        assert "Delete…" not in client.get(f"/documents/default/{doc_id}").text
