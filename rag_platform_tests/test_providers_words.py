"""What every word index must do, run over the whole registry."""

from __future__ import annotations

import dataclasses
import random
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as examples
from hypothesis import strategies as st

from rag_platform.config.profiles import index_profile, store_profiles
from rag_platform.config.query import ProviderConfig
from rag_platform.config.settings import Settings
from rag_platform.config.strategies import load_strategy
from rag_platform.errors import ConfigError, ProviderError
from rag_platform.ir import LexicalRow
from rag_platform.protocols import LexicalIndex, LexicalReader
from rag_platform.providers import tantivy
from rag_platform.registry import PROVIDERS, make_provider

ROWS = [
    LexicalRow(
        "c1", "d1", "The widget PPR-9087 needs a licence; set max_retry_count.", "Guide / Errors"
    ),
    LexicalRow("c2", "d1", "Release v1.2.3 runs faster.", "Guide / Releases"),
    LexicalRow("c3", "d2", "员工每年有十五天带薪年假。", "制度"),
    LexicalRow("c5", "d3", "twin text", ""),
    LexicalRow("c4", "d4", "twin text", ""),
]


# Options that change what an index holds; each is one more provider to this suite.
LEXICAL_VARIANTS: dict[str, list[dict[str, Any]]] = {
    "tantivy": [{"chinese": "pairs"}, {"chinese": "words"}, {"bucket_rows": 2, "max_buckets": 5}],
    "fts5": [{"chinese": "pairs"}, {"chinese": "words"}],
}
LEXICAL = [
    (name, options)
    for name in sorted(PROVIDERS["lexical_index"])
    for options in LEXICAL_VARIANTS.get(name, [{}])
]


@pytest.fixture(
    params=LEXICAL, ids=lambda param: "-".join(map(str, [param[0], *param[1].values()]))
)
def lexical_index(request: pytest.FixtureRequest) -> LexicalIndex:
    name, options = request.param
    built: LexicalIndex = make_provider("lexical_index", name, options)
    return built


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("PPR-9087", ["c1"]),
        ("ppr9087", ["c1"]),
        ("9087", ["c1"]),
        ("ＰＰＲ－９０８７", ["c1"]),
        ("maxRetryCount", ["c1"]),
        ("retry", ["c1"]),
        ("v1.2.3", ["c2"]),
        ("1.2.3", ["c2"]),
        ("running", ["c2"]),
        ("年假", ["c3"]),
        ("带薪年假有几天", ["c3"]),
        ("errors", ["c1"]),
        ("twin", ["c4", "c5"]),
        ("absent", []),
        ("", []),
        ("？！", []),
        ('twin AND NOT ("', ["c4", "c5"]),
        ("body:* NEAR/7 twin^9", ["c4", "c5"]),
    ],
)
def test_lexical_finds_words_identifiers_and_chinese(
    lexical_index: LexicalIndex, tmp_path: Path, query: str, expected: list[str]
) -> None:
    lexical_index.update(tmp_path / "index", removed={}, rows=ROWS)
    assert [
        hit.chunk_id for hit in lexical_index.open(tmp_path / "index").search(query, 10)
    ] == expected


def test_lexical_orders_by_score_then_id_also_at_the_cut(
    lexical_index: LexicalIndex, tmp_path: Path
) -> None:
    rows = [LexicalRow(f"c{number:03}", "d", "same words", "") for number in range(99, -1, -1)]
    lexical_index.update(tmp_path / "index", removed={}, rows=rows)
    reader = lexical_index.open(tmp_path / "index")
    assert [hit.chunk_id for hit in reader.search("words", 3)] == ["c000", "c001", "c002"]
    scores = [hit.score for hit in reader.search("same words", 100)]
    assert len(scores) == 100 and scores == sorted(scores, reverse=True)
    assert reader.search("words", 0) == []


