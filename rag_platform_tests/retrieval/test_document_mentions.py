"""Which documents a question names, and what that does to the order of the hits."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from rag_platform.answering.engine import answer
from rag_platform.ir import Candidate, QueryRequest
from rag_platform.observability.trace_reader import show
from rag_platform.providers.tantivy import Tantivy
from rag_platform.retrieval.document_mentions import (
    DocumentNames,
    prefer_mentioned,
    unite,
    without_names,
)
from rag_platform.retrieval.library import Library
from rag_platform.text.names import name_words

FILES = {  # folder, file name, title, chunks
    "b22": ("reports", "BOEING_2022_10K.pdf", "0000012927-23-000007", 40),
    "b21": ("reports", "BOEING_2021_10K.pdf", "", 40),
    "buy": ("reports", "BESTBUY_2024Q2_10Q.pdf", "", 30),
    "state": ("reports", "trends.pdf", "The state of packaging", 20),
    "tx": ("reports", "腾讯-年度报告.pdf", "", 10),
    "note": ("notes", "Zenith note.md", "", 1),
    "k1": ("manuals/kestrel-2", "setup.md", "Installation", 5),
    "k2": ("manuals/kestrel-2", "care.md", "Maintenance", 5),
    "m1": ("manuals/merlin", "setup.md", "Installation", 9),
    "m2": ("manuals/青鸟", "setup.md", "Installation", 9),
}
# word: chunks with it in each document
TEXTS = {
    "boeing": {"b22": 20, "b21": 20, "state": 1},
    "best buy": {"buy": 9},
    "state": {"state": 5, "b22": 9, "b21": 9},
    "packaging": {"state": 20, "buy": 1},
    "腾讯": {"tx": 8},
    "zenith": {"note": 1},
    "the": {"b22": 40, "state": 20},
    "of": {"b22": 40, "state": 20},
}


class Catalog:
    def stored_names(self) -> None: ...

    def names(self, *, changed: bool = False) -> Sequence[tuple[str, str, str, str, int]]:
        return [
            (doc_id, f"{folder}/{filename}", filename, title, chunks)
            for doc_id, (folder, filename, title, chunks) in FILES.items()
        ]

    def select(self, sql: str, params: Sequence[str] = ()) -> list[tuple[str, ...]]:
        if "FROM chunks" in sql:
            return [(f"{doc_id}-0",) for doc_id in params]
        rows = [(it, FILES[it][1], FILES[it][2], "/".join(FILES[it][:2])) for it in params]
        return [row if "title" in sql else row[:2] for row in rows]

    def chunk_ids(self, where: str = "1", params: Sequence[str] = ()) -> list[str]:
        assert where == "doc_id = ?"
        return [f"{params[0]}-{number}" for number in range(FILES[params[0]][-1])]


class Texts:
    def doc_freq(self, words: str, doc_ids: Collection[str] | None = None) -> int:
        return sum(
            count
            for doc_id, count in TEXTS.get(words, {}).items()
            if doc_ids is None or doc_id in doc_ids
        )


def read_instead(
    files: Mapping[str, tuple[str, str, str, int]], words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Documents of these files in place of FILES, all of which have the words."""
    monkeypatch.setattr(f"{__name__}.FILES", files)
    for word in words.split():
        monkeypatch.setitem(TEXTS, word, dict.fromkeys(files, 5))


def documents(question: str) -> dict[str, float]:
    named = DocumentNames(Catalog(), Texts()).find_mentions(question)
    return dict(named.documents) if named else {}


def test_a_name_names_its_documents_and_a_year_tells_namesakes_apart() -> None:
    assert documents("Is Boeing's business cyclical?") == {"b22": 1.0, "b21": 1.0}
    assert documents("What did Boeing earn in FY2022?") == {"b22": 1.0}
    assert documents("What did boeing earn in 2021 and 2022?") == {"b22": 1.0, "b21": 1.0}


def test_words_written_together_in_a_file_name_are_known_apart() -> None:
    assert documents("How many stores has Best Buy?") == {"buy": 1.0}
    assert documents("What is the best way to buy?") == {}
    assert documents("Was there a drop in Q2 of FY2024?") == {"buy": 1.0}  # no text says q2 at all


