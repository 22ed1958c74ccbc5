"""Retrieval datasets: texts, questions and relevance grades in BEIR's layout, and questions about
the pages of PDF files.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

from rag_platform.errors import InputError, NotFoundError
from rag_platform.evaluation.cases import Dataset, EvalCase, SuppliedDocument
from rag_platform.ir import Json
from rag_platform.traits import Traits

FILES = ("corpus.jsonl", "queries.jsonl", "qrels.tsv")


@dataclass(frozen=True, slots=True)
class Passage:
    """A text of a set; `title` may be empty."""

    passage_id: str
    title: str
    text: str


@dataclass(frozen=True, slots=True)
class RetrievalSet:
    """A set in the layout of BEIR (Thakur et al., NeurIPS 2021): `qrels[query_id][passage_id]` is
    the grade, 0 if known to be irrelevant. Only `queries` with a grade above 0 are included.
    """

    name: str
    passages: tuple[Passage, ...]
    queries: Mapping[str, str]
    qrels: Mapping[str, Mapping[str, int]] = field(repr=False)


def is_retrieval_set(folder: Path) -> bool:
    """True for a folder with the three files of a set."""
    return all(_file(folder, name).is_file() for name in FILES)


def read_retrieval_set(folder: Path, *, corpus: Path | None = None) -> RetrievalSet:
    """The set in a folder; with `corpus`, its texts come from that folder and have the same ids
    (for questions in another language).

    The qrels may also be in `qrels/test.tsv`, as in BEIR's own archives. Raises NotFoundError for a
    missing file, InputError for an unreadable line and for grades of unknown texts or questions.
    """
    passages = tuple(
        Passage(str(row["_id"]), str(row.get("title") or ""), str(row.get("text") or ""))
        for row in _rows(_file(corpus or folder, FILES[0]), ("_id", "text"))
    )
    texts = {
        str(row["_id"]): str(row["text"]) for row in _rows(_file(folder, FILES[1]), ("_id", "text"))
    }
    known = {passage.passage_id for passage in passages}
    qrels = _qrels(_file(folder, FILES[2]))
    if stray := sorted({passage_id for grades in qrels.values() for passage_id in grades} - known):
        raise InputError(
            f"{folder.name}/{FILES[2]} names {len(stray)} texts that are not in the corpus, first"
            f" {stray[0]!r}"
        )
    if unasked := sorted(set(qrels) - set(texts)):
        raise InputError(
            f"{folder.name}/{FILES[2]} grades {len(unasked)} questions that do not exist, first"
            f" {unasked[0]!r}"
        )
    name = folder.name if corpus is None else f"{folder.name}>{corpus.name}"
    return RetrievalSet(name, passages, *_answerable(texts, qrels))


def _answerable(
    texts: Mapping[str, str], qrels: Mapping[str, Mapping[str, int]]
) -> tuple[dict[str, str], dict[str, Mapping[str, int]]]:
    """The questions with a grade above 0, and their grades."""
    graded = {query: grades for query, grades in qrels.items() if max(grades.values()) > 0}
    queries = {query: text for query, text in texts.items() if query in graded}
    return queries, {query: graded[query] for query in queries}


def _file(folder: Path, name: str) -> Path:
    direct = folder / name
    return folder / "qrels" / "test.tsv" if name == FILES[2] and not direct.is_file() else direct


def _require(path: Path) -> None:
    if not path.is_file():
        raise NotFoundError(
            f"{path.parent.name} has no {path.name}; a set holds {', '.join(FILES)}",
            code="no_dataset",
        )


def _rows(path: Path, needed: tuple[str, ...]) -> Iterator[Json]:
    _require(path)
    with path.open(encoding="utf-8-sig") as lines:
        for number, line in enumerate(lines, 1):
            if not line.strip():
                continue
            try:
                row = json.loads(line)
            except ValueError as error:
                raise InputError(
                    f"{path.parent.name}/{path.name}, line {number} is not JSON: {error}"
                ) from error
            if not isinstance(row, dict) or (
                missing := [name for name in needed if name not in row]
            ):
                raise InputError(
                    f"{path.parent.name}/{path.name}, line {number} lacks"
                    f" {needed if not isinstance(row, dict) else missing}"
                )
            yield row


def _qrels(path: Path) -> dict[str, dict[str, int]]:
    _require(path)
    grades: dict[str, dict[str, int]] = {}
    with path.open(encoding="utf-8-sig", newline="") as lines:
        for number, row in enumerate(csv.reader(lines, delimiter="\t", quoting=csv.QUOTE_NONE), 1):
            if not row or (number == 1 and not row[-1].lstrip("-").isdigit()):  # the line of names
                continue
            # query-id, corpus-id, score; TREC's own files have an unused column in between
            if len(row) not in (3, 4) or not row[-1].lstrip("-").isdigit():
                raise InputError(
                    f"{path.parent.name}/{path.name}, line {number}: {row!r} is not query-id,"
                    " corpus-id, score"
                )
            grades.setdefault(row[0], {})[row[-2]] = int(row[-1])
    return grades


# --- documents of a set -------------------------------------------------------------------------


def name_documents(data: RetrievalSet) -> dict[str, Passage]:
    """Document stem (a number) to passage, without empty passages."""
    width = len(str(len(data.passages)))
    return {
        f"{number:0{width}d}": passage
        for number, passage in enumerate(data.passages)
        if passage.text.strip() or passage.title.strip()
    }


def as_markdown(passage: Passage) -> str:
    """The passage under its title; a title that the text begins with is not repeated."""
    title, text = " ".join(passage.title.split()), passage.text.strip()
    if title and text.startswith(title):
        text = text[len(title) :].strip()
    return (f"# {title}\n\n" if title else "") + f"{text}\n"


@dataclass(frozen=True)
class Beir:
    """A folder in the layout of BEIR, or with PDF files and questions about their pages; its
    documents become a namespace of their own. A graded text is named by its document's stem.
    """

    corpus: str = ""  # folder with the texts instead, for questions in another language

    VERSION: ClassVar[str] = "1"
    traits: ClassVar[Traits] = Traits()

    def load(self, source: Path) -> Dataset:
        """Raises NotFoundError for a missing file, InputError for an unreadable line."""
        if is_page_set(source):
            return _make_page_dataset(read_page_set(source))
        data = read_retrieval_set(source, corpus=Path(self.corpus) if self.corpus else None)
        names = name_documents(data)
        stems = {passage.passage_id: stem for stem, passage in names.items()}

        def documents() -> Iterator[SuppliedDocument]:
            for stem, passage in names.items():
                yield SuppliedDocument(name=f"{stem}.md", text=as_markdown(passage))

        cases = tuple(
            EvalCase(
                case_id=query_id,
                query=text,
                relevance_doc={
                    # an empty text has no document, and its id might be the stem of another one
                    stems.get(passage_id, f"{passage_id} (empty)"): grade
                    for passage_id, grade in data.qrels[query_id].items()
                },
            )
            for query_id, text in data.queries.items()
        )
        return Dataset(
            dataset_id=data.name, version=self.VERSION, cases=cases, load_documents=documents
        )


def _make_page_dataset(data: PageSet) -> Dataset:
    cases = tuple(
        EvalCase(case_id=query_id, query=text, relevance_doc=data.qrels[query_id])
        for query_id, text in data.queries.items()
    )

    def documents() -> Iterator[SuppliedDocument]:
        for path in data.files:
            yield SuppliedDocument(name=path.name, path=path)

    return Dataset(
        dataset_id=data.name, version=Beir.VERSION, cases=cases, load_documents=documents
    )


# --- questions about pages ----------------------------------------------------------------------

_PAGE_FILES = ("questions.jsonl", "qrels_pages.tsv")


@dataclass(frozen=True, slots=True)
class PageSet:
    """Questions about PDF files; `qrels` grade the pages with the evidence, named `stem#pN` with N
    from 1.
    """

    name: str
    files: tuple[Path, ...]
    queries: Mapping[str, str]
    qrels: Mapping[str, Mapping[str, int]] = field(repr=False)


def is_page_set(folder: Path) -> bool:
    """True for a folder with questions about pages."""
    return all((folder / name).is_file() for name in _PAGE_FILES)


def read_page_set(folder: Path) -> PageSet:
    """The page set in a folder. Raises NotFoundError for a missing file, InputError for an
    unreadable line.
    """
    questions = {
        str(row["id"]): str(row["question"])
        for row in _rows(folder / _PAGE_FILES[0], ("id", "question"))
    }
    qrels = _qrels(folder / _PAGE_FILES[1])
    files = tuple(sorted(folder.glob("*.pdf")))
    stems = {path.stem for path in files}
    pages = {page for grades in qrels.values() for page in grades}
    if stray := sorted(page for page in pages if page.partition("#p")[0] not in stems):
        raise InputError(
            f"{folder.name}/{_PAGE_FILES[1]} names pages of {len(stray)} files that are not there,"
            f" first {stray[0]!r}"
        )
    return PageSet(folder.name, files, *_answerable(questions, qrels))
