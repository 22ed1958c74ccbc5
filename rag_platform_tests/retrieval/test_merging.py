from __future__ import annotations

import shutil
from typing import Any

import pytest

from rag_platform.answering.engine import answer
from rag_platform.api.query_data import fit_query
from rag_platform.errors import InputError, ReleaseError
from rag_platform.ir import Hit, QueryRequest
from rag_platform.observability import trace_reader
from rag_platform.retrieval import fusion
from rag_platform.retrieval.library import Library
from rag_platform.storage.store import Store, write_text


def hit(chunk_id: str, text: str, score: float = 1.0) -> Hit:
    return Hit(
        rank=1,
        chunk_id=chunk_id,
        score=score,
        source="hybrid",
        doc_id=chunk_id,
        version_id="v",
        source_uri="u",
        filename="f",
        doc_title="",
        section_path="",
        chunk_index=0,
        chunk_text=text,
    )


# --- lists --------------------------------------------------------------------------------------


def test_phrasings_are_joined_by_reciprocal_ranks() -> None:
    asked = [hit("a", "one"), hit("b", "two"), hit("d", "four")]
    further = [hit("c", "three"), hit("b", "two")]
    joined = fusion.join_phrasings([asked, further])
    # b: 1/62 + 1/62, a and c: 1/61, d: 1/63; b as the best and c as the phrasing's first lead
    assert [(h.rank, h.chunk_id, h.score, h.found_by) for h in joined] == [
        (1, "b", 0.032258, (0, 1)),
        (2, "c", 0.016393, (1,)),
        (3, "a", 0.016393, (0,)),
        (4, "d", 0.015873, (0,)),
    ]
    assert [h.chunk_id for h in fusion.join_phrasings([[], further])] == ["c", "b"]


def test_each_part_of_a_question_in_two_parts_has_a_place() -> None:
    both = [hit(f"n{n}", "near both") for n in range(9)]
    first, second = [hit("one", "one"), *both], [*both[4:], hit("two", "two")]
    joined = fusion.join_phrasings([both, first, [hit("two", "two"), *second[:-1]]])
    assert {"one", "two"} <= {h.chunk_id for h in joined[:3]}


def test_phrasings_take_turns_until_three_hits_lead() -> None:
    asked = [hit("b", "both"), hit("x", "x"), hit("y", "y")]
    first, second = [hit("b", "both"), hit("one", "one")], [hit("b", "both"), hit("two", "two")]
    joined = fusion.join_phrasings([asked, first, second], 3)
    # x, one and two have 1/62 each, y has 1/63; without turns x would come third or before
    assert [h.chunk_id for h in joined] == ["b", "one", "two", "x", "y"]
    joined = fusion.join_phrasings([asked, [hit("b", "both"), *asked[1:], hit("one", "one")]], 3)
    assert [h.chunk_id for h in joined] == ["b", "x", "y", "one"]
    assert [h.chunk_id for h in fusion.join_phrasings([asked, []], 3)] == ["b", "x", "y"]


def test_hits_far_down_a_list_say_nothing_of_the_order() -> None:
    far = [hit(f"f{n:02}", "far") for n in range(12)]
    joined = fusion.join_phrasings([far, [hit("g", "near")]])
    assert [h.chunk_id for h in joined[-2:]] == ["f10", "f11"]
    assert joined[-1].found_by == () and joined[-1].score == 0.0


def test_namespaces_are_interleaved_by_how_much_of_the_question_they_speak_of() -> None:
    pumps = [hit("p1", "The pump needs oil."), hit("p2", "Oil the pump."), hit("p3", "pump")]
    other = [hit("o1", "The oil price.", 900.0), hit("o2", "Nothing at all.", 800.0)]
    merged = fusion.merge_namespaces(["pump oil"], [other, pumps])
    # weights: pumps 1, other .5 squared; scores are weight / rank
    assert [(h.chunk_id, h.rank, h.score) for h in merged] == [
        ("p1", 1, 1.0),
        ("p2", 2, 0.5),
        ("p3", 3, 0.333333),
        ("o1", 4, 0.25),
        ("o2", 5, 0.125),
    ]
    # both hold two of three words: they take turns
    near = fusion.merge_namespaces(["pump oil price"], [other, pumps])
    assert [h.chunk_id for h in near] == ["o1", "p1", "o2", "p2", "p3"]


