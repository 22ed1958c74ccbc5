from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from rag_platform.errors import InputError
from rag_platform.indexes.catalog import FILTERABLE, CatalogReader
from rag_platform.indexes.catalog_tables import CatalogWriter, Entry
from rag_platform.ir import Chunk, Document, MediaText, Section, Version
from rag_platform.query.filters import MISSING, SOFT_FIELDS, plan, select_dropped, select_favoured


def chunk(chunk_id: str, doc_id: str, **changes: Any) -> Chunk:
    fields = {
        "section_id": "s",
        "chunk_index": 0,
        "chunk_text": "t",
        "chunk_fingerprint": "f",
        "norm_start": 0,
        "norm_end": 1,
        "fact_start": 0,
        "fact_end": 1,
        "section_path": "Guide/Install",
        **changes,
    }
    return Chunk(chunk_id=chunk_id, doc_id=doc_id, version_id=f"n.{doc_id}@1", **fields)


def version(doc_id: str, received_at: str, mime: str = "text/markdown") -> Version:
    return Version(
        f"n.{doc_id}@1",
        "n",
        doc_id,
        f"src/{doc_id}.md",
        f"{doc_id}.md",
        "00",
        1,
        mime,
        "markdown",
        "tiny",
        received_at=received_at,
    )


@pytest.fixture
def catalog(tmp_path: Path) -> CatalogReader:
    """Two documents: `guide` is tagged and Chinese, `notes` has no tags; chunk c3 has no page."""
    path = tmp_path / "catalog.sqlite"
    with CatalogWriter(path) as writer:
        writer.replace_documents(
            [
                Document(
                    "n",
                    "guide",
                    "handbook",
                    "handbook/guide.md",
                    "guide.md",
                    title="Guide",
                    tags=("api", "admin"),
                    metadata={"created": "2024-05-01", "modified": "2024-06-30T10:00:00Z"},
                ),
                Document("n", "notes", "wiki", "wiki/notes.md", "notes.md", title="O'Notes"),
            ]
        )
        first = chunk("c1", "guide", lang="zh", page_start=1, page_end=1)
        later = {"norm_start": 1, "norm_end": 30}
        second = chunk(
            "c2", "guide", lang="en", page_start=7, page_end=8, section_path="Guide/Run", **later
        )
        third = chunk("c3", "notes", lang="en", too_short=True)
        entries = [
            Entry(first, "h", "h", "ready", ("upload", "limit")),
            Entry(second, "h", "h", "ready", ("port",)),
        ]
        sections = [
            Section("s", "Guide/Install", 2, 0, 0, 1),
            # cut with the one before it: c2 holds its text, c1 does not
            Section("p", "Guide/Ports", 2, 0, 20, 30, title="Ports", joined_to="s"),
        ]
        writer.add_version(version("guide", "2024-05-01T10:00:00Z"), sections, entries, [])
        writer.add_version(
            version("notes", "2026-01-02T10:00:00Z", "text/plain; charset=iso-8859-2"),
            [],
            [Entry(third, "h", "h", "ready")],
            [],
        )
    return CatalogReader(path)


def found(catalog: CatalogReader, filters: dict[str, Any]) -> str:
    compiled = plan(filters)
    return " ".join(sorted(catalog.select_ids(compiled.where, compiled.params)))


