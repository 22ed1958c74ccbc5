"""The public contract: envelopes, exit codes, and the answer to a question within its budget."""

from __future__ import annotations

import dataclasses
import json
import re
from typing import Any

import pytest

from rag_platform.api.envelopes import envelope, exit_code, failure, fill_shape
from rag_platform.api.query_data import answer_data, fit_query, source_line
from rag_platform.contract.upkeep_shapes import JobItemRow
from rag_platform.errors import ConfigError, InputError, NotFoundError, ProviderError
from rag_platform.ir import Citation, Hit, QueryResult
from rag_platform.ledger.schema import JobItem
from rag_platform.text.tokens import estimate_tokens

TRACE = "trc_0123456789abcdef0123456789abcdef"


def hit(rank: int, text: str, **changes: Any) -> Hit:
    values: dict[str, Any] = {
        "rank": rank,
        "chunk_id": f"chk_{rank}",
        "score": 1.0 / rank,
        "source": "hybrid",
        "doc_id": "guide-1a2b3c4d5e",
        "version_id": "default.guide-1a2b3c4d5e@0123456789ab",
        "source_uri": "docs/guide.md",
        "filename": "guide.md",
        "doc_title": "Guide",
        "section_path": "Guide / Setup",
        "chunk_index": rank,
        "chunk_text": text,
        "line_range": (10 * rank, 10 * rank + 4),
    }
    return Hit(**(values | changes))


def cite(number: int, of: Hit) -> Citation:
    place = (of.page_range, of.line_range)
    return Citation(
        number,
        of.chunk_id,
        of.doc_id,
        of.version_id,
        of.source_uri,
        of.section_path,
        of.chunk_text,
        of.score,
        *place,
    )


def result(
    hits: list[Hit], cited: list[int], answer: str = "Port 8080 is used. [1]", **changes: Any
) -> QueryResult:
    citations = tuple(cite(n, hits[index]) for n, index in enumerate(cited, 1))
    values: dict[str, Any] = {
        "answer_markdown": answer,
        "citations": citations,
        "hits": tuple(hits),
        "confidence": 0.71234,
        "effective_mode": "hybrid",
        "applied_filters": {},
        "matched_count": None,
        "release_id": "20260101T000000-abc123",
        "trace_id": TRACE,
    }
    return QueryResult(**(values | changes))


def test_a_shape_is_filled_in_its_own_order_from_a_record_or_a_mapping() -> None:
    item = JobItem("a.md", "a-1", "v1", "new", attempts=2)
    row = fill_shape(JobItemRow, item, state="unprocessed")
    assert list(row) == list(JobItemRow.__annotations__)
    assert (row["source_uri"], row["state"], row["attempts"]) == ("a.md", "unprocessed", 2)
    assert fill_shape(JobItemRow, dict(reversed(row.items())), code="x") == {**row, "code": "x"}


def test_the_data_of_a_query_holds_the_fields_of_the_contract() -> None:
    first = hit(1, "# Setup\n\nPort 8080 is used.", asset_ids=("ab" * 32,))
    second = hit(2, "Other.", source_uri="docs/sheet.pdf", page_range=(3, 4), line_range=None)
    data = fit_query(result([first, second], [0]))[0]
    assert list(data) == [
        "markdown",
        "answer_markdown",
        "citations",
        "results",
        "confidence",
        "effective_mode",
        "applied_filters",
        "matched_count",
        "release_id",
        "answered",
        "state",
    ]
    expected = {
        "id": 1,
        "chunk_id": "chk_1",
        "doc_id": "guide-1a2b3c4d5e",
        "version_id": "default.guide-1a2b3c4d5e@0123456789ab",
        "source_uri": "docs/guide.md",
        "section_path": "Guide / Setup",
        "text": "# Setup\n\nPort 8080 is used.",
        "score": 1.0,
        "line_range": [10, 14],
    }
    assert data["citations"] == [expected]
    assert data["results"][0] == {
        "rank": 1,
        "chunk_id": "chk_1",
        "score": 1.0,
        "source": "hybrid",
        "text_snippet": "# Setup Port 8080 is used.",
        "citation": expected,
        "asset_ids": ["ab" * 32],
        "asset_uris": ["asset://" + "ab" * 32],
    }
    assert data["results"][1]["citation"]["id"] == 2
    assert (
        data["results"][1]["citation"]["page_range"] == [3, 4]
        and "line_range" not in data["results"][1]["citation"]
    )
    assert data["confidence"] == 0.7123 and data["matched_count"] is None


