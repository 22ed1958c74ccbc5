"""Extractive answers: verbatim sentences, list items and table rows of the evidence that best match
the question.

Words are compared as the word index reads them, so Chinese is segmented and identifiers count whole
and in parts. A word weighs the more the fewer units of the evidence contain it; identifiers weigh
most, function words nothing. Every quote is a slice of its chunk, followed by its mark [n].
"""

from __future__ import annotations

import dataclasses
import heapq
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import permutations, product
from typing import ClassVar

from rag_platform.answering import constants
from rag_platform.answering.quotable import (
    INTRODUCES,
    Part,
    extend,
    introduce,
    joins,
    list_rows,
    name_run,
    read_layout,
    render_rows,
    render_run,
)
from rag_platform.answering.quote_places import JOINT, find_path
from rag_platform.ir import Hit, QueryIR, format_section
from rag_platform.protocols import Written
from rag_platform.retrieval.confidence import question_text, words_held
from rag_platform.text.markdown_blocks import cells
from rag_platform.text.plain_quotes import plain
from rag_platform.text.scripts import find_script, is_wide, simplify
from rag_platform.text.term_overlap import (
    ASKS_ADDRESS,
    ASKS_HISTORY,
    ASKS_MEANING,
    ASKS_NUMBER,
    ASKS_TOTAL,
    DIGIT,
    HISTORY,
    MEANS,
    POINTS,
    TOTAL,
    Word,
    question_terms,
    question_words,
    rarity,
)
from rag_platform.text.terms import IDENTIFIER_WEIGHT, meaning, stemmed_word
from rag_platform.traits import Traits

Read = Sequence[Sequence[Part]]  # the parts of each passage
Held = Sequence[Sequence[frozenset[str]]]  # the terms of the question in each of them
Nearness = Callable[[Sequence[str]], Sequence[float]]
_TARGET = re.compile(r"\]\([^()\s]*\)")  # of a link, which nobody reads
_ADDRESS = re.compile(r"(?<=\]\()[^()\s]*(?=\))|https?://\S+")  # also one that is not a target
_PLACES = re.compile(r"[/\\]|\.\w+$")  # between the folders of an address, and what ends it
# an identifier that may name a document: no version, path or format
_REFERENCE = re.compile(r"(?=.*[a-z])(?:[a-z-]*\d){3}[a-z\d-]*$")
_RUN = re.compile(r"\d+|[a-z]+")
_ROUNDING = 1e-8  # more than comparing two scores can be off


@dataclass(frozen=True)
class Extractive:
    """Quotes the units of the evidence with the most words of the question and of its search
    phrasings. Where the evidence is in another script and has none of the words, the units nearest
    in meaning.
    """

    VERSION: ClassVar[str] = "17"
    traits: ClassVar[Traits] = Traits(quick=True)
    max_quotes: int = constants.MAX_QUOTES
    min_coverage: float = 0.0  # share of the words below which nothing is quoted
    keep_ratio: float = constants.KEEP_RATIO
    # the cosine of texts and the question or its nearest phrasing; None: by words alone
    nearness: Nearness | None = None

    def answer(
        self,
        query: QueryIR,
        evidence: Sequence[Hit],
        *,
        on_text: Callable[[str], None] | None = None,
    ) -> Written:
        """Markdown whose [n] marks point at evidence[n-1]; empty where no unit says anything about
        the question.
        """
        scored = score_parts(query, evidence, self.keep_ratio)
        if not scored and self.nearness is not None and _is_foreign(query, evidence):
            scored = _score_meaning(evidence, self.nearness)
        if not scored:
            return Written("")
        best = max(item.coverage for item in scored[: constants.COMPARED_UNITS])
        if (best + words_held(query, evidence, evidence)) / 2 < self.min_coverage:
            return Written("")
        text = _render_quotes(self._choose(scored, evidence), evidence)
        if on_text is not None:
            on_text(text)
        return Written(text)

    def _choose(self, scored: Sequence[Scored], evidence: Sequence[Hit]) -> list[Scored]:
        """The best parts that fit into an answer, none of whose texts contains another's."""
        chosen: list[Scored] = []
        texts: list[str] = []
        for item in scored:
            if item.score < self.keep_ratio * scored[0].score or len(chosen) == self.max_quotes:
                break
            if item.by_header and any(
                (other.hit, other.part.header) == (item.hit, item.part.header) for other in chosen
            ):
                continue  # another row of the table has words of the question
            text = plain(evidence[item.hit].chunk_text[item.part.start : item.part.end])
            text = _TARGET.sub("]", " ".join(text.split()))
            left = constants.MAX_ANSWER_CHARS - sum(map(len, texts))
            if (not chosen or len(text) <= left) and not any(
                text in other or other in text for other in texts
            ):
                texts.append(text)
                chosen.append(item)
        return chosen