def test_without_common_words_the_lists_take_turns() -> None:
    merged = fusion.merge_namespaces(
        ["Pumpe"], [[hit("a1", "x"), hit("a2", "x")], [hit("b1", "x"), hit("b2", "x")], []]
    )
    assert [h.chunk_id for h in merged] == ["a1", "b1", "a2", "b2"]


# --- libraries ----------------------------------------------------------------------------------


@pytest.fixture
def two(publish: Any, vary: Any) -> None:
    publish(
        {
            "pump": [
                ("Care", "The pump PX-40 needs oil every 200 hours."),
                ("Noise", "A loud pump has air in it."),
            ]
        },
        namespace="machines",
    )
    words = vary("words", hybrid="sparse_only")
    publish(
        {
            "leave": [
                ("Sick", "Sick leave needs a note after 3 days."),
                ("Pump", "A pump room is out of bounds."),
            ]
        },
        namespace="people",
        strategy=words,
        release_id="r7",
    )


BOTH = ("machines", "people")


def test_several_namespaces_answer_one_question(two: None, library: Library, store: Store) -> None:
    result = answer(
        library, QueryRequest("How often does the pump PX-40 need oil?", namespaces=BOTH)
    )
    assert result.hits[0].chunk_text == "The pump PX-40 needs oil every 200 hours."
    assert "every 200 hours" in result.answer_markdown and result.answered
    assert [h.rank for h in result.hits] == list(range(1, len(result.hits) + 1))
    assert {h.namespace for h in result.hits} == {"machines", "people"}
    assert result.citations[0].namespace == "machines"
    assert (result.releases, result.release_id) == ({"machines": "r1", "people": "r7"}, "r1")
    assert result.effective_mode == "mixed"
    assert set(result.flags["namespaces"]) == set(BOTH)
    trace = trace_reader.show(store.logs_dir, result.trace_id)
    names = [span["name"] for span in trace["spans"]]
    assert (
        names.count("namespace.search") == 2
        and names.count("stage.query_norm") == 2
        and names.count("stage.merge") == 1
    )
    assert trace["attrs"]["releases"] == result.releases
    data = fit_query(result)[0]
    assert data["citations"][0]["namespace"] == "machines" and data["releases"] == result.releases
    assert "machines r1, people r7" in data["markdown"]
    sick = answer(library, QueryRequest("sick leave note", namespaces=BOTH))
    assert (sick.hits[0].doc_id, sick.citations[0].namespace) == ("leave", "people")


def test_a_phrasing_in_the_language_of_the_texts_weighs_the_libraries(
    two: None, library: Library
) -> None:
    asked = QueryRequest(
        "水泵多久加一次油？", namespaces=("people", "machines"), searches=("pump PX-40 oil",)
    )
    first = answer(library, asked).hits[:2]
    assert [hit.namespace for hit in first] == ["machines", "machines"]


def test_top_k_and_limits_count_after_the_merge(two: None, library: Library) -> None:
    assert len(answer(library, QueryRequest("pump", namespaces=BOTH, top_k=2)).hits) == 2
    hits = answer(library, QueryRequest("pump", namespaces=BOTH, max_per_document=1)).hits
    assert sorted(h.doc_id for h in hits) == ["leave", "pump"]


def test_novelty_counts_between_namespaces(publish: Any, vary: Any, library: Library) -> None:
    name = vary("novel", "retrieval: {mmr_lambda: 0.3, dedupe: false}\n")
    same = "The pump PX-40 needs oil every 200 hours."
    publish({"pump": [("Care", same)]}, namespace="machines", strategy=name)
    publish(
        {"copy": [("Care", same), ("Noise", "A loud pump has air in it.")]},
        namespace="people",
        strategy=name,
    )
    hits = answer(
        library, QueryRequest("How often does the pump PX-40 need oil?", namespaces=BOTH)
    ).hits
    assert [hit.doc_id for hit in hits] == ["pump", "copy", "copy"]
    assert [hit.section_path for hit in hits] == ["Care", "Noise", "Care"]


def test_matches_of_a_filter_are_added(two: None, library: Library) -> None:
    assert (
        answer(
            library, QueryRequest("pump", namespaces=BOTH, filters={"section_path": "Pump"})
        ).matched_count
        == 1
    )
    assert (
        answer(library, QueryRequest("pump", namespaces=BOTH, filters={"lang": "en"})).matched_count
        == 4
    )


