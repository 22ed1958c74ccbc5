"""References that Sphinx, TypeDoc and Doxygen make of code: their signatures, and fields such as
Parameters, in a form that can be understood outside the page.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rag_platform.loaders.markup.html_inline import visible

if TYPE_CHECKING:
    from lxml.etree import _Element

SIGNATURES = {"memproto", "tsd-signature"}  # classes of elements that hold one
_SOURCES = "//*[@class='viewcode-link' or @class='viewcode-back']"


def rewrite_references(root: _Element) -> None:
    """Set types and flags apart from names. Of Sphinx, name the class in the signatures of its
    members, write types plain, and leave out links to source code.
    """
    for flag in root.xpath("//code[@class='tsd-tag']"):  # `Static` before a name in TypeDoc
        flag.tail = f" {flag.tail or ''}"
    for link in root.xpath(_SOURCES):
        link.drop_tree()
    for kind in root.xpath("//span[@class='classifier']"):
        kind.text = f" : {kind.text or ''}"  # its style sheet shows the colon
    for fields in filter(is_fields, root.iter("dl")):
        for part in list(fields.iter("em")):
            link = part.getparent()
            if link.tag == "a" and link.xpath("count(node())") == 1:
                link.tag = "span"
            part.tag = "span"
    for term in root.iter("dt"):
        name = find_signed_name(term)
        owner = None if name is None else find_signed_name(_find_term_above(term))
        if name is None or owner is None or "std" in term.get("class", "").split():
            continue
        prefix = visible(owner) + ("::" if "cpp" in term.get("class", "").split() else ".")
        if prefix not in visible(term):
            name.text = f"{prefix}{name.text or ''}"


def find_signed_name(term: _Element | None) -> _Element | None:
    """The element of the name in a signature; None for other terms."""
    if term is None or term.tag != "dt":
        return None
    names = (it for it in term.iter() if "descname" in (it.get("class") or "").split())
    return next(names, None)


def is_fields(element: _Element | None) -> bool:
    """True for a list of fields, the text of one, and a list of links below See also."""
    names = [] if element is None else (element.get("class") or "").split()
    return not {"field-list", "field-odd", "field-even", "seealso"}.isdisjoint(names)


def _find_term_above(term: _Element) -> _Element | None:
    """The term directly above the entry that a term is in."""
    entry = next(term.iterancestors("dd"), None)
    return None if entry is None else next(entry.itersiblings("dt", preceding=True), None)
