"""Extractive answers: the sentences, list items and table rows of the evidence that best match the
question, quoted verbatim.

Words are compared as the word index tokenises them: Chinese is segmented, and identifiers count
whole and in parts. A word weighs more the fewer units of the evidence contain it; identifiers weigh
most, function words nothing. Every quote is a slice of its chunk, followed by its mark [n].
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from itertools import pairwise, permutations, product
from typing import ClassVar, NamedTuple

from rag_platform.answering import constants
from rag_platform.answering.quotable import (
    ANCHOR,
    INTRODUCES,
    Part,
    complete_list,
    extend,
    find_path,
    format_label,
    is_adjacent,
    label_units,
    list_rows,
    read_layout,
    render_rows,
    render_units,
)
from rag_platform.ir import JOINT, Hit, QueryIR, split_path
from rag_platform.loaders.languages import COMMENT_MARKS, find_language
from rag_platform.protocols import Written
from rag_platform.query.analysis import find_parts, subject_of
from rag_platform.query.section_numbers import (
    find_asked_releases,
    find_asked_sections,
    find_release,
    find_release_words,
    is_about_releases,
    is_in_release,
    is_in_sections,
)
from rag_platform.retrieval.editions import find_foreign
from rag_platform.text.dates import find_days, write_alike
from rag_platform.text.entries import (
    MEMBER_JOINT,
    ROW_NAME,
    find_described,
    find_headings,
    find_members,
    find_row_name,
    find_thing,
    is_asked,
    name_thing,
)
from rag_platform.text.markdown_blocks import LINK_TARGET, cells
from rag_platform.text.names import is_about
from rag_platform.text.passages import BOX_LEVEL, LABEL_LEVEL
from rag_platform.text.plain_quotes import strip_markup
from rag_platform.text.scripts import find_script, has_han, simplify
from rag_platform.text.segmentation import chinese_dictionary
from rag_platform.text.stop_words import CHINESE_FUNCTION_WORDS
from rag_platform.text.term_overlap import (
    ASKS_HISTORY,
    ASKS_NUMBER,
    DIGIT,
    HISTORY,
    POINTS,
    Word,
    coverage,
    find_version_form,
    question_terms,
    question_words,
    rarity,
)
from rag_platform.text.terms import is_weak_term, meaning, stop_terms
from rag_platform.traits import Traits

Parts = Sequence[Sequence[Part]]  # of each passage
PartTerms = Sequence[Sequence[frozenset[str]]]  # the question's terms in each part of each passage
FindTerms = Callable[[str], frozenset[str]]  # the question's terms in a text
Nearness = Callable[[Sequence[str]], Sequence[float]]
# an option of a command; in ASCII, because Chinese follows without a space
_FLAG = re.compile(r"(?<![\w-])--?[A-Za-z][\w-]*", re.ASCII)
_URL = re.compile(r"(?<=\]\()[^()\s]*(?=\))|https?://\S+")  # of a link, or bare
# an identifier that may be the number of a document: not a version, path or format
_DOCUMENT_NUMBER = re.compile(r"(?=.*[a-z])(?:[a-z-]*\d){3}[a-z\d-]*$")
_RUN = re.compile(r"\d+|[a-z]+")
# what error messages have
_REPORTS = re.compile(
    r"\b[A-Z]\w*(?:Error|Exception|Warning)\b|(?i:\b(?:error|fatal|fail(?:ed|ure)|denied|refused"
    r"|invalid|broken|unable|cannot|not found|no such|timed out)\b)|报错|错误|异常|失败|拒绝|超时"
)
# a number before a Chinese unit
_MEASURE = re.compile(
    r"(?<![\d.])([0-9]{1,9}(?:\.[0-9]{1,3})?) ?个?([年月天日小分秒元块万亿岁人次台%])"
)
_SAME_UNIT = {"日": "天", "块": "元"}
# between the ends of a range: 年以上不满, but not the 、 of a list or the border of a cell
_BETWEEN = re.compile(r"[^|\n]{0,5}(?:[-~～—–至到满]|不足|以上|[低高大小少多]于|超过)[^|\n]{0,4}")


@dataclass(frozen=True)
class Extractive:
    """Quotes the units of the evidence that share most words with the question and its search
    phrasings; where no unit has any of these words, the units nearest in meaning.
    """

    VERSION: ClassVar[str] = "38"
    traits: ClassVar[Traits] = Traits(quick=True)
    max_quotes: int = constants.MAX_QUOTES
    keep_ratio: float = constants.KEEP_RATIO
    # returns the cosine of each text with the question or its nearest phrasing; None: words only
    nearness: Nearness | None = None

    def answer(
        self,
        query: QueryIR,
        evidence: Sequence[Hit],
        *,
        on_text: Callable[[str], None] | None = None,
    ) -> Written:
        """Markdown whose marks [n] point at evidence[n-1]; empty where no unit matches."""
        scored = score_parts(query, evidence)
        if not scored and self.nearness is not None:
            scored = _score_by_meaning(evidence, self.nearness)
        if not scored:
            return Written("")
        first = _find_best_of_parts(scored, query, evidence)
        first = first or _find_explained(scored[0], query, evidence)
        chosen = _drop_far(self._choose(scored, evidence, first), evidence)
        text = _render_quotes(chosen, evidence)
        if on_text is not None:
            on_text(text)
        return Written(text)

    def _choose(
        self, scored: Sequence[Scored], evidence: Sequence[Hit], first: Sequence[Scored]
    ) -> list[Scored]:
        """The `first` and best parts that fit into an answer, without one whose text contains
        another's.
        """
        chosen: list[Scored] = []
        texts: list[str] = []
        least = self.keep_ratio * scored[0].score
        good = [item for item in scored if item.score >= least and item not in first]
        for item in [*first, *good]:
            if len(chosen) == self.max_quotes:
                break
            if item.by_header and any(
                (other.hit, other.part.header) == (item.hit, item.part.header) for other in chosen
            ):
                continue  # a better row of the table is chosen
            text = strip_markup(evidence[item.hit].chunk_text[item.part.start : item.part.end])
            text = LINK_TARGET.sub("]", " ".join(text.split()))
            left = constants.MAX_ANSWER_CHARS - sum(map(len, texts))
            if (not chosen or len(text) <= left) and not any(
                text in other or other in text for other in texts
            ):
                texts.append(text)
                chosen.append(item)
        return chosen


def _drop_far(chosen: Sequence[Scored], evidence: Sequence[Hit]) -> list[Scored]:
    """The chosen parts of an answer, best first, without those that match much worse than the best,
    are far from better ones and the first passage, and add no word of the question.
    """
    kept, said = list[Scored](), frozenset[str]()
    for item in chosen:
        places = (0, *(better.hit for better in kept))
        near = any(_are_near(evidence[item.hit], evidence[place]) for place in places)
        good = item.score >= constants.FAR_KEEP_RATIO * chosen[0].score
        if near or good or not item.terms <= said:
            kept.append(item)
            said |= item.terms
    return kept


def _are_near(one: Hit, other: Hit) -> bool:
    """True for passages of one document with few others between them."""
    apart = abs(one.chunk_index - other.chunk_index)
    return one.doc_id == other.doc_id and apart <= constants.NEAR_PASSAGES


def count_own_words(query: QueryIR) -> list[tuple[str, Callable[[str], float]]]:
    """The parts of a question without phrasings that asks for several things; each with a function
    that returns how many words of this part alone a text has, by their weight.
    """
    parts = () if query.rewrites else find_parts(query.normalised, clauses=True)
    counted: list[tuple[str, Callable[[str], float]]] = []
    for part in parts:
        others = {word.text for it in parts if it != part for word in question_words(it)}
        # an English question needs no dictionary, which takes 0.1 s to load
        cut = chinese_dictionary().cut(simplify(part)) if has_han(part) else []
        meant = {*cut} - CHINESE_FUNCTION_WORDS
        own = [
            word
            for word in question_words(part)
            if word.text not in others
            and (word.text in meant if has_han(word.text) else not is_weak_term(word.text))
        ]
        if own:
            counted.append((part, partial(_count_words, own, question_terms(part).find_in)))
    return counted


def _count_words(words: Sequence[Word], find: FindTerms, text: str) -> float:
    found = find(text)
    return sum(word.weight * word.share_in(found) for word in words)


def _find_best_of_parts(
    scored: Sequence[Scored], query: QueryIR, evidence: Sequence[Hit]
) -> list[Scored]:
    """The best scored part of a passage for each part of a question that asks for several things,
    best first.
    """
    counters = [count for _, count in count_own_words(query)]
    if not counters:
        return []
    texts = [
        f"{it.part.context}\n{evidence[it.hit].chunk_text[it.part.start : it.part.end]}"
        for it in scored
    ]
    best = {max(range(len(texts)), key=lambda n: count(texts[n])) for count in counters}
    return [scored[n] for n in sorted(best)]


def _find_explained(best: Scored, query: QueryIR, evidence: Sequence[Hit]) -> list[Scored]:
    """The best part, if it shows an error message that the question has, and the paragraph after it
    in its section, which has the cause or the remedy; empty otherwise.
    """
    text, question = evidence[best.hit].chunk_text, subject_of(query)
    shown = text[best.part.start : best.part.end]
    if not _REPORTS.search(question) or coverage(question, [shown]) < constants.MESSAGE_SHARE:
        return []
    layout, explained, before = read_layout(text), [best], best.part
    for part in layout.parts:
        if part.first != before.last + 1:
            continue
        apart = layout.units[part.first].headings != layout.units[before.last].headings
        begun = before is not best.part and "\n\n" in text[before.end : part.start]
        if apart or begun or part.kind in ("item", "row"):
            break
        explained.append(Scored(best.score, best.hit, part))
        before = part
    return explained if len(explained) > 1 else []


def find_sentence(query: QueryIR, hit: Hit) -> str:
    """The sentence or item of a passage that best matches the question, the first one where none
    matches, or a row where it has neither; empty where it has only code.
    """
    parts = [
        *(item.part for item in score_parts(query, [hit])),
        *read_layout(hit.chunk_text).parts,
    ]
    prose = (part for part in parts if part.kind in ("sentence", "item"))
    best = next(prose, next((part for part in parts if part.kind == "row"), None))
    return strip_markup(hit.chunk_text[best.start : best.end]) if best is not None else ""


# --- scoring ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Scored:
    """A part of a passage and its score."""

    score: float
    hit: int  # position in the evidence
    part: Part
    by_header: bool = False  # only the header of its table matches, so every row is as good
    # the terms of the question, not of its phrasings, in the part, its context and its titles
    terms: frozenset[str] = frozenset()


def score_parts(query: QueryIR, evidence: Sequence[Hit]) -> list[Scored]:
    """Parts with a word of the question in them or in their heading, best first; ties in reading
    order.
    """
    question = " ".join((subject_of(query), *query.rewrites))
    form = _AnswerForm.of(subject_of(query))
    words = question_words(question)
    measured = _find_measured(question, _find_dated(question, question_terms(question).find_in))
    find = cache(_find_more_than_pieces(words, measured))
    asked = find(subject_of(query))
    passages: Parts = [read_layout(hit.chunk_text).parts for hit in evidence]
    terms = _find_part_terms(evidence, passages, find)
    numbers_of, others = _find_document_numbers(words, evidence, passages, terms, find)
    terms = [
        [inside - numbers for inside in parts]
        for parts, numbers in zip(terms, numbers_of, strict=True)
    ]
    passages, terms = _drop_other_rows(words, evidence, passages, terms)
    weights = _find_weights(words, terms, phrased=bool(query.rewrites))
    weigh = _make_weigher(words, weights)
    logs = _find_change_logs(question, evidence)
    topic_factors = dict.fromkeys(logs, constants.OFF_TOPIC_FACTOR)
    others |= find_foreign(query.original, evidence)
    topic_factors |= dict.fromkeys(others, constants.OFF_TOPIC_FACTOR**2)
    entries = _read_sections(question, evidence, passages, find)
    if releases := [] if entries else _read_releases(subject_of(query), evidence, passages, find):
        entries = releases  # each item of a release is as good as the first
        terms = [
            [own | entry.terms for own, entry in zip(*pair, strict=True)]
            for pair in zip(terms, entries, strict=True)
        ]
    entries = (
        entries
        or _read_titled(subject_of(query), evidence, passages, find)
        or _read_entries(question, evidence, passages, find)
    )
    scored: list[Scored] = []
    for n, (hit, parts) in enumerate(zip(evidence, passages, strict=True)):
        path, units = split_path(hit.section_path), read_layout(hit.chunk_text).units
        headings: Sequence[tuple[int, str]] | None = None
        titles = applying = frozenset[str]()
        above = ""
        own_name = find(_name_document(hit))
        is_program = find_language(hit.filename) in COMMENT_MARKS
        for i, part in enumerate(parts):
            if headings != units[part.first].headings:
                headings = units[part.first].headings
                above = "\n".join(find_path(path, headings))
                titles = find(f"{above}\n{hit.doc_title}")
                # a version or a year in the title applies to everything below it
                applying = frozenset(term for term in titles if DIGIT.search(term))
            entry = entries[n][i]
            inside, quote = terms[n][i], hit.chunk_text[part.start : part.end]
            follows = bool(i and parts[i - 1].context == part.context)
            if follows and not inside:
                continue
            # "It ..." refers to the sentence before
            before = terms[n][i - 1] if follows and part.kind == "sentence" else frozenset()
            header = _find_header(hit, part)
            close = inside | before | find(part.context) | find(header)
            # code that only repeats the name of its document
            bare = part.kind == "code" and close <= own_name < find(question)
            own, near = (0.0, 0.0) if bare else (weigh(inside), weigh(close))
            if own == 0 and not entry.terms and (follows or near == 0 or part.kind == "item"):
                continue
            if own and header:  # the header names what the cells of a row are
                own = weigh(inside | find(header) | applying | entry.terms)
            elif own or entry.terms or (form.digit and not follows and DIGIT.search(quote)):
                own = weigh(inside | applying | entry.terms)  # or its date
            near = max(near, own)
            with_titles = weigh(close | titles)
            score = own + constants.CONTEXT_WEIGHT * (near - own)
            score += constants.FAR_WEIGHT * (with_titles - near)
            score *= topic_factors.get(n, 1.0)
            score *= entry.factor
            score *= form.factor(quote, part.kind, above)
            if is_program and part.kind == "code" and quote.count("\n") > 1:
                score *= constants.LONG_CODE_FACTOR
            score /= 1 + constants.PLACE_PENALTY * entry.place
            by_header = part.kind == "row" and not inside
            scored.append(Scored(score, n, part, by_header, (close | titles) & asked))
    return sorted(scored, key=lambda item: (-round(item.score, 9), item.hit, item.part.start))


def _name_document(hit: Hit) -> str:
    """The folders, the file name and the title of a passage's document."""
    return f"{hit.source_uri}\n{hit.filename}\n{hit.doc_title}"


