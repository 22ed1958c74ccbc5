"""Normalises the text of facts by a list of edits, through which offsets are mapped back; and
computes the canonical form of text for fingerprints.

Joiners inside emoji and words of joining scripts, visible format characters, and everything in code
except CR and NUL are kept on purpose.
"""

from __future__ import annotations

import functools
import hashlib
import re
import unicodedata
from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from rag_platform.config.ingestion import CleaningConfig, NoiseRule
from rag_platform.config.user_patterns import matches
from rag_platform.ir import Block, Edit, Facts, MediaLink
from rag_platform.loaders.commented_settings import SETTINGS, comment_edits
from rag_platform.loaders.debian_changelogs import DEBIAN_CHANGELOG, debian_changelog_edits
from rag_platform.loaders.json_records import JSON_RECORDS, record_edits
from rag_platform.loaders.languages import COMMENT_MARKS
from rag_platform.loaders.manuals import MANUAL, manual_edits
from rag_platform.loaders.markdown import find_hidden
from rag_platform.loaders.markdown_images import SRC
from rag_platform.loaders.markups import PROFILES, markup_edits
from rag_platform.loaders.restructured import RESTRUCTURED, markdown_edits
from rag_platform.loaders.source_code import SOURCE_CODE, source_edits
from rag_platform.loaders.specifications import SPECIFICATION, specification_edits
from rag_platform.loaders.text import LINE_END
from rag_platform.text.scripts import HAN

# Unicode categories Cc and Cf without LF and TAB, written out so that profiles do not depend on
# Python's Unicode version.
INVISIBLE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u0600-\u0605\u061c\u06dd\u070f\u0890\u0891\u08e2\u180e\u200b-\u200f\u202a-\u202e\u2060-\u2064"
    "\u2066-\u206f\ufeff\ufff9-\ufffb\U000110bd\U000110cd\U00013430-\U0001343f\U0001bca0-\U0001bca3\U0001d173-\U0001d17a"
    "\U000e0001\U000e0020-\U000e007f]"
)


def canonical(text: str, cleaning: CleaningConfig) -> str:
    """The text without differences of presentation; idempotent.

    In order: Unicode form, LF line ends, no BOM, no Cc/Cf characters except LF and TAB,
    right-stripped lines, at most `max_blank_lines` blank lines in a row, trimmed. The Unicode form
    is applied again after invisible characters were removed, which may make characters compose.
    """
    return _canonical(text, cleaning.unicode_form, cleaning.max_blank_lines)


@functools.lru_cache(maxsize=1024)
def _canonical(text: str, form: Literal["NFC", "NFKC"], max_blank_lines: int) -> str:
    # cached, because the same text is needed for a chunk's fingerprint, dense text and embedding
    if not text.isascii():
        text = unicodedata.normalize(form, text)
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    # a faster check than searching for invisible characters
    printable = text.replace("\n", "").isprintable()
    visible = text if printable else INVISIBLE.sub("", text)
    if visible != text and not visible.isascii():
        visible = unicodedata.normalize(form, visible)
    lines = "\n".join(line.rstrip() for line in visible.split("\n"))
    most = max_blank_lines + 1
    return re.sub(f"\n{{{most + 1},}}", "\n" * most, lines).strip()


def fingerprint_text(text: str, cleaning: CleaningConfig) -> str:
    """The sha256 (64 hex) of the canonical text."""
    return hashlib.sha256(canonical(text, cleaning).encode()).hexdigest()


# --- edits and the maps between facts and normalised text ---------------------------------------


@dataclass(frozen=True, slots=True)
class Normalised:
    """The facts after their edits, with maps between the offsets; each lookup bisects the edits."""

    text: str
    edits: tuple[Edit, ...]
    fact_starts: tuple[int, ...]
    fact_ends: tuple[int, ...]
    norm_starts: tuple[int, ...]
    norm_ends: tuple[int, ...]

    def to_facts(self, offset: int) -> int:
        """The facts offset of a normalised offset; inside a replacement, the edit's start."""
        index = bisect_right(self.norm_starts, offset) - 1
        if index < 0:
            return offset
        if offset < self.norm_ends[index]:
            return self.fact_starts[index]
        return self.fact_ends[index] + offset - self.norm_ends[index]

    def to_norm(self, offset: int) -> int:
        """The normalised offset of a facts offset; inside an edit, the edit's start."""
        index = bisect_right(self.fact_starts, offset) - 1
        if index < 0:
            return offset
        if offset < self.fact_ends[index]:
            return self.norm_starts[index]
        return self.norm_ends[index] + offset - self.fact_ends[index]

    def span_to_facts(self, start: int, end: int) -> tuple[int, int]:
        """The facts span behind text[start:end]; replacements that it touches count whole."""
        if end <= start:
            place = self.to_facts(start)
            return place, place
        index = bisect_right(self.norm_starts, end - 1) - 1
        inside = index >= 0 and end - 1 < self.norm_ends[index]
        return self.to_facts(start), self.fact_ends[index] if inside else self.to_facts(end - 1) + 1

    def span_to_norm(self, start: int, end: int) -> tuple[int, int]:
        """The normalised span of facts text[start:end]; empty if it was removed."""
        index = bisect_left(self.fact_ends, end)
        if index < len(self.edits) and self.fact_starts[index] < end <= self.fact_ends[index]:
            stop = self.norm_ends[index]
        else:
            stop = self.norm_ends[index - 1] + end - self.fact_ends[index - 1] if index else end
        begin = self.to_norm(start)
        return begin, max(begin, stop)


