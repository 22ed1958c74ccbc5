"""Documents with drafts, captions, descriptions and traces are deleted; a scan of every file finds
none of their words.
"""

from __future__ import annotations

import hashlib
import json
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from PIL import Image

from rag_platform.processes.jobs import Started
from rag_platform_tests.chat_server import Reply, chat_server, said
from rag_platform_tests.conftest import THOROUGH, TINY, seated
from rag_platform_tests.scanning import words_found

pytestmark = pytest.mark.e2e

DOCUMENTS, SENTENCES = (20 if THOROUGH else 5), 100
PREFIX = "Zül"  # every distinctive word begins with it, in no other text of the data root


def word(document: int, number: int) -> str:
    """A word of its own for each sentence: letters only, so that every tokenizer keeps it whole."""
    digest = hashlib.sha256(f"{document}/{number}".encode()).digest()
    return PREFIX + "".join(chr(97 + byte % 26) for byte in digest[:9])


def text_of(document: int, edition: int = 0) -> str:
    """Markdown of the document's sentences in four sections, with a title, a tag, a picture and a
    missing picture.
    """
    own = [word(document, number) for number in range(SENTENCES)]
    parts = [f"---\ntitle: {own[0]} manual\ntags: [{own[1]}]\n---\n\n# {own[2]} manual\n"]
    for start in range(0, SENTENCES, 25):
        said = [
            f"{own[n]} raises sluice {n} of weir {document} at {edition:02d}:{n % 60:02d}."
            for n in range(start, start + 25)
        ]
        parts.append(f"## {own[start]} weir\n\n" + "\n".join(said) + "\n")
    parts.append(f"![{own[5]}](weir.png)\n\n![{own[6]}]({own[7]}.png)\n")
    return "\n".join(parts)


def reply(body: dict[str, Any], number: int) -> Reply:
    """What a model says: it quotes what it was shown."""
    seen = any(isinstance(message["content"], list) for message in body["messages"])
    shown = re.findall(PREFIX + "[a-z]{9}", json.dumps(body["messages"], ensure_ascii=False))[-1:]
    quoted = " ".join(shown) or "a weir"
    caption = {
        "image_type": "photo",
        "summary": f"A picture of {quoted}.",
        "key_points": [quoted],
        "entities": [],
        "numbers": [],
        "uncertainties": [],
    }
    return said(
        json.dumps(
            caption
            if seen
            else {"title": quoted, "summary": f"{quoted}, told again.", "tags": [quoted]}
        )
    )


def test_no_word_of_deleted_documents_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TEST_KEY", "sesame")
    with chat_server(reply) as server:
        options = (
            f"{{model: m1, base_url: '{server.url}', api_key_env: TEST_KEY, backoff_ms: 1,"
            " retries: 0}"
        )
        model = f"{{provider: openai, options: {options}}}"
        strategy = (
            TINY.replace("chunk_size: 400", "chunk_size: 1600")
            + f"views:\n  describe: {model}\nmedia_texts:\n  captions: {model}\n"
        )
        with seated(tmp_path / "desk", tiny=strategy) as desk:
            Image.effect_mandelbrot((160, 120), (-2, -1, 1, 1), 60).convert("RGB").save(
                desk.docs / "weir.png"
            )
            desk.write(
                dock="# Dock\n\nThe south dock holds 12 trucks.\n",
                **{f"weir{n}": text_of(n) for n in range(DOCUMENTS)},
            )
            assert desk.call("ingest", desk.docs).exit_code == 0
            desk.write(**{f"weir{n}": text_of(n, edition=1) for n in range(0, DOCUMENTS, 5)})
            assert desk.call("ingest", desk.docs).exit_code == 0
            for n in (0, 3):
                draft_by_hand(desk, n)
            for n in range(0, DOCUMENTS, 3):
                hits = desk.call(
                    "query", f"At what time does {word(n, 42)} raise its sluice?"
                ).data["results"]
                assert any(word(n, 42) in str(hit) for hit in hits)
            desk.call("query", "How high is the weir?")
            before = words_found(desk.store.home, PREFIX)
            places = {name.partition("/")[0] for name in before}
            assert {
                "raw",
                "facts",
                "versions",
                "media",
                "cache",
                "releases",
                "logs",
                "dagster",
            } <= places

            # the machine went down before the jobs of most of them began
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(
                    "rag_platform_tests.conftest.run_here",
                    lambda job, *_: Started(job, SimpleNamespace(poll=lambda: 9, returncode=9)),
                )
                for n in range(DOCUMENTS - 1):
                    desk.call("docs", "delete", f"weir{n}.md", "--mode", "hard", "--yes")
            gone = desk.call("docs", "delete", f"weir{DOCUMENTS - 1}.md", "--mode", "hard", "--yes")
            assert gone.exit_code == 0, gone.said
            assert desk.call("gc").exit_code == 0
            assert words_found(desk.store.home, PREFIX) == {}
            for n in (0, 3, DOCUMENTS - 1):
                proof = desk.call("gc", "--prove", f"weir{n}.md").data
                assert (proof["total"], proof["not_looked_into"]) == (0, []), proof
            assert desk.call("verify", "--all").data["failed"] == 0
            assert "12 trucks" in desk.call("query", "How many trucks?").data["answer_markdown"]


def draft_by_hand(desk: Any, n: int) -> None:
    """Ten sentences written by hand into one chunk of a document and published, after a text that
    was taken back.
    """
    name = f"weir{n}.md"
    chunk = desk.call("drafts", "show", name).data["chunks"][1]["chunk_id"]
    mine = " ".join(
        f"{word(n, number)} is written by hand." for number in range(SENTENCES, SENTENCES + 10)
    )
    assert (
        desk.call(
            "drafts", "edit", name, chunk, "--text", f"{PREFIX}qqqqqqqq was taken back."
        ).exit_code
        == 0
    )
    assert desk.call("drafts", "undo", name).exit_code == 0
    assert desk.call("drafts", "edit", name, chunk, "--text", mine).exit_code == 0
    assert desk.call("drafts", "publish", name).exit_code == 0
