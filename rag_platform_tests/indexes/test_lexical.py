"""What goes into the word index."""

from __future__ import annotations

import random
import shutil
import unicodedata
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rag_platform.errors import ProviderError
from rag_platform.indexes.lexical import row_hash, row_of
from rag_platform.ir import Chunk, LexicalRow, View
from rag_platform.providers import tantivy
from rag_platform.providers.tantivy import Tantivy, bucket_of
from rag_platform.providers.term_analysis import Analysis
from rag_platform.storage.store import read_json
from rag_platform.text.scripts import simplify
from rag_platform.text.segmentation import (
    MAX_TERM_CHARS,
    Chinese,
    dictionary_terms,
    fold_semitic,
    is_identifier,
    terms,
    to_nfkc,
)

CHUNK = Chunk("c", "s", "d", "v", 0, "text", "f", 0, 4, 0, 4, "Guide / Part")


def test_row_holds_the_sparse_text_and_the_section_path() -> None:
    assert row_of(CHUNK, View("c", "dense", "sparse", "h")) == LexicalRow(
        "c", "d", "sparse", "Guide / Part"
    )
    named = row_of(CHUNK, View("c", "dense", "sparse", "h"), "ADOBE_2022-10K.v2.pdf")
    assert named == LexicalRow("c", "d", "sparse", "Guide / Part\nADOBE 2022 10K v2")
    assert row_of(CHUNK, View("c", "dense", " \n", "h")) is None


def test_the_names_of_what_a_chunk_describes_are_headings() -> None:
    chunk = replace(
        CHUNK, chunk_text="**`speed` (`int`)**\n\nIn **bold** words.\n\n### max_size\n80"
    )
    row = row_of(chunk, View("c", "dense", "sparse", "h"))
    assert row is not None
    assert row.headings.splitlines()[-2:] == ["**`speed` (`int`)**", "### max_size"]
    member = replace(CHUNK, section_path="Class Jar / Methods / open")
    row = row_of(member, View("c", "dense", "sparse", "h"))
    assert row is not None
    assert row.headings.splitlines()[-1] == "Jar.open"


def test_row_hash_changes_with_text_and_headings_only() -> None:
    row = LexicalRow("c", "d", "text", "Guide")
    assert row_hash(None) == ""
    assert row_hash(row) == row_hash(LexicalRow("other", "d2", "text", "Guide"))
    assert (
        len(
            {
                row_hash(row),
                row_hash(LexicalRow("c", "d", "text!", "Guide")),
                row_hash(LexicalRow("c", "d", "text", "Guide!")),
            }
        )
        == 3
    )


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("The Widget's", ["the", "widget's"]),
        ("PPR-9087", ["ppr-9087", "ppr", "9087"]),
        ("foo_bar", ["foo_bar", "foo", "bar"]),
        ("getHTTPResponse", ["gethttpresponse", "get", "http", "response"]),
        ("v1.2.3", ["v1.2.3", "1.2.3", "v1", "1", "2", "3"]),
        ("src/app/main.py", ["src/app/main.py", "src", "app", "main", "py"]),
        ("C++, C# and .NET", ["c++", "c#", "and", ".net", "net"]),
        ("app.max_size", ["app.max_size", "max_size", "app", "max", "size"]),
        ("use-it/run-all.sh", "use-it/run-all.sh use-it run-all use it run all sh".split()),
        ("user@example.com", ["user@example.com", "user", "example", "com"]),
        ("年假制度", ["年", "假", "制", "度", "年假", "假制", "制度"]),
        ("API网关v2", ["api", "api网", "网", "关", "网关", "关v2", "v2", "2"]),
        ("漢字", ["汉", "字", "汉字"]),
        ("タワー", ["タ", "ワ", "ー", "タワ", "ワー"]),
        ("ＡＢＣ　１２", ["abc", "12"]),
        ("end.Next ... (a) -x", ["end.next", "end", "next", "a", "x"]),
        ("？！…", []),
    ],
)
def test_terms(text: str, expected: list[str]) -> None:
    assert terms(text) == expected