def apply_edits(text: str, edits: Sequence[Edit]) -> Normalised:
    """The text after sorted edits that do not overlap, with the offset maps."""
    parts: list[str] = []
    norm_starts: list[int] = []
    norm_ends: list[int] = []
    done = length = 0
    for edit in edits:
        parts += (text[done : edit.start], edit.replacement)
        length += edit.start - done
        norm_starts.append(length)
        length += len(edit.replacement)
        norm_ends.append(length)
        done = edit.end
    parts.append(text[done:])
    starts, ends = tuple(edit.start for edit in edits), tuple(edit.end for edit in edits)
    return Normalised(
        "".join(parts), tuple(edits), starts, ends, tuple(norm_starts), tuple(norm_ends)
    )


class Spans:
    """A lookup over sorted spans that do not overlap."""

    def __init__(self, spans: Sequence[tuple[int, int]]) -> None:
        self.starts = [start for start, _ in spans]
        self.ends = [end for _, end in spans]

    def holds(self, offset: int) -> bool:
        """True when a span covers the offset."""
        return self.touches(offset, offset + 1)

    def touches(self, start: int, end: int) -> bool:
        """True when a span and [start, end) share a character."""
        return bisect_right(self.ends, start) < bisect_left(self.starts, end)

    def are_split_by(self, start: int, end: int) -> bool:
        """True when [start, end) contains a part of a span, but not all of it."""
        first, last = bisect_right(self.ends, start), bisect_left(self.starts, end)
        return first < last and (self.starts[first] < start or self.ends[last - 1] > end)


# --- the rules ----------------------------------------------------------------------------------

CR = re.compile(r"\r(\n?)")
ANSI = r"\x1b\[[0-9;?]*[ -/]*[@-~]"
# Joiners between characters are kept: they shape words in Arabic, Indic and other scripts, and join
# emoji. Tag characters are kept in flags.
REMOVED = re.compile(
    rf"{ANSI}|[\x00-\x08\x0e-\x1b\x7f-\x84\x86-\x9f\xad\u061c\u180e\u200b\u200e\u200f\u202a-\u202e\u2060-\u2064\u2066-\u206f\ufeff"
    r"\ufff9-\ufffb\U000e0001]+|(?<![^\x00-\x7f\s])[\u200c\u200d]|[\u200c\u200d](?![^\x00-\x7f\s])|"
    r"(?<![\U0001f3f4\U000e0020-\U000e007f])[\U000e0020-\U000e007f]+"
)
_MAY_BE_REMOVED = re.compile(
    "[\x00-\x08\x0e-\x1b\x7f-\x84\x86-\x9f\xad\u061c\u180e\u200b-\u200f\u202a-\u202e\u2060-\u2064\u2066-\u206f\ufeff\ufff9-\ufffb"
    # the first characters of all matches of REMOVED; most texts have none of them
    "\U000e0001\U000e0020-\U000e007f]"
)
_LINE_END = re.compile("[\r\n]")
SPACED = re.compile("[\x0b\x0c\x1c-\x1f\x85]+")  # controls that separate words
TRAILING = re.compile(r"(?<![^\S\r\n])[^\S\r\n]++(?=[\r\n]|\Z)")
# including radicals and full-width punctuation
JOINED = rf"{HAN}\u2e80-\u2fdf\u3001-\u303f\uff01-\uff0f\uff1a-\uff20\uff3b-\uff40\uff5b-\uff65"
CJK_JOIN = re.compile(rf"(?<=[{JOINED}])(?: ?\r?\n ?| )(?=[{JOINED}])")
PAYLOAD = re.compile(r"(?<=;base64,)[A-Za-z0-9+/=]{64,}")
_BRACKET = re.compile(r"\\.|[\[\]]", re.DOTALL)  # or an escaped character
_MARKDOWN = ("markdown", "ipynb")
_REWRITERS: dict[str, Callable[[str], list[Edit]]] = {  # by parse profile
    RESTRUCTURED: markdown_edits,
    DEBIAN_CHANGELOG: debian_changelog_edits,
    MANUAL: manual_edits,
    SPECIFICATION: specification_edits,
    JSON_RECORDS: record_edits,
    SETTINGS: comment_edits,
    **{
        f"{SOURCE_CODE}:{language}": functools.partial(source_edits, language=language)
        for language in COMMENT_MARKS
    },
    **{profile: functools.partial(markup_edits, profile=profile) for profile in PROFILES},
}
LAST_WHOLE = 3  # edits up to this rank are applied as a whole or not at all


