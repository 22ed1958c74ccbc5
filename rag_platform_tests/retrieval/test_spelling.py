"""Typing errors: what is read as what, by hand."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from rag_platform.answering.engine import answer
from rag_platform.config.settings import Limits
from rag_platform.ir import QueryRequest
from rag_platform.query.analysis import prepare
from rag_platform.retrieval.library import Library
from rag_platform.retrieval.spelling import apply_corrections, count_edits, find_corrections

GUIDE = [
    ("Uploads", "The maximum upload size is 50 MB. Larger files are refused with code 413."),
    ("Highlighting", "Syntax highlighting of listings is switched off by `show_highlighting`."),
    ("Templates", "Return a `TemplateResponse` of Jinja. A response names its template."),
    ("Spreadsheets", "Stack the sheets; the stack is handled in one pass."),
]


@pytest.mark.parametrize(
    ("word", "other", "edits"),
    [
        ("sintax", "syntax", 1),  # a vowel for a vowel
        ("swager", "swagger", 1),
        ("distors", "distros", 1),  # two neighbours changed places
        ("react", "reach", None),  # another consonant is another word
        ("syntax", "syntax", 0),
        ("numbr", "numbing", None),
        ("imediatly", "immediately", 2),
        ("configuraton", "configuration", 1),
        ("authentifikation", "authentication", None),  # three
        ("response", "resp0nse", None),  # no word
    ],
)
def test_edits_of_a_typing_error(word: str, other: str, edits: int | None) -> None:
    assert count_edits(word, other) == edits


def read(
    library: Library, question: str, known: Sequence[str] = (), pieces: int = 2
) -> dict[str, str]:
    """The corrections of a question; the words `known` are one token each, others `pieces`."""
    with library.lease("default") as lease:
        return find_corrections(
            prepare(question, Limits()),
            lease.release.lexical,
            lambda texts: [1 if text in known else pieces for text in texts],
        )


@pytest.mark.parametrize("lines", ["", "lexical: {provider: fts5}\n"])
def test_only_what_the_library_lacks_is_read_as_another_word(
    publish: Any, library: Library, vary: Any, lines: str
) -> None:
    publish({"guide": GUIDE}, strategy=vary("spelled", lines))
    assert read(library, "Sintax higlighting of TemplateRespone in jinjia2") == {
        "Sintax": "Syntax",
        "higlighting": "highlighting",
        "Respone": "Response",
        "jinjia": "jinja",
    }
    assert read(library, "关闭 higlighting 怎么写") == {"higlighting": "highlighting"}
    # held in some form, in a heading, quoted, short, in other letters, in other words of nothing
    assert read(library, "uploads uploaded spreadsheets") == {}
    assert read(library, 'the message "higlighting" siz höglighting pancakes') == {}
    # what a tokenizer knows is a word that the library lacks
    assert read(library, "stock handed") == {"stock": "stack", "handed": "handled"}
    assert read(library, "stock handed", known=("stock", "hand")) == {}
    # one of two tokens is rather another word than one with two errors
    assert read(library, "temperate") == {}
    assert read(library, "temperate", pieces=3) == {"temperate": "template"}


def test_a_correction_reaches_all_that_is_searched(publish: Any, library: Library) -> None:
    publish({"guide": GUIDE})
    query = prepare("where is show_higlighting set", Limits())
    corrected = apply_corrections(query, {"higlighting": "highlighting"})
    assert corrected.original == "where is show_higlighting set"
    assert corrected.normalised == corrected.dense_text == "where is show_highlighting set"
    assert "show_highlighting" in corrected.sparse_query
    assert corrected.identifiers == ("show_highlighting",)


def test_the_answer_is_found_and_the_correction_told(publish: Any, library: Library) -> None:
    publish({"guide": GUIDE})
    result = answer(library, QueryRequest("sintax higlighting"))
    assert result.hits[0].section_path == "Highlighting"
    assert "no text holds 'sintax'; 'syntax' was searched for instead" in result.warnings
    assert result.signals["words_absent"] == 0.0


def test_a_question_in_a_language_of_no_text_stays(publish: Any, library: Library) -> None:
    publish({"guide": GUIDE})
    # German: `maximal` is no error for `maximum`
    result = answer(library, QueryRequest("Wie gross ist die maximale Datei und das ist nicht da?"))
    assert [text for text in result.warnings if "instead" in text] == []


NOTICES = {
    "contract": [("合同", "合同编号 HT-0317，签订日期：二〇二四年三月十八日。")],
    "minutes": [("纪要", "评审会议于2024年6月27日在海棠会议室召开。")],
    "staff": [("员工", "何晨的入职日期是2023-09-11，工号 XL0058。")],
    "staff2": [("员工", "王雪的入职日期是2022-02-21，工号 XL0045。")],
    "meeting": [("例会", "二〇二四年三月例会由李晓梅主持。")],
    "meeting2": [("例会", "二〇二四年四月例会由王建国主持。")],
    "taipei": [("會議紀錄", "民國113年5月行政會議由黃淑芬主持。")],
    "taipei2": [("會議紀錄", "民國112年5月行政會議由許文彬主持。")],
    "rules": [("办法", "办法第一条 不得迟到。"), ("办法", "办法第十五条 不得代打卡。")],
    "lease": [("租约", "The lease of unit 12 was signed on 1 July 2023.")],
}


@pytest.mark.parametrize(
    ("question", "document"),
    [
        ("2024年3月18日签订的合同编号", "contract"),
        ("哪份合同是2024-03-18签订的", "contract"),
        ("二〇二四年六月二十七日的会议", "minutes"),
        ("2024.6.27的会议", "minutes"),
        ("2023年9月11日入职的员工", "staff"),
        ("What was signed on 2023-07-01?", "lease"),
        ("2024年3月例会由谁主持", "meeting"),
        ("2024-04例会由谁主持", "meeting2"),
        ("2024年5月行政会议由谁主持", "taipei"),
        ("办法第 15 条说了什么", "rules"),
    ],
)
def test_a_date_is_found_in_another_form(
    publish: Any, library: Library, question: str, document: str
) -> None:
    publish(NOTICES)
    result = answer(library, QueryRequest(question))
    assert result.hits[0].doc_id == document
    assert not result.signals["numbers_absent"]


def test_a_form_that_the_library_has_is_kept(publish: Any, library: Library) -> None:
    publish({**NOTICES, "copy": [("抄送", "2024年3月18日收到合同的抄送件。")]})
    assert answer(library, QueryRequest("2024年3月18日收到什么")).hits[0].doc_id == "copy"


def test_of_several_forms_that_of_the_best_match_is_taken(publish: Any, library: Library) -> None:
    log = {f"log{n}": [("日志", f"2024-03 第 {n} 版：修复错误。")] for n in range(3)}
    publish({**NOTICES, **log})
    assert answer(library, QueryRequest("2024年3月例会由谁主持")).hits[0].doc_id == "meeting"