def test_lexical_filters_have_one_meaning(lexical_index: LexicalIndex, tmp_path: Path) -> None:
    lexical_index.update(tmp_path / "index", removed={}, rows=ROWS)
    reader = lexical_index.open(tmp_path / "index")

    def found(**filters: Any) -> list[str]:
        return [hit.chunk_id for hit in reader.search("twin release", 10, **filters)]

    assert found() == ["c2", "c4", "c5"]
    assert found(chunk_ids=["c5", "unknown"]) == ["c5"]
    assert found(chunk_ids=["c2", "c4"]) == ["c2", "c4"] and found(chunk_ids=[]) == []


def test_lexical_large_filter_equals_a_small_one(
    lexical_index: LexicalIndex, tmp_path: Path
) -> None:
    rows = [
        LexicalRow(f"c{number:05}", "d", f"word{number % 7} common", "") for number in range(7000)
    ]
    lexical_index.update(tmp_path / "index", removed={}, rows=rows)
    reader = lexical_index.open(tmp_path / "index")
    allowed = {row.chunk_id for row in rows[1:6000]}
    large = [hit.chunk_id for hit in reader.search("word3 common", 20, chunk_ids=allowed)]
    assert (
        large
        == [row.chunk_id for row in rows if row.chunk_id in allowed and "word3" in row.text][:20]
    )
    small = set(large[:10])
    assert [hit.chunk_id for hit in reader.search("word3 common", 20, chunk_ids=small)] == sorted(
        small
    )


def test_lexical_update_removes_replaces_and_leaves_open_readers_alone(
    lexical_index: LexicalIndex, tmp_path: Path
) -> None:
    lexical_index.update(tmp_path / "index", removed={}, rows=ROWS)
    before = lexical_index.open(tmp_path / "index")
    replaced = dataclasses.replace(ROWS[1], text="Release v2.0 is out.")
    lexical_index.update(
        tmp_path / "index", removed={"c2": "d1", "c3": "d2", "never-there": "d9"}, rows=[replaced]
    )
    after = lexical_index.open(tmp_path / "index")
    assert (after.count(), after.ids()) == (4, {"c1", "c2", "c4", "c5"})
    assert after.search("faster 年假", 5) == []
    assert [hit.chunk_id for hit in after.search("v2.0", 5)] == ["c2"]
    assert before.count() == 5


WORDS = ("gate", "Gate", "lock", "PPR-9087", "年假", "制度", "retry_count", "the", "")
CHANGES = st.lists(
    st.dictionaries(
        st.integers(0, 11), st.lists(st.sampled_from(WORDS), max_size=6).map(" ".join), max_size=6
    ),
    max_size=4,
)


def found(index: LexicalIndex, directory: Path) -> list[list[tuple[str, float]]]:
    reader = index.open(directory)
    more: dict[str, Any] = {"expansions": [("gate 制度", 0.4)], "phrases": ["gate lock", "制度"]}
    return [
        [(hit.chunk_id, hit.score) for hit in reader.search(f"{word} lock 年假有几天", 50, **more)]
        for word in WORDS
    ]