class _Candidate(NamedTuple):
    """An edit that may overlap others; the lower rank wins."""

    start: int
    end: int
    rank: int
    replacement: str
    rule: str


def normalise(facts: Facts, links: Sequence[MediaLink], cleaning: CleaningConfig) -> Normalised:
    """The normalised text of the facts; `edits` lists the changes and their rules."""
    text = facts.text
    code = Spans([(block.start, block.end) for block in facts.blocks if block.kind == "code"])
    found = [
        *_block_edits(facts.blocks, text, cleaning),
        *_markup_edits(facts),
        *_target_edits(text, links, code),
        *_character_edits(text, code),
    ]
    found += [
        _Candidate(edit.start, edit.end, 1, edit.replacement, edit.rule)
        for edit in noise_edits(text, facts, cleaning)
    ]
    if cleaning.join_cjk_lines:
        found += _cjk_edits(text, facts.blocks)
    first = apply_edits(text, _disjoint(found))
    extra = list(_blank_line_edits(first, code, cleaning.max_blank_lines))
    return apply_edits(text, _absorb(first.edits, extra)) if extra else first


def _block_edits(
    blocks: Iterable[Block], text: str, cleaning: CleaningConfig
) -> Iterator[_Candidate]:
    for block in blocks:
        if block.kind == "front_matter":
            yield _Candidate(block.start, block.end, 0, "", "front_matter")
        elif block.repeated and cleaning.drop_page_headers:
            yield _Candidate(block.start, block.end, 0, "", "repeated_" + block.kind)


def _markup_edits(facts: Facts) -> Iterator[_Candidate]:
    """Edits that remove text hidden by HTML in Markdown sources, or that convert other markup to
    Markdown.
    """
    if facts.summary.loader_name in _MARKDOWN:
        start = next((b.end for b in facts.blocks[:1] if b.kind == "front_matter"), 0)
        for begin, end in find_hidden(facts.text, start):
            yield _Candidate(begin, end, 0, "", "hidden_text: not_displayed")
    elif find_edits := _REWRITERS.get(facts.summary.parse_profile):
        for edit in find_edits(facts.text):
            yield _Candidate(edit.start, edit.end, 0, edit.replacement, edit.rule)


def _target_edits(text: str, links: Sequence[MediaLink], code: Spans) -> Iterator[_Candidate]:
    for link in links:
        if link.asset_id and link.start is not None and link.end is not None:
            edit = target_edit(text, link.start, link.end, f"asset://{link.asset_id}")
            if edit is not None:
                yield _Candidate(edit[0], edit[1], 2, edit[2], "asset")
    for match in PAYLOAD.finditer(text):
        if not code.holds(match.start()):
            yield _Candidate(match.start(), match.end(), 3, "", "data_uri")


def _character_edits(text: str, code: Spans) -> Iterator[_Candidate]:
    for match in CR.finditer(text) if "\r" in text else ():
        yield _Candidate(
            match.start(), match.start() + 1, 4, "" if match.group(1) else "\n", "newline"
        )
    for match in REMOVED.finditer(text) if _MAY_BE_REMOVED.search(text) else ():
        if not code.holds(match.start()) or "\x00" in match.group():
            yield _Candidate(match.start(), match.end(), 5, "", "control")
    # most texts have none, and the pattern is slower because it tries every space
    trailing = any(line[-1:].isspace() for line in _LINE_END.split(text))
    for match in TRAILING.finditer(text) if trailing else ():
        if not code.holds(match.start()):
            yield _Candidate(match.start(), match.end(), 6, "", "trailing_space")
    for match in SPACED.finditer(text):
        if not code.holds(match.start()):
            yield _Candidate(match.start(), match.end(), 7, " ", "control")


