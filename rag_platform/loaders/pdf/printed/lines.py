"""The lines of a page in reading order, and their text."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import groupby, pairwise

from rag_platform.ir import Box
from rag_platform.loaders.pdf.printed import bidi
from rag_platform.loaders.pdf.printed.runs import Run, bounding_box, usual_size
from rag_platform.text.scripts import HAN

_FORMULA = re.compile("[=≈≠≤≥∝∫∑∏√∇∂±×÷−]")
_MAX_FRACTION_CHARS = 12  # characters above or below the bar of a fraction
BULLETS = "•◦▪▫●○■□‣⁃–—-*·∙\uf0b7\uf0a7\uf0d8\uf0a8\uf076\uf0fc➢➤✓✔❖◆◇►▶"
_NUMBERED = re.compile(
    r"^(?:\(?(?:\d{1,3}|[a-zA-Z])\)|(?:\d{1,3}|[a-zA-Z])\.|[ivxIVX]{1,5}[.)]|[一二三四五六七八九十]+、"
    r"|（[一二三四五六七八九十\d]+）)(?:\s|$|(?<=[、）]))"
)
_DATE = re.compile(r"\d{1,2}\. [^\W\d_]{3,} \d{4}")  # `16. Februar 2018` opens no entry
LIST_MARKER = re.compile(r"(?:[-*+]|\d{1,9}[.)]) ")
# prefixes whose hyphen is part of the word
_HYPHENATED = frozenset(("self", "well", "half", "cross", "quasi", "non", "semi"))
# not after many underscores, which are the line for a signature
_CUT_NAME = re.compile(r"(?:[^\W_]_{1,2}|\bwww\.)$")
_SUSPENDED = re.compile(r"(?:and|or|to|und|oder)\b")  # `32- and 64-bit`
_URL_MARK = re.compile(r"[/.?#&=_]\w")
_ABBREVIATION = re.compile(r"(?:[A-Za-z]\.){2,}[,:;)]*")  # i.e., U.S.
_WIDE = "\u3000-\u303f\uff01-\uff0f\uff1a-\uff20"  # full-width marks
_CJK = re.compile(
    "[\u2e80-\u312f\u31a0-\u4dbf\u4e00-\u9fff\uf900-\ufaff\ufe30-\ufe4f\uff00-\uff65\U00020000-\U0003ffff]"
)
# two characters between which Chinese has no space: full-width marks, and quotes, dashes and dots
# beside an ideograph
_TIGHT = re.compile(rf"[{HAN}][“‘—…]|[”’—…][{HAN}]|[{_WIDE}].|.[{_WIDE}]")
_LONGEST_WORD = 2000  # characters searched for the last word; URLs are no longer in practice
_INITIAL = 1.8  # font size of an initial to that of the lines beside it
_MIXED, _MIXED_APART = (
    re.compile(f"[{HAN}]{gap}[A-Za-z0-9]|[A-Za-z0-9]{gap}[{HAN}]") for gap in ("", " ")
)


def mark_bullets(runs: Sequence[Run]) -> list[Run]:
    """The runs, with a monospaced `o` before text in another font replaced by a bullet: the usual
    mark of nested lists in word processors.
    """
    marked = list(runs)
    for at, (run, text) in enumerate(pairwise(runs)):
        if (
            run.mono
            and not text.mono
            and run.text.rstrip() == "o"
            and 0.5 * run.size < text.box[0] - run.box[2] < 2 * run.size
            and text.box[1] < run.box[3]
            and run.box[1] < text.box[3]
        ):
            bullet, *spaces = run.chars
            marked[at] = run._replace(chars=(bullet._replace(text="◦"), *spaces))
    return marked


def line_boxes(runs: Sequence[Run]) -> list[tuple[Box, Run]]:
    """Runs with the rectangle that decides which line they belong to.

    A flat character such as a dash gets half the height of a line. Subscripts and superscripts get
    the rectangle of the characters they follow, where the run is cut.
    """
    usual = usual_size((run.size, len(run.chars)) for run in runs)
    scripts = [run for run in runs if run.size <= 0.8 * usual]
    found: list[tuple[Box, Run]] = []
    for run in runs:
        if run.size > 0.8 * usual:
            pieces, scripts = (
                _cut_at_scripts(run, scripts)
                if scripts and run.size < 1.25 * usual
                else ([(_half_line(run), run)], scripts)
            )
            found += pieces
    return [*found, *((_half_line(run), run) for run in scripts)]


def _cut_at_scripts(run: Run, scripts: list[Run]) -> tuple[list[tuple[Box, Run]], list[Run]]:
    """(the run in pieces, each followed by its sub- or superscripts; the remaining scripts)."""
    x0, y0, x1, y1 = run.box
    reach = 0.2 * run.size
    near = [s for s in scripts if s.box[1] < y1 and s.box[3] > y0 and x0 < s.box[0] < x1 + reach]
    found: list[tuple[Box, Run]] = []
    start = 0
    for at, char in enumerate(run.chars) if near else ():
        attached = [
            s
            for s in near
            if abs(s.box[0] - char.x1) < reach
            and s.box[1] < char.y1
            and s.box[3] > char.y0
            and not char[0].isspace()
        ]
        if attached:
            piece = run._replace(chars=run.chars[start : at + 1])
            found += [(_half_line(piece), item) for item in (piece, *attached)]
            near = [s for s in near if s not in attached]
            scripts = [s for s in scripts if s not in attached]
            start = at + 1
    rest = run._replace(chars=run.chars[start:]) if start else run
    return ([*found, (_half_line(rest), rest)] if rest.text.strip() else found), scripts


def _half_line(run: Run) -> Box:
    x0, y0, x1, y1 = run.box
    middle, half = (y0 + y1) / 2, max(y1 - y0, 0.5 * run.size) / 2
    return x0, middle - half, x1, middle + half


def place_fractions(lines: Sequence[list[Run]]) -> list[list[Run]]:
    """The lines, with the parts above and below a gap of a formula inserted into that gap.

    A numerator comes before its denominator, the lower limit of an integral before the upper.
    """
    result = list(lines)
    at = 1
    while at < len(result) - 1:
        above, line, below = result[at - 1 : at + 2]
        slot = (
            _find_slot(above, line, below)
            if _FORMULA.search("".join(run.text for run in line))
            else None
        )
        if slot is None:
            at += 1
            continue
        limits = max(run.size for run in (*above, *below)) <= 0.8 * max(run.size for run in line)
        result[at - 1 : at + 2] = [
            [
                *line[:slot],
                *(below if limits else above),
                *(above if limits else below),
                *line[slot:],
            ]
        ]
    return result


def _find_slot(above: Sequence[Run], line: Sequence[Run], below: Sequence[Run]) -> int | None:
    """The index in a line's runs of the gap between the parts above and below, or None."""
    top, bottom = min(run.box[1] for run in line), max(run.box[3] for run in line)
    reach = 0.8 * max(run.size for run in line)
    places = set()
    for part in (above, below):
        left, right = min(run.box[0] for run in part), max(run.box[2] for run in part)
        if sum(len(run.text.strip()) for run in part) > _MAX_FRACTION_CHARS or any(
            run.box[0] < right - 1 and run.box[2] > left + 1 for run in line
        ):
            return None
        places.add(sum(run.box[2] <= left + 1 for run in line))
    close = (
        top - max(run.box[3] for run in above) < reach
        and min(run.box[1] for run in below) - bottom < reach
    )
    left = min(run.box[0] for run in (*above, *below))
    right = max(run.box[2] for run in (*above, *below))
    adjacent = min(max(run.box[0] - right, left - run.box[2]) for run in line) < reach
    return places.pop() if close and adjacent and len(places) == 1 else None