@pytest.mark.parametrize(
    ("filters", "ids"),
    [
        ({"doc_id": "guide"}, "c1 c2"),
        ({"doc_id": ["guide", "notes"]}, "c1 c2 c3"),
        ({"doc_id": {"$ne": "guide"}}, "c3"),
        ({"doc_id": {"$nin": ["guide"]}}, "c3"),
        ({"doc_id": "guide", "lang": "en"}, "c2"),
        ({"version_id": "n.notes@1"}, "c3"),
        ({"source": "handbook"}, "c1 c2"),
        ({"filename": {"$contains": "GUIDE"}}, "c1 c2"),
        ({"filename": {"$contains": ["zzz", "Notes"]}, "lang": "en"}, "c3"),
        ({"filename": {"$contains": ["guide", "notes"]}, "lang": "en"}, "c2 c3"),
        ({"content_type": "text/plain"}, "c3"),
        ({"section_path": "Guide/I"}, "c1 c3"),
        ({"section_path": ["Guide/Run", "Other"]}, "c2"),
        ({"section_path": "Guide/Po"}, "c2"),
        ({"section_path": {"$ne": "Guide/Ports"}}, "c1 c3"),
        ({"section_id": "p"}, "c2"),
        ({"title": {"$contains": "PORT"}}, "c2"),
        ({"page_start": {"$gte": 2}}, "c2"),
        ({"page_start": {"$gt": 0, "$lt": 7}}, "c1"),
        ({"page_start": {"$lt": 2, "$missing": "include"}}, "c1 c3"),
        ({"page_range": 8}, "c2"),
        ({"page_range": [1, 9]}, "c1"),
        ({"page_range": {"$gte": 2, "$lte": 7}}, "c2"),
        ({"page_range": {"$gt": 1, "$lt": 7}}, ""),
        ({"page_range": {"$ne": 7, "$missing": "include"}}, "c1 c3"),
        ({"created": {"$gte": "2024-01-01", "$lte": "2024-12-31"}}, "c1 c2"),
        ({"created": "2024-05"}, "c1 c2"),
        ({"modified": {"$gt": "2024-06", "$missing": "include"}}, "c3"),
        ({"too_short": True}, "c3"),
        ({"tags": "api"}, "c1 c2 c3"),  # a document without tags is kept
        ({"tags": "other"}, "c3"),
        ({"tags": {"$in": ["api"], "$missing": "exclude"}}, "c1 c2"),
        ({"tags": {"$contains": "admin", "$missing": "exclude"}}, "c1 c2"),
        ({"created_at": {"$gte": "2025"}}, "c3"),
        ({"created_at": {"$lte": "2024-05-01"}}, "c1 c2"),
        ({"created_at": {"$gt": "2024-05-01"}}, "c3"),
        ({"created_at": "2024"}, "c1 c2"),
        ({"doc_title": "O'Notes"}, "c3"),
        ({"doc_title": "x' OR '1'='1"}, ""),
        ({"$or": [{"lang": "zh"}, {"source": "wiki"}]}, "c1 c3"),
        ({"$and": [{"lang": "en"}, {"$or": [{"doc_id": "guide"}, {"page_start": 99}]}]}, "c2"),
        ({"doc_id": "nobody"}, ""),
        # the same moment as 10:00 UTC
        ({"created_at": {"$gte": "2024-05-01T18:00:00+08:00"}}, "c1 c2 c3"),
        ({"created_at": {"$gt": "2024-05-01T18:00+08:00"}}, "c3"),  # after all of that minute
        ({"created_at": {"$lt": "2024-05-01T18:00:00+08:00"}}, ""),
        # the library keeps seconds
        ({"created_at": {"$lte": "2024-05-01 05:00:00.5-05:00"}}, "c1 c2"),
        ({"created_at": "2024-05-01T10:00"}, "c1 c2"),
        ({"created_at": {"$gte": "2025-12-31T23:30:00-11:00"}}, "c3"),
        ({"doc_date": "2024-05"}, "c1 c2"),
        ({"doc_date": 2024}, "c1 c2"),
        ({"created_at": {"$in": [2025, 2026]}}, "c3"),
        ({"doc_date": {"$gte": "2026"}}, "c3"),  # without a date of its own: when it was received
        ({"has_image": False}, "c1 c2 c3"),
        ({"$and": [{"lang": "en"}, {"$and": [{"doc_id": "guide"}]}]}, "c2"),
        ({"lang": {"$eq": "en", "$soft": False}, "doc_id": "guide"}, "c2"),
    ],
)
def test_conditions_select_the_right_chunks(
    catalog: CatalogReader, filters: dict[str, Any], ids: str
) -> None:
    assert found(catalog, filters) == ids