class _Entry(NamedTuple):
    """What it means for a part that an option, a function or a file is described there."""

    terms: frozenset[str]  # of the question, in the asked name and that of its document
    place: int  # of its passage, 0 for the asked option of a named document
    factor: float  # low for something else although the asked one is described


def _read_entries(
    question: str, evidence: Sequence[Hit], passages: Parts, find: FindTerms
) -> list[list[_Entry]]:
    """What each part describes, by the name in the first cell of a row or in the nearest heading or
    label above. `run` also describes `job.run`, but `-r` is neither `-R` nor `--run`.
    """
    flags = {*_FLAG.findall(question)}
    names = {word.text for word in question_words(question) if word.weight > 1}
    names.update(flag.strip("-").lower() for flag in flags if len(flag) > 2)

    @cache
    def find_asked(entry: str) -> frozenset[str] | None:
        own = {*_FLAG.findall(entry)}
        if flags and own:
            return None if flags.isdisjoint(own) else find(entry)
        name = entry.lower().removesuffix("()")
        every = name.split(", ")
        ends = {it for it in names for n in every if _ends_with(it, n) or _ends_with(n, it)}
        if not ends and MEMBER_JOINT.search(name) and not find(MEMBER_JOINT.split(name)[-1]):
            return None  # a member of what is asked for
        return frozenset(find(entry) & names | ends) or None if name else None

    described = []
    for hit, parts in zip(evidence, passages, strict=True):
        units, path = read_layout(hit.chunk_text).units, split_path(hit.section_path) or [""]
        headings = [units[part.first].headings for part in parts]
        described.append([_name_entry(path, it) for it in headings])
    is_any = any(find_asked(name) is not None for inside in described for name in inside)
    documents = [find(_name_document(hit)) for hit in evidence]
    # the question's terms in the names of documents that describe the flag
    describing = {
        own
        for own, inside in zip(documents, described, strict=True)
        if flags and any(not flags.isdisjoint(_FLAG.findall(name)) for name in inside)
    }
    rows, tables = _find_asked_rows(question, evidence, passages, described, documents, find)

    def is_beside_asked(n: int, part: Part) -> bool:
        """True for another row of such a table, and code that shows how to use what is asked for.
        Of two asked names, a row with both says what they have in common.
        """
        if part.kind != "row":
            return bool(rows) and part.kind == "code"
        names = tables.get(_find_header(evidence[n], part), frozenset())
        text = evidence[n].chunk_text[part.start : part.end]
        return bool(names) and (names in rows.values() or not names <= find(text))

    def read(n: int, part: Part, name: str) -> _Entry:
        asked = rows.get((n, part))
        is_other = asked is None and is_beside_asked(n, part)
        asked = asked or find_asked(name)
        if asked is None or is_other:
            if is_other or (name and is_any):
                return _Entry(frozenset(), n, constants.OFF_TOPIC_FACTOR**2)
            # a synopsis or an example, where that document or one that fits as well describes it
            beside = any(documents[n] <= own for own in describing)
            return _Entry(frozenset(), n, constants.OFF_TOPIC_FACTOR if beside else 1.0)
        return _Entry(asked | documents[n], 0 if documents[n] else n, 1.0)

    return [
        [read(n, *it) for it in zip(parts, names, strict=True)]
        for n, (parts, names) in enumerate(zip(passages, described, strict=True))
    ]


