"""Answers as a model may write them, against the passages it was given."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rag_platform.answering.citations import (
    check_answer,
    check_claims,
    escape_marks,
    find_cited,
    number_links,
    remove_foreign_links,
    renumber_marks,
    strip_marks,
    unescape_marks,
)
from rag_platform.answering.groundedness import find_span, is_quoted, says_something, support
from rag_platform.ir import Hit


def hit(rank: int, text: str, section: str = "", picture: str = "") -> Hit:
    return Hit(
        rank,
        f"c{rank}",
        1.0,
        "hybrid",
        "d",
        "n.d@1",
        "s/d.md",
        "d.md",
        "Guide",
        section,
        rank,
        text,
        picture_text=picture,
    )


UPLOADS = hit(1, "The maximum upload size is 50 MB. Larger files are refused with code 413.")
POOL = hit(2, "连接池的最大连接数是 100。超过上限的请求会排队等待。")
RETRY = hit(
    3,
    "Set `max_retry_count` to 3 in the file app.yaml. See [the"
    " guide](https://docs.example.org/retry).",
)
EVIDENCE = [UPLOADS, POOL, RETRY]


def quoted(citation: object) -> list[str]:
    return [citation.text[start:end] for start, end in citation.spans]  # type: ignore[attr-defined]


def test_a_quote_with_the_label_of_a_box_has_one_mark() -> None:
    pump = hit(1, "The pump runs day and night.\n\n!!! tip\n    Keep the valve open in summer.")
    text = "The pump runs day and night.\n\nTip:\n\nKeep the valve open in summer. [1]"
    found = check_answer(text, [pump])
    assert (found.text, found.warnings) == (text, ())
    assert quoted(found.citations[0]) == [
        "The pump runs day and night.",
        "Keep the valve open in summer.",
    ]


@pytest.mark.parametrize(
    "mark", ["[1]", " [1]", "【1】", "[^1]", "[1, 1]", "【1†source】", "[1](https://evil.example)"]
)
def test_marks_are_read_however_they_are_written(mark: str) -> None:
    found = check_answer(f"The maximum upload size is 50 MB{mark}.", EVIDENCE)
    assert found.text.replace(" [1]", "[1]") == "The maximum upload size is 50 MB[1]."
    assert [c.chunk_id for c in found.citations] == ["c1"]
    assert quoted(found.citations[0]) == ["The maximum upload size is 50 MB."]
    assert found.unsupported == ()


def test_a_link_of_a_passage_that_is_named_by_a_number_is_no_mark() -> None:
    row = "| apt | [266](https://popcon.example/apt) |"
    found = check_answer(f"{row} [1]", [hit(1, row)])
    assert found.text == f"{row} [1]"
    assert found.warnings == ()


def test_several_marks_and_their_order() -> None:
    found = check_answer(
        "`max_retry_count` is 3 [3]. The upload limit is 50 MB [1,3]. 最大连接数是 100。[2]",
        EVIDENCE,
    )
    assert (
        found.text
        == "`max_retry_count` is 3 [1]. The upload limit is 50 MB [2][1]. 最大连接数是 100。[3]"
    )
    assert [c.chunk_id for c in found.citations] == ["c3", "c1", "c2"]
    assert quoted(found.citations[2]) == ["最大连接数是 100。"]


def test_a_mark_that_points_nowhere_is_removed_with_a_warning() -> None:
    found = check_answer("The maximum upload size is 50 MB [1] [99].", EVIDENCE)
    assert found.text == "The maximum upload size is 50 MB [1]."
    assert found.warnings == ("the answer's mark [99] pointed at no passage and was removed",)


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (
            "The maximum upload size is 500 MB [1].",
            "numbers that the cited text does not hold: 500",
        ),
        (
            "Set `min_retry_count` to 3 in the file app.yaml [3].",
            "identifiers that the cited text does not hold: min_retry_count",
        ),
        (
            "Penguins live in the cold south and eat fish [1].",
            "only 0% of its words stand in the cited text",
        ),
        (
            "Penguins live in the cold south and eat fish.",
            "it cites nothing, and no passage clearly supports it",
        ),
    ],
)
def test_what_the_passages_do_not_say_is_flagged(answer: str, reason: str) -> None:
    found = check_answer(answer, EVIDENCE)
    assert [item.reason for item in found.unsupported] == [reason]
    assert reason in found.warnings[-1]


def test_a_sentence_without_a_mark_gets_that_of_its_passage() -> None:
    found = check_answer(
        "Larger files are refused with code 413. 超过上限的请求会排队等待。", EVIDENCE
    )
    assert (
        found.text == "Larger files are refused with code 413. [1] 超过上限的请求会排队等待。 [2]"
    )
    assert found.warnings == (
        "2 sentences without a mark were given that of the passage it rests on",
    )


def test_a_sentence_may_begin_with_the_name_of_a_command() -> None:
    text = "The pump copies files. mv moves them. [1] It takes approx. five minutes. [1]"
    checks = check_claims(text, [hit(1, "The pump copies files. It takes approx. five minutes.")])
    assert [(it.sentence, it.supported) for it in checks] == [
        ("The pump copies files.", True),
        ("mv moves them.", False),
        ("It takes approx. five minutes.", True),
    ]


def test_a_sentence_that_text_and_picture_hold_is_shown_in_the_text() -> None:
    text = (
        "Users of the shared plan, whatever their country, may upload files of 5 GB in a month,"
        " which is counted from the first day after they have registered with us."
    )
    caption = hit(1, text, picture="Users upload 5 GB a month")
    found = check_answer("Users may upload 5 GB in a month. [1]", [caption])
    assert found.citations[0].spans == ((0, len(text)),)


def test_what_stands_in_a_picture_is_compared_and_is_no_quote_of_the_text() -> None:
    gate = hit(
        1, "The plan of the gate is here.", picture="The gate is not locked. It is made of oak."
    )
    for answer, text in (
        ("The gate is not locked.", ""),
        ("The plan of the gate is here.", "The plan of the gate is here."),
    ):
        (cited,) = check_answer(f"{answer} [1]", [gate]).citations
        assert [cited.text[slice(*span)] for span in cited.spans] == [text][: bool(text)]
    (wrong,) = check_answer("The gate is locked. [1]", [gate]).unsupported
    assert wrong.reason.startswith("it lacks the negation")


def test_an_answer_in_another_language_is_held_to_numbers_and_names() -> None:
    assert check_answer("上传文件最大为 50 MB [1]。", EVIDENCE).unsupported == ()
    assert check_answer("上传文件最大为 80 MB [1]。", EVIDENCE).unsupported != ()


def test_brackets_in_code_are_no_marks() -> None:
    answer = "Read it with `rows[1]` [3].\n\n```python\nx = rows[2]\n```\n\n[3]"
    assert find_cited(answer, 3) == [3]
    assert (
        renumber_marks(answer, {3: 1})
        == "Read it with `rows[1]` [1].\n\n```python\nx = rows[2]\n```\n\n[1]"
    )
    assert "rows[2]" in check_answer(answer, EVIDENCE).text


def test_a_mark_below_a_table_belongs_to_all_of_its_rows() -> None:
    table = hit(1, "| Setting | Default |\n|---|---|\n| retries | 3 |\n| timeout | 30 |")
    found = check_answer(
        "| Setting | Default |\n| --- | --- |\n| retries | 3 |\n| timeout | 30 |\n\n[1]", [table]
    )
    assert quoted(found.citations[0]) == ["| retries | 3 |", "| timeout | 30 |"]
    assert found.unsupported == ()


@pytest.mark.parametrize(
    ("answer", "clean"),
    [
        ("Done ![x](https://evil.example/?q=secret) [1].", "Done x [1]."),
        ("See [the docs](https://evil.example/a) [1].", "See the docs [1]."),
        ("See https://evil.example/a?b=c. Bye", "See . Bye"),
        ('Hi <img src="https://evil.example/p.png"> there', "Hi  there"),
        ("<script>alert(1)</script>ok", "alert(1)ok"),
        (
            "See [the guide](https://docs.example.org/retry) [3].",
            "See [the guide](https://docs.example.org/retry) [3].",
        ),
        ("See https://docs.example.org/retry.", "See https://docs.example.org/retry."),
        ("See https://docs.example.org/retry?leak=1", "See "),
        ("[ref]: https://evil.example/x", ""),
        ("![a][ref]\n\n[ref]: https://evil.example/x 'title'", "![a][ref]\n\n"),
        ("`https://a.example` is code", "`https://a.example` is code"),
    ],
)
def test_links_and_markup_that_no_passage_holds_are_removed(answer: str, clean: str) -> None:
    text, warnings = remove_foreign_links(answer, EVIDENCE)
    assert text == clean
    assert bool(warnings) == (text != answer)


def test_brackets_of_a_quote_are_no_marks() -> None:
    source = hit(1, "As shown in [2], the limit is 9 units.")
    answer = f"{escape_marks(source.chunk_text)} [1]"
    assert answer == "As shown in \\[2\\], the limit is 9 units. [1]"
    assert unescape_marks(answer) == "As shown in [2], the limit is 9 units. [1]"
    assert escape_marks("Fixed in [74](https://x.org/74).") == "Fixed in [74](https://x.org/74)."
    found = check_answer(answer, [source, UPLOADS])
    assert [c.chunk_id for c in found.citations] == ["c1"]
    assert quoted(found.citations[0]) == [source.chunk_text]


@pytest.mark.parametrize(
    ("sentence", "text", "whole"),
    [
        ("Larger files are refused.", "The size counts. Larger files are refused. Ask.", True),
        ("超过上限的请求会排队等待。", "最大连接数是 100。超过上限的请求会排队等待。日志", True),
        ("The size is 5", "The size is 50 MB.", False),
        ("排队等待。", "超过上限的请求会排队等待。", False),
        ("files", "files", True),
        ("", "files", False),
    ],
)
def test_a_sentence_stands_whole_where_no_word_reaches_into_it(
    sentence: str, text: str, whole: bool
) -> None:
    assert is_quoted(sentence, text) is whole


SAID = st.lists(
    st.sampled_from(
        ["up", "v1.2", "50", "5", "T恤", "连接", "，", "。", ". ", " ", "\n", "！", "-", "_x", "’s"]
    ),
    max_size=9,
).map("".join)


@given(SAID, SAID, SAID)
def test_what_stands_whole_in_a_passage_supports_it(before: str, sentence: str, after: str) -> None:
    passage = hit(1, before + sentence + after)
    if is_quoted(sentence, passage.chunk_text):
        assert support(sentence, [passage]).share == 1.0
        assert support(sentence, [passage]).enough


def test_sentences_with_nothing_to_check() -> None:
    assert not says_something("Yes.")
    assert not says_something("The library says the following about it:")
    assert says_something("It is 5.")
    assert support("maximum upload size of pigs", [UPLOADS]).share == pytest.approx(3 / 4)
    assert find_span("", "text") is None


@given(
    st.text(alphabet="ab 1。.[]|`\n-【】(!)413MB", max_size=120),
    st.lists(st.text(alphabet="ab 1。.[]|`\n-413", max_size=60), max_size=3),
)
def test_every_span_is_a_slice_and_every_mark_has_a_citation(answer: str, texts: list[str]) -> None:
    found = check_answer(answer, [hit(n, text) for n, text in enumerate(texts, 1)])
    assert find_cited(found.text, 99) == [c.id for c in found.citations]
    for citation in found.citations:
        assert all(0 <= start < end <= len(citation.text) for start, end in citation.spans)


def test_a_mark_covers_the_quotes_before_it() -> None:
    text = "The maximum upload size is 50 MB. Larger files are refused with code 413. [1]"
    found = check_answer(text, EVIDENCE)
    assert (found.text, found.warnings, found.agreement) == (text, (), 1.0)
    assert quoted(found.citations[0]) == [
        "The maximum upload size is 50 MB.",
        "Larger files are refused with code 413.",
    ]


def test_a_mark_covers_no_other_sentence_before_it() -> None:
    text = "The maximum upload size is 70 MB. Larger files are refused with code 413. [1]"
    found = check_answer(text, EVIDENCE)
    assert [item.sentence for item in found.unsupported] == ["The maximum upload size is 70 MB."]


def test_an_introduction_is_quoted_with_or_without_the_file_that_it_includes() -> None:
    evidence = [hit(1, "The pump drains. Set `level` to 3:\n\n{* ../src/a.py *}")]
    for left_out in (" …", " → `src/a.py`"):
        text = f"The pump drains.\n\nSet `level` to 3:{left_out} [1]"
        assert check_answer(text, evidence).text == text
        claims = [claim.sentence for claim in check_claims(text, evidence)]
        assert claims == ["The pump drains.", "Set `level` to 3:"]


def test_a_mark_covers_the_items_before_code_that_stands_further_left() -> None:
    steps = (
        "1. Install the module of the pump.\n2. Start it:\n  ```sh\n  run pump\n    --all\n  ```\n"
        "3. Open the valve of the pump."
    )
    quote = steps.replace("\n  ", "\n")
    assert check_answer(f"{quote} [1]", [hit(1, steps)]).text == f"{quote} [1]"


def test_links_to_chunks_become_marks() -> None:
    answer = "Use [`jar`](chunk://c2) [1](chunk://c1), not `[x](chunk://c3)`. [Lid](chunk://c4)"
    marked = "Use `jar` [2] [1], not `[x](chunk://c3)`. Lid [3]"
    assert number_links(answer, ["c1", "c2"]) == (marked, ["c1", "c2", "c4"])


@pytest.mark.parametrize(
    ("text", "bare"),
    [
        ("It runs at 50 Hz [1].", "It runs at 50 Hz."),
        ("It runs [1] [2][3], and stops [1]!", "It runs, and stops!"),
        ("每六个月 [1]。", "每六个月。"),
        ("Run `ls` [1].", "Run `ls`."),
        ("It runs. [1] It stops.", "It runs.  It stops."),
        ("See [1] .NET", "See  .NET"),
        ("cp . `a [1] .`", "cp . `a [1] .`"),
    ],
)
def test_no_space_stays_before_the_stop_after_a_mark(text: str, bare: str) -> None:
    assert strip_marks(text) == bare


def test_marks_without_end_take_linear_time() -> None:
    for hostile in (" " * 100_000, "a" + " " * 100_000 + "[1]x", "[1] " * 100_000):
        assert len(strip_marks(hostile)) <= len(hostile)
