"""An answer with default arguments keeps to its budget, whatever the library holds."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp import Client

from rag_platform.ir import Json
from rag_platform.server.app import build_server
from rag_platform.text.tokens import counter

PASSAGES, QUESTIONS = 60, 2  # the longest ones of a corpus


def rows(path: Path) -> list[Json]:
    """The longest rows of a file of JSON lines."""
    lines = path.read_text(encoding="utf-8").splitlines()
    return sorted(map(json.loads, lines), key=lambda row: -len(row["text"]))


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of the tokenizer
@pytest.mark.parametrize(
    "corpus", ["cranfield-en", "xquad-en", "xquad-zh", "cmrc2018-zh", "drcd-zht", "rgb-zh"]
)
def test_a_default_answer_is_within_four_thousand_tokens(
    shelf: Any, material: Path, tmp_path: Path, corpus: str
) -> None:
    """Text and fields together, by a tokenizer that models have."""
    folder = material / "retrieval" / corpus
    passages = rows(folder / "corpus.jsonl")[:PASSAGES]
    path = tmp_path / f"{corpus}.md"
    path.write_text("".join(f"# {n}\n\n{row['text']}\n\n" for n, row in enumerate(passages)))
    shelf.ingest(path)
    count = counter("o200k_base")

    async def sizes() -> list[int]:
        async with Client(build_server(shelf.settings, shelf.library())) as client:
            found = [
                await client.call_tool("library_query", {"query": row["text"]})
                for row in rows(folder / "queries.jsonl")[:QUESTIONS]
            ]
        return [
            count(each.content[0].text)
            + count(json.dumps(each.structured_content, ensure_ascii=False))
            for each in found
        ]

    measured = anyio.run(sizes)
    assert len(measured) == QUESTIONS
    assert all(200 < size <= 4000 for size in measured), measured
