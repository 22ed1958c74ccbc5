from __future__ import annotations

import dataclasses
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rag_platform.answering.citations import (
    find_cited,
    renumber_marks,
    unescape_marks,
)
from rag_platform.answering.extractive import Extractive
from rag_platform.config.settings import Limits
from rag_platform.ir import JOINT, Hit, QueryIR
from rag_platform.query.analysis import prepare
from rag_platform.retrieval.ranking import confidence
from rag_platform.text.term_overlap import coverage, names_coverage, question_words


def asked(text: str) -> QueryIR:
    return prepare(text, Limits())


def hit(rank: int, text: str, section: str = "", source: str = "hybrid") -> Hit:
    return Hit(
        rank, f"c{rank}", 1.0, source, "d", "n.d@1", "s/d.md", "d.md", "Guide", section, rank, text
    )


UPLOADS = hit(
    1,
    "# Uploads\n\nThe maximum upload size is 50 MB.\n\nLarger files are refused with code 413.",
    "Uploads",
)
TABLE = hit(
    2,
    "| Setting | Default | Meaning |\n"
    "|---|---|---|\n"
    "| max_retry_count | 3 | tries |\n"
    "| timeout_s | 30 | seconds |",
    "Settings",
)
CHINESE = hit(3, "连接池的最大连接数是 100。超过上限的请求会排队等待。日志保存三十天。", "连接池")
EVIDENCE = [UPLOADS, TABLE, CHINESE]


def test_a_number_within_a_code_does_not_stand_for_the_code() -> None:
    fixed, other = hit(1, "Fix a wrong hint (#603)."), hit(2, "Code B603 warns of shells.")
    assert Extractive().answer(asked("what is B603?"), [fixed]).text == ""
    found = Extractive().answer(asked("what is B603?"), [fixed, other]).text
    assert found == "Code B603 warns of shells. [2]"
    assert Extractive().answer(asked("which hint was wrong, B603?"), [fixed]).text


def test_a_section_that_is_asked_for_is_quoted_not_what_refers_to_it() -> None:
    refers = hit(1, "Errors are described in section 5.2 of the rules.", JOINT.join("R1"))
    own = hit(
        2,
        "## 5.2 Errors\n\n### 5.2.1 Loops\n\nA loop is an error, see section 5.2.\n\n"
        "## 5.3 Rest\n\nSay what you like.",
        JOINT.join(["R", "5.2 Errors"]),
    )
    chapter = hit(3, "Errors are rare.", JOINT.join(["R", "5.2 Errors"]))

    def ask(question: str, *hits: Hit) -> str:
        return Extractive().answer(asked(question), hits).text

    said = ask("What does section 5.2 say?", refers, own, chapter)
    assert said.startswith("Errors are rare. [3]") and "Say what" not in said
    assert ask("What does section 5.3 say?", refers, own).startswith("Say what you like. [2]")
    han = hit(
        1, "# 第三章 考勤\n\n## 第二节 请假\n\n请假须批准。\n\n## 第三节 加班\n\n加班须登记。"
    )
    assert ask("第三章第三节讲什么", han).startswith("加班须登记。")


def test_a_release_that_is_asked_for_is_quoted_with_its_date() -> None:
    newer = hit(
        1,
        "## [5.0.10](https://x.org/v5.0.1...v5.0.10) (2024-03-02)\n\n### Fixed\n\n"
        "* what changed in the release of 5.0.1\n* changed dates",
        JOINT.join(["Log", "5.0.10 (2024-03-02)"]),
    )
    own = hit(
        2,
        "## [5.0.1](https://x.org/v5.0.0...v5.0.1) (2023-11-06)\n\n### Fixed\n\n"
        "* Crash on empty rows\n\n### Added\n\n* Dark mode\n* Undo",
        JOINT.join(["Log", "5.1.0 (2023-12-01)", "5.0.1 (2023-11-06)"]),
    )
    for question in ("what changed in 5.0.1?", "when was 5.0.1 released?", "5.0.1 修复了什么"):
        said = Extractive().answer(asked(question), [newer, own]).text
        first, _, rest = said.partition("[2]")
        assert "(2023-11-06), Fixed:\n\n- Crash on empty rows" in first
        assert "- Dark mode\n- Undo" in rest.partition("[2]")[0]
    # other words decide where the question is not about the release as a whole
    topic = hit(3, "Since 5.0.1 the size of the cache is 20 MB.", "Cache")
    said = Extractive().answer(asked("how large is the cache in 5.0.1?"), [own, topic]).text
    assert said.startswith("Since 5.0.1")


def test_what_is_below_the_question_itself_is_quoted() -> None:
    near = hit(1, "**How do I open a jar lid?**\n\nTo open a jar lid, open a jar and its lid.")
    own = hit(2, "Q: Who sells jars?\n\nA: We do.\n\n**Q:** How can I open jars?\n\n**A:** Twist.")
    said = Extractive().answer(asked("How do I open a jar?"), [near, own]).text
    assert said == "How can I open jars:\n\n**A:** Twist. [2]"


def test_what_a_thing_is_stands_right_below_its_heading() -> None:
    near = hit(
        1, "Each spot check of a pump is dearer than a spot check of its valve.", "Spot checks"
    )
    own = hit(2, "## Spot checks\n\nA few pumps are opened and compared with the plan.\n")
    answer = Extractive().answer
    assert answer(asked("What is a spot check?"), [near, own]).text.startswith("A few pumps are")
    assert answer(asked("what does spot check mean"), [near, own]).text.startswith("A few pumps")
    assert answer(asked("How dear is a spot check?"), [near, own]).text.startswith("Each spot")
    near = hit(1, "每台水泵的抽样检查都比阀门的抽样检查贵。", "抽样检查")
    own = hit(2, "## 抽样检查 { #spot-checks }\n\n打开几台水泵，与图纸比较。\n")
    for question in ("什么是抽样检查？", "抽样检查是什么？", "抽样检查是什么意思"):
        assert answer(asked(question), [near, own]).text.startswith("打开几台水泵")


def test_what_explains_an_error_message_is_quoted_with_it() -> None:
    text = (
        "After a cold night in winter, the log of the older pumps has the line"
        " `valve 7: Error: connection refused`, once a minute.\n\n"
        "This happens while the oil is cold. Warm up the oil first, by a lamp that stands below the"
        " tank and is lit an hour before the start.\n\n"
        "Pumps are sold in pairs."
    )
    both, cause = text.rpartition("\n\n")[0], "\n\nThis happens"
    said = Extractive().answer(asked("valve 7: Error: connection refused"), [hit(1, text)]).text
    assert said == f"{both} [1]"
    said = Extractive().answer(asked("What is in the log of older pumps?"), [hit(1, text)]).text
    assert cause not in said
    # a message that the passage does not have
    other = "pump 2: Error: connection refused by the river, the dam and all locks"
    assert cause not in Extractive().answer(asked(other), [hit(1, text)]).text