SERIES = {
    "r1": ("norms", "rfc1034.txt", "", 9),
    "r2": ("norms", "names.txt", "RFC 1035: Domain names", 9),
    "p8": ("norms", "pep-0008.rst", "", 9),
    "p9": ("norms", "pep-0009.rst", "", 9),
    "ca": ("norms", "contract-a.pdf", "", 9),
    "cb": ("norms", "contract-b.pdf", "", 9),
}


@pytest.mark.parametrize(
    ("question", "doc_id"),
    [
        ("What does RFC 1034 say?", "r1"),  # though others cite it
        ("Does RFC1035 define types?", "r2"),
        ("What does PEP 8 say?", "p8"),
        ("Who signed contract B?", "cb"),
    ],
)
def test_a_number_in_a_series_names_a_document(
    question: str, doc_id: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    read_instead(SERIES, "rfc rfc1034 rfc1035 pep contract", monkeypatch)
    assert documents(question) == {doc_id: 1.0}
    assert documents("Do RFC 9999, PEP 8.1 and contract C exist?") == {}


COMMANDS = {
    "cp": ("man", "cp.txt", "", 5),
    "scp": ("man", "scp.txt", "", 5),
    "make": ("man", "make.1.gz", "", 5),
    "log": ("man", "git-log.html", "", 9),
    "tree": ("man", "git-log-tree.html", "", 9),
    "note": ("man", "ls.txt", "", 1),
}


@pytest.mark.parametrize(
    ("question", "doc_id"),
    [
        ("what does cp -f do", "cp"),
        ("cp的-f选项是什么意思", "cp"),
        ("the `--force` option of cp", "cp"),
        ("what does make -n do", "make"),
        ("git log 的 -S", "log"),
        ("how do I make a list of all of the files that I copied before, with ls -l", ""),
        ("is cp the last line", ""),  # a word of other texts too
        ("make it work", ""),
    ],
)
def test_the_command_of_a_flag_names_its_document(
    question: str, doc_id: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    read_instead(COMMANDS, "cp make git log", monkeypatch)
    assert documents(question) == ({doc_id: 1.0} if doc_id else {})


THINGS = COMMANDS | {
    "black": ("pkg/black", "README.md", "The formatter", 6),
    "home": ("docs", "index.md", "Welcome", 6),
    "di": ("docs", "injection.md", "依赖注入", 6),
    "terms": ("docs", "refund-terms.md", "Refund terms", 6),
}
SAID = "cp make git log black refund terms formatter the index"


@pytest.mark.parametrize(
    ("question", "doc_id"),
    [
        ("What is cp?", "cp"),
        ("what does the cp command do", "cp"),
        ("git log 命令是做什么的？", "log"),
        ("what is ls for", "note"),  # one chunk is enough
        ("Black 有什么用", "black"),
        ("啥是cp", "cp"),
        ("cp 命令的作用", "cp"),
        ("什么是依赖注入", "di"),
        ("What is an index?", ""),  # this one is of the pages
        ("What is the formatter?", ""),  # asks for what the document says of it
        ("What are the refund terms?", ""),
    ],
)
def test_what_a_thing_is_stands_at_the_beginning_of_its_document(
    question: str, doc_id: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    read_instead(THINGS, SAID, monkeypatch)
    named = DocumentNames(Catalog(), Texts()).find_mentions(question)
    assert (dict(named.documents) if named else {}) == ({doc_id: 1.0} if doc_id else {})
    if named:
        assert (named.section, named.words) == ({f"{doc_id}-0"}, ())


def test_a_thing_with_a_flag_has_no_beginning(monkeypatch: pytest.MonkeyPatch) -> None:
    read_instead(THINGS, SAID, monkeypatch)
    named = DocumentNames(Catalog(), Texts()).find_mentions("what does make -n do")
    assert named is not None and dict(named.documents) == {"make": 1.0}
    assert (named.section, named.words) == (set(), ("make",))


def test_a_chinese_name_is_a_word_of_the_dictionary() -> None:
    assert documents("腾讯的收入是多少") == {"tx": 1.0}


def test_a_folder_names_what_is_in_it() -> None:
    assert documents("Where must a Kestrel stand?") == {"k1": 1.0, "k2": 1.0}
    assert documents("How is the Merlin installed?") == {"m1": 1.0}
    assert documents("青鸟怎么安装") == {"m2": 1.0}
    assert documents("What do the manuals say?").keys() == {"k1", "k2", "m1", "m2"}


def test_documents_with_very_many_chunks_are_not_meant(monkeypatch: pytest.MonkeyPatch) -> None:
    assert documents("What did Boeing earn?")
    monkeypatch.setitem(FILES, "b21", ("reports", "BOEING_2021_10K.pdf", "", 20_000))
    assert documents("What did Boeing earn?") == {}


@pytest.mark.parametrize(
    "question",
    [
        # a word of a title that the texts of others say as often
        "Then state that and explain why",
        "What happened in 2022?",  # a number alone
        "What does the Zenith note say?",  # one chunk, whose headings hold the name
        "How are planes built?",
        "",
        "？",
    ],
)
def test_other_words_name_nothing(question: str) -> None:
    assert documents(question) == {}


def test_the_chunks_of_the_named_documents_come_with_their_scores() -> None:
    names = DocumentNames(Catalog(), Texts())
    named = names.find_mentions("packaging of Best Buy")
    assert named is not None and named.words == ("packaging", "best buy")
    assert named.documents == {"buy": 1.0, "state": 1.0}
    assert len(named.chunks) == 50 and named.chunks["buy-0"] == 1.0
    again = names.find_mentions("Best Buy, packaging")
    assert again is not None and again.chunk_ids is named.chunk_ids


def test_a_word_of_a_document_that_is_not_meant_stays_in_the_question() -> None:
    named = DocumentNames(Catalog(), Texts()).find_mentions("packaging in the Boeing 10K of 2022")
    assert (
        named is not None
        and dict(named.documents) == {"b22": 1.0}
        and named.words == ("10k", "boeing")
    )


def test_words_of_names() -> None:
    words, pairs = name_words("PEPSICO_2023_8K_dated-2023-05-05")
    assert words == {"pepsico", "2023", "8k", "dated"} and pairs == {}
    assert name_words("Ulta Beauty's 4Q2023, Q2'2023, COVID19") == (
        {"ulta", "beauty", "4q2023", "4q", "2023", "q2", "covid19", "covid"},
        {"ultabeauty": "ulta beauty", "beautys": "beauty s"},
    )


@pytest.mark.parametrize(
    ("text", "words", "rest"),
    [
        (
            "What are the stores of Best Buy in Texas?",
            ("best buy",),
            "What are the stores of in Texas?",
        ),
        ("Boeing’s order book and Boeing’s cash", ("boeing",), "order book and cash"),
        ("What is Boeing?", ("boeing",), "What is Boeing?"),  # nothing would be left
        (
            "Boeings and preboeing orders of planes",
            ("boeing",),
            "Boeings and preboeing orders of planes",
        ),
        ("腾讯的年度总收入是多少", ("腾讯",), "的年度总收入是多少"),
        ("the cash flow", (), "the cash flow"),
    ],
)
def test_a_question_without_its_names(text: str, words: tuple[str, ...], rest: str) -> None:
    assert without_names(text, words) == rest


def test_named_chunks_rise_by_a_share_of_the_range() -> None:
    fused = [
        Candidate("a", 3.0, "hybrid"),
        Candidate("b", 2.0, "dense"),
        Candidate("c", 1.0, "sparse"),
    ]
    raised = prefer_mentioned(
        fused, {"b": 0.5, "c": 1.0}, 0.5
    )  # the range is 2, so b gains .5 and c 1
    assert [(item.chunk_id, item.score) for item in raised] == [("a", 3.0), ("b", 2.5), ("c", 2.0)]
    # a tie keeps the order
    assert [item.chunk_id for item in prefer_mentioned(fused, {"c": 1.0}, 1.0)] == ["a", "c", "b"]
    assert prefer_mentioned([], {"c": 1.0}, 1.0) == []
    assert (
        prefer_mentioned(
            [Candidate("a", 2.0, "dense"), Candidate("b", 2.0, "dense")], {"b": 1.0}, 0.5
        )[0].chunk_id
        == "b"
    )


def test_two_searches_of_a_leg_become_one() -> None:
    one, other = (
        [Candidate("a", 0.9, "dense"), Candidate("c", 0.2, "dense")],
        [
            Candidate("b", 0.5, "dense"),
            Candidate("c", 0.2, "dense"),
        ],
    )
    assert [item.chunk_id for item in unite(one, other)] == ["a", "b", "c"]


# --- in the query path --------------------------------------------------------------------------

REPORTS = {
    name: (
        [
            (str(n), f"{name} {text}")
            for n, text in enumerate(("was founded long ago.", "sells planes.", "and its people."))
        ]
        + [
            ("Tax", "The effective tax rate of the company rose by one point."),
            ("Cash", f"The cash flow of {rest} fell."),
        ]
    )
    for name, rest in (
        ("acme", "the year"),
        ("zenith", "the company and of its effective tax rate"),
    )
}


def asked(library: Library, **more: Any) -> tuple[list[str], list[str]]:
    """(files of the hits, names of the spans)."""
    result = answer(
        library, QueryRequest("the effective tax rate of acme", answer=False, top_k=3, **more)
    )
    return [hit.filename for hit in result.hits], [
        span["name"] for span in show(library.store.logs_dir, result.trace_id)["spans"]
    ]


@dataclass(frozen=True)
class Once(Tantivy):
    """A word index that answers one search."""

    def open(self, directory: Path) -> Any:
        return OnceReader(super().open(directory))


class OnceReader:
    def __init__(self, reader: Any) -> None:
        self._reader = reader
        self._asked = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._reader, name)

    def search(self, *asked: Any, **options: Any) -> Any:
        self._asked += 1
        if self._asked > 1:
            raise OSError("input/output error")
        return self._reader.search(*asked, **options)


def test_a_leg_that_fails_within_named_documents_is_told(
    publish: Any, library: Library, vary: Callable[..., str]
) -> None:
    lines = f"lexical: {{provider: '{__name__}:Once'}}\nretrieval: {{named_documents: 1.0}}\n"
    publish(REPORTS, strategy=vary("naming", lines))
    result = answer(library, QueryRequest("the effective tax rate of acme", answer=False, top_k=3))
    # the other retriever was asked within them
    assert [hit.filename for hit in result.hits] == ["acme.md"] * 3
    assert result.flags["naming_failed"] is True and "sparse_failed" not in result.flags
    [told] = [
        warning
        for warning in result.warnings
        if "inside the documents that the question names" in warning
    ]
    assert "input/output error" in told


def test_the_named_document_comes_first(
    publish: Any, library: Library, vary: Callable[..., str]
) -> None:
    publish(REPORTS, strategy=vary("naming", "retrieval: {named_documents: 1.0}\n"))
    files, spans = asked(library)
    assert files == ["acme.md"] * 3
    assert spans.count("stage.naming") == 1 and spans.count("stage.retrieve_dense") == 2


def test_the_section_of_the_asked_number_comes_first(
    publish: Any, library: Library, vary: Callable[..., str]
) -> None:
    texts = {
        "5 Errors": "Some are described below.",
        "5.2 Loops": "A server stops after ten steps.",
        "6 Notes": "Section 5.2 of the rules says what section 5.2 of the rules says of loops.",
        "7 Terms": "The words of the rules are explained.",
    }
    rules = {name: list(texts.items()) for name in ("norm-8", "norm-9", "norm-10")}
    publish(rules, strategy=vary("naming", "retrieval: {named_documents: 0.5}\n"))
    for question, place in {
        "What does section 5.2 of norm 9 say?": ("norm-9.md", "5.2 Loops"),
        "What does section 7 of norm 10 say?": ("norm-10.md", "7 Terms"),
    }.items():
        hits = answer(library, QueryRequest(question, answer=False, top_k=3)).hits
        assert (hits[0].filename, hits[0].section_path) == place
    publish({"norm-9": rules["norm-9"], "other": [("1", "Rules.")]}, release_id="r2")
    hits = answer(library, QueryRequest("What is in § 6?", answer=False, top_k=3)).hits
    assert hits[0].section_path == "6 Notes"  # of the only document with one


def test_the_section_of_the_asked_release_comes_first(
    publish: Any, library: Library, vary: Callable[..., str]
) -> None:
    texts = {
        "1.2.30 (2024-03-02)": "What was released as 1.2.3 changed: norm 1.2.3 was released again.",
        "1.2.3 (2024-01-02)": "Loops end.",
        "1.2.2 (2023-01-02)": "The words are explained.",
    }
    norms = {name: list(texts.items()) for name in ("norm-8", "norm-9", "norm-10")}
    publish(norms, strategy=vary("naming", "retrieval: {named_documents: 0.5}\n"))
    for question in ("When was norm-9 1.2.3 released?", "norm-9 1.2.3 更新了什么？"):
        hits = answer(library, QueryRequest(question, answer=False, top_k=3)).hits
        assert (hits[0].filename, hits[0].section_path) == ("norm-9.md", "1.2.3 (2024-01-02)")


def test_the_release_is_that_of_the_named_product(
    publish: Any, library: Library, vary: Callable[..., str]
) -> None:
    texts = [("1.2.0 (2024-01-02)", "Loops end."), ("1.1.0 (2023-01-02)", "Pumps begin.")]
    others = [("1.2.0 (2024-01-02)", "Pumps are new. All changed. Pumps changed."), texts[1]]
    publish(
        {"pumps": texts, "valves": others, "taps": others},
        strategy=vary("naming", "retrieval: {named_documents: 0.5}\n"),
    )
    hits = answer(library, QueryRequest("What changed in pumps 1.2?", answer=False)).hits
    assert (hits[0].filename, hits[0].section_path) == ("pumps.md", "1.2.0 (2024-01-02)")


def test_it_can_be_turned_off_and_leaves_one_leg_as_it_is(
    publish: Any, library: Library, vary: Callable[..., str]
) -> None:
    publish(REPORTS, strategy=vary("naming", "retrieval: {named_documents: 0.0}\n"))
    files, spans = asked(library)
    assert "stage.naming" not in spans and "zenith.md" in files
    publish(
        REPORTS, strategy=vary("naming2", "retrieval: {named_documents: 1.0}\n"), release_id="r2"
    )
    assert "stage.naming" not in asked(library, mode="sparse")[1]


def test_a_filter_holds_within_named_documents_too(
    publish: Any, library: Library, vary: Callable[..., str]
) -> None:
    publish(REPORTS, strategy=vary("naming", "retrieval: {named_documents: 1.0}\n"))
    assert set(asked(library, filters={"filename": "zenith.md"})[0]) == {"zenith.md"}
    result = answer(
        library,
        QueryRequest("tax rate of acme", answer=False, top_k=5, filters={"section_path": "Cash"}),
    )
    assert {hit.section_path for hit in result.hits} == {"Cash"}


def test_names_that_cannot_be_read_are_a_warning(
    publish: Any, library: Library, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish(REPORTS)
    with library.lease("default") as lease:
        assert lease.release.lexical is not None
        monkeypatch.setattr(type(lease.release.catalog), "names", lambda self, changed: [("d",)])
    result = answer(library, QueryRequest("the effective tax rate of acme", answer=False))
    assert result.hits and result.flags["naming_failed"] is True
    assert any("could not be identified" in warning for warning in result.warnings)


def test_what_a_thing_is_is_answered_from_the_beginning_of_its_document(
    publish: Any, library: Library, vary: Callable[..., str]
) -> None:
    others = [(str(n), f"The pump and the {n}th tap are cleaned by staff.") for n in range(6)]
    pump = [("Name", "A machine that moves water."), *others[:3], ("Use", "The pump starts.")]
    publish(
        {"pump": pump, "taps": others},
        strategy=vary("naming", "retrieval: {named_documents: 0.5}\n"),
    )
    for question in ("What is a pump?", "pump 有什么用？"):
        found = answer(library, QueryRequest(question))
        assert found.state == "answered" and found.citations[0].text.endswith(pump[0][1])
        assert ("pump.md", 0) in [(hit.filename, hit.chunk_index) for hit in found.hits]
    assert "moves" not in answer(library, QueryRequest("Who cleans the pump?")).answer_markdown
