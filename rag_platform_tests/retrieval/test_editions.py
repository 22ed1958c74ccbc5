"""Editions of policies and price lists: the newest answers, or the one that a question names."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rag_platform.answering.engine import answer
from rag_platform.ir import Hit, Json, QueryRequest
from rag_platform.messages import translate_filled
from rag_platform.retrieval.editions import (
    Asked,
    Edition,
    find_asked_edition,
    find_foreign,
    find_named_edition,
    has_editions,
    list_others,
    name_document,
    name_products,
    read_edition,
    select_editions,
)
from rag_platform.retrieval.library import Library


@pytest.mark.parametrize(
    ("path", "head", "metadata", "edition"),
    [
        ("hr/policy-2024-06-01.docx", "", {}, Edition("2024-06-01")),
        ("合同模板_20240601.docx", "", {}, Edition("2024-06-01")),
        ("2024-06/policy.md", "", {}, Edition("2024-06")),
        ("制度/2024年版/差旅.docx", "", {}, Edition("2024")),
        ("差旅（2024年7月1日）.docx", "", {}, Edition("2024-07-01")),
        ("policy.md", "# Policy\n\nVersion 3.2\n", {}, Edition(version=(3, 2))),
        ("policy.md", "# 制度\n\n版本：V2.1\n", {}, Edition(version=(2, 1))),
        ("policy.md", "Effective 1 July 2024", {}, Edition("2024-07-01")),
        ("policy.md", "本办法自2024年7月1日起施行。", {}, Edition("2024-07-01")),
        ("policy.md", "Expiry date: 31 May 2099\n\nUpdated 1 July 2024", {}, Edition("2024-07-01")),
        ("policy.md", "生效日期：2024年7月1日，有效期至2099年6月30日", {}, Edition("2024-07-01")),
        ("policy.md", "The firm was founded on 1 July 1924.", {}, Edition()),
        ("policy.md", "", {"version": "1.4", "date": "2024-05-02"}, Edition("2024-05-02", (1, 4))),
        ("policy.md", "", {"revision": 2}, Edition(version=(2,))),
        ("list v3 (1).pdf", "", {}, Edition(version=(3,))),
        ("list Sep 2024.pdf", "", {}, Edition("2024-09")),
        ("list-draft.pdf", "", {}, Edition(is_stale=True)),
        ("archive/list.pdf", "", {}, Edition(is_stale=True)),
        ("名单_作废.pdf", "", {}, Edition(is_stale=True)),
        ("threshold.pdf", "Golden rules", {}, Edition()),
        ("rfc-20245.txt", "", {}, Edition()),
    ],
)
def test_what_tells_an_edition(path: str, head: str, metadata: Json, edition: Edition) -> None:
    assert read_edition(path, "Rules", head, metadata) == edition


def test_a_title_tells_the_date_where_the_path_has_none() -> None:
    assert read_edition("policy.md", "Policy of 2024") == Edition("2024")
    assert read_edition("policy-2023.md", "Policy of 2024") == Edition("2023")


def test_the_name_of_a_document_is_that_of_all_its_editions() -> None:
    names = (
        "policy.md",
        "2024-06/policy-final.docx",
        "old/Policy_20240601.pdf",
        "policy v2 (1).md",
        "Policy Sep 2024.md",
    )
    assert {name_document(name, "Policy 2024")[0] for name in names} == {"policy"}
    assert name_document("差旅制度（2024年版）终稿.docx", "") == ("差旅制度", "")
    assert name_document("差旅制度V2.0（修订版）.docx", "差旅制度") == ("差旅制度", "差旅制度")


@pytest.mark.parametrize(
    ("question", "asked"),
    [
        ("How many days off in the 2023 policy?", Asked("2023", written="2023")),
        ("2023年版里年假几天", Asked("2023", written="2023年")),
        ("How many days off before July 2024?", Asked("2024-07", (), True, "july 2024")),
        ("2024年7月之前年假几天", Asked("2024-07", (), True, "2024年7月")),
        ("How many days off in version 3.2?", Asked(version=(3, 2), written="3.2")),
        ("Does Python version 3 run?", Asked(version=(3,), written="3")),
        ("How many days off since 2023?", None),
        ("How many days off from 2099?", Asked("2099", written="2099")),
        ("2099年起年假几天", Asked("2099", written="2099年")),
        ("Did it change between 2022 and 2023?", None),
        ("How many days off?", None),
        ("Are 2,000 euros or 1950.5 enough?", None),
    ],
)
def test_the_edition_that_a_question_names(question: str, asked: Asked | None) -> None:
    assert find_asked_edition(question) == asked


TEXT = "Full-time employees are entitled to {} days of annual leave in each calendar year."


def make_hit(n: int, path: str, text: str = TEXT, title: str = "Leave") -> Hit:
    return Hit(n, f"c{n}", 1 / n, "hybrid", path, "v", path, path, title, "Leave", n, text)


def select(question: str, hits: list[Hit]) -> tuple[list[str], dict[str, set[str]]]:
    kept, left = select_editions(
        question, hits, lambda doc_ids: {it: read_edition(it) for it in doc_ids}
    )
    return [hit.doc_id for hit in kept], left


LEAVE = [
    make_hit(1, "leave-2022.md", TEXT.format(24)),
    make_hit(2, "rooms.md", "Rooms are booked at the desk.", "Rooms"),
    make_hit(3, "leave-2024.md", TEXT.format(27)),
    make_hit(4, "leave-2023.md", TEXT.format(25)),
]


@pytest.mark.parametrize(
    ("question", "kept"),
    [
        ("How many days of annual leave?", ["leave-2024.md", "rooms.md"]),
        ("How many days of annual leave in 2023?", ["leave-2023.md", "rooms.md"]),
        ("How many days of annual leave before 2024?", ["leave-2023.md", "rooms.md"]),
        ("How many days of annual leave in 2019?", [hit.doc_id for hit in LEAVE]),
        ("How many days of annual leave were there previously?", [hit.doc_id for hit in LEAVE]),
        ("Since when are there more days of leave?", [hit.doc_id for hit in LEAVE]),
        ("How many days of annual leave over the years?", [hit.doc_id for hit in LEAVE]),
        ("历年 days of annual leave?", [hit.doc_id for hit in LEAVE]),
        ("How many days of annual leave every year?", ["leave-2024.md", "rooms.md"]),
        ("Annual leave under the Working Time Act 2003?", ["leave-2024.md", "rooms.md"]),
        ("Annual leave under the Paris Agreement of 2015?", ["leave-2024.md", "rooms.md"]),
        ("Days of annual leave with Python version 3.11?", ["leave-2024.md", "rooms.md"]),
        ("Days of annual leave on Python 3.11?", ["leave-2024.md", "rooms.md"]),
        ("Days of annual leave with python version 3.11?", ["leave-2024.md", "rooms.md"]),
        ("How many days of annual leave did we get during 2019?", [hit.doc_id for hit in LEAVE]),
        ("公司2019年版的 annual leave 是几天", [hit.doc_id for hit in LEAVE]),
        ("查询2019年版的 annual leave", [hit.doc_id for hit in LEAVE]),
    ],
)
def test_the_better_edition_takes_the_better_place(question: str, kept: list[str]) -> None:
    assert select(question, LEAVE)[0] == kept


def test_an_edition_that_is_not_yet_in_force_is_no_better() -> None:
    assert read_edition("leave-2099.md").is_stale
    hits = [*LEAVE, make_hit(5, "leave-2099-01-01.md", TEXT.format(99))]
    assert select("How many days of annual leave?", hits)[0] == ["leave-2024.md", "rooms.md"]
    assert select("How many days of annual leave in 2099?", hits)[0][0] == "leave-2099-01-01.md"


def test_a_year_before_what_the_texts_name_with_it_is_no_edition() -> None:
    rule = "年假按照2015年巴黎公约执行，全体员工每年享有{}天年假。"
    hits = [make_hit(n, f"leave-{2021 + n}.md", rule.format(n)) for n in (1, 2)]
    assert select("2015年巴黎公约规定年假几天", hits)[0] == ["leave-2023.md"]
    assert len(select("2015年年假几天", hits)[0]) == 2


def test_any_passages_tell_that_an_edition_is_named() -> None:
    hits = [
        make_hit(1, "leave-2022.md", "Requests for annual leave go to the head of the team."),
        make_hit(2, "leave-2023.md", TEXT.format(25)),
        make_hit(3, "leave-2022.md", TEXT.format(24)),
    ]
    assert select("Who decides on annual leave in 2023?", hits)[0] == ["leave-2023.md"]
    assert select("Who decides on annual leave?", hits)[0] == ["leave-2022.md", "leave-2023.md"]


def test_only_editions_that_say_otherwise_are_told() -> None:
    question = "How many days of annual leave?"
    assert select(question, LEAVE)[1] == {"c3": {"leave-2022.md", "leave-2023.md"}}
    assert not any(select("How many days of annual leave in 2023?", LEAVE)[1].values())
    same = [make_hit(n, f"leave-{2021 + n}.md", f"{TEXT}\n\nLunch is at {n}.") for n in (1, 2)]
    assert select(question, same) == (["leave-2023.md"], {"c2": set()})


def test_the_passage_that_says_the_same_takes_the_place() -> None:
    lunch = "Lunch is served from noon to two in the canteen; annual leave is no excuse for {}."
    hits = [
        make_hit(1, "leave-2022.md", TEXT.format(24)),
        make_hit(2, "leave-2023.md", lunch.format("guests")),
        make_hit(3, "leave-2023.md", TEXT.format(25)),
        make_hit(4, "leave-2022.md", lunch.format("guests")),
    ]
    kept, left = select_editions(
        "How many days of annual leave?", hits, lambda ids: {it: read_edition(it) for it in ids}
    )
    assert [hit.chunk_id for hit in kept] == ["c3", "c2"]
    assert left == {"c3": {"leave-2022.md"}, "c2": set()}


def test_documents_of_one_name_that_are_no_editions() -> None:
    greeting = "The minutes of the last meeting were approved. The agenda was accepted by all."
    others = [
        make_hit(1, "minutes-2024-01.md", f"{greeting} Clarke renews the fire certificate."),
        make_hit(2, "minutes-2024-03.md", f"{greeting} Davies finds a caterer."),
        make_hit(3, "report-2022.md", "Revenue rose to 81.2 million euros."),
        make_hit(4, "report-2023.md", "The subsidiary in Norwell was sold."),
        make_hit(5, "york/leave.md"),
        make_hit(6, "leeds/leave.md"),
        make_hit(7, "a/list-2022.md", title="Prices"),
        make_hit(8, "b/list-2023.md", title="Staff"),
    ]
    kept, _ = select("Who renews the fire certificate?", others)
    assert kept == [hit.doc_id for hit in others]


def test_where_a_better_edition_may_follow() -> None:
    assert has_editions(LEAVE[:1])
    assert not has_editions(LEAVE[1:2])
    assert has_editions([make_hit(1, "york/leave.md"), make_hit(2, "leeds/leave.md")])
    assert not has_editions([make_hit(1, "york/leave.md"), make_hit(2, "york/leave.md")])


@pytest.mark.parametrize(
    ("question", "others"),
    [
        ("In the 2019 policy, how many days?", ["2023-05-01", "2024-01"]),
        ("2019年版里年假几天", ["2023-05-01", "2024-01"]),
        ("How many days in version 3?", ["1", "2.1"]),
        ("How many days in the 2024 policy?", []),
        ("How many days in v2?", []),
        ("In the 2019 annual leave policy, how many days?", ["2023-05-01", "2024-01"]),
    ],
)
def test_the_editions_instead_of_one_that_is_not_there(question: str, others: list[str]) -> None:
    editions = [Edition("2023-05-01", (1,)), Edition("2024-01", (2, 1)), Edition()]
    asked = find_named_edition(question, "annual leave")
    assert asked is not None
    assert list_others(asked, editions) == others
    assert list_others(asked, editions[:1]) == []
    assert find_named_edition("In 2019, did the leave policy change?", "annual leave") is None


@pytest.fixture
def policies(shelf: Any, tmp_path: Path) -> Library:
    """Three editions of a policy, one told by its first lines only, and a draft."""
    folder = tmp_path / "docs"
    for name, head, days in (
        ("a/leave.md", "Version 1, effective 1 May 2023", 24),
        ("b/leave.md", "Version 3, effective 1 May 2025", 28),
        ("c/leave-2024-05-01.md", "", 26),
        ("c/leave-draft.md", "", 99),
    ):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        text = f"# Leave policy\n\n{head}\n\nThis policy is for all staff.\n\n{TEXT.format(days)}\n"
        (folder / name).write_text(text, encoding="utf-8")
    shelf.ingest(folder)
    library: Library = shelf.library()
    return library


@pytest.mark.parametrize(
    ("question", "path", "warning"),
    [
        (
            "How many days of annual leave do full-time employees get?",
            "b/leave.md",
            "b/leave.md` is taken for the newest version in force; other ones with another text"
            " that were left out: 3",
        ),
        ("How many days of annual leave did they get in the 2024 policy?", "2024-05-01.md", ""),
        ("How many days of annual leave did they get before May 2024?", "a/leave.md", ""),
        (
            "Is this policy for Python version 4?",
            "b/leave.md",
            "version in force; other ones with another text that were left out: 3",
        ),
        ("Is this policy on leave that of the Paris agreement of 2015?", "b/leave.md", ""),
        (
            "How many days of annual leave did they get in version 2?",
            "leave",
            "no document is of version 2 of `leave`, only of 1, 3",
        ),
        ("Is this policy on leave for all staff?", "b/leave.md", ""),
        (
            "How many days of annual leave did they get in the 2019 policy?",
            "leave",
            "no document is of version 2019 of `leave`, only of 2023-05-01, 2024-05-01, 2025-05-01",
        ),
    ],
)
def test_the_edition_that_answers(
    policies: Library, question: str, path: str, warning: str
) -> None:
    result = answer(policies, QueryRequest(question, searches=("days of annual leave",)))
    assert path in result.citations[0].source_uri
    told = [it for it in result.warnings if "taken for the newest" in it or "no document" in it]
    assert len(told) == bool(warning)
    for it in told:
        assert it.endswith(warning)
        assert "version" not in translate_filled(f"Note: {it}", "zh")


def test_a_version_that_is_to_come_is_told(shelf: Any, tmp_path: Path) -> None:
    for year in (2024, 2098, 2099):
        text = f"# Leave\n\nIn force from {year}-03-01\n\n{TEXT.format(year % 100)}\n"
        (tmp_path / "docs").mkdir(exist_ok=True)
        (tmp_path / "docs" / f"leave-{year}-03-01.md").write_text(text, encoding="utf-8")
    shelf.ingest(tmp_path / "docs")
    library = shelf.library()
    result = answer(library, QueryRequest("How many days of annual leave are there?"))
    told = [it for it in result.warnings if it.endswith("a date after today: 2098-03-01")]
    assert len(told) == 1 and "2024" in result.citations[0].source_uri
    assert translate_filled(f"Note: {told[0]}", "zh").endswith(
        "另有一个日期在今天之后的版本：2098-03-01"
    )
    later = answer(library, QueryRequest("How many days of annual leave will there be from 2099?"))
    assert {Path(it.source_uri).stem for it in later.citations} == {"leave-2099-03-01"}


@pytest.mark.parametrize(
    ("question", "foreign"),
    [
        ("How do I install Koa?", {1, 4}),
        ("Koa怎么安装", {1, 4}),
        ("How do I install socket.io?", {0, 1}),
        ("How do I install got with Koa?", set()),  # two products
        ("How do I set the port?", set()),  # a page is about a topic
        ("How do I install Express?", set()),
        ("How do I use koality?", set()),
    ],
)
def test_passages_without_the_product_that_is_asked_for(question: str, foreign: set[int]) -> None:
    hits = [
        Hit(n, f"c{n}", 1.0, "hybrid", path, "v", path, path, title, "", 1, text)
        for n, path, title, text in (
            (1, "js/koa-2.0/README.md", "", "Run npm install."),
            (2, "js/got/readme.md", "Human-friendly requests", "Run npm install."),
            (3, "guide/port.md", "Port", "Koala is set."),
            (4, "guide/middleware.md", "Middleware", "As in Koa, it is a function."),
            (5, "docs/CHANGELOG.md", "Socket.IO", "Fixed."),
        )
    ]
    assert find_foreign(question, hits) == foreign


@pytest.mark.parametrize(
    ("question", "foreign"),
    [
        ("How long do people keep contracts?", {3}),  # a page of another topic may tell
        ("What does the handbook say about logs?", set()),  # all of it is below that README
        ("用户密码多久更换一次", set()),  # a word of Chinese names a topic
    ],
)
def test_folders_of_topics_are_no_products(question: str, foreign: set[int]) -> None:
    hits = [
        Hit(n, f"c{n}", 1.0, "hybrid", path, "v", path, path, title, "", 1, "Kept for ten years.")
        for n, path, title in (
            (1, "README.md", "Handbook"),
            (2, "policies/retention.md", "Retention"),
            (3, "people/README.md", "People"),
            (4, "security/README.md", "Security"),
            (5, "用户/README.md", "用户"),
            (6, "安全/README.md", "安全"),
        )
    ]
    assert find_foreign(question, hits) == foreign


def test_the_language_of_a_readme_is_no_product() -> None:
    assert name_products("web/koa/README.zh-CN.md", "") == (" koa ",)
    assert name_products("web/koa/README_zh-Hans.md", "Koa 中文文档") == (" koa ",)


def test_names_in_long_texts_are_found_in_linear_time() -> None:
    path = f"{'change-' * 20_000}/README.md"
    hit = Hit(1, "c1", 1.0, "hybrid", "d", "v", path, path, "更" * 100_000, "", 1, "")
    assert find_foreign("How do I install Koa?", [hit]) == set()
