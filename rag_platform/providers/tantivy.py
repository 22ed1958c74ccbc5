"""The word index: BM25 over terms that we cut ourselves (tantivy with its white-space tokenizer).

No query language is parsed: a question becomes an OR of its terms, so operators and quotes in it are harmless. Deleted chunks count in
document frequencies until their segment is merged, so after a delta scores differ from those of a full build in the last digits;
`indexes.lexical` builds anew before that matters.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from rag_platform.errors import ProviderError
from rag_platform.ir import Candidate, LexicalRow
from rag_platform.providers import segmentation

# The index's own schema says by this name how its terms were cut, so it cannot be opened, or added to, with another cut.
_TOKENIZERS: dict[segmentation.Chinese, str] = {"pairs": "terms", "words": "terms_words"}
_WRITER_BYTES = 256 * 1024 * 1024
# Above so many ids, which are also a good share of the index, testing hits against the set is faster than compiling it into the query
# (50,000 chunks: 5,000 ids 5 ms, 25,000 ids 37 ms; a search without them 0.1 ms).
_LARGE_SET = 5_000


@dataclass(frozen=True)
class Tantivy:
    """BM25 (k1 = 1.2, b = 0.75) over text and headings, with English stemming and accents folded.

    Chinese is indexed and asked as characters and pairs, or as the words of a dictionary; another choice needs a new index.
    """

    chinese: segmentation.Chinese = "pairs"
    headings_boost: float = 0.5  # Cranfield nDCG@10: 0.504 without, 0.526 with 0.5, 0.510 with 1.0
    identifier_boost: float = 2.0

    NAME: ClassVar[str] = "tantivy"
    VERSION: ClassVar[str] = "1"  # changes with the terms of `segmentation` and the schema below

    def __post_init__(self) -> None:
        if self.chinese not in segmentation.CHINESE:
            raise ValueError(f"chinese must be one of {', '.join(segmentation.CHINESE)}, not {self.chinese!r}")

    def update(self, directory: Path, *, removed: Collection[str], rows: Iterable[LexicalRow]) -> None:
        """Delete `removed`, then add `rows`, in one commit; creates the index when the directory is empty."""
        import tantivy

        directory.mkdir(parents=True, exist_ok=True)
        index = _index(directory, self.chinese, create=True)
        writer = index.writer(heap_size=_WRITER_BYTES, num_threads=1)  # one thread: the same input gives the same segments
        for chunk_id in removed:
            writer.delete_documents_by_term("chunk_id", chunk_id)
        for row in rows:
            text, headings = (" ".join(segmentation.terms(part, self.chinese)) for part in (row.text, row.headings))
            writer.add_document(tantivy.Document(chunk_id=row.chunk_id, doc_id=row.doc_id, text=text, headings=headings))
        writer.commit()
        writer.wait_merging_threads()

    def open(self, directory: Path) -> TantivyReader:
        """A reader of a finished directory. Raises ProviderError when there is no index."""
        return TantivyReader(directory, self)


class TantivyReader:
    """An opened word index; safe between threads."""

    def __init__(self, directory: Path, options: Tantivy) -> None:
        self._options = options
        self._index = _index(directory, options.chinese, create=False)
        self._index.config_reader(reload_policy="manual")  # the directory never changes, so nothing needs to watch it
        self._index.reload()
        self._searcher = self._index.searcher()
        self._analyzer = _analyzer()

    def count(self) -> int:
        """Number of chunks held."""
        return int(self._searcher.num_docs)

    def ids(self) -> set[str]:
        """Every chunk id held."""
        import tantivy

        return {chunk_id for chunk_id, _ in self._hits(tantivy.Query.all_query(), max(1, self.count()))}

    def search(
        self, query: str, k: int, *, chunk_ids: Collection[str] | None = None, doc_ids: Collection[str] | None = None
    ) -> list[Candidate]:
        """At most k candidates by BM25 score, equal scores by chunk_id; the id sets restrict what may match."""
        words = self._words(query)
        if k <= 0 or words is None or (chunk_ids is not None and not chunk_ids) or (doc_ids is not None and not doc_ids):
            return []
        allowed: Collection[str] | None = None
        if chunk_ids is not None and len(chunk_ids) > max(_LARGE_SET, self.count() // 5):
            allowed, chunk_ids = set(chunk_ids), None
        restricted = self._restricted(words, {"chunk_id": chunk_ids, "doc_id": doc_ids})
        hits = self._best(restricted, k, (lambda chunk_id: True) if allowed is None else allowed.__contains__)
        return [Candidate(chunk_id, score, "sparse") for chunk_id, score in hits]

    def _words(self, text: str) -> Any | None:
        import tantivy

        query, should = tantivy.Query, tantivy.Occur.Should
        weights = Counter(self._analyzer.analyze(" ".join(segmentation.terms(text, self._options.chinese))))
        clauses = []
        for term, repeats in weights.items():
            weight = repeats * (self._options.identifier_boost if segmentation.is_identifier(term) else 1.0)
            for name, boost in (("text", 1.0), ("headings", self._options.headings_boost)):
                if boost > 0:
                    clauses.append((should, query.boost_query(query.term_query(self._index.schema, name, term, "freq"), weight * boost)))
        return query.boolean_query(clauses) if clauses else None

    def _restricted(self, words: Any, sets: dict[str, Collection[str] | None]) -> Any:
        import tantivy

        query, must = tantivy.Query, tantivy.Occur.Must
        filters = [
            (must, query.const_score_query(query.term_set_query(self._index.schema, name, list(ids)), 0.0))
            for name, ids in sets.items()
            if ids is not None
        ]
        return query.boolean_query([*filters, (must, words)]) if filters else words

    def _best(self, query: Any, k: int, allowed: Callable[[str], bool]) -> list[tuple[str, float]]:
        """The k best allowed hits; more are fetched while the last one fetched might tie with the k-th."""
        limit = k + 16
        while True:
            fetched = self._hits(query, limit)
            found = [hit for hit in fetched if allowed(hit[0])]
            if len(fetched) < limit or (len(found) >= k and fetched[-1][1] < found[k - 1][1]):
                return sorted(found, key=lambda hit: (-hit[1], hit[0]))[:k]
            limit *= 4

    def _hits(self, query: Any, limit: int) -> list[tuple[str, float]]:
        found = self._searcher.search(query, limit, count=False).hits
        return [(self._searcher.doc(address)["chunk_id"][0], float(score)) for score, address in found]


def _index(directory: Path, chinese: segmentation.Chinese, create: bool) -> Any:
    import tantivy

    if not create and not (directory / "meta.json").is_file():
        raise ProviderError(f"no word index in {directory.name}; rebuild the release with `rag rebuild`", code="no_lexical_index")
    try:
        index = tantivy.Index(_schema(_TOKENIZERS[chinese]), path=str(directory))
    except (ValueError, OSError) as error:
        raise ProviderError(f"the word index cannot be opened: {error}; rebuild the release with `rag rebuild`") from error
    index.register_tokenizer(_TOKENIZERS[chinese], _analyzer())
    return index


def _schema(tokenizer: str) -> Any:
    import tantivy

    builder = tantivy.SchemaBuilder()
    builder.add_text_field("chunk_id", stored=True, tokenizer_name="raw", index_option="basic")
    builder.add_text_field("doc_id", tokenizer_name="raw", index_option="basic")
    builder.add_text_field("text", tokenizer_name=tokenizer, index_option="freq")
    builder.add_text_field("headings", tokenizer_name=tokenizer, index_option="freq")
    return builder.build()


def _analyzer() -> Any:
    import tantivy

    builder = tantivy.TextAnalyzerBuilder(tantivy.Tokenizer.whitespace())
    return builder.filter(tantivy.Filter.ascii_fold()).filter(tantivy.Filter.stemmer("english")).build()
