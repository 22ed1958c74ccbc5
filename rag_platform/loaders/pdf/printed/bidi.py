"""Text written from right to left: a printed line, which PDFs store in any order, in the order in
which one types it; and Chinese and Japanese set in columns, read from the rightmost on.

Where each character stands on the page says more than its place in the file: some writers store the
line as it is seen, from left to right, others as it is typed, and engines turn some parts of it
around. So a line is first put as it is seen and then turned into reading order, the inverse of what
the Unicode Bidirectional Algorithm (UAX 9) does to a typed line without marks of direction.
"""

from __future__ import annotations

import functools
import re
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rag_platform.text.scripts import HAN, KANA

if TYPE_CHECKING:
    from rag_platform.loaders.pdf.printed.runs import Char, Run

_LEFTWARDS = re.compile(
    "[\u0590-\u08ff\ufb1d-\ufdff\ufe70-\ufefc\U00010800-\U00010fff\U0001e800-\U0001efff]"
)
# letters as they are drawn at the begin, middle or end of a word
_FORMS = re.compile("[\ufb1d-\ufd3d\ufd50-\ufdff\ufe70-\ufefc]")
_MIRRORED = dict(zip("()[]{}«»‹›<>", ")(][}{»«›‹><", strict=True))
_OPENING = frozenset("([{«‹<")
_CLOSING = frozenset(")]}»›>.,;:!?،؛؟")
_LATIN = re.compile("[A-Za-z]")
_LAM, _ALEFS = "\u0644", "\u0627\u0622\u0623\u0625\u0671"
_ALONE = 0.1  # points; glyphs less wide are marks or further letters of a ligature
_FLUSH = 1.0  # of the size; less far from an edge is at it
_GAP = 0.25  # of the size; pieces further apart are words of their own
# words that a reader garbled; authors join two scripts here and there: الـAPI
_SEVERAL, _MIXED_SHARE = 3, 0.2
# on a page written leftwards, a region with that many times more words of the other direction is
# not
_FEW = 4


@dataclass(frozen=True, slots=True)
class _Sign:
    """A letter with its marks, or the letters of one ligature, in reading order."""

    chars: tuple[Char, ...]
    kind: str  # L, R (also Arabic letters), EN, AN, space or other
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
        """Its characters with a width; some writers set marks far from their letter."""
        return [char for char in self.chars if char.x1 - char.x0 >= _ALONE] or self.chars


def has_leftwards(text: str) -> bool:
    """True for a text with a letter written from right to left, such as Hebrew or Arabic."""
    return not text.isascii() and _LEFTWARDS.search(text) is not None


def is_garbled(words: Iterable[str]) -> bool:
    """True for words of a page as a reader makes them that takes glyphs without a meaning for the
    codes of Latin letters: several words from right to left, a fifth of them or more, hold one.
    """
    leftward = [word for word in words if has_leftwards(word)]
    mixed = sum(_LATIN.search(word) is not None for word in leftward)
    return mixed >= _SEVERAL and mixed >= _MIXED_SHARE * len(leftward)


def is_leftwards(runs: Sequence[Run]) -> bool:
    """True where most words, or a fifth on a leftward page, run from right to left."""
    times = _FEW if any(run.leftwards for run in runs) else 1
    return is_leftward_text(" ".join(run.text for run in runs), times)


def is_leftward_text(text: str, times: int = 1) -> bool:
    """True where the words from right to left, taken so many times, are more than the others."""
    if not has_leftwards(text):
        return False
    kinds = [next((kind for kind in map(_kind, word) if kind in "LR"), "") for word in text.split()]
    return kinds.count("R") * times > kinds.count("L")


def mark_leftwards(runs: list[Run]) -> list[Run]:
    """The runs of a page, `leftwards` set where most of its letters run from right to left."""
    return [run._replace(leftwards=True) for run in runs] if is_leftwards(runs) else runs


