"""What a parser's Markdown is worth against a truth: words, order, headings, table cells, and small
checks.

Every parser's output goes through the same normalisation. Text: NFKC, lower case, markup taken off,
words are runs of letters and digits, each ideograph or kana is a word of its own, and a Hebrew or
Arabic word ends where another script begins. Cells: NFKC, lower case, no white space, no emphasis
marks, no dot leaders, one kind of dash and quote.
"""

from __future__ import annotations

import bisect
import html
import itertools
import re
import unicodedata
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from lxml import html as lxml_html

_RIGHT_TO_LEFT = r"\u0590-\u08ff\ufb1d-\ufdff\ufe70-\ufefc"
_WORD = re.compile(
    rf"[\u2e80-\u312f\u31a0-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff]|[{_RIGHT_TO_LEFT}]+|(?:(?![{_RIGHT_TO_LEFT}])[^\W_])+"
)
_SEPARATOR = re.compile(r"^\s*\|?\s*:?-+:?\s*(\|\s*:?-+:?\s*)*\|?\s*$")
_HEADING = re.compile(r"^ {0,3}(#{1,6})\s+(.+?)\s*#*$", re.MULTILINE)
_PLACEHOLDER = re.compile(
    r"\*\*==> picture.*?<==\*\*|\*\*-+ (?:Start|End) of picture text -+\*\*|-+ (?:Start|End) of"
    r" picture text -+"
)


@dataclass(frozen=True, slots=True)
class Score:
    """Precision, recall and what follows from them."""

    found: int
    expected: int
    right: int

    @property
    def f1(self) -> float:
        """The harmonic mean; 1 when nothing was expected and nothing found."""
        return 2 * self.right / (self.found + self.expected) if self.found + self.expected else 1.0

    def __add__(self, other: Score) -> Score:
        return Score(
            self.found + other.found, self.expected + other.expected, self.right + other.right
        )


def overlap(found: Counter[Any], expected: Counter[Any]) -> Score:
    """The score of one multiset against another."""
    return Score(found.total(), expected.total(), (found & expected).total())


# --- text ---------------------------------------------------------------------------------------


def plain(markdown: str) -> str:
    """The text without its markup: comments, tags, image links, table frames, emphasis, headings,
    entities and escapes.
    """
    text = _PLACEHOLDER.sub(" ", markdown)
    text = re.sub(r"<!--.*?-->", " ", text, flags=re.DOTALL)
    text = re.sub(r"!\[[^\]]*\]\([^)]*\)", " ", text)
    text = re.sub(r"\[([^\]]*)\]\((?:[^()\s]|\([^()]*\))*\)", r"\1", text)
    text = re.sub(r"</?(?:sup|sub|b|i|u|em|strong)\b[^>]*>", "", text)
    text = re.sub(r"</?[a-zA-Z][^<>]*>", " ", text)
    text = "\n".join("" if _SEPARATOR.match(line) else line for line in text.splitlines())
    text = re.sub(r"\\([\\`*_{}\[\]()#+.!|<>~-])", r"\1", text)
    return html.unescape(re.sub(r"[*~`]|(?<!\w)_+|_+(?!\w)", "", text))


def words(markdown: str) -> list[str]:
    """The words of a text in order."""
    return _WORD.findall(unicodedata.normalize("NFKC", plain(markdown)).casefold())


def covered(truth: str, printed: str) -> str:
    """The lines of the truth that a file prints, when the file is an excerpt: the run of as many
    words that shares most with them.

    A truth with less than half as many words again as the file is taken whole.
    """
    wanted = Counter(words(printed))
    lines = [(line, words(line)) for line in truth.splitlines(keepends=True)]
    if sum(len(found) for _, found in lines) <= 1.5 * wanted.total():
        return truth
    best = (0, 0, 0)
    for first in range(len(lines)):
        held: Counter[str] = Counter()
        last = first
        while last < len(lines) and held.total() < wanted.total():
            held.update(lines[last][1])
            last += 1
        best = max(best, ((held & wanted).total(), -first, -last))
    return "".join(line for line, _ in lines[-best[1] : -best[2]])


def text_score(found: str, truth: str) -> Score:
    """Words as multisets."""
    return overlap(Counter(words(found)), Counter(words(truth)))


