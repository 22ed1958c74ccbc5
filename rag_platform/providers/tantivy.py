"""The word index of tantivy: BM25 over terms from our own tokenizer; tantivy only splits at spaces.

No query language is parsed: a question becomes an OR of its terms, so operators and quotes in it
are harmless.

    meta.json             the segments to search, in tantivy's format
    buckets.json          the segments and the number of rows of each bucket
    merged.json           merged segments of eight buckets each, searched in place of theirs
    dictionary.json       the words that are also indexed whole; absent if there are none
    <segment>.idx, ...    tantivy's files of one bucket, or of eight
    <segment>.parquet     the terms of a bucket's chunks, for rewriting it without their texts

tantivy counts deleted documents in its statistics until their segment is merged, and a merge cannot
be requested. Therefore nothing is deleted: a hash distributes documents over buckets, each bucket
is written separately with segments named by content, and a change rewrites the buckets of the
changed documents only. A query has a fixed cost for each segment, and few large ones answer in half
the time of many small ones. So when all of eight buckets were rewritten, their content is also
written as one merged segment, which is searched until one of them changes. Scores equal those of an
index built from scratch.
"""

from __future__ import annotations

import dataclasses
import hashlib
import itertools
import os
import shutil
import sys
import uuid
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence, Set
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, ClassVar

import orjson

from rag_platform.errors import REBUILD, ProviderError
from rag_platform.ir import Candidate, Json, LexicalRow
from rag_platform.providers.engine_errors import engine_errors
from rag_platform.providers.term_analysis import (
    IndexedRow,
    WordIndexOptions,
    idf,
    phrase_bonus,
)
from rag_platform.registry import require_at_least
from rag_platform.storage.sqlite_files import mirror_folder, writable
from rag_platform.storage.store import read_json, read_records, write_json, write_records
from rag_platform.text import segmentation
from rag_platform.traits import Traits

# names in the index's schema, which prevent opening an index or adding to it with other terms
_TOKENIZERS: dict[segmentation.Chinese, str] = {"pairs": "terms", "words": "terms_words"}
# a bucket with more terms than fit becomes several segments, which affects only speed
_WRITER_BYTES = 96 * 1024 * 1024
_WRITERS = 4  # buckets written at the same time
_BUCKETS, _MERGED = "buckets.json", "merged.json"
_DICTIONARY, _SCRATCH = "dictionary.json", ".scratch"
# chunks; changing one of them rewrites its bucket: .8 s of CPU time and 7.3 MB
_LARGEST_BUCKET = 4_000
# ms per question for 254,000 chunks: 9.1 in buckets of 4,000; 4.4 in segments of 16,000, 3.7 of
# 64,000
_MERGED_BUCKETS = 8
_PARTS = 1_024  # partitions, by the same hash, of a new index's rows; a power of two
_ROWS_AT_ONCE = 8_192
# A set of n ids in the query costs .35 ms * sqrt(n), because each segment compiles it. Filtering
# hits by the set instead costs .0045 ms for each of the 1.3 * k * chunks / n hits among which k are
# allowed. So hits are filtered if n ** 1.5 is above k * chunks / 60.
_SET_COST = 60
_MORE_HITS = 1.3
# chunks; rarer sequences are searched separately, for others reading the ids costs what it saves
_RARE = 200
# sizes of caches: counting a term reads every segment, and an opened index never changes
_CACHED_IDFS = 20_000
_CACHED_COUNTS = 20_000  # of words, which must also be tokenized
_CACHED_WEIGHTS = 64  # of the questions being answered

_Clause = tuple[Any, Any]  # occurrence and query, as the engine wants them