def order_as_seen(run: Run) -> Run:
    """The run with its characters from left to right; unchanged without leftward letters."""
    if not has_leftwards(run.text):
        return run
    return run._replace(chars=tuple(char for sign in _see_signs([run]) for char in sign.chars))


def order_as_typed(lines: Sequence[Sequence[Run]], leftwards: bool) -> list[list[Run]]:
    """The lines; one with leftward letters is one run, in the order of typing.

    `leftwards` is the direction of the paragraph, which says where a line begins; one of Latin
    letters that begins at the left edge and ends well before the right one is of another paragraph.
    """
    found: list[list[Run]] = [list(line) for line in lines]
    left = min((run.box[0] for line in lines for run in line), default=0.0)
    right = max((run.box[2] for line in lines for run in line), default=0.0)
    for number, line in enumerate(lines):
        if leftwards or any(has_leftwards(run.text) for run in line):
            first = max(line, key=lambda run: len(run.chars))
            near = _FLUSH * max(run.size for run in line)
            begins_left = (
                min(run.box[0] for run in line) < left + near
                and max(run.box[2] for run in line) < right - 3 * near
                and not is_leftwards(line)
            )
            chars = tuple(_chars(_type_signs(_see_signs(line), leftwards and not begins_left)))
            found[number] = [first._replace(chars=chars, size=max(run.size for run in line))]
    return found


# --- as it is seen ------------------------------------------------------------------------------


def _see_signs(runs: Sequence[Run]) -> list[_Sign]:
    """The signs of a line from left to right, with one space between words set apart."""
    words: list[list[_Sign]] = []
    for run in runs:
        before: _Sign | None = None
        for sign in sorted(_signs(run.chars), key=lambda sign: sign.left + sign.right):
            if (
                before is None
                or sign.kind == "space"
                or before.kind == "space"
                or sign.left - before.right > _GAP * run.size
            ):
                words.append([])
            words[-1].append(sign)
            before = sign
    words.sort(key=lambda word: word[0].left + word[-1].right)
    size = max(run.size for run in runs)
    seen: list[_Sign] = []
    for word in words:
        if word[0].kind == "space":
            middle = (word[0].left + word[0].right) / 2
            covered = any(
                sign.kind != "space" and sign.left < middle < sign.right
                for other in words
                for sign in other
            )
            if seen and seen[-1].kind != "space" and not covered:
                seen.append(word[0])
            continue
        if seen and seen[-1].kind != "space" and word[0].left - seen[-1].right > 0.1 * size:
            seen.append(_space(seen[-1], word[0]))
        seen += word
    return [
        sign
        for at, sign in enumerate(seen)
        if sign.kind != "space" or _sets_apart(seen[at - 1], sign, seen[at + 1 : at + 2], size)
    ]


def _sets_apart(left: _Sign, space: _Sign, behind: Sequence[_Sign], size: float) -> bool:
    """False for a line's last space, and for an engine's space between touching letters."""
    if not behind:
        return False
    touching = (
        behind[0].left - left.right < 0.1 * size
        and min(left.right - left.left, behind[0].right - behind[0].left) >= _ALONE
    )
    return not touching or space.right - space.left >= _ALONE


def _space(left: _Sign, right: _Sign) -> _Sign:
    char = left.chars[0]
    return _Sign((char._replace(text=" ", x0=left.right, x1=right.left),), "space")