def visual_lines(runs: Sequence[Run]) -> list[list[Run]]:
    """The runs as printed lines in reading order, from the top; rotated text comes last."""
    level = _raise_initials(line_boxes([run for run in runs if run.horizontal]))
    level.sort(key=lambda item: ((item[0][1] + item[0][3]) / 2, item[0][0]))
    # the box is that of the flattest piece, so that a drop cap does not absorb a second line
    lines: list[tuple[Box, list[tuple[Box, Run]]]] = []
    for box, run in level:
        if lines:
            core = lines[-1][0]
            overlap = min(core[3], box[3]) - max(core[1], box[1])
            if overlap >= 0.5 * min(core[3] - core[1], box[3] - box[1]):
                flattest = min(core, box, key=lambda item: item[3] - item[1])
                lines[-1] = (flattest, [*lines[-1][1], (box, run)])
                continue
        lines.append((box, [(box, run)]))
    ordered = [[run for _, run in sorted(items, key=lambda item: item[0][0])] for _, items in lines]
    if any(bidi.has_rtl(run.text) for _, run in level):
        ordered = bidi.order_logically(ordered, bidi.is_rtl(runs))
    return place_fractions(ordered) + [
        [run] for run in bidi.order_columns([run for run in runs if not run.horizontal])
    ]


