"""Right-to-left (RTL) text: printed lines in logical order, the order of typing, from the positions
of their characters; and vertical Chinese and Japanese text, whose columns are read from the right.

The order of characters in the file is unreliable: some writers store a line in visual order, others
in logical order, and engines reverse parts of it. So a line is first put into visual order by
position and then into logical order, the inverse of the Unicode Bidirectional Algorithm (UAX 9) for
a line without directional marks.
"""

from __future__ import annotations

import functools
import re
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from rag_platform.loaders.pdf.printed.runs import Char, Run, group_while
from rag_platform.text.cut_points import CHARACTER

_RTL = re.compile(
    "[\u0590-\u08ff\ufb1d-\ufdff\ufe70-\ufefc\U00010800-\U00010fff\U0001e800-\U0001efff]"
)
# presentation forms: letters as drawn at the beginning, middle or end of a word
_FORMS = re.compile("[\ufb1d-\ufd3d\ufd50-\ufdff\ufe70-\ufefc]")
_MIRRORED = dict(zip("()[]{}«»‹›<>", ")(][}{»«›‹><", strict=True))
_OPENING = frozenset("([{«‹<")
_CLOSING = frozenset(")]}»›>.,;:!?،؛؟")
_LATIN = re.compile("[A-Za-z]")
_LAM, _ALEFS = "\u0644", "\u0627\u0622\u0623\u0625\u0671"
_MIN_WIDTH = 0.1  # points; narrower glyphs are marks or further letters of a ligature
_EDGE_EMS = 1.0  # ems; text closer to an edge is flush with it
_WORD_GAP = 0.25  # ems; a wider gap separates words
# words with two scripts on a garbled page; authors also join scripts now and then: الـAPI
_MIN_MIXED, _MIXED_SHARE = 3, 0.2
# Latin words (L) and numbers (N) with the signs that belong to them
_ARABIC_NUMBER = re.compile("(?:L+|N+(?:[.,:/٫٬]N+)*)[%٪]?")
_HEBREW_NUMBER = re.compile("[$€£¥₪]*(?:L+|N+(?:[-.,:/٫٬+]N+)*)[%٪]?[$€£¥₪]*")
_RTL_WEIGHT = 4  # how many LTR words an RTL word outweighs in a region of an RTL page


@dataclass(frozen=True, slots=True)
class _Cluster:
    """A letter with its marks, or the letters of one ligature, in logical order."""

    chars: tuple[Char, ...]
    kind: str  # bidirectional class: L, R (also for AL), EN, AN, space or other
    arabic: bool = False

    @property
    def text(self) -> str:
        return "".join(char.text for char in self.chars)

    @property
    def left(self) -> float:
        return min(char.x0 for char in self._wide)

    @property
    def right(self) -> float:
        return max(char.x1 for char in self._wide)

    @property
    def _wide(self) -> Sequence[Char]:
        """Its characters with a width, since some writers place marks far from their letter."""
        return [char for char in self.chars if char.x1 - char.x0 >= _MIN_WIDTH] or self.chars


def has_rtl(text: str) -> bool:
    """True for a text with an RTL letter, such as Hebrew or Arabic."""
    return not text.isascii() and _RTL.search(text) is not None


def is_garbled(words: Iterable[str]) -> bool:
    """True if several RTL words, and at least a fifth of them, contain a Latin letter: the engine
    took glyphs without a Unicode meaning for codes of Latin letters.
    """
    rtl_words = [word for word in words if has_rtl(word)]
    mixed = sum(_LATIN.search(word) is not None for word in rtl_words)
    return mixed >= _MIN_MIXED and mixed >= _MIXED_SHARE * len(rtl_words)


def is_rtl(runs: Sequence[Run]) -> bool:
    """True if most words are RTL, or on an RTL page more than a fifth."""
    weight = _RTL_WEIGHT if any(run.rtl for run in runs) else 1
    return is_rtl_text(" ".join(run.text for run in runs), weight)


def is_rtl_text(text: str, weight: int = 1) -> bool:
    """True if `weight` times the RTL words are more than the LTR words."""
    if not has_rtl(text):
        return False
    kinds = [next((kind for kind in map(_kind, word) if kind in "LR"), "") for word in text.split()]
    return kinds.count("R") * weight > kinds.count("L")


