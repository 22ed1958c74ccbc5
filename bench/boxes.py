"""Whether the rectangles drawn for a quote of a PDF cover its words and no others, by PyMuPDF's own
words; the exit code is 1 when a goal is missed.

    python bench/boxes.py [--data FOLDER] [--half tune|report|both] [--strategy fast] [--json]

FOLDER holds `pdf-truth`; default RAG_TEST_DATA or ../shared/data. Every PDF that can be read is
published in a temporary data root. Each sentence, line and table row of each chunk is a quote; its
rectangles are those of GET /api/chunks/{chunk_id}/place.

The truth knows nothing of how the rectangles are found: it is the words of `page.get_text("words")`
whose letters, written one after the other, hold the letters of the quote. A word is covered when
its centre lies in a rectangle. Quotes whose letters stand there more than once, or nowhere in a row
(a table that is printed in another order), have no such truth: they are counted, and compared by
the letters that their rectangles cover. Files are halved by the hash of their name.

    recall     covered words of the quote, over its words
    precision  covered words of the quote, over covered words
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import pymupdf
from serve import publish
from starlette.testclient import TestClient

from rag_platform.config.settings import load_settings
from rag_platform.ir import Chunk
from rag_platform.retrieval.library import Library
from rag_platform.text.scripts import letters
from rag_platform.web.app import create_app

RECALL, PRECISION = 0.98, 0.9
_LEAST = 8  # letters of a quote; shorter ones stand nearly everywhere
_PIECE = re.compile(r"[^\n]+?(?:[.!?](?=\s)|[。！？；]|(?=\n)|$)")


@dataclass
class Figures:
    """What was measured of one file; letters are those of quotes without a place of their own."""

    file: str
    quotes: int = 0
    placed: int = 0  # quotes whose words are known
    words: int = 0  # of these quotes
    covered: int = 0  # words in their rectangles
    right: int = 0  # of these, words of the quote
    letters: int = 0
    covered_letters: int = 0
    right_letters: int = 0
    worst: list[tuple[float, str]] = field(default_factory=list)

    @property
    def recall(self) -> float:
        """Right over words."""
        return self.right / self.words if self.words else 1.0

    @property
    def precision(self) -> float:
        """Right over covered."""
        return self.right / self.covered if self.covered else 1.0


class Page:
    """The words of a page as PyMuPDF finds them."""

    def __init__(self, page: Any) -> None:
        page.remove_rotation()
        self.words = [
            (said, (x0 + x1) / 2, (y0 + y1) / 2)
            for x0, y0, x1, y1, text, *_ in page.get_text("words")
            if (said := letters(text))
        ]
        self.text = "".join(word for word, _, _ in self.words)
        self.ends: list[int] = []
        for word, _, _ in self.words:
            self.ends.append((self.ends[-1] if self.ends else 0) + len(word))

    def find(self, quote: str) -> set[int] | None:
        """The words that the letters of a quote belong to; None where that is not certain."""
        start = self.text.find(quote)
        if start < 0 or self.text.find(quote, start + 1) >= 0:
            return None
        found = set()
        for number, (word, _, _) in enumerate(self.words):
            end = self.ends[number]
            inside = min(end, start + len(quote)) - max(end - len(word), start)
            if inside > 0.5 * len(word):
                found.add(number)
        return found

    def covered(self, boxes: Sequence[Sequence[float]]) -> set[int]:
        """The words whose centre lies in one of the rectangles."""
        return {
            number
            for number, (_, x, y) in enumerate(self.words)
            if any(x0 <= x <= x1 and y0 <= y <= y1 for x0, y0, x1, y1 in boxes)
        }


def quotes(chunk: Chunk) -> Iterator[tuple[int, int]]:
    """The spans of the sentences, lines and table rows of a chunk."""
    for match in _PIECE.finditer(chunk.chunk_text):
        if len(letters(match[0])) >= _LEAST:
            yield match.span()


def measure(client: TestClient, path: Path, namespace: str, chunks: Sequence[Chunk]) -> Figures:
    """The figures of one file, asked of the API."""
    figures = Figures(path.name)
    with pymupdf.open(path) as document:
        pages = [Page(page) for page in document]
    for chunk in chunks:
        for span in quotes(chunk):
            _add(figures, client, namespace, chunk, span, pages)
    return figures


def _add(
    figures: Figures,
    client: TestClient,
    namespace: str,
    chunk: Chunk,
    span: tuple[int, int],
    pages: Sequence[Page],
) -> None:
    answered = client.get(
        f"/api/chunks/{chunk.chunk_id}/place",
        params={"namespace": namespace, "span": f"{span[0]}-{span[1]}"},
    )
    assert answered.status_code == 200, answered.text
    shown = {page["page"]: page["cited"] for page in answered.json()["pages"]}
    quote = letters(chunk.chunk_text[slice(*span)])
    figures.quotes += 1
    meant = {number: pages[number - 1].find(quote) for number in shown}
    places = [number for number, found in meant.items() if found]
    covered = {number: pages[number - 1].covered(boxes) for number, boxes in shown.items()}
    if len(places) != 1:
        said = Counter(quote)
        drawn = Counter(
            "".join(pages[n - 1].words[word][0] for n, found in covered.items() for word in found)
        )
        figures.letters += len(quote)
        figures.covered_letters += sum(drawn.values())
        figures.right_letters += sum((said & drawn).values())
        return
    wanted = {(places[0], word) for word in meant[places[0]] or ()}
    drawn_words = {(number, word) for number, found in covered.items() for word in found}
    right = len(wanted & drawn_words)
    figures.placed += 1
    figures.words += len(wanted)
    figures.covered += len(drawn_words)
    figures.right += right
    share = min(right / len(wanted), right / len(drawn_words) if drawn_words else 0.0)
    if share < 1:
        figures.worst.append((share, f"{chunk.chunk_id} {span} {quote[:60]}"))


def in_half(name: str, half: str) -> bool:
    """True for a file of that half, by the hash of its name."""
    even = int(hashlib.sha256(name.encode()).hexdigest(), 16) % 2 == 0
    return half == "both" or even == (half == "tune")


def main() -> None:
    """Measure, print, judge."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    beside = Path(__file__).resolve().parents[2] / "shared" / "data"
    parser.add_argument("--data", type=Path, default=os.environ.get("RAG_TEST_DATA") or beside)
    parser.add_argument("--half", choices=["tune", "report", "both"], default="both")
    parser.add_argument("--strategy", default="fast")
    parser.add_argument("--worst", type=int, default=0, metavar="N")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    files = [
        path
        for path in sorted(Path(options.data, "pdf-truth").glob("*.pdf"))
        if in_half(path.name, options.half)
    ]
    if not files:
        sys.exit(f"no PDF in {options.data}/pdf-truth; name its folder with --data")
    with tempfile.TemporaryDirectory() as folder:
        os.environ["RAG_HOME"] = str(Path(folder) / "home")
        documents = Path(folder) / "documents"
        documents.mkdir()
        for path in files:
            shutil.copy(path, documents / path.name)
        publish(documents, options.strategy)
        namespace = load_settings().default_namespace
        rows, without = measure_all(documents, namespace)
    total = add(rows)
    if options.json:
        print(json.dumps({"files": [asdict(row) for row in rows], "total": asdict(total)}))
    else:
        show([*rows, total], without, options.worst)
    sys.exit(total.recall < RECALL or total.precision < PRECISION)