@pytest.mark.parametrize(
    ("title", "label"),
    [("Changelog", "valves/CHANGELOG.md"), ("Valves in short", "Valves in short")],
)
def test_the_releases_of_several_products_are_told_apart(title: str, label: str) -> None:
    def make(rank: int, product: str, title: str, item: str) -> Hit:
        path = f"{product}/CHANGELOG.md"
        text = f"## 1.6.0 (2024-01-02)\n\n- {item}"
        section = "1.6.0 (2024-01-02)"
        return Hit(rank, f"c{rank}", 1, "x", product, "v", path, path, title, section, rank, text)

    hits = [
        make(1, "pumps", "Changes for v2.0.0", "Loops end."),
        make(2, "valves", title, "The lid opens by itself."),
    ]
    for question in ("What changed in 1.6.0?", "What changed in 1.6?"):
        assert Extractive().answer(asked(question), hits).text == (
            "pumps/CHANGELOG.md, 1.6.0 (2024-01-02):\n\n- Loops end.\n\n[1]\n\n"
            f"{label}, 1.6.0 (2024-01-02):\n\n- The lid opens by itself.\n\n[2]"
        )


def test_sections_of_one_release_need_no_label() -> None:
    hits = [
        hit(1, "Routes form a tree.", JOINT.join(["1.6.0 (2024-01-02)", "Breaking", "Paths"])),
        hit(2, "A lid opens by itself.", JOINT.join(["1.6.0 (2024-01-02)", "Features", "Doors"])),
    ]
    said = Extractive().answer(asked("Do routes form a tree, and does a lid open?"), hits).text
    assert said == "Routes form a tree. [1]\n\nA lid opens by itself. [2]"


def test_several_names_with_one_description_are_each_described() -> None:
    refers = hit(1, "**`--thread`**\n\nBy default the value of the setting `gc.thread` is used.")
    own = hit(2, "**`gc.thread`, `gc.age`**\n\nBoth are numbers.")
    said = Extractive().answer(asked("What does gc.thread do?"), [refers, own]).text
    assert said.splitlines()[2] == "Both are numbers. [2]"


@pytest.mark.parametrize(
    ("query", "answer"),
    [
        (
            "What is the maximum upload size?",
            ("The maximum upload size is 50 MB.\n\nLarger files are refused with code 413. [1]"),
        ),
        (
            "最大连接数是多少？",
            "连接池的最大连接数是 100。超过上限的请求会排队等待。日志保存三十天。 [3]",
        ),
        ("日志保存多久", "超过上限的请求会排队等待。日志保存三十天。 [3]"),
        ("日誌保存多長時間？", "超过上限的请求会排队等待。日志保存三十天。 [3]"),
        (
            "default of max_retry_count",
            (
                "| Setting | Default | Meaning |\n"
                "| --- | --- | --- |\n"
                "| max_retry_count | 3 | tries |\n"
                "\n"
                "[2]"
            ),
        ),
    ],
)
def test_the_matching_unit_is_quoted_with_its_mark(query: str, answer: str) -> None:
    assert Extractive().answer(asked(query), EVIDENCE).text == answer


OPERATORS = hit(
    1,
    "Rust has these operators, which this book explains.\n\n"
    "| Operator | Explanation |\n"
    "|---|---|\n"
    "| `..=` | a range with its end |\n"
    "| `\\|\\|` | either of two |\n"
    "| `?` | passes an error on |",
    "Operators",
)


@pytest.mark.parametrize(
    ("query", "row"),
    [
        ("What does `..=` mean in Rust?", "| `..=` | a range with its end |"),
        ("what is the ? operator", "| `?` | passes an error on |"),
        ("Rust 中 || 是什么意思", "| `\\|\\|` | either of two |"),
    ],
)
def test_the_row_of_an_operator_is_quoted(query: str, row: str) -> None:
    lines = Extractive().answer(asked(query), [OPERATORS]).text.splitlines()
    assert lines[2] == row and "|" not in "".join(lines[3:])


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        (
            "We never paid dividends. See Item 7 of Part II, Discussion and Analysis of Financial"
            " Condition and Results of Operations and Liquidity.",
            "We never paid dividends. [1]",
        ),
        (
            "公司从未派发股利。更多细节参见该问答：[公司派息问答全文](faq.md#why)",
            "公司从未派发股利。 [1]",
        ),
    ],
)
def test_what_only_points_elsewhere_is_not_quoted_with_a_sentence(text: str, answer: str) -> None:
    assert Extractive().answer(asked("dividends 股利"), [hit(1, text)]).text == answer


@pytest.mark.parametrize("query", ["Who painted the Mona Lisa?", "火星上有生命吗", "???"])
def test_without_a_match_there_is_no_answer(query: str) -> None:
    assert Extractive().answer(asked(query), EVIDENCE).text == ""
    assert Extractive().answer(asked(query), []).text == ""


def test_each_part_of_a_question_is_quoted() -> None:
    server = hit(
        1,
        "## Limits\n\nA message may have 256 KB.\n\n## Errors\n\n"
        "When a queue is full, the server answers with error 507.",
    )
    question = "How large may a message be, and what error does the server answer for a full queue?"
    assert Extractive().answer(asked(question), [server]).text == (
        "When a queue is full, the server answers with error 507. [1]\n\n"
        "A message may have 256 KB. [1]"
    )


def test_a_sentence_that_two_chunks_share_is_quoted_once() -> None:
    again = hit(2, "Larger files are refused with code 413. Ask the administrator.")
    assert (
        Extractive()
        .answer(asked("Which code refuses larger files?"), [UPLOADS, again])
        .text.count("413")
        == 1
    )


def test_what_a_heading_asks_for_is_the_whole_list_below_it() -> None:
    text = (
        "## 1.3.0 版本\n\n1. 下拉刷新更流畅\n2. 泵库 pump-uni 支持分页\n\n"
        "## 1.2.0 版本\n\n1. 修复 pump-uni 的错误\n2. 修复样式"
    )
    said = "1.3.0 版本：\n\n1. 下拉刷新更流畅\n2. 泵库 pump-uni 支持分页\n\n[1]"
    found = Extractive().answer(asked("pump-uni 1.3.0 版本改了什么"), [hit(1, text)]).text
    assert found.startswith(said)


FORMATS = (
    "Supported formats:\n"
    "\n"
    "- PDF and DOCX\n"
    "- Markdown{}\n"
    "\n"
    "Other things are said here about weather."
)


def test_the_text_right_below_an_identifier_is_about_it() -> None:
    other = hit(1, "Parse errors reject with a `pump_error`, or they resolve.", "Errors")
    text = "# pump_error\n\nThis occurs when the valve is shut.\n\nOpen the valve."
    answer = Extractive().answer(asked("what does pump_error mean"), [other, hit(2, text)]).text
    assert "pump_error:\n\nThis occurs when the valve is shut." in answer