def mark_rtl(runs: list[Run]) -> list[Run]:
    """The runs of a page, with `rtl` set if most of its words are RTL."""
    return [run._replace(rtl=True) for run in runs] if is_rtl(runs) else runs


def order_visually(run: Run) -> Run:
    """The run with its characters from left to right; unchanged without RTL letters."""
    if not has_rtl(run.text):
        return run
    clusters = _order_visually([run])
    return run._replace(chars=tuple(char for cluster in clusters for char in cluster.chars))


def order_logically(lines: Sequence[Sequence[Run]], rtl: bool) -> list[list[Run]]:
    """The lines, each with RTL letters as one run in logical order.

    `rtl` is the direction of the paragraph, which decides where a line begins. An LTR line that
    begins at the left edge and ends well before the right edge belongs to another paragraph.
    """
    found: list[list[Run]] = [list(line) for line in lines]
    left = min((run.box[0] for line in lines for run in line), default=0.0)
    right = max((run.box[2] for line in lines for run in line), default=0.0)
    for number, line in enumerate(lines):
        if rtl or any(has_rtl(run.text) for run in line):
            first = max(line, key=lambda run: len(run.chars))
            near = _EDGE_EMS * max(run.size for run in line)
            begins_left = (
                min(run.box[0] for run in line) < left + near
                and max(run.box[2] for run in line) < right - 3 * near
                and not is_rtl(line)
            )
            chars = tuple(_decode(_order_logically(_order_visually(line), rtl and not begins_left)))
            found[number] = [first._replace(chars=chars, size=max(run.size for run in line))]
    return found


# --- visual order -------------------------------------------------------------------------------


def _order_visually(runs: Sequence[Run]) -> list[_Cluster]:
    """The clusters of a line from left to right, with one space between separate words."""
    words = [word for run in runs for word in _split_words(run)]
    words.sort(key=lambda word: word[0].left + word[-1].right)
    size = max(run.size for run in runs)
    visual: list[_Cluster] = []
    for word in words:
        if word[0].kind == "space":
            middle = (word[0].left + word[0].right) / 2
            covered = any(
                cluster.kind != "space" and cluster.left < middle < cluster.right
                for other in words
                for cluster in other
            )
            if visual and visual[-1].kind != "space" and not covered:
                visual.append(word[0])
            continue
        if visual and visual[-1].kind != "space" and word[0].left - visual[-1].right > 0.1 * size:
            visual.append(_make_space(visual[-1], word[0]))
        visual += word
    return [
        cluster
        for at, cluster in enumerate(visual)
        if cluster.kind != "space"
        or _is_needed_space(visual[at - 1], cluster, visual[at + 1 : at + 2], size)
    ]


def _split_words(run: Run) -> list[list[_Cluster]]:
    """The words of a run and its spaces, from left to right."""
    return group_while(
        sorted(_clusters(run.chars), key=lambda cluster: cluster.left + cluster.right),
        lambda word, cluster: (
            "space" not in (word[-1].kind, cluster.kind)
            and cluster.left - word[-1].right <= _WORD_GAP * run.size
        ),
    )


def _is_needed_space(
    left: _Cluster, space: _Cluster, following: Sequence[_Cluster], size: float
) -> bool:
    """False for the last space of a line and for a space that the engine put between touching
    letters.
    """
    if not following:
        return False
    touching = (
        following[0].left - left.right < 0.1 * size
        and min(left.right - left.left, following[0].right - following[0].left) >= _MIN_WIDTH
    )
    return not touching or space.right - space.left >= _MIN_WIDTH


def _make_space(left: _Cluster, right: _Cluster) -> _Cluster:
    char = left.chars[0]
    return _Cluster((char._replace(text=" ", x0=left.right, x1=right.left),), "space")