@examples(
    max_examples=5, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(CHANGES)
def test_lexical_scores_do_not_depend_on_the_history(
    lexical_index: LexicalIndex,
    tmp_path_factory: pytest.TempPathFactory,
    changes: list[dict[int, str]],
) -> None:
    folder = tmp_path_factory.mktemp("words")
    held: dict[str, LexicalRow] = {}
    for change in [{0: "gate lock", 1: "年假制度"}, *changes]:
        # chunk n belongs to document n // 3; a text without words stands for a chunk that goes
        new = {
            f"c{n:02}": LexicalRow(f"c{n:02}", f"d{n // 3}", text, "Guide / Part")
            for n, text in change.items()
        }
        removed = {chunk_id: row.doc_id for chunk_id, row in held.items() if chunk_id in new}
        rows = [row for row in new.values() if row.text.strip()]
        lexical_index.update(folder / "grown", removed=removed, rows=rows)
        held = {key: row for key, row in held.items() if key not in removed} | {
            row.chunk_id: row for row in rows
        }
    lexical_index.update(folder / "built", removed={}, rows=held.values())
    assert lexical_index.open(folder / "grown").ids() == set(held)
    assert found(lexical_index, folder / "grown") == found(lexical_index, folder / "built")


def test_lexical_empty_index_opens_and_a_missing_one_is_an_error(
    lexical_index: LexicalIndex, tmp_path: Path
) -> None:
    lexical_index.update(tmp_path / "index", removed={}, rows=())
    reader = lexical_index.open(tmp_path / "index")
    assert (reader.count(), reader.ids(), reader.search("word", 5)) == (0, set(), [])
    with pytest.raises(ProviderError, match="rag rebuild"):
        lexical_index.open(tmp_path / "nothing")


@pytest.mark.parametrize("name", sorted(PROVIDERS["lexical_index"]))
@pytest.mark.parametrize(("built", "asked"), [("pairs", "words"), ("words", "pairs")])
def test_lexical_refuses_an_index_whose_chinese_was_cut_the_other_way(
    tmp_path: Path, name: str, built: str, asked: str
) -> None:
    made, other = (
        make_provider("lexical_index", name, {"chinese": built}),
        make_provider("lexical_index", name, {"chinese": asked}),
    )
    made.update(tmp_path / "index", removed={}, rows=ROWS)
    with pytest.raises(ProviderError, match=r"schema does not match.*rag rebuild"):
        other.open(tmp_path / "index")
    with pytest.raises(ProviderError, match=r"schema does not match.*rag rebuild"):
        other.update(tmp_path / "index", removed={"c1": "d1"}, rows=())
    assert made.open(tmp_path / "index").count() == 5


@pytest.mark.parametrize("name", sorted(PROVIDERS["lexical_index"]))
def test_lexical_cuts_chinese_as_its_option_says(tmp_path: Path, name: str) -> None:
    def found(chinese: str, query: str) -> list[str]:
        index: LexicalIndex = make_provider("lexical_index", name, {"chinese": chinese})
        if not (tmp_path / chinese).exists():
            index.update(
                tmp_path / chinese, removed={}, rows=[LexicalRow("c1", "d", "南京市长江大桥", "")]
            )
        return [hit.chunk_id for hit in index.open(tmp_path / chinese).search(query, 5)]

    assert found("pairs", "市长") == ["c1"]  # across the words
    assert found("words", "市长") == []
    assert found("pairs", "大桥") == found("words", "大桥") == ["c1"]
    with pytest.raises(
        ConfigError, match="chinese is 'letters': input should be 'pairs' or 'words'"
    ):
        make_provider("lexical_index", name, {"chinese": "letters"})


def test_lexical_takes_huge_and_odd_input(lexical_index: LexicalIndex, tmp_path: Path) -> None:
    rows = [
        LexicalRow("c1", "d", "x" * 100_000 + " end", ""),
        LexicalRow("c2", "d", "word " * 20_000, ""),
        LexicalRow("c3", "d", "\0 \u2028", ""),
    ]
    lexical_index.update(tmp_path / "index", removed={}, rows=rows)
    reader = lexical_index.open(tmp_path / "index")
    assert reader.count() == 3
    assert [hit.chunk_id for hit in reader.search("end " * 4000, 5)] == ["c1"]


# --- expansions, phrases, dictionary ------------------------------------------------------------


def opened(index: LexicalIndex, directory: Path, *texts: str) -> LexicalReader:
    """A reader over chunks c0, c1, ... of these texts, each of a document of its own."""
    index.update(
        directory,
        removed={},
        rows=[LexicalRow(f"c{n}", f"d{n}", text, "") for n, text in enumerate(texts)],
    )
    return index.open(directory)


def ids(reader: LexicalReader, query: str, **more: Any) -> list[str]:
    return [hit.chunk_id for hit in reader.search(query, 50, **more)]


def test_lexical_expansions_find_more_and_weigh_less(
    lexical_index: LexicalIndex, tmp_path: Path
) -> None:
    reader = opened(
        lexical_index,
        tmp_path / "index",
        "car repair",
        "automobile repair",
        "带薪年假",
        "休假安排",
        *["filler words"] * 8,
    )
    assert ids(reader, "car") == ["c0"]
    assert ids(reader, "car", expansions=[("automobile", 0.4)]) == ["c0", "c1"]
    assert ids(reader, "car", expansions=[("automobile", 0.0)]) == ["c0"]
    assert ids(reader, "年假", expansions=[("休假", 0.4)])[0] == "c2"
    assert "c3" in ids(reader, "年假", expansions=[("休假", 0.4)])
    # what the question says itself gains nothing, and the heaviest of two expansions counts
    assert reader.search("car", 5, expansions=[("car", 0.9)]) == reader.search("car", 5)
    twice, once = ([("automobile", 0.2), ("Automobiles", 0.4)], [("automobile", 0.4)])
    assert reader.search("car", 5, expansions=twice) == reader.search("car", 5, expansions=once)


def test_lexical_chunks_that_hold_a_word_are_counted(
    lexical_index: LexicalIndex, tmp_path: Path
) -> None:
    rows = [
        LexicalRow("c0", "d0", "Boeing builds planes", "Airbus"),
        LexicalRow("c1", "d0", "planes of Boeing, 波音公司", ""),
        LexicalRow("c2", "d1", "Airbus builds planes, too", ""),
    ]
    lexical_index.update(tmp_path / "index", removed={}, rows=rows)
    reader = lexical_index.open(tmp_path / "index")
    assert [
        reader.doc_freq(words)
        for words in ("boeing", "plane", "Airbus", "boeing planes", "boeing airbus", "never")
    ] == [
        2,
        3,
        1,
        2,
        0,
        0,
    ]
    assert reader.doc_freq("波音") == 1 and reader.doc_freq("") == 0 and reader.doc_freq('"') == 0
    assert [
        reader.doc_freq("planes", ids) for ids in (["d0"], ["d1"], ["d0", "d1"], [], ["d9"])
    ] == [2, 1, 3, 0, 0]


def test_lexical_phrases_are_found_in_order_and_whole(
    lexical_index: LexicalIndex, tmp_path: Path
) -> None:
    filler = ["other things altogether"] * 10
    reader = opened(
        lexical_index,
        tmp_path / "index",
        "gate lock. gate lock. lock gate",
        "a long text about the lock of some gate lock",
        "lock the gate",
        "PPR-9087 lock 年假制度",
        "制度年假",
        "Łódź café gates lock",
        *filler,
    )
    assert ids(reader, "lock gate", phrases=["lock gate"])[0] == "c0"
    assert set(ids(reader, "gate lock", phrases=["gate lock"])[:2]) == {"c0", "c1"}
    assert ids(reader, "the gate", phrases=["the gate"])[0] == "c2"
    assert ids(reader, "ppr-9087 lock", phrases=["PPR-9087 LOCK"])[0] == "c3"
    assert (
        ids(reader, "年假制度", phrases=["年假制度"])[0] == "c3"
        and ids(reader, "制度年假", phrases=["制度年假"])[0] == "c4"
    )
    assert ids(reader, "cafe gates", phrases=["CAFE Gates"])[0] == "c5"
    assert ids(reader, "lock", phrases=["lock"])[0] in {"c0", "c1", "c2", "c3", "c5"}
    assert ids(reader, "gate lock", phrases=["gate lock"], chunk_ids=["c2", "c1"]) == ["c1", "c2"]
    for nothing in ([""], ['"'], ["？"], ["never seen"], ["gate never"]):
        assert reader.search("gate lock", 5, phrases=nothing) == reader.search("gate lock", 5)


def test_lexical_phrase_does_not_reach_from_the_headings_into_the_text(
    lexical_index: LexicalIndex, tmp_path: Path
) -> None:
    rows = [
        LexicalRow("c1", "d", "lock here", "The gate"),
        LexicalRow("c2", "d", "here the gate", "The gate lock and more"),
    ]
    lexical_index.update(
        tmp_path / "index", removed={}, rows=[*rows, LexicalRow("c3", "d", "more text", "")]
    )
    reader = lexical_index.open(tmp_path / "index")
    assert ids(reader, "gate lock", phrases=["gate lock"])[0] == "c2"
    assert reader.search("lock", 1, phrases=["gate lock here"]) == reader.search("lock", 1)


@pytest.mark.parametrize(
    "alphabet",
    [
        "oak elm ash fir yew bay box may fig lime pear plum".split(),
        list("天地玄黄宇宙洪荒日月盈昃"),
    ],
    ids=["english", "chinese"],
)
def test_lexical_phrase_comes_above_the_same_words_apart(
    lexical_index: LexicalIndex, tmp_path: Path, alphabet: list[str]
) -> None:
    chance, space = random.Random(5), "" if len(alphabet[0]) == 1 else " "
    phrases = [chance.sample(alphabet, chance.randint(2, 5)) for _ in range(60)]
    texts = []
    for phrase in phrases:
        other = [word for word in alphabet if word not in phrase]
        # long, each word once
        texts.append(space.join(chance.choices(other, k=40) + phrase + chance.choices(other, k=40)))
        texts.append(space.join(phrase[::-1] * 2))  # short, each word twice, the other way round
    reader = opened(lexical_index, tmp_path / "index", *texts)
    for phrase in phrases:
        text = space.join(phrase)
        hits, holding = (
            ids(reader, text, phrases=[text]),
            {f"c{n}" for n, held in enumerate(texts) if text in held},
        )
        assert set(hits[: len(holding)]) == holding


@pytest.mark.parametrize("rare", [0, 200])
def test_lexical_rare_phrase_is_scored_alike_however_it_is_looked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rare: int
) -> None:
    chance = random.Random(2)
    texts = [
        " ".join(chance.choices("gate lock belt lane chute NT-00012 NT-00013".split(), k=12))
        for _ in range(120)
    ]
    texts[7], texts[90] = "gate lock PPR-9087 belt", "lane PPR-9087"
    reader = opened(
        make_provider("lexical_index", "tantivy", {"bucket_rows": 20}), tmp_path / "index", *texts
    )
    # every hit, so nothing can be passed over
    whole = reader.search("gate belt PPR-9087", len(texts), phrases=["gate lock"])
    monkeypatch.setattr(tantivy, "_RARE", rare)
    for k in (1, 2, 5, 40):
        assert [
            (hit.chunk_id, round(hit.score, 4))
            for hit in reader.search("gate belt PPR-9087", k, phrases=["gate lock"])
        ] == [(hit.chunk_id, round(hit.score, 4)) for hit in whole[:k]]
    few = reader.search(
        "gate belt PPR-9087", 2, phrases=["gate lock"], chunk_ids=["c7", "c8", "c90"]
    )
    assert [(hit.chunk_id, round(hit.score, 4)) for hit in few] == [
        (hit.chunk_id, round(hit.score, 4)) for hit in whole if hit.chunk_id in ("c7", "c8", "c90")
    ][:2]


