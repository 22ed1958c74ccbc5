"""Lists, documents in their four forms, and status, over a real release."""

from __future__ import annotations

import json
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from starlette.requests import Request

from rag_platform.answering.engine import answer
from rag_platform.api.documents import Selection, abridge_rows, get_document, list_documents
from rag_platform.api.status import status
from rag_platform.errors import InputError, NotFoundError
from rag_platform.ir import QueryRequest
from rag_platform.releases.publishing import roll_back
from rag_platform.retrieval.library import Library
from rag_platform.text.tokens import estimate_tokens
from rag_platform.web.dependencies import View
from rag_platform.web.routes.documents import list_chunks

PORTS, NOTES, HOLIDAYS = "files/ports.md", "files/notes.txt", "files/休假.md"


@pytest.fixture(scope="module")
def library(read_only_shelf: Any) -> Any:
    opened = read_only_shelf.library()
    yield opened
    opened.close()


@pytest.fixture(scope="module")
def ids(library: Library) -> dict[str, str]:
    groups = list_documents(library, "default", group_by=None)["groups"]
    return {listed["source_uri"]: listed["doc_id"] for listed in groups[0]["documents"]}


def shape(data: Any) -> list[tuple[str, int, list[str]]]:
    return [
        (group["key"], group["count"], [row["source_uri"] for row in group["documents"]])
        for group in data["groups"]
    ]


def test_documents_by_tag_stand_in_every_group_they_belong_to(library: Library) -> None:
    data = list_documents(library, "default")
    assert shape(data) == [
        ("guide", 2, [NOTES, PORTS]),
        ("hr", 1, [HOLIDAYS]),
        ("ops", 2, [NOTES, PORTS]),
    ]
    assert data["total"] == 3 and data["next_cursor"] is None
    row = data["groups"][0]["documents"][1]
    assert {
        key: row[key] for key in ("filename", "title", "tags", "source", "chunks", "status")
    } == {
        "filename": "ports.md",
        "title": "Port guide",
        "tags": ["guide", "ops"],
        "source": "files",
        "chunks": 2,
        "status": "active",
    }
    assert data["markdown"].startswith(
        "3 documents in library default\n"
        "\n"
        "**guide** (2)\n"
        "\n"
        f"- Release notes (files/notes.txt, 1 chunk, changed {row['updated_at'][:10]}): `"
    )


def test_brief_rows_leave_out_what_the_text_says(library: Library) -> None:
    page = abridge_rows(list_documents(library, "default", group_by=None))
    row = next(row for row in page["groups"][0]["documents"] if row["filename"] == "ports.md")
    assert {key: value for key, value in row.items() if key not in ("doc_id", "updated_at")} == {
        "filename": "ports.md",
        "tags": ["guide", "ops"],
        "status": "active",
    }


def test_a_document_with_two_tags_is_told_in_full_once(library: Library) -> None:
    page = list_documents(library, "default")
    again = page["groups"][2]["documents"][0]
    lines = [line for line in page["markdown"].splitlines() if again["doc_id"] in line]
    assert lines[1] == f"- files/notes.txt: `{again['doc_id']}`" and len(lines[0]) > len(lines[1])
    rows = [row for group in abridge_rows(page)["groups"] for row in group["documents"]]
    assert [("tags" in row) for row in rows] == [True, True, True, False, False]


def test_brief_rows_are_at_most_half_as_long_again_as_their_lines(library: Library) -> None:
    for group_by in (None, "tags", "source"):
        page = abridge_rows(list_documents(library, "default", group_by=group_by))
        structure = json.dumps(page["groups"], ensure_ascii=False, separators=(",", ":"))
        assert len(structure) <= 1.5 * len(page["markdown"]), (group_by, page)


