"""Documents that exist in several versions: finds those that a question does not mean.

A library often holds the documentation of several versions side by side, as `django-3.2/` and
`django-5.2/` or `Manual V2.pdf` and `Manual V3.pdf`, with nearly the same texts. Whoever asks about
5.2 wants no answer from 3.2. Years are no versions: a report tells of the years before, too. Nor
are numbers of four parts, as most are addresses of hosts.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from itertools import combinations, takewhile
from math import inf
from typing import NamedTuple

from rag_platform.caching import Cache
from rag_platform.ir import Hit
from rag_platform.retrieval.constants import KEPT_FILTERS, PRODUCT_SHARE, SAME_PASSAGE
from rag_platform.retrieval.hydration import overlap
from rag_platform.text.scripts import HAN, HAN_DIGITS
from rag_platform.text.segmentation import tag_word
from rag_platform.text.stop_words import FUNCTION_WORDS, WEAK_WORDS
from rag_platform.text.term_overlap import (
    ASKS_HISTORY,
    VERSION_NUMBER,
    question_terms,
    question_words,
)

# `Django 5.2`, `django-5.2`, `v3`, `Vue 3`, `version 2`, `第2版`; no share, no part of a longer
# number or name
_ASKED = re.compile(
    r"(?<![\w.-])(?:(?P<word>[^\W\d]+?)(?P<gap>[-_ ]|==)?)??"
    r"(?P<mark>\b(?:version|release|ver\.?)[-_ ]|版本[号为是]? ?|(?<![a-z])v\.?|第 ?)?"
    r"(?P<version>\d+(?:\.\d+){0,2})(?P<tail>\.x| ?版)?(?![a-z0-9_%]|\.\w)",
    re.IGNORECASE,
)
# ends at a separator, at the end of the path, or before a file's suffix; a folder may be named
# for the newest version, which Docusaurus holds in `docs/`, and the others in `versioned_docs/`
_IN_PATH = re.compile(
    r"(?<![\d.])(?:versioned_docs/version-|(?<![a-z])(?:v|version[-_ ]?)|第 ?)?"
    r"(?P<version>\d+(?:\.\d+){1,2}|\d+(?=\.x\b|版)|(?<![a-z]v)(?<=v)\d+|(?<=version[-_ ])\d+"
    r"|(?<=[a-z][-_ @/])\d\d?(?=/))"
    r"(?:\.x|版)?(?=[-_ /)）版]|$|\.[a-z]\w*$)"
    r"|(?:^|(?<=/))(?P<newest>latest|stable|current|main|master|next|dev|docs)(?=/)"
)
_UNRELEASED = {"main", "master", "next", "dev"}
_HAN_EDITION = re.compile(f"(?<=第)[{HAN_DIGITS}](?=版)")
SUFFIX = re.compile(r"\.[a-z]\w*$")
_WORD = re.compile(r"[^\W\d_]+")
# words before the number of a part or a place
_PARTS = frozenset(
    "chapter section lesson part unit exercise figure fig table appendix step week day module page"
    " example equation room floor building team group phase volume vol issue batch lot"
    " 图 表 章 节 课".split()
)
# words that name no product
GENERIC = FUNCTION_WORDS | frozenset(
    "v ver version versions release releases rel branch edition doc docs documentation manual"
    " manuals guide api html en zh cn tw hans hant".split()
)
_UNIT = re.compile(
    r"[ -]?(?:(?:[kmgt]i?b|bytes?|[mnµ]?s|sec\w*|min|minutes?|hours?|days?|weeks?|months?|years?"
    r"|times|percent|points?|dollars?|euros?|[mck]?m|[mk]?g|grams?|lit(?:er|re)s?|[kmg]?hz"
    r"|degrees?|million|billion)\b|[秒分小时天日周月年倍元万亿度兆个次节章条页米克升％吨公])"
)
# what introduces a number alone that is a version, as in `in 5.2`
_INTRODUCED = re.compile(r"(?:^|[(（]|\b(?:in|for|on|with|using|under|at) (?:the )?)")
# what is kept in editions
KIND = (
    "(?:version|edition|release|policy|agreement|contract|handbook|manual|guide|template|terms"
    "|rules|(?:price )?list)"
)
# the word before a number that may name what it is of, `Paris` and 安卓: not the first one, which
# may be a command
_BEFORE_NUMBER = re.compile(
    rf"(?<=\S )([a-z][\w.+#-]*)(?: {KIND})?(?: of| from)?[-_ ]?v?$|([{HAN}]+) ?(?:v|版本|第)?$",
    re.IGNORECASE,
)
_NUMBERED_VERSION = re.compile(r"\d[\d.]*(?: ?版本)?")
# names nothing: `installed 3.2`, `running 3.2`
_VERB = re.compile(r"\w+(?:ed|ing)")
# compares versions, or asks about those before or after one
_COMPARES = re.compile(
    r"\b(?:since|before|after|until|till|than|prior to|up to|from|between)\W+"
    r"(?:v\d|\d+\.\d|[^\W\d]+\W+v?\d)"
    r"|\d[^\s\d]* (?:and|or) (?:newer|later|above|higher|up|older|earlier|below|lower)\b"
    r"|\b(?:differs?|differences?|compare[ds]?|comparison|versus|vs)\b"
    r"|\b(?:previous|earlier|older|old|prior|other|newer|later) (?:version|release|api|one)s?\b"
    r"|\d(?:\.x)? ?版?本? ?(?:以[上下前后来]|之[前后]|及[更以]|[或和]更|起)"
    r"|区别|不同|差[异别]|相比|对比|比较|旧版|[以之]前的版本"
)
# asks about a version itself, besides ASKS_HISTORY
_ABOUT_VERSION = re.compile(
    rf"{ASKS_HISTORY.pattern}|\b(?:new|versions?|support(?:s|ed)?|requires?|minimum|compatib\w+)\b"
    "|支持|要求|兼容|新功能|新特性|最低"
)

_NAME_CHARS = 80  # before a number, which may name what it is of
_MAX_DIGITS = 20  # of a part of a version
Family = tuple[str, str]  # a path before a version, and the rest of that folder or file name
Versions = tuple[tuple[Family, str], ...]  # the versions in a path, by family
_NUMBERED = ("", "/")  # of a file that begins with a number, as chapters and notes on releases do


class Asked(NamedTuple):
    """A number in a question that may be a version."""

    version: str
    product: str = ""  # the word before it in lower case, empty if it can name none
    marked: bool = False  # as a version: `v2`, `version 2`, `2.x`, `第2版`
    alone: bool = False  # nothing tells that it is a version; it may be a value


@functools.lru_cache(maxsize=256)
def find_asked_versions(question: str) -> tuple[Asked, ...]:
    """The numbers in a question that may be versions.

    >>> find_asked_versions("Which databases does Django 5.2 support?")
    (Asked(version='5.2', product='django', marked=False, alone=False),)
    """
    lowered, found = _fold(question), []
    introduced_at = {found.end() for found in _INTRODUCED.finditer(lowered)}
    for match in _ASKED.finditer(lowered):
        word, mark, tail = match["word"] or "", match["mark"] or "", match["tail"] or ""
        product = "" if word in GENERIC or not word.isascii() else word
        part = mark.startswith("第") and not tail
        if part or word in _PARTS or word[-1:] in _PARTS or _is_date(match["version"]):
            continue
        if not mark and not tail and _UNIT.match(lowered, match.end()):
            continue
        marked = bool(mark or tail)
        introduced = (word and word not in FUNCTION_WORDS and not product) or (
            match.start("version") in introduced_at
        )
        alone = not marked and not product and not introduced
        if marked or "." in match["version"] or product:
            found.append(Asked(match["version"], product, marked, alone))
    return tuple(found)


def without_version(question: str, version: str) -> str:
    """The question without a version and the product before it, since few texts repeat them.
    Unchanged where nothing is left, and where it asks about the version itself, as for what is new
    or supported.
    """

    def keep(match: re.Match[str]) -> str:
        word = match["word"] or ""
        if match["version"] != version:
            return match[0]
        return word if word.lower() in FUNCTION_WORDS or not word.isascii() else " "

    rest = " ".join(_ASKED.sub(keep, _number_editions(question)).split())
    about = _ABOUT_VERSION.search(re.sub(r"\d", "", rest.lower()))
    return question if not rest or about else rest


class ProductVersions:
    """The versions in the paths of a release's documents."""

    def __init__(
        self, paths: Iterable[tuple[str, str]], share: Callable[[str], float] = lambda _: 1.0
    ) -> None:
        """`paths` are (doc_id, path), `share` is that of the chunks with a word. Takes some 10 µs
        for each path, 50 if its own name has a version.
        """
        self._share = share
        rows = list(paths)
        self._root = len(_find_common_folder([path for _, path in rows]))
        self._documents: dict[Versions, list[str]] = {}
        for doc_id, path in rows:
            if found := _find_versions(path):
                self._documents.setdefault(found, []).append(doc_id)
        families: dict[Family, set[str]] = {}
        for found in self._documents:
            for family, number in found:
                if family != _NUMBERED:
                    families.setdefault(family, set()).add(number)
        # by version; documents without another version have none to be mistaken for
        self._families: dict[str, list[Family]] = {}
        self._products: dict[str, set[str]] = {}
        for family, numbers in families.items():
            if len(numbers) > 1:
                for number in numbers:
                    self._families.setdefault(number, []).append(family)
                for product in _name_family(family):
                    self._products.setdefault(product, set()).update(numbers)
        self._found: Cache[tuple[str, set[Family]]] = Cache(KEPT_FILTERS)
        self._others: Cache[tuple[str, ...]] = Cache(KEPT_FILTERS)  # by what is asked and hidden

    def find_others(
        self, question: str, hidden: frozenset[str] = frozenset()
    ) -> tuple[str, tuple[str, ...]]:
        """The version that a question means, and the ids of the documents that have another version
        in their paths where some document that is not `hidden` has that one; always one object for
        the same version. Empty for none, and for several, which are to be compared.

        The product must be in the path, unless the path names none. 5.2 also means 5.2.1, and the
        reverse.
        """
        if _COMPARES.search(_fold(question)):
            return "", ()
        meant = {
            asked.version: asked
            for asked in find_asked_versions(question)
            if self._find_families(asked)[0]
        }
        if len(meant) != 1:
            return "", ()
        (asked,) = meant.values()
        if asked.alone:
            return "", ()
        others = self._others.get((asked, hidden))
        if others is None:
            version, families = self._find_families(asked)
            inside = [
                (any(_agree(version, number) for _, number in found), doc_ids)
                for found, doc_ids in self._documents.items()
                if not families.isdisjoint(family for family, _ in found)
            ]
            of_version = (doc_id for is_meant, ids in inside if is_meant for doc_id in ids)
            is_there = not hidden.issuperset(of_version)
            others = tuple(
                doc_id
                for is_meant, doc_ids in inside
                if is_there and not is_meant
                for doc_id in doc_ids
            )
            self._others.put((asked, hidden), others)
        return asked.version, others

    def find_missing(self, question: str) -> tuple[str, str, list[str]]:
        """A version that a question asks for, its product, and the versions that there are of that
        product instead. All are empty where there is none.
        """
        for asked in find_asked_versions(question):
            there = sorted(self._products.get(asked.product, ()), key=components)
            # `JDK 21` beside `jdk-11/`, but not `Django 5` beside `django-4.2/`
            fits = asked.product and not any("." in number for number in there)
            precise = asked.marked or "." in asked.version or fits
            # `latest` may be that version
            if precise and there and there[-1][0].isdigit() and not self._find_families(asked)[0]:
                return asked.version, asked.product, there
        return "", "", []

    def _find_families(self, asked: Asked) -> tuple[str, set[Family]]:
        """The version and the families that have it: 5.2 for 5.2.3 if there is no 5.2.3, and
        `latest` for one above all that have numbers. Both are empty where none has it.
        """
        found = self._found.get(asked)
        if found is None:
            version = asked.version
            while not (families := self._find_exactly(asked, version)) and version.count(".") > 1:
                version = version.rpartition(".")[0]
            there = sorted(self._products.get(asked.product, ()), key=components)
            last = max((it for it in there if it[0].isdigit()), key=components, default="")
            is_above = last and components(asked.version) > components(last)
            # `stable` and `latest` agree
            if not families and is_above and components(there[-1])[0] == inf:
                version, families = there[-1], self._find_exactly(asked, there[-1])
            found = version if families else "", families
            self._found.put(asked, found)
        return found

    def _find_exactly(self, asked: Asked, version: str) -> set[Family]:
        return {
            family
            for number, families in self._families.items()
            if _agree(version, number)
            for family in families
            if self._may_name(asked, family, number)
        }

    def _may_name(self, asked: Asked, family: Family, number: str) -> bool:
        path = " ".join(family)
        if not asked.product:
            return asked.marked or "." in asked.version
        if asked.product in path and asked.product in _WORD.findall(path):
            return True
        # `OAuth 2.0` is no `v2/`, and `TLS 1.3` no `1.3/` where few texts are about TLS
        fits = asked.marked or ("." in asked.version and "." in number)
        is_bare = fits and GENERIC.issuperset(_WORD.findall(path[self._root :]))
        return is_bare and self._share(asked.product) >= PRODUCT_SHARE


