"""Resolves a case's expectations in a release: labels, and the chunks or documents that satisfy
each. Compares expected texts with those of chunks and answers.
"""

from __future__ import annotations

import re
import unicodedata
from collections import defaultdict
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

from rag_platform.errors import InputError
from rag_platform.evaluation.cases import Dataset, EvalCase, ExpectedText
from rag_platform.indexes.catalog import CatalogReader
from rag_platform.indexes.catalog_tables import CATALOG
from rag_platform.ir import Chunk, Hit
from rag_platform.releases.release_store import OpenRelease
from rag_platform.retrieval.hydration import read_pictures

_INDEXED = re.compile(r"(.+):(\d+)")  # chunk `idx` of a document that comes with the dataset
_PAGE = re.compile(r"(.+)#p(\d+)")  # a page of a document
_MARKS = re.compile(r"[*_`\\]")
_SPACE = re.compile(r"\s+")


@dataclass(frozen=True, slots=True)
class StaleLabel:
    """A label that nothing in the release satisfies, and why."""

    label: str
    reason: str  # document_gone | text_gone | chunk_gone


@dataclass(slots=True)
class Labels:
    """The labels of one case: `grades` by label, and the labels that each chunk satisfies. A
    document's label is satisfied by any of its chunks.
    """

    unit: str  # chunk | document | page
    grades: dict[str, int] = field(default_factory=dict)
    chunks: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    documents: dict[str, str] = field(default_factory=dict)  # doc_id: label
    stale: list[StaleLabel] = field(default_factory=list)

    @property
    def is_whole(self) -> bool:
        """False if no single chunk contains an expected text."""
        return self.unit != "chunk" or bool(self.chunks)

    def rank(self, hits: Sequence[Hit]) -> list[str]:
        """The ranking without duplicates, best first: per hit the labels that it satisfies, else
        its own chunk, document or page.
        """
        found: dict[str, None] = {}
        for hit in hits:
            found |= dict.fromkeys(self._names(hit))
        return list(found)

    def _names(self, hit: Hit) -> list[str]:
        if self.unit == "chunk":
            return sorted(self.chunks.get(hit.chunk_id, ())) or [hit.chunk_id]
        name = self.documents.get(hit.doc_id, hit.doc_id)
        if self.unit == "document":
            return [name]
        first, last = hit.page_range or (0, 0)
        return [f"{name}#p{page}" for page in range(first, last + 1)]


def open_catalog(release: Path) -> closing[CatalogReader]:
    """The catalog in the folder of a release. Raises InputError `invalid_dataset` for another
    folder.
    """
    if not (release / CATALOG).is_file():
        raise InputError(f"{release} is no release: it holds no {CATALOG}", code="invalid_dataset")
    return closing(CatalogReader(release / CATALOG))


