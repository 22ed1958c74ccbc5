from __future__ import annotations

import json
from pathlib import Path

import pytest

from rag_platform.errors import InputError, NotFoundError
from rag_platform.evaluation.cases import Dataset
from rag_platform.evaluation.datasets.beir import Beir, is_page_set, is_retrieval_set
from rag_platform.evaluation.sources import open_dataset


def lines(path: Path, rows: list[dict[str, str]]) -> None:
    path.write_text(
        "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8"
    )


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    target = tmp_path / "small"
    target.mkdir()
    lines(
        target / "corpus.jsonl",
        [
            {"_id": "d1", "title": "Gateway", "text": "Gateway listens on port 8080."},
            {"_id": "d2", "title": "", "text": "年假十五天。"},
            {"_id": "d3", "title": "", "text": "  "},
        ],
    )
    lines(
        target / "queries.jsonl",
        [
            {"_id": "q1", "text": "Which port?"},
            {"_id": "q2", "text": "几天年假？"},
            {"_id": "q3", "text": "?"},
        ],
    )
    (target / "qrels.tsv").write_text(
        "query-id\tcorpus-id\tscore\nq1\td1\t2\nq1\td2\t0\nq2\td2\t1\nq3\td1\t0\n", encoding="utf-8"
    )
    return target


def documents(data: Dataset) -> dict[str, str]:
    assert data.load_documents is not None
    return {item.name: item.text for item in data.load_documents()}


def test_a_set_holds_the_questions_that_something_answers(folder: Path) -> None:
    data = Beir().load(folder)
    assert is_retrieval_set(folder) and data.dataset_id == "small"
    assert [(case.case_id, case.query, case.relevance_doc) for case in data.cases] == [
        ("q1", "Which port?", {"0": 2, "1": 0}),
        ("q2", "几天年假？", {"1": 1}),
    ]
    # a title that begins a sentence stays there, and the empty text is left out
    assert documents(data) == {
        "0.md": "# Gateway\n\nGateway listens on port 8080.\n",
        "1.md": "年假十五天。\n",
    }


def test_grades_may_lie_where_archives_have_them(folder: Path) -> None:
    (folder / "qrels").mkdir()
    (folder / "qrels.tsv").rename(folder / "qrels" / "test.tsv")
    assert is_retrieval_set(folder) and len(Beir().load(folder).cases) == 2


def test_questions_may_be_asked_of_another_folders_texts(folder: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    lines(
        other / "corpus.jsonl",
        [{"_id": "d1", "text": "网关"}, {"_id": "d2", "text": "fifteen days"}],
    )
    data = Beir(str(other)).load(folder)
    assert data.dataset_id == "small>other"
    assert documents(data) == {"0.md": "网关\n", "1.md": "fifteen days\n"}


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("qrels.tsv", "q1\td9\t1\n", "'d9'"),
        ("qrels.tsv", "q9\td1\t1\n", "'q9'"),
        ("qrels.tsv", "query-id\tcorpus-id\tscore\nq1 d1 1\n", "line 2"),
        ("corpus.jsonl", "{\n", "line 1 is not JSON"),
        ("queries.jsonl", '{"_id": "q1"}\n', "text"),
    ],
)
def test_what_cannot_be_read_is_named(folder: Path, name: str, text: str, said: str) -> None:
    (folder / name).write_text(text, encoding="utf-8")
    with pytest.raises(InputError, match=said):
        Beir().load(folder)


def test_a_missing_file_is_named(folder: Path) -> None:
    (folder / "queries.jsonl").unlink()
    with pytest.raises(NotFoundError, match=r"queries\.jsonl"):
        Beir().load(folder)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        (
            "set.jsonl",
            '{"case_id": "a", "query": "端口\u2028号？", "expected_files": ["a.md"]}\r\n',
        ),
        ("set.yaml", "- {case_id: a, query: 端口号？, expected_files: a.md}\r\n"),
        (
            "set.json",
            '{"documents": [{"doc_id": "a", "text": "端口"}], "queries":'
            ' [{"query_id": "a", "query": "端口号？", "expected_doc_ids": ["a"]}]}',
        ),
    ],
)
def test_a_file_as_other_programs_save_it_is_read_or_refused_with_what_to_do(
    tmp_path: Path, name: str, text: str
) -> None:
    path = tmp_path / name
    path.write_bytes(text.encode("utf-8-sig"))
    assert [case.case_id for case in open_dataset(str(path)).cases] == ["a"]
    path.write_bytes(text.replace("\u2028", "").encode("gbk"))
    with pytest.raises(InputError, match=rf"^{name} is not UTF-8 .* save it") as raised:
        open_dataset(str(path))
    assert raised.value.code == "invalid_dataset"


def test_questions_about_pages(tmp_path: Path) -> None:
    (tmp_path / "A_2022.pdf").write_bytes(b"%PDF-1.4")
    lines(
        tmp_path / "questions.jsonl",
        [{"id": "1", "question": "How much?"}, {"id": "2", "question": "Unanswered"}],
    )
    (tmp_path / "qrels_pages.tsv").write_text(
        "query-id\tcorpus-id\tscore\n1\tA_2022#p3\t1\n", encoding="utf-8"
    )
    data = Beir().load(tmp_path)
    assert is_page_set(tmp_path)
    assert [(case.case_id, case.relevance_doc) for case in data.cases] == [("1", {"A_2022#p3": 1})]
    assert documents(data) == {"A_2022.pdf": ""}
    (tmp_path / "A_2022.pdf").unlink()
    with pytest.raises(InputError, match="A_2022#p3"):
        Beir().load(tmp_path)