def find_sentence(query: QueryIR, hit: Hit) -> str:
    """The unit of a passage that is nearest to the question, its first one where none has a word of
    it; empty where there is none.
    """
    parts = [
        *(item.part for item in score_parts(query, [hit], 1.0)),
        *read_layout(hit.chunk_text).parts,
    ]
    best = next((part for part in parts if part.kind in ("sentence", "item")), None)
    return plain(hit.chunk_text[best.start : best.end]) if best is not None else ""


def _is_foreign(query: QueryIR, evidence: Sequence[Hit]) -> bool:
    """True where the evidence is in another script, so that words tell nothing."""
    wide = is_wide(question_text(query))
    return bool(evidence) and all(is_wide(hit.chunk_text) != wide for hit in evidence)


# --- scoring ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Scored:
    """A part of a passage, how well it fits the question, and the share of its words in it."""

    score: float
    coverage: float
    hit: int  # position in the evidence
    part: Part
    by_header: bool = False  # a row that has no word of its own, so any other row is as good


def score_parts(query: QueryIR, evidence: Sequence[Hit], keep_ratio: float) -> list[Scored]:
    """Parts with a word of the question in them or in their heading, best first; ties in reading
    order.

    The list holds the three best parts and all with at least `keep_ratio` of the best score; others
    may be missing.
    """
    question = " ".join((question_text(query), *query.rewrites))
    asks = _Asks.of(question_text(query))
    words = question_words(question)
    find = question_terms(question).find_in
    total = find(" ".join(ASKS_TOTAL.findall(simplify(question).lower())))

    @cache
    def said(text: str) -> frozenset[str]:
        return find(text) | total if total and TOTAL.search(simplify(text).lower()) else find(text)

    read: Read = [read_layout(hit.chunk_text).parts for hit in evidence]
    addressed = ASKS_ADDRESS.search(question.lower()) is not None
    held = _find_held(evidence, read, said, addressed=addressed)
    named, others = _find_named(words, evidence, held, said)
    held = [[inside - names for inside in parts] for parts, names in zip(held, named, strict=True)]
    read, held = _leave_out_neighbours(words, evidence, read, held)
    weights = rarity(words, [inside for parts in held for inside in parts])
    whole = sum(weights)
    weight = _weighing(words, weights)
    # with the most that the form of the part can make of its score
    likely: list[tuple[float, Scored]] = []
    beside = _find_beside(evidence, [frozenset().union(*inside) for inside in held], said)
    beside |= _find_history(question, evidence)
    for n, (hit, parts) in enumerate(zip(evidence, read, strict=True)):
        titles = said(f"{hit.section_path}\n{hit.doc_title}")
        own_name = said(f"{hit.filename}\n{hit.doc_title}")
        # a version or a year of the title is that of all that stands below it
        numbers = frozenset(term for term in titles if DIGIT.search(term))
        for i, part in enumerate(parts):
            inside = held[n][i]
            follows = bool(i and parts[i - 1].context == part.context)
            if follows and not inside:
                continue
            # "It ..." speaks of the last one
            before = held[n][i - 1] if follows and part.kind == "sentence" else frozenset()
            header = _find_header(hit, part)
            close = inside | before | said(part.context) | said(header)
            bare = part.kind == "code" and close <= own_name < said(question)
            own, near = (0.0, 0.0) if bare else (weight(inside), weight(close))
            if own == 0 and (follows or near == 0 or part.kind == "item"):
                continue
            if own and header:  # what a row says, it says of its columns
                own = weight(inside | said(header) | numbers)
            elif own:
                own = weight(inside | numbers)
            near = max(near, own)
            all_round = weight(close | titles)
            score = own + constants.CONTEXT_WEIGHT * (near - own)
            score += constants.FAR_WEIGHT * (all_round - near)
            score *= constants.BESIDE_FACTOR ** (2 if n in others else n in beside)
            most = score * asks.max_factor / (1 + constants.PLACE_PENALTY * n)
            by_header = part.kind == "row" and not inside
            coverage = weight(close | titles | named[n]) / whole
            likely.append((most, Scored(score, coverage, n, part, by_header)))
    scored: list[Scored] = []
    for most, item in sorted(likely, key=lambda pair: -pair[0]):
        best = heapq.nlargest(constants.COMPARED_UNITS, [item.score for item in scored])
        if (
            len(best) == constants.COMPARED_UNITS
            and most < min(best[-1], keep_ratio * best[0]) - _ROUNDING
        ):
            break
        text = evidence[item.hit].chunk_text[item.part.start : item.part.end]
        # the search's own order knows what words cannot tell
        score = item.score * asks.factor(text, item.part.kind)
        score /= 1 + constants.PLACE_PENALTY * item.hit
        scored.append(dataclasses.replace(item, score=score))
    return sorted(scored, key=lambda item: (-round(item.score, 9), item.hit, item.part.start))