def place_marks(chars: Sequence[Char], inserted: Sequence[bool]) -> tuple[list[Char], list[bool]]:
    """(characters, inserted flags) of an RTL line, with the marks behind their letters that MuPDF
    puts behind the space it inserts after a word, or at the beginning of the line.
    """
    order: list[int] = []
    strays: list[int] = []
    begun = False
    for at, char in enumerate(chars):
        is_mark = unicodedata.category(char.text[0]) == "Mn" and char.x1 - char.x0 < _MIN_WIDTH
        if is_mark and not begun:
            strays.append(at)
        elif is_mark and inserted[order[-1]]:
            order.insert(-1, at)
        else:
            order.append(at)
        begun = begun or not (is_mark or char.text.isspace())
    for at in strays:
        x = chars[at].x0
        letters = (i for i, j in enumerate(order) if chars[j].x0 - _MIN_WIDTH < x < chars[j].x1)
        order.insert(next(letters, -1) + 1, at)
    return [chars[at] for at in order], [inserted[at] for at in order]


def _clusters(chars: Sequence[Char]) -> Iterator[_Cluster]:
    """The clusters of a run in content order.

    A ligature is stored either as a first letter of its full width followed by letters of no width
    at its right edge, or as letters that all have its rectangle. An engine that reversed the word
    stores the first letter last. An alef may also stand at the left edge of its lam, where the next
    letter ends. Marks follow their letter.
    """
    current: list[Char] = []  # the cluster being built
    waiting: list[Char] = []  # letters of a ligature that precede its wide letter
    for at, char in enumerate(chars):
        if char.text.isspace():
            if current:
                yield _make_cluster(current)
            current = []
            yield _Cluster((char._replace(text=" "),), "space")
        elif (
            current
            and char.x1 - char.x0 < _MIN_WIDTH
            and (_is_mark(char) or abs(current[0].x1 - char.x0) < _MIN_WIDTH)
        ):
            current.append(char)
        elif (
            current
            and _kind(char.text[0]) == "R"
            and max(abs(char.x0 - current[0].x0), abs(char.x1 - current[0].x1)) < 0.01
        ):
            # every font has a ligature of lam and alef
            current.insert(0 if char.text == _LAM else len(current), char)
        elif (
            current
            and current[-1].text == _LAM
            and char.text in _ALEFS
            and char.x1 - char.x0 < _MIN_WIDTH
            and abs(current[0].x0 - char.x0) < _MIN_WIDTH
            and all(other.text != _LAM for other in _wide_behind(chars, at))
        ):
            current.append(char)
        elif char.x1 - char.x0 < _MIN_WIDTH and any(
            abs(other.x1 - char.x0) < _MIN_WIDTH for other in _wide_behind(chars, at)
        ):
            waiting.insert(0, char)
        else:
            if current:
                yield _make_cluster(current)
            current, waiting = [char, *waiting], []
    if current or waiting:
        yield _make_cluster([*current, *waiting])


def _wide_behind(chars: Sequence[Char], at: int) -> Iterator[Char]:
    """The next character with a width, unless a space comes first."""
    for char in chars[at + 1 : at + 20]:
        if char.text.isspace():
            return
        if char.x1 - char.x0 >= _MIN_WIDTH:
            yield char
            return


def _is_mark(char: Char) -> bool:
    """True for combining marks and invisible format characters."""
    return unicodedata.category(char.text[0]) in ("Mn", "Me", "Cf")


def _make_cluster(chars: Sequence[Char]) -> _Cluster:
    kind = next(
        (kind for kind in map(_kind, "".join(char.text for char in chars)) if kind != "other"),
        "other",
    )
    return _Cluster(
        tuple(chars), kind, any(unicodedata.bidirectional(char.text[0]) == "AL" for char in chars)
    )


@functools.lru_cache(maxsize=65536)
def _kind(char: str) -> str:
    kind = unicodedata.bidirectional(char)
    return {"L": "L", "R": "R", "AL": "R", "EN": "EN", "AN": "AN"}.get(
        kind, "space" if char.isspace() else "other"
    )


# --- logical order ------------------------------------------------------------------------------


def _order_logically(visual: Sequence[_Cluster], rtl: bool) -> list[tuple[_Cluster, bool]]:
    """(cluster, whether it is in an LTR span) in logical order."""
    if rtl:
        return _reverse(visual)
    logical: list[tuple[_Cluster, bool]] = []
    at = 0
    while at < len(visual):
        if visual[at].kind != "R":
            logical.append((visual[at], True))
            at += 1
            continue
        end = next((i for i in range(at, len(visual)) if visual[i].kind == "L"), len(visual))
        end = next(i for i in range(end - 1, at - 1, -1) if visual[i].kind == "R") + 1
        logical += _reverse(visual[at:end])
        at = end
    return logical