def asks_for_older(question: str, hits: Collection[Hit]) -> bool:
    """True where a question names a version of the documents that the hits are from, or asks what
    changed, which older texts may tell.
    """
    lowered = _fold(question)
    rest = _NUMBERED_VERSION.sub("", lowered)  # 9.0版本 asks no history
    if ASKS_HISTORY.search(rest) or _COMPARES.search(lowered):
        return True
    asked = [it for it in find_asked_versions(question) if it.marked or "." in it.version]
    return any(not is_of_other(question, it.version, hits) for it in asked)


def is_of_other(question: str, number: str, hits: Collection[Hit]) -> bool:
    """Whether a version or year in a question is that of something else than the documents that the
    hits are from, as in `on Python 3.11`, `the Paris Agreement of 2015` and `安卓9.0`.
    """
    text = _number_editions(question)
    names = "\n".join(f"{hit.source_uri}\n{hit.doc_title}" for hit in hits).lower()
    written = re.compile(rf"(?<![\d.]){re.escape(number)}(?!\d)", re.IGNORECASE)
    asked = None if written.search(names) else written.search(text)
    if asked is None:
        return False
    following = re.match(f"[{HAN}]{{2}}", text[asked.end() :])
    told = following and f"{asked[0]}{following[0]}"  # 2015年巴黎协定
    if told and any(told in hit.chunk_text for hit in hits):
        return True
    before = _BEFORE_NUMBER.search(text, max(0, asked.start() - _NAME_CHARS), asked.start())
    if before is None:
        return False
    is_version = re.fullmatch(r"\d{1,3}(?:\.\d+)*", number) is not None
    if name := before[2]:  # 公司2019年的办法 is one of that year
        return is_version and name[-2:] not in names and tag_word(name)[0] == "n"
    word = before[1].lower()  # `the leave policy of 2019` too, without a capital
    may_name = not _VERB.fullmatch(word) if is_version else word != before[1]
    return may_name and word not in names and word not in GENERIC and word not in WEAK_WORDS