def _read_sections(
    question: str, evidence: Sequence[Hit], passages: Parts, find: FindTerms
) -> list[list[_Entry]]:
    """The same where the question names sections by their numbers, as `section 5.2.2`: what is in
    them, above their subsections, of the document that it names if several have them; empty where
    no part is.
    """
    if not (written := find_asked_sections(question)):
        return []
    asked = list(written.values())

    def find_place(above: Sequence[str]) -> int | None:
        if not is_in_sections(above, asked):
            return None
        return 0 if is_in_sections(above[-1:], asked[-1:]) else 1

    documents = [find(_name_document(hit)) for hit in evidence]
    return _read_named(find(" ".join(written)), evidence, passages, documents, find_place)


def _read_releases(
    question: str, evidence: Sequence[Hit], passages: Parts, find: FindTerms
) -> list[list[_Entry]]:
    """The same for versions, where the question has no words but these, the product and what
    changed: what is below headings with exactly these.
    """
    if not (asked := find_asked_releases(question)):
        return []
    headings = [(*split_path(it.section_path), *find_headings(it.chunk_text)) for it in evidence]
    owners = [
        _name_document(hit)
        for hit, path in zip(evidence, headings, strict=True)
        if any(is_in_release([heading], asked.values()) for heading in path)
    ]
    if not owners or not is_about_releases(question, owners):
        return []
    versions, changes = find(" ".join(asked)), find(" ".join(find_release_words(question)))
    documents = [find(_name_document(hit)) - changes - versions for hit in evidence]

    def find_place(above: Sequence[str]) -> int | None:
        return 0 if is_in_release(above, asked.values()) else None

    return _read_named(versions, evidence, passages, documents, find_place)