def test_a_citation_names_the_numbers_printed_on_its_pages() -> None:
    place = "page=3;char=0;printed=i, page=4;char=5;printed=A-1"
    found = [hit(1, "One. Two.", page_range=(3, 4), line_range=None, locator=place)]
    cited = Citation(
        id=1,
        chunk_id="chk_1",
        doc_id="a",
        version_id="v",
        source_uri="a.pdf",
        section_path="",
        text="One. Two.",
        score=1.0,
        page_range=(3, 4),
        locator=place,
        spans=((5, 9),),
        quote_pages=(4, 4),
    )
    asked = dataclasses.replace(result(found, [0]), citations=(cited,))
    data = fit_query(asked)[0]
    assert data["citations"][0]["printed_pages"] == ["i", "A-1"]
    assert data["citations"][0]["quote"] == {"page_range": [4, 4], "printed_pages": ["A-1", "A-1"]}
    assert "a.pdf, page 4 (printed A-1)" in data["markdown"]
    chinese = fit_query(dataclasses.replace(asked, language="zh"))[0]["markdown"]
    assert "a.pdf，第 4 页（印作 A-1）" in chinese
    whole = dataclasses.replace(cited, spans=(), quote_pages=None)
    assert source_line(whole) == "a.pdf, pages 3-4 (printed i-A-1)"


def test_the_frame_of_an_answer_is_in_the_language_of_its_question() -> None:
    hits = [hit(1, "端口是 8080。"), hit(2, "其他。", page_range=(3, 3), line_range=None)]
    warnings = ("the dense retriever failed (x); answered by the sparse retriever alone",)
    asked = dataclasses.replace(result(hits, [0], warnings=warnings), language="zh")
    markdown = fit_query(asked)[0]["markdown"]
    assert "**来源**\n\n[1] docs/guide.md，Guide / Setup，第 10-14 行" in markdown
    assert "(2) docs/guide.md，Guide / Setup，第 3 页" in markdown
    assert "说明：dense 检索失败（x）；只用 sparse 检索作答" in markdown
    assert "混合检索 · 置信度 0.71 · 发布版本 20260101T000000-abc123" in markdown


def test_markdown_is_readable_alone() -> None:
    hits = [
        hit(1, "# Setup\n\nPort 8080 is used."),
        hit(2, "Other.", page_range=(3, 3), line_range=None),
    ]
    markdown = fit_query(
        result(hits, [0], warnings=("the dense retriever failed",), matched_count=1)
    )[0]["markdown"]
    assert (
        markdown
        == "Port 8080 is used. [1]\n\n**Sources**\n\n[1] docs/guide.md, Guide / Setup, lines"
        " 10-14\n\n> # Setup\n>\n> Port 8080 is used.\n\n**Also found**\n\n(2) docs/guide.md,"
        " Guide / Setup, page 3\n\n> Other.\n\nNote: the dense retriever failed\n\n*filters leave 1"
        f" chunk · mode hybrid · confidence 0.71 · release 20260101T000000-abc123 · {TRACE}*"
    )


def test_every_mark_has_a_citation_and_every_citation_a_mark() -> None:
    hits = [hit(rank, f"Fact {rank}.") for rank in range(1, 6)]
    data = fit_query(result(hits, [2, 0], answer="Fact 3. [1] Fact 1. [2]"))[0]
    marks = {int(mark) for mark in re.findall(r"\[(\d+)\]", data["markdown"])}
    assert marks == {citation["id"] for citation in data["citations"]} == {1, 2}
    assert [item["citation"]["id"] for item in data["results"]] == [2, 3, 1, 4, 5]


def test_brief_names_the_sources_without_quoting_them() -> None:
    data = fit_query(
        result([hit(1, "Port 8080 is used. " * 40), hit(2, "Other.")], [0]), detail="brief"
    )[0]
    assert "- [1] docs/guide.md, Guide / Setup, lines 10-14" in data["markdown"]
    assert "> Port" not in data["markdown"] and "Also found" not in data["markdown"]
    assert len(data["citations"][0]["text"]) == 160