def _cjk_edits(text: str, blocks: Iterable[Block]) -> Iterator[_Candidate]:
    """Line joins inside Chinese paragraphs of paged documents, except headings and tables."""
    for block in blocks:
        if block.page is not None and block.kind in ("paragraph", "list", "caption"):
            for match in CJK_JOIN.finditer(text, block.start, block.end):
                yield _Candidate(match.start(), match.end(), 8, "", "cjk_join")


def _disjoint(found: list[_Candidate]) -> list[Edit]:
    """The edits without overlaps: lower ranks win, others are cut back to what remains."""
    whole = sorted(
        (item for item in found if item.rank <= LAST_WHOLE),
        key=lambda item: (item.rank, item.start),
    )
    accepted: list[_Candidate] = []
    for item in whole:
        if all(
            item.end <= other.start or other.end <= item.start
            for other in _neighbours(accepted, item)
        ):
            accepted.insert(bisect_left(accepted, item), item)
    kept: list[Edit] = []
    occupied = [(item.start, item.end) for item in accepted]
    edge = 0
    for item in sorted(
        (item for item in found if item.rank > LAST_WHOLE), key=lambda item: (item.start, item.rank)
    ):
        start = max(item.start, edge)
        for begin, end in _free_spans(start, item.end, occupied):
            kept.append(Edit(begin, end, item.replacement, item.rule))
            edge = end
    return sorted(
        [*kept, *(Edit(item.start, item.end, item.replacement, item.rule) for item in accepted)],
        key=lambda edit: edit.start,
    )


def _neighbours(accepted: Sequence[_Candidate], item: _Candidate) -> Sequence[_Candidate]:
    """The accepted edits that may overlap the item; `accepted` is sorted."""
    index = bisect_left(accepted, item)
    return accepted[max(0, index - 1) : bisect_left(accepted, _Candidate(item.end, 0, 0, "", ""))]


def _free_spans(
    start: int, end: int, occupied: Sequence[tuple[int, int]]
) -> Iterator[tuple[int, int]]:
    """The parts of [start, end) outside the occupied spans."""
    index = max(0, bisect_right(occupied, (start, 1 << 60)) - 1)
    while start < end:
        while index < len(occupied) and occupied[index][1] <= start:
            index += 1
        if index == len(occupied) or occupied[index][0] >= end:
            yield start, end
            return
        if occupied[index][0] > start:
            yield start, occupied[index][0]
        start = occupied[index][1]


def _blank_line_edits(first: Normalised, code: Spans, most: int) -> Iterator[Edit]:
    """Deletions, in facts offsets, of line ends beyond `most` consecutive blank lines."""
    for match in re.finditer(f"\n{{{most + 2},}}", first.text):
        start, end = first.span_to_facts(match.start() + most + 1, match.end())
        if not code.holds(start) and not code.holds(end - 1):
            yield Edit(start, end, "", "blank_lines")


def _absorb(edits: Sequence[Edit], extra: Sequence[Edit]) -> list[Edit]:
    """Merge the edits with the deletions of blank lines, which swallow replacements inside them."""
    inside = Spans([(edit.start, edit.end) for edit in extra])
    removing = deque(edit for edit in edits if inside.holds(edit.start) and not edit.replacement)
    found = [edit for edit in edits if not inside.holds(edit.start)]
    for deletion in extra:
        at = deletion.start
        while removing and removing[0].start < deletion.end:
            edit = removing.popleft()
            found += [Edit(at, edit.start, "", deletion.rule), edit] if edit.start > at else [edit]
            at = edit.end
        if at < deletion.end:
            found.append(Edit(at, deletion.end, "", deletion.rule))
    return sorted(found, key=lambda edit: edit.start)


def target_edit(text: str, start: int, end: int, target: str) -> tuple[int, int, str] | None:
    """The edit (start, end, replacement) that makes the image text[start:end] refer to `target`, or
    None.

    The target of `![alt](old "title")` and `<img src="old">` is replaced; `![alt][label]` and
    `![label]` become inline images.
    """
    construct = text[start:end]
    if construct.startswith("<"):
        found = SRC.search(construct)
        if found is None:
            return None
        group = next(i for i in (1, 2, 3) if found.group(i) is not None)
        return start + found.start(group), start + found.end(group), target
    if construct.endswith(")"):
        span = _inline_target(construct)
        return None if span is None else (start + span[0], start + span[1], target)
    label = _label_end(construct)
    if label is None or not construct.endswith("]"):
        return None
    return (
        (start + label + 1, end, f"({target})")
        if label + 1 < len(construct)
        else (end - 1, end, f"]({target})")
    )