def _read_titled(
    question: str, evidence: Sequence[Hit], passages: Parts, find: FindTerms
) -> list[list[_Entry]]:
    """The same where the question itself is a heading or label, or asks what the thing in a heading
    is: what is below it.
    """
    found: dict[tuple[int, Part], _Entry] = {}
    thing, entry = meaning(find_thing(question)), _Entry(find(question), 0, 1.0)
    for n, (hit, parts) in enumerate(zip(evidence, passages, strict=True)):
        units, section = read_layout(hit.chunk_text).units, split_path(hit.section_path)[-1:]
        if explains(question, hit):
            found |= {(n, part): entry for part in _find_beginning(hit, parts)}
        for part in parts:
            labels = [ANCHOR.sub("", words) for _, words in units[part.first].headings]
            defined = thing and labels and meaning(labels[-1]) == thing
            if defined or any(is_asked(question, title) for title in labels or section):
                found[n, part] = entry
    return _set_apart(found, passages, [frozenset()] * len(evidence))


def explains(question: str, hit: Hit) -> bool:
    """True for the beginning of a document about the thing of which a question asks what it is."""
    if hit.chunk_index != 0 or not (thing := name_thing(question)):
        return False
    return is_about(thing, hit.filename, hit.doc_title, hit.source_uri)