def _reverse(visual: Sequence[_Cluster]) -> list[tuple[_Cluster, bool]]:
    """(cluster, whether it is in an LTR span) from right to left, except within LTR spans."""
    ltr_spans = _find_ltr_spans(visual)
    logical: list[tuple[_Cluster, bool]] = []
    at = len(visual)
    while at > 0:
        first = ltr_spans.get(at, at - 1)
        logical += [(cluster, at in ltr_spans) for cluster in visual[first:at]]
        at = first
    return logical


def _find_ltr_spans(visual: Sequence[_Cluster]) -> dict[int, int]:
    """The end (exclusive) to the start of each LTR span: numbers, and Latin words with what is
    between them.
    """
    ltr_spans: dict[int, int] = {}
    start = 0
    for end in [i for i, cluster in enumerate(visual) if cluster.kind == "R"] + [len(visual)]:
        stretch = visual[start:end]
        if any(cluster.kind == "L" for cluster in stretch) and not any(
            cluster.kind == "AN" for cluster in stretch
        ):
            known = [i for i, cluster in enumerate(stretch) if cluster.kind in ("L", "EN")]
            ltr_spans[start + _find_end(stretch, known[0], known[-1] + 1)] = start + known[0]
        else:
            beside = next(
                (
                    cluster
                    for cluster in (*visual[end:], *reversed(visual[:start]))
                    if cluster.kind == "R"
                ),
                None,
            )
            ltr_spans.update(
                {
                    start + b: start + a
                    for a, b in _find_numbers(stretch, arabic=beside is not None and beside.arabic)
                }
            )
        start = end + 1
    return ltr_spans


def _find_end(stretch: Sequence[_Cluster], first: int, end: int) -> int:
    """The end of a Latin span with the symbols after it, as in `C++`, and a closing bracket."""
    while end < len(stretch) and stretch[end].text in "+#%°":
        end += 1
    inside = [cluster.text for cluster in stretch[first:end]]
    opened = sum(map(inside.count, "([")) > sum(map(inside.count, ")]"))
    return end + (opened and end < len(stretch) and stretch[end].text in (")", "]"))


def _find_numbers(stretch: Sequence[_Cluster], *, arabic: bool) -> Iterator[tuple[int, int]]:
    """(start, end) of Latin words and numbers, and of dates only in Hebrew (UAX 9, W2 to W5)."""
    signs = "".join(
        {"L": "L", "EN": "N", "AN": "N"}.get(cluster.kind, cluster.text[:1] or " ")
        for cluster in stretch
    )
    for match in (_ARABIC_NUMBER if arabic else _HEBREW_NUMBER).finditer(signs):
        yield match.span()


# --- brackets and forms -------------------------------------------------------------------------


def _decode(logical: Sequence[tuple[_Cluster, bool]]) -> Iterator[Char]:
    """The characters of a line in logical order, with presentation forms as plain letters and
    brackets as they were typed.
    """
    brackets = _find_brackets(logical)
    for at, (cluster, _) in enumerate(logical):
        if at in brackets:
            yield cluster.chars[0]._replace(text=brackets[at])
        else:
            yield from (
                char._replace(text=_to_letters(char.text)) if _FORMS.search(char.text) else char
                for char in cluster.chars
            )
        if cluster.kind == "L" and at + 1 < len(logical) and logical[at + 1][0].kind == "R":
            # a space belonging to the Latin word is drawn on its other side
            yield cluster.chars[-1]._replace(text=" ")