def _raise_initials(level: list[tuple[Box, Run]]) -> list[tuple[Box, Run]]:
    """The runs with their rectangles, that of an initial moved to the first line beside it."""
    found: list[tuple[Box, Run]] = []
    least = min((run.size for _, run in level), default=0.0)
    for box, run in level:
        x0, y0, x1, y1 = box
        text = run.text.strip() if _INITIAL * least < run.size else ""
        if len(text) == 1 and text.isalpha():
            beside = [
                other
                for other, line in level
                if _INITIAL * line.size < run.size
                and x0 < other[0] < x1 + line.size
                and y0 - line.size < other[1] < y1
            ]
            if len(beside) > 1:
                top = min(beside, key=lambda other: other[1])
                box = (x0, top[1], x1, top[3])
        found.append((box, run))
    return found


def order_lines(runs: Sequence[Run]) -> Iterator[list[Run]]:
    """The lines of a page in logical order, block by block, as each block has its own direction."""
    for _, block in groupby(runs, lambda run: run.block):
        yield from visual_lines(list(block))


def line_text(line: Sequence[Run]) -> str:
    """The text of a printed line, with a space in each gap between its runs."""
    text, right, initial = "", 0.0, 0.0
    for run in line:
        piece = _typed_text(run)
        box = run.box
        apart = not run.horizontal or (
            abs(box[0] - right) > 0.1 * run.size and initial < _INITIAL * run.size
        )
        if text and not text[-1].isspace() and not piece[:1].isspace() and apart:
            text += " "
        text = text + piece
        right = box[2]
        initial = run.size if len(piece.strip()) == 1 and piece.strip().isalpha() else 0.0
    return re.sub(r"[ \n\r]+", " ", text).strip()


def _typed_text(run: Run) -> str:
    """The text of a run, with a soft hyphen drawn between letters as a hyphen: fonts have one glyph
    for both. Browsers place a soft hyphen that is not drawn below the next letter.
    """
    if "\u00ad" not in run.text:
        return run.text
    drawn = [
        "-"
        if char.text == "\u00ad" and after.text.isalnum() and after.x0 > (char.x0 + char.x1) / 2
        else char.text
        for char, after in pairwise(run.chars)
    ]
    return "".join([*drawn, run.chars[-1].text])


def is_cjk(char: str) -> bool:
    """True for ideographs, kana and full-width punctuation, written without spaces."""
    return _CJK.match(char) is not None


def flow_lines(lines: Sequence[str], words: frozenset[str] = frozenset()) -> str:
    """Printed lines as running text, with words, identifiers and URLs cut at a line end rejoined.

    A hyphen stays before a capital or a digit, behind a digit or capitals (`DBMS-specific`), in a
    URL or an option, and if `words`, the compounds of the page, has the hyphenated word.
    """
    text = ""
    for line in lines:
        if not line:
            continue
        if text[-1:] == "\u00ad" and line[0].isdigit():
            text = f"{text[:-1]}-"
        if not text:
            text = line
        elif text[-1] == "\u00ad" or (
            text[-1] in "-\u2010" and text[-2:-1].isalpha() and line[0].islower()
        ):
            first, second = _last_word(text)[:-1], re.split(r"\s", line)[0]
            compound = f"{first}-{second.rstrip('.,;:)')}" in words or (
                text[-1] != "\u00ad"
                and (
                    first.lower() in _HYPHENATED
                    or first.isupper()
                    or "://" in first
                    or first.lstrip("([").startswith("--")
                )
            )
            text = text[:-1] + text[-1].replace("\u00ad", "-") * compound + line
        elif (
            text[-1] in "-\u2010"
            and text[-2:-1].isalnum()
            and line[0].isalnum()
            and not (_SUSPENDED.match(line) if line[0].islower() else is_cjk(line[0]))
        ):
            # the hyphen of a compound or a name; a dash would have a space before it
            text += line
        elif (
            (is_cjk(text[-1]) and is_cjk(line[0]))
            or _TIGHT.match(text[-1] + line[0])
            or (
                line[0].isalnum()
                and (_ends_unfinished(text) or _is_set_close(text[-1] + line[0], lines))
            )
            or _is_cut_url(text, line)
        ):
            text += line
        else:
            text += f" {line}"
    return text


def _is_set_close(pair: str, lines: Sequence[str]) -> bool:
    """True for a Chinese and a Latin character if the lines mostly print such without a space."""
    return _MIXED.fullmatch(pair) is not None and any(_MIXED.search(line) for line in lines) > any(
        _MIXED_APART.search(line) for line in lines
    )


