"""Documents that exist in several versions: finds those that a question does not mean.

A library often holds the documentation of several versions side by side, as `django-3.2/` and
`django-5.2/` or `Manual V2.pdf` and `Manual V3.pdf`, with nearly the same texts. Whoever asks about
5.2 wants no answer from 3.2. Years are no versions: a report tells of the years before, too.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import combinations
from posixpath import basename

from rag_platform.caching import Cache
from rag_platform.ir import Hit
from rag_platform.retrieval.constants import KEPT_FILTERS, SAME_PASSAGE
from rag_platform.retrieval.hydration import overlap
from rag_platform.text.stop_words import FUNCTION_WORDS
from rag_platform.text.term_overlap import ASKS_HISTORY, VERSION_NUMBER

_NUMBER = r"(?P<version>\d+(?:\.\d+)+|\d+(?:\.\d+)*(?=\.x\b)|(?<=v)\d+)"
# `Django 5.2`, `django-5.2`, `v3`; no share, no part of a longer number or name
_ASKED = re.compile(
    rf"(?<![\w.-])(?:(?P<word>[^\W\d]+)[-_ ]?)??v?{_NUMBER}(?:\.x)?(?![A-Za-z0-9_%]|\.\w)",
    re.IGNORECASE,
)
# ends at a separator, at the end of the path, or before a file's suffix
_IN_PATH = re.compile(rf"(?<![\d.]){_NUMBER}(?:\.x)?(?=[-_ /]|$|\.[a-z]\w*$)", re.IGNORECASE)
_WORD = re.compile(r"[^\W\d_]+")
# words that name no product
_GENERIC = FUNCTION_WORDS | frozenset(
    "v ver version versions release releases rel branch edition doc docs documentation".split()
)
# asks about a version itself, besides ASKS_HISTORY
_ABOUT_VERSION = re.compile(
    rf"{ASKS_HISTORY.pattern}|\b(?:new|versions?|support(?:s|ed)?|requires?|minimum|compatib\w+)\b"
    "|支持|要求|兼容|新功能|新特性|最低"
)

Family = tuple[str, str]  # a path before a version, and the rest of that folder or file name


def find_asked_version(question: str) -> tuple[str, str]:
    """(the one version that a question names, the word before it in lower case, empty where it
    names no product). Both are empty for none, and for several, which are to be compared.

    >>> find_asked_version("Which databases does Django 5.2 support?")
    ('5.2', 'django')
    >>> find_asked_version("How do I upgrade from 3.2 to 5.2?")
    ('', '')
    """
    found = {match["version"]: match["word"] or "" for match in _ASKED.finditer(question.lower())}
    if len(found) != 1:
        return "", ""
    ((version, word),) = found.items()
    return version, "" if word in _GENERIC or not word.isascii() else word


def without_version(question: str) -> str:
    """The question without its version and the product before it, since few texts repeat them.
    Unchanged where nothing is left, and where it asks about the version itself, as for what is new
    or supported.
    """
    rest = " ".join(_ASKED.sub(_keep_function_word, question).split())
    return question if not rest or _ABOUT_VERSION.search(rest.lower()) else rest


class ProductVersions:
    """The versions in the paths of a release's documents."""

    def __init__(self, paths: Iterable[tuple[str, str]]) -> None:
        """`paths` are (doc_id, path); takes some 2 µs for each."""
        self._versions = {
            doc_id: found for doc_id, path in paths if (found := _find_versions(path))
        }
        self._others: Cache[tuple[str, ...]] = Cache(KEPT_FILTERS)

    def find_others(self, version: str, product: str) -> tuple[str, ...]:
        """The ids of the documents that have another version in their paths where some document has
        `version`; always one object for the same arguments.

        A `product` must be in the name before the version, unless that name has no word of its own
        (`docs/v5.2/`). 5.2 also means 5.2.1, and the reverse.
        """
        key = version, product
        others = self._others.get(key)
        if others is None:
            families = {
                family
                for found in self._versions.values()
                for family, number in found.items()
                if _agree(version, number) and _may_name(product, family)
            }
            others = tuple(
                doc_id
                for doc_id, found in self._versions.items()
                if not families.isdisjoint(found)
                and not any(_agree(version, number) for number in found.values())
            )
            self._others.put(key, others)
        return others


def asks_for_older(question: str) -> bool:
    """True where a question names a version or asks what changed, which older texts may tell."""
    rest = re.sub(r"\d", "", question.lower())
    return _ASKED.search(question) is not None or ASKS_HISTORY.search(rest) is not None


def keep_newest(hits: Sequence[Hit]) -> list[Hit]:
    """The hits without the passages that a newer version of their document has too, in much the
    same words; the newer one takes the better place of both.
    """
    versions = [_find_versions(hit.source_uri) for hit in hits]
    alike: dict[tuple[str, ...], list[int]] = {}
    for place, hit in enumerate(hits):
        if versions[place]:
            # change logs of two versions have the same introduction below different titles
            titles = VERSION_NUMBER.findall(hit.section_path)
            key = (hit.namespace, _IN_PATH.sub("", hit.source_uri), *titles)
            alike.setdefault(key, []).append(place)
    order: list[int | None] = list(range(len(hits)))
    for places in alike.values():
        for one, other in combinations(places, 2):
            better, worse = order[one], order[other]
            if better is None or worse is None or versions[better] == versions[worse]:
                continue
            if overlap(hits[better].chunk_text, hits[worse].chunk_text) >= SAME_PASSAGE:
                order[one] = max(better, worse, key=lambda n: _newness(versions[n]))
                order[other] = None
    return [hits[place] for place in order if place is not None]


def _find_versions(path: str) -> dict[Family, str]:
    """Each version in a path, by its family."""
    lowered = path.lower()
    return {
        (lowered[: match.start()], lowered[match.end() :].partition("/")[0]): match["version"]
        for match in _IN_PATH.finditer(lowered)
    }


def _newness(versions: Mapping[Family, str]) -> list[list[int]]:
    return [_components(version) for version in versions.values()]


def _agree(one: str, other: str) -> bool:
    """True where one version is the other or a part of it."""
    return all(a == b for a, b in zip(_components(one), _components(other), strict=False))


def _components(version: str) -> list[int]:
    return [int(part) for part in version.split(".")]


def _keep_function_word(match: re.Match[str]) -> str:
    word = match["word"] or ""
    return word if word.lower() in FUNCTION_WORDS else " "


def _may_name(product: str, family: Family) -> bool:
    before, after = family
    names = set(_WORD.findall(basename(before) + " " + after)) - _GENERIC
    return not product or not names or product in names