def _signs(chars: Sequence[Char]) -> Iterator[_Sign]:
    """The signs of a run in content order.

    The letters of a ligature come either as the first one, as wide as the whole, and the others
    without width at its right edge, or all with the rectangle of the whole. An engine that turned a
    word around wrote the first one last. An alef may also stand at the left edge of its lam, where
    the next letter ends. Marks follow their letter.
    """
    held: list[Char] = []
    waiting: list[Char] = []  # letters of a ligature whose wide one comes next
    for at, char in enumerate(chars):
        if char.text.isspace():
            if held:
                yield _sign(held)
            held = []
            yield _Sign((char._replace(text=" "),), "space")
        elif (
            held
            and char.x1 - char.x0 < _ALONE
            and (_follows(char) or abs(held[0].x1 - char.x0) < _ALONE)
        ):
            held.append(char)
        elif (
            held
            and _kind(char.text[0]) == "R"
            and max(abs(char.x0 - held[0].x0), abs(char.x1 - held[0].x1)) < 0.01
        ):
            # lam and alef are the ligature of every font
            held.insert(0 if char.text == _LAM else len(held), char)
        elif (
            held
            and held[-1].text == _LAM
            and char.text in _ALEFS
            and char.x1 - char.x0 < _ALONE
            and abs(held[0].x0 - char.x0) < _ALONE
            and all(other.text != _LAM for other in _wide_behind(chars, at))
        ):
            held.append(char)
        elif char.x1 - char.x0 < _ALONE and any(
            abs(other.x1 - char.x0) < _ALONE for other in _wide_behind(chars, at)
        ):
            waiting.insert(0, char)
        else:
            if held:
                yield _sign(held)
            held, waiting = [char, *waiting], []
    if held or waiting:
        yield _sign([*held, *waiting])


def _wide_behind(chars: Sequence[Char], at: int) -> Iterator[Char]:
    """The next character with a width, if no space stands before it."""
    for char in chars[at + 1 : at + 20]:
        if char.text.isspace():
            return
        if char.x1 - char.x0 >= _ALONE:
            yield char
            return


def _follows(char: Char) -> bool:
    """True for marks and for signs that are not seen."""
    return unicodedata.category(char.text[0]) in ("Mn", "Me", "Cf")


def _sign(chars: Sequence[Char]) -> _Sign:
    kind = next(
        (kind for kind in map(_kind, "".join(char.text for char in chars)) if kind != "other"),
        "other",
    )
    return _Sign(
        tuple(chars), kind, any(unicodedata.bidirectional(char.text[0]) == "AL" for char in chars)
    )


@functools.lru_cache(maxsize=65536)
def _kind(char: str) -> str:
    kind = unicodedata.bidirectional(char)
    return {"L": "L", "R": "R", "AL": "R", "EN": "EN", "AN": "AN"}.get(
        kind, "space" if char.isspace() else "other"
    )


# --- as it is typed -----------------------------------------------------------------------------


def _type_signs(seen: Sequence[_Sign], leftwards: bool) -> list[tuple[_Sign, bool]]:
    """(sign, whether it is of a part that reads from left to right) in the order of typing."""
    if leftwards:
        return _turn(seen)
    typed: list[tuple[_Sign, bool]] = []
    at = 0
    while at < len(seen):
        if seen[at].kind != "R":
            typed.append((seen[at], True))
            at += 1
            continue
        end = next((i for i in range(at, len(seen)) if seen[i].kind == "L"), len(seen))
        end = next(i for i in range(end - 1, at - 1, -1) if seen[i].kind == "R") + 1
        typed += _turn(seen[at:end])
        at = end
    return typed


def _turn(seen: Sequence[_Sign]) -> list[tuple[_Sign, bool]]:
    """Signs from right to left, but for numbers and for Latin words with what is between."""
    islands = _islands(seen)
    typed: list[tuple[_Sign, bool]] = []
    at = len(seen)
    while at > 0:
        first = islands.get(at, at - 1)
        typed += [(sign, at in islands) for sign in seen[first:at]]
        at = first
    return typed


def _islands(seen: Sequence[_Sign]) -> dict[int, int]:
    """The end of each rightward part, one behind its last sign, to its begin."""
    islands: dict[int, int] = {}
    start = 0
    for end in [i for i, sign in enumerate(seen) if sign.kind == "R"] + [len(seen)]:
        stretch = seen[start:end]
        if any(sign.kind == "L" for sign in stretch) and not any(
            sign.kind == "AN" for sign in stretch
        ):
            told = [i for i, sign in enumerate(stretch) if sign.kind in ("L", "EN")]
            islands[start + _find_end(stretch, told[0], told[-1] + 1)] = start + told[0]
        else:
            beside = next(
                (sign for sign in (*seen[end:], *reversed(seen[:start])) if sign.kind == "R"), None
            )
            islands.update(
                {
                    start + b: start + a
                    for a, b in _numbers(stretch, arabic=beside is not None and beside.arabic)
                }
            )
        start = end + 1
    return islands


