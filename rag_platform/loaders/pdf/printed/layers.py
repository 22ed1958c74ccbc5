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

    pdf = mupdf.pdf_document_from_fz_document(document.this)
    with Reading("stage.loader"):  # broken layers cost no document
        groups = _groups(pdf)
        if mupdf.pdf_array_len(groups) == 0:
            return
        # must come first: MuPDF reads the list only once, when a layer is first requested
        group = mupdf.pdf_add_new_dict(pdf, 2)
        mupdf.pdf_dict_puts(group, "Type", mupdf.pdf_new_name("OCG"))
        mupdf.pdf_dict_puts(group, "Name", mupdf.pdf_new_text_string(_ADDED))
        mupdf.pdf_array_push(groups, group)
        _enable_added(pdf, True)


def open_page(document: Any, number: int) -> Any:
    """The page `number`, from 0, prepared so that MuPDF reads what the layers show. Raises
    `blank_page` where its content is missing, as in a file that was cut off: MuPDF would show an
    empty page.
    """
    from pymupdf import mupdf

    pdf = mupdf.pdf_document_from_fz_document(document.this)
    with Reading("stage.loader"):  # a broken layer costs no page
        groups = _groups(pdf)
        if length := mupdf.pdf_array_len(groups):
            last = mupdf.pdf_array_get(groups, length - 1)
            # the added layer is lost if MuPDF had to repair the file meanwhile
            if mupdf.pdf_to_text_string(mupdf.pdf_dict_gets(last, "Name")) == _ADDED:
                _settle_memberships(pdf, number, last)
    page = document[number]
    _require_content(mupdf.pdf_lookup_page_obj(pdf, number))
    return page


def _require_content(page: Any) -> None:
    from pymupdf import mupdf

    contents = mupdf.pdf_dict_gets(page, "Contents")
    streams = [
        contents,
        *(mupdf.pdf_array_get(contents, at) for at in range(mupdf.pdf_array_len(contents))),
    ]
    if not mupdf.pdf_is_dict(page) or any(
        mupdf.pdf_is_indirect(stream) and mupdf.pdf_is_null(stream) for stream in streams
    ):
        raise DocumentError("its content is missing from the file", code="blank_page")


def _groups(pdf: Any) -> Any:
    """The array of the layers (optional content groups) of a PDF."""
    from pymupdf import mupdf

    catalog = mupdf.pdf_dict_gets(mupdf.pdf_trailer(pdf), "Root")
    return mupdf.pdf_dict_gets(mupdf.pdf_dict_gets(catalog, "OCProperties"), "OCGs")


def _enable_added(pdf: Any, on: bool) -> None:
    """Show or hide the added layer, whose index in MuPDF is not that in the array."""
    from pymupdf import mupdf

    for layer in range(mupdf.pdf_count_layers(pdf)):
        if mupdf.pdf_layer_name(pdf, layer) == _ADDED:
            mupdf.pdf_enable_layer(pdf, layer, int(on))


def _settle_memberships(pdf: Any, number: int, off: Any) -> None:
    """Replace the membership dictionaries of a page by their results; `off` is the added layer."""
    from pymupdf import mupdf

    memberships = _find_memberships(mupdf.pdf_lookup_page_obj(pdf, number))
    conditions = _Conditions(pdf)
    shown = [conditions.is_shown(membership) for membership in memberships]
    for membership, visible in zip(memberships, shown, strict=True):
        for key in ("OCGs", "P", "VE"):
            mupdf.pdf_dict_dels(membership, key)
        if not visible:
            mupdf.pdf_dict_puts(membership, "OCGs", off)
    if not all(shown):
        _enable_added(pdf, False)