def has_versions(hits: Iterable[Hit]) -> bool:
    """True if one of the hits is of a document with a version in its path."""
    return any(_find_versions(hit.source_uri) for hit in hits)


def keep_newest(question: str, hits: Sequence[Hit]) -> list[Hit]:
    """The hits without the passages that a newer version of their folder or file has too, in much
    the same words; the newer one takes the better place of both. Passages stay that have a name or
    number of the question which no hit of the newer version has.
    """
    words = question_words(question)
    named = [it.text for it in words if it.weight > 1 or (it.weight == 1 and it.text.isdecimal())]
    find = functools.cache(question_terms(" ".join(named)).find_in)
    versions: list[list[str]] = []
    alike: dict[tuple[str | Family, ...], list[int]] = {}
    for place, hit in enumerate(hits):
        found = _find_ordered(hit.source_uri)
        versions.append([number for _, number in found])
        if found:
            # change logs of two versions have the same introduction below different titles
            titles = VERSION_NUMBER.findall(hit.section_path)
            key = (hit.namespace, *(family for family, _ in found), *titles)
            alike.setdefault(key, []).append(place)
    order: list[int | None] = list(range(len(hits)))
    for places in alike.values():
        if all(versions[place] == versions[places[0]] for place in places):
            continue  # saves looking at each pair
        for one, other in combinations(places, 2):
            better, worse = order[one], order[other]
            if better is None or worse is None or versions[better] == versions[worse]:
                continue
            older, newer = sorted((better, worse), key=lambda n: _newness(versions[n]))
            if overlap(hits[older].chunk_text, hits[newer].chunk_text) < SAME_PASSAGE:
                continue
            beside = [find(hits[n].chunk_text) for n in places if versions[n] == versions[newer]]
            if find(hits[older].chunk_text) <= frozenset().union(*beside):
                order[one], order[other] = newer, None
    return [hits[place] for place in order if place is not None]