def test_steps_are_quoted_with_their_code() -> None:
    steps = hit(1, "# Lid\n\n1. Stop the pump.\n1. Open the lid:\n\n   ```sh\n   open\n   ```\n")
    assert Extractive().answer(asked("how to open the lid"), [steps]).text == (
        "Lid:\n\n1. Stop the pump.\n1. Open the lid:\n\n```sh\nopen\n```\n\n[1]"
    )


def test_steps_are_quoted_together() -> None:
    steps = hit(1, "## Remove\n\nThe pump can be removed.\n\n1. Open the lid.\n2. Press **Off**.\n")
    assert Extractive().answer(asked("how to open the lid"), [steps]).text == (
        "Remove:\n\n1. Open the lid.\n2. Press **Off**.\n\n[1]"
    )


def test_a_sentence_is_quoted_once_wherever_its_links_point() -> None:
    said = "Read how to [set the pump limit]({}) before you raise the pump limit to its end."
    one, other = (hit(n, said.format(way)) for n, way in enumerate(("pumps.md", "../pumps.md"), 1))
    quoted = Extractive().answer(asked("raise the pump limit"), [one, other]).text
    whole = "Read how to set the pump limit before you raise the pump limit to its end."
    assert quoted == f"{whole} [1]"


def test_a_list_is_quoted_with_the_line_above_it() -> None:
    answer = Extractive().answer(asked("supported formats"), [hit(1, FORMATS.format(""))]).text
    assert answer == "Supported formats:\n\n- PDF and DOCX\n- Markdown\n\n[1]"


def test_an_item_of_a_long_list_is_understood_by_the_line_above_it() -> None:
    chunk = hit(1, FORMATS.format("\n- of no use" * 60))
    answer = Extractive().answer(asked("supported formats markdown"), [chunk]).text
    assert answer.startswith("Supported formats:\n\n- Markdown\n- …\n\n[1]")


def test_a_row_says_what_it_says_of_its_columns() -> None:
    """The name that is asked for stands above the column; a sentence that names it and says
    something else is no better.
    """
    table = hit(
        1,
        "| Property | PX-20 | PX-40 |\n"
        "|---|---|---|\n"
        "| Maximum throughput | 6,200 | 11,400 |\n"
        "| Rated power | 90 W | 140 W |",
    )
    other = hit(
        2,
        "The cold kit adds a heater to each drum; a PX-40 with the cold kit runs down to -28"
        " degrees.",
    )
    text = (
        Extractive(max_quotes=1)
        .answer(asked("What is the maximum throughput of the PX-40?"), [table, other])
        .text
    )
    assert (
        "| Maximum throughput | 6,200 | 11,400 |" in text
        and "cold kit" not in text
        and "Rated power" not in text
    )


def test_two_rows_of_one_table_share_its_header() -> None:
    chunk = hit(
        1, "| Plan | Price |\n|---|---|\n| team monthly | 10 |\n| team yearly | 100 |\n| solo | 1 |"
    )
    assert (
        Extractive().answer(asked("price of the team plan"), [chunk]).text
        == "| Plan | Price |\n| --- | --- |\n| team monthly | 10 |\n| team yearly | 100 |\n\n[1]"
    )


@given(
    st.lists(st.text(alphabet="ab size 大小最。.|-\n`*1", max_size=80), max_size=4),
    st.sampled_from(["max size", "最大 大小", "a b"]),
)
def test_every_quote_is_a_verbatim_slice(texts: list[str], query: str) -> None:
    evidence = [hit(n, text) for n, text in enumerate(texts, 1)]
    answer = Extractive().answer(asked(query), evidence).text
    for part in re.split(r"\s*\[\d+\](?:\n\n|$)", answer):
        lines = [
            unescape_marks(line) for line in part.splitlines() if not re.fullmatch(r"[|\s-]+", line)
        ]
        for line in lines:
            text = line.removeprefix("- ")
            assert any(text in source or line in source for source in texts)


ORDER = hit(
    1,
    "订单号：CG-2026-0573\n\n"
    "订单 CG-2026-0573 所列货物送至松江仓库。\n\n"
    "合计（含税）：70,800 元\n\n"
    "- 订单 CG-2026-0573 的变更须双方书面确认。\n- 质保期十八个月。",
)
OTHER_ORDER = dataclasses.replace(
    ORDER, doc_id="e", chunk_text="订单号：CG-2026-0588\n\n总价（含税）：84,900 元"
)


def test_what_is_asked_is_quoted_not_what_has_the_identifier_of_its_document() -> None:
    text = Extractive().answer(asked("CG-2026-0573 合计多少"), [OTHER_ORDER, ORDER]).text
    assert text == "合计（含税）：70,800 元 [2]"


def test_an_identifier_tells_rows_and_documents_apart() -> None:
    orders = hit(1, "- PO-4471: the total is 300 EUR.\n- PO-4472: the total is 900 EUR.")
    text = Extractive().answer(asked("total of PO-4472"), [orders]).text
    assert text == "- PO-4472: the total is 900 EUR. [1]"
    # nothing else of the question stands in it
    text = Extractive().answer(asked("CG-2026-0573 的运费"), [ORDER]).text
    assert text.startswith("订单号：CG-2026-0573")


def test_an_identifier_in_a_row_names_no_document() -> None:
    rows = "| 型号 | 数量 | 单价 |\n| --- | --- | --- |\n| QH-900 | 2 | 286 |\n| 服务 | 1 | 20 |"
    contract = hit(1, f"甲方为采购方。\n\n{rows}")
    prices = hit(2, "现货型号（QH-500、QH-900）交货期四周。")
    prices = dataclasses.replace(prices, doc_id="e", doc_title="Prices")
    text = Extractive().answer(asked("QH-900 采购数量"), [contract, prices]).text
    assert text.splitlines()[2] == "| QH-900 | 2 | 286 |"


def test_a_row_without_the_identifier_is_quoted_only_for_words_of_its_own() -> None:
    rows = ["| BC-A | Torque wrench | 84 |", "| BC-B | Torque wrench | 112 |", "| BC-C | Hoe | 9 |"]
    prices = hit(1, "\n".join(["| Article | Name | Price |", "| --- | --- | --- |", *rows]))

    def quote(question: str) -> list[str]:
        answer = Extractive(keep_ratio=0.1).answer(asked(question), [prices])
        return answer.text.splitlines()[2:-2]

    assert quote("Price of the torque wrench BC-B?") == rows[1:2]
    assert quote("Is the torque wrench BC-B dearer than BC-A?") == rows[:2]
    assert quote("Is the torque wrench BC-B dearer than the hoe?") == rows[1:]
    assert quote("Price of a torque wrench?") == rows[:2]