def test_a_document_is_dated_by_its_last_change_if_its_creation_is_unknown(tmp_path: Path) -> None:
    path = tmp_path / "catalog.sqlite"
    memo = Document(
        "n", "memo", "wiki", "wiki/memo.md", "memo.md", metadata={"modified": "2021-05-01"}
    )
    with CatalogWriter(path) as writer:
        writer.replace_documents([memo])
        entry = Entry(chunk("c1", "memo"), "h", "h", "ready")
        writer.add_version(version("memo", "2026-01-02T10:00:00Z"), [], [entry], [])
    catalog = CatalogReader(path)
    assert found(catalog, {"doc_date": "2021"}) == "c1"
    assert found(catalog, {"doc_date": "2026"}) == ""


@pytest.mark.parametrize("name", sorted(FILTERABLE))
def test_every_filterable_field_compiles_and_runs(catalog: CatalogReader, name: str) -> None:
    dated = name in ("created", "modified", "created_at", "updated_at", "doc_date")
    value = {"text": "2024" if dated else "x", "number": 1, "flag": True, "list": "x", "span": 1}[
        FILTERABLE[name].kind
    ]
    compiled = plan({name: value})
    if compiled.where:
        catalog.select_ids(compiled.where, compiled.params)
    else:
        catalog.chunk_ids(*select_dropped(["c1"], compiled))


@pytest.mark.parametrize(
    ("filters", "code", "says"),
    [
        ({"autor": "x"}, "unknown_filter", "known: .*doc_id.*tags"),
        ({"doc_id": {"$regex": "x"}}, "unknown_filter", r"\$contains"),
        ({"doc_id": 7}, "invalid_filter", "compared with text"),
        ({"page_start": "7"}, "invalid_filter", "a number"),
        ({"page_start": True}, "invalid_filter", "a number"),
        ({"too_short": "yes"}, "invalid_filter", "true or false"),
        ({"tags": {"$gt": "a"}}, "invalid_filter", "is a list"),
        ({"page_range": {"$contains": 3}}, "invalid_filter", "range of numbers"),
        ({"page_range": "3"}, "invalid_filter", "a number"),
        ({"doc_id": []}, "invalid_filter", "not empty"),
        ({"lang": {"$eq": []}}, "invalid_filter", "not empty"),
        ({"section_path": {"$ne": []}}, "invalid_filter", "not empty"),
        ({"page_range": {"$eq": []}}, "invalid_filter", "not empty"),
        ({"tags": {"$contains": []}}, "invalid_filter", "not empty"),
        ({"filename": {"$contains": []}}, "invalid_filter", "not empty"),
        ({"lang": {"$in": "zh"}}, "invalid_filter", r"\$in takes a list"),
        ({"created_at": {"$gte": []}}, "invalid_filter", r"\$gte takes one value"),
        ({"text_len": {"$lt": [100, 900]}}, "invalid_filter", "takes one value"),
        ({"page_range": {"$lte": [1, 2]}}, "invalid_filter", "takes one value"),
        (
            {"created_at": {"$lte": "2026/01/01"}},
            "invalid_filter",
            r"'2026/01/01' is none; give 2026, 2026-01, .*\+08:00",
        ),
        ({"created_at": {"$gte": "last week"}}, "invalid_filter", "is a date"),
        ({"updated_at": {"$gte": "20261101"}}, "invalid_filter", "is a date"),
        ({"created": {"$gte": "2026-1-1"}}, "invalid_filter", "is a date"),
        ({"modified": ["2026", "2026-02-30"]}, "invalid_filter", "'2026-02-30' is none"),
        ({"doc_date": "2026年"}, "invalid_filter", "is a date"),
        ({"doc_date": 2026.5}, "invalid_filter", "is a date"),
        ({"doc_date": True}, "invalid_filter", "compared with text"),
        ({"doc_date": "2026-01-01T25:00:00Z"}, "invalid_filter", "is a date"),
        # before the first year in UTC
        ({"doc_date": "0001-01-01T00:00:00+08:00"}, "invalid_filter", "is a date"),
        ({"doc_date": "２０２６"}, "invalid_filter", "is a date"),
        ({"created_at": {"$gte": "yesterday", "$soft": True}}, "invalid_filter", "is a date"),
        ({"doc_id": {}}, "invalid_filter", "no condition"),
        ({"doc_id": {"$eq": "a", "$missing": "maybe"}}, "invalid_filter", "include or exclude"),
        ({"$or": []}, "invalid_filter", "not empty"),
        ({"$or": {"doc_id": "a"}}, "invalid_filter", "list of filter objects"),
        ({"prefer_recent": "yes"}, "invalid_filter", "preference"),
        ({"$and": [{"prefer_recent": 1}]}, "invalid_filter", "preference"),
        (
            {"$or": [{"prefer_recent": True}]},
            "invalid_filter",
            r"'prefer_recent' is a preference.* cannot stand in \$or",
        ),
        ({"prefer_recent": {"$eq": True, "$soft": True}}, "invalid_filter", "no operators"),
        ({"tags": {"$eq": "a", "$soft": "yes"}}, "invalid_filter", "true or false"),
        ({"tags": {"$soft": True}}, "invalid_filter", "no condition"),
        (
            {"$or": [{"tags": {"$eq": "a", "$soft": True}}, {"lang": "zh"}]},
            "invalid_filter",
            "inside .or",
        ),
        # reserved: nothing writes it yet
        ({"access_level": "public"}, "unknown_filter", "known: "),
        (
            {"$and": [{"$and": [{"$and": [{"$and": [{"$and": [{"$and": [{"doc_id": "a"}]}]}]}]}]}]},
            "invalid_filter",
            "nested",
        ),
    ],
)
def test_a_wrong_filter_says_what_is_right(filters: dict[str, Any], code: str, says: str) -> None:
    with pytest.raises(InputError, match=says) as raised:
        plan(filters)
    assert raised.value.code == code