def _inline_target(construct: str) -> tuple[int, int] | None:
    """The span of the target in `![alt](target "title")`."""
    from markdown_it.helpers import parseLinkDestination, parseLinkTitle

    for opening in re.finditer(r"\]\(\s*", construct):
        at, limit = opening.end(), len(construct)
        if construct[at:] == ")":
            return at, at
        found = parseLinkDestination(construct, at, limit)
        if not found.ok:
            continue
        rest = found.pos
        while rest < limit and construct[rest].isspace():
            rest += 1
        if rest > found.pos and construct[rest] != ")":
            title = parseLinkTitle(construct, rest, limit, None)
            rest = title.pos if title.ok else rest
        if construct[rest:].strip() == ")":
            return at, found.pos
    return None


def _label_end(construct: str) -> int | None:
    """The offset of the `]` that closes the first bracket."""
    depth = 0
    for bracket in _BRACKET.finditer(construct, 1):
        depth += {"[": 1, "]": -1}.get(bracket[0], 0)
        if bracket[0] == "]" and depth == 0:
            return bracket.start()
    return None


# --- noise: URLs, e-mail addresses, and the matches of a strategy's own rules --------------------

_ADDRESS = r"(?:https?|ftp)://[^\s<>()\[\]\"'`|，。；、！？）】》」』]{1,2000}"
_LINK = re.compile(
    rf"(?<!!)\[([^\[\]\n]{{0,500}})\]\(<?{_ADDRESS}(?:\([^\s()]{{0,200}}\))?[^\s()]{{0,500}}>?(?:["
    r" \t]+\"[^\"\n]{0,200}\")?\)"
)
_URL = re.compile(
    rf"<{_ADDRESS}>|{_ADDRESS}(?<![.,;:!?])|(?<![\w./@-])www\.[^\s<>()\[\]\"'`|，。；、"
    r"！？）】》」』]{3,2000}(?<![.,;:!?])"
)
_EMAIL = re.compile(
    r"<?(?<![A-Za-z0-9._+-])(?:mailto:)?[A-Za-z0-9][A-Za-z0-9._+-]{0,63}@(?:[A-Za-z0-9-]{1,63}\.){1,8}[A-Za-z]{2,24}>?"
)


def noise_edits(text: str, facts: Facts, cleaning: CleaningConfig) -> Iterator[Edit]:
    """Edits in the order of the rules; they may overlap. Code is left alone unless a rule's scope
    is `everywhere`, and images are never cut in two.

    Raises DocumentError `pattern_timeout` for a rule that takes too long on this text.
    """
    if not (cleaning.drop_urls or cleaning.drop_emails or cleaning.noise):
        return
    code = Spans([(block.start, block.end) for block in facts.blocks if block.kind == "code"])
    images = Spans(
        sorted(
            (ref.start, ref.end)
            for ref in facts.media
            if ref.start is not None and ref.end is not None
        )
    )
    for edit, in_code in _find_noise(text, cleaning):
        span = edit.start, edit.end
        if (in_code or not code.touches(*span)) and not images.are_split_by(*span):
            yield edit


def _find_noise(text: str, cleaning: CleaningConfig) -> Iterator[tuple[Edit, bool]]:
    """(edit, whether it may be in code)."""
    for index, rule in enumerate(cleaning.noise):
        for start, end, replacement in _apply_rule(text, rule):
            yield Edit(start, end, replacement, f"noise:{index}"), rule.scope == "everywhere"
    if cleaning.drop_urls:
        for match in _LINK.finditer(text):
            yield Edit(match.start(), match.start(1), "", "url"), False
            yield Edit(match.end(1), match.end(), "", "url"), False
        for match in _URL.finditer(text):
            yield Edit(match.start(), match.end(), "", "url"), False
    if cleaning.drop_emails:
        for match in _EMAIL.finditer(text):
            yield Edit(match.start(), match.end(), "", "email"), False


def _apply_rule(text: str, rule: NoiseRule) -> Iterator[tuple[int, int, str]]:
    for match in matches(rule.pattern, text):
        start, end = match.start(), match.end()
        if rule.scope != "lines":
            yield start, end, rule.replacement
            continue
        while start and text[start - 1] in " \t":
            start -= 1
        while end < len(text) and text[end] in " \t":
            end += 1
        line_end = LINE_END.match(text, end)
        if (start == 0 or text[start - 1] in "\r\n") and (end == len(text) or line_end is not None):
            yield (
                start,
                line_end.end() if line_end and not rule.replacement else end,
                rule.replacement,
            )
