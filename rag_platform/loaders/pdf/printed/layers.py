"""Visibility of PDF content that depends on several layers.

MuPDF honours the state of single layers, but not the membership dictionaries that combine them (ISO
32000-1, 8.11.2.2): it confuses some policies and takes all visibility expressions for true. So
before a page is read, each of its membership dictionaries is replaced in memory by its result: one
without a condition if its content is shown, else one with a layer that is off.
"""

from __future__ import annotations

from typing import Any

from rag_platform.errors import DocumentError
from rag_platform.loaders.archives import Reading

_ADDED = "hidden by several layers together"
_MAX_DEPTH = 32  # of nested expressions, as in PDFium


def prepare_layers(document: Any) -> None:
    """Add a layer, for content hidden by several layers, to a just opened PDF that has layers."""
    from pymupdf import mupdf

    pdf = document.this.pdf_document_from_fz_document()
    with Reading("stage.loader"):  # broken layers cost no document
        groups = _groups(pdf)
        if groups.pdf_array_len() == 0:
            return
        # must come first: MuPDF reads the list only once, when a layer is first requested
        group = pdf.pdf_add_new_dict(2)
        group.pdf_dict_puts("Type", mupdf.pdf_new_name("OCG"))
        group.pdf_dict_puts("Name", mupdf.pdf_new_text_string(_ADDED))
        groups.pdf_array_push(group)
        _enable_added(pdf, True)


def open_page(document: Any, number: int) -> Any:
    """The page `number`, from 0, prepared so that MuPDF reads what the layers show. Raises
    `blank_page` where its content is missing, as in a file that was cut off: MuPDF would show an
    empty page.
    """
    pdf = document.this.pdf_document_from_fz_document()
    with Reading("stage.loader"):  # a broken layer costs no page
        groups = _groups(pdf)
        if length := groups.pdf_array_len():
            last = groups.pdf_array_get(length - 1)
            # the added layer is lost if MuPDF had to repair the file meanwhile
            if last.pdf_dict_gets("Name").pdf_to_text_string() == _ADDED:
                _settle_memberships(pdf, number, last)
    page = document[number]
    _require_content(pdf.pdf_lookup_page_obj(number))
    return page


def _require_content(page: Any) -> None:
    contents = page.pdf_dict_gets("Contents")
    if not page.pdf_is_dict() or any(
        stream.pdf_is_indirect() and stream.pdf_is_null()
        for stream in (contents, *_items(contents))
    ):
        raise DocumentError("its content is missing from the file", code="blank_page")


def _groups(pdf: Any) -> Any:
    """The array of the layers (optional content groups) of a PDF."""
    catalog = pdf.pdf_trailer().pdf_dict_gets("Root")
    return catalog.pdf_dict_gets("OCProperties").pdf_dict_gets("OCGs")


def _enable_added(pdf: Any, on: bool) -> None:
    """Show or hide the added layer, whose index in MuPDF is not that in the array."""
    for layer in range(pdf.pdf_count_layers()):
        if pdf.pdf_layer_name(layer) == _ADDED:
            pdf.pdf_enable_layer(layer, int(on))


def _settle_memberships(pdf: Any, number: int, off: Any) -> None:
    """Replace the membership dictionaries of a page by their results; `off` is the added layer."""
    memberships = _find_memberships(pdf.pdf_lookup_page_obj(number))
    conditions = _Conditions(pdf)
    shown = [conditions.is_shown(membership) for membership in memberships]
    for membership, visible in zip(memberships, shown, strict=True):
        for key in ("OCGs", "P", "VE"):
            membership.pdf_dict_dels(key)
        if not visible:
            membership.pdf_dict_puts("OCGs", off)
    if not all(shown):
        _enable_added(pdf, False)


def _find_memberships(page: Any) -> list[Any]:
    """The membership dictionaries of a page, its annotations, and everything that these draw."""
    found, waiting = _list_resources(page.pdf_dict_gets_inheritable("Resources"))
    for annotation in _items(page.pdf_dict_gets("Annots")):
        appearances = annotation.pdf_dict_gets("AP")
        # an appearance is a stream or a dictionary of streams
        waiting += [annotation, *_values(appearances), *_values(appearances.pdf_dict_gets("N"))]
    seen: set[int] = set()
    while waiting:
        item = waiting.pop()
        number = item.pdf_to_num()
        if number in seen:
            continue
        if number:  # an indirect object
            seen.add(number)
        found.append(item.pdf_dict_gets("OC"))
        named, drawn = _list_resources(item.pdf_dict_gets("Resources"))
        found += named
        waiting += drawn
    return [item for item in found if _read_name(item, "Type") == "OCMD"]


def _list_resources(resources: Any) -> tuple[list[Any], list[Any]]:
    """(property lists, objects that may be drawn) in the resources of a page or form."""
    drawn = [
        item
        for kind in ("XObject", "Pattern", "Font")
        for item in _values(resources.pdf_dict_gets(kind))
    ]
    states = _values(resources.pdf_dict_gets("ExtGState"))
    drawn += [state.pdf_dict_gets("SMask").pdf_dict_gets("G") for state in states]
    return _values(resources.pdf_dict_gets("Properties")), drawn


def _values(dictionary: Any) -> list[Any]:
    return [dictionary.pdf_dict_get_val(at) for at in range(dictionary.pdf_dict_len())]


def _read_name(dictionary: Any, key: str) -> str:
    return str(dictionary.pdf_dict_gets(key).pdf_to_name())


class _Conditions:
    """Evaluates membership dictionaries for the layers that are on when the file is opened."""

    def __init__(self, pdf: Any) -> None:
        from pymupdf import mupdf

        self._pdf, self._stack = pdf, mupdf.PdfResourceStack()
        self._known: dict[int, bool | None] = {}

    def is_shown(self, membership: Any) -> bool:
        """True if a membership dictionary shows its content, as one without a condition does."""
        shown = self._evaluate(membership.pdf_dict_gets("VE"), 0)
        if shown is not None:
            return shown
        groups = membership.pdf_dict_gets("OCGs")
        listed = _items(groups) if groups.pdf_is_array() else [groups]
        states = [state for group in listed if (state := self._state(group)) is not None]
        if not states:
            return True
        policies = {"AllOn": all(states), "AnyOff": not all(states), "AllOff": not any(states)}
        return policies.get(_read_name(membership, "P"), any(states))

    def _evaluate(self, expression: Any, depth: int) -> bool | None:
        """The value of a visibility expression; None if it is malformed or refers to itself."""
        if not expression.pdf_is_array() or depth > _MAX_DEPTH:
            return None
        number = expression.pdf_to_num()
        if number and number in self._known:  # may be part of itself
            return self._known[number]
        self._known[number] = None
        states: list[bool] = []
        for operand in _items(expression)[1:]:
            state = self._state(operand)
            state = self._evaluate(operand, depth + 1) if state is None else state
            states += [] if state is None else [state]
        if states:
            results = {"And": all(states), "Or": any(states), "Not": not states[0]}
            operator = str(expression.pdf_array_get(0).pdf_to_name())
            self._known[number] = results.get(operator)
        return self._known[number]

    def _state(self, group: Any) -> bool | None:
        """Whether a layer is on; None for an object that is not a layer."""
        if not group.pdf_is_dict() or _read_name(group, "Type") == "OCMD":
            return None
        return not self._pdf.pdf_is_ocg_hidden(self._stack, "View", group)


def _items(array: Any) -> list[Any]:
    return [array.pdf_array_get(at) for at in range(array.pdf_array_len())]