def _find_beginning(hit: Hit, parts: Sequence[Part]) -> list[Part]:
    """The sentences of the first section with any, which say what a document is about."""
    units = read_layout(hit.chunk_text).units
    said = [part for part in parts if part.kind == "sentence"]
    return [it for it in said if units[it.first].headings == units[said[0].first].headings]


def _read_named(
    terms: frozenset[str],
    evidence: Sequence[Hit],
    passages: Parts,
    documents: Sequence[frozenset[str]],
    find_place: Callable[[Sequence[str]], int | None],
) -> list[list[_Entry]]:
    """The entries of sections that a question names with these terms, and their documents with
    `documents`; `find_place` returns the place of a path of headings, None outside of the sections.
    """
    found: dict[tuple[int, Part], _Entry] = {}
    for n, (hit, parts) in enumerate(zip(evidence, passages, strict=True)):
        units, path = read_layout(hit.chunk_text).units, split_path(hit.section_path)
        for part in parts:
            place = find_place(find_path(path, units[part.first].headings))
            if place is not None:
                found[n, part] = _Entry(terms | documents[n], place, 1.0)
    return _set_apart(found, passages, documents)


def _set_apart(
    found: Mapping[tuple[int, Part], _Entry], passages: Parts, documents: Sequence[frozenset[str]]
) -> list[list[_Entry]]:
    """The entries found, and those of other parts, which are off the topic; empty if none is."""
    if not found:
        return []
    named = [documents[n] for n, _ in found]
    entries = []
    for n, parts in enumerate(passages):
        other = _Entry(frozenset(), n, constants.OFF_TOPIC_FACTOR**2)
        is_named = not any(documents[n] < names for names in named)
        entries.append([found.get((n, part), other) if is_named else other for part in parts])
    return entries


def _find_asked_rows(
    question: str,
    evidence: Sequence[Hit],
    passages: Parts,
    described: Sequence[Sequence[str]],
    documents: Sequence[frozenset[str]],
    find: FindTerms,
) -> tuple[dict[tuple[int, Part], frozenset[str]], dict[str, frozenset[str]]]:
    """(the rows about what is asked for, with the question's terms in their names; the header of
    each of their tables, with these terms of all its rows).

    Below `options.cache`, `enable` also is `cache.enable`. A word that only names a column is not
    asked for. Of rows with the same name, those of the document that the question names count.
    """
    asked = {word.lower() for word in ROW_NAME.findall(question)}
    found: dict[tuple[int, Part], frozenset[str]] = {}
    for n, (hit, parts, names) in enumerate(zip(evidence, passages, described, strict=True)):
        for part, above in zip(parts, names, strict=True):
            if part.kind != "row":
                continue
            name = find_row_name(hit.chunk_text[part.start : part.end]).lower()
            whole = f".{above.lower()}.{name}"
            ends = [it for it in asked if it == name or ("." in it and whole.endswith(f".{it}"))]
            if name and (own := find(" ".join(ends)) - find(_find_header(hit, part))):
                found[n, part] = own
    places = {(n, own) for (n, _), own in found.items()}
    tables: dict[str, frozenset[str]] = {}
    for (n, part), own in found.items():
        header = _find_header(evidence[n], part)
        tables[header] = tables.get(header, frozenset()) | own
    best = {
        (n, part): own
        for (n, part), own in found.items()
        if not any(own == same and documents[n] < documents[at] for at, same in places)
    }
    return best, tables


def _ends_with(name: str, end: str) -> bool:
    """True for a member and its name with or without its class or module: `job.run`, `run`."""
    name, end = (MEMBER_JOINT.sub(".", it).rstrip("!?=") for it in (name, end))
    return name == end or name.endswith(f".{end}")