def test_one_namespace_named_twice_is_one(two: None, library: Library) -> None:
    result = answer(library, QueryRequest("pump oil", namespaces=("machines", "machines")))
    assert result.releases == {"machines": "r1"} and result.warnings == ()


def test_a_namespace_that_is_down_is_a_warning(two: None, library: Library, store: Store) -> None:
    (store.release_dir("people", "r7") / "manifest.json").unlink()
    result = answer(library, QueryRequest("pump oil", namespaces=BOTH))
    assert result.hits[0].doc_id == "pump" and result.releases == {"machines": "r1"}
    assert any(warning.startswith("people: could not be asked") for warning in result.warnings)
    assert set(result.flags["namespaces_failed"]) == {"people"}
    assert trace_reader.show(store.logs_dir, result.trace_id)["status"] == "ok"


def test_all_namespaces_down_is_an_error(two: None, library: Library, store: Store) -> None:
    for namespace, release_id in (("machines", "r1"), ("people", "r7")):
        (store.release_dir(namespace, release_id) / "manifest.json").unlink()
    with pytest.raises(ReleaseError) as raised:
        answer(library, QueryRequest("pump oil", namespaces=BOTH))
    assert raised.value.code == "release_lost" and raised.value.details["trace_id"]
    assert raised.value.details["namespaces"] == {
        "machines": "release_lost",
        "people": "release_lost",
    }


@pytest.mark.parametrize(
    ("request_", "code"),
    [
        (QueryRequest("pump", namespaces=("machines", "nowhere")), "unknown_namespace"),
        (QueryRequest(" ", namespaces=BOTH), "empty_query"),
        (QueryRequest("pump", namespaces=BOTH, filters={"colour": "red"}), "unknown_filter"),
        (QueryRequest("pump", namespaces=BOTH, release_id="r1"), "release_of_several"),
    ],
)
def test_the_callers_mistakes_are_errors(
    two: None, library: Library, request_: QueryRequest, code: str
) -> None:
    with pytest.raises(InputError) as raised:
        answer(library, request_)
    assert raised.value.code == code


def test_a_release_that_is_swapped_is_let_go_of(
    two: None, publish: Any, library: Library, store: Store
) -> None:
    answer(library, QueryRequest("pump", namespaces=BOTH))
    with library.lease("machines") as old:
        answer(library, QueryRequest("pump", namespaces=BOTH))
        write_text(store.current_path("machines"), "r1\n")
        publish({"new": [("S", "A pump.")]}, namespace="machines", release_id="r2")
        answer(library, QueryRequest("pump", namespaces=BOTH))
        assert (old.retired, old.readers) == (True, 1)
    assert old.readers == 0


def test_a_namespace_whose_indexes_are_gone_is_a_warning_too(
    two: None, library: Library, store: Store
) -> None:
    for name in ("lexical", "dense"):
        shutil.rmtree(store.release_dir("people", "r7") / name, ignore_errors=True)
    for names in (BOTH, BOTH[::-1]):  # whichever comes first
        result = answer(library, QueryRequest("pump oil", namespaces=names))
        assert (result.hits[0].doc_id, result.releases, result.effective_mode) == (
            "pump",
            {"machines": "r1"},
            "hybrid",
        )
        assert any(warning.startswith("people: could not be asked") for warning in result.warnings)
        assert (
            result.flags["namespaces_failed"] == {"people": "provider_error"}
            and "error" not in result.flags
        )
        unknown = answer(library, QueryRequest("Wie wird das Wetter morgen?", namespaces=names))
        assert not unknown.answered and "could not be searched" not in unknown.answer_markdown


def test_all_indexes_gone_is_told_once(two: None, library: Library, store: Store) -> None:
    for namespace, release_id in (("machines", "r1"), ("people", "r7")):
        for name in ("lexical", "dense"):
            shutil.rmtree(store.release_dir(namespace, release_id) / name, ignore_errors=True)
    result = answer(library, QueryRequest("pump oil", namespaces=BOTH))
    assert (
        result.flags["error"]["code"] == "provider_error"
        and "could not be searched" in result.answer_markdown
    )
    assert "namespaces_failed" not in result.flags and result.hits == ()