def _find_brackets(logical: Sequence[tuple[_Cluster, bool]]) -> dict[int, str]:
    """The position of each bracket outside of LTR spans to the character that was typed.

    Some files store the character, others the mirrored glyph that is drawn. A space beside a
    bracket shows which way it opens. The remaining brackets are taken to be stored like the
    majority of those, or without any, in the way that makes more pairs.
    """
    places = [
        at for at, (cluster, inner) in enumerate(logical) if not inner and cluster.text in _MIRRORED
    ]
    known: dict[int, str] = {}
    for at in places:
        before = logical[at - 1][0].text if at else " "
        following = logical[at + 1][0].text if at + 1 < len(logical) else " "
        opens = before.isspace() or before in _OPENING
        closes = following.isspace() or following in _CLOSING
        if opens != closes:
            named = logical[at][0].text
            known[at] = named if (named in _OPENING) == opens else _MIRRORED[named]
    kept = sum(known[at] == logical[at][0].text for at in known)
    rest = {at: logical[at][0].text for at in places if at not in known}
    mirrored = {at: _MIRRORED[bracket] for at, bracket in rest.items()}
    drawn = (
        2 * kept <= len(known)
        if known
        else _count_pairs(rest.values()) <= _count_pairs(mirrored.values())
    )
    return known | (mirrored if drawn else rest)


def _count_pairs(brackets: Iterable[str]) -> int:
    opened: list[str] = []
    pairs = 0
    for bracket in brackets:
        if bracket in _OPENING:
            opened.append(bracket)
        elif opened and opened.pop() == _MIRRORED[bracket]:
            pairs += 1
    return pairs


def _to_letters(text: str) -> str:
    return unicodedata.normalize("NFKC", text).strip()


_MIN_COLUMN = 4  # ideographs below each other that make a column
_MARKS = "、。，．：；！？「」『』（）〔〕【】《》〈〉ー…︑︒﹁﹂﹃﹄"


def join_columns(runs: Sequence[Run]) -> list[Run]:
    """The runs, with ideographs placed below each other joined into one vertical run."""
    columns = group_while(
        runs,
        lambda column, run: (
            _is_ideograph(run) and _is_ideograph(column[-1]) and _is_below(column[-1], run)
        ),
    )
    return [run for column in columns for run in _join_column(column)]


def is_vertical(runs: Sequence[Run]) -> bool:
    """True if most characters stand in vertical columns of Chinese or Japanese."""
    total = sum(len(run.text.strip()) for run in runs)
    return 2 * sum(len(run.text.strip()) for run in runs if _is_column(run)) > total > 0


def order_columns(runs: Sequence[Run]) -> list[Run]:
    """Runs that are not horizontal: columns from right to left, any other text in content order."""
    if not is_vertical(runs):
        return list(runs)
    columns = group_while(
        sorted(runs, key=lambda run: -_middle(run)),
        lambda column, run: abs(_middle(column[0]) - _middle(run)) < 0.5 * run.size,
    )
    return [run for column in columns for run in sorted(column, key=lambda run: run.box[1])]


def group_tiers(runs: Sequence[Run]) -> list[list[Run]]:
    """The vertical columns of a page in tiers that do not overlap in height, from the top."""
    return group_while(
        sorted((run for run in runs if not run.horizontal), key=lambda run: run.box[1]),
        lambda tier, run: run.box[1] < max(above.box[3] for above in tier),
    )


def _middle(run: Run) -> float:
    return (run.box[0] + run.box[2]) / 2


def _is_ideograph(run: Run) -> bool:
    text = run.text.strip()
    return len(text) == 1 and (text in _MARKS or CHARACTER.match(text) is not None)


def _is_below(above: Run, below: Run) -> bool:
    one, other = above.box, below.box
    step = (other[1] + other[3] - one[1] - one[3]) / 2
    shift = abs(one[0] + one[2] - other[0] - other[2]) / 2
    return (
        shift < 0.5 * above.size
        and 0.4 * above.size < step < 1.7 * above.size
        and abs(above.size - below.size) < 0.1 * above.size
    )


def _join_column(chain: list[Run]) -> list[Run]:
    if len(chain) < _MIN_COLUMN:
        return chain
    return [
        chain[0]._replace(
            chars=tuple(char for run in chain for char in run.chars if not char.text.isspace()),
            horizontal=False,
        )
    ]


def _is_column(run: Run) -> bool:
    visible = [char for char in run.chars if not char.text.isspace()]
    if run.horizontal or 2 * len(CHARACTER.findall(run.text)) <= len(visible):
        return False
    return len(visible) == 1 or visible[-1].y0 > visible[0].y0
