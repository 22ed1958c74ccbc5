"""Cases and where they come from: what may stand in them, and what is refused with its place."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rag_platform.errors import InputError, NotFoundError
from rag_platform.evaluation.cases import ExpectedText, SuppliedDocument, case_data, parse_case
from rag_platform.evaluation.datasets.files import JsonLines, KnowledgeJson, Yaml
from rag_platform.evaluation.sources import open_dataset


def test_a_case_is_read_and_written() -> None:
    data = {
        "case_id": "c1",
        "query": "which port?",
        "tags": ["en"],
        "expected_text": [{"text": "port 8080", "file": "ports.md"}],
        "match": "any",
        "should_refuse": False,
    }
    case = parse_case(data, "here")
    assert case.expected_text == (ExpectedText(text="port 8080", file="ports.md"),)
    assert case.unit == "chunk"
    assert case_data(case) == data
    assert parse_case({**data, "expected_text": "port 8080"}, "here").expected_text == (
        ExpectedText(text="port 8080"),
    )


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"querry": "x"}, "unknown field 'querry'"),
        ({"query": " "}, "query: a text that is not empty"),
        ({"expected_files": []}, "expects nothing"),
        ({"expected_files": [1]}, "expected_files.0: Input should be a valid string, not 1"),
        (
            {"relevance_doc": {"a": -1}},
            "relevance_doc.a: Input should be greater than",
        ),
        ({"should_refuse": "yes"}, "should_refuse: Input should be a valid boolean, not 'yes'"),
        ({"match": "most"}, "match: Input should be 'any' or 'all'"),
        ({"expected_text": [{"text": " "}]}, "a text that is not empty"),
        ({"expected_text": [{"txt": "a"}]}, "unknown field 'txt'; known: text, file"),
        ({"doc_scope": "api"}, "doc_scope: Input should be a valid dictionary"),
    ],
)
def test_what_is_wrong_with_a_case_is_named(change: dict[str, object], message: str) -> None:
    with pytest.raises(InputError, match=message) as raised:
        parse_case({"case_id": "c", "query": "q", "expected_files": ["a.md"]} | change, "set, 3")
    assert raised.value.message.startswith("set, 3") and raised.value.code == "invalid_dataset"


def test_json_lines_name_the_line(tmp_path: Path) -> None:
    path = tmp_path / "golden.jsonl"
    good = json.dumps({"case_id": "a", "query": "q", "expected_files": ["a.md"]})
    path.write_text(f"{good}\n\n{{\n", encoding="utf-8")
    with pytest.raises(InputError, match=r"golden\.jsonl, line 3 is not JSON"):
        JsonLines().load(path)
    path.write_text(f"{good}\n{good}\n", encoding="utf-8")
    with pytest.raises(InputError, match="two cases are called 'a'"):
        JsonLines().load(path)
    path.write_text(f"{good}\n", encoding="utf-8")
    assert (data := JsonLines().load(path)).dataset_id == "golden" and len(data.cases) == 1
    path.write_text("\n", encoding="utf-8")
    with pytest.raises(InputError, match="holds no cases"):
        JsonLines().load(path)


def test_yaml_is_a_list_or_an_object(tmp_path: Path) -> None:
    path = tmp_path / "small.yaml"
    path.write_text("- {case_id: a, query: q, expected_files: a.md}\n", encoding="utf-8")
    assert Yaml().load(path).cases[0].expected_files == ("a.md",)
    path.write_text(
        "dataset_id: mine\nversion: 2\nk_values: [1, 5]\n"
        "cases: [{case_id: a, query: q, should_refuse: true}]\n",
        encoding="utf-8",
    )
    found = Yaml().load(path)
    assert (found.dataset_id, found.version, found.k_values) == ("mine", "2", (1, 5))
    path.write_text("cases: [{case_id: a, query: q}]\nk: 3\n", encoding="utf-8")
    with pytest.raises(InputError, match="unknown field 'k'"):
        Yaml().load(path)
    path.write_text("- [a\n", encoding="utf-8")
    with pytest.raises(InputError, match="not YAML"):
        Yaml().load(path)


KNOWLEDGE = {
    "evalset_id": "kb_eval_v1",
    "documents": [{"doc_id": "d1", "source_id": "kb", "text": "alpha beta", "title": "文档1"}],
    "queries": [
        {
            "query_id": "q1",
            "query": "alpha",
            "expected_doc_ids": ["d1"],
            "expected_chunk_ids": ["d1:0"],
            "relevance_doc": {"d1": 2},
        }
    ],
    "k_values": [1, 3, 5, 10],
}


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("# Pumps\n\nNine litres.", "# Pumps\n\nNine litres.\n"),
        ("Pumps\nNine litres.", "# Pumps\n\nNine litres.\n"),
        ("Pumpsets move nine litres.", "# Pumps\n\nPumpsets move nine litres.\n"),
        ("# Pumps at work\n\nNine.", "# Pumps\n\n# Pumps at work\n\nNine.\n"),
        ("Pumps move nine litres.", "# Pumps\n\nPumps move nine litres.\n"),
        ("Pumps", "# Pumps\n\n\n"),
    ],
)
def test_a_title_that_a_text_begins_with_is_not_repeated(text: str, shown: str) -> None:
    """Else the chunk `d1:0` of a knowledge set would be the title alone."""
    assert SuppliedDocument.titled("d1.md", "Pumps", text).text == shown


def test_a_title_that_is_the_first_sentence_is_not_repeated() -> None:
    made = SuppliedDocument.titled("d1.md", "Of pumps .", "Of pumps . nine litres .")
    assert made.text == "# Of pumps .\n\nnine litres .\n"


def test_a_text_without_a_title_keeps_its_first_line() -> None:
    assert SuppliedDocument.titled("d1.md", "", "###\nNine litres.").text == "###\nNine litres.\n"


def test_a_knowledge_set_brings_its_documents(tmp_path: Path) -> None:
    path = tmp_path / "kb.json"
    path.write_text(json.dumps(KNOWLEDGE), encoding="utf-8")
    found = KnowledgeJson().load(path)
    assert found.dataset_id == "kb_eval_v1" and found.k_values == (1, 3, 5, 10)
    assert found.load_documents is not None
    (document,) = found.load_documents()
    assert (document.name, document.text) == ("d1.md", "# 文档1\n\nalpha beta\n")
    (case,) = found.cases
    assert case.expected_chunk_ids == ("d1:0",) and case.relevance_doc == {"d1": 2}


def test_a_knowledge_set_expects_only_what_it_holds(tmp_path: Path) -> None:
    path = tmp_path / "kb.json"
    query = {**KNOWLEDGE["queries"][0], "expected_doc_ids": ["d2"]}  # type: ignore[index]
    path.write_text(json.dumps({**KNOWLEDGE, "queries": [query]}), encoding="utf-8")
    with pytest.raises(InputError, match="expects document 'd2'"):
        KnowledgeJson().load(path)


def test_a_dataset_is_found_by_name_or_path(tmp_path: Path, config_folder: Path) -> None:
    (config_folder / "datasets").mkdir()
    path = config_folder / "datasets" / "golden.yaml"
    path.write_text("- {case_id: a, query: q, should_refuse: true}\n", encoding="utf-8")
    assert open_dataset("golden") == open_dataset(str(path))
    assert open_dataset("golden") == open_dataset("datasets/golden.yaml")  # in whatever folder
    with pytest.raises(NotFoundError, match="config/datasets: golden"):
        open_dataset("silver")
    with pytest.raises(InputError, match="is no dataset"):
        open_dataset(str(tmp_path))
    (tmp_path / "a.txt").write_text("x", encoding="utf-8")
    with pytest.raises(InputError, match=r"\.jsonl"):
        open_dataset(str(tmp_path / "a.txt"))


def test_a_fingerprint_changes_with_a_case_only() -> None:
    one = {"case_id": "a", "query": "q", "expected_files": ["a.md"]}
    from rag_platform.evaluation.cases import Dataset

    def of(data: dict[str, object]) -> str:
        return Dataset(dataset_id="d", version="1", cases=(parse_case(data, "x"),)).fingerprint

    assert of(one) == of(dict(reversed(one.items()))) != of({**one, "query": "r"})


SHORT = """\
dataset_id: rag_eval_small
version: 2
k_values: [1, 5]
cases:
  - query: Which port does the gateway listen on?
    tags: [ports, en]
    expected: {doc_id: ports-0a1b2c3d4e, keyword: port 8080}
  - query: 员工有多少天年假？
    tags: [hr, zh]
    expected: {tag: hr}
  - case_id: by-hand
    query: What are the limits?
    expected: {keyword: [50 MB, code 413]}