def test_pages_join_to_the_whole_list(library: Library) -> None:
    seen: list[tuple[str, str]] = []
    cursor = None
    for _ in range(5):
        page = list_documents(library, "default", limit=1, cursor=cursor)
        seen += [
            (group["key"], row["source_uri"])
            for group in page["groups"]
            for row in group["documents"]
        ]
        cursor = page["next_cursor"]
    assert cursor is None
    assert seen == [
        ("guide", NOTES),
        ("guide", PORTS),
        ("hr", HOLIDAYS),
        ("ops", NOTES),
        ("ops", PORTS),
    ]


def test_a_small_budget_gives_short_pages_not_cut_rows(library: Library) -> None:
    page = list_documents(library, "default", group_by="source", max_tokens=350)
    assert shape(page) == [("files", 3, [NOTES])] and page["next_cursor"]


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"tags": "hr"}, [HOLIDAYS]),
        ({"tags": ["hr", "ops"]}, [NOTES, PORTS, HOLIDAYS]),
        ({"tags": ["hr"], "source": "files"}, [HOLIDAYS]),
        ({"source": ["other"]}, []),
        ({"status": "active"}, [NOTES, PORTS, HOLIDAYS]),
        ({"status": ["failed", "deleted"]}, []),
    ],
)
def test_filters(library: Library, given: dict[str, Any], expected: list[str]) -> None:
    data = list_documents(library, "default", group_by=None, filter=given)
    assert [row["source_uri"] for group in data["groups"] for row in group["documents"]] == expected
    assert data["total"] == len(expected)
    missed = "No documents in library default match."
    assert (data["markdown"] == missed) == (not expected)


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        ({"group_by": "colour"}, "unknown_group"),
        ({"filter": {"colour": "red"}}, "unknown_filter"),
        ({"filter": {"tags": 3}}, "bad_filter"),
        ({"filter": {"status": "gone"}}, "bad_filter"),
        ({"limit": 0}, "bad_limit"),
        ({"cursor": "nonsense"}, "bad_cursor"),
        ({"cursor": "WzEsMl0="}, "bad_cursor"),
    ],
)
def test_wrong_arguments_of_lists(library: Library, arguments: dict[str, Any], code: str) -> None:
    with pytest.raises(InputError) as raised:
        list_documents(library, "default", **arguments)
    assert raised.value.code == code


def test_a_cursor_of_another_grouping_is_refused(library: Library) -> None:
    cursor = list_documents(library, "default", limit=1)["next_cursor"]
    with pytest.raises(InputError, match="grouped by tags"):
        list_documents(library, "default", group_by="source", cursor=cursor)


def test_unknown_namespace_names_the_known_ones(library: Library) -> None:
    with pytest.raises(NotFoundError, match="unknown library 'nope'; known: default"):
        list_documents(library, "nope")


def test_statuses_and_deletions(shelf: Any, tmp_path: Path) -> None:
    docs = tmp_path / "docs"
    docs.mkdir()
    for name in ("a.md", "b.md"):
        (docs / name).write_text(f"# {name}\n\nSome words about {name}.\n", encoding="utf-8")
    shelf.ingest(docs)
    (docs / "a.md").unlink()
    (docs / "c.md").write_bytes(b"  \n")
    shelf.ingest(docs, sync=True)
    library = shelf.library()
    assert shape(list_documents(library, "default", group_by=None)) == [
        ("", 2, ["docs/b.md", "docs/c.md"])
    ]
    plain = list_documents(library, "default", limit=1)
    said = "2 documents in library default, 1 of them not published\n"
    assert plain["unpublished"] == 1 and plain["markdown"].startswith(said)
    later = list_documents(library, "default", limit=1, cursor=plain["next_cursor"])
    assert "unpublished" not in later, "counted once"
    everything = list_documents(library, "default", group_by=None, include_deleted=True)
    states = {row["source_uri"]: row["status"] for row in everything["groups"][0]["documents"]}
    assert states == {"docs/a.md": "retired", "docs/b.md": "active", "docs/c.md": "failed"}
    retired = list_documents(library, "default", group_by=None, filter={"status": "retired"})
    assert shape(retired) == [("", 1, ["docs/a.md"])]
    library.close()