def order_share(found: str, truth: str, length: int = 4) -> float:
    """The share of runs of `length` words, unique in both texts, that can be read in the truth's
    order; 0 when the texts share none.

    The longest increasing subsequence of their places, so one moved paragraph costs its own length
    and no more.
    """
    places = []
    for text in (found, truth):
        grams = list(zip(*(words(text)[shift:] for shift in range(length)), strict=False))
        counts = Counter(grams)
        places.append({gram: place for place, gram in enumerate(grams) if counts[gram] == 1})
    common = sorted(
        (place, places[0][gram]) for gram, place in places[1].items() if gram in places[0]
    )
    tails: list[int] = []
    for _, place in common:
        at = bisect.bisect_left(tails, place)
        tails[at : at + 1] = [place]
    return len(tails) / len(common) if common else 0.0


def headings(markdown: str) -> list[tuple[int, str]]:
    """(level, normalised title) of each ATX heading outside of fences."""
    text = re.sub(
        r"^ {0,3}(```+|~~~+).*?(^ {0,3}\1|\Z)", "", markdown, flags=re.DOTALL | re.MULTILINE
    )
    found = [(len(match[1]), " ".join(words(match[2]))) for match in _HEADING.finditer(text)]
    return [(level, title) for level, title in found if title]


def heading_scores(found: str, truth: str) -> tuple[Score, Score]:
    """(titles alone, titles with their level)."""
    ours, theirs = headings(found), headings(truth)
    return overlap(Counter(t for _, t in ours), Counter(t for _, t in theirs)), overlap(
        Counter(ours), Counter(theirs)
    )


# --- tables -------------------------------------------------------------------------------------


class Cell(NamedTuple):
    """A cell and the rows and columns it spans, both ends included."""

    row: int
    col: int
    end_row: int
    end_col: int
    text: str


def cell_text(text: str) -> str:
    """A cell as it is compared."""
    text = unicodedata.normalize("NFKC", html.unescape(re.sub(r"<[^<>]*>", "", text))).casefold()
    text = re.sub(
        r"[\u2010-\u2015\u2212]", "-", re.sub(r"[\u2018\u2019\u201c\u201d`´\"]", "'", text)
    )
    return re.sub(r"\.{3,}", "", re.sub(r"[\s*_~\\\u00ad]", "", text))


def tables(markdown: str) -> list[list[Cell]]:
    """The cells of every pipe table and HTML table of a text; empty cells are left out."""
    found = [
        _html_cells(match[0])
        for match in re.finditer(r"<table\b.*?</table>", markdown, re.DOTALL | re.IGNORECASE)
    ]
    group: list[str] = []
    for line in [
        *re.sub(r"<table\b.*?</table>", "", markdown, flags=re.DOTALL | re.IGNORECASE).splitlines(),
        "",
    ]:
        if line.lstrip().startswith("|"):
            group.append(line)
        elif group:
            if any(_SEPARATOR.match(row) for row in group):
                found.append(_pipe_cells(group))
            group = []
    return found


def _pipe_cells(lines: Sequence[str]) -> list[Cell]:
    rows = [line for line in lines if not _SEPARATOR.match(line)]
    cells = []
    for row, line in enumerate(rows):
        for col, text in enumerate(
            re.split(r"(?<!\\)\|", line.strip().removeprefix("|").removesuffix("|"))
        ):
            if value := cell_text(text):
                cells.append(Cell(row, col, row, col, value))
    return cells


def _html_cells(source: str) -> list[Cell]:
    taken: set[tuple[int, int]] = set()
    cells = []
    for row, line in enumerate(lxml_html.fromstring(source).iter("tr")):
        col = 0
        for item in line.iter("td", "th"):
            while (row, col) in taken:
                col += 1
            end_row, end_col = (
                row + int(item.get("rowspan", 1)) - 1,
                col + int(item.get("colspan", 1)) - 1,
            )
            taken.update((r, c) for r in range(row, end_row + 1) for c in range(col, end_col + 1))
            if value := cell_text(item.text_content()):
                cells.append(Cell(row, col, end_row, end_col, value))
    return cells


def relations(cells: Sequence[Cell], strict: bool = False) -> Counter[tuple[str, str, str]]:
    """Adjacency relations (text, text, direction) of a table, the ICDAR 2013 measure.

    Göbel, Hassan, Oro and Orsi, "A methodology for evaluating algorithms for table understanding in
    PDF documents" (DocEng 2012): each cell with content is paired with its nearest cell with
    content to the right and below; empty cells are passed over. A spanning cell has a neighbour in
    each row and column that it spans, and a pair of cells counts once in a direction. `strict`
    pairs only cells that touch.
    """
    grid = {
        (r, c): cell
        for cell in cells
        for r in range(cell.row, cell.end_row + 1)
        for c in range(cell.col, cell.end_col + 1)
    }
    by_row: dict[int, list[int]] = {}
    by_col: dict[int, list[int]] = {}
    for row, col in sorted(grid):
        by_row.setdefault(row, []).append(col)
        by_col.setdefault(col, []).append(row)
    pairs: set[tuple[Cell, Cell, str]] = set()
    near = 1 if strict else len(grid) + max((max(place) for place in grid), default=0)
    for row, cols in by_row.items():
        pairs.update(
            (grid[row, a], grid[row, b], "right")
            for a, b in itertools.pairwise(cols)
            if b - a <= near
        )
    for col, rows in by_col.items():
        pairs.update(
            (grid[a, col], grid[b, col], "down")
            for a, b in itertools.pairwise(rows)
            if b - a <= near
        )
    return Counter(
        (one.text, other.text, direction) for one, other, direction in pairs if one != other
    )