def test_a_weak_quote_from_far_away_needs_another_word_of_the_question() -> None:
    best = hit(1, "Visitors park in the yard behind the gate.")
    weak = hit(2, "Visitors see the yard and park behind trees.")
    new = hit(2, "Visitors of the park see the gate at night.")
    where = "Where do visitors park in the yard behind the gate"

    def count(question: str, *evidence: Hit) -> int:
        return Extractive().answer(asked(question), evidence).text.count("[")

    def move(passage: Hit, index: int = 1, doc_id: str = "d") -> Hit:
        return dataclasses.replace(passage, chunk_index=index, doc_id=doc_id)

    assert count(f"{where}?", best, weak) == 2
    assert [count(f"{where}?", best, move(weak, index)) for index in (5, 6)] == [2, 1]
    assert count(f"{where}?", best, move(weak, doc_id="e")) == 1
    assert count(f"{where} at night?", best, move(new, doc_id="e")) == 2
    # the first passage stays, and so does the best part for each of several questions
    assert count(f"{where}?", move(weak, doc_id="e"), best) == 2
    assert count(f"{where}? What do visitors see?", best, move(weak, doc_id="e")) == 2


def test_words_of_an_address_do_not_count() -> None:
    links = "- **Docs:** [https://pumps.io](https://pumps.io)\n- **Code:** https://a.org/pumps"
    readme = hit(1, f"{links}\n\nMost pumps are red.")
    text = Extractive().answer(asked("Which colour do pumps have?"), [readme]).text
    assert text == "Most pumps are red. [1]"


@pytest.mark.parametrize(("name", "place"), [("d.md", "[1]"), ("d.sql", "[2]")])
def test_the_comment_of_a_program_answers_before_its_code(name: str, place: str) -> None:
    """Long code has more words of a question than what explains it; elsewhere it may answer."""
    code = hit(1, "```sql\ncreate table pumps (\n  pump_rate int,\n  s int\n);\n```", "`pump_rate`")
    comment = hit(2, "Litres a minute.", "`pumps.pump_rate`")
    evidence = [dataclasses.replace(it, filename=name) for it in (code, comment)]
    answer = Extractive().answer(asked("What is pump_rate in pumps?"), evidence).text
    assert answer[answer.index("[") :].startswith(place)


def test_code_with_nothing_but_the_name_of_its_product_is_not_quoted() -> None:
    install = hit(1, "Run:\n\n```bash\npip install pumps\n```\n\nIts users meet in May.")
    for names in ({"filename": "pumps-README.md"}, {"source_uri": "pumps/README.md"}):
        readme = dataclasses.replace(install, **names)
        found = Extractive().answer(asked("How many users does pumps have?"), [readme]).text
        assert found == "Its users meet in May. [1]"
        assert "pip" in Extractive().answer(asked("How do I install pumps?"), [readme]).text


@pytest.mark.parametrize("question", ["What does pump -s do?", "pump的-s选项是什么意思"])
def test_a_flag_is_quoted_from_its_description_rather_than_from_a_synopsis(question: str) -> None:
    synopsis = hit(1, "## SYNOPSIS\n\n```\npump [-s] [-q] [--speed=<n>] <name>\n```", "pump")
    options = hit(2, "## OPTIONS\n\n**-q**\n\nSay nothing.\n\n**-s**\n\nPump slowly.", "pump")
    names = {"filename": "pump.html", "doc_title": "pump"}
    evidence = [dataclasses.replace(it, **names) for it in (synopsis, options)]
    text = Extractive().answer(asked(question), evidence).text
    assert text.startswith("OPTIONS, -s:\n\nPump slowly. [2]") and "Say nothing" not in text
    other = [evidence[0], dataclasses.replace(options, filename="tap.html", doc_title="tap")]
    assert Extractive().answer(asked(question), other).text.startswith("SYNOPSIS")


@pytest.mark.parametrize("question", ["What is pump?", "pump命令是做什么的", "what is pump for"])
def test_what_a_thing_is_is_quoted_from_the_beginning_of_its_document(question: str) -> None:
    text = "# pump(1)\n\n## NAME\n\npump - move water\n\n## SYNOPSIS\n\n```\npump <name>\n```"
    first = dataclasses.replace(hit(1, text), chunk_index=0, filename="pump.html")
    later = hit(2, "The pump command is started by pump. What pump is running is shown.")
    later = dataclasses.replace(later, filename="pump.html")
    found = Extractive().answer(asked(question), [later, first]).text
    assert found == "pump - move water [2]"
    assert (
        "move water" not in Extractive().answer(asked("Is the pump running?"), [later, first]).text
    )


def test_a_path_and_a_format_name_no_document() -> None:
    player = hit(1, "The player reads H.264 in api/v1.\n\nThe player reads AAC.")
    text = Extractive().answer(asked("Where does the player read H.264?"), [player]).text
    assert text.startswith("The player reads H.264 in api/v1.")


def test_question_words_carry_no_weight() -> None:
    assert [
        (word.text, word.weight) for word in question_words("What is the maximum upload size?")
    ] == [("maximum", 1.0), ("upload", 1.0), ("size", 1.0)]
    assert [word.text for word in question_words("请问最大连接数是多少")] == ["最大", "连接数"]
    assert [word.text for word in question_words("证书的有效期是多久")] == ["证书", "有效期"]
    assert question_words("what is this")
    assert coverage("maximum upload weather", ["the maximum upload"]) == pytest.approx(2 / 3)
    assert coverage("PPR-9087 upload", ["PPR-9087"]) > coverage("PPR-9087 upload", ["upload"])


def test_words_that_are_no_topic_count_half() -> None:
    far = hit(1, "A lever moves the tap between its ends and back, as some like to see it move.")
    near = hit(2, "The colours of taps and valves are unlike those of all the other fittings.")
    answer = Extractive(max_quotes=1).answer
    query = asked("choose between taps and valves")
    assert answer(query, [far, near]).text.endswith("fittings. [2]")
    phrased = dataclasses.replace(query, rewrites=("between tap ends",))
    assert answer(phrased, [far, near]).text.endswith("move. [1]")


def test_names_weigh_more_than_words() -> None:
    weights = {
        word.text: word.weight for word in question_words("How do I create a Laravel migration?")
    }
    assert weights == {"creat": 1.0, "laravel": 2.0, "migrat": 1.0}
    assert {word.text: word.weight for word in question_words("Redis 的端口")} == {
        "redi": 2.0,
        "端口": 1.0,
    }
    assert names_coverage("Redis 的端口", ["Redis listens on 6379"]) == 1.0
    assert names_coverage("端口是多少", ["Redis listens on 6379"]) == 0.5


def test_a_character_after_a_latin_word_belongs_to_the_next_word() -> None:
    assert [word.text for word in question_words("不设cookie会怎样")] == ["cooki", "不设"]
    assert [word.text for word in question_words("python2能用吗")] == ["python2", "python", "2"]
    assert "t恤" in {word.text for word in question_words("T恤多少钱")}


def test_parts_of_an_identifier_count_half_of_it_together() -> None:
    assert [(word.text, word.weight) for word in question_words("Who sells a FastAPI license")] == [
        ("sell", 1.0),
        ("fastapi", 2.0),
        ("fast", 0.5),
        ("api", 0.5),
        ("licens", 1.0),
    ]
    # a word of its own besides
    assert {word.text: word.weight for word in question_words("Does the OpenAI API cost")}[
        "api"
    ] == 2.0