def test_markdown_is_the_facts_with_asset_targets_and_nothing_else(
    library: Library, ids: dict[str, str]
) -> None:
    data = get_document(library, "default", ids[PORTS])
    asset_id = data["document"]["asset_ids"][0]
    assert (
        data["markdown"]
        == data["document"]["md_text"]
        == "---\ntitle: Port guide\n---\n\n# Ports\n\nThe gateway listens on port 8080 unless"
        " `PORT-9087` is set.\n\n## Limits\n\n| tier | requests per minute |\n| --- | --- |\n|"
        f" free | 60 |\n| pro | 600 |\n\n![diagram](asset://{asset_id})\n"
    )
    assert "warnings" not in data and not data["document"]["truncated"]


def test_sections_chunks_and_outline(library: Library, ids: dict[str, str]) -> None:
    sections = get_document(library, "default", ids[HOLIDAYS], format="sections")["document"][
        "sections"
    ]
    assert [
        (row["section_path"], row["level"], row["chunks"], row["text"].strip()) for row in sections
    ] == [
        ("休假制度", 1, 1, "# 休假制度\n\n员工每年有十五天带薪年假，须提前三个工作日申请。"),
        ("休假制度 / 病假", 2, 1, "## 病假\n\n病假需要医生证明，超过三天的病假由部门经理批准。"),
    ]
    chunks = get_document(library, "default", ids[HOLIDAYS], format="chunks")["document"]["chunks"]
    assert [(row["chunk_index"], row["section_path"], row["line_range"]) for row in chunks] == [
        (0, "休假制度", [1, 3]),
        (1, "休假制度 / 病假", [5, 7]),
    ]
    outline = get_document(library, "default", ids[HOLIDAYS], format="outline")
    assert outline["markdown"].endswith("- 休假制度 (1 chunk)\n  - 病假 (1 chunk)")
    assert all("text" not in row for row in outline["document"]["sections"])


@pytest.mark.parametrize("form", ["md", "sections", "chunks"])
def test_a_cut_is_said(library: Library, ids: dict[str, str], form: str) -> None:
    data = get_document(library, "default", ids[HOLIDAYS], format=form, max_chars=20)
    part = data["document"]
    assert part["truncated"] and 0 < part["shown_chars"] <= 20 < part["total_chars"]
    assert f"{part['shown_chars']} of {part['total_chars']} characters" in data["warnings"][0]


@pytest.mark.parametrize("form", ["md", "sections", "chunks", "outline"])
def test_long_documents_stay_within_the_budget(shelf: Any, tmp_path: Path, form: str) -> None:
    path = tmp_path / "long.md"
    sections = [
        f"## 第 {n} 节 Section {n}\n\n"
        + f"第{n}段的内容很长，包含许多字。Sentence {n} has words. " * 12
        for n in range(80)
    ]
    path.write_text("# Long\n\n" + "\n\n".join(sections) + "\n", encoding="utf-8")
    shelf.ingest(path)
    library = shelf.library()
    doc_id = list_documents(library, "default", group_by=None)["groups"][0]["documents"][0][
        "doc_id"
    ]
    data = get_document(library, "default", doc_id, format=form, max_tokens=2000)
    assert estimate_tokens(json.dumps(data, ensure_ascii=False)) <= 2000
    assert data["document"]["truncated"] and data["warnings"]
    whole = get_document(library, "default", doc_id, format=form, max_chars=10**6)
    assert not whole["document"]["truncated"] and "next_cursor" not in whole
    pages = [data]
    while cursor := pages[-1].get("next_cursor"):
        follow = Selection(cursor)
        page = get_document(
            library, "default", doc_id, format=form, max_tokens=2000, selection=follow
        )
        pages.append(page)
    assert len(pages) > 2 and _texts(pages) == _texts([whole])
    library.close()