@dataclass(frozen=True)
class Tantivy(WordIndexOptions):
    """BM25 (k1 = 1.2, b = 0.75) over text and headings, with English stemming and accents folded;
    phrases by word positions.

    Chinese is indexed as characters and pairs, or as the words of a dictionary; changing this
    requires a new index. The words of `dictionary` (a list, or a file in the config folder with one
    word a line) are additional terms. There is a bucket for every `bucket_rows` chunks, but at most
    `max_buckets` unless these would have more than 4,000 chunks each: more buckets make edits
    cheaper and questions slower.
    """

    bucket_rows: int = 1_000
    # ms per question for 100,000 chunks: 4.3 with 64 buckets, 3.8 with 48, 3.2 with 32, 2.0 with 1;
    # chunks rewritten by an edit of ten documents: 15,000, 20,000, 27,000, all
    max_buckets: int = 56

    # changes with the terms of `segmentation`, the schema below and the files of the directory
    VERSION: ClassVar[str] = "12"
    traits: ClassVar[Traits] = Traits(replaces_files=True)

    def __post_init__(self) -> None:
        require_at_least(self, bucket_rows=1, max_buckets=1)

    def update(
        self, directory: Path, *, removed: Mapping[str, str], rows: Iterable[LexicalRow]
    ) -> None:
        """See protocols.LexicalIndex; no file is changed in place."""
        directory.mkdir(parents=True, exist_ok=True)
        words = segmentation.load_dictionary(self.dictionary)
        old = _read_buckets(directory, self.chinese, words)
        shutil.rmtree(directory / _SCRATCH, ignore_errors=True)
        indexed = self.analysis(words).rows(rows)
        changed: Mapping[int, list[IndexedRow]]
        if old:
            changed, count = _rearrange(directory, old, removed, list(indexed), self._count_buckets)
        else:
            spooled = _Spooled(directory / _SCRATCH / "rows", indexed)
            count = spooled.buckets = self._count_buckets(spooled.rows)
            changed = spooled
        if changed:
            if words.words:
                write_json(directory / _DICTIONARY, words.words)
            _write_buckets(directory, old, changed, count, self.chinese)

    def _count_buckets(self, rows: int) -> int:
        """The number of buckets of an index with so many rows."""
        most = max(self.max_buckets, rows // _LARGEST_BUCKET)
        return min(most, _PARTS, max(1, rows // self.bucket_rows))

    def open(self, directory: Path) -> TantivyReader:
        """A reader of a finished directory. Raises ProviderError `no_lexical_index`."""
        return TantivyReader(directory, self)


class TantivyReader:
    """A protocols.LexicalReader; thread-safe. Questions are tokenized like the index.

    An index of an older program has no word positions: phrases do not raise the rank there, and no
    terms are found by prefix.
    """

    def __init__(self, directory: Path, options: Tantivy) -> None:
        self._options = options
        # the engine creates lock files, so the directory must be writable
        if (directory / "meta.json").is_file() and not writable(directory):
            directory = mirror_folder(directory, self, copies=lambda path: False)
        self._index = _index(directory, options.chinese, create=False)
        # the directory never changes, so nothing needs to watch it
        self._index.config_reader(reload_policy="manual")
        self._index.reload()
        self._searcher = self._index.searcher()
        self._analysis = options.analysis(segmentation.Dictionary(_words_of(directory)))
        # needed twice for a question: to search, and for `full_match_score`
        self._weights = lru_cache(_CACHED_WEIGHTS)(self._analysis.weights)
        self._has_positions = _has_positions(directory)
        self._idf = lru_cache(_CACHED_IDFS)(self._compute_idf)
        self._doc_freq = lru_cache(_CACHED_COUNTS)(self._count_chunks)
        # chunk ids by segment and document number, cached: reading a stored document is slower
        self._chunk_ids: list[dict[int, str]] = [{} for _ in range(self._searcher.num_segments)]

    def count(self) -> int:
        return int(self._searcher.num_docs)

    def ids(self, among: Collection[str] | None = None) -> set[str]:
        import tantivy

        query = tantivy.Query
        selected = (
            query.all_query()
            if among is None
            else query.term_set_query(self._index.schema, "chunk_id", list(among))
        )
        return {chunk_id for _, chunk_id in self._hits(selected, max(1, self.count()))}

    def search(
        self,
        query: str,
        k: int,
        *,
        expansions: Sequence[tuple[str, float]] = (),
        phrases: Sequence[str] = (),
        chunk_ids: Collection[str] | None = None,
    ) -> list[Candidate]:
        words, sequences, most = self._build_clauses(query, expansions, phrases)
        if not (words or sequences) or k <= 0 or (chunk_ids is not None and not chunk_ids):
            return []
        allowed: Set[str] | None = None
        if chunk_ids is not None and len(chunk_ids) ** 1.5 > k * self.count() / _SET_COST:
            allowed, chunk_ids = frozenset(chunk_ids), None
        if not 0 < most <= _RARE:
            return self._best(self._restrict([*words, *sequences], chunk_ids), k, allowed)
        # the engine reads queries of words alone two to three times as fast
        in_order = self._hits(
            self._restrict(self._require_sequence(sequences, words), chunk_ids), most
        )
        return self._best(self._restrict(words, chunk_ids), k, allowed, in_order)

    def _build_clauses(
        self, text: str, expansions: Sequence[tuple[str, float]], phrases: Sequence[str]
    ) -> tuple[list[_Clause], list[_Clause], int]:
        """(clauses for terms, clauses for sequences of terms, upper bound of the number of chunks
        with a sequence).
        """
        import tantivy

        query, should, schema = tantivy.Query, tantivy.Occur.Should, self._index.schema
        weights = self._weights(text, tuple(expansions))
        words = [
            (
                should,
                query.boost_query(query.term_query(schema, name, term, "freq"), weight * boost),
            )
            for term, weight in weights.items()
            for name, boost in self._fields()
        ]
        sequences, most = [], 0
        for sequence, terms in (
            self._analysis.sequences(text, phrases, weights) if self._has_positions else ()
        ):
            match = (
                query.phrase_query(schema, "sequence", sequence)
                if len(sequence) > 1
                else query.term_query(schema, "sequence", *sequence)
            )
            bonus = phrase_bonus(terms, weights, self._rarity)
            sequences.append((should, query.const_score_query(match, bonus)))
            most += min(self._searcher.doc_freq("sequence", term) for term in sequence)
        return words, sequences, most

    def _fields(self) -> list[tuple[str, float]]:
        headings = self._options.headings_boost
        return [("text", 1.0), *([("headings", headings)] if headings > 0 else [])]

    def full_match_score(self, query: str) -> float:
        weights = self._weights(query, ())
        return sum(weight * self._idf("text", term) for term, weight in weights.items())

    def doc_freq(self, words: str, doc_ids: Collection[str] | None = None) -> int:
        return self._doc_freq(words) if doc_ids is None else self._count_chunks(words, doc_ids)

    def _count_chunks(self, words: str, doc_ids: Collection[str] | None = None) -> int:
        import tantivy

        terms = self._analysis.known_terms(words)
        if not terms:
            return 0
        query, schema = tantivy.Query, self._index.schema
        if doc_ids is None and len(terms) == 1:
            with _reading():
                return int(self._searcher.doc_freq("text", terms[0]))
        required = [query.term_query(schema, "text", term, "basic") for term in terms]
        if doc_ids is not None:
            required.append(query.term_set_query(schema, "doc_id", list(doc_ids)))
        match = query.boolean_query(
            [(tantivy.Occur.Must, query.const_score_query(item, 0.0)) for item in required]
        )
        with _reading():
            return int(self._searcher.search(match, 1, count=True).count)

    def terms_with_prefix(self, beginning: str) -> list[tuple[str, int]]:
        if not self._has_positions:
            return []
        with _reading():
            found: list[tuple[str, int]] = self._searcher.terms_with_prefix("sequence", beginning)
        return found

    def _rarity(self, term: str) -> float:
        """The term's BM25 idf, summed over the fields with their weights."""
        return sum(boost * self._idf(name, term) for name, boost in self._fields())

    def _compute_idf(self, field: str, term: str) -> float:
        with _reading():
            return idf(self.count(), self._searcher.doc_freq(field, term))

    def _require_sequence(
        self, sequences: Sequence[_Clause], words: Sequence[_Clause]
    ) -> list[_Clause]:
        """Clauses that match only texts with one of the sequences and also score their words.

        Each word has its own clause with the sequences; with one clause for all words, the engine
        would read every text that has any of them (a million chunks: 24 ms instead of 1.8).
        """
        import tantivy

        query, must, should = tantivy.Query, tantivy.Occur.Must, tantivy.Occur.Should
        required = must, query.const_score_query(query.boolean_query(list(sequences)), 0.0)
        return [
            *sequences,
            *((should, query.boolean_query([required, (must, word)])) for _, word in words),
        ]

    def _restrict(self, clauses: Sequence[_Clause], chunk_ids: Collection[str] | None) -> Any:
        """A query for any of the clauses, among `chunk_ids` if given."""
        import tantivy

        query, must = tantivy.Query, tantivy.Occur.Must
        words = query.boolean_query(list(clauses))
        if chunk_ids is None:
            return words
        among = query.term_set_query(self._index.schema, "chunk_id", list(chunk_ids))
        return query.boolean_query([(must, query.const_score_query(among, 0.0)), (must, words)])

    def _best(
        self,
        query: Any,
        k: int,
        allowed: Set[str] | None,
        known: Sequence[tuple[float, str]] = (),
    ) -> list[Candidate]:
        """The k best hits, among `allowed` if given; ties by chunk_id, so more are fetched while
        the last one might tie with the k-th.

        `known` are hits whose scores replace those of the query.
        """
        known_ids, limit = {chunk_id for _, chunk_id in known}, k + 16 + len(known)
        if allowed is not None:
            limit += int(_MORE_HITS * k * self.count() / len(allowed))
        while True:
            fetched = self._hits(query, limit)
            found = sorted([*known, *(hit for hit in fetched if hit[1] not in known_ids)])
            if allowed is not None:
                found = [hit for hit in found if hit[1] in allowed]
            if len(fetched) < limit or (len(found) >= k and fetched[-1][0] > found[k - 1][0]):
                return [
                    Candidate(chunk_id, -negative, "sparse") for negative, chunk_id in found[:k]
                ]
            limit *= 4

    def _hits(self, query: Any, limit: int) -> list[tuple[float, str]]:
        """(negative score, chunk id) of each hit, best first."""
        cached = self._chunk_ids
        with _reading():
            found = self._searcher.search(query, limit, count=False).hits
            return [
                (-score, cached[address.segment_ord].get(address.doc) or self._read_id(address))
                for score, address in found
            ]

    def _read_id(self, address: Any) -> str:
        chunk_id = str(self._searcher.doc(address)["chunk_id"][0])
        self._chunk_ids[address.segment_ord][address.doc] = chunk_id
        return chunk_id


# --- buckets ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Bucket:
    """The record of one bucket in `buckets.json`, or of merged ones in `merged.json`."""

    rows: int = 0
    name: str = ""  # derived from the content; also the name of the file with its terms
    segments: tuple[Json, ...] = ()  # in the form of meta.json


def bucket_of(doc_id: str, buckets: int) -> int:
    """The bucket of a document among `buckets`, by linear hashing (Litwin 1980)."""
    number = int.from_bytes(hashlib.sha256(doc_id.encode()).digest()[:4], "big")
    return _home(number % (1 << (buckets - 1).bit_length()), buckets)


def _home(bucket: int, buckets: int) -> int:
    """The bucket with the documents of `bucket` if there are only `buckets`."""
    while bucket >= buckets:
        bucket -= 1 << (bucket.bit_length() - 1)
    return bucket


def _read_buckets(
    directory: Path, chinese: segmentation.Chinese, words: segmentation.Dictionary
) -> list[_Bucket]:
    """The buckets of an index; empty for an empty directory. Raises ProviderError if the index
    cannot be changed.
    """
    if not (directory / "meta.json").is_file():
        return []
    _index(directory, chinese, create=False)  # raises ProviderError for another tokenizer
    if not _has_positions(directory) or not (directory / _BUCKETS).is_file():
        raise ProviderError(
            f"the word index was written by an older program and takes no changes; {REBUILD}"
        )
    if _words_of(directory) != words.words:
        raise ProviderError(
            f"the word index was cut by another dictionary and takes no changes; {REBUILD}"
        )
    return _read_list(directory / _BUCKETS)


def _read_list(path: Path) -> list[_Bucket]:
    items = read_json(path, REBUILD) if path.is_file() else []
    return [_Bucket(item["rows"], item["name"], tuple(item["segments"])) for item in items]


def _read_rows(directory: Path, bucket: _Bucket) -> list[IndexedRow]:
    return read_records(directory / f"{bucket.name}.parquet", IndexedRow, REBUILD)


def _words_of(directory: Path) -> tuple[str, ...]:
    path = directory / _DICTIONARY
    return tuple(read_json(path, REBUILD)) if path.is_file() else ()


def _has_positions(directory: Path) -> bool:
    """False for an index of version 2 and before, which has no word positions."""
    meta: Json = read_json(directory / "meta.json", REBUILD)
    return any(field["name"] == "sequence" for field in meta["schema"])


class _Spooled(Mapping[int, "list[IndexedRow]"]):
    """The rows of a new index by bucket, on disk, because those of a large library do not fit into
    memory.
    """

    def __init__(self, folder: Path, rows: Iterable[IndexedRow]) -> None:
        self._folder = folder
        self.rows = 0
        self.buckets = 1
        folder.mkdir(parents=True)
        remaining = iter(rows)
        while some := list(itertools.islice(remaining, _ROWS_AT_ONCE)):
            self.rows += len(some)
            by_part: dict[int, list[IndexedRow]] = {}
            for row in some:
                by_part.setdefault(bucket_of(row.doc_id, _PARTS), []).append(row)
            for part, added in by_part.items():
                with open(folder / str(part), "ab") as target:
                    target.write(orjson.dumps(added, option=orjson.OPT_APPEND_NEWLINE))

    def __len__(self) -> int:
        return self.buckets

    def __iter__(self) -> Iterator[int]:
        return iter(range(self.buckets))

    def __getitem__(self, bucket: int) -> list[IndexedRow]:
        found = []
        for part in range(_PARTS):
            path = self._folder / str(part)
            if _home(part % (1 << (self.buckets - 1).bit_length()), self.buckets) != bucket:
                continue
            if path.is_file():
                with open(path, "rb") as lines:
                    found += [IndexedRow(**row) for line in lines for row in orjson.loads(line)]
        return found


def _rearrange(
    directory: Path,
    old: Sequence[_Bucket],
    removed: Mapping[str, str],
    new: Sequence[IndexedRow],
    count_buckets: Callable[[int], int],
) -> tuple[dict[int, list[IndexedRow]], int]:
    """(rows of every changed bucket, new number of buckets)."""
    before = len(old)
    outdated = {*removed, *(row.chunk_id for row in new)}
    kept: dict[int, list[IndexedRow]] = {}  # the rows that stay, of the old buckets that change

    def read(number: int) -> None:
        if number < before and number not in kept:
            rows = _read_rows(directory, old[number]) if old[number].rows else []
            kept[number] = [row for row in rows if row.chunk_id not in outdated]

    for doc_id in {*removed.values(), *(row.doc_id for row in new)}:
        read(bucket_of(doc_id, before))
    dropped = sum(old[number].rows - len(rows) for number, rows in kept.items())
    after = count_buckets(sum(bucket.rows for bucket in old) - dropped + len(new))
    for number in range(min(before, after), max(before, after)):  # added or removed buckets
        for moved in (_home(number, before), _home(number, after), number):
            read(moved)
    if before == after:
        changed, moving = kept, new
    else:
        changed = {_home(number, after): [] for number in kept}
        moving = [*(row for rows in kept.values() for row in rows), *new]
    for row in moving:
        changed.setdefault(bucket_of(row.doc_id, after), []).append(row)
    return changed, after


def _write_buckets(
    directory: Path,
    old: Sequence[_Bucket],
    changed: Mapping[int, list[IndexedRow]],
    count: int,
    chinese: segmentation.Chinese,
) -> None:
    """Write the changed buckets and the merged segments, then the files that list them; remove all
    other files.
    """
    scratch = directory / _SCRATCH
    buckets = [old[number] if number < len(old) else _Bucket() for number in range(count)]
    merged = {bucket.name: bucket for bucket in _read_list(directory / _MERGED)}
    written = set(changed)

    def merge(first: int) -> list[_Bucket]:
        """The buckets to search for the group that starts at `first`: one merged bucket if there is
        one or all of the group changed.
        """
        numbers = [n for n in range(first, count)[:_MERGED_BUCKETS] if buckets[n].rows]
        group = [buckets[number] for number in numbers]
        name = hashlib.sha256("".join(bucket.name for bucket in group).encode()).hexdigest()[:32]
        if name in merged:
            return [merged[name]]
        if len(group) < 2 or not written.issuperset(numbers):
            return group
        rows = (row for bucket in group for row in _read_rows(directory, bucket))
        meta = _write_segments(scratch / name, rows, chinese)
        segments = _rename_segments(scratch / name, directory, name, meta["segments"])
        return [_Bucket(sum(bucket.rows for bucket in group), name, segments)]

    with ThreadPoolExecutor(_WRITERS) as pool:  # each commit waits for the disk dozens of times
        done = list(
            pool.map(
                lambda number: _write_bucket(scratch, number, directory, changed[number], chinese),
                changed,
            )
        )
        for number, (bucket, _) in zip(changed, done, strict=True):
            buckets[number] = bucket
        searched = list(
            itertools.chain.from_iterable(pool.map(merge, range(0, count, _MERGED_BUCKETS)))
        )
    shutil.rmtree(scratch)
    _, meta = done[0]
    segments = [segment for bucket in searched for segment in bucket.segments]
    names = {bucket.name for bucket in buckets}
    write_json(directory / _BUCKETS, buckets)
    write_json(directory / _MERGED, [bucket for bucket in searched if bucket.name not in names])
    write_json(directory / "meta.json", {**meta, "segments": segments, "opstamp": 0})
    kept_stems = {
        "meta",
        "buckets",
        "merged",
        "dictionary",
        *names,
        *(
            _file_stem(segment["segment_id"])
            for bucket in (*buckets, *searched)
            for segment in bucket.segments
        ),
    }
    for path in directory.iterdir():
        if path.name.split(".")[0] not in kept_stems:
            path.unlink()


def _write_bucket(
    folder: Path,
    number: int,
    directory: Path,
    rows: list[IndexedRow],
    chinese: segmentation.Chinese,
) -> tuple[_Bucket, Json]:
    """(bucket of these rows, moved to `directory`; its own meta.json)."""
    rows.sort(key=lambda row: row.chunk_id)
    scratch = folder / str(number)
    meta = _write_segments(scratch, rows, chinese)
    if not rows:
        return _Bucket(), meta
    terms = scratch / "terms.parquet"
    name = write_records(terms, IndexedRow, rows)[:32]
    os.replace(terms, directory / f"{name}.parquet")
    return _Bucket(
        len(rows), name, _rename_segments(scratch, directory, name, meta["segments"])
    ), meta


def _write_segments(
    scratch: Path, rows: Iterable[IndexedRow], chinese: segmentation.Chinese
) -> Json:
    """Write a new index of these rows, in their order; returns its meta.json."""
    import tantivy

    scratch.mkdir(parents=True)
    index = _index(scratch, chinese, create=True)
    with _engine_errors("written"):
        # one thread, so that the same rows give the same files
        writer = index.writer(heap_size=_WRITER_BYTES, num_threads=1)
        for row in rows:
            writer.add_document(
                tantivy.Document(
                    **{field.name: getattr(row, field.name) for field in dataclasses.fields(row)}
                )
            )
        sys.audit("rag_platform.commit", str(scratch))
        writer.commit()
        writer.wait_merging_threads()
    meta: Json = read_json(scratch / "meta.json")
    return meta


def _rename_segments(
    source: Path, target: Path, name: str, segments: Sequence[Json]
) -> tuple[Json, ...]:
    """Move new segments to `target`, replacing their random names by names from their content."""
    found = []
    for number, segment in enumerate(segments):
        new = str(uuid.UUID(hashlib.sha256(f"{name}{number}".encode()).hexdigest()[:32]))
        for path in source.glob(f"{_file_stem(segment['segment_id'])}.*"):
            os.replace(path, target / f"{_file_stem(new)}{path.suffix}")
        found.append({**segment, "segment_id": new})
    return tuple(found)


def _file_stem(segment_id: str) -> str:
    return segment_id.replace("-", "")


def _engine_errors(what: str, code: str | None = None) -> AbstractContextManager[None]:
    """Turns the engine's errors about its files (ValueError, OSError, panics) into ours."""
    return engine_errors(f"the word index cannot be {what}", code=code, kinds=(ValueError, OSError))


def _reading() -> AbstractContextManager[None]:
    return _engine_errors("read", "damaged_index")


def _index(directory: Path, chinese: segmentation.Chinese, create: bool) -> Any:
    import tantivy

    if not create and not (directory / "meta.json").is_file():
        raise ProviderError(
            f"no word index in {directory.name}; {REBUILD}", code="no_lexical_index"
        )
    with _engine_errors("opened"):
        index = tantivy.Index(
            _schema(_TOKENIZERS[chinese], positions=create or _has_positions(directory)),
            path=str(directory),
        )
    # terms are folded and stemmed before they reach the engine
    index.register_tokenizer(
        _TOKENIZERS[chinese], tantivy.TextAnalyzerBuilder(tantivy.Tokenizer.whitespace()).build()
    )
    return index


def _schema(tokenizer: str, *, positions: bool) -> Any:
    import tantivy

    builder = tantivy.SchemaBuilder()
    builder.add_text_field("chunk_id", stored=True, tokenizer_name="raw", index_option="basic")
    builder.add_text_field("doc_id", tokenizer_name="raw", index_option="basic")
    builder.add_text_field("text", tokenizer_name=tokenizer, index_option="freq")
    builder.add_text_field("headings", tokenizer_name=tokenizer, index_option="freq")
    if positions:
        builder.add_text_field("sequence", tokenizer_name=tokenizer, index_option="position")
    return builder.build()