@pytest.mark.parametrize(
    ("text", "pairs", "words"),
    [
        (
            "南京市长江大桥",
            "南 京 市 长 江 大 桥 南京 京市 市长 长江 江大 大桥",
            "南京 京市 南京市 长江 大桥 长江大桥",
        ),
        ("休假制度", "休 假 制 度 休假 假制 制度", "休假 制度"),
        ("病假", "病 假 病假", "病假"),
        ("年假", "年 假 年假", "年 假"),  # no word of the dictionary
        ("API网关v2", "api api网 网 关 网关 关v2 v2 2", "api api网 网关 关v2 v2 2"),
        ("タワー、タワ", "タ ワ ー タワ ワー タ ワ タワ", "タ ワ ー タワ ワー タ ワ タワ"),
        ("PPR-9087", "ppr-9087 ppr 9087", "ppr-9087 ppr 9087"),
        ("？！…", "", ""),
    ],
)
def test_chinese_in_pairs_or_words(text: str, pairs: str, words: str) -> None:
    assert terms(text) == terms(text, "pairs") == pairs.split()
    assert terms(text, "words") == words.split()


def test_words_that_other_code_adds_to_the_dictionary_change_no_term() -> None:
    import rjieba

    before = dictionary_terms("年假制度")
    rjieba.add_word("年假制度", 100_000, "n")
    try:
        assert rjieba.cut("年假制度") == ["年假制度"]
        assert dictionary_terms("年假制度") == before == ["年", "假", "制度"]
    finally:
        rjieba.clear()


@pytest.mark.parametrize(
    ("term", "expected"),
    [
        ("ppr-9087", True),
        ("foo_bar", True),
        ("v1", True),
        ("a/b", True),
        ("boundary-layer", False),
        ("word", False),
        ("42", False),
        ("年假", False),
    ],
)
def test_is_identifier(term: str, expected: bool) -> None:
    assert is_identifier(term) is expected


@given(st.text(max_size=200), st.sampled_from(["pairs", "words"]))
def test_terms_hold_no_white_space_and_are_short(text: str, chinese: Chinese) -> None:
    for term in terms(text, chinese):
        assert term and term.split() == [term] and len(term) <= MAX_TERM_CHARS


@given(
    st.text(alphabet="abcXYZ09._-/年假南京市长江大桥 ", max_size=60),
    st.sampled_from(["pairs", "words"]),
)
def test_every_letter_and_digit_is_found_in_some_term(text: str, chinese: Chinese) -> None:
    together = "".join(terms(text, chinese))
    assert all(character.lower() in together for character in text if character.isalnum())


@pytest.mark.integration
def test_a_release_is_asked_as_it_was_built_whatever_its_strategy_says_now(
    shelf: Any, config_folder: Path, tmp_path: Path
) -> None:
    strategies = config_folder / "strategies"
    tiny = (strategies / "tiny.yaml").read_text(encoding="utf-8")
    words = tiny + "lexical: {provider: tantivy, options: {chinese: words}}\n"
    (strategies / "words.yaml").write_text(words, encoding="utf-8")
    (tmp_path / "bridge.md").write_text(
        "# 南京市长江大桥\n\n南京市长江大桥于一九六八年通车。\n", encoding="utf-8"
    )
    first = shelf.ingest(tmp_path / "bridge.md", strategy="words")

    def found(query: str) -> int:
        with shelf.library().lease("default") as lease:
            assert lease.release.lexical is not None
            return len(lease.release.lexical.search(query, 5))

    assert (found("长江大桥"), found("市长")) == (1, 0)
    (strategies / "words.yaml").write_text(
        words.replace("chinese: words", "chinese: pairs"), encoding="utf-8"
    )
    assert (found("长江大桥"), found("市长")) == (1, 0)
    (tmp_path / "other.md").write_text("# 上海\n\n上海在江苏以南。\n", encoding="utf-8")
    # built anew: an index of the other cut takes no delta
    assert shelf.ingest(tmp_path / "other.md", strategy="words") != first
    assert (found("长江大桥"), found("市长")) == (2, 1)


# --- buckets ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rows", "buckets"),
    [(0, 1), (5_000, 5), (100_000, 56), (227_999, 56), (228_000, 57), (1_000_000, 250)],
)
def test_no_bucket_of_a_large_index_holds_more_than_4000_chunks(rows: int, buckets: int) -> None:
    assert Tantivy()._count_buckets(rows) == buckets
    assert Tantivy()._count_buckets(10**9) == 1_024