def _name_entry(path: Sequence[str], headings: Sequence[tuple[int, str]]) -> str:
    """What the nearest heading or label names; below the heading of a class, with the class."""
    level, nearest = headings[-1] if headings else (0, path[-1])
    described = find_described(nearest)
    if level == BOX_LEVEL and not described:
        return _name_entry(path, headings[:-1])
    if described and level >= LABEL_LEVEL:
        return described
    above = find_path(path, headings)
    members = find_members(above)
    is_member = len(members) > len(find_members(above[:-1]))
    return members[-1] if is_member else described


class _Measure(NamedTuple):
    number: str
    unit: str
    start: int
    end: int


def _find_more_than_pieces(words: Sequence[Word], find: FindTerms) -> FindTerms:
    """`find`, which finds nothing where a text only has numbers of identifiers: 603 is not B603."""
    codes = [word.text for word in words if word.is_identifier]
    pieces = {
        it.text for it in words if it.text.isdigit() and any(it.text in code for code in codes)
    }

    def find_in(text: str) -> frozenset[str]:
        found = find(text)
        return frozenset() if found <= pieces else found

    return find_in if pieces else find


def _find_dated(question: str, find: FindTerms) -> FindTerms:
    """`find`, for which the days of the question are in a text in any form, and no word of them is
    in a text that only has others.
    """
    days = {day: match[0] for match, day in find_days(question)}
    own = find(" ".join(days.values()))

    def find_in(text: str) -> frozenset[str]:
        found = find(write_alike(text, question))
        others = {day for _, day in find_days(text)}
        return found - own if others and days.keys().isdisjoint(others) else found

    return find_in if days else find


def _find_measured(question: str, find: FindTerms) -> FindTerms:
    """`find` with the numbers that lie in a range of the text, as 15 年 in 10 年以上不满 20 年, and
    without those that the text only has with other units, as 15 天.
    """
    asked = _list_measures(simplify(question))

    def find_in(text: str) -> frozenset[str]:
        simple, found = simplify(text), set(find(text))
        measures = _list_measures(simple)
        ranges = [
            pair
            for pair in pairwise(measures)
            if _BETWEEN.fullmatch(simple, pair[0].end, pair[1].start)
        ]
        for it in asked:
            units = {other.unit for other in measures if other.number == it.number}
            if any(_covers(it, *pair) for pair in ranges):
                found.add(it.number)
            elif units and it.unit not in units:
                found.discard(it.number)
        return frozenset(found)

    return find_in if asked else find


def _covers(asked: _Measure, one: _Measure, other: _Measure) -> bool:
    """True for the two ends of a range that has the asked measure, or of which one is that."""
    low, high = sorted((float(one.number), float(other.number)))
    return {one.unit, other.unit} == {asked.unit} and low <= float(asked.number) <= high


def _list_measures(text: str) -> list[_Measure]:
    return [
        _Measure(found[1], _SAME_UNIT.get(found[2], found[2]), *found.span())
        for found in _MEASURE.finditer(text)
    ]


def _find_part_terms(evidence: Sequence[Hit], passages: Parts, find: FindTerms) -> PartTerms:
    """The terms of the question in each part, without those in URLs."""

    def find_in_part(text: str, part: Part) -> frozenset[str]:
        topic = text[slice(*part.topic)]
        return find(f"{part.asked}\n{topic if part.kind == 'code' else _URL.sub(' ', topic)}")

    return [
        [find_in_part(hit.chunk_text, part) for part in parts]
        for hit, parts in zip(evidence, passages, strict=True)
    ]


def _drop_other_rows(
    words: Sequence[Word], evidence: Sequence[Hit], passages: Parts, terms: PartTerms
) -> tuple[Parts, PartTerms]:
    """The parts and their terms without rows about other things: where rows of a table have an
    identifier of the question, those that have none, and no term that the former lack. A table that
    has the identifiers in different rows compares them, so these rows count as having all.
    """
    codes = {word.text for word in words if word.weight > 1 and not word.text.isalpha()}
    if not codes:
        return passages, terms
    headers = [
        [_find_header(hit, part) if part.kind == "row" else None for part in parts]
        for hit, parts in zip(evidence, passages, strict=True)
    ]
    matched: dict[str | None, frozenset[str]] = {}  # header to the terms of rows with an identifier
    for columns, row_terms in zip(headers, terms, strict=True):
        for header, inside in zip(columns, row_terms, strict=True):
            if header is not None and not codes.isdisjoint(inside):
                matched[header] = matched.get(header, frozenset()) | inside
    kept = [
        [
            i
            for i, (header, inside) in enumerate(zip(columns, row_terms, strict=True))
            if header not in matched
            or not codes.isdisjoint(inside)
            or not inside <= matched[header]
        ]
        for columns, row_terms in zip(headers, terms, strict=True)
    ]
    rows = [row for pair in zip(headers, terms, strict=True) for row in zip(*pair, strict=True)]
    compared = {  # header to the identifiers, if no row has all
        header: inside & codes
        for header, inside in matched.items()
        if not any(columns == header and inside & codes <= row for columns, row in rows)
    }

    def add_compared(header: str | None, inside: frozenset[str]) -> frozenset[str]:
        return inside if codes.isdisjoint(inside) else inside | compared.get(header, frozenset())

    return (
        [[parts[i] for i in some] for parts, some in zip(passages, kept, strict=True)],
        [
            [add_compared(columns[i], inside[i]) for i in some]
            for columns, inside, some in zip(headers, terms, kept, strict=True)
        ],
    )