def _find_memberships(page: Any) -> list[Any]:
    """The membership dictionaries of a page, its annotations, and everything that these draw."""
    from pymupdf import mupdf

    resources = mupdf.pdf_dict_get_inheritable(page, mupdf.pdf_new_name("Resources"))
    found, waiting = _list_resources(resources)
    annotations = mupdf.pdf_dict_gets(page, "Annots")
    for at in range(mupdf.pdf_array_len(annotations)):
        annotation = mupdf.pdf_array_get(annotations, at)
        appearances = mupdf.pdf_dict_gets(annotation, "AP")
        # an appearance is a stream or a dictionary of streams
        waiting += [
            annotation,
            *_values(appearances),
            *_values(mupdf.pdf_dict_gets(appearances, "N")),
        ]
    seen: set[int] = set()
    while waiting:
        item = waiting.pop()
        number = mupdf.pdf_to_num(item)
        if number in seen:
            continue
        if number:  # an indirect object
            seen.add(number)
        found.append(mupdf.pdf_dict_gets(item, "OC"))
        named, drawn = _list_resources(mupdf.pdf_dict_gets(item, "Resources"))
        found += named
        waiting += drawn
    return [item for item in found if _read_name(item, "Type") == "OCMD"]


def _list_resources(resources: Any) -> tuple[list[Any], list[Any]]:
    """(property lists, objects that may be drawn) in the resources of a page or form."""
    from pymupdf import mupdf

    drawn = [
        item
        for kind in ("XObject", "Pattern", "Font")
        for item in _values(mupdf.pdf_dict_gets(resources, kind))
    ]
    for state in _values(mupdf.pdf_dict_gets(resources, "ExtGState")):
        drawn.append(mupdf.pdf_dict_gets(mupdf.pdf_dict_gets(state, "SMask"), "G"))
    return _values(mupdf.pdf_dict_gets(resources, "Properties")), drawn


def _values(dictionary: Any) -> list[Any]:
    from pymupdf import mupdf

    length = mupdf.pdf_dict_len(dictionary)
    return [mupdf.pdf_dict_get_val(dictionary, at) for at in range(length)]


def _read_name(dictionary: Any, key: str) -> str:
    from pymupdf import mupdf

    return str(mupdf.pdf_to_name(mupdf.pdf_dict_gets(dictionary, key)))


class _Conditions:
    """Evaluates membership dictionaries for the layers that are on when the file is opened."""

    def __init__(self, pdf: Any) -> None:
        from pymupdf import mupdf

        self._pdf, self._stack = pdf, mupdf.PdfResourceStack()
        self._known: dict[int, bool | None] = {}

    def is_shown(self, membership: Any) -> bool:
        """True if a membership dictionary shows its content, as one without a condition does."""
        from pymupdf import mupdf

        by_expression = self._evaluate(mupdf.pdf_dict_gets(membership, "VE"), 0)
        if by_expression is not None:
            return by_expression
        groups = mupdf.pdf_dict_gets(membership, "OCGs")
        listed = _items(groups) if mupdf.pdf_is_array(groups) else [groups]
        states = [state for group in listed if (state := self._state(group)) is not None]
        if not states:
            return True
        policies = {"AllOn": all(states), "AnyOff": not all(states), "AllOff": not any(states)}
        return policies.get(_read_name(membership, "P"), any(states))

    def _evaluate(self, expression: Any, depth: int) -> bool | None:
        """The value of a visibility expression; None if it is malformed or refers to itself."""
        from pymupdf import mupdf

        if not mupdf.pdf_is_array(expression) or depth > _MAX_DEPTH:
            return None
        number = mupdf.pdf_to_num(expression)
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
            operator = str(mupdf.pdf_to_name(mupdf.pdf_array_get(expression, 0)))
            self._known[number] = results.get(operator)
        return self._known[number]

    def _state(self, group: Any) -> bool | None:
        """Whether a layer is on; None for an object that is not a layer."""
        from pymupdf import mupdf

        if not mupdf.pdf_is_dict(group) or _read_name(group, "Type") == "OCMD":
            return None
        return not mupdf.pdf_is_ocg_hidden(self._pdf, self._stack, "View", group)


def _items(array: Any) -> list[Any]:
    from pymupdf import mupdf

    return [mupdf.pdf_array_get(array, at) for at in range(mupdf.pdf_array_len(array))]