"""


def test_yaml_cases_may_name_a_document_a_tag_or_a_keyword(tmp_path: Path) -> None:
    path = tmp_path / "rag_eval_small.yaml"
    path.write_text(SHORT, encoding="utf-8")
    dataset = open_dataset(str(path))
    assert [case.case_id for case in dataset.cases] == [
        "rag_eval_small-1",
        "rag_eval_small-2",
        "by-hand",
    ]
    first, second, third = dataset.cases
    assert first.expected_files == ("ports-0a1b2c3d4e",)
    assert first.expected_text == (ExpectedText(text="port 8080"),)
    assert second.expected_tags == ("hr",) and second.unit == "document"
    assert [item.text for item in third.expected_text] == ["50 MB", "code 413"]
    assert (dataset.version, dataset.k_values) == ("2", (1, 5))


@pytest.mark.parametrize(
    ("expected", "message"),
    [
        ("{docid: a}", "line 1: `expected` is an object with doc_id, tag, keyword"),
        ("[a]", "line 1: `expected` is an object with doc_id, tag, keyword"),
        ("{doc_id: a}, expected_files: [b]", "say the same thing"),
        ("{}", "expects nothing"),
    ],
)
def test_a_short_form_that_says_nothing_is_named(
    tmp_path: Path, expected: str, message: str
) -> None:
    path = tmp_path / "small.yaml"
    path.write_text(f"- {{query: q, expected: {expected}}}\n", encoding="utf-8")
    with pytest.raises(InputError, match=message) as raised:
        open_dataset(str(path))
    assert raised.value.code == "invalid_dataset"