def _find_document_numbers(
    words: Sequence[Word],
    evidence: Sequence[Hit],
    passages: Parts,
    terms: PartTerms,
    find: FindTerms,
) -> tuple[list[frozenset[str]], set[int]]:
    """(for each passage the terms of identifiers that name its document, the passages of documents
    without these identifiers).

    An identifier of the question names a document that has no other one of the same form, has it
    outside of rows about several things, and has other words of the question.
    """
    numbers_of = [frozenset[str]()] * len(evidence)
    containing = set[int]()
    identifiers = [word.text for word in words if word.is_identifier]
    documents = {hit.doc_id for hit in evidence}
    for doc_id, number in product(documents, filter(_DOCUMENT_NUMBER.match, identifiers)):
        own = [n for n, hit in enumerate(evidence) if hit.doc_id == doc_id]
        find_similar = _compile_form(number).findall
        similar = {it for n in own for it in find_similar(evidence[n].chunk_text.lower())}
        containing.update(own if number in similar else ())
        if (
            similar == {number}
            and any(inside - find(number) for n in own for inside in terms[n])
            and not any(
                _has_in_row(number, evidence[n].chunk_text, passages[n], terms[n]) for n in own
            )
        ):
            for n in own:
                numbers_of[n] |= find(number)
    every = frozenset[str]().union(*numbers_of)
    others = {n for n in range(len(evidence)) if every and n not in containing}
    return [every if n in others else numbers for n, numbers in enumerate(numbers_of)], others


def _has_in_row(
    identifier: str, text: str, parts: Sequence[Part], terms: Sequence[frozenset[str]]
) -> bool:
    """True where a row of a table with more than two columns has an identifier."""
    return any(
        part.kind == "row" and identifier in inside and len(cells(text[part.start : part.end])) > 2
        for part, inside in zip(parts, terms, strict=True)
    )


def _compile_form(identifier: str) -> re.Pattern[str]:
    """Matches identifiers that differ only in the letters and digits of each run."""
    form = _RUN.sub(lambda run: r"\d+" if run[0].isdigit() else "[a-z]+", identifier)
    return re.compile(rf"(?<![a-z\d-]){form}(?![a-z\d-])")


def _find_change_logs(question: str, evidence: Sequence[Hit]) -> set[int]:
    """The passages of change logs, where the question does not ask for what changed."""
    if ASKS_HISTORY.search(question.lower()):
        return set()
    places = [f"{hit.source_uri.rpartition('/')[2]}{JOINT}{hit.section_path}" for hit in evidence]
    return {n for n, place in enumerate(places) if any(map(HISTORY.fullmatch, place.split(JOINT)))}


def _score_by_meaning(evidence: Sequence[Hit], nearness: Nearness) -> list[Scored]:
    """The first parts of the evidence by their embeddings alone, best first."""
    parts = [
        (n, part, hit.chunk_text[part.start : part.end][: constants.COMPARED_CHARS])
        for n, hit in enumerate(evidence)
        for part in read_layout(hit.chunk_text).parts
    ][: constants.COMPARED_BY_MEANING]
    cosines = nearness([text for _, _, text in parts]) if parts else ()
    scored = [
        Scored(cosine / (1 + constants.PLACE_PENALTY * n), n, part)
        for (n, part, _), cosine in zip(parts, cosines, strict=True)
    ]
    return sorted(scored, key=lambda item: (-item.score, item.hit, item.part.start))


def _find_weights(words: Sequence[Word], terms: PartTerms, *, phrased: bool) -> list[float]:
    """The weights of the words by their rarity in the parts. English words that are no topic, as
    `between`, count half, except beside phrasings, whose words are chosen.
    """
    weights = rarity(words, [inside for parts in terms for inside in parts])
    few = frozenset[str]() if phrased else stop_terms()
    return [
        weight / 2 if word.text.isascii() and word.text in few else weight
        for word, weight in zip(words, weights, strict=True)
    ]


def _make_weigher(
    words: Sequence[Word], weights: Sequence[float]
) -> Callable[[frozenset[str]], float]:
    """A cached function that returns the total weight of the words among some terms."""
    pairs = list(zip(words, weights, strict=True))

    @cache
    def weigh(terms: frozenset[str]) -> float:
        return sum([weight * word.share_in(terms) for word, weight in pairs]) if terms else 0.0

    return weigh


