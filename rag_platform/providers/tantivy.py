"""The word index: BM25 over terms from our own tokenizer (tantivy only splits them at spaces).

No query language is parsed: a question becomes an OR of its terms, so operators and quotes in it
are harmless.

    meta.json             the segments to search, in tantivy's format
    buckets.json          the segments and the number of rows of each bucket
    merged.json           merged segments of eight buckets each, searched in place of theirs
    dictionary.json       the words that are kept whole; absent if there are none
    <segment>.idx, ...    tantivy's files of one bucket, or of eight
    <segment>.parquet     the terms of a bucket's chunks, for rewriting it without their texts

tantivy counts deleted documents in its statistics until their segment is merged, and a merge cannot
be requested. So nothing is ever deleted: a hash spreads documents over buckets, each bucket is
written separately with segments named by content, and a change rewrites the buckets of the changed
documents; the files of the others stay. A query has a fixed cost for each segment, and few large
ones answer in half the time of many small ones: when all of eight buckets were rewritten, their
content is also written as one merged segment, searched until one of them changes. Scores equal
those of an index built from scratch.
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
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, ClassVar

import orjson

from rag_platform.errors import REBUILD, ProviderError
from rag_platform.ir import Candidate, Json, LexicalRow
from rag_platform.providers.engine_errors import engine_errors
from rag_platform.providers.term_analysis import (
    Analysis,
    IndexedRow,
    WordOptions,
    idf,
    phrase_bonus,
)
from rag_platform.storage.sqlite_files import stand_in, writable
from rag_platform.storage.store import read_json, read_records, write_json, write_records
from rag_platform.text import segmentation
from rag_platform.traits import Traits

# Tokenizer names in the index's schema; they prevent opening an index, or adding to it, with terms
# of the other kind.
_TOKENIZERS: dict[segmentation.Chinese, str] = {"pairs": "terms", "words": "terms_words"}
# a bucket with more terms than fit becomes several segments, which affects only speed
_WRITER_BYTES = 96 * 1024 * 1024
_WRITERS = 4  # buckets written side by side
_BUCKETS, _MERGED = "buckets.json", "merged.json"
_DICTIONARY, _SCRATCH = "dictionary.json", ".scratch"
# chunks; changing one rewrites its bucket: .8 s of CPU time and 7.3 MB
_LARGEST_BUCKET = 4_000
# 254,000 chunks: 9.1 ms a question in buckets of 4,000, 4.4 in segments of 16,000, 3.7 of 64,000
_MERGED_BUCKETS = 8
_PARTS = 1_024  # partitions, by the same hash, of a new index's rows; a power of two
_ROWS_AT_ONCE = 8_192
# A set of n ids in the query costs .35 ms * sqrt(n), because each segment compiles it anew; testing
# hits against it .0045 ms for each of the 1.3 * k * chunks / n hits that hold k allowed ones. So
# sets of which n ** 1.5 is above k * chunks / 60 are tested.
_SET_COST = 60
_MORE_HITS = 1.3
# phrases in at most this many chunks are searched separately; for more, reading the ids costs as
# much as it saves
_RARE = 200
# cached, as counting a term asks every segment and an opened index never changes
_KEPT_IDFS = 20_000
_KEPT_COUNTS = 20_000  # of words, which must also be tokenized
_KEPT_WEIGHTS = 64  # of the questions being answered

_Clause = tuple[Any, Any]  # occurrence and query, as the engine wants them


@dataclass(frozen=True)
class Tantivy(WordOptions):
    """BM25 (k1 = 1.2, b = 0.75) over text and headings, with English stemming and accents folded;
    phrases by their places.

    Chinese is indexed and asked as characters and pairs, or as the words of a dictionary; another
    choice needs a new index. The words of `dictionary`, a list or a file beside the settings with
    one word a line, are terms besides. There is a bucket for every `bucket_rows` chunks, but at
    most `max_buckets`, as long as none would hold more than 4,000 chunks: more of them make edits
    cheaper and questions dearer.
    """

    bucket_rows: int = 1_000
    # 100,000 chunks: 3.8 ms a question with 48, 4.3 with 64, 3.2 with 32, 2.0 with one; an edit of
    # ten documents writes 20,000, 15,000, 27,000 chunks anew, and all
    max_buckets: int = 56

    NAME: ClassVar[str] = "tantivy"
    # changes with the terms of `segmentation`, the schema below and the files of the directory
    VERSION: ClassVar[str] = "7"
    traits: ClassVar[Traits] = Traits(replaces_files=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.bucket_rows < 1 or self.max_buckets < 1:
            raise ValueError(
                f"bucket_rows = {self.bucket_rows} and max_buckets = {self.max_buckets} must be at"
                " least 1"
            )

    def update(
        self, directory: Path, *, removed: Mapping[str, str], rows: Iterable[LexicalRow]
    ) -> None:
        """Delete `removed` (chunk id: doc id), then add `rows`; no file is changed in place."""
        directory.mkdir(parents=True, exist_ok=True)
        words = segmentation.load_dictionary(self.dictionary)
        held = _read_buckets(directory, self.chinese, words)
        shutil.rmtree(directory / _SCRATCH, ignore_errors=True)
        indexed = Analysis(self.chinese, words).rows(rows)
        changed: Mapping[int, list[IndexedRow]]
        if held:
            changed, after = _rearrange(directory, held, removed, list(indexed), self._buckets_for)
        else:
            spooled = _Spooled(directory / _SCRATCH / "rows", indexed)
            after = spooled.buckets = self._buckets_for(spooled.rows)
            changed = spooled
        if changed:
            if words.words:
                write_json(directory / _DICTIONARY, words.words)
            _write_buckets(directory, held, changed, after, self.chinese)

    def _buckets_for(self, rows: int) -> int:
        most = max(self.max_buckets, rows // _LARGEST_BUCKET)
        return min(most, _PARTS, max(1, rows // self.bucket_rows))

    def open(self, directory: Path) -> TantivyReader:
        """A reader of a finished directory. Raises ProviderError when there is no index."""
        return TantivyReader(directory, self)


class TantivyReader:
    """An opened word index; thread-safe. It tokenizes questions as the index was tokenized."""

    def __init__(self, directory: Path, options: Tantivy) -> None:
        self._options = options
        # the engine creates lock files, so the directory must be writable
        if (directory / "meta.json").is_file() and not writable(directory):
            directory = stand_in(directory, self, copies=lambda path: False)
        self._index = _index(directory, options.chinese, create=False)
        # the directory never changes, so nothing needs to watch it
        self._index.config_reader(reload_policy="manual")
        self._index.reload()
        self._searcher = self._index.searcher()
        self._analysis = Analysis(options.chinese, segmentation.Dictionary(_words_of(directory)))
        # needed twice for a question: to search and to report what its words found
        self._weights = lru_cache(_KEPT_WEIGHTS)(
            partial(self._analysis.weights, identifier_boost=options.identifier_boost)
        )
        self._has_places = _has_places(directory)
        self._idfs: dict[tuple[str, str], float] = {}
        self._counts = lru_cache(_KEPT_COUNTS)(self._count_holding)
        # chunk ids by segment and document number, cached: reading a stored document is slower
        self._names: list[dict[int, str]] = [{} for _ in range(self._searcher.num_segments)]

    def count(self) -> int:
        """Number of chunks in the index."""
        return int(self._searcher.num_docs)

    def ids(self, among: Collection[str] | None = None) -> set[str]:
        """All chunk ids of the index, or those of the given ones that it has."""
        import tantivy

        query = tantivy.Query
        wanted = (
            query.all_query()
            if among is None
            else query.term_set_query(self._index.schema, "chunk_id", list(among))
        )
        return {chunk_id for _, chunk_id in self._hits(wanted, max(1, self.count()))}

    def search(
        self,
        query: str,
        k: int,
        *,
        expansions: Sequence[tuple[str, float]] = (),
        phrases: Sequence[str] = (),
        chunk_ids: Collection[str] | None = None,
        doc_ids: Collection[str] | None = None,
    ) -> list[Candidate]:
        """At most k candidates by BM25 score, equal scores by chunk_id; the id sets restrict what
        may match.

        Chunks with a phrase rank above chunks with only its words, except in an index of an older
        program, which has no word positions.
        """
        words, sequences = self._build_clauses(query, expansions, phrases)
        if (
            k <= 0
            or not (words or sequences)
            or (chunk_ids is not None and not chunk_ids)
            or (doc_ids is not None and not doc_ids)
        ):
            return []
        allowed: Set[str] | None = None
        if chunk_ids is not None and len(chunk_ids) ** 1.5 > k * self.count() / _SET_COST:
            allowed, chunk_ids = frozenset(chunk_ids), None
        ids = {"chunk_id": chunk_ids, "doc_id": doc_ids}
        in_order, most = [clause for clause, _ in sequences], sum(n for _, n in sequences)
        if not 0 < most <= _RARE:
            return self._best(self._restrict([*words, *in_order], ids), k, allowed)
        # The engine skips texts that cannot be among the best only in queries of words alone.
        held = self._hits(self._restrict(self._require_sequence(in_order, words), ids), most)
        return self._best(self._restrict(words, ids), k, allowed, held)

    def _build_clauses(
        self, text: str, expansions: Sequence[tuple[str, float]], phrases: Sequence[str]
    ) -> tuple[list[_Clause], list[tuple[_Clause, int]]]:
        """(clauses for terms, clauses for sequences of terms, each with an upper bound of the
        chunks that contain it).
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
        sequences = []
        for sequence, own in (
            self._analysis.in_order(text, phrases, weights) if self._has_places else ()
        ):
            held = (
                query.phrase_query(schema, "sequence", sequence)
                if len(sequence) > 1
                else query.term_query(schema, "sequence", *sequence)
            )
            clause = should, query.const_score_query(held, phrase_bonus(own, weights, self._rarity))
            sequences.append(
                (clause, min(self._searcher.doc_freq("sequence", term) for term in sequence))
            )
        return words, sequences

    def _fields(self) -> list[tuple[str, float]]:
        return [("text", 1.0), ("headings", self._options.headings_boost)][
            : 2 if self._options.headings_boost > 0 else 1
        ]

    def full_match_score(self, query: str) -> float:
        """The score of a text of average length that holds every word of the question once."""
        weights = self._weights(query, ())
        return sum(weight * self._idf("text", term) for term, weight in weights.items())

    def doc_freq(self, words: str, doc_ids: Collection[str] | None = None) -> int:
        """The number of chunks, of the given documents if any, whose text without headings contains
        all of these words.
        """
        return self._counts(words) if doc_ids is None else self._count_holding(words, doc_ids)

    def _count_holding(self, words: str, doc_ids: Collection[str] | None = None) -> int:
        import tantivy

        terms = list(dict.fromkeys(self._analysis.terms(words)))
        if not terms:
            return 0
        query, schema = tantivy.Query, self._index.schema
        if doc_ids is None and len(terms) == 1:
            with _reading():
                return int(self._searcher.doc_freq("text", terms[0]))
        wanted = [query.term_query(schema, "text", term, "basic") for term in terms]
        if doc_ids is not None:
            wanted.append(query.term_set_query(schema, "doc_id", list(doc_ids)))
        held = query.boolean_query(
            [(tantivy.Occur.Must, query.const_score_query(item, 0.0)) for item in wanted]
        )
        with _reading():
            return int(self._searcher.search(held, 1, count=True).count)

    def terms_with_prefix(self, beginning: str) -> list[tuple[str, int]]:
        """(word, number of chunks with it) for the words of texts and headings with this prefix;
        nothing from an index of an older program.
        """
        if not self._has_places:
            return []
        with _reading():
            found: list[tuple[str, int]] = self._searcher.terms_with_prefix("sequence", beginning)
        return found

    def _rarity(self, term: str) -> float:
        """The term's BM25 idf, summed over the fields with their weights."""
        return sum(boost * self._idf(name, term) for name, boost in self._fields())

    def _idf(self, field: str, term: str) -> float:
        found = self._idfs.get((field, term))
        if found is None:
            with _reading():
                found = idf(self.count(), self._searcher.doc_freq(field, term))
            if len(self._idfs) >= _KEPT_IDFS:
                self._idfs.clear()
            self._idfs[field, term] = found
        return found

    def _require_sequence(
        self, sequences: Sequence[_Clause], words: Sequence[_Clause]
    ) -> list[_Clause]:
        """Clauses that match only texts with one of the sequences and also score their words.

        Each word has its own clause with the sequences; with one clause for all words, the engine
        would read every text that has any of them (a million chunks: 24 ms instead of 1.8).
        """
        import tantivy

        query, must, should = tantivy.Query, tantivy.Occur.Must, tantivy.Occur.Should
        held = must, query.const_score_query(query.boolean_query(list(sequences)), 0.0)
        return [
            *sequences,
            *((should, query.boolean_query([held, (must, word)])) for _, word in words),
        ]

    def _restrict(
        self, clauses: Sequence[_Clause], sets: Mapping[str, Collection[str] | None]
    ) -> Any:
        """A query for any of the clauses within the sets of ids."""
        import tantivy

        query, must = tantivy.Query, tantivy.Occur.Must
        filters = [
            (
                must,
                query.const_score_query(
                    query.term_set_query(self._index.schema, name, list(ids)), 0.0
                ),
            )
            for name, ids in sets.items()
            if ids is not None
        ]
        words = query.boolean_query(list(clauses))
        return query.boolean_query([*filters, (must, words)]) if filters else words

    def _best(
        self,
        query: Any,
        k: int,
        allowed: Set[str] | None,
        held: Sequence[tuple[float, str]] = (),
    ) -> list[Candidate]:
        """The k best hits, among `allowed` if given; fetches more while the last one fetched might
        tie with the k-th.

        `held` are hits whose scores replace those of the query.
        """
        known, limit = {chunk_id for _, chunk_id in held}, k + 16 + len(held)
        if allowed is not None:
            limit += int(_MORE_HITS * k * self.count() / len(allowed))
        while True:
            fetched = self._hits(query, limit)
            found = sorted([*held, *(hit for hit in fetched if hit[1] not in known)])
            if allowed is not None:
                found = [hit for hit in found if hit[1] in allowed]
            if len(fetched) < limit or (len(found) >= k and fetched[-1][0] > found[k - 1][0]):
                return [
                    Candidate(chunk_id, -negative, "sparse") for negative, chunk_id in found[:k]
                ]
            limit *= 4

    def _hits(self, query: Any, limit: int) -> list[tuple[float, str]]:
        """(negative score, chunk id) of each hit, best first."""
        known = self._names
        with _reading():
            found = self._searcher.search(query, limit, count=False).hits
            return [
                (-score, known[address.segment_ord].get(address.doc) or self._name(address))
                for score, address in found
            ]

    def _name(self, address: Any) -> str:
        name = self._names[address.segment_ord][address.doc] = str(
            self._searcher.doc(address)["chunk_id"][0]
        )
        return name