def test_what_models_said_drops_only_chunks_that_say_otherwise(tmp_path: Path) -> None:
    """Two pictures: c1 shows one with a caption, c2 one whose text was read, c3 none; c1 and c2
    were described.
    """
    with CatalogWriter(tmp_path / "catalog.sqlite") as writer:
        writer.replace_documents(
            [Document("n", "guide", "handbook", "handbook/guide.md", "guide.md")]
        )
        entries = [
            Entry(
                chunk("c1", "guide", asset_ids=("pic", "bare")),
                "h",
                "h",
                "ready",
                ("api",),
                0.9,
                "Upload",
                "",
                ("files",),
            ),
            Entry(
                chunk("c2", "guide", asset_ids=("scan",)),
                "h",
                "h",
                "ready",
                ("port",),
                0.4,
                "Ports",
                "",
                ("network",),
            ),
            Entry(chunk("c3", "guide"), "h", "h", "ready"),
        ]
        texts = [
            MediaText("pic", caption="an architecture diagram"),
            MediaText("scan", ocr_text="invoice 7"),
            MediaText("bare"),
        ]
        writer.add_version(version("guide", "2024"), [], entries, [], texts)
    catalog = CatalogReader(tmp_path / "catalog.sqlite")

    def dropped(filters: dict[str, Any]) -> list[str]:
        return catalog.chunk_ids(*select_dropped(["c1", "c2", "c3"], plan(filters)))

    assert dropped({"image_caption": {"$contains": "Diagram"}}) == []
    assert dropped({"image_caption": {"$contains": "table"}}) == ["c1"]
    assert dropped({"ocr_text": {"$contains": "contract"}}) == ["c2"]
    assert dropped({"keyphrases": "ＡＰＩ"}) == ["c2"]  # stored and asked in one form
    assert dropped({"view_tags": "Files", "view_title": {"$contains": "upload"}}) == ["c2"]
    assert catalog.select_ids(*_where({"quality_score": {"$gte": 0.6}})) == {"c1"}
    assert catalog.media_texts("n.guide@1") == [texts[2], texts[0], texts[1]]
    catalog.close()