def test_a_first_index_waits_on_disk_for_its_buckets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows that come in many shares make the files of those that come at once."""
    rows = [LexicalRow(f"c{n}", f"d{n // 3}", f"common words and {n}", "Guide") for n in range(90)]
    for name, share, order in (("once", 8_192, rows), ("shares", 7, rows[::-1])):
        monkeypatch.setattr(tantivy, "_ROWS_AT_ONCE", share)
        Tantivy(bucket_rows=20).update(tmp_path / name, removed={}, rows=iter(order))
    once, shares = (
        {path.name: path.read_bytes() for path in (tmp_path / name).iterdir()}
        for name in ("once", "shares")
    )
    assert once == shares and len(read_json(tmp_path / "once" / "buckets.json")) == 4


@pytest.mark.parametrize("buckets", [1, 2, 3, 4, 5, 7, 8, 16, 47])
def test_one_bucket_more_takes_documents_from_a_single_other_one(buckets: int) -> None:
    moved = {
        (before, after)
        for before, after in (
            (bucket_of(f"d{n}", buckets), bucket_of(f"d{n}", buckets + 1)) for n in range(4000)
        )
        if before != after
    }
    assert len(moved) == 1 and moved.pop()[1] == buckets


def files(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in directory.iterdir() if path.suffix != ".lock"}


def test_a_change_rewrites_the_buckets_of_its_documents_and_the_bytes_are_those_of_a_full_build(
    tmp_path: Path,
) -> None:
    rng = random.Random(5)
    vocabulary = [
        *"年假制度员工医生证明网关端口",
        *(f"word{n}" for n in range(400)),
        "PPR-9087",
        "v1.2.3",
    ]

    def row(number: int, document: int) -> LexicalRow:
        words = (
            vocabulary[min(int(rng.paretovariate(0.6)), len(vocabulary)) - 1]
            for _ in range(rng.randrange(5, 60))
        )
        return LexicalRow(
            f"c{number:05}", f"d{document:03}", " ".join(words), f"Guide / Part {document % 7}"
        )

    rows = {number: row(number, number // 10) for number in range(3000)}
    index = Tantivy(bucket_rows=200)
    index.update(tmp_path / "grown", removed={}, rows=rows.values())
    before = files(tmp_path / "grown")
    gone = {f"c{number:05}": f"d{number // 10:03}" for number in range(20)}
    added = {3000 + number: row(3000 + number, number) for number in range(8)}
    index.update(tmp_path / "grown", removed=gone, rows=added.values())
    whole = {n: r for n, r in rows.items() if r.chunk_id not in gone} | added
    index.update(tmp_path / "built", removed={}, rows=sorted(whole.values(), key=lambda r: r.text))
    after = files(tmp_path / "grown")
    # what is searched of them depends on which buckets were written together
    own = {name for name in after if name not in {"meta.json", "merged.json"}}
    whole_build = files(tmp_path / "built")
    assert {name: whole_build[name] for name in own} == {name: after[name] for name in own}
    # at most one bucket for each document, and a split
    assert sum(name in before for name in after if name.endswith(".parquet")) >= 15 - 9
    grown, built = index.open(tmp_path / "grown"), index.open(tmp_path / "built")
    assert grown.count() == 2988 and grown.ids() == built.ids()
    for _ in range(30):
        query = " ".join(rng.choices(vocabulary, k=5))
        assert grown.search(query, 40) == built.search(query, 40)


def test_eight_buckets_are_searched_as_one_until_one_of_them_changes(tmp_path: Path) -> None:
    def row(number: int, text: str) -> LexicalRow:
        return LexicalRow(f"c{number:03}", f"d{number:03}", text, "Guide")

    rows = {
        number: row(number, f"lock gate {number % 7} " * (number % 5 + 1)) for number in range(330)
    }
    index = Tantivy(bucket_rows=20)

    def searched() -> int:
        """Segments, where every answer is that of an index of the same rows built anew."""
        shutil.rmtree(tmp_path / "anew", ignore_errors=True)
        index.update(tmp_path / "anew", removed={}, rows=rows.values())
        grown, anew = index.open(tmp_path / "grown"), index.open(tmp_path / "anew")
        assert grown.count() == anew.count() == len(rows)
        for query in ("lock", "gate 3", "changed lock", "lock gate 6"):
            assert grown.search(query, 40) == anew.search(query, 40)
        return len(read_json(tmp_path / "grown" / "meta.json")["segments"])

    index.update(tmp_path / "grown", removed={}, rows=rows.values())
    assert searched() == 2  # of 16 buckets
    rows[5] = row(5, "changed lock")
    index.update(tmp_path / "grown", removed={"c005": "d005"}, rows=[rows[5]])
    assert searched() == 1 + 8
    other = next(n for n in rows if (bucket_of(f"d{n:03}", 16) < 8) != (bucket_of("d005", 16) < 8))
    del rows[other]
    index.update(tmp_path / "grown", removed={f"c{other:03}": f"d{other:03}"}, rows=[])
    assert searched() == 8 + 8
    for number in rows:
        rows[number] = row(number, f"changed lock {number}")
    index.update(
        tmp_path / "grown",
        removed={r.chunk_id: r.doc_id for r in rows.values()},
        rows=rows.values(),
    )
    assert searched() == 2


def test_an_index_of_an_older_program_is_read_and_takes_no_change(tmp_path: Path) -> None:
    index = Tantivy()
    index.update(tmp_path, removed={}, rows=[LexicalRow("c1", "d1", "gate", "")])
    (tmp_path / "buckets.json").unlink()
    assert [hit.chunk_id for hit in index.open(tmp_path).search("gates", 5)] == ["c1"]
    with pytest.raises(ProviderError, match=r"older program.*rag rebuild"):
        index.update(tmp_path, removed={"c1": "d1"}, rows=[])


def test_an_index_without_places_of_words_is_read_and_takes_no_change(tmp_path: Path) -> None:
    # as version 2 of the program wrote it
    import tantivy

    from rag_platform.storage.store import write_json

    builder = tantivy.SchemaBuilder()
    builder.add_text_field("chunk_id", stored=True, tokenizer_name="raw", index_option="basic")
    builder.add_text_field("doc_id", tokenizer_name="raw", index_option="basic")
    for name in ("text", "headings"):
        builder.add_text_field(name, tokenizer_name="terms", index_option="freq")
    old = tantivy.Index(builder.build(), path=str(tmp_path))
    old.register_tokenizer(
        "terms", tantivy.TextAnalyzerBuilder(tantivy.Tokenizer.whitespace()).build()
    )
    writer = old.writer(heap_size=50_000_000, num_threads=1)
    for number, text in enumerate(("lock gate", "gate lock gate")):
        writer.add_document(
            tantivy.Document(chunk_id=f"c{number}", doc_id="d", text=text, headings="")
        )
    writer.commit()
    writer.wait_merging_threads()
    write_json(tmp_path / "buckets.json", [])
    index = Tantivy()
    reader = index.open(tmp_path)
    assert [hit.chunk_id for hit in reader.search("gates", 5)] == ["c1", "c0"]
    assert reader.search("lock gate", 5, phrases=["lock gate"]) == reader.search("lock gate", 5)
    with pytest.raises(ProviderError, match=r"older program.*rag rebuild"):
        index.update(tmp_path, removed={}, rows=[LexicalRow("c1", "d1", "gate", "")])


def test_a_latin_word_within_a_chinese_question_counts_as_a_name() -> None:
    analysis = Analysis()
    assert analysis.weights("ge 表示") == {"ge": 2.0, "表": 1.0, "示": 1.0, "表示": 1.0}
    assert analysis.weights("ge means") == {"ge": 1.0, "mean": 1.0}
    # what identifiers weigh is said by the index
    assert Analysis(identifier_boost=2.0).weights("重试 foo_bar 3")["foo_bar"] == 2.0


@given(st.text() | st.text(alphabet="a，：；！？（）ﬁ\u0301\u0338e　…％中"))
def test_normalized_is_nfkc(text: str) -> None:
    assert to_nfkc(text) == fold_semitic(simplify(unicodedata.normalize("NFKC", text)))