# --- buckets ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Bucket:
    """The record of one bucket in `buckets.json`, or of merged ones in `merged.json`."""

    rows: int = 0
    name: str = ""  # derived from the content; also the name of the file with its terms
    segments: tuple[Json, ...] = ()  # in the form of meta.json


def bucket_of(doc_id: str, buckets: int) -> int:
    """The bucket of a document when there are `buckets`, by linear hashing (Litwin 1980)."""
    number = int.from_bytes(hashlib.sha256(doc_id.encode()).digest()[:4], "big")
    return _home(number % (1 << (buckets - 1).bit_length()), buckets)


def _home(bucket: int, buckets: int) -> int:
    """The bucket that has the documents of `bucket` when there are only `buckets`."""
    while bucket >= buckets:
        bucket -= 1 << (bucket.bit_length() - 1)
    return bucket


def _read_buckets(
    directory: Path, chinese: segmentation.Chinese, words: segmentation.Dictionary
) -> list[_Bucket]:
    """The buckets of an index; empty for an empty directory. Raises ProviderError if the index
    cannot take changes.
    """
    if not (directory / "meta.json").is_file():
        return []
    _index(directory, chinese, create=False)  # refuses an index with another tokenizer
    if not _has_places(directory) or not (directory / _BUCKETS).is_file():
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


