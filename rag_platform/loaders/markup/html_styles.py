"""Which elements of an HTML page are hidden by inline styles or by style sheets in the page.

Only rules that select by tag, classes and id are applied. A rule that depends on anything else (a
width, a state, a parent element) hides nothing; if it may show an element, the element counts as
shown, because a script or a click can make the rule apply.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from itertools import count
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lxml.etree import _Element

# property that hides an element, and the reason recorded for its text; not opacity, because scripts
# fade content in
REASONS = {
    "display": "not_displayed",
    "visibility": "not_displayed",
    "font-size": "tiny",
}
_DECLARATION = re.compile(
    rf"(?<![\w-])({'|'.join(REASONS)})\s*:\s*([^;!]+)(!\s*important)?", re.IGNORECASE
)
_ZERO = re.compile(r"(?:0+(?:\.0*)?|\.0+)(?:[a-z]+|%)?")
# an unclosed comment ends the sheet
_COMMENT = re.compile(r"/\*.*?(?:\*/|\Z)|<!--|-->", re.DOTALL)
_BRACE = re.compile("[{}]")
_SIMPLE = re.compile(r"([a-zA-Z][\w-]*)?((?:[.#][\w-]+)*)")
_NAME = re.compile(r"[.#][\w-]+")
_TAG = re.compile(r"[a-zA-Z][\w-]*")
_STATE = re.compile(r"\[[^\[\]]*\]|:{1,2}[\w-]+(?:\([^()]*\))?")
_SCREEN = ("", "all", "screen")


def hidden_by(style: str) -> str:
    """The property by which an inline style hides its element, or ""."""
    values = {name.lower(): value for name, value, _ in _DECLARATION.findall(style)}
    return next((name for name, value in values.items() if _hides(name, value)), "")


def without_property(style: str, name: str) -> str:
    """The inline style without the named property, one that can hide an element."""
    return _DECLARATION.sub(lambda found: "" if found[1].lower() == name else found[0], style)


def _hides(name: str, value: str) -> bool:
    value = value.strip().lower()
    if name == "display":
        return value == "none"
    if name == "visibility":
        return value in ("hidden", "collapse")
    return _ZERO.fullmatch(value) is not None


def write_sheets_inline(root: _Element) -> None:
    """Copy the hiding rules of a page's style sheets into the styles of its elements."""
    rules, may_show = _read_sheets(root)
    hiding = {rule.css_property for group in rules.values() for rule in group if rule.hides}
    if not hiding:
        return
    known = {name for group in rules.values() for rule in group for name in rule.names}

    @cache  # by names: many elements have the same
    def find_best(names: frozenset[str]) -> tuple[_Rule, ...]:
        """The rule of each property that applies to elements of these names."""
        best: dict[str, _Rule] = {}
        for key in names & rules.keys():
            for rule in rules[key]:
                if (
                    rule.names <= names
                    and rule.css_property in hiding
                    and (rule.css_property not in best or rule.rank > best[rule.css_property].rank)
                ):
                    best[rule.css_property] = rule
        return tuple(best.values())

    for element in root.iter():
        if not isinstance(element.tag, str):
            continue
        names = _names_of(element)
        style = element.get("style") or ""
        own = {name.lower() for name, _, _ in _DECLARATION.findall(style)} if style else set()
        for rule in find_best(names & known):
            name = rule.css_property
            if rule.hides and name not in own and not names & may_show[name]:
                style = f"{name}:{rule.value};{style}"
                element.set("style", style)


def _names_of(element: _Element) -> frozenset[str]:
    classes = (f".{name}" for name in (element.get("class") or "").split())
    own = [f"#{own}"] if (own := element.get("id")) else []
    return frozenset((str(element.tag), *classes, *own))


@dataclass(frozen=True, slots=True)
class _Rule:
    """A declaration for the elements that have all the names (tag, `.class`, `#id`)."""

    names: frozenset[str]
    css_property: str
    value: str
    rank: tuple[int, ...]  # precedence: importance, ids, classes, tags, position

    @property
    def hides(self) -> bool:
        """True if it hides its elements."""
        return _hides(self.css_property, self.value)


def _read_sheets(root: _Element) -> tuple[dict[str, list[_Rule]], dict[str, set[str]]]:
    """({name to the unconditional rules for it}, {property to the names of elements that a
    conditional rule may show}).
    """
    rules: dict[str, list[_Rule]] = {}
    may_show: dict[str, set[str]] = {name: set() for name in REASONS}
    place = count()
    for sheet in root.iter("style"):
        if (sheet.get("media") or "").strip().lower() not in _SCREEN:
            continue
        for selectors, body, always in _split_rules(_COMMENT.sub(" ", sheet.text or "")):
            for name, value, important in _DECLARATION.findall(body):
                name, value = name.lower(), value.strip().lower()
                for selector in map(str.strip, selectors.split(",")):
                    simple = _SIMPLE.fullmatch(selector) if always and selector else None
                    rest = _NAME.findall(simple[2]) if simple else []
                    if simple:
                        tag = (simple[1] or "").lower()
                        ids = sum(item.startswith("#") for item in rest)
                        rank = (bool(important), ids, len(rest) - ids, bool(tag), next(place))
                        names = frozenset((*rest, *([tag] if tag else [])))
                        rule = _Rule(names, name, value, rank)
                        rules.setdefault(rest[0] if rest else tag, []).append(rule)
                    # a rule for two classes is conditional: a click may add one of them
                    if (simple is None or len(rest) > 1) and not _hides(name, value):
                        may_show[name] |= _selected_names(selector)
    return rules, may_show


def _split_rules(sheet: str) -> Iterator[tuple[str, str, bool]]:
    """(selectors, declarations, whether it is in no other block, such as `@media`) of each rule."""
    open_blocks: list[str] = []
    end = 0
    for match in _BRACE.finditer(sheet):
        before, end = sheet[end : match.start()], match.end()
        if match[0] == "{":
            open_blocks.append(before.rpartition(";")[2].strip())
        elif open_blocks:
            selectors = open_blocks.pop()
            if not selectors.startswith("@"):
                yield selectors, before, not open_blocks


def _selected_names(selector: str) -> set[str]:
    """The classes and id of the element that a selector selects, else its tag."""
    parts = re.split(r"[\s>+~]+", _STATE.sub("", selector).strip())
    last = parts[-1]
    return set(_NAME.findall(last)) or set(map(str.lower, _TAG.findall(last)))