def _where(filters: dict[str, Any]) -> tuple[str, Any]:
    compiled = plan(filters)
    return compiled.where, compiled.params


def test_the_plan_names_the_phase_of_every_field() -> None:
    compiled = plan(
        {
            "doc_id": "a",
            "version_id": ["v1", "v2"],
            "tags": "t",
            "keyphrases": "k",
            "prefer_recent": True,
        },
    )
    assert compiled.execution == {
        "pre": ["doc_id", "version_id", "tags"],
        "post": ["keyphrases"],
        "rerank": ["prefer_recent"],
    }
    assert compiled.versions == ("v1", "v2")
    assert compiled.missing_included == ("tags",)
    assert plan({}).where == ""
    assert plan({}).filter_profile_id == compiled.filter_profile_id


def test_a_post_filter_leaves_80_of_100(tmp_path: Path) -> None:
    """Of 100 candidates 10 match, 20 do not, and 70 have no field and are kept."""
    phrases = [("architecture",)] * 10 + [("weather",)] * 20 + [()] * 70
    path = tmp_path / "catalog.sqlite"
    with CatalogWriter(path) as writer:
        writer.replace_documents([Document("n", "d", "s", "s/d.md", "d.md")])
        entries = [
            Entry(chunk(f"c{n:03}", "d"), "h", "h", "ready", words)
            for n, words in enumerate(phrases)
        ]
        writer.add_version(version("d", "2024"), [], entries, [])
    compiled = plan({"keyphrases": "architecture"})
    assert compiled.where == ""
    candidates = [f"c{n:03}" for n in range(100)]
    dropped = set(CatalogReader(path).chunk_ids(*select_dropped(candidates, compiled)))
    assert dropped == {f"c{n:03}" for n in range(10, 30)}
    assert len(candidates) - len(dropped) == 80


def test_a_large_set_of_values_is_one_parameter() -> None:
    compiled = plan({"doc_id": [f"d{n}" for n in range(5000)]})
    assert len(compiled.params) == 1
    assert len(json.loads(compiled.params[0])) == 5000


def test_a_picture_filter_leaves_80_of_100(tmp_path: Path) -> None:
    """Of 100 candidates 30 show pictures, 10 of them an
    architecture diagram; 20 are dropped.
    """
    path = tmp_path / "catalog.sqlite"
    pictures = {f"c{n:03}": f"p{n:03}" for n in range(30)}
    with CatalogWriter(path) as writer:
        writer.replace_documents([Document("n", "d", "s", "s/d.md", "d.md")])
        ids = [f"c{n:03}" for n in range(100)]
        entries = [
            Entry(
                chunk(i, "d", asset_ids=(pictures[i],) if i in pictures else ()), "h", "h", "ready"
            )
            for i in ids
        ]
        captions = ["系统架构图", "an Architecture Diagram of it"] * 5 + ["a cat"] * 20
        texts = [
            MediaText(asset, caption=caption)
            for asset, caption in zip(pictures.values(), captions, strict=True)
        ]
        writer.add_version(version("d", "2024"), [], entries, [], texts)
    catalog = CatalogReader(path)
    asked = plan({"image_caption": {"$contains": "architecture diagram"}})
    assert (asked.where, asked.execution) == (
        "",
        {"pre": [], "post": ["image_caption"], "rerank": []},
    )
    dropped = set(catalog.chunk_ids(*select_dropped(ids, asked)))
    assert dropped == {i for i in ids[:30] if "Architecture" not in captions[int(i[1:])]}
    both = plan(
        {
            "$or": [
                {"image_caption": {"$contains": "architecture diagram"}},
                {"image_caption": {"$contains": "架构图"}},
            ]
        },
    )
    assert len(catalog.select_ids(both.where, both.params)) == 80
    strict = plan({"image_caption": {"$contains": "architecture diagram", "$missing": "exclude"}})
    # who asks for it loses what has no picture too
    assert len(ids) - len(catalog.chunk_ids(*select_dropped(ids, strict))) == 5
    catalog.close()


