"""Synonyms: which names a question holds, and what they bring."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from rag_platform.config.query import QueryConfig
from rag_platform.config.settings import Limits
from rag_platform.errors import ConfigError
from rag_platform.query.analysis import prepare
from rag_platform.query.synonyms import load_vocabulary

CONFIG = QueryConfig(
    synonyms={
        "k8s": ("Kubernetes", "K 8s"),
        "知识库": ("文档库", "KB"),
        "C++": ("cpp",),
        "北京大学": ("北大",),
        "北京": ("Beijing",),
        "time-out": ("deadline",),
    }
)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("RAG_CONFIG", str(tmp_path))
    return tmp_path


@pytest.mark.parametrize(
    ("text", "brought"),
    [
        ("How to deploy K8S?", ["Kubernetes", "K 8s"]),
        ("kubernetes limits", ["k8s"]),  # an alias brings its name
        ("企业知识库怎么建", ["文档库", "KB"]),  # Chinese names stand inside longer runs
        ("文档库", ["知识库"]),
        ("the KB", ["知识库"]),
        ("ＫＢ", ["知识库"]),  # full width
        ("c++ templates", ["cpp"]),
        ("北京大学在哪", ["北大"]),  # the longer name counts
        ("北京在哪", ["Beijing"]),
        ("the time-out of a call", ["deadline"]),
        ("k8s with Kubernetes", ["K 8s"]),  # what is said is not brought
        ("k8sx and mykb", []),  # whole words
        ("nothing", []),
        ("", []),
    ],
)
def test_a_name_brings_its_aliases(text: str, brought: list[str]) -> None:
    assert load_vocabulary(CONFIG).expansions(text, 0.4, 12) == tuple(
        (name, 0.4) for name in brought
    )


def test_the_number_is_limited_and_no_weight_means_none() -> None:
    known = load_vocabulary(CONFIG)
    assert known.expansions("k8s 知识库", 0.4, 3) == (
        ("Kubernetes", 0.4),
        ("K 8s", 0.4),
        ("文档库", 0.4),
    )
    assert known.expansions("k8s", 0.4, 0) == known.expansions("k8s", 0.0, 12) == ()


def test_a_file_adds_to_the_inline_ones_and_is_read_again_when_it_changed(folder: Path) -> None:
    file = folder / "synonyms.yaml"
    file.write_text("报销: [费用报销, expense claim]\nPTO: annual leave\n", encoding="utf-8")
    config = CONFIG.model_copy(update={"synonyms_path": "synonyms.yaml"})
    first = prepare("报销 PTO k8s", Limits(), config=config)
    assert [name for name, _ in first.expansions] == [
        "费用报销",
        "expense claim",
        "annual leave",
        "Kubernetes",
        "K 8s",
    ]
    file.write_text("报销: [开销]\n", encoding="utf-8")
    os.utime(file, ns=(1, 1))
    second = prepare("报销 PTO", Limits(), config=config)
    assert [name for name, _ in second.expansions] == ["开销"]
    assert first.query_profile_id != second.query_profile_id


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("- a\n- b\n", "must hold a mapping"),
        ("a: {b: c}\n", "list of names"),
        ("on: [x]\n", "in quotes"),
        ("a: [1]\n", "in quotes"),
        ("a: [", "this is no YAML"),
        ("a: ['']\n", "in quotes"),
    ],
)
def test_a_wrong_file_is_named(folder: Path, text: str, says: str) -> None:
    (folder / "bad.yaml").write_text(text, encoding="utf-8")
    with pytest.raises(ConfigError, match=r"bad\.yaml") as raised:
        load_vocabulary(QueryConfig(synonyms_path="bad.yaml"))
    assert says in raised.value.message


def test_an_absent_file_is_named_and_an_empty_one_is_none(folder: Path) -> None:
    with pytest.raises(ConfigError, match=r"query\.synonyms_path"):
        prepare("x", Limits(), config=QueryConfig(synonyms_path="absent.yaml"))
    (folder / "empty.yaml").write_text("# nothing yet\n", encoding="utf-8")
    without = load_vocabulary(QueryConfig()).names
    assert load_vocabulary(QueryConfig(synonyms_path="empty.yaml")).names == without


def test_a_ratio_brings_what_it_is_computed_of_and_nothing_brings_a_ratio() -> None:
    known = load_vocabulary(CONFIG)
    assert known.expansions("Has the Quick Ratio improved? 毛利", 0.4, 2) == (
        ("total current assets", 1.0),
        ("total current liabilities", 1.0),
    )
    assert known.expansions("net sales and inventories", 0.4, 12) == ()
