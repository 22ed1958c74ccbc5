"""Libraries with several versions of one product: only the meant one answers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rag_platform.answering.engine import answer
from rag_platform.ir import Hit, QueryRequest
from rag_platform.retrieval.library import Library
from rag_platform.retrieval.product_versions import (
    ProductVersions,
    asks_for_older,
    find_asked_version,
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
    "readme": "README.md",
}


@pytest.mark.parametrize(
    ("question", "asked"),
    [
        ("What is the default of USE_TZ in Django 5.2?", ("5.2", "django")),
        ("In version 5.2, what does USE_TZ do?", ("5.2", "")),
        ("how do I log in with v3?", ("3", "")),
        ("Django5.2中如何配置数据库", ("5.2", "django")),
        ("5.x 版本如何安装", ("5", "")),
        ("Did it grow by 3.2% in 2024?", ("", "")),
        ("Upgrade from 3.2 to 5.2", ("", "")),
        ("install foo_v3 from 10.0.0.1-beta", ("", "")),
    ],
)
def test_the_version_of_a_question(question: str, asked: tuple[str, str]) -> None:
    assert find_asked_version(question) == asked


@pytest.mark.parametrize(
    ("question", "searched"),
    [
        ("What is the default of USE_TZ in Django 5.2?", "What is the default of USE_TZ in ?"),
        ("In version 5.2, what does USE_TZ do?", "In , what does USE_TZ do?"),
        ("What is new in Django 5.2?", "What is new in Django 5.2?"),
        ("Django 5.2 支持哪些数据库？", "Django 5.2 支持哪些数据库？"),
        ("Django 5.2", "Django 5.2"),
    ],
)
def test_a_version_is_not_searched_for_where_it_names_the_place(
    question: str, searched: str
) -> None:
    assert without_version(question) == searched


@pytest.mark.parametrize(
    ("version", "product", "others"),
    [
        ("5.2", "django", {"settings-3", "notes-3"}),
        ("5.2", "", {"settings-3", "notes-3"}),
        ("5.2.1", "django", {"settings-3", "notes-3"}),
        ("3.2", "django", {"settings-5", "notes-5"}),  # the notes on 3.2 stay
        ("3.2", "celery", set()),  # no Celery 3.2
        ("5.4", "celery", set()),  # no other version of Celery
        ("4.0", "django", set()),
    ],
)
def test_documents_of_other_versions(version: str, product: str, others: set[str]) -> None:
    assert set(ProductVersions(FOLDERS.items()).find_others(version, product)) == others


@pytest.mark.parametrize(
    ("paths", "version", "other"),
    [
        (("https://docs.example.org/v1/auth", "https://docs.example.org/v2/auth"), "2", 0),
        (("产品手册 V2.3.pdf", "产品手册 V3.0.pdf"), "3.0", 0),
        (("2.1-install.md", "2.2-configure.md"), "2.1", None),  # chapters
        (("report-2022.pdf", "report-2023.pdf"), "2023", None),
    ],
)
def test_versions_in_urls_and_file_names(
    paths: tuple[str, str], version: str, other: int | None
) -> None:
    found = ProductVersions((path, path) for path in paths)
    expected = () if other is None else (paths[other],)
    assert found.find_others(version, "") == expected


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
    assert [hit.chunk_id for hit in keep_newest(hits)] == ["c3", "c2", "c5"]


def test_passages_of_different_titles_or_words_are_no_versions() -> None:
    intro = "These notes cover the new features, and what you should know before you upgrade."
    hits = [
        make_hit(1, "releases/4.0.txt", intro, "Django 4.0 release notes"),
        make_hit(2, "releases/4.1.txt", intro, "Django 4.1 release notes"),
        make_hit(3, "log/4.0.md", "Uploads above the limit failed.", "Fixes"),
        make_hit(4, "log/4.1.md", "The clock was wrong in winter.", "Fixes"),
        make_hit(5, "report-2022.pdf", intro),
        make_hit(6, "report-2023.pdf", intro),
    ]
    assert keep_newest(hits) == hits


@pytest.mark.parametrize(
    ("question", "older"),
    [
        ("What is the default of USE_TZ?", False),
        ("How do I return a 404?", False),
        ("What is the default of USE_TZ in Django 3.2?", True),
        ("When was JSONField added?", True),
        ("哪个版本移除了 ugettext？", True),
    ],
)
def test_questions_that_older_texts_may_answer(question: str, older: bool) -> None:
    assert asks_for_older(question) is older


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
    assert len(left_out) == (infer is None and question.count(".") == 1)


def test_a_caller_who_names_documents_gets_them(manuals: Library) -> None:
    result = answer(
        manuals,
        QueryRequest(
            "What is the limit of an upload in Kestrel 2.0?",
            filters={"filename": "uploads.md"},
        ),
    )
    assert len(result.hits) == 2