def test_only_images_of_the_listed_sources_are_counted() -> None:
    hits = [hit(1, "Port 8080."), hit(2, "Port 9090.", asset_ids=("ab" * 32,))]
    asked = result(hits, [0], answer="Port 8080. [1]")
    assert "image" not in fit_query(asked, "brief")[0]["markdown"]
    assert "1 image in these sources" in fit_query(asked, "full")[0]["markdown"]


def test_no_hits_say_so() -> None:
    data = fit_query(result([], [], answer=""))[0]
    assert data["markdown"].startswith(
        "No passage of this library answers the question.\n\n*mode hybrid"
    )
    assert data["citations"] == [] and data["results"] == []


@pytest.mark.parametrize(
    ("text", "detail"),
    [("word " * 160, "full"), ("中文段落" * 200, "full"), ("中文段落" * 200, "brief")],
)
@pytest.mark.parametrize("count", [8, 20, 100])
def test_budget_holds_and_cut_texts_stay_verbatim(text: str, detail: Any, count: int) -> None:
    hits = [hit(rank, f"{rank} {text}") for rank in range(1, count + 1)]
    data, warnings = fit_query(result(hits, [0, 1, 2]), detail, 8000)
    assert estimate_tokens(json.dumps(data, ensure_ascii=False, separators=(",", ":"))) <= 8000
    for item in data["results"]:
        assert (
            hits[item["rank"] - 1].chunk_text.startswith(item["citation"]["text"])
            and item["citation"]["text"]
        )
    left_out = count - len(data["results"])
    assert any("left out" in warning for warning in warnings) == (left_out > 0)
    assert [item["rank"] for item in data["results"]] == list(range(1, count - left_out + 1))
    assert all(f"Note: {warning}" in data["markdown"] for warning in warnings)


def test_a_text_that_is_cut_keeps_its_quote() -> None:
    text = "Other words stand here. " * 40 + "The port is 8443. " + "More of them. " * 60
    asked = result([hit(rank, text) for rank in range(1, 9)], [0])
    start = text.index("The port")
    quoted = dataclasses.replace(asked.citations[0], spans=((start, start + 17),))
    for linked, tokens in ((False, 8000), (True, 4000), (True, 1600)):
        shown, notes = fit_query(
            dataclasses.replace(asked, citations=(quoted,)), "full", tokens, linked=linked
        )
        [citation] = shown["citations"]
        [[first, last]] = citation["spans"]
        assert citation["text"][first:last] == "The port is 8443."
        begin = citation["text_start"]
        assert text[begin : begin + len(citation["text"])] == citation["text"] != text[begin:]
        assert any("texts were cut" in note for note in notes)
        assert not linked or "\n> … The port is 8443. More of them." in shown["markdown"]
    whole = fit_query(asked)[0]  # of another passage only the beginning is given
    assert len(whole["citations"][0]["text"]) == len(whole["results"][7]["citation"]["text"]) < 900


def test_whole_passages_fit_an_english_answer_of_the_default_size() -> None:
    text = ("Every line has about this many words in it. " * 18)[:800]
    data, warnings = fit_query(
        result([hit(rank, f"{rank} {text}") for rank in range(1, 9)], [0]), "full", 8000
    )
    assert len(data["results"]) == 8 and data["markdown"].count(text.strip()) == 8
    assert all("were cut" in warning for warning in warnings)


def test_a_client_gets_fewer_passages_to_read_rather_than_the_beginnings_of_all() -> None:
    """Each of eight passages, also the cited one, has 1,000 characters and its answer at the
    500th.
    """
    text = "Filler words stand here. " * 20 + "The hidden port is 9443. " + "And so on. " * 40
    hits = [hit(n, text, source_uri=f"docs/{n}.md", doc_id=f"guide-{n}") for n in range(1, 9)]
    data, notes = fit_query(result(hits, [0]), "full", 4000, linked=True)
    shown = len(data["results"])
    read = [row["citation"]["text"] for row in data["results"]]
    assert 5 <= shown < 8 and all("The hidden port is 9443." in each for each in read)
    assert data["markdown"].count("The hidden port is 9443.") == shown
    rest = ", ".join(f"docs/{n}.md" for n in range(shown + 1, 9))
    left_out = f"{8 - shown} of 8 results were left out to fit 4000 tokens"
    assert notes[-1] == f"{left_out}; the next are from {rest}"
    answered = dataclasses.replace(result(hits, [0]), language="zh")
    assert (
        f"其后的结果来自：{rest}" in fit_query(answered, "full", 4000, linked=True)[0]["markdown"]
    )