class LabelReader:
    """Resolves the labels of cases in a release; each document is read once for all cases."""

    def __init__(self, catalog: CatalogReader, dataset: Dataset, chunk_profile: str) -> None:
        self._catalog = catalog
        self._dataset = dataset
        self._chunk_profile = chunk_profile
        self._versions = {version.doc_id: version for version in catalog.versions().values()}
        self._by_name: dict[str, list[str]] = defaultdict(list)
        for doc_id, version in self._versions.items():
            uri = version.source_uri
            for name in {doc_id, uri.rsplit("/", 1)[-1], _stem(uri)}:
                self._by_name[name].append(doc_id)
        self._chunks: dict[str, list[tuple[Chunk, str]]] = {}

    @classmethod
    def of(cls, release: OpenRelease, dataset: Dataset) -> LabelReader:
        """The reader for a release."""
        return cls(release.catalog, dataset, release.manifest.profiles.get("chunks", ""))

    def read(self, case: EvalCase) -> Labels:
        """The labels of a case, with stale ones in `stale`."""
        if case.unit == "document":
            return self._read_documents(case)
        labels = Labels("chunk")
        for number, expected in enumerate(case.expected_text):
            label = "text" if case.match == "any" else f"text {number + 1}"
            files = (expected.file,) if expected.file else case.expected_files
            self._read_text(labels, label, expected, files)
        if case.match == "any" and "text" in labels.grades:
            labels.stale.clear()  # one of the texts suffices
        for name, grade in {
            **dict.fromkeys(case.expected_chunk_ids, 1),
            **case.relevance_chunk,
        }.items():
            self._read_chunk(labels, name, grade)
        return labels

    def _read_text(
        self, labels: Labels, label: str, expected: ExpectedText, files: Sequence[str]
    ) -> None:
        owners = [doc_id for file in files for doc_id in self._find_doc_ids(file)]
        documents = owners if files else list(self._versions)
        found = {
            chunk_id
            for doc_id in documents
            for chunk_id in find_quote(self._fold_chunks(doc_id), expected)
        }
        # a text that chunking splits is not stale: it counts as not found
        if found or any(is_in_pieces(self._fold_chunks(doc_id), expected) for doc_id in documents):
            labels.grades[label] = 1
            for chunk_id in found:
                labels.chunks[chunk_id].add(label)
        else:
            labels.stale.append(StaleLabel(label, "text_gone" if documents else "document_gone"))

    def _read_chunk(self, labels: Labels, name: str, grade: int) -> None:
        chunk_id = name
        if (indexed := _INDEXED.fullmatch(name)) and self._dataset.load_documents is not None:
            chunk_id = self._chunk_at(indexed[1], int(indexed[2]))
        if chunk_id and self._catalog.chunks([chunk_id]):
            labels.grades[name] = grade
            labels.chunks[chunk_id].add(name)
        else:
            labels.stale.append(StaleLabel(name, "chunk_gone"))

    def _chunk_at(self, file: str, index: int) -> str:
        """The id of a document's chunk by its index, empty if there is none. Raises InputError
        `misaligned_labels` if the labels refer to another chunk profile.
        """
        recorded = self._dataset.chunk_profile
        if recorded and recorded != self._chunk_profile:
            raise InputError(
                f"dataset {self._dataset.dataset_id} numbers chunks as the profile {recorded} cuts"
                f" them; this release has {self._chunk_profile}. Label texts instead of numbers, or"
                " evaluate a strategy that cuts alike",
                code="misaligned_labels",
            )
        for doc_id in self._find_doc_ids(file):
            for chunk, _ in self._fold_chunks(doc_id):
                if chunk.chunk_index == index:
                    return chunk.chunk_id
        return ""

    def _read_documents(self, case: EvalCase) -> Labels:
        grades = {**dict.fromkeys(case.expected_files, 1), **case.relevance_doc}
        pages = [bool(_PAGE.fullmatch(name)) for name in grades]
        labels = Labels("page" if pages and all(pages) else "document")
        if labels.unit == "page":
            labels.documents = {
                doc_id: _stem(version.source_uri) for doc_id, version in self._versions.items()
            }
            known = set(labels.documents.values())
        for tag in case.expected_tags:
            tagged = [item.doc_id for item in self._catalog.documents(tag=tag)]
            owners = [doc_id for doc_id in tagged if doc_id in self._versions]
            labels.documents |= dict.fromkeys(owners, f"tag {tag}")
            if owners:
                labels.grades[f"tag {tag}"] = 1
            else:
                labels.stale.append(StaleLabel(f"tag {tag}", "document_gone"))
        for name, grade in grades.items():
            if labels.unit == "page":
                exists = name.rpartition("#p")[0] in known
            else:
                owners = self._find_doc_ids(name)
                labels.documents |= dict.fromkeys(owners, name)
                exists = bool(owners)
            # documents that come with the dataset cannot be gone
            if exists or self._dataset.load_documents is not None:
                labels.grades[name] = grade
            elif grade:
                labels.stale.append(StaleLabel(name, "document_gone"))
        return labels

    def _find_doc_ids(self, file: str) -> list[str]:
        """The doc_ids that a doc_id, a file name, the end of a path or a stem may mean."""
        return [
            doc_id
            for doc_id in self._by_name.get(file.rsplit("/", 1)[-1], ())
            if "/" not in file or is_of_file(self._versions[doc_id].source_uri, file)
        ]

    def _fold_chunks(self, doc_id: str) -> list[tuple[Chunk, str]]:
        """The chunks of a document with their folded texts, in reading order."""
        found = self._chunks.get(doc_id)
        if found is None:
            chunks = self._catalog.chunks_of_version(self._versions[doc_id].version_id)
            found = self._chunks[doc_id] = [
                (chunk, fold(f"{chunk.chunk_text}\n{read_pictures(chunk, self._catalog)}"))
                for chunk in chunks
            ]
        return found


def find_quote(chunks: Sequence[tuple[Chunk, str]], expected: ExpectedText) -> list[str]:
    """Ids of a document's chunks that contain the expected text, else of the first two neighbours
    that contain it together. `chunks` are pairs of a chunk and its folded text.
    """
    inside = _in_section(chunks, expected)
    found = [chunk.chunk_id for chunk, text in inside if contains_quote(text, expected.text)]
    if found:
        return found
    for pair in pairwise(inside):
        if contains_quote(_join(pair), expected.text):
            return [chunk.chunk_id for chunk, _ in pair]
    return []


def is_in_pieces(chunks: Sequence[tuple[Chunk, str]], expected: ExpectedText) -> bool:
    """True if the chunks of a document together contain the expected text."""
    return contains_quote(_join(_in_section(chunks, expected)), expected.text)


def _in_section(
    chunks: Sequence[tuple[Chunk, str]], expected: ExpectedText
) -> list[tuple[Chunk, str]]:
    section = fold(expected.section).lower()
    return [
        (chunk, text)
        for chunk, text in chunks
        if not section or section in fold(chunk.section_path).lower()
    ]


def _join(chunks: Sequence[tuple[Chunk, str]]) -> str:
    """The folded text of chunks in reading order, without their overlaps."""
    text, end = "", 0
    for chunk, _ in chunks:
        between = "\n" if chunk.norm_start > end else ""
        text += between + chunk.chunk_text[max(0, end - chunk.norm_start) :]
        end = chunk.norm_end
    return fold(text)


def _stem(source_uri: str) -> str:
    return source_uri.rsplit("/", 1)[-1].rpartition(".")[0]


# --- comparing expected texts with those of chunks and answers ------------------------------------


def fold(text: str) -> str:
    """The text in NFKC without Markdown emphasis and code marks, white space collapsed."""
    return _SPACE.sub(" ", _MARKS.sub("", unicodedata.normalize("NFKC", text))).strip()


def contains_quote(folded: str, quote: str) -> bool:
    """True if a folded text contains the quote, or if that is a table row, every cell of it."""
    if fold(quote) in folded:
        return True
    cells = [cell for part in quote.split("|") if (cell := fold(part))]
    return "|" in quote and bool(cells) and all(cell in folded for cell in cells)


def is_of_file(source_uri: str, file: str) -> bool:
    """True if `file` is the end of a document's source_uri, compared by path segments."""
    wanted = file.strip("/").split("/")
    return source_uri.split("/")[-len(wanted) :] == wanted