@dataclass(frozen=True, slots=True)
class _AnswerForm:
    """The form of answer that the words of a question call for."""

    digit: bool
    version: re.Pattern[str] | None
    script: str

    @classmethod
    def of(cls, question: str) -> _AnswerForm:
        lower = simplify(question).lower()
        return cls(
            digit=ASKS_NUMBER.search(lower) is not None,
            version=find_version_form(lower),
            script=find_script(question),
        )

    def factor(self, text: str, kind: str, above: str) -> float:
        """How well a unit fits: it has a number, or a version (also in the headings `above`)
        where one is asked for, is in the question's script, and does not only point
        elsewhere.
        """
        text = simplify(text)
        fits = constants.NUMBER_FACTOR if self.digit and DIGIT.search(text) else 1.0
        if self.version and not self.version.search(f"{above}\n{text}"):
            fits *= constants.OFF_TOPIC_FACTOR
        if kind != "code" and find_script(text) != self.script:
            fits *= constants.OTHER_LANGUAGE_FACTOR
        if POINTS.search(text) or text.endswith(INTRODUCES):
            fits *= constants.POINTER_FACTOR
        return fits


# --- writing ------------------------------------------------------------------------------------


def _render_quotes(chosen: Sequence[Scored], evidence: Sequence[Hit]) -> str:
    """The quotes verbatim, each followed by its mark. Adjacent quotes are merged, and rows of a
    table stand below its header.
    """
    quotes: list[tuple[int, Part, set[int]]] = []  # (hit, part, numbers of the quoted units)
    for item in chosen:
        text = evidence[item.hit].chunk_text
        unit_numbers = set((list_rows if item.by_header else extend)(text, item.part))
        adjacent = [
            (hit, part, quoted)
            for hit, part, quoted in quotes
            if hit == item.hit and is_adjacent(text, part, quoted, item.part, sorted(unit_numbers))
        ]
        if not adjacent:
            quotes.append((item.hit, item.part, unit_numbers))
            continue
        # the new quote may bridge the gap between several others
        adjacent[0][2].update(unit_numbers, *(other for _, _, other in adjacent[1:]))
        quotes = [quote for quote in quotes if quote not in adjacent[1:]]
    shown: list[str] = []
    label_above = ""
    distinguishing = _label_similar([(evidence[hit], part) for hit, part, _ in quotes])
    for number, (n, part, unit_numbers) in enumerate(quotes):
        hit, mark, label = evidence[n], f"[{n + 1}]", distinguishing.get(number, "")
        if part.kind == "row":
            listed = any(item.by_header for item in chosen if (item.hit, item.part) == (n, part))
            rows = render_rows(
                hit.chunk_text,
                unit_numbers,
                mark,
                label,
                _find_header(hit, part),
                listed=listed,
                goes_on=hit.table_goes_on,
            )
            shown.append(rows)
        else:
            unit_numbers = complete_list(hit.chunk_text, unit_numbers)
            path = split_path(hit.section_path)
            own = label_units(hit.chunk_text, unit_numbers, path)
            # `httpx/CHANGELOG.md, 0.26.0:` beside the 0.26.0 of another product
            label = f"{label[:-1]}, {own}" if own and label[:-1] not in own else own or label
            shown_label = label if label != label_above else ""
            shown.append(render_units(hit.chunk_text, unit_numbers, mark, shown_label))
        label_above = label
    return "\n\n".join(shown)


def _find_header(hit: Hit, part: Part) -> str:
    """The header of a row's table, which may be in an earlier passage; empty for other parts."""
    if part.header is not None:
        return hit.chunk_text[slice(*part.header)]
    return hit.table_head if part.kind == "row" else ""


def _label_similar(quotes: Sequence[tuple[Hit, Part]]) -> dict[int, str]:
    """A label for each quote, by its position, that a reader could confuse with another: both have
    nearly the same words apart from numbers, are about releases of one version in two documents, or
    are rows of tables with the same columns. The label is the title of its document, or its URI if
    the titles are equal or those of change logs, or the heading of its section if both are from one
    document.
    """
    words: list[set[str]] = []
    paths: list[list[str]] = []
    columns: list[list[str]] = []
    for hit, part in quotes:
        terms = meaning(hit.chunk_text[part.start : part.end])
        words.append({term for term in terms if not DIGIT.search(term)})
        columns.append(cells(header) if (header := _find_header(hit, part)) else [])
        above = read_layout(hit.chunk_text).units[part.first].headings
        paths.append(find_path(split_path(hit.section_path), above))
    releases = list(map(find_release, paths))
    found: dict[int, str] = {}
    for one, other in permutations(range(len(quotes)), 2):
        shared, both = words[one] & words[other], words[one] | words[other]
        alike = len(shared) > constants.SIMILAR_QUOTES * len(both)
        hit, rival = quotes[one][0], quotes[other][0]
        same_release = releases[one] == releases[other] and bool(releases[one])
        alike |= same_release and hit.doc_id != rival.doc_id
        if not alike and not (columns[one] and columns[one] == columns[other]):
            continue
        if hit.doc_id != rival.doc_id:
            titles = {hit.doc_title, rival.doc_title}
            named = len(titles - {""}) > 1 and not any(map(HISTORY.fullmatch, titles))
            # a change log may be named for its first release
            named &= not same_release or find_release([hit.doc_title]) in ("", releases[one])
            found[one] = format_label([hit.doc_title if named else hit.source_uri])
        elif paths[one] != paths[other] and one not in found:
            found[one] = format_label(paths[one][-1:])
    return found