def _has_places(directory: Path) -> bool:
    """False for an index of version 2 and before."""
    meta: Json = read_json(directory / "meta.json", REBUILD)
    return any(field["name"] == "sequence" for field in meta["schema"])


class _Spooled(Mapping[int, "list[IndexedRow]"]):
    """The rows of a new index by bucket, kept on disk and read bucket by bucket, as those of a
    large library do not fit into memory.
    """

    def __init__(self, folder: Path, rows: Iterable[IndexedRow]) -> None:
        self._folder = folder
        self.rows = 0
        self.buckets = 1
        folder.mkdir(parents=True)
        waiting = iter(rows)
        while some := list(itertools.islice(waiting, _ROWS_AT_ONCE)):
            self.rows += len(some)
            shares: dict[int, list[IndexedRow]] = {}
            for row in some:
                shares.setdefault(bucket_of(row.doc_id, _PARTS), []).append(row)
            for part, share in shares.items():
                with open(folder / str(part), "ab") as target:
                    target.write(orjson.dumps(share, option=orjson.OPT_APPEND_NEWLINE))

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
    held: Sequence[_Bucket],
    removed: Mapping[str, str],
    new: Sequence[IndexedRow],
    buckets_for: Callable[[int], int],
) -> tuple[dict[int, list[IndexedRow]], int]:
    """(rows of every changed bucket, new number of buckets)."""
    before = len(held)
    gone = {*removed, *(row.chunk_id for row in new)}
    pool: dict[int, list[IndexedRow]] = {}

    def take(number: int) -> None:
        if number < before and number not in pool:
            rows = _read_rows(directory, held[number]) if held[number].rows else []
            pool[number] = [row for row in rows if row.chunk_id not in gone]

    for doc_id in {*removed.values(), *(row.doc_id for row in new)} if held else ():
        take(bucket_of(doc_id, before))
    lost = sum(held[number].rows - len(rows) for number, rows in pool.items())
    after = buckets_for(sum(bucket.rows for bucket in held) - lost + len(new))
    for number in range(min(before, after), max(before, after)):  # added or dropped buckets
        for moved in (_home(number, before), _home(number, after), number) if held else ():
            take(moved)
    if before == after:
        changed, moving = pool, new
    else:
        changed = (
            {_home(number, after): [] for number in pool}
            if held
            else {number: [] for number in range(after)}
        )
        moving = [*(row for rows in pool.values() for row in rows), *new]
    for row in moving:
        changed.setdefault(bucket_of(row.doc_id, after), []).append(row)
    return changed, after