def _find_end(stretch: Sequence[_Sign], first: int, end: int) -> int:
    """The end of a Latin part with its closing bracket and signs at its last letter: `C++`."""
    while end < len(stretch) and stretch[end].text in "+#%°":
        end += 1
    depth = 0
    for sign in stretch[first:end]:
        depth += (sign.text in ("(", "[")) - (sign.text in (")", "]"))
    return end + 1 if depth > 0 and end < len(stretch) and stretch[end].text in (")", "]") else end


def _numbers(stretch: Sequence[_Sign], *, arabic: bool) -> Iterator[tuple[int, int]]:
    """(begin, end) of Latin words and numbers; dates only in Hebrew (UAX 9, W2 to W5)."""
    inside = ".,:/٫٬" if arabic else ".,:/٫٬+-"
    at = 0
    while at < len(stretch):
        if stretch[at].kind not in ("L", "EN", "AN"):
            at += 1
            continue
        begin, end = at, at + 1
        kinds = ("L",) if stretch[begin].kind == "L" else ("EN", "AN")
        while end < len(stretch) and (
            stretch[end].kind in kinds
            or (
                stretch[end].text in inside
                and end + 1 < len(stretch)
                and stretch[end + 1].kind in kinds
                and kinds != ("L",)
            )
        ):
            end += 1
        at = end
        if end < len(stretch) and stretch[end].text in "%٪":
            end += 1
        if not arabic:
            while begin > 0 and stretch[begin - 1].text in "$€£¥₪":
                begin -= 1
            while end < len(stretch) and stretch[end].text in "$€£¥₪":
                end += 1
        at = max(at, end)
        yield begin, end


# --- brackets and forms -------------------------------------------------------------------------


def _chars(typed: Sequence[tuple[_Sign, bool]]) -> Iterator[Char]:
    """The characters of a typed line, presentation forms as letters, brackets as typed."""
    brackets = _brackets(typed)
    for at, (sign, _) in enumerate(typed):
        if at in brackets:
            yield sign.chars[0]._replace(text=brackets[at])
        else:
            yield from (
                char._replace(text=_restore_form(char.text)) if _FORMS.search(char.text) else char
                for char in sign.chars
            )
        if sign.kind == "L" and at + 1 < len(typed) and typed[at + 1][0].kind == "R":
            # a space set with the Latin word is drawn on the other side of it
            yield sign.chars[-1]._replace(text=" ")


def _brackets(typed: Sequence[tuple[_Sign, bool]]) -> dict[int, str]:
    """The place of each bracket outside of Latin parts to the bracket as it is typed.

    Some files name the glyph that is drawn, the mirrored one, others the character. A space beside
    a bracket tells which way it opens; the others of the line are taken to be named as those are,
    else so that more of them make pairs.
    """
    places = [at for at, (sign, inner) in enumerate(typed) if not inner and sign.text in _MIRRORED]
    told: dict[int, str] = {}
    for at in places:
        before = typed[at - 1][0].text if at else " "
        behind = typed[at + 1][0].text if at + 1 < len(typed) else " "
        opens = before.isspace() or before in _OPENING
        closes = behind.isspace() or behind in _CLOSING
        if opens != closes:
            named = typed[at][0].text
            told[at] = named if (named in _OPENING) == opens else _MIRRORED[named]
    names = [typed[at][0].text for at in places]
    kept = sum(told[at] == typed[at][0].text for at in told)
    drawn = (
        2 * kept <= len(told)
        if told
        else _pairs(names) <= _pairs([_MIRRORED[bracket] for bracket in names])
    )
    return {
        at: told.get(at) or (_MIRRORED[bracket] if drawn else bracket)
        for at, bracket in zip(places, names, strict=True)
    }


