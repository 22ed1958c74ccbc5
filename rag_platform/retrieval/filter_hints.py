"""Explains a filter that matches nothing: the conditions that no passage meets, with similar values
of their fields.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from difflib import get_close_matches
from typing import Any

from rag_platform.indexes.catalog import FILTERABLE, CatalogReader
from rag_platform.query import filters
from rag_platform.query.filter_inference import describe_condition
from rag_platform.query.filters import FilterPlan

_MAX_READ_VALUES = 2000  # of a field, that are compared with the requested one
_MAX_SHOWN_VALUES = 8


def explain_filter(
    catalog: CatalogReader,
    requested: Mapping[str, Any],
    hidden: Collection[str],
    matches: Callable[[FilterPlan], bool],
) -> list[str]:
    """A note on each condition of the filter that no passage meets, passages without the field
    aside. `matches` says whether a plan matches any passage; values of the `hidden` documents and
    versions are not shown.
    """
    unmet: list[str] = []
    for name, condition in filters.conjuncts(requested):
        plan = filters.plan({name: condition}, missing="exclude")
        if not plan.where or matches(plan):
            continue
        if name == "$or":
            unmet.append("no passage meets a condition of $or")
            continue
        known = _find_values(catalog, name, list(_texts(condition)), hidden)
        hint = f" (there is: {', '.join(known)})" if known else ""
        unmet.append(f"no passage has {describe_condition(name, condition)}{hint}")
    return unmet


def _texts(condition: Any) -> Iterator[str]:
    """The texts that a condition compares with."""
    if isinstance(condition, str):
        yield condition
    elif isinstance(condition, Mapping):
        for operator, value in condition.items():
            yield from _texts(value) if operator != "$missing" else ()
    elif isinstance(condition, (list, tuple)):
        for value in condition:
            yield from _texts(value)


def _find_values(
    catalog: CatalogReader, name: str, wanted: list[str], hidden: Collection[str]
) -> list[str]:
    """Values of the field that are similar to the wanted ones, else all if they are few."""
    spec = FILTERABLE.get(name)
    if spec is None or spec.kind not in ("text", "list") or not wanted:
        return []
    values = catalog.field_values(spec, hidden, _MAX_READ_VALUES)
    folded = {value.casefold(): value for value in values}
    texts = [text.casefold() for text in wanted if text]
    near = [value for low, value in folded.items() if any(text in low for text in texts)]
    near.sort(key=lambda value: not value.casefold().startswith(tuple(texts)))
    near = near or [
        folded[low]
        for text in texts
        for low in get_close_matches(text, folded, n=_MAX_SHOWN_VALUES)
    ]
    return near[:_MAX_SHOWN_VALUES] or (values if len(values) <= _MAX_SHOWN_VALUES else [])
