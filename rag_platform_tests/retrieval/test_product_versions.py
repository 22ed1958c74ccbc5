"""Libraries with several versions of one product: only the meant one answers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rag_platform.answering.engine import answer
from rag_platform.ir import Hit, QueryRequest
from rag_platform.messages import translate_filled
from rag_platform.retrieval.library import Library
from rag_platform.retrieval.product_versions import (
    Asked,
    ProductVersions,
    asks_for_older,
    find_asked_versions,
    is_of_other,
    keep_newest,
    without_version,
)

FOLDERS = {
    "settings-3": "django-3.2/ref/settings.txt",
    "settings-5": "django-5.2/ref/settings.txt",
    "notes-3": "django-3.2/releases/3.2.txt",
    "notes-5": "django-5.2/releases/5.2.txt",
    "old-notes-5": "django-5.2/releases/3.2.txt",
    "celery": "celery-5.4/index.rst",
    "threads-11": "jdk-11/threads.md",
    "threads-17": "jdk-17/threads.md",
    "readme": "README.md",
}


@pytest.mark.parametrize(
    ("question", "asked"),
    [
        ("What is the default of USE_TZ in Django 5.2?", [Asked("5.2", "django")]),
        ("In version 5.2, what does USE_TZ do?", [Asked("5.2", marked=True)]),
        ("how do I log in with v3?", [Asked("3", marked=True)]),
        ("How do I mount an app in Vue 3?", [Asked("3", "vue")]),
        ("第2版的保修期是多久", [Asked("2", marked=True)]),
        ("Django5.2中如何配置数据库", [Asked("5.2", "django")]),
        ("2.x系列如何安装", [Asked("2", marked=True)]),
        ("第二版的保修期是多久", [Asked("2", marked=True)]),
        ("Set the timeout to 2.0", [Asked("2.0", alone=True)]),
        ("Which 5 settings are new in 5.2?", [Asked("5.2")]),
        ("Is 1.5 GB enough for 2.5 seconds, see section 1.4 and 第3.2节?", []),
        ("Did it grow by 3.2% in 2024? 价格涨了 2.0 倍，如图 1.2", []),
        ("What did Anna say on 2024.01.15?", []),
    ],
)
def test_the_versions_of_a_question(question: str, asked: list[Asked]) -> None:
    assert find_asked_versions(question) == tuple(asked)


@pytest.mark.parametrize(
    ("question", "searched"),
    [
        ("What is the default of USE_TZ in Django 5.2?", "What is the default of USE_TZ in ?"),
        ("In version 5.2, what does USE_TZ do?", "In, what does USE_TZ do?"),
        ("What is new in Django 5.2?", "What is new in Django 5.2?"),
        ("Django 5.2 支持哪些数据库？", "Django 5.2 支持哪些数据库？"),
        ("Django 5.2", "Django 5.2"),
        ("Does Django 5.2 run on Python 3.10?", "Does run on Python 3.10?"),
    ],
)
def test_a_version_is_not_searched_for_where_it_names_the_place(
    question: str, searched: str
) -> None:
    assert without_version(question, "5.2") == searched


@pytest.mark.parametrize("edition", ["第2版", "第二版"])
def test_an_edition_is_not_searched_for_either(edition: str) -> None:
    assert without_version(f"OA手册{edition}的保修期", "2") == "OA手册的保修期"


OLD, NEW = {"settings-3", "notes-3"}, {"settings-5", "notes-5"}


@pytest.mark.parametrize(
    ("question", "others"),
    [
        ("USE_TZ in Django 5.2?", OLD),
        ("USE_TZ in 5.2?", OLD),
        ("USE_TZ in Django 5?", OLD),
        ("USE_TZ in Django 5.2.1?", OLD),
        ("USE_TZ in Django 3.2?", NEW),  # the notes on 3.2 stay
        ("Does Django 5.2 run on Python 3.10?", OLD),
        ("USE_TZ in Django 5.2 with Celery 5.4?", OLD),  # of Celery there is one version
        ("USE_TZ in Celery 3.2?", set()),
        ("USE_TZ in Celery 5.4?", set()),
        ("USE_TZ in Django 4.0?", set()),
        ("Is a timeout of 5.2 enough?", set()),
        ("What was added since Django 3.2?", set()),
        ("Is USE_TZ of Django 5.2 that of the previous version?", set()),
        ("Django 5.2 以上的版本如何设置时区", set()),
        ("Do more than 5 workers help in Django 5.2?", OLD),
    ],
)
def test_documents_of_other_versions(question: str, others: set[str]) -> None:
    assert set(ProductVersions(FOLDERS.items()).find_others(question)[1]) == others


@pytest.mark.parametrize(
    ("paths", "question", "others"),
    [
        (("docs.example.org/v1/auth", "docs.example.org/v2/auth"), "in v2", {0}),
        (("a/heron/v1/a.md", "a/heron/v2/a.md"), "between v1 and v2", set()),
        (("docs.example.org/v1/auth", "docs.example.org/v2/auth"), "with OAuth 2.0", set()),
        (("产品手册 V2.3.pdf", "产品手册 V3.0.pdf"), "3.0 版", {0}),
        (("产品手册_第1版.pdf", "产品手册_第2版.pdf"), "第2版", {0}),
        (("手册（第二版）.md", "手册（第三版）.md"), "第三版", {0}),
        (("手册（第二版）.md", "手册（第三版）.md"), "第二版之后", set()),
        (("指南(v2).md", "指南(v3).md"), "指南v3", {0}),
        (("java/jdk-8/a.md", "java/jdk-17/a.md"), "in Java 8", {1}),
        (("postgresql/15/a.md", "postgresql/16/a.md"), "PostgreSQL 16", {0}),
        (("postgresql/15/a.md", "postgresql/16/a.md"), "for 16 rows", set()),
        (("python/week/3/a.md", "python/week/4/a.md"), "new in Python 3", set()),
        (("python/room-3/a.md", "python/room-4/a.md"), "new in Python 3", set()),
        (("接口2.0版.md", "接口3.0版.md"), "3.0版", {0}),
        (("s/versioned_docs/version-2.0/a.md", "s/docs/a.md"), "in 2.0", {1}),
        (("click/7.x/a.md", "click/8.1/a.md", "click/latest/a.md"), "in Click 7", {1, 2}),
        (("click/7.x/a.md", "click/stable/a.md"), "in Click 8.1", {0}),
        (("c/click/7.x/a.md", "c/click/latest/a.md", "c/click/stable/a.md"), "in Click 8", {0}),
        (("click/7.x/a.md", "click/stable/a.md"), "in Click 6", set()),
        (("click/7.x/a.md", "click/stable/a.md"), "with Python 3.11", set()),
        (("s-site/versioned_docs/version-2.0/a.md", "s-site/docs/a.md"), "in S 3.1", {0}),
        (("x/a-2.0.30/a.md", "x/a-1.4/a.md"), "in 2.0.40", {1}),
        (("2.1-install.md", "2.2-install.md"), "in 2.1", set()),  # chapters
        (("lesson 2.1.md", "lesson 2.2.md"), "in 2.1", set()),
        (("notes/1.2.txt", "notes/1.3.txt"), "Does 1.3 have proxies?", set()),
        (("report-2022.pdf", "report-2023.pdf"), "in v2023", set()),
        (("IPv4.md", "IPv6.md"), "in v4", set()),
        (("http://10.0.0.1/a", "http://10.0.0.2/a"), "on 10.0.0.1", set()),
    ],
)
def test_versions_in_urls_and_file_names(
    paths: tuple[str, ...], question: str, others: set[int]
) -> None:
    found = ProductVersions((path, path) for path in paths)
    assert found.find_others(question)[1] == tuple(paths[n] for n in sorted(others))


def test_a_name_that_few_texts_have_is_not_the_product_of_bare_folders() -> None:
    paths = [("a", "1.2/a.md"), ("b", "1.3/a.md")]
    versions = ProductVersions(paths, {"tls": 0.1, "kestrel": 0.4}.__getitem__)
    assert versions.find_others("How do I enable TLS 1.3?") == ("", ())
    assert versions.find_others("How do I enable it in Kestrel 1.3?") == ("1.3", ("a",))


@pytest.mark.parametrize(
    ("question", "missing"),
    [
        ("USE_TZ in Django 4.2?", ("4.2", "django", ["3.2", "5.2"])),
        ("USE_TZ in Django 4?", ("", "", [])),  # may count something
        ("Do threads of JDK 21 wait?", ("21", "jdk", ["11", "17"])),
        ("Do threads of JDK 17 wait?", ("", "", [])),
        ("USE_TZ in Django 5.2.9 with Python 3.10?", ("", "", [])),
    ],
)
def test_a_version_that_is_not_there(question: str, missing: tuple[str, str, list[str]]) -> None:
    assert ProductVersions(FOLDERS.items()).find_missing(question) == missing


TEXT = "USE_TZ. Default: {}. A boolean that specifies if datetimes are aware by default or not."


def make_hit(n: int, path: str, text: str, section: str = "Settings") -> Hit:
    return Hit(n, f"c{n}", 1 / n, "hybrid", path, "v", path, path, "", section, n, text)


def test_the_newest_of_alike_passages_takes_the_best_place() -> None:
    hits = [
        make_hit(1, "django-3.2/settings.txt", TEXT.format("False")),
        make_hit(2, "README.md", "USE_TZ is a setting."),
        make_hit(3, "django-10.0/settings.txt", TEXT.format("True")),
        make_hit(4, "django-5.2/settings.txt", TEXT.format("True")),
        make_hit(5, "django-5.2/settings.txt", "SECRET_KEY is needed to sign the cookies."),
    ]
    assert [hit.chunk_id for hit in keep_newest("What is USE_TZ?", hits)] == ["c3", "c2", "c5"]


def test_passages_of_different_titles_or_words_are_no_versions() -> None:
    intro = "These notes cover the new features, and what you should know before you upgrade."
    hits = [
        make_hit(1, "releases/4.0.txt", intro, "Django 4.0 release notes"),
        make_hit(2, "releases/4.1.txt", intro, "Django 4.1 release notes"),
        make_hit(3, "log/4.0.md", "Uploads above the limit failed.", "Fixes"),
        make_hit(4, "log/4.1.md", "The clock was wrong in winter.", "Fixes"),
        make_hit(5, "report-2022.pdf", intro),
        make_hit(6, "report-2023.pdf", intro),
        make_hit(101, "10.0.0.1/sshd.md", intro),
        make_hit(102, "10.0.0.2/sshd.md", intro),
        make_hit(7, "minutes of 2024.01.15.md", intro),
        make_hit(8, "minutes of 2024.01.22.md", intro),
        make_hit(9, "lesson-2.1.md", intro),
        make_hit(10, "lesson-2.2.md", intro),
    ]
    assert keep_newest("What is USE_TZ?", hits) == hits


def test_the_newer_passage_may_be_in_another_file() -> None:
    hits = [
        make_hit(1, "pytest-6.2/fixture.rst", TEXT.format("False")),
        make_hit(2, "pytest-8.2/how-to/fixtures.md", TEXT.format("True")),
        make_hit(3, "room-3/contract.md", TEXT),
        make_hit(4, "room-4/contract.md", TEXT),
    ]
    kept = keep_newest("What is USE_TZ?", hits)
    assert [hit.chunk_id for hit in kept] == ["c2", "c3", "c4"]


def test_what_only_the_older_version_names_stays() -> None:
    hits = [
        make_hit(1, "django-3.2/settings.txt", f"{TEXT} See also USE_L10N and port 2201."),
        make_hit(2, "django-5.2/settings.txt", TEXT),
    ]
    assert keep_newest("What is USE_L10N?", hits) == hits
    assert keep_newest("What listens on port 2201?", hits) == hits
    assert keep_newest("What is USE_TZ?", hits) == hits[1:]


def test_a_deleted_version_leaves_no_other_out() -> None:
    versions = ProductVersions([("a", "kestrel-1.8/a.md"), ("b", "kestrel-2.0/a.md")])
    assert versions.find_others("Uploads in Kestrel 2.0?") == ("2.0", ("a",))
    assert versions.find_others("Uploads in Kestrel 2.0?", frozenset({"b"})) == ("2.0", ())


@pytest.mark.parametrize(
    ("question", "older"),
    [
        ("What is the default of USE_TZ?", False),
        ("How do I return a 404?", False),
        ("Is 1.5 GB enough for 20 users?", False),
        ("What is the default of USE_TZ in Django 3.2?", True),
        ("When was JSONField added?", True),
        ("哪个版本移除了 ugettext？", True),
        ("What is the default of USE_TZ on Python 3.11?", False),
        ("What is the default of USE_TZ with Python version 3.11?", False),
        ("What is USE_TZ if I use python version 3.11?", False),
        ("安卓8.0上 USE_TZ 是什么", False),
        ("使用安卓9.0版本时 USE_TZ 是什么", False),
        ("9.0版本更新了什么", True),
        ("We installed 3.2, what is USE_TZ?", True),
        ("Explain version 3.2's USE_TZ", True),
        ("我们用的是3.2版，USE_TZ 是什么", True),
        ("What is USE_TZ in 3.2?", True),
    ],
)
def test_questions_that_older_texts_may_answer(question: str, older: bool) -> None:
    assert asks_for_older(question, [make_hit(1, "django-3.2/settings.txt", TEXT)]) is older


def test_what_is_before_a_number_is_read_in_linear_time() -> None:
    hit = make_hit(1, "a.md", TEXT)
    assert not is_of_other(f"{'Ab' * 100_000} in 3.2", "3.2", [hit])
    assert is_of_other(f"{'a ' * 100_000}Python 3.2{'版' * 100_000}", "3.2", [hit])


def test_the_versions_of_a_very_long_question_are_found_in_one_pass() -> None:
    """Reading it from its beginning for each of its versions would take minutes."""
    hit = make_hit(1, "a.md", TEXT)
    assert not asks_for_older("2024年" * 60_000, [hit])
    assert find_asked_versions("5.2.1 " * 60_000 + "in 3.2")[-1] == Asked("3.2")


def test_a_version_may_have_more_digits_than_python_reads_as_an_integer() -> None:
    assert find_asked_versions("1" * 5_000) == ()
    assert find_asked_versions(f"v{'1' * 5_000}") == (Asked("1" * 5_000, marked=True),)


@pytest.fixture
def manuals(shelf: Any, tmp_path: Path) -> Library:
    """Two versions of a manual that differ in one value."""
    for version, limit in (("1.8", "ten"), ("2.0", "fifty")):
        folder = tmp_path / "docs" / f"kestrel-{version}"
        folder.mkdir(parents=True)
        (folder / "uploads.md").write_text(
            f"# Uploads\n\nUploads are checked. The limit of an upload is {limit} megabytes.\n",
            encoding="utf-8",
        )
    shelf.ingest(tmp_path / "docs")
    library: Library = shelf.library()
    return library


@pytest.mark.parametrize(
    ("question", "infer", "folders"),
    [
        ("What is the limit of an upload in Kestrel 1.8?", None, ["kestrel-1.8"]),
        ("What is the limit of an upload in Kestrel 2.0?", None, ["kestrel-2.0"]),
        ("Kestrel 2.0 的上传限制是多少", None, ["kestrel-2.0"]),
        ("What is the limit of an upload?", None, ["kestrel-2.0"]),  # the newest
        ("Does Kestrel 1.9 limit an upload?", None, ["kestrel-1.8", "kestrel-2.0"]),
        ("Which limit of an upload changed?", None, ["kestrel-1.8", "kestrel-2.0"]),
        ("Is the limit of an upload in 2.0 that of 1.8?", None, ["kestrel-1.8", "kestrel-2.0"]),
        (
            "What is the limit of an upload in Kestrel 1.8?",
            False,
            ["kestrel-1.8", "kestrel-2.0"],
        ),
    ],
)
def test_the_version_that_answers(
    manuals: Library, question: str, infer: bool | None, folders: list[str]
) -> None:
    result = answer(manuals, QueryRequest(question, infer=infer))
    assert sorted({Path(hit.source_uri).parent.name for hit in result.hits}) == folders
    left_out = [warning for warning in result.warnings if "of other versions left out" in warning]
    assert len(left_out) == (infer is None and len(folders) == 1 and "." in question)
    for warning in left_out:
        note = translate_filled(f"Note: {warning}", "zh")
        assert note.startswith("说明：只检索了版本 ") and "left out" not in note
    missing = "no document is of version 1.9 of `kestrel`, only of 1.8, 2.0"
    assert (missing in result.warnings) == ("1.9" in question)


def test_a_release_in_the_change_log_of_a_later_version_is_not_missing(
    shelf: Any, tmp_path: Path
) -> None:
    for version, log in (
        ("1.8", "## 1.8.0\n\n- Add gates.\n\n## 1.7.0\n\n- Fix doors."),
        ("2.0", ""),
    ):
        folder = tmp_path / "docs" / f"kestrel-{version}"
        folder.mkdir(parents=True)
        (folder / "changes.md").write_text(f"# Changes\n\n{log}\n", encoding="utf-8")
        (folder / "uploads.md").write_text(f"# Uploads\n\nOf {version}.\n", encoding="utf-8")
    shelf.ingest(tmp_path / "docs")
    library = shelf.library()
    for version, is_missing in (("1.7", False), ("1.6", True)):
        result = answer(library, QueryRequest(f"What changed in Kestrel {version}?"))
        warning = f"no document is of version {version} of `kestrel`, only of 1.8, 2.0"
        assert (warning in result.warnings) is is_missing


def test_a_caller_who_names_documents_or_passages_gets_them(manuals: Library) -> None:
    question = "What is the limit of an upload in Kestrel 2.0?"
    by_name = {"$or": [{"filename": "uploads.md"}, {"filename": "downloads.md"}]}
    for filters in ({"filename": "uploads.md"}, by_name):
        result = answer(manuals, QueryRequest(question, filters=filters))
        assert len(result.hits) == 2
    [old] = [hit.chunk_id for hit in result.hits if "1.8" in hit.source_uri]
    given = answer(manuals, QueryRequest(question, context_chunks=(old,)))
    assert [hit.chunk_id for hit in given.hits] == [old]
    assert "of other versions left out" not in " ".join(given.warnings)


def test_fewer_hits_are_the_first_of_more(shelf: Any, tmp_path: Path) -> None:
    for version, more in (("1.8", ""), ("2.0", " Longer texts come later in the order." * 3)):
        folder = tmp_path / "docs" / f"kestrel-{version}"
        folder.mkdir(parents=True)
        for topic in ("clouds", "doors", "engines", "fields", "gates", "halls", "inns", "jars"):
            text = f"# {topic}\n\nThe limit of an upload to the {topic} is ten megabytes.{more}\n"
            (folder / f"{topic}.md").write_text(text, encoding="utf-8")
    shelf.ingest(tmp_path / "docs")
    library = shelf.library()

    def ask(top_k: int) -> list[str]:
        question = QueryRequest("What is the limit of an upload?", top_k=top_k)
        return [hit.source_uri for hit in answer(library, question).hits]

    every = ask(20)
    assert len(every) == 8 and all("kestrel-2.0" in path for path in every)
    assert [ask(2), ask(5)] == [every[:2], every[:5]]