@pytest.mark.parametrize(
    ("filters", "phase", "missing"),
    [
        ({"doc_id": "a"}, "pre", "exclude"),
        ({"version_id": "a"}, "pre", "exclude"),
        ({"section_path": "a"}, "pre", "include"),
        ({"created_at": "2024"}, "pre", "exclude"),
        ({"doc_date": "2024"}, "pre", "exclude"),
        ({"created_at": {"$gte": "2024", "$soft": True}}, "rerank", "no_boost"),
        ({"source": "a"}, "pre", "include"),
        ({"tags": "a"}, "pre", "include"),
        ({"tags": {"$eq": "a", "$soft": True}}, "rerank", "no_boost"),
        ({"keyphrases": "a"}, "post", "include"),
        ({"image_caption": "a"}, "post", "include"),
        ({"ocr_text": "a"}, "post", "include"),
        ({"prefer_recent": True}, "rerank", "no_boost"),
        ({"prefer_official": True}, "rerank", "no_boost"),
        ({"prefer_has_image": True}, "rerank", "no_boost"),
    ],
)
def test_the_decision_matrix(filters: dict[str, Any], phase: str, missing: str) -> None:
    compiled = plan(filters)
    name = next(iter(filters))
    assert compiled.execution == {"pre": [], "post": [], "rerank": [], phase: [name]}
    conditions = [compiled.where, compiled.drop, *(favour.where for favour in compiled.favours)]
    assert any("IS NULL" in sql for sql in conditions) == (missing == "include")
    if missing != "no_boost":
        assert MISSING.get(name, "exclude") == missing
    assert name in FILTERABLE or name in SOFT_FIELDS


def test_parts_of_and_run_each_in_their_own_phase() -> None:
    nested = {
        "$and": [
            {"doc_id": "a", "keyphrases": "k"},
            {"$and": [{"lang": "zh"}, {"prefer_recent": True}]},
        ]
    }
    flat = {"doc_id": "a", "lang": "zh", "keyphrases": "k", "prefer_recent": True}
    compiled, same = plan(nested), plan(flat)
    assert (
        compiled.execution
        == same.execution
        == {
            "pre": ["doc_id", "lang"],
            "post": ["keyphrases"],
            "rerank": ["prefer_recent"],
        }
    )
    assert (compiled.where, compiled.params, compiled.drop) == (same.where, same.params, same.drop)


def test_a_soft_condition_lifts_and_never_drops(catalog: CatalogReader) -> None:
    compiled = plan(
        {"tags": {"$in": ["api"], "$soft": True}, "created_at": {"$gte": "2025", "$soft": True}},
    )
    assert (compiled.where, compiled.drop, compiled.soft) == ("", "", ())
    assert compiled.execution == {"pre": [], "post": [], "rerank": ["tags", "created_at"]}
    lifted = {
        name: catalog.chunk_ids(where, params)
        for name, where, params in select_favoured(["c1", "c2", "c3"], compiled)
    }
    assert lifted == {"tags": ["c1", "c2"], "created_at": ["c3"]}  # c3 has no tags: no boost
    assert [name for name, _, _ in select_favoured([], compiled)] == ["tags", "created_at"]
    switched = plan({"tags": {"$eq": "api", "$soft": True}, "prefer_official": True})
    assert switched.execution["rerank"] == ["prefer_official", "tags"]