def test_a_number_before_a_chinese_word_counts_once() -> None:
    assert [(word.text, word.weight) for word in question_words("气温上升6度吗")] == [
        ("6", 1.0),
        ("气温", 1.0),
        ("上升", 1.0),
    ]


def test_words_in_all_passages_count() -> None:
    apart = [
        "The lunar rover has six wheels made of wire mesh.",
        "Batteries of the drone weigh two kilograms.",
    ]
    assert coverage("weight rover batteries drone", apart) == pytest.approx(3 / 4)
    assert coverage("rover", []) == 0.0


def test_a_sentence_that_only_points_to_the_answer_comes_after_it() -> None:
    points = hit(1, "To enable systemd, see [How to enable systemd](#enable).", "Systemd")
    says = hit(2, "To enable systemd, set systemd=true below boot in the file wsl.conf.", "Systemd")
    assert (
        Extractive(max_quotes=1)
        .answer(asked("How do I enable systemd?"), [points, says])
        .text.endswith("wsl.conf. [2]")
    )


def test_a_sentence_that_introduces_what_is_left_out_comes_after_it() -> None:
    intro = hit(1, "To limit the upload size, set `max_size` like this:\n\n{* ../limit.py *}\n")
    says = hit(2, "The upload size has a limit, set by `max_size` in the settings.")
    answer = Extractive().answer(asked("How do I limit the upload size?"), [intro, says]).text
    assert answer.index("in the settings") < answer.index("like this")


def test_what_stands_between_two_quotes_makes_them_one() -> None:
    text = (
        "Disks in pairs keep two copies of all data, one on each, so that the space of half of them"
        " is lost for good.\n\n"
        "Parity\n\n"
        "A sum of the parity of all others is kept in copies by one of the disks, so that any one"
        " may fail at any time."
    )
    evidence = [hit(1, text, "Storage")]
    answer = Extractive().answer(asked("pairs copies parity"), evidence)
    assert answer.text == f"{text} [1]"


def test_another_alphabet_counts_as_another_language() -> None:
    evidence = [
        hit(1, "Лицензия для проекта PaddleOCR: Apache 2.0."),
        hit(2, "PaddleOCR is Apache 2.0."),
    ]
    answer = Extractive().answer(asked("PaddleOCR license"), evidence)
    assert answer.text.startswith("PaddleOCR is Apache 2.0. [2]")


def test_words_that_became_filters_are_not_looked_for() -> None:
    query = asked("Which code refuses larger files? only English documents")
    assert query.filters == {"lang": "en"}
    answer = Extractive().answer(query, EVIDENCE).text
    assert answer == "Larger files are refused with code 413. [1]"
    assert confidence(query, EVIDENCE) > 0.8


def test_half_a_chinese_word_counts_less_than_half() -> None:
    word = question_words("连接数")[0]
    assert (word.share_in({"连接", "接数"}), word.share_in({"连接"}), word.share_in(set())) == (
        1.0,
        0.33,
        0.0,
    )


def test_confidence_is_the_coverage_of_the_question_by_the_first_hit() -> None:
    query = asked("What is the maximum upload size?")
    assert confidence(query, EVIDENCE) == 1.0
    assert confidence(query, []) == 0.0
    # a Chinese passage shares no words
    assert confidence(query, EVIDENCE[2:3]) == 0.5


def test_what_a_documentation_tool_replaces_is_no_answer() -> None:
    chunk = hit(
        1,
        "## Upload size\n"
        "\n"
        "{* ../src/upload_size.py hl[3] *}\n"
        "\n"
        "::: app.upload.size\n"
        "\n"
        "It must not exceed 50 MB in all.",
    )
    assert (
        Extractive().answer(asked("What is the upload size?"), [chunk]).text
        == "It must not exceed 50 MB in all. [1]"
    )


def test_brackets_of_a_quoted_document_are_no_marks() -> None:
    chunk = hit(1, "The maximum upload size is 50 MB, see [2].")
    text = Extractive().answer(asked("What is the maximum upload size?"), [chunk, UPLOADS]).text
    assert text.startswith("The maximum upload size is 50 MB, see \\[2\\]. [1]")


def test_marks_are_renumbered_in_order_of_appearance() -> None:
    assert find_cited("a [3] b [1] c [3] d [9] e [2026]", 3) == [3, 1]
    assert renumber_marks("a [3] b [1] x[9]", {3: 1, 1: 2}) == "a [1] b [2] x[9]"


@pytest.mark.parametrize("question", ["文件太大会怎样？", "What about huge videos?"])
def test_where_no_word_matches_the_meaning_decides(question: str) -> None:
    """In another script or other words: the nearest parts are quoted, if it can be told."""
    near = {
        "Larger files are refused with code 413.": 0.8,
        "The maximum upload size is 50 MB.": 0.2,
    }
    by_meaning = Extractive(nearness=lambda texts: [near[text] for text in texts], max_quotes=1)
    assert Extractive().answer(asked(question), [UPLOADS]).text == ""
    assert (
        by_meaning.answer(asked(question), [UPLOADS]).text
        == "Larger files are refused with code 413. [1]"
    )


def test_a_version_of_the_title_is_that_of_every_sentence_below_it() -> None:
    text = (
        "# Pump 3.0\n\nPump 3.0 runs on steam and weighs two tons in all.\n\n## Steps\n\n"
        "1. Carry the crate to the yard.\n2. Unpack it beside the shed."
    )
    found = Extractive().answer(asked("Where is 3.0 unpacked?"), [hit(1, text, "Pump 3.0 / Steps")])
    assert "Unpack it beside the shed." in found.text.split("[1]")[0]


@pytest.mark.parametrize(
    ("titles", "names"),
    [
        (("Leave 2023", "Leave 2024"), ("Leave 2023:", "Leave 2024:")),
        (("Leave", "Leave"), ("s/d0.md:", "s/d1.md:")),
        (("差旅制度（2023版）", "Leave 2024"), ("差旅制度（2023版）：", "Leave 2024:")),
    ],
)
def test_what_two_documents_say_otherwise_is_named_by_them(
    titles: tuple[str, str], names: tuple[str, str]
) -> None:
    evidence = [
        dataclasses.replace(
            hit(n, f"Employees receive {days} days of annual leave.", "Annual leave"),
            doc_id=f"d{n}",
            doc_title=title,
            source_uri=f"s/d{n}.md",
        )
        for n, (days, title) in enumerate(zip((25, 28), titles, strict=True))
    ]
    question = asked("How many days of annual leave do employees receive?")
    assert Extractive().answer(question, evidence).text == (
        f"{names[0]}\n\nEmployees receive 25 days of annual leave. [1]\n\n"
        f"{names[1]}\n\nEmployees receive 28 days of annual leave. [2]"
    )
    of_one = [dataclasses.replace(item, doc_id="d") for item in evidence]
    assert ":" not in Extractive().answer(question, of_one).text


