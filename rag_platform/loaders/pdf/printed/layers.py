"""What of a PDF is shown where several of its layers decide it together.

MuPDF knows which single layers a file shows, but not what membership dictionaries make of them (ISO
32000-1, 8.11.2.2): it takes some policies for others and all expressions for true. Before a page is
read, each of its dictionaries is replaced, in memory, by what comes of it: by one without any
condition where its content is shown, else by one with a layer that is off.
"""

from __future__ import annotations

from typing import Any

from rag_platform.loaders.archives import Reading

_ADDED = "hidden by several layers together"
_DEEPEST = 32  # expressions in expressions, as PDFium has it


def prepare_layers(document: Any) -> None:
    """Give a PDF with layers one more, for what the others hide together; it must be new."""
    from pymupdf import mupdf

    pdf = mupdf.pdf_document_from_fz_document(document.this)
    with Reading("stage.loader"):  # broken layers cost no document
        groups = _groups(pdf)
        if mupdf.pdf_array_len(groups) == 0:
            return
        # MuPDF looks at the list once, when it is first asked for a layer
        group = mupdf.pdf_add_new_dict(pdf, 2)
        mupdf.pdf_dict_puts(group, "Type", mupdf.pdf_new_name("OCG"))
        mupdf.pdf_dict_puts(group, "Name", mupdf.pdf_new_text_string(_ADDED))
        mupdf.pdf_array_push(groups, group)
        _enable_added(pdf, True)


def open_page(document: Any, number: int) -> Any:
    """The page `number`, from 0, of which MuPDF reads what the layers show."""
    from pymupdf import mupdf

    pdf = mupdf.pdf_document_from_fz_document(document.this)
    with Reading("stage.loader"):  # a broken layer costs no page
        groups = _groups(pdf)
        if length := mupdf.pdf_array_len(groups):
            last = mupdf.pdf_array_get(groups, length - 1)
            # it is gone where MuPDF had to repair the file meanwhile
            if mupdf.pdf_to_text_string(mupdf.pdf_dict_gets(last, "Name")) == _ADDED:
                _settle_memberships(pdf, number, last)
    return document[number]


def _groups(pdf: Any) -> Any:
    """The list of the layers of a PDF."""
    from pymupdf import mupdf

    catalog = mupdf.pdf_dict_gets(mupdf.pdf_trailer(pdf), "Root")
    return mupdf.pdf_dict_gets(mupdf.pdf_dict_gets(catalog, "OCProperties"), "OCGs")


def _enable_added(pdf: Any, on: bool) -> None:
    """Show or hide what is in the added layer; MuPDF has an order of layers of its own."""
    from pymupdf import mupdf

    for layer in range(mupdf.pdf_count_layers(pdf)):
        if mupdf.pdf_layer_name(pdf, layer) == _ADDED:
            mupdf.pdf_enable_layer(pdf, layer, int(on))


def _settle_memberships(pdf: Any, number: int, off: Any) -> None:
    """Replace what decides over parts of a page; `off` is the layer of those that are hidden."""
    from pymupdf import mupdf

    memberships = _find_memberships(mupdf.pdf_lookup_page_obj(pdf, number))
    conditions = _Conditions(pdf)
    shown = [conditions.show(membership) for membership in memberships]
    for membership, is_shown in zip(memberships, shown, strict=True):
        for key in ("OCGs", "P", "VE"):
            mupdf.pdf_dict_dels(membership, key)
        if not is_shown:
            mupdf.pdf_dict_puts(membership, "OCGs", off)
    if not all(shown):
        _enable_added(pdf, False)


def _find_memberships(page: Any) -> list[Any]:
    """The membership dictionaries of a page, of its annotations, and of all that they draw."""
    from pymupdf import mupdf

    resources = mupdf.pdf_dict_get_inheritable(page, mupdf.pdf_new_name("Resources"))
    found, waiting = _look_into(resources)
    annotations = mupdf.pdf_dict_gets(page, "Annots")
    for at in range(mupdf.pdf_array_len(annotations)):
        annotation = mupdf.pdf_array_get(annotations, at)
        appearances = mupdf.pdf_dict_gets(annotation, "AP")
        # what is drawn is a stream, or one of a dictionary of streams
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
        if number:  # not written where it is used
            seen.add(number)
        found.append(mupdf.pdf_dict_gets(item, "OC"))
        named, drawn = _look_into(mupdf.pdf_dict_gets(item, "Resources"))
        found += named
        waiting += drawn
    return [item for item in found if _name(item, "Type") == "OCMD"]


def _look_into(resources: Any) -> tuple[list[Any], list[Any]]:
    """(what marks content, what may be drawn) of the resources of a page or a form."""
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


def _name(dictionary: Any, key: str) -> str:
    from pymupdf import mupdf

    return str(mupdf.pdf_to_name(mupdf.pdf_dict_gets(dictionary, key)))


class _Conditions:
    """What the layers of a file, as it shows them when it is opened, make of a condition."""

    def __init__(self, pdf: Any) -> None:
        from pymupdf import mupdf

        self._pdf, self._stack = pdf, mupdf.PdfResourceStack()
        self._known: dict[int, bool | None] = {}

    def show(self, membership: Any) -> bool:
        """True where a membership dictionary shows its content, also where it says nothing."""
        from pymupdf import mupdf

        by_expression = self._judge(mupdf.pdf_dict_gets(membership, "VE"), 0)
        if by_expression is not None:
            return by_expression
        groups = mupdf.pdf_dict_gets(membership, "OCGs")
        listed = _items(groups) if mupdf.pdf_is_array(groups) else [groups]
        states = [state for group in listed if (state := self._state(group)) is not None]
        if not states:
            return True
        policies = {"AllOn": all(states), "AnyOff": not all(states), "AllOff": not any(states)}
        return policies.get(_name(membership, "P"), any(states))

    def _judge(self, expression: Any, depth: int) -> bool | None:
        """Whether an expression holds; None for what is none, or has no end."""
        from pymupdf import mupdf

        if not mupdf.pdf_is_array(expression) or depth > _DEEPEST:
            return None
        number = mupdf.pdf_to_num(expression)
        if number and number in self._known:  # perhaps a part of itself
            return self._known[number]
        self._known[number] = None
        states: list[bool] = []
        for operand in _items(expression)[1:]:
            state = self._state(operand)
            state = self._judge(operand, depth + 1) if state is None else state
            states += [] if state is None else [state]
        if states:
            results = {"And": all(states), "Or": any(states), "Not": not states[0]}
            operator = str(mupdf.pdf_to_name(mupdf.pdf_array_get(expression, 0)))
            self._known[number] = results.get(operator)
        return self._known[number]

    def _state(self, group: Any) -> bool | None:
        """Whether a layer is on; None for what is no layer."""
        from pymupdf import mupdf

        if not mupdf.pdf_is_dict(group) or _name(group, "Type") == "OCMD":
            return None
        return not mupdf.pdf_is_ocg_hidden(self._pdf, self._stack, "View", group)


def _items(array: Any) -> list[Any]:
    from pymupdf import mupdf

    return [mupdf.pdf_array_get(array, at) for at in range(mupdf.pdf_array_len(array))]
