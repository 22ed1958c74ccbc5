"""Formats without pages read in children that may die, and proofs made there."""

from __future__ import annotations

import os
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from rag_platform.config.settings import Limits
from rag_platform.errors import ConfigError, DocumentError
from rag_platform.intake import isolation
from rag_platform.intake import isolation as child_pool
from rag_platform.loaders.pdf.mupdf import PdfLoader
from rag_platform.loaders.text import TextLoader

REPOSITORY = Path(__file__).resolve().parents[2]
DATASHEET = REPOSITORY / "rag_platform" / "samples" / "datasheet.pdf"

MOODY = """
import ctypes, os, time
from dataclasses import dataclass
from pathlib import Path
from rag_platform.errors import DocumentError
from rag_platform.loaders.text import TextLoader

@dataclass(frozen=True)
class Moody:
    VERSION = "1"
    suffix: str = ""
    def claims(self, filename, head): return True
    def load(self, path, filename):
        mood = path.read_text()
        if mood == "hang": time.sleep(60)
        if mood == "crash": os.abort()
        if mood == "grow": bytearray(2**31)
        if mood == "raise": raise KeyError("no such part")
        if mood == "refuse": raise DocumentError("it is locked", code="encrypted")
        if mood == "print": print("nonsense on stdout", flush=True)
        Path(str(path) + self.suffix + ".pid").write_text(str(os.getpid()))
        return TextLoader().load(path, filename)
    def verify_blocks(self, path, text, blocks):
        return {b.ordinal: text[b.start : b.end] for b in blocks if text[b.start : b.end] not in \
path.read_text()}
"""


def running() -> list[int]:
    """Process ids of the living children, busy or idle."""
    return sorted(child.process.pid for child in child_pool.pool().all if child.is_alive())


@pytest.fixture(autouse=True, scope="module")
def _end_children():
    yield
    child_pool.pool().close()


@pytest.fixture
def moody(tmp_path, monkeypatch):
    (tmp_path / "moody_loader.py").write_text(MOODY, encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    child_pool.pool().close()  # a child knows the path that its parent had at its start

    def read(mood: str, limits: Limits | None = None, **options: object):
        path = tmp_path / "stored"
        path.write_text(mood, encoding="utf-8")
        return isolation.load_in_child(
            path, "a.txt", "moody_loader:Moody", options, limits or Limits()
        )

    return read


@pytest.mark.integration
def test_a_child_gives_the_facts_that_this_process_would_make(tmp_path):
    path = tmp_path / "stored"
    path.write_text(
        "\n\n".join(f"Paragraph {n} 中文 \U0001f600 says so." for n in range(3_000)),
        encoding="utf-8",
    )
    facts = isolation.load_in_child(path, "a.txt", "text", {}, Limits())
    assert facts == TextLoader().load(path, "a.txt")
    assert len(facts.blocks) > 1_000
    with pytest.raises(DocumentError, match=r"a\.txt has more than 1000 characters") as caught:
        isolation.load_in_child(path, "a.txt", "text", {}, Limits(max_bytes=1000))
    assert caught.value.code == "too_large"


@pytest.mark.integration
@pytest.mark.parametrize(
    ("mood", "limits", "code", "said"),
    [
        ("hang", Limits(parse_seconds=0.5), "timeout", "limits.parse_seconds"),
        ("hang", Limits(file_seconds=0.5), "timeout", "0.5 seconds"),
        ("crash", Limits(), "parser_failed", "ended by signal 6"),
        ("grow", Limits(parse_memory_mb=500), "out_of_memory", "more than 500 MB"),
        ("raise", Limits(), "parser_failed", "a part of it is missing"),
        ("refuse", Limits(), "encrypted", "it is locked"),
    ],
)
def test_a_bad_file_fails_alone(moody, tmp_path, mood, limits, code, said):
    assert moody("well").text == "well"
    with pytest.raises(DocumentError, match=said) as caught:
        moody(mood, limits)
    assert caught.value.code == code
    assert moody("well again", suffix="2").text == "well again"
    same_child = (tmp_path / "stored.pid").read_text() == (tmp_path / "stored2.pid").read_text()
    assert same_child == (code == "encrypted")


@pytest.mark.integration
def test_what_a_parser_prints_does_not_reach_the_pipe(moody):
    assert moody("print").text == "print"


@pytest.mark.integration
def test_unknown_providers_and_options_are_errors_of_the_config(moody):
    with pytest.raises(ConfigError, match="unknown loader 'no_such'"):
        isolation.load_in_child(DATASHEET, "a.txt", "no_such", {}, Limits())
    with pytest.raises(ConfigError, match="no option 'depth'"):
        moody("well", depth=3)


@pytest.mark.integration
def test_more_threads_than_children_wait_their_turn(tmp_path):
    paths = [tmp_path / f"{n}" for n in range(6)]
    for path in paths:
        path.write_text(f"text of {path.name}", encoding="utf-8")
    texts: dict[str, str] = {}

    def work(path: Path) -> None:
        texts[path.name] = isolation.load_in_child(path, "a.txt", "text", {}, Limits()).text

    threads = [threading.Thread(target=work, args=(path,)) for path in paths]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert texts == {str(n): f"text of {n}" for n in range(6)}
    assert len(running()) <= 2 * child_pool.pool().size


@pytest.mark.integration
def test_proofs_are_made_in_children(moody, tmp_path):
    facts = moody("one\n\ntwo")
    wrong = facts.text.replace("two", "six")
    asked = (tmp_path / "stored", "moody_loader:Moody", {})
    assert isolation.verify_in_child(*asked, facts.text, facts.blocks, Limits()) == {}
    assert isolation.verify_in_child(*asked, wrong, facts.blocks, Limits()) == {
        facts.blocks[-1].ordinal: "six"
    }


@pytest.mark.integration
def test_proofs_of_pages_are_made_window_by_window():
    facts = PdfLoader(profile="fast").load(DATASHEET, "d.pdf")
    limits = Limits(pdf_window_pages=1)
    assert isolation.verify_in_child(DATASHEET, "pdf", {}, facts.text, facts.blocks, limits) == {}
    last = facts.blocks[-1]
    moved = [*facts.blocks[:-1], replace(last, bbox=(0.0, 0.0, 1.0, 1.0))]
    assert list(isolation.verify_in_child(DATASHEET, "pdf", {}, facts.text, moved, limits)) == [
        last.ordinal
    ]


@pytest.mark.integration
def test_no_child_outlives_the_pool():
    child_pool.pool().close()
    assert running() == []
    isolation.load_in_child(Path(__file__), "a.py", "text", {}, Limits())
    pids = running()
    assert pids
    child_pool.pool().end_waiting()
    assert running() == []
    isolation.load_in_child(Path(__file__), "a.py", "text", {}, Limits())
    pids += running()
    child_pool.pool().close()
    for pid in pids:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)