def test_the_rows_of_compared_identifiers_are_quoted_beside_a_sentence_with_both() -> None:
    said = hit(1, "The A100 and the A200 are in stock and arrive in a week.", "Delivery")
    head = "| Model | Weight | Power |\n| --- | --- | --- |\n"
    rows = ["| A100 | 12 kg | 3 W |", "| A200 | 9 kg | 5 W |"]
    table = hit(2, head + "\n".join([*rows, "| A300 | 7 kg | 8 W |"]), "Data")
    found = Extractive().answer(asked("which is heavier, A100 or A200"), [said, table]).text
    assert all(row in found for row in rows)
    assert "A300" not in found
    # a row that has both is what they have in common
    table = hit(2, head + "\n".join([*rows, "| A100 with A200 | 21 kg | 8 W |"]), "Data")
    found = Extractive(max_quotes=1).answer(asked("weight of A100 with A200"), [table]).text
    assert "21 kg" in found
    assert rows[0] not in found


def test_a_table_of_which_only_the_header_is_asked_for_is_listed() -> None:
    rows = [f"| AX-{n} | {n} kW |" for n in range(1, 60)]
    table = hit(1, "\n".join(["| Model | Power |", "| --- | --- |", *rows[:3]]), "Motors")
    every = Extractive().answer(asked("Which models are there?"), [table]).text
    assert every.splitlines() == ["| Model | Power |", "| --- | --- |", *rows[:3], "", "[1]"]
    named = hit(1, f"{table.chunk_text}\n| Falcon | 9 kW |", "Motors")
    one = Extractive().answer(asked("power of the model Falcon"), [named]).text
    assert one.splitlines()[2:] == ["| Falcon | 9 kW |", "", "[1]"]
    long = hit(1, "\n".join(["| Model | Power |", "| --- | --- |", *rows]), "Motors")
    cut = Extractive().answer(asked("Which models are there?"), [long]).text
    shown = cut.splitlines()
    assert shown[-4:] == ["", "…", "", "[1]"] and shown[2:-4] == rows[: len(shown) - 6]
    assert 500 < len("\n".join(shown[2:-4])) <= 600 + len(shown)


def test_rows_of_a_passage_within_a_table_stand_under_the_header_of_the_passage_before() -> None:
    rows = hit(1, "| AX | 3 kW |\n| BX | 5 kW |", "Motors")
    within = dataclasses.replace(rows, table_head="| Model | Power |", table_goes_on=True)
    head = "| Model | Power |\n| --- | --- |\n"
    assert Extractive().answer(asked("power of BX"), [within]).text == (
        f"{head}| BX | 5 kW |\n\n[1]"
    )
    # of a list of models, others stand in the passages beside it
    assert Extractive().answer(asked("Which models are there?"), [within]).text == (
        f"{head}| AX | 3 kW |\n| BX | 5 kW |\n\n…\n\n[1]"
    )


def test_a_list_of_rows_that_go_on_in_the_next_passage_says_so() -> None:
    text = "| Model | Power |\n| --- | --- |\n| AX | 3 kW |"
    begun = dataclasses.replace(hit(1, text, "Motors"), table_goes_on=True)
    answer = Extractive().answer(asked("Which models are there?"), [begun])
    assert answer.text == f"{text}\n\n…\n\n[1]"


def test_what_two_sections_say_otherwise_is_named_by_their_headings() -> None:
    text = (
        "## First quarter\n\nSales in the north were 1,200.\n\n"
        "## Second quarter\n\nSales in the north were 1,350."
    )
    answer = Extractive().answer(
        asked("sales in the north, second quarter"), [hit(1, text, "Report / First quarter")]
    )
    assert answer.text == (
        "Second quarter:\n\nSales in the north were 1,350. [1]\n\n"
        "First quarter:\n\nSales in the north were 1,200. [1]"
    )


def test_rows_of_tables_with_the_same_columns_are_named_by_their_documents() -> None:
    head = "| Name | Meaning | Default |\n|---|---|---|\n"
    tables = [
        dataclasses.replace(hit(1, f"{head}| max | most days | 9 |", "API"), doc_title="Calendar"),
        dataclasses.replace(
            hit(2, f"{head}| max | most boxes | 0 |", "API"), doc_id="other", doc_title="Checkbox"
        ),
    ]
    head = "| Name | Meaning | Default |\n| --- | --- | --- |\n"
    assert Extractive().answer(asked("What is max?"), tables).text == (
        f"Calendar:\n\n{head}| max | most days | 9 |\n\n[1]\n\n"
        f"Checkbox:\n\n{head}| max | most boxes | 0 |\n\n[2]"
    )
    other = tables[1].chunk_text.replace("Meaning", "Event")
    tables[1] = dataclasses.replace(tables[1], chunk_text=other)
    assert "Checkbox" not in Extractive().answer(asked("What is max?"), tables).text


@pytest.mark.parametrize(
    ("heading", "name"),
    [
        ("`max_requests`", "Workers, `max_requests`:\n\n"),
        ("max_requests", "Workers, max_requests:\n\n"),
        ("trustProxy", "Workers, trustProxy:\n\n"),
        ("server.close(done)", "Workers, server.close(done):\n\n"),
        ("``max_requests``", "Workers, ``max_requests``:\n\n"),
        ("--max-requests=<n>", "Workers, --max-requests=<n>:\n\n"),
        # words, a version, and what the sentence itself names
        ("Limits", ""),
        ("Node.js and npm", ""),
        ("`pumps`", ""),
    ],
)
def test_a_sentence_about_a_setting_comes_under_its_name(heading: str, name: str) -> None:
    said = (
        "It says how many parts a worker of the pumps may take from the tray before it is started"
        " anew."
    )
    text = f"## Workers\n\nThey work.\n\n### {heading}\n\n{said}"
    answer = Extractive().answer(asked("How many parts may a worker take?"), [hit(1, text)])
    assert answer.text == f"{name}{said} [1]"


def test_what_begins_below_a_question_answers_it() -> None:
    text = (
        "The pumps of a dry basement hum.\n\n## Should a pump run dry?\n\nNo. It breaks.\n\n"
        "## Is it loud?\n\nIt hums."
    )
    answer = Extractive(max_quotes=1).answer(asked("Should I let a pump run dry?"), [hit(1, text)])
    assert answer.text == "Should a pump run dry:\n\nNo. It breaks. [1]"


def test_a_chinese_heading_asks_without_a_question_mark() -> None:
    text = (
        "# 开发规范\n\n## 五、数据倾斜怎么处理\n\n先看是否有空值，再加随机前缀打散。\n\n"
        "## 六、反压\n\n常见原因是数据倾斜。"
    )
    answer = Extractive(max_quotes=1).answer(asked("数据倾斜怎么办"), [hit(1, text)])
    assert (
        answer.text == "开发规范，五、数据倾斜怎么处理：\n\n先看是否有空值，再加随机前缀打散。 [1]"
    )