# --- checks in the manner of olmOCR -------------------------------------------------------------


def passes(test: dict[str, Any], markdown: str) -> bool:
    """Whether a text does what one line of olmocr-tests.jsonl asks.

    present: the text stands there with at most `max_diffs` (default 0) characters changed. absent:
    it does not. order: some place of `before` ends ahead of some place of `after`. table: some cell
    equals `cell`, and the neighbour or heading asked for equals its text. math: the printed signs
    of the formula stand there in order (a text has no LaTeX). White space, emphasis marks, kinds of
    quote and dash never count; case counts unless the test says otherwise.
    """
    kind = test["type"]
    if kind == "table":
        return any(_table_passes(test, cells) for cells in tables(markdown))
    exact = test.get("case_sensitive", True)
    text = _flat(plain(markdown), exact)
    if kind == "math":
        return bool(signs := _math_signs(test["math"])) and signs in _math_signs(text)
    fuzz = int(test.get("max_diffs", 0))
    if kind == "order":
        before, after = (
            _places(_flat(test["before"], exact), text, fuzz),
            _places(_flat(test["after"], exact), text, fuzz),
        )
        return bool(before and after) and min(before) < max(after)
    if "first_n" in test or "last_n" in test:
        text = (text[: test["first_n"]] if "first_n" in test else "") + (
            text[-test["last_n"] :] if "last_n" in test else ""
        )
    return bool(_places(_flat(test["text"], exact), text, fuzz)) == (kind == "present")


def _flat(text: str, exact: bool) -> str:
    text = unicodedata.normalize("NFKC", text)
    text = re.sub(r"[\u2010-\u2015\u2212]", "-", re.sub(r"[\u2018\u2019`´]", "'", text))
    text = re.sub(r"[\u201c\u201d]|''", '"', text)
    return " ".join((text if exact else text.casefold()).split())


def _places(pattern: str, text: str, fuzz: int) -> list[int]:
    """Where matches of the pattern end in the text (Sellers 1980: edit distance to the best
    substring).
    """
    if fuzz == 0:
        return [match.end() for match in re.finditer(f"(?={re.escape(pattern)})", text)]
    costs = list(range(len(pattern) + 1))
    found = []
    for end, char in enumerate(text, 1):
        previous, costs[0] = 0, 0
        for at, wanted in enumerate(pattern, 1):
            previous, costs[at] = (
                costs[at],
                min(previous + (char != wanted), costs[at] + 1, costs[at - 1] + 1),
            )
        if costs[-1] <= fuzz:
            found.append(end - len(pattern))
    return found


_LATEX = {r"\pi": "π", r"\int": "∫", r"\nabla": "∇", r"\times": "×", r"\partial": "∂"}


def _math_signs(text: str) -> str:
    """A formula's signs as a page prints them in a row: fractions without their bar, no spaces,
    braces or marks of place.
    """
    text = re.sub(r"\\(?:mathbf|mathrm|frac|left|right)\b", "", text)
    for command, sign in _LATEX.items():
        text = text.replace(command, sign)
    return re.sub(r"[\s{}_^\\]", "", unicodedata.normalize("NFKC", text)).replace("\u2212", "-")


def _table_passes(test: dict[str, Any], cells: Sequence[Cell]) -> bool:
    grid = {
        (r, c): cell.text
        for cell in cells
        for r in range(cell.row, cell.end_row + 1)
        for c in range(cell.col, cell.end_col + 1)
    }
    for (row, col), text in grid.items():
        if text != cell_text(test["cell"]):
            continue
        around = {
            "up": [grid.get((row - 1, col))],
            "down": [grid.get((row + 1, col))],
            "left": [grid.get((row, col - 1))],
            "right": [grid.get((row, col + 1))],
            "top_heading": [grid.get((r, col)) for r in range(row)],
            "left_heading": [grid.get((row, c)) for c in range(col)],
        }
        if all(
            cell_text(test[side]) in values for side, values in around.items() if test.get(side)
        ):
            return True
    return False