def _find_versions(path: str) -> Versions:
    """Each version in a path with its family."""
    lowered = _fold(path)
    name = lowered.rfind("/") + 1
    found = _find_in_folders(lowered[:name])
    if any(map(str.isdigit, lowered[name:])):
        found += tuple(versions[:2] for versions in _read_versions(lowered, name))
    return found


@functools.lru_cache(maxsize=4096)
def _find_ordered(path: str) -> Versions:
    """The versions of which the higher one is newer. A number alone may be a count: `room-3/` is no
    older `room-4/`.
    """
    return tuple(
        (family, number)
        for family, number, match in _read_versions(_fold(path))
        if family != _NUMBERED and not match[0].isdigit()
    )


@functools.lru_cache(maxsize=4096)
def _find_in_folders(lowered: str) -> Versions:
    return tuple(versions[:2] for versions in _read_versions(lowered))


def _read_versions(lowered: str, start: int = 0) -> Iterator[tuple[Family, str, re.Match[str]]]:
    """(family, version, match) of each version in a path in lower case."""
    for match in _IN_PATH.finditer(lowered, start):
        number, before = match["version"] or match["newest"], lowered[: match.start()]
        bare = match[0] == number
        words = _WORD.findall(before, before.rfind("/", 0, -1) + 1)
        if _is_date(number) or before.endswith("://") or (bare and _PARTS.intersection(words[-1:])):
            continue
        after = lowered[match.end() :]
        if before[-1:] in ("", "/") and "/" not in after and bare:
            yield _NUMBERED, number, match
        else:
            rest = SUFFIX.sub("", after.partition("/")[0])
            yield (before + _docusaurus(match), rest), number, match