def test_what_follows_an_answer_stands_without_the_question() -> None:
    text = (
        "## 什么是容器\n\n容器运行一个进程。\n\n日志写到标准输出。\n\n## 处理很多长文本\n\n先截断。"
    )
    for question, quote in (
        ("容器是什么", "什么是容器：\n\n容器运行一个进程。\n\n日志写到标准输出。 [1]"),
        ("日志写到哪里", "日志写到标准输出。 [1]"),
        ("长文本截断吗", "先截断。 [1]"),
    ):
        assert Extractive(max_quotes=1).answer(asked(question), [hit(1, text)]).text == quote


@pytest.mark.parametrize(
    ("question", "row"),
    [
        ("工作满12年年假几天", "| 满 10 年不满 20 年 | 10 天 |"),
        ("工作 15 年有几天年假", "| 满 10 年不满 20 年 | 10 天 |"),
        ("工作3年年假多少天", "| 满 1 年不满 10 年 | 5 天 |"),
        ("可用性98%赔多少年假", "| 低于 99.0% 但不低于 95.0% | 7 天 |"),
    ],
)
def test_a_number_counts_in_its_range_and_not_with_another_unit(question: str, row: str) -> None:
    rows = (
        "| 满 1 年不满 10 年 | 5 天 |\n| 满 10 年不满 20 年 | 10 天 |\n| 满 20 年 | 15 天 |\n"
        "| 低于 99.0% 但不低于 95.0% | 7 天 |\n| 满 12 个月 | 12 天 |\n| 试用 | 3 天 |"
    )
    table = f"| 工作年限 | 年假天数 |\n| --- | --- |\n{rows}"
    answer = Extractive(max_quotes=1).answer(asked(question), [hit(1, table)])
    assert answer.text == f"| 工作年限 | 年假天数 |\n| --- | --- |\n{row}\n\n[1]"


@pytest.mark.parametrize(
    ("question", "quote"),
    [
        ("工作15年的年假几天", "工作满15年的，年假15天。"),
        ("工作8年的年假几天", "工作满8年的，年假8天。"),  # 5年、20年 is no range
        ("工作12年的年假几天", "工作10年以上20年以下的，年假10天。"),
        ("17号线的年假几天", "17号线职工年假2天。"),
    ],
)
def test_what_is_a_range_and_what_is_not(question: str, quote: str) -> None:
    texts = (
        "工作的年假分5年、20年两档，见附件，年假另计。",
        "工作满15年的，年假15天。",
        "工作满8年的，年假8天。",
        "工作10年以上20年以下的，年假10天。",
        "16号线至21号线职工年假3天。",
        "17号线职工年假2天。",
    )
    hits = [hit(n, text) for n, text in enumerate(texts, 1)]
    answer = Extractive(max_quotes=1).answer(asked(question), hits)
    assert answer.text.startswith(quote)


@pytest.mark.parametrize(
    ("question", "row"),
    [
        ("12月4号谁值班", "| 12/4 | 冯雪 |"),
        ("2026年12月15日谁值班", "| 12/15 | 何俊 |"),
        ("十二月八日谁值班", "| 12/8 | 蒋涛 |"),
        ("8月12日谁值班", "| 8/12 | 马丽 |"),
    ],
)
def test_the_row_of_the_day_is_quoted_however_it_is_written(question: str, row: str) -> None:
    head = "| 日期 | 值班 |\n| --- | --- |"
    rows = "| 12/1 | 何俊 |\n| 12/4 | 冯雪 |\n| 12/8 | 蒋涛 |\n| 8/12 | 马丽 |\n| 12/15 | 何俊 |"
    answer = Extractive().answer(asked(question), [hit(1, f"{head}\n{rows}")])
    assert answer.text == f"{head}\n{row}\n\n[1]"


def test_a_change_log_counts_less_unless_it_is_asked_for() -> None:
    log = hit(1, "Renaming a column keeps its checks.", "Change log / 4.0.2 - 2026-01-05")
    page = hit(2, "Pass `rename=` to rename one column.", "Tables")
    extractive = Extractive(max_quotes=1)
    assert (
        "Pass `rename=`" in extractive.answer(asked("How do I rename a column?"), [log, page]).text
    )
    assert "keeps" in extractive.answer(asked("Since when is a column renamed?"), [log, page]).text
    # the digit of a name is no version
    said = extractive.answer(asked("How does sqlite3 rename a column?"), [log, page]).text
    assert "Pass `rename=`" in said
    # a chapter about the past is no change log
    past = hit(1, "Ann was the first to rename a column.", "History")
    said = extractive.answer(asked("Who would rename a column?"), [past, page]).text
    assert "Ann" in said


_LOG = (
    "### 2.1.1\n\n*2026-03-04*\n\n#### Fixed\n\n- Tanks overflow.\n- Released pipes leak.\n\n"
    "#### Added\n\n- Valves.\n\n"
    "### 2.1.0\n\n*2026-01-05*\n\n#### Fixed\n\n- Pumps stall since 2.0.9.\n- Hoses tear.\n"
)


@pytest.mark.parametrize(
    ("query", "quote", "left_out"),
    [
        ("what was fixed in 2.1.1", "2.1.1, Fixed:\n\n- Tanks overflow.\n- Released", "Pumps"),
        ("what was added in 2.1.1", "2.1.1, Added:\n\n- Valves.", "Pumps"),
        ("What is new in 2.1.0?", "2.1.0, Fixed:\n\n- Pumps stall since 2.0.9.\n- Hoses", "Tanks"),
        ("when was 2.1.1 released", "Change log, 2.1.1:\n\n*2026-03-04*", "2026-01-05"),
    ],
)
def test_the_sections_below_a_version_are_those_of_the_version(
    query: str, quote: str, left_out: str
) -> None:
    said = Extractive().answer(asked(query), [hit(1, _LOG, "Change log")]).text
    assert quote in said
    assert left_out not in said


def test_a_short_answer_is_not_lengthened_by_the_next_bold_question() -> None:
    text = "**Can I swim?** Yes, in May.\n\n**Can I row?** Yes, in June."
    answer = Extractive().answer(asked("swim"), [hit(1, text, "Lake")])
    assert answer.text == "**Can I swim?** Yes, in May. [1]"


OPTIONS = [
    hit(
        1,
        "**`hash_factor` (`float`)**\n\nThe default value is 2.0, which is twice the usual"
        " `work_mem` in most cases.",
        "Memory",
    ),
    hit(
        2,
        "**`work_mem` (`integer`)**\n\nMemory for sorting in each session.\n\nIf it has no unit,"
        " it is in kilobytes. The default value is four megabytes, which suits small machines.",
        "Memory",
    ),
]


def test_the_default_of_an_option_is_not_taken_from_the_description_of_another() -> None:
    answer = Extractive().answer(asked("What is the default value of work_mem?"), OPTIONS).text
    assert answer.startswith("Memory, `work_mem` (`integer`):\n\n")
    assert "The default value is four megabytes" in answer.partition("[2]")[0]
    both = Extractive().answer(asked("default value of hash_factor and work_mem"), OPTIONS).text
    assert "The default value is 2.0" in both


