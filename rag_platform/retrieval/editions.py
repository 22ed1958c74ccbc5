"""Editions of one document, as businesses keep their policies, contracts and price lists: finds
those that a question means, and the newest otherwise.

An edition is told by a date or version in its path (`2024-06/`, `policy-2024-06-01.docx`), in its
first lines (`Version 3.2`, `自2024年7月1日起施行`) or metadata, or by a word in its path (`draft`,
`archive/`, `作废`). Minutes and reports have dates in their names, too, so two documents of the
same name and title are editions for passages only that are much alike, and the older one stays
where it has a word of the question that the newer one lacks.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import NamedTuple

from rag_platform.ir import Hit, Json
from rag_platform.retrieval.constants import SAME_EDITION
from rag_platform.retrieval.hydration import overlap
from rag_platform.retrieval.product_versions import (
    GENERIC,
    KIND,
    SUFFIX,
    asks_for_older,
    components,
    find_asked_versions,
    is_of_other,
)
from rag_platform.text.dates import MONTHS, find_dates
from rag_platform.text.scripts import CJK, has_han
from rag_platform.text.term_overlap import question_terms

HEAD_CHARS = 400  # of a document, which may tell its edition
_DATE_IN_NAME = re.compile(
    rf"(?:(?<![a-z])(?P<word>{'|'.join(MONTHS)})[a-z]*[-_., ]*)?"
    r"(?<!\d)(?P<year>(?:19|20)\d\d)(?:[-_./]?(?P<month>0[1-9]|1[0-2])"
    r"(?:[-_.]?(?P<day>0[1-9]|[12]\d|3[01]))?(?!\d)|年(?:(?P<m>\d\d?)月(?:(?P<d>\d\d?)日)?)?)?年?版?(?!\d)"
)
_VERSION_IN_NAME = re.compile(
    r"(?<![a-z0-9])(?:v|ver|version|rev)[-_. ]?(\d+(?:\.\d+)*)(?![\d.]*\d)版?"
)
_STALE = re.compile(
    r"(?<![a-z])(?:drafts?|old|obsolete|superseded|outdated|expired|withdrawn|archived?|backup|bak)"
    r"(?![a-z])|草稿|草案|初稿|征求意见稿|送审稿|讨论稿|作废|废止|失效|归档|存档|历史版本|旧版?"
)
_STATE = re.compile(
    r"(?<![a-z])(?:final|copy|new|current|latest|approved|signed)(?![a-z])|[(（]\d[)）]"
    "|终稿|定稿|发布稿|正式版|现行版?|最新版?|新版|修订[版稿]?|副本"
)
_VERSION_IN_HEAD = re.compile(
    r"(?:\b(?:version|ver\.|rev\.|revision|edition)|版本号?|版次)[\s:：|*]*(?:no\.? ?)?v?"
    r"(\d+(?:\.\d+){0,2})(?![\d/年-])",
    re.IGNORECASE,
)
_DATED_LINE = re.compile(
    r"\b(?:effective|in force|valid from|revised|revision|updated|modified|as of|issued|date)\b"
    "|施行|实施|生效|执行|修订|发布|更新|日期",
    re.IGNORECASE,
)
# the rest of a line tells when something ends
_ENDS = re.compile(
    r"(?:\b(?:expir|until\b|valid (?:to|through)\b|end date)|有效期至|有效期截|截止|到期|失效).*",
    re.IGNORECASE,
)
# names of files about a product as a whole
_OF_PRODUCT = re.compile(
    r"(?<![a-z])(?:readme|changes|history|change[-_ ]?log|release[-_ ]?notes)(?![a-z])|更新日志"
)
_LETTER = rf"[^\W_{CJK}]"
_WORD = re.compile(rf"[{CJK}]|{_LETTER}+")
_DATE_FIELDS = "effective effective_date revised updated last_updated lastmod date".split()
_YEAR = re.compile(r"(?<![\d.,])(?:19|20)\d\d(?![\d.,]\d|\d)(?: ?年)?")
_BEFORE = re.compile(r"\b(?:before|prior to|until) $")
_AFTER = re.compile(r"\b(?:after|since|from|between) $")
_HAN_BEFORE, _HAN_AFTER = re.compile("[之以]?前"), re.compile("[之以]后|起|以来")
# asks for what is no longer, or not yet, in force
_ASKS_STALE = re.compile(
    rf"{_STALE.pattern}|\b(?:used to|previously|formerly|earlier|past)\b|以前|过去|原来|原先"
    r"|\b(?:over|through(?:out)?) the years\b|\bin (?:any|all) (?:of the )?years?\b"
    r"|\byear by year\b|\b(?:all|every|each) (?:the )?(?:edition|version)s?\b"
    "|历[年届次版]|往年|逐年|各版"
)
# what stands beside a year that names an edition: `the 2023 policy`, `the policy of 2023`, `2023版`
_NAMED = re.compile(
    rf"\b{KIND} (?:of|from) \d|\d (?P<own>(?:[\w-]+ ){{0,3}}?){KIND}\b|\d ?年?的?版"
)


class Edition(NamedTuple):
    """What tells the editions of one document apart; empty where it is unknown."""

    date: str = ""  # ISO, as far as known
    version: tuple[float, ...] = ()
    is_stale: bool = False  # a draft, or not in force today

    def __str__(self) -> str:
        return ".".join(map(str, self.version)) or self.date


class Asked(NamedTuple):
    """The edition that a question names by a date or version."""

    date: str = ""
    version: tuple[float, ...] = ()
    before: bool = False  # the last edition before that date
    written: str = ""  # in the question

    def __str__(self) -> str:
        return str(Edition(self.date, self.version))

    def fits(self, edition: Edition) -> bool:
        if self.version:
            pairs = zip(self.version, edition.version, strict=False)
            return bool(edition.version) and all(asked == known for asked, known in pairs)
        length = min(len(self.date), len(edition.date))
        date, known = self.date[:length], edition.date[:length]
        return length > 0 and (known < date if self.before else known == date)


def find_asked_edition(question: str) -> Asked | None:
    """The edition that a question names by its only date or version, None for none.

    >>> find_asked_edition("How many days off were there before July 2024?")
    Asked(date='2024-07', version=(), before=True, written='july 2024')
    """
    lowered = question.lower()
    dates = [(written, day) for written, day in find_dates(lowered) if day[0] != "第"]
    dates = dates or [(match[0], match[0][:4]) for match in _YEAR.finditer(lowered)]
    if len(dates) > 1:
        return None
    for written, day in dates:
        left, _, right = lowered.partition(written)
        if not is_to_come(day) and (_AFTER.search(left) or _HAN_AFTER.match(right.strip())):
            return None
        before = _BEFORE.search(left) or _HAN_BEFORE.match(right.strip())
        return Asked(day, before=before is not None, written=written)
    versions = {it.version for it in find_asked_versions(question) if it.marked}
    if len(versions) != 1:
        return None
    (version,) = versions
    return Asked(version=components(version), written=version)


def name_document(path: str, title: str) -> tuple[str, str]:
    """The name and title of a document without what tells its edition."""
    name = path.lower().rpartition("/")[2]
    return _strip_edition(SUFFIX.sub("", name)), _strip_edition(title.lower())


@functools.lru_cache(maxsize=4096)
def _strip_edition(text: str) -> str:
    for pattern in (_DATE_IN_NAME, _VERSION_IN_NAME, _STALE, _STATE):
        text = pattern.sub(" ", text)
    return " ".join(re.findall(r"[^\W_]+", text))


def find_foreign(question: str, hits: Sequence[Hit]) -> set[int]:
    """The places of the hits from READMEs and change logs of other products than the one that the
    question is about, where it names exactly one that has such a file, and that do not speak of it:
    the installation of Got does not answer `How do I install Koa?`.
    """
    asked = _join_words(question)
    products = [name_products(hit.source_uri, hit.doc_title) for hit in hits]
    named = {name for names in products for name in names if name in asked}
    longest = [name for name in named if not any(name != it and name in it for it in named)]
    if len(longest) != 1:
        return set()
    (name,) = longest
    folders = [hit.source_uri[: hit.source_uri.rfind("/") + 1] for hit in hits]
    own = {it for it, names in zip(folders, products, strict=True) if name in names}

    def is_near(place: int) -> bool:
        # the README above those of all packages tells their license
        return any(
            it != folders[place]
            and (it.startswith(folders[place]) or folders[place].startswith(it))
            for it in own
        )

    words = name.split()
    joined = r"[\W_]*".join(words)
    mention = re.compile(rf"(?<!{_LETTER}){joined}(?!{_LETTER})")

    def speaks_of_it(hit: Hit) -> bool:
        text = "\n".join((hit.source_uri, hit.doc_title, hit.section_path, hit.chunk_text)).lower()
        return words[0] in text and mention.search(text) is not None

    return {
        place
        for place, hit in enumerate(hits)
        if products[place] and not is_near(place) and not speaks_of_it(hit)
    }


@functools.lru_cache(maxsize=4096)
def name_products(path: str, title: str) -> tuple[str, ...]:
    """The product of a README or change log: the rest of its file name, else the folder, and the
    title; empty for other files, which are about a topic.
    """
    folder, _, file = path.lower().rpartition("/")
    own, count = _OF_PRODUCT.subn(" ", SUFFIX.sub("", file))
    if not count:
        return ()
    names = []
    for text in (own, folder.rpartition("/")[2], _OF_PRODUCT.sub(" ", title.lower())):
        words = [it for it in _strip_edition(text).split() if not it.isdecimal()]
        is_topic = GENERIC.issuperset(words) or has_han(text)  # `用户/README.md`
        names.append("" if is_topic else _join_words(" ".join(words)))
    own, folder, title = names
    return tuple(filter(None, (own or folder, title)))


def _join_words(text: str) -> str:
    """The words in lower case between spaces, so that names are only found as whole words."""
    return f" {' '.join(_WORD.findall(text.lower()))} "


def read_edition(
    path: str, title: str = "", head: str = "", metadata: Json | None = None
) -> Edition:
    """The edition that the path, title, metadata and first lines of a document tell."""
    lowered, fields = path.lower(), metadata or {}
    date = _read_date(lowered) or _read_date(title.lower())
    head = head[:HEAD_CHARS]
    if not date:
        written = (str(fields[key]) for key in _DATE_FIELDS if key in fields)
        lines = filter(_DATED_LINE.search, _ENDS.sub("", head).splitlines())
        found = (day for text in (*written, *lines) for _, day in find_dates(text))
        date = next((day for day in found if day[0] != "第"), "")
    versions = _VERSION_IN_NAME.findall(lowered.rpartition("/")[2])
    for key in ("version", "revision"):
        versions += re.findall(r"^v?(\d+(?:\.\d+)*)$", str(fields.get(key, "")).lower())
    versions += _VERSION_IN_HEAD.findall(head)
    is_stale = _STALE.search(lowered) is not None or is_to_come(date)
    return Edition(date, components(versions[0]) if versions else (), is_stale)


def is_to_come(date: str) -> bool:
    """Whether an ISO date, as far as known, is after today."""
    return date > datetime.now(UTC).date().isoformat()


def _read_date(name: str) -> str:
    """The last date in a path or title."""
    date = ""
    for match in _DATE_IN_NAME.finditer(name):
        word = match["word"] and str(MONTHS.index(match["word"]) + 1)
        parts = match["year"], word or match["month"] or match["m"], match["day"] or match["d"]
        date = "-".join(part.zfill(2) for part in parts if part)
    return date


def _is_older(one: Edition, other: Edition) -> bool:
    if one.is_stale != other.is_stale:
        return one.is_stale
    if one.version and other.version and one.version != other.version:
        return one.version < other.version
    length = min(len(one.date), len(other.date))
    return length > 0 and one.date[:length] < other.date[:length]


# chunk_id of a hit to the doc_ids of the editions that were left out for it and say otherwise
Left = dict[str, set[str]]


def has_editions(hits: Iterable[Hit]) -> bool:
    """True if the path of one of the hits tells an edition, or two documents have one name."""
    documents: dict[tuple[str, ...], str] = {}
    for hit in hits:
        name = (hit.namespace, *name_document(hit.source_uri, hit.doc_title))
        known = documents.setdefault(name, hit.doc_id) == hit.doc_id
        if not known or _tells_edition(hit.source_uri):
            return True
    return False


@functools.lru_cache(maxsize=4096)
def _tells_edition(path: str) -> bool:
    return read_edition(path) != Edition()


def select_editions(
    question: str,
    hits: Sequence[Hit],
    read: Callable[[Collection[str]], Mapping[str, Edition]],
) -> tuple[list[Hit], Left]:
    """The hits without the passages that a better edition of the document has too, in much the same
    words: the one that the question names, else the newest. The passage most like one that is left
    out takes the better place of both. Nothing is recorded as left where the question names an
    edition. `read` gives the editions of documents by their doc_id.
    """
    families: dict[tuple[str, ...], dict[str, list[int]]] = {}
    for place, hit in enumerate(hits):
        name = (hit.namespace, *name_document(hit.source_uri, hit.doc_title))
        families.setdefault(name, {}).setdefault(hit.doc_id, []).append(place)
    several = [family for family in families.values() if len(family) > 1]
    if not several or _ASKS_STALE.search(question.lower()):
        return list(hits), {}
    inside = [hits[n] for family in several for places in family.values() for n in places]
    editions = read([doc_id for family in several for doc_id in family])
    asked = _find_meant(question, inside, editions.values())
    if asked is None and asks_for_older(question, inside):
        return list(hits), {}
    terms = question_terms(_without_edition(question, asked) if asked else question)
    find = functools.cache(terms.find_in)
    left: Left = {}
    places = list(range(len(hits)))
    beaten: set[int] = set()

    def compare(one: str, other: str) -> int:
        first, second = editions[one], editions[other]
        return _is_better(asked, first, second) - _is_better(asked, second, first)

    for family in several:
        ordered = sorted(family, key=functools.cmp_to_key(compare))  # the worst first
        texts = {it: "\n".join(hits[n].chunk_text for n in family[it]) for it in ordered}
        for number, doc_id in enumerate(ordered):
            betters = [it for it in reversed(ordered[number + 1 :]) if compare(it, doc_id) > 0]
            for worse in family[doc_id] if betters else ():
                old = hits[worse].chunk_text
                # where an edition is named, any passages may tell that these are two
                alike = old if asked is None else texts[doc_id]
                others = ((family[it], texts[it]) for it in betters)
                heir = _find_heir(hits, find, worse, alike, others)
                if heir is None:
                    continue
                beaten.add(worse)
                places[heir] = min(places[heir], places[worse])
                told = left.pop(hits[worse].chunk_id, set())
                if asked is None and _differs(find, hits[heir].chunk_text, old):
                    told.add(doc_id)
                left.setdefault(hits[heir].chunk_id, set()).update(told)
    kept = (n for n in range(len(hits)) if n not in beaten)
    return [hits[n] for n in sorted(kept, key=places.__getitem__)], left


def _find_meant(question: str, hits: Collection[Hit], editions: Iterable[Edition]) -> Asked | None:
    """The edition that a question names of the documents with these hits and editions."""
    asked = find_asked_edition(question)
    if asked is None or any(map(asked.fits, editions)):
        return asked
    return None if is_of_other(question, asked.written, hits) else asked


def _find_heir(
    hits: Sequence[Hit],
    find: Callable[[str], frozenset[str]],
    worse: int,
    alike: str,
    others: Iterable[tuple[Sequence[int], str]],
) -> int | None:
    """The place of the passage that says most of what the passage `worse` says, in the first of the
    better editions that is much like the text `alike`; None if none is. An edition is the places of
    its passages and their text.
    """
    wanted = find(f"{hits[worse].source_uri}\n{hits[worse].chunk_text}")
    for places, text in others:
        if overlap(alike, text) >= SAME_EDITION and wanted <= find(
            f"{hits[places[0]].source_uri}\n{text}"
        ):
            return max(places, key=functools.partial(_measure, hits, find, worse))
    return None


def _measure(
    hits: Sequence[Hit], find: Callable[[str], frozenset[str]], one: int, other: int
) -> tuple[int, float]:
    """How much a passage says of what another one says: words of the question first."""
    text, model = hits[other].chunk_text, hits[one].chunk_text
    return len(find(model) & find(text)), overlap(model, text)


def _differs(find: Callable[[str], frozenset[str]], text: str, older: str) -> bool:
    """Whether the line with most words of the question is not in the older text."""
    lines = text.splitlines()
    most = max((len(find(line)) for line in lines), default=0)
    return any(line not in older for line in lines if 2 * len(find(line)) > most)


def _without_edition(question: str, asked: Asked) -> str:
    return re.sub(r"\b(?:version|edition)\b|版", " ", question.lower().replace(asked.written, " "))


def _is_better(asked: Asked | None, one: Edition, other: Edition) -> bool:
    """Whether a question means the first edition rather than the other."""
    if asked is None or (asked.fits(one) and asked.fits(other)):
        return _is_older(other, one)
    return asked.fits(one)


def find_named_edition(question: str, name: str = "") -> Asked | None:
    """The edition that a question names as such, as `the 2023 policy` and `version 2`, and not only
    a time. Words between a year and its kind must be in the `name` of the document.

    >>> find_named_edition("Did it rain in 2023?")
    """
    asked = find_asked_edition(question)
    if asked is None or asked.before:
        return None
    named = _NAMED.search(question.lower())
    is_named = named and set((named["own"] or "").split()) <= set(name.split())
    return asked if asked.version or is_named else None


def list_others(asked: Asked, editions: Iterable[Edition]) -> list[str]:
    """The editions that there are instead of the one asked for; empty where it is there, or fewer
    than two are known.
    """
    known = [it for it in editions if (it.version if asked.version else it.date)]
    if len(known) < 2 or any(map(asked.fits, known)):
        return []
    if asked.version:
        return [str(Edition(version=version)) for version in sorted({it.version for it in known})]
    return sorted({it.date for it in known})