def _texts(pages: list[Any]) -> str:
    parts = [page["document"] for page in pages]
    rows = [row for part in parts for row in (*part.get("sections", ()), *part.get("chunks", ()))]
    return "".join(
        [*(part.get("md_text", "") for part in parts)]
        + [row.get("text", row.get("section_path", "")) for row in rows]
    )


def test_chunks_are_read_by_lines_and_cursors_belong_to_one_reading(
    library: Library, ids: dict[str, str]
) -> None:
    def read(form: str, **selected: Any) -> Any:
        return get_document(
            library, "default", ids[PORTS], format=form, selection=Selection(**selected)
        )

    part = read("chunks", lines=(9, 9))["document"]
    assert [row["section_path"] for row in part["chunks"]] == ["Ports / Limits"]
    with pytest.raises(InputError, match=r"pages 1-2; those .* no pages, lines 5-16"):
        read("chunks", pages=(1, 2))
    with pytest.raises(InputError, match="ask with format chunks, not md"):
        read("md", lines=(1, 2))
    first = get_document(library, "default", ids[PORTS], max_chars=10)
    with pytest.raises(InputError, match="begin again without it"):
        read("outline", cursor=first["next_cursor"])
    for cursor in ("?", "bnVsbA==", "WzEsMiwzLDRd"):
        with pytest.raises(InputError, match="pass next_cursor of the page before"):
            read("md", cursor=cursor)


def test_an_older_version_is_read_from_the_release_that_holds_it(
    shelf: Any, tmp_path: Path
) -> None:
    path = tmp_path / "ports.md"
    path.write_text("# Ports\n\nPort 8080.\n", encoding="utf-8")
    shelf.ingest(path)
    library = shelf.library()
    doc = list_documents(library, "default", group_by=None)["groups"][0]["documents"][0]
    path.write_text("# Ports\n\nPort 9090.\n", encoding="utf-8")
    shelf.ingest(path)
    assert "9090" in get_document(library, "default", doc["doc_id"])["markdown"]
    older = get_document(library, "default", doc["doc_id"], version_id=doc["version_id"])
    assert "8080" in older["markdown"]
    library.close()


def test_unknown_documents_name_near_ones(library: Library, ids: dict[str, str]) -> None:
    for wrong in ("ports.md", PORTS, "Port guide", "prots", "docs/prots.md", ids[PORTS][:-3]):
        with pytest.raises(NotFoundError, match=f"did you mean {ids[PORTS]}") as raised:
            get_document(library, "default", wrong)
        assert raised.value.code == "unknown_document"
    with pytest.raises(NotFoundError, match="`rag docs list --namespace default` shows them"):
        get_document(library, "default", "???")


def test_a_version_that_is_not_live_names_the_live_one(
    library: Library, ids: dict[str, str]
) -> None:
    live = get_document(library, "default", ids[PORTS])["document"]["version_id"]
    assert (
        get_document(library, "default", ids[PORTS], version_id=live)["document"]["version_id"]
        == live
    )
    with pytest.raises(
        NotFoundError, match=f"no kept release holds .*; the live version .* is {live}"
    ) as raised:
        get_document(library, "default", ids[PORTS], version_id="default.x@000000000000")
    assert raised.value.code == "version_not_live"


def test_status_tells_what_is_published(library: Library, read_only_shelf: Any) -> None:
    data = status(library)
    row = data["namespaces"][0]
    assert (
        row["namespace"],
        row["documents"],
        row["chunks"],
        row["strategy"],
        row["embedder"],
        row["pending"],
        row["problem"],
    ) == (
        "default",
        3,
        5,
        "tiny",
        "hashing-256 1",
        0,
        "",
    )
    assert data["schema_versions"] == {"store": 1, "ledger": 5, "catalog": 4, "logs": 1}
    assert str(read_only_shelf.store.home) not in json.dumps(data)
    assert "3 documents, 5 chunks" in data["markdown"]