def test_a_cited_passage_is_not_left_out() -> None:
    """A mark without its passage could not be followed from the fields alone."""
    text = "Filler words stand here. " * 40
    hits = [hit(n, text, source_uri=f"docs/{n}.md") for n in range(1, 9)]
    data, notes = fit_query(result(hits, [7], answer="So it is. [1]"), "full", 4000, linked=True)
    shown = len(data["results"])
    assert [row["rank"] for row in data["results"]] == [*range(1, shown), 8] and shown < 8
    last = answer_data(data)["results"][-1]
    assert (last["id"], last["uri"], last["cited"]) == (1, "chunk://chk_8", True)
    assert notes[-1].startswith(f"{8 - shown} of 8 results were left out")
    assert notes[-1].endswith(", ".join(f"docs/{n}.md" for n in range(shown, 8)))


def test_envelopes() -> None:
    assert envelope({"markdown": "m", "pair": (1, 2)}, TRACE, ["w", "w"]) == {
        "ok": True,
        "trace_id": TRACE,
        "data": {"markdown": "m", "pair": [1, 2]},
        "warnings": ["w"],
        "error": None,
    }
    failed = failure(
        InputError("unknown filter 'x'; known: tags", code="unknown_filter", known={"b", "a"}),
        TRACE,
    )
    assert failed == {
        "ok": False,
        "trace_id": TRACE,
        "data": None,
        "warnings": [],
        "error": {
            "code": "unknown_filter",
            "message": "unknown filter 'x'; known: tags",
            "details": {"kind": "usage", "known": ["a", "b"]},
        },
    }


def test_a_question_that_no_index_could_be_asked_has_failed_and_shows_what_it_says() -> None:
    told = {
        "code": "provider_error",
        "message": "no word index in /home/alice/rag/lexical",
        "causes": ["index_unreadable"],
    }
    data, warnings = fit_query(
        result([], [], answer="The library could not be searched.", flags={"error": told})
    )
    failed = envelope(data, TRACE, warnings)
    assert (failed["ok"], failed["data"]["answer_markdown"], "failure" in failed["data"]) == (
        False,
        "The library could not be searched.",
        False,
    )
    assert failed["error"] == {
        "code": "provider_error",
        "message": "the library could not be searched: no word index in lexical",
        "details": {"kind": "failed", "causes": ["index_unreadable"]},
    }
    assert exit_code(failed) == 1


def test_unexpected_errors_tell_nothing_of_the_machine() -> None:
    failed = failure(ValueError("boom in /home/alice/rag/data/ledger.sqlite"), TRACE)
    assert failed["error"] == {
        "code": "internal_error",
        "message": f"internal error (ValueError); trace {TRACE} and the log have the details",
        "details": {"kind": "failed"},
    }


def test_paths_are_cut_to_their_last_name_unless_local() -> None:
    error = ConfigError(
        "/home/alice/rag/config/settings.yaml: limits: bad; see https://example.org/a/b and"
        " docs/guide.md",
        at="C:\\rag\\x.yaml",
    )
    remote, local = failure(error, TRACE)["error"], failure(error, TRACE, local=True)["error"]
    assert remote and local
    assert (
        remote["message"]
        == "settings.yaml: limits: bad; see https://example.org/a/b and docs/guide.md"
    )
    assert remote["details"]["at"] == "x.yaml"
    assert local["message"] == error.message


def test_exit_codes() -> None:
    assert exit_code(envelope({"markdown": ""}, TRACE)) == 0
    assert exit_code(failure(ProviderError("down"), TRACE)) == 1
    assert exit_code(failure(NotFoundError("no release", code="no_release"), TRACE)) == 1
    assert exit_code(failure(InputError("empty", code="empty_query"), TRACE)) == 2
    counts = {"new": 2, "new_versions": 0, "skipped": 0, "failed": 1}
    assert exit_code(envelope(counts, TRACE)) == 3
    assert exit_code(envelope(counts | {"new": 0}, TRACE)) == 1
    assert exit_code(envelope(counts | {"new": 0, "published": True}, TRACE)) == 3
    assert exit_code(envelope(counts | {"failed": 0}, TRACE)) == 0
    assert exit_code(envelope({"checked": 5, "failed": 1}, TRACE)) == 3