def test_lexical_exact_names_come_above_their_parts(
    lexical_index: LexicalIndex, tmp_path: Path
) -> None:
    long = "这是一段很长的说明文字，用来使这个文本比别的文本更长，因此词频的分数更低。"
    texts = [
        *(
            f"{long}型号XK7-三代，{long}",
            "XK7-三年",
            "型号XK7-四代",
            f"{long}GB/T 19001-2016。{long}",
            "GB/K 19001-2016",
        ),
        *("买了T恤", "恤T", f"{long}v3.1.1-rc4{long}", "v3.0.1-rc4 1 1", "foo_bar", "bar foo bar"),
    ]
    reader = opened(lexical_index, tmp_path / "index", *texts, *["other words"] * 10)
    for query, first in (
        ("型号XK7-三代", 0),
        ("型号XK7-三代在哪里用？", 0),
        ("GB/T 19001-2016", 3),
        ("T恤", 5),
        ("v3.1.1-RC4", 7),
        ("foo_bar", 9),
    ):
        assert ids(reader, query)[0] == f"c{first}", query
    many = " ".join(f"a{n}-{n}" for n in range(900))  # more names than an engine takes
    assert ids(reader, f"foo_bar {many}")[0] == "c9"


def test_lexical_dictionary_keeps_names_whole(tmp_path: Path) -> None:
    texts = [
        "阿里云ECS实例",
        "阿里云与别的ECS",
        "买了T恤",
        "恤T",
        "A股上涨",
        "华为P50-Pro手机",
        "Visual  Studio Code",
        "studio of visual code",
        "specs",
    ]
    words = ["阿里云ecs", "T恤", "a股", "华为P50-Pro", "visual studio", "ECS", "  "]
    for name in sorted(PROVIDERS["lexical_index"]):
        index: LexicalIndex = make_provider("lexical_index", name, {"dictionary": words})
        reader = opened(index, tmp_path / name, *texts)
        firsts = [
            ids(reader, query)[0]
            for query in ("阿里云ECS", "T恤", "A股", "华为P50-Pro", "Visual Studio")
        ]
        assert firsts == ["c0", "c2", "c4", "c5", "c6"]
        assert ids(reader, "ecs") == ["c0", "c1"]  # not inside of `specs`
        # the index keeps its own words: a reader with others reads it all the same, a change with
        # others is refused
        other: LexicalIndex = make_provider("lexical_index", name, {"dictionary": ["别的"]})
        assert other.open(tmp_path / name).search("T恤", 5) == reader.search("T恤", 5)
        with pytest.raises(ProviderError, match=r"another dictionary.*rag rebuild"):
            other.update(tmp_path / name, removed={}, rows=ROWS)