def _write_buckets(
    directory: Path,
    held: Sequence[_Bucket],
    changed: Mapping[int, list[IndexedRow]],
    after: int,
    chinese: segmentation.Chinese,
) -> None:
    """Write the changed buckets and the merged segments, then the files that list them; remove all
    other files.
    """
    scratch = directory / _SCRATCH
    buckets = [held[number] if number < len(held) else _Bucket() for number in range(after)]
    kept = {group.name: group for group in _read_list(directory / _MERGED)}
    written = set(changed)

    def merge(first: int) -> list[_Bucket]:
        """The buckets to search for the group that starts at `first`: one merged bucket if there is
        one or all of the group changed.
        """
        numbers = [n for n in range(first, after)[:_MERGED_BUCKETS] if buckets[n].rows]
        own = [buckets[number] for number in numbers]
        name = hashlib.sha256("".join(bucket.name for bucket in own).encode()).hexdigest()[:32]
        if name in kept:
            return [kept[name]]
        if len(own) < 2 or not written.issuperset(numbers):
            return own
        rows = (row for bucket in own for row in _read_rows(directory, bucket))
        meta = _write_segments(scratch / name, rows, chinese)
        segments = _rename_segments(scratch / name, directory, name, meta["segments"])
        return [_Bucket(sum(bucket.rows for bucket in own), name, segments)]

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
            itertools.chain.from_iterable(pool.map(merge, range(0, after, _MERGED_BUCKETS)))
        )
    shutil.rmtree(scratch)
    _, meta = done[0]
    segments = [segment for bucket in searched for segment in bucket.segments]
    names = {bucket.name for bucket in buckets}
    write_json(directory / _BUCKETS, buckets)
    write_json(directory / _MERGED, [bucket for bucket in searched if bucket.name not in names])
    write_json(directory / "meta.json", {**meta, "segments": segments, "opstamp": 0})
    named = {
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
        if path.name.split(".")[0] not in named:
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
        # one thread, so that equal rows make equal files
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
    """Move new segments to `target`, replacing their random names by ones from their content."""
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
            _schema(_TOKENIZERS[chinese], places=create or _has_places(directory)),
            path=str(directory),
        )
    # Terms are folded and stemmed before they reach the engine.
    index.register_tokenizer(
        _TOKENIZERS[chinese], tantivy.TextAnalyzerBuilder(tantivy.Tokenizer.whitespace()).build()
    )
    return index


def _schema(tokenizer: str, *, places: bool) -> Any:
    import tantivy

    builder = tantivy.SchemaBuilder()
    builder.add_text_field("chunk_id", stored=True, tokenizer_name="raw", index_option="basic")
    builder.add_text_field("doc_id", tokenizer_name="raw", index_option="basic")
    builder.add_text_field("text", tokenizer_name=tokenizer, index_option="freq")
    builder.add_text_field("headings", tokenizer_name=tokenizer, index_option="freq")
    if places:
        builder.add_text_field("sequence", tokenizer_name=tokenizer, index_option="position")
    return builder.build()