def _find_held(
    evidence: Sequence[Hit], read: Read, said: Callable[[str], frozenset[str]], *, addressed: bool
) -> Held:
    """The terms of the question in each part; those of web addresses only where it is `addressed`
    to these, because nobody reads them.
    """

    def find(text: str, part: Part) -> frozenset[str]:
        asked = text[slice(*part.asked)]
        if part.kind != "code" and not addressed:
            asked = _ADDRESS.sub(" ", asked)
        return said(f"{part.question}\n{asked}")  # what begins below a question answers it

    return [
        [find(hit.chunk_text, part) for part in parts]
        for hit, parts in zip(evidence, read, strict=True)
    ]


def _leave_out_neighbours(
    words: Sequence[Word], evidence: Sequence[Hit], read: Read, held: Held
) -> tuple[Read, Held]:
    """The parts and their terms without the rows that have no identifier of the question, and
    nothing else of it that the rows of their table with one do not have.
    """
    codes = {word.text for word in words if word.weight > 1 and not word.text.isalpha()}
    if not codes:
        return read, held
    headers = [
        [_find_header(hit, part) if part.kind == "row" else None for part in parts]
        for hit, parts in zip(evidence, read, strict=True)
    ]
    named: dict[str | None, frozenset[str]] = {}
    for columns, terms in zip(headers, held, strict=True):
        for header, inside in zip(columns, terms, strict=True):
            if header is not None and not codes.isdisjoint(inside):
                named[header] = named.get(header, frozenset()) | inside
    kept = [
        [
            i
            for i, (header, inside) in enumerate(zip(columns, terms, strict=True))
            if header not in named or not codes.isdisjoint(inside) or not inside <= named[header]
        ]
        for columns, terms in zip(headers, held, strict=True)
    ]
    return (
        [[parts[i] for i in some] for parts, some in zip(read, kept, strict=True)],
        [[terms[i] for i in some] for terms, some in zip(held, kept, strict=True)],
    )


def _find_beside(
    evidence: Sequence[Hit], held: Sequence[frozenset[str]], said: Callable[[str], frozenset[str]]
) -> set[int]:
    """The passages about something else than the question names: of its words that are the folder,
    the file or the title of a passage, they have none.
    """
    places = [f"{hit.doc_title}/{hit.source_uri}" for hit in evidence]
    names = {name for place in places for name in _PLACES.split(place.lower())}
    named = {term for name in names for term in said(name) if term == stemmed_word(name)[0]}
    known = [
        terms | said(f"{place}/{hit.section_path}")
        for hit, place, terms in zip(evidence, places, held, strict=True)
    ]
    return {n for n, terms in enumerate(known) if named and named.isdisjoint(terms)}