def test_lexical_dictionary_may_be_a_file_whose_words_are_part_of_the_profile(
    config_folder: Path, settings: Settings, tmp_path: Path
) -> None:
    words = config_folder / "names.txt"
    words.write_text("# products\nT恤  # a shirt\n", encoding="utf-8")
    strategy = load_strategy(settings, "tiny")
    for name in sorted(PROVIDERS["lexical_index"]):
        options = {"dictionary": "names.txt"}
        named = strategy.model_copy(
            update={"lexical": ProviderConfig(provider=name, options=options)}
        )
        reader = opened(
            make_provider("lexical_index", name, options), tmp_path / name, "恤T", "买了T恤"
        )
        assert ids(reader, "T恤")[0] == "c1"
        before = (
            index_profile(named),
            store_profiles(named)["lexical_index"],
            store_profiles(named)["dense_index"],
        )
        words.write_text("A股\n", encoding="utf-8")
        after = (
            index_profile(named),
            store_profiles(named)["lexical_index"],
            store_profiles(named)["dense_index"],
        )
        assert [a == b for a, b in zip(before, after, strict=True)] == [False, False, True]
        words.write_text("# products\nT恤  # a shirt\n", encoding="utf-8")
        with pytest.raises(ConfigError, match=r"none\.txt.*one word a line"):
            make_provider("lexical_index", name, {"dictionary": "none.txt"}).update(
                tmp_path / "x", removed={}, rows=ROWS
            )