def test_status_of_an_empty_installation(shelf: Any) -> None:
    data = status(shelf.library())
    assert data["namespaces"] == [] and "nothing ingested yet" in data["markdown"]
    assert list_documents(shelf.library(), "default")["groups"] == []


def test_after_a_rollback_documents_are_listed_as_they_are_served(
    shelf: Any, tmp_path: Path
) -> None:
    folder = tmp_path / "docs"
    folder.mkdir()
    for name, text in (("gate", "Opens at 05:30."), ("dock", "Holds 12 trucks.")):
        (folder / f"{name}.md").write_text(f"# {name}\n\n{text}\n", encoding="utf-8")
    shelf.ingest(folder)
    with closing(shelf.library()) as library:
        before = list_documents(library, "default", group_by=None)["groups"][0]["documents"]
    (folder / "gate.md").write_text("# gate\n\nOpens at 06:00. Closed on Sunday.\n")
    (folder / "dock.md").unlink()
    (folder / "hall.md").write_text("# hall\n\nIs heated.\n", encoding="utf-8")
    shelf.ingest(folder, sync=True)
    roll_back("default", None, shelf.root)
    with closing(shelf.library()) as library:
        data = list_documents(library, "default", group_by=None)
        states = {row["filename"]: row for row in data["groups"][0]["documents"]}
    assert {name: row["status"] for name, row in states.items()} == {
        "gate.md": "active",
        "dock.md": "active",
        "hall.md": "pending",
    }
    for row in before:
        served = states[row["filename"]]
        assert (served["version_id"], served["chunks"]) == (row["version_id"], row["chunks"])


def test_short_sections_are_listed_and_found_though_they_share_a_chunk(
    shelf: Any, config_folder: Path, tmp_path: Path
) -> None:
    tiny = (config_folder / "strategies" / "tiny.yaml").read_text(encoding="utf-8")
    (config_folder / "strategies" / "joining.yaml").write_text(
        tiny.replace("min_section_chars: 0", "min_section_chars: 200"), encoding="utf-8"
    )
    long = (
        "The gateway routes requests between services and records each call. " * 3 + "So it goes."
    )
    (tmp_path / "guide.md").write_text(
        f"# Gateway\n\n{long}\n\n## Ports\n\nIt listens on port 8443.\n\n## Retries\n\nA failed"
        " call is tried 3 times.\n",
        encoding="utf-8",
    )
    shelf.ingest(tmp_path / "guide.md", strategy="joining")
    with closing(shelf.library()) as library:
        question = "How often is a failed call tried?"
        found = answer(library, QueryRequest(question))
        [quoted] = found.citations
        assert quoted.quote_section == "Gateway / Retries"
        again = QueryRequest(question, filters={"section_path": quoted.quote_section})
        assert answer(library, again).citations[0].chunk_id == quoted.chunk_id
        unknown = answer(library, QueryRequest("calls", filters={"section_path": "Retries"}))
        assert (
            "no passage has section_path = Retries (there is: Gateway / Retries)"
            in unknown.warnings
        )
        part = get_document(library, "default", quoted.doc_id, format="sections")["document"]
        assert [(row["section_path"], row["chunks"], row["text"]) for row in part["sections"]] == [
            ("Gateway", 1, f"# Gateway\n\n{long}\n\n"),
            ("Gateway / Ports", 1, "## Ports\n\nIt listens on port 8443.\n\n"),
            ("Gateway / Retries", 1, "## Retries\n\nA failed call is tried 3 times.\n"),
        ]
        section_id = part["sections"][2]["section_id"]
        view = View(Request({"type": "http"}), library, "default")
        page = list_chunks(view, quoted.doc_id, section_id)
        assert [chunk["chunk_id"] for chunk in page["chunks"]] == [quoted.chunk_id]
        assert page["total"] == list_chunks(view, quoted.doc_id)["total"] == 1