def _find_named(
    words: Sequence[Word],
    evidence: Sequence[Hit],
    held: Held,
    said: Callable[[str], frozenset[str]],
) -> tuple[list[frozenset[str]], set[int]]:
    """(for each passage the terms of identifiers that name a document, the passages of documents
    without them): it has no other identifier of that form, and has other words of the question.
    """
    named = [frozenset[str]()] * len(evidence)
    holding = set[int]()
    asked = [it.text for it in words if it.weight == IDENTIFIER_WEIGHT]
    documents = {hit.doc_id for hit in evidence}
    for doc_id, name in product(documents, filter(_REFERENCE.match, asked)):
        own = [n for n, hit in enumerate(evidence) if hit.doc_id == doc_id]
        find = _find_alike(name)
        alike = {it for n in own for it in find(evidence[n].chunk_text.lower())}
        holding.update(own if name in alike else ())
        if alike == {name} and any(inside - said(name) for n in own for inside in held[n]):
            for n in own:
                named[n] |= said(name)
    every = frozenset[str]().union(*named)
    others = {n for n in range(len(evidence)) if every and n not in holding}
    return [every if n in others else names for n, names in enumerate(named)], others


def _find_alike(identifier: str) -> Callable[[str], list[str]]:
    """Finds the identifiers of the same kind in a text: alike but for their letters and digits."""
    form = _RUN.sub(lambda run: r"\d+" if run[0].isdigit() else "[a-z]+", identifier)
    return re.compile(rf"(?<![a-z\d-]){form}(?![a-z\d-])").findall


def _find_history(question: str, evidence: Sequence[Hit]) -> set[int]:
    """The passages of change logs, where the question does not ask for what changed."""
    if ASKS_HISTORY.search(question.lower()):
        return set()
    places = [f"{hit.source_uri.rpartition('/')[2]}{JOINT}{hit.section_path}" for hit in evidence]
    return {n for n, place in enumerate(places) if any(map(HISTORY.fullmatch, place.split(JOINT)))}


def _score_meaning(evidence: Sequence[Hit], nearness: Nearness) -> list[Scored]:
    """The first parts of the evidence by their meaning alone, best first."""
    parts = [
        (n, part, hit.chunk_text[part.start : part.end][: constants.COMPARED_CHARS])
        for n, hit in enumerate(evidence)
        for part in read_layout(hit.chunk_text).parts
    ][: constants.COMPARED_BY_MEANING]
    near = nearness([text for _, _, text in parts]) if parts else ()
    scored = [
        Scored(cosine / (1 + constants.PLACE_PENALTY * n), 0.0, n, part)
        for (n, part, _), cosine in zip(parts, near, strict=True)
    ]
    return sorted(scored, key=lambda item: (-item.score, item.hit, item.part.start))


def _weighing(words: Sequence[Word], weights: Sequence[float]) -> Callable[[frozenset[str]], float]:
    """A cached function that gives the weight of the words found among some terms."""
    pairs = list(zip(words, weights, strict=True))

    @cache
    def weight(known: frozenset[str]) -> float:
        return sum([weight * word.share_in(known) for word, weight in pairs]) if known else 0.0

    return weight


@dataclass(frozen=True, slots=True)
class _Asks:
    """What kind of answer a question wants, judged by its words."""

    digit: bool
    meaning: bool
    script: str

    @classmethod
    def of(cls, question: str) -> _Asks:
        lower = simplify(question).lower()
        return cls(
            digit=ASKS_NUMBER.search(lower) is not None,
            meaning=ASKS_MEANING.search(lower) is not None,
            script=find_script(question),
        )

    @property
    def max_factor(self) -> float:
        """The upper bound of `factor`."""
        factor = constants.NUMBER_FACTOR if self.digit else 1.0
        return factor * (constants.MEANING_FACTOR if self.meaning else 1.0)

    def factor(self, text: str, kind: str) -> float:
        """How well the form of a unit fits the question: a number, a definition, the same language,
        and more than a pointer to another place.
        """
        text = simplify(text)
        fits = constants.NUMBER_FACTOR if self.digit and DIGIT.search(text) else 1.0
        if self.meaning and MEANS.search(text):
            fits *= constants.MEANING_FACTOR
        if kind != "code" and find_script(text) != self.script:
            fits *= constants.OTHER_LANGUAGE_FACTOR
        if kind == "code" and len(text) > constants.MAX_QUOTE_CHARS:
            fits *= constants.LONG_CODE_FACTOR
        if POINTS.search(text) or text.endswith(INTRODUCES):
            fits *= constants.POINTER_FACTOR
        return fits