def _pairs(brackets: Sequence[str]) -> int:
    opened: list[str] = []
    pairs = 0
    for bracket in brackets:
        if bracket in _OPENING:
            opened.append(bracket)
        elif opened and opened.pop() == _MIRRORED[bracket]:
            pairs += 1
    return pairs


def _restore_form(text: str) -> str:
    return unicodedata.normalize("NFKC", text).strip()


_IDEOGRAPH = re.compile(f"[{HAN}{KANA}]")
_LEAST = 4  # signs one under the other, before they are taken for a column
_MARKS = "、。，．：；！？「」『』（）〔〕【】《》〈〉ー…︑︒﹁﹂﹃﹄"


def join_columns(runs: Sequence[Run]) -> list[Run]:
    """The runs; signs set one by one under each other become one vertical run."""
    found: list[Run] = []
    chain: list[Run] = []
    for run in runs:
        if chain and not (_is_sign(run) and _is_below(chain[-1], run)):
            found += _column(chain)
            chain = []
        if _is_sign(run):
            chain.append(run)
        else:
            found.append(run)
    return found + _column(chain)


def is_vertical(runs: Sequence[Run]) -> bool:
    """True where most characters stand in Chinese or Japanese columns."""
    total = sum(len(run.text.strip()) for run in runs)
    return 2 * sum(len(run.text.strip()) for run in runs if _is_column(run)) > total > 0


def order_columns(runs: Sequence[Run]) -> list[Run]:
    """Runs that are not horizontal: columns from right to left, others in content order."""
    if not is_vertical(runs):
        return list(runs)
    columns: list[list[Run]] = []
    for run in sorted(runs, key=lambda run: -(run.box[0] + run.box[2])):
        middle = (run.box[0] + run.box[2]) / 2
        if (
            columns
            and abs((columns[-1][0].box[0] + columns[-1][0].box[2]) / 2 - middle) < 0.5 * run.size
        ):
            columns[-1].append(run)
        else:
            columns.append([run])
    return [run for column in columns for run in sorted(column, key=lambda run: run.box[1])]


def group_tiers(runs: Sequence[Run]) -> list[list[Run]]:
    """The columns of a page, grouped by the height at which they stand, upper ones first."""
    found: list[list[Run]] = []
    bottom = 0.0
    for run in sorted((run for run in runs if not run.horizontal), key=lambda run: run.box[1]):
        if found and run.box[1] < bottom:
            found[-1].append(run)
        else:
            found.append([run])
        bottom = max(bottom, run.box[3])
    return found


def _is_sign(run: Run) -> bool:
    text = run.text.strip()
    return len(text) == 1 and (text in _MARKS or _IDEOGRAPH.match(text) is not None)


def _is_below(above: Run, below: Run) -> bool:
    one, other = above.box, below.box
    step = (other[1] + other[3] - one[1] - one[3]) / 2
    beside = abs(one[0] + one[2] - other[0] - other[2]) / 2
    return (
        beside < 0.5 * above.size
        and 0.4 * above.size < step < 1.7 * above.size
        and abs(above.size - below.size) < 0.1 * above.size
    )


def _column(chain: list[Run]) -> list[Run]:
    if len(chain) < _LEAST:
        return chain
    return [
        chain[0]._replace(
            chars=tuple(char for run in chain for char in run.chars if not char.text.isspace()),
            horizontal=False,
        )
    ]


def _is_column(run: Run) -> bool:
    visible = [char for char in run.chars if not char.text.isspace()]
    if run.horizontal or 2 * len(_IDEOGRAPH.findall(run.text)) <= len(visible):
        return False
    return len(visible) == 1 or visible[-1].y0 > visible[0].y0
