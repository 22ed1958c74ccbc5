"""Retrieval datasets: texts, questions and relevance grades in BEIR's layout, and questions about
the pages of PDF files.
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, NamedTuple

from rag_platform.errors import InputError, NotFoundError
from rag_platform.evaluation.cases import Dataset, EvalCase, SuppliedDocument, read_json_lines
from rag_platform.ir import Json

_FILES = ("corpus.jsonl", "queries.jsonl", "qrels.tsv")
_PAGE_FILES = ("questions.jsonl", "qrels_pages.tsv")


def is_retrieval_set(folder: Path) -> bool:
    """True for a folder with the three files of a set in BEIR's layout."""
    return all(_file(folder, name).is_file() for name in _FILES)


def is_page_set(folder: Path) -> bool:
    """True for a folder with questions about pages."""
    return all((folder / name).is_file() for name in _PAGE_FILES)


@dataclass(frozen=True)
class Beir:
    """A folder in the layout of BEIR (Thakur et al., NeurIPS 2021), or with PDF files and questions
    about their pages; its documents become a namespace of their own. A graded text is named by its
    document's stem. Only questions with a grade above 0 become cases; grade 0 is known to be
    irrelevant.
    """

    corpus: str = ""  # folder with the texts instead, for questions in another language

    VERSION: ClassVar[str] = "1"

    def load(self, source: Path) -> Dataset:
        """Raises NotFoundError for a missing file, InputError for an unreadable line and for grades
        of unknown texts, pages or questions.
        """
        if is_page_set(source):
            found = _read_pages(source)
        else:
            found = _read_texts(source, Path(self.corpus) if self.corpus else None)
        return Dataset(
            dataset_id=found.name,
            version=self.VERSION,
            cases=tuple(
                EvalCase(case_id=query, query=text, relevance_doc=found.grades[query])
                for query, text in found.queries.items()
                if max(found.grades.get(query, {}).values(), default=0) > 0
            ),
            load_documents=found.documents,
        )


class _QuestionSet(NamedTuple):
    """Questions and grades by the question's id; grades by the name of a document or page."""

    name: str
    queries: Mapping[str, str]
    grades: Mapping[str, Mapping[str, int]]
    documents: Callable[[], Iterator[SuppliedDocument]]


def _read_texts(folder: Path, corpus: Path | None) -> _QuestionSet:
    """The set in a folder; with `corpus`, its texts come from that folder and have the same ids.

    The qrels may also be in `qrels/test.tsv`, as in BEIR's own archives. A document's stem is the
    number of its text; an empty text has no document.
    """
    rows = list(_rows(_file(corpus or folder, _FILES[0]), ("_id", "text")))
    queries = {
        str(row["_id"]): str(row["text"])
        for row in _rows(_file(folder, _FILES[1]), ("_id", "text"))
    }
    qrels = _qrels(_file(folder, _FILES[2]))
    known = {str(row["_id"]) for row in rows}
    if stray := sorted({text_id for grades in qrels.values() for text_id in grades} - known):
        raise InputError(
            f"{folder.name}/{_FILES[2]} names {len(stray)} texts that are not in the corpus, first"
            f" {stray[0]!r}"
        )
    if unasked := sorted(set(qrels) - set(queries)):
        raise InputError(
            f"{folder.name}/{_FILES[2]} grades {len(unasked)} questions that do not exist, first"
            f" {unasked[0]!r}"
        )
    width = len(str(len(rows)))
    texts = {
        f"{number:0{width}d}": row
        for number, row in enumerate(rows)
        if str(row["text"] or "").strip() or str(row.get("title") or "").strip()
    }
    stems = {str(rows[int(stem)]["_id"]): stem for stem in texts}
    return _QuestionSet(
        folder.name if corpus is None else f"{folder.name}>{corpus.name}",
        queries,
        {
            # an empty text has no document, and its id might be the stem of another one
            query: {stems.get(name, f"{name} (empty)"): grade for name, grade in grades.items()}
            for query, grades in qrels.items()
        },
        lambda: (
            SuppliedDocument.titled(
                f"{stem}.md", str(row.get("title") or ""), str(row["text"] or "")
            )
            for stem, row in texts.items()
        ),
    )


def _read_pages(folder: Path) -> _QuestionSet:
    """The questions about PDF files in a folder; the pages with the evidence are named `stem#pN`,
    with N from 1.
    """
    queries = {
        str(row["id"]): str(row["question"])
        for row in _rows(folder / _PAGE_FILES[0], ("id", "question"))
    }
    qrels = _qrels(folder / _PAGE_FILES[1])
    files = sorted(folder.glob("*.pdf"))
    stems = {path.stem for path in files}
    pages = {page for grades in qrels.values() for page in grades}
    if stray := sorted(page for page in pages if page.partition("#p")[0] not in stems):
        raise InputError(
            f"{folder.name}/{_PAGE_FILES[1]} names pages of {len(stray)} files that are not there,"
            f" first {stray[0]!r}"
        )
    return _QuestionSet(
        folder.name,
        queries,
        qrels,
        lambda: (SuppliedDocument(name=path.name, path=path) for path in files),
    )


def _file(folder: Path, name: str) -> Path:
    direct = folder / name
    return folder / "qrels" / "test.tsv" if name == _FILES[2] and not direct.is_file() else direct


def _require(path: Path) -> None:
    if not path.is_file():
        raise NotFoundError(
            f"{path.parent.name} has no {path.name}; a set holds {', '.join(_FILES)}",
            code="no_dataset",
        )


def _rows(path: Path, needed: tuple[str, ...]) -> Iterator[Json]:
    _require(path)
    with path.open(encoding="utf-8-sig") as lines:
        for row, where in read_json_lines(lines, f"{path.parent.name}/{path.name}"):
            has = row if isinstance(row, dict) else ()
            if missing := [name for name in needed if name not in has]:
                raise InputError(f"the row at {where} lacks {missing}")
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