# --- writing ------------------------------------------------------------------------------------


def _render_quotes(chosen: Sequence[Scored], evidence: Sequence[Hit]) -> str:
    """The quotes as the chunks spell them, each followed by its mark. Adjoining quotes are one, and
    rows of a table stand below its header.
    """
    quotes: list[tuple[int, Part, set[int]]] = []
    for item in chosen:
        text = evidence[item.hit].chunk_text
        known = set((list_rows if item.by_header else extend)(text, item.part))
        joined = [
            quote
            for quote in quotes
            if quote[0] == item.hit and joins(text, quote[1], quote[2], item.part, sorted(known))
        ]
        if not joined:
            quotes.append((item.hit, item.part, known))
            continue
        # what stands between two quotes makes them one
        joined[0][2].update(known, *(other for _, _, other in joined[1:]))
        quotes = [quote for quote in quotes if quote not in joined[1:]]
    shown: list[str] = []
    above = ""
    rivals = _find_rivals([(evidence[hit], part) for hit, part, _ in quotes])
    for number, (hit, part, known) in enumerate(quotes):
        text, mark = evidence[hit].chunk_text, f"[{hit + 1}]"
        if part.kind == "row":
            listed = any(item.by_header for item in chosen if (item.hit, item.part) == (hit, part))
            name = rivals.get(number, "")
            head, goes_on = _find_header(evidence[hit], part), evidence[hit].table_goes_on
            shown.append(render_rows(text, known, mark, name, head, listed=listed, goes_on=goes_on))
            above = name
            continue
        section = format_section(evidence[hit].section_path).rpartition(" / ")[2]
        name = name_run(text, known, section)
        name = name or rivals.get(number, "")
        shown.append(render_run(text, known, mark, name if name != above else ""))
        above = name
    return "\n\n".join(shown)


def _find_header(hit: Hit, part: Part) -> str:
    """The header of the table of a row, which may stand in the passage before; empty for others."""
    if part.header is not None:
        return hit.chunk_text[slice(*part.header)]
    return hit.table_head if part.kind == "row" else ""


def _find_rivals(quotes: Sequence[tuple[Hit, Part]]) -> dict[int, str]:
    """The lines above the quotes that say in the same words, but for numbers, what one of another
    document or section says, or are rows of a table with the same columns: its title, or where it
    is if the other one has the same title; the heading of its section.
    """
    words: list[set[str]] = []
    paths: list[list[str]] = []
    columns: list[list[str]] = []
    for hit, part in quotes:
        terms = meaning(hit.chunk_text[part.start : part.end])
        words.append({term for term in terms if not DIGIT.search(term)})
        columns.append(cells(header) if (header := _find_header(hit, part)) else [])
        above = read_layout(hit.chunk_text).units[part.first].headings
        own = format_section(hit.section_path)
        paths.append(find_path(own.split(JOINT) if own else [], above))
    found: dict[int, str] = {}
    for one, other in permutations(range(len(quotes)), 2):
        shared, both = words[one] & words[other], words[one] | words[other]
        alike = len(shared) > constants.RIVAL_SHARE * len(both)
        if not alike and not (columns[one] and columns[one] == columns[other]):
            continue
        hit, rival = quotes[one][0], quotes[other][0]
        if hit.doc_id != rival.doc_id:
            named = hit.doc_title and hit.doc_title != rival.doc_title
            found[one] = introduce([hit.doc_title if named else hit.source_uri])
        elif paths[one] != paths[other] and one not in found:
            found[one] = introduce(paths[one][-1:])
    return found