def measure_all(documents: Path, namespace: str) -> tuple[list[Figures], list[str]]:
    """(figures of each file, those without a chunk that has text)."""
    library = Library.open(load_settings())
    with TestClient(create_app(library), base_url="http://127.0.0.1") as client:
        with library.lease(namespace) as lease:
            catalog = lease.release.catalog
            chunks = {
                document.filename: [
                    chunk
                    for chunk in catalog.chunks_of_version(document.live_version or "")
                    if chunk.chunk_text
                ]
                for document in catalog.documents()
            }
        rows = [
            measure(client, documents / name, namespace, found)
            for name, found in sorted(chunks.items())
            if found
        ]
    known = {row.file for row in rows}
    return rows, [path.name for path in sorted(documents.iterdir()) if path.name not in known]


def add(rows: Sequence[Figures]) -> Figures:
    """The figures of all files together."""
    total = Figures("all")
    for row in rows:
        for name, value in asdict(row).items():
            if isinstance(value, int):
                setattr(total, name, getattr(total, name) + value)
    return total


def show(rows: Sequence[Figures], without: Sequence[str], worst: int) -> None:
    """Print a line for each file."""
    print("recall  precision  words  quotes (of them without a certain place)  file")
    for row in rows:
        print(
            f"{row.recall:6.4f}  {row.precision:9.4f}  {row.words:5}  {row.quotes:5}"
            f" ({row.quotes - row.placed})  {row.file}"
        )
        for share, quote in sorted(row.worst)[:worst]:
            print(f"          {share:.2f} {quote}")
    total = rows[-1]
    if total.letters:
        print(
            f"letters of quotes without a certain place: recall"
            f" {total.right_letters / total.letters:.4f}, precision"
            f" {total.right_letters / max(1, total.covered_letters):.4f} of {total.letters}"
        )
    print(f"{len(rows) - 1} documents measured; without text: {', '.join(without) or 'none'}")


if __name__ == "__main__":
    main()