PROPS = "| Prop | Type | Default |\n|---|---|---|\n"
COMPONENTS = [
    dataclasses.replace(
        hit(1, "Set `side`:\n\n```jsx\n<Popup side='top' />\n```"), doc_title="Popup"
    ),
    dataclasses.replace(
        hit(2, f"{PROPS}| motion | string | fade; if side is center |\n| side | string | bottom |"),
        doc_title="Popup",
    ),
    dataclasses.replace(
        hit(3, f"{PROPS}| side | string | 1 of 2 sides |"), doc_title="Tabs", doc_id="tabs"
    ),
]


@pytest.mark.parametrize("question", ["Popup 的 side 默认值", "What is the default side of Popup?"])
def test_the_asked_property_of_the_named_component_comes_first(question: str) -> None:
    text = Extractive().answer(asked(question), COMPONENTS).text
    assert text.splitlines()[2:5] == ["| side | string | bottom |", "", "[2]"]
    assert "fade" not in text
    assert "1 of 2" not in text


def test_a_property_is_known_by_the_object_that_the_heading_names() -> None:
    texts = [
        f"#### options.{name}\n\n| Name | Default |\n|---|---|\n| enable | {default} |\n"
        for name, default in (("resize", "默认值 no"), ("cache", "yes"))
    ]
    text = Extractive().answer(asked("cache.enable 默认值"), [hit(1, "\n".join(texts))]).text
    assert text.endswith("| enable | yes |\n\n[1]")
    assert "no" not in text


def test_the_first_sentence_below_a_signature_says_what_it_is() -> None:
    evidence = [
        hit(
            1,
            "**`Table.get_rows(start, **filters)`**\n\n*inherited from the* `Rows.get_rows()`"
            " *method of* `Rows`\n\nAdded in version 2.1.\n\nYields the lines that match. Use"
            " `get_rows` inside a transaction, or `get_rows` may repeat a line.",
        ),
        hit(2, "#### `get_rows.limit`\n\nHow many lines get_rows reads at once."),
        hit(3, "Call `get_rows` twice to compare both."),
    ]
    answer = Extractive().answer(asked("What does get_rows do?"), evidence).text
    assert "Yields the lines that match." in answer.split("[1]")[0]
    assert "at once" not in answer


def test_the_label_is_that_of_the_signature_above_the_quote() -> None:
    """Not that of the function whose description the passage goes on with first."""
    text = "Then cool it.\n\n**`Jar.shut(by=None)`**\n\nPuts the lid back."
    path = JOINT.join(["Jars", "Jar.open"])
    answer = Extractive().answer(asked("What does Jar.shut do?"), [hit(1, text, path)]).text
    assert answer.startswith("Jars, `Jar.shut(by=None)`:\n\nPuts the lid back. [1]")


def test_a_quote_says_which_option_it_describes_and_what_stands_beside_its_name() -> None:
    text = "**`access_code` (default: 450)**\n\nThe reply of the server to clients it refuses."
    answer = Extractive().answer(asked("default of access_code"), [hit(1, text, "Parameters")])
    assert answer.text == (
        "Parameters, `access_code` (default: 450):\n\n"
        "The reply of the server to clients it refuses. [1]"
    )


def test_the_option_of_a_command_is_known_by_its_dashes() -> None:
    passages = [
        hit(
            1,
            "**--color=\\<when>**\n\nUnlike --dry-run, it shows what a run of it does.",
            "OPTIONS",
        ),
        hit(2, "**-n, --dry-run**\n\nDo everything except actually send the updates.", "OPTIONS"),
    ]
    answer = Extractive().answer(asked("What does git push --dry-run do?"), passages).text
    assert answer.startswith(
        "OPTIONS, -n, --dry-run:\n\nDo everything except actually send the updates. [2]"
    )


@pytest.mark.parametrize(
    "query", ["What does Jar.open do?", "What does io::Jar::open do?", "What does open of Jar do?"]
)
def test_a_member_is_known_by_its_class(query: str) -> None:
    path = ["io::Jar Class Reference", "Functions"] if "::" in query else ["Class Jar", "Methods"]
    passages = [
        hit(1, "Ends what open of io::Jar began.", JOINT.join([*path, "close"])),
        hit(2, "Jar.open is like this open.", JOINT.join(["Class Door", "open"])),
        hit(3, "Use open to take off the lid.", JOINT.join([*path, "open"])),
    ]
    answer = Extractive().answer(asked(query), passages).text
    assert answer.partition(" [")[0].endswith("Use open to take off the lid.")


@pytest.mark.parametrize("query", ["What does Jar.open do?", "signature of io::Jar#open"])
def test_a_member_is_shown_with_its_signature(query: str) -> None:
    signature = "Lid io::Jar::open(int by) const"
    passages = [
        hit(1, "Jar.open is like this.", JOINT.join(["Door Class", "int io::Door::open()"])),
        hit(2, "Use open to take off the lid.", JOINT.join(["Jar Class", signature])),
    ]
    answer = Extractive().answer(asked(query), passages).text
    assert answer.startswith(f"{signature}:\n\nUse open to take off the lid. [2]")


@pytest.mark.parametrize(
    ("query", "answer"),
    [
        ("diff 命令的 -B 选项有什么用？", "选项，`-B`：\n\n忽略空行的变化。 [3]"),
        ("diff -b 是什么意思", "选项，`-b, --ignore-space`：\n\n忽略空格引起的变化。 [3]"),
    ],
)
def test_the_asked_option_of_the_named_command_comes_before_texts_that_name_the_command(
    query: str, answer: str
) -> None:
    def page(rank: int, name: str, text: str, section: str) -> Hit:
        return dataclasses.replace(hit(rank, text, section), doc_id=name, doc_title=name)

    passages = [
        page(1, "DIFF(1)", "diff 逐行比较两个文件，diff - - 比较标准输入。", "描述"),
        page(2, "MV(1)", "**`-B`**\n\n不备份文件。\n\n**`-b`**\n\n备份文件。", "选项"),
        page(
            3,
            "DIFF(1)",
            "**`-b, --ignore-space`**\n\n忽略空格引起的变化。\n\n**`-B`**\n\n忽略空行的变化。",
            "选项",
        ),
    ]
    assert Extractive().answer(asked(query), passages).text.startswith(answer)


@pytest.mark.parametrize(
    "query", ["In which version was max_parts added?", "max_parts 是哪个版本新增的？"]
)
def test_a_question_for_a_version_is_answered_from_the_change_log(query: str) -> None:
    page = hit(1, "The `max_parts` that was added limits the parts of a form.", "Forms")
    log = hit(2, "## 0.40.0\n\n- Add `max_parts` to forms.", "Change log")
    answer = Extractive().answer(asked(query), [page, log]).text
    assert answer.startswith("0.40.0:\n\n- Add `max_parts` to forms.")
