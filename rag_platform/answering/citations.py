"""Citations: checks an answer's text against the evidence.

A mark [n] outside code cites evidence[n-1]. Marks without a passage, links and pictures that are
not in the evidence, and active markup are always removed.
"""

from __future__ import annotations

import dataclasses
import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from statistics import fmean

from rag_platform.answering.constants import CLEAR_SHARE
from rag_platform.answering.differences import find_difference
from rag_platform.answering.groundedness import (
    find_span,
    is_quoted,
    merge_spans,
    says_something,
    support,
)
from rag_platform.ir import Citation, Hit
from rag_platform.text.markdown_blocks import code_spans, fence_body
from rag_platform.text.passages import units
from rag_platform.text.wording import shorten

LEFT_OUT = " …"  # follows a quoted introduction whose continuation is not quoted
INCLUDES = " →"  # the same, before the file that the documents include there
_LEFT_OUT = re.compile(rf"(?:{LEFT_OUT}|{INCLUDES} `[^`\s]+`)\Z")
_MARK = re.compile(r"(?<!\\)\[(\d{1,3})\](?!\()")
# at most nine marks are looked over, for linear time
_SPACE_BEFORE_STOP = re.compile(
    r"(?<!\s)[ \t]+(?=(?:\[\d{1,3}\] ?){1,9}(?:[.,;:!?](?:\s|\Z)|[。，；：！？]))"
)
_CHUNK_LINK = re.compile(r"\[([^\[\]]*)\]\(chunk://([^()\s]+)\)")
_MARKS = re.compile(rf"(?:\s*{_MARK.pattern})+")
# between two sentences: a word of four letters that is no abbreviation, a full stop, a small letter
_RUN_ON = re.compile(
    r"(?<=[a-z]{4}\.)(?<!approx\.)(?<!corp\.)(?<!dept\.)(?<!excl\.)(?<!incl\.)(?<!prof\.)"
    r"(?<!resp\.)[ \t]+(?=[a-z])"
)
# marks as models write them: [1, 2], [1][2], [^1], 【1】, 【1†source】, [1](link), [passage 1]
_LOOSE_MARK = re.compile(
    r"(?<!\\)(?:\[|【)\^?(?:passage |source |来源|段落)?(\d{1,3}(?:\s*[,，、"
    r";]\s*\d{1,3})*)(?:†[^\]】]*)?(?:\]|】)(?:\([^()\s]*\))?"
)
_URL = r"(?:(?:https?|ftp|wss?)://|www\.)[^\s<>()\[\]\"'`，。；、！？（）《》“”]+"
_PLAIN_URL = re.compile(_URL, re.IGNORECASE)
_LINK = re.compile(
    r"(!?)\[([^\]\n]*)\]\(\s*<?([^\s()<>]*(?:\([^\s()]*\)[^\s()<>]*)*)>?(?:\s+[\"'(][^\n]*?[\"')])?\s*\)"
)
_DEFINITION = re.compile(r"^[ ]{0,3}\[[^\]\n]+\]:[ \t]*\S+[^\n]*$", re.MULTILINE)
_ACTIVE_TAG = re.compile(
    r"</?(?:script|style|iframe|img|image|object|embed|form|input|link|meta|svg|video|audio|source|base)\b[^<>]*>|<[a-zA-Z][^<>]*=[^<>]*>",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class Unsupported:
    """A sentence of an answer that the cited passages do not support."""

    sentence: str
    reason: str


@dataclass(frozen=True, slots=True)
class ClaimCheck:
    """The marks of a claim, and whether the passages that they cite support it."""

    marks: tuple[int, ...]
    supported: bool
    sentence: str = ""
    reason: str = ""  # why it is not supported


@dataclass(frozen=True, slots=True)
class Cited:
    """A checked answer: marks [1], [2], ... in order of appearance, one citation each."""

    text: str
    citations: tuple[Citation, ...]
    warnings: tuple[str, ...] = ()  # what was removed, added or is unsupported
    unsupported: tuple[Unsupported, ...] = ()
    numbers: tuple[int, ...] = ()  # of the cited passages in the evidence, in citation order
    agreement: float = 1.0  # mean over the claims that can be checked, 0 to 1


# --- checking an answer -------------------------------------------------------------------------


def check_answer(text: str, evidence: Sequence[Hit]) -> Cited:
    """The answer with its marks checked, its citations with spans, and its unsupported sentences.

    Marks without a passage and foreign links, pictures and active markup are removed; a sentence
    without a mark gets the mark of a passage that clearly supports it. `warnings` reports each
    change. `Citation.spans` are [start, end) in the citation's text: of the quoted sentence, else
    of the unit that best matches it.
    """
    text, dangling = _normalise_marks(text, evidence)
    text, warnings = remove_foreign_links(text, evidence)
    if dangling:
        shown = ", ".join(f"[{number}]" for number in dangling)
        warnings.append(
            f"the answer's mark{'s' if len(dangling) > 1 else ''} {shown} pointed at no passage and"
            f" {_was(dangling)} removed"
        )
    claims = _find_claims(text)
    _share_marks(claims, evidence)
    text = _cite_sources(text, claims, evidence, warnings)
    agreements: list[float] = []
    spans: defaultdict[int, list[tuple[int, int]]] = defaultdict(list)
    unsupported: list[Unsupported] = []
    for claim in claims:
        agreement, reason = _check_claim(claim, evidence)
        if agreement is not None:
            agreements.append(agreement)
        elif not any(map(str.isalnum, claim.text)):  # punctuation between two marks
            continue
        if reason:
            unsupported.append(Unsupported(claim.text, reason))
        for number in claim.marks:
            if (span := _find_own_span(claim.text, evidence[number - 1])) is not None:
                spans[number].append(span)
    if unsupported:
        first = unsupported[0]
        warnings.append(
            f"{_sentences(unsupported)} of the answer {_was(unsupported)} not supported by the"
            f' passages: "{shorten(first.sentence, 80)}" ({first.reason})'
        )
    numbers = {old: new for new, old in enumerate(find_cited(text, len(evidence)), 1)}
    citations = tuple(
        dataclasses.replace(make_citation(new, evidence[old - 1]), spans=merge_spans(spans[old]))
        for old, new in numbers.items()
    )
    return Cited(
        renumber_marks(text, numbers),
        citations,
        tuple(warnings),
        tuple(unsupported),
        tuple(numbers),
        fmean(agreements) if agreements else 1.0,
    )


def check_claims(text: str, cited: Sequence[Hit]) -> list[ClaimCheck]:
    """The claims of a finished answer that can be checked; its mark [n] cites cited[n-1]."""
    claims = _find_claims(text)
    _share_marks(claims, cited)
    checks = [(claim, _check_claim(claim, cited)) for claim in claims]
    return [
        ClaimCheck(tuple(claim.marks), not reason, claim.text, reason)
        for claim, (agreement, reason) in checks
        if agreement is not None
    ]


def clean_part(text: str, evidence: Sequence[Hit]) -> str:
    """Part of a streamed answer, without what `check_answer` would remove; its marks keep their
    numbers.
    """
    return remove_foreign_links(_normalise_marks(text, evidence)[0], evidence)[0]


def remove_foreign_links(text: str, evidence: Sequence[Hit]) -> tuple[str, list[str]]:
    """The text without links, pictures and active markup that are not in the evidence, and a
    warning when there were any.

    A link keeps its words, a picture its description. Code is unchanged, as nothing in it is a
    link.
    """
    assets = [f"asset://{asset}" for hit in evidence for asset in hit.asset_ids]
    return remove_foreign_markup(text, "\n".join(hit.readable for hit in evidence), assets)


def remove_foreign_markup(
    text: str, source: str, allowed: Sequence[str] = ()
) -> tuple[str, list[str]]:
    """Like `remove_foreign_links`, for links in one source text and the targets `allowed`."""
    removed: list[str] = []

    @cache
    def targets() -> set[str]:
        plain = {match.rstrip(".,;:") for match in _PLAIN_URL.findall(source)}
        return plain | {match[3] for match in _LINK.finditer(source)} | set(allowed)

    def link(match: re.Match[str]) -> str:
        if match[3] in targets():
            return match[0]
        removed.append(match[3])
        return match[2]

    def url(match: re.Match[str]) -> str:
        bare = match[0].rstrip(".,;:")
        if bare in targets():
            return match[0]
        removed.append(bare)
        return match[0][len(bare) :]

    def markup(match: re.Match[str]) -> str:
        if match[0] in source:
            return match[0]
        removed.append(match[0])
        return ""

    def clean(prose: str) -> str:
        prose = _DEFINITION.sub(markup, _ACTIVE_TAG.sub(markup, prose))
        return _PLAIN_URL.sub(url, _LINK.sub(link, prose))

    text = _outside_code(text, clean)
    if not removed:
        return text, []
    shown = ", ".join(shorten(item, 60) for item in dict.fromkeys(removed))
    return text, [f"links or markup that the sources do not hold were removed: {shown}"]


def _normalise_marks(text: str, evidence: Sequence[Hit]) -> tuple[str, list[int]]:
    """(the text with every mark as [n], without marks of no passage; the numbers of the removed
    marks). A link that a passage has, such as a table's `[266](https://...)`, is a quote.
    """
    available = len(evidence)
    dangling: dict[int, None] = {}

    def mark(match: re.Match[str]) -> str:
        if match[0].endswith(")") and any(match[0] in hit.readable for hit in evidence):
            return match[0]
        numbers = dict.fromkeys(int(number) for number in re.findall(r"\d+", match[1]))
        dangling.update({n: None for n in numbers if not 1 <= n <= available})
        return "".join(f"[{n}]" for n in numbers if n not in dangling)

    text = _outside_code(text, lambda prose: _LOOSE_MARK.sub(mark, prose))
    if dangling:
        text = re.sub(r"[ \t]+(?=[.。,，;；\n]|\Z)", "", text)
    return text, list(dangling)


@dataclass(slots=True)
class _Claim:
    """A sentence, list item, row or code block of an answer, and the marks in it or after it."""

    kind: str
    end: int  # the position at which a mark would be inserted
    text: str
    marks: list[int]


def _find_claims(text: str) -> list[_Claim]:
    """The claims of an answer in order. Marks at the start of a sentence or item, or alone in a
    paragraph, belong to the claim before them.
    """
    found: list[_Claim] = []
    for kind, start, end in _split_claims(text):
        own = text[start:end]
        lead = _MARKS.match(own) if kind in ("sentence", "item") else None
        if lead and found:
            _add_marks(found, _list_marks(lead.group()))
            own = own[lead.end() :]
        if own.strip():
            code = kind == "code"
            prose = fence_body(own) if code else _LEFT_OUT.sub("", strip_marks(own).rstrip())
            marks = [] if code else _list_marks(own)
            found.append(_Claim(kind, end, unescape_marks(prose).strip(), marks))
    return found


def _split_claims(text: str) -> Iterator[tuple[str, int, int]]:
    """(kind, start, end) of the units of an answer, their sentences split also before a lower-case
    letter, as of a command: `cp copies files. mv moves them.`
    """
    for unit in units(text):
        start = unit.start
        if unit.kind == "sentence":
            for gap in _RUN_ON.finditer(text, unit.start, unit.end):
                yield unit.kind, start, gap.start()
                start = gap.end()
        yield unit.kind, start, unit.end


def _list_marks(text: str) -> list[int]:
    return [n for _, n in split_quotes(text, 999)]


def _add_marks(claims: Sequence[_Claim], numbers: list[int]) -> None:
    """Give marks to the claims before them: to all rows of a table or items of a list, else to the
    last sentence.
    """
    last = claims[-1]
    for claim in reversed(claims):
        other = claim.kind != last.kind or (claim.kind == "sentence" and claim is not last)
        if claim.marks or other:
            break
        claim.marks += numbers


def _share_marks(claims: Sequence[_Claim], evidence: Sequence[Hit]) -> None:
    """Give the marks after a run of sentences to each of them that the cited text contains
    verbatim. Code within the run does not end it, as a quote may have another indentation, nor do
    labels, as those of boxes (`Tip:`).
    """
    marks: list[int] = []
    for claim in reversed(claims):
        if not claim.marks:
            claim.marks += [n for n in marks if is_quoted(claim.text, evidence[n - 1].readable)]
        if claim.marks or (claim.kind != "code" and says_something(claim.text)):
            marks = claim.marks


def _cite_sources(
    text: str, claims: Sequence[_Claim], evidence: Sequence[Hit], warnings: list[str]
) -> str:
    """The text with a mark added to each claim that has none and is clearly supported by one
    passage; changes `claims` and `warnings` accordingly.
    """
    added: list[_Claim] = []
    for claim in claims:
        if claim.marks or not says_something(claim.text):
            continue
        if (source := _find_source(claim.text, evidence)) is not None:
            claim.marks.append(source)
            if claim.kind != "code":
                added.append(claim)
    for claim in reversed(added):
        text = f"{text[: claim.end]} [{claim.marks[0]}]{text[claim.end :]}"
    if added:
        warnings.append(
            f"{_sentences(added)} without a mark {_was(added)} given that of the passage it rests"
            " on"
        )
    return text


def _check_claim(claim: _Claim, evidence: Sequence[Hit]) -> tuple[float | None, str]:
    """(how far the cited passages agree with a claim, 0 to 1, or None if it cannot be checked; why
    they do not support it, empty if they do).
    """
    cited = [evidence[number - 1] for number in claim.marks]
    if any(is_quoted(claim.text, hit.readable) for hit in cited):
        return 1.0, ""
    if not says_something(claim.text):
        return None, ""
    if not cited:
        return 0.0, "it cites nothing, and no passage clearly supports it"
    found = support(claim.text, cited)
    if not found.enough:
        return found.agreement, found.reason
    reason = find_difference(claim.text, cited)
    return 0.0 if reason else found.agreement, reason


def _find_own_span(sentence: str, hit: Hit) -> tuple[int, int] | None:
    """The span of the text of a passage that a sentence rests on, None if it rests on a picture
    alone.
    """
    span = find_span(sentence, hit.readable)
    if span is None or span[1] <= len(hit.chunk_text):
        return span
    own = dataclasses.replace(hit, picture_text="")
    clear = _find_source(sentence, [own]) is not None
    return find_span(sentence, hit.chunk_text) if clear else None


def _find_source(sentence: str, evidence: Sequence[Hit]) -> int | None:
    """The number of the passage that clearly supports a sentence, None without one."""
    found = [(support(sentence, [hit]), number) for number, hit in enumerate(evidence, 1)]
    clear = [
        (-item.share, number)
        for item, number in found
        if item.exact and item.words_count and item.share >= CLEAR_SHARE
    ]
    return min(clear)[1] if clear else None


# --- marks and citations ------------------------------------------------------------------------


def find_cited(answer: str, available: int) -> list[int]:
    """The distinct numbers of the marks [n] outside code, within 1 to `available`, in order of
    appearance.
    """
    return list(dict.fromkeys(n for _, n in split_quotes(answer, available)))


def split_quotes(answer: str, available: int) -> list[tuple[str, int]]:
    """The pieces of an answer up to and with each such mark, and the number of that mark."""
    code = code_spans(answer)
    found: list[tuple[str, int]] = []
    start = 0
    for mark in _MARK.finditer(answer):
        if 1 <= int(mark[1]) <= available and not any(a < mark.end() <= b for a, b in code):
            found.append((answer[start : mark.end()], int(mark[1])))
            start = mark.end()
    return found


def renumber_marks(answer: str, numbers: Mapping[int, int]) -> str:
    """The answer with the marks [old] rewritten to [new]; other brackets stay."""
    return _outside_code(
        answer,
        lambda prose: _MARK.sub(
            lambda m: f"[{numbers[int(m[1])]}]" if int(m[1]) in numbers else m[0], prose
        ),
    )


def strip_marks(answer: str) -> str:
    """The answer without its marks, nor the space before a mark that ends a sentence; brackets in
    code stay.
    """
    return _outside_code(answer, lambda prose: _MARK.sub("", _SPACE_BEFORE_STOP.sub("", prose)))


def number_links(answer: str, sources: Sequence[str]) -> tuple[str, list[str]]:
    """The answer with a mark [n] for each link to a chunk, and the chunk ids that the marks cite:
    the sources, then those that only the links name. The words of a link stay before its mark.
    """
    ids = list(sources)
    code = {at for span in code_spans(answer) for at in range(*span)}

    def mark(link: re.Match[str]) -> str:
        if link.end() - 1 in code:  # the words of a link may be code
            return link[0]
        if link[2] not in ids:
            ids.append(link[2])
        words = "" if link[1].isdecimal() else f"{link[1]} "
        return f"{words}[{ids.index(link[2]) + 1}]"

    return _CHUNK_LINK.sub(mark, answer), ids


def escape_marks(quote: str) -> str:
    """The quote with its own [n] escaped, so that they are no marks; Markdown shows them as is."""
    return _outside_code(quote, lambda prose: _MARK.sub(r"\\[\1\\]", prose))


def unescape_marks(text: str) -> str:
    """The inverse of `escape_marks`."""
    return re.sub(r"\\\[(\d{1,3})\\\]", r"[\1]", text)


def make_citation(number: int, hit: Hit) -> Citation:
    """The citation [number] of a hit."""
    return Citation(
        id=number,
        chunk_id=hit.chunk_id,
        doc_id=hit.doc_id,
        version_id=hit.version_id,
        source_uri=hit.source_uri,
        section_path=hit.section_path,
        text=hit.chunk_text,
        score=hit.score,
        page_range=hit.page_range,
        line_range=hit.line_range,
        locator=hit.locator,
        edited_from=hit.edited_from,
        namespace=hit.namespace,
    )


def _sentences(items: Sequence[object]) -> str:
    return f"{len(items)} sentence{'s' if len(items) > 1 else ''}"


def _was(items: Sequence[object]) -> str:
    return "were" if len(items) > 1 else "was"


def _outside_code(text: str, change: Callable[[str], str]) -> str:
    """The text with `change` applied to everything but code."""
    return "".join(part if is_code else change(part) for part, is_code in _parts(text))


def _parts(text: str) -> Iterator[tuple[str, bool]]:
    """The consecutive parts of the text, each with whether it is code."""
    end = 0
    for start, stop in code_spans(text):
        yield text[end:start], False
        yield text[start:stop], True
        end = stop
    yield text[end:], False