def _ends_unfinished(text: str) -> bool:
    """True if the last word continues on the next line: an identifier cut after its underscore, or
    an incomplete URL.
    """
    if text[-1] not in "_.=&?":
        return False
    word = _last_word(text)
    return _CUT_NAME.search(word) is not None or ("://" in word and word[-1] in "=&?")


def _is_cut_url(text: str, line: str) -> bool:
    """True if the last word is a URL that the next line continues: cut before or behind `//`, or at
    a dot or slash with the closing bracket, or another mark of a URL, in the next word.
    """
    if text[-1] not in "./" and line[0] not in "/?#&=":
        return False
    word, rest = _last_word(text), re.split(r"[^!-~]", line)[0]
    return "://" in word + line[:2] and (
        word.endswith("://")
        or (_URL_MARK.search(rest) is not None and not _ABBREVIATION.fullmatch(rest))
        or any(
            opening in word and closing in rest and closing not in word
            for opening, closing in ("()", "<>", "[]")
        )
    )


def _last_word(text: str) -> str:
    # not of the whole text, as this is called for every line of a growing paragraph
    return text[-_LONGEST_WORD:].rsplit(maxsplit=1)[-1]


def page_words(runs: Sequence[Run]) -> frozenset[str]:
    """The hyphenated compounds of a page, to tell a compound from a word cut at a line end."""
    return frozenset(
        word.strip(".,;:()")
        for run in runs
        for word in _typed_text(run).split()
        if "-" in word[1:-1]
    )


def code_text(lines: Sequence[Sequence[Run]]) -> str:
    """Printed lines of code, each indented by its distance from the left in characters."""
    boxes = [bounding_box(line) for line in lines]
    left = min(box[0] for box in boxes)
    widths = sorted(
        char.x1 - char.x0
        for line in lines
        for run in line
        for char in run.chars
        if char.x1 > char.x0
    )
    size = max(run.size for line in lines for run in line)
    advance = widths[len(widths) // 2] if widths else size
    return "\n".join(
        " " * min(80, round((box[0] - left) / advance)) + _spaced_text(line, advance)
        for box, line in zip(boxes, lines, strict=True)
    )


def _spaced_text(line: Sequence[Run], advance: float) -> str:
    """The text of a line of code, with a gap as wide as so many characters."""
    text, right = "", 0.0
    for run in line:
        spaced = text != "" and abs(run.box[0] - right) > 0.1 * run.size
        for char in run.chars:
            if char.text.isspace():
                spaced = text != ""
                continue
            if spaced:
                text += " " * min(80, max(1, round((char.x0 - right) / advance)))
            text += char.text
            right, spaced = char.x1, False
    return text


def opens_item(line: str) -> bool:
    """True for a line that begins with a bullet or an entry's number."""
    return opens_bullet(line) or bool(_NUMBERED.match(line) and not _DATE.fullmatch(line))


def opens_bullet(line: str) -> bool:
    """True for a line that begins with a bullet."""
    return (
        line[:1] in BULLETS
        and line != ""
        and (len(line) == 1 or line[1] == " " or line[0] not in "-–—*·")
    )


def list_text(printed: Sequence[Sequence[Run]], lines: Sequence[str], words: frozenset[str]) -> str:
    """List entries, one per line: bullets become `- `, entries further right are indented. Bullets
    without text, such as the tick of a form, stay as they are.
    """
    if all(line and line in BULLETS for line in lines):
        return "\n".join(lines)
    entries: list[tuple[float, str, list[str]]] = []  # left edge, marker, lines
    for line, runs in zip(lines, printed, strict=True):
        if opens_bullet(line):
            entries.append((min(run.box[0] for run in runs), "- ", [line[1:].strip()]))
        elif _NUMBERED.match(line) or not entries:
            entries.append(
                (min(run.box[0] for run in runs), "" if _NUMBERED.match(line) else "- ", [line])
            )
        else:
            entries[-1][2].append(line)
    least = 0.6 * max(run.size for runs in printed for run in runs)
    above: list[tuple[float, int]] = []  # left edge and indentation of the enclosing entries
    written = []
    for left, marker, texts in entries:
        above = [item for item in above if item[0] + least < left]
        text = marker + flow_lines([item for item in texts if item] or [""], words)
        indent = above[-1][1] if above else 0
        written.append(" " * indent + text.rstrip())
        above.append((left, indent + (len(match[0]) if (match := LIST_MARKER.match(text)) else 2)))
    return "\n".join(written)