def _fold(text: str) -> str:
    return _number_editions(text.lower())


def _number_editions(text: str) -> str:
    """The text with `第2版` for `第二版`."""
    return _HAN_EDITION.sub(lambda match: str(HAN_DIGITS.index(match[0])), text)


def _find_common_folder(paths: Sequence[str]) -> str:
    first, last = min(paths, default=""), max(paths, default="")
    same = takewhile(lambda pair: pair[0] == pair[1], zip(first, last, strict=False))
    return "".join(letter for letter, _ in same).rpartition("/")[0]


def _docusaurus(match: re.Match[str]) -> str:
    return "docs" if "docs" in match[0] else ""


def _is_date(number: str) -> bool:
    return any(1900 <= part < inf for part in components(number))


def _newness(versions: Sequence[str]) -> list[tuple[float, ...]]:
    return [components(version) for version in versions]


def _agree(one: str, other: str) -> bool:
    """True where one version is the other or a part of it."""
    return all(a == b for a, b in zip(components(one), components(other), strict=False))


@functools.lru_cache(maxsize=4096)
def components(version: str) -> tuple[float, ...]:
    """The numbers of a version, by which versions are ordered: names as `latest` are infinite."""
    if not version[0].isdigit():
        return (-inf if version in _UNRELEASED else inf,)
    return tuple(int(part) if len(part) <= _MAX_DIGITS else inf for part in version.split("."))


def _name_family(family: Family) -> set[str]:
    """The words of the folder or file name with the version, or of the nearest folder above."""
    before, after = family
    *above, name = before.split("/")
    for part in (f"{name} {after}", *reversed(above)):
        if names := set(_WORD.findall(part)) - GENERIC:
            return names
    return set()