def test_lexical_dictionary_scores_do_not_depend_on_the_history(tmp_path: Path) -> None:
    rows = [
        LexicalRow(f"c{n}", f"d{n}", f"T恤 {'年假' * (n % 3)} 编号{n}", "制度") for n in range(12)
    ]
    for name in sorted(PROVIDERS["lexical_index"]):
        index: LexicalIndex = make_provider("lexical_index", name, {"dictionary": ["T恤", "年假"]})
        index.update(tmp_path / name / "built", removed={}, rows=rows)
        index.update(
            tmp_path / name / "grown",
            removed={},
            rows=[*rows[:9], LexicalRow("gone", "d3", "T恤 T恤", "")],
        )
        index.update(tmp_path / name / "grown", removed={"gone": "d3"}, rows=rows[7:])
        built, grown = (
            index.open(tmp_path / name / part).search("T恤年假 编号3", 20, phrases=["年假 编号3"])
            for part in ("built", "grown")
        )
        assert built == grown and len(built) == 12


def test_lexical_symbols_in_code_are_terms(lexical_index: LexicalIndex, tmp_path: Path) -> None:
    texts = [
        "The operator `^=` changes its left side.",
        "The operator `|=` changes its left side.",
        "A range `..=` holds its end.",
        "The operator changes x ^ y = z.",
    ]
    reader = opened(lexical_index, tmp_path / "index", *texts)
    assert ids(reader, "what does the operator ^= change")[0] == "c0"
    assert ids(reader, "what does the operator |= change")[0] == "c1"
    assert ids(reader, "`..=`") == ["c2"]
