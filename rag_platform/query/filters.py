"""Compiles a caller's filter to an execution plan: SQL conditions before the search, after it, and
preferences.

    {"source": "handbook", "page_start": {"$gte": 3}, "$or": [{"lang": "zh"}, {"tags": {"$contains":
    "api"}}]}

A value is a scalar (equal), a list (any of) or an object of operators (all of): $eq $ne $in $nin
$gt $gte $lt $lte $contains; `$missing: include | exclude` decides on chunks without the field.
`$soft: true` makes a condition a preference: chunks that satisfy it rank higher, none is removed.
`section_path` matches as a prefix, also of a short section inside a passage; dates also match by
year, month or day; a range of pages or lines matches any number in it. Dates are ISO, times without
a zone UTC; anything else is rejected, because compared as text it would match everything or
nothing. All values are bound as parameters; no text of the caller becomes SQL.

Conditions run before the search, except those on fields that few chunks have (POST_FIELDS).
"""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime
from typing import Any

from rag_platform.config.settings import fingerprint
from rag_platform.errors import InputError
from rag_platform.indexes.catalog import FILTERABLE, FilterField
from rag_platform.ir import Json
from rag_platform.query.constants import MAX_FILTER_DEPTH

RULES = "v3"
MISSING_POLICIES = ("include", "exclude")

# What a hard filter does with a chunk that lacks the field; unlisted fields exclude it.
MISSING: Mapping[str, str] = {
    "doc_id": "exclude",
    "version_id": "exclude",
    "access_level": "exclude",
    "section_path": "include",
    "source": "include",
    "tags": "include",
    "keyphrases": "include",
    "image_caption": "include",
    "ocr_text": "include",
    "view_title": "include",
    "view_summary": "include",
    "view_tags": "include",
}

# Fields derived by models, which many chunks lack: they only drop candidates that have the field
# and do not match.
POST_FIELDS = frozenset(
    {"keyphrases", "image_caption", "ocr_text", "view_title", "view_summary", "view_tags"}
)

# Preferences never drop anything; a chunk without the field gets no boost.
SOFT_FIELDS = ("prefer_recent", "prefer_official", "prefer_has_image")

_PREFIX_FIELDS = frozenset({"section_path"})
_DATE_FIELDS = frozenset({"created", "modified", "created_at", "updated_at", "doc_date"})
_DATE = re.compile(
    r"(\d{4})(?:-(\d\d)(?:-(\d\d)(?:[T ](\d\d:\d\d)(:\d\d(?:\.\d{1,9})?)?(Z|[+-]\d\d:\d\d)?)?)?)?",
    re.ASCII,
)
_FOLDED_FIELDS = frozenset({"keyphrases", "view_tags"})  # stored in lower case and NFKC
_ORDER = {"$gt": ">", "$gte": ">=", "$lt": "<", "$lte": "<="}
_OPERATORS = ("$eq", "$ne", "$in", "$nin", *_ORDER, "$contains")
_PROFILE = fingerprint(
    "filters",
    RULES,
    MISSING,
    sorted(POST_FIELDS),
    SOFT_FIELDS,
    _OPERATORS,
    sorted(_DATE_FIELDS),
    length=12,
)
_LAST_CHARACTER = "\U0010ffff"


@dataclass(frozen=True, slots=True)
class Favour:
    """A soft condition: chunks for which `where` holds rank higher."""

    name: str
    where: str
    params: tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class FilterPlan:
    """The conditions by phase: `where` selects the chunks to search, `drop` removes candidates
    after the search, `favours` and `soft` raise candidates.
    """

    where: str = ""
    params: tuple[Any, ...] = ()
    drop: str = ""
    drop_params: tuple[Any, ...] = ()
    soft: tuple[str, ...] = ()  # the names of SOFT_FIELDS that are on
    favours: tuple[Favour, ...] = ()
    fields: tuple[str, ...] = ()  # of `where`, in order of appearance
    post_fields: tuple[str, ...] = ()  # of `drop`
    missing_included: tuple[str, ...] = ()  # fields that also match chunks without them
    versions: tuple[str, ...] = ()  # requested version ids
    applied: Json | None = None
    filter_profile_id: str = ""

    @property
    def execution(self) -> dict[str, list[str]]:
        """The `filter_execution_plan`: field names by phase."""
        return {
            "pre": list(self.fields),
            "post": list(self.post_fields),
            "rerank": [*self.soft, *(favour.name for favour in self.favours)],
        }


def plan(filters: Mapping[str, Any] | None, missing: str = "") -> FilterPlan:
    """The plan of a filter; an empty plan for an empty filter. `missing` overrides the missing
    policy of all fields.

    Raises InputError `unknown_filter` for an unknown field or operator, listing the known ones, and
    `invalid_filter` for a value that cannot be compared with the field.
    """
    if not filters:
        return FilterPlan(filter_profile_id=_PROFILE)
    if not isinstance(filters, Mapping):
        raise InputError(
            f"filters must be an object of field names, not {type(filters).__name__}",
            code="invalid_filter",
        )
    conditions = list(conjuncts(filters))
    soft = [(key, value) for key, value in conditions if _is_soft(key, value)]
    hard = [
        (key, value)
        for key, value in conditions
        if key not in SOFT_FIELDS and not _is_soft(key, value)
    ]
    pre, after, lift = _Compiler(missing), _Compiler(missing), _Compiler("exclude")
    where, params = pre.all_of([(key, value) for key, value in hard if key not in POST_FIELDS], 0)
    keep, keep_params = after.all_of([(key, value) for key, value in hard if key in POST_FIELDS], 0)
    favours = [
        (key, *lift.field(key, {k: v for k, v in value.items() if k != "$soft"}))
        for key, value in soft
    ]
    return FilterPlan(
        where=where,
        params=tuple(params),
        drop=f"({keep}) IS NOT TRUE" if keep else "",
        drop_params=tuple(keep_params),
        soft=tuple(
            dict.fromkeys(
                key for key, value in conditions if key in SOFT_FIELDS and _is_on(key, value)
            )
        ),
        favours=tuple(Favour(name, sql, tuple(values)) for name, sql, values in favours),
        fields=tuple(dict.fromkeys(pre.fields)),
        post_fields=tuple(dict.fromkeys(after.fields)),
        missing_included=tuple(dict.fromkeys(pre.missing_included)),
        versions=tuple(dict.fromkeys(pre.versions)),
        applied=dict(filters),
        filter_profile_id=_PROFILE,
    )


def without_documents(plan: FilterPlan, doc_ids: Sequence[str]) -> FilterPlan:
    """The plan that also leaves these documents out."""
    condition = "d.doc_id NOT IN (SELECT value FROM json_each(?))"
    return replace(
        plan,
        where=f"({plan.where}) AND {condition}" if plan.where else condition,
        params=(*plan.params, json.dumps(doc_ids)),
    )


def conjuncts(filters: Mapping[str, Any], depth: int = 0) -> Iterator[tuple[str, Any]]:
    """The conditions that must all hold, with `$and` flattened, so that each runs in its phase."""
    for key, value in filters.items():
        if key == "$and":
            for item in _check_list(key, value, depth):
                yield from conjuncts(item, depth + 1)
        else:
            yield key, value


def _check_list(key: str, value: Any, depth: int) -> Sequence[Mapping[str, Any]]:
    if depth >= MAX_FILTER_DEPTH:
        raise InputError(
            f"the filter is nested more than {MAX_FILTER_DEPTH} deep; flatten it",
            code="invalid_filter",
        )
    if (
        not isinstance(value, Sequence)
        or isinstance(value, str)
        or not value
        or not all(isinstance(v, Mapping) and v for v in value)
    ):
        raise InputError(
            f"{key} takes a list of filter objects that are not empty, not {value!r}",
            code="invalid_filter",
        )
    return value


def _is_soft(key: str, value: Any) -> bool:
    soft = value.get("$soft", False) if isinstance(value, Mapping) and key != "$or" else False
    if not isinstance(soft, bool):
        raise InputError(
            f"filter {key!r}: $soft must be true or false, not {soft!r}", code="invalid_filter"
        )
    return soft


def _is_on(key: str, value: Any) -> bool:
    if not isinstance(value, bool):
        raise InputError(
            f"filter {key!r} is a preference: true or false, not {value!r}", code="invalid_filter"
        )
    return value


def select_dropped(chunk_ids: Sequence[str], plan: FilterPlan) -> tuple[str, list[Any]]:
    """(SQL condition, parameters) for those of `chunk_ids` that the post filter removes."""
    inside = "c.chunk_id IN (SELECT value FROM json_each(?))"
    return f"chunk_id IN (SELECT c.chunk_id FROM chunks c WHERE {inside} AND {plan.drop})", [
        json.dumps(list(chunk_ids)),
        *plan.drop_params,
    ]


def select_favoured(chunk_ids: Sequence[str], plan: FilterPlan) -> list[tuple[str, str, list[Any]]]:
    """(name, SQL condition on the table chunks, parameters) of every soft condition, for those of
    `chunk_ids` that satisfy it.
    """
    ids = json.dumps(list(chunk_ids))
    inside = (
        "chunk_id IN (SELECT c.chunk_id FROM chunks c JOIN documents d ON d.doc_id = c.doc_id JOIN"
        " versions v ON v.version_id = c.version_id WHERE c.chunk_id IN (SELECT value FROM"
        " json_each(?)) AND "
    )
    return [
        (favour.name, f"{inside}{favour.where})", [ids, *favour.params]) for favour in plan.favours
    ]


class _Compiler:
    """Compiles conditions to (SQL, parameters), and collects the fields and versions in them."""

    def __init__(self, missing: str) -> None:
        self.missing = missing  # overrides the policy of every field
        self.fields: list[str] = []
        self.missing_included: list[str] = []
        self.versions: list[str] = []

    def all_of(self, conditions: Iterable[tuple[str, Any]], depth: int) -> tuple[str, list[Any]]:
        compiled = [
            self.any_or_all_of(key, value, depth)
            if key in ("$and", "$or")
            else self.field(key, value)
            for key, value in conditions
        ]
        return " AND ".join(sql for sql, _ in compiled), [
            value for _, values in compiled for value in values
        ]

    def any_or_all_of(self, key: str, value: Any, depth: int) -> tuple[str, list[Any]]:
        parts = [self.all_of(item.items(), depth + 1) for item in _check_list(key, value, depth)]
        word = " AND " if key == "$and" else " OR "
        return f"({word.join(f'({sql})' for sql, _ in parts)})", [
            p for _, values in parts for p in values
        ]

    def field(self, name: str, value: Any) -> tuple[str, list[Any]]:
        spec = FILTERABLE.get(name) or _metadata_field(name)
        if spec is None and name in SOFT_FIELDS:
            raise _invalid_error(
                name,
                " is a preference: give true or false beside the conditions; it"
                " takes no operators and drops nothing, so it cannot stand in $or",
            )
        if spec is None:
            raise InputError(
                f"unknown filter {name!r}; known: {', '.join(sorted({*FILTERABLE, *SOFT_FIELDS}))},"
                " metadata.KEY, $and, $or",
                code="unknown_filter",
                filter=name,
            )
        operators = (
            dict(value)
            if isinstance(value, Mapping)
            else {"$in": value}
            if _is_list(value)
            else {"$eq": value}
        )
        missing = operators.pop("$missing", MISSING.get(name, "exclude"))
        if operators.pop("$soft", False):
            raise _invalid_error(
                name,
                ": inside $or no condition can be soft; make the whole of it a filter of its own",
            )
        if missing not in MISSING_POLICIES:
            raise _invalid_error(name, f": $missing must be include or exclude, not {missing!r}")
        if not operators:
            raise _invalid_error(
                name, f" has no condition; give a value or one of {', '.join(_OPERATORS)}"
            )
        self.fields.append(name)
        if name == "version_id":
            self.versions += [
                v for op in ("$eq", "$in") if op in operators for v in _as_list(operators[op])
            ]
        parts: list[str] = []
        params: list[Any] = []
        for operator, operand in operators.items():
            sql, values = _condition(name, spec, operator, operand)
            parts.append(sql)
            params += values
        condition = " AND ".join(parts)
        if (self.missing or missing) == "include":
            self.missing_included.append(name)
            condition = f"{_absent(spec)} OR ({condition})"
        return f"({condition})", params


def _condition(name: str, spec: FilterField, operator: str, operand: Any) -> tuple[str, list[Any]]:
    """(SQL, parameters) of one operator. Raises InputError for a value of the wrong kind."""
    _check_operator(name, operator, operand)
    values = [_check_value(name, spec, item) for item in _as_list(operand)]
    negated = operator in ("$ne", "$nin")
    if spec.kind == "list":
        return _list_condition(name, spec, operator, values, negated)
    if spec.kind == "span":
        return _span_condition(name, spec, operator, values, negated)
    if spec.kind == "metadata":
        return _metadata_condition(spec, operator, values, negated)
    return _scalar_condition(name, spec, operator, values, negated)


def _check_operator(name: str, operator: str, operand: Any) -> None:
    if operator not in _OPERATORS:
        raise InputError(
            f"filter {name!r}: unknown operator {operator!r}; known: {', '.join(_OPERATORS)},"
            " $missing, $soft",
            code="unknown_filter",
        )
    many = _is_list(operand)
    if operator in _ORDER and many:
        raise _invalid_error(name, f": {operator} takes one value, not {operand!r}")
    if (many and not operand) or (operator in ("$in", "$nin") and not many):
        raise _invalid_error(name, f": {operator} takes a list that is not empty, not {operand!r}")


def _invalid_error(name: str, what: str) -> InputError:
    return InputError(f"filter {name!r}{what}", code="invalid_filter")


def _scalar_condition(
    name: str, spec: FilterField, operator: str, values: list[Any], negated: bool
) -> tuple[str, list[Any]]:
    sql, params = _compare(name, spec.sql, spec.kind, operator, values)
    if spec.joined:
        of_section, more = _compare(name, spec.joined, spec.kind, operator, values)
        sql, params = f"({sql} OR {spec.of_joined(of_section)})", params + more
    return f"NOT {sql}" if negated else sql, params


def _compare(
    name: str, x: str, kind: str, operator: str, values: list[Any]
) -> tuple[str, list[Any]]:
    """The SQL that compares the expression `x`; for $ne and $nin that of their negation."""
    if operator in _ORDER:
        if kind == "flag":
            raise _invalid_error(name, f" is a flag: true or false, {operator} cannot order it")
        # a day or year includes all later times with that prefix
        late = name in _DATE_FIELDS and operator in ("$gt", "$lte")
        return f"{x} {_ORDER[operator]} ?", [f"{values[0]}{_LAST_CHARACTER}" if late else values[0]]
    if operator == "$contains":
        if kind != "text":
            raise _invalid_error(name, f" is a {kind}; $contains needs a text or a list")
        return f"({' OR '.join(f'instr(lower({x}), lower(?)) > 0' for _ in values)})", values
    if name in _PREFIX_FIELDS or name in _DATE_FIELDS:
        any_prefix = " OR ".join(f"substr({x}, 1, length(?)) = ?" for _ in values)
        return f"({any_prefix})", [value for value in values for _ in range(2)]
    return f"({x} IN (SELECT value FROM json_each(?)))", [json.dumps(values)]


def _list_condition(
    name: str, spec: FilterField, operator: str, values: list[Any], negated: bool
) -> tuple[str, list[Any]]:
    if operator in _ORDER:
        raise _invalid_error(name, f" is a list; {operator} cannot order it, use $in or $contains")
    member = (
        f"EXISTS (SELECT 1 FROM json_each({spec.sql}) WHERE value IN (SELECT value FROM"
        " json_each(?)))"
    )
    return f"{'NOT ' if negated else ''}{member}", [json.dumps(values)]


def _span_condition(
    name: str, spec: FilterField, operator: str, values: list[Any], negated: bool
) -> tuple[str, list[Any]]:
    """A span matches each number in it; {"$gte": 3, "$lte": 5} matches spans overlapping 3 to 5."""
    if operator == "$contains":
        raise _invalid_error(name, " is a range of numbers; $contains needs a text or a list")
    if operator in _ORDER:
        return (
            f"{spec.end if operator in ('$gt', '$gte') else spec.sql} {_ORDER[operator]} ?",
            values,
        )
    inside = " OR ".join(f"? BETWEEN {spec.sql} AND {spec.end}" for _ in values)
    return f"{'NOT ' if negated else ''}({inside})", values


def _metadata_field(name: str) -> FilterField | None:
    """The field `metadata.KEY`, a text, number, boolean or list of those; None for any other name.
    The key becomes part of the SQL, so it may only have characters that cannot end a quoted string.
    """
    if not (key := re.fullmatch(r"metadata\.([\w .:/-]{1,80})", name)):
        return None
    return FilterField(f"json_each(d.metadata, '$.\"{key[1]}\"')", "metadata")


def _metadata_condition(
    spec: FilterField, operator: str, values: list[Any], negated: bool
) -> tuple[str, list[Any]]:
    """Matches if one of the values under the key does; a number also equals its text."""
    if operator in _ORDER:
        return (
            (
                f"EXISTS (SELECT 1 FROM {spec.sql} WHERE type IN (?, ?) AND value"
                f" {_ORDER[operator]} ?)"
            ),
            [*_types(values[0]), values[0]],
        )
    if operator == "$contains":
        any_of = " OR ".join("instr(lower(value), lower(?)) > 0" for _ in values)
        return f"EXISTS (SELECT 1 FROM {spec.sql} WHERE {any_of})", values
    same = [*values, *(str(value) for value in values if _is_number(value))]
    member = f"EXISTS (SELECT 1 FROM {spec.sql} WHERE value IN (SELECT value FROM json_each(?)))"
    return f"(NOT {_absent(spec)} AND NOT {member})" if negated else member, [json.dumps(same)]


def _types(value: Any) -> tuple[str, str]:
    """The JSON types that are comparable with a value."""
    return ("integer", "real") if _is_number(value) else ("text", "text")


def _absent(spec: FilterField) -> str:
    if spec.kind == "metadata":
        return f"NOT EXISTS (SELECT 1 FROM {spec.sql})"
    empty = {"list": f" OR {spec.sql} = '[]'", "text": f" OR {spec.sql} = ''"}.get(spec.kind, "")
    return f"({spec.sql} IS NULL{empty})"


def _check_value(name: str, spec: FilterField, value: Any) -> Any:
    """The value as SQLite stores it. Raises InputError for one of the wrong kind."""
    fits: dict[str, Callable[[Any], bool]] = {
        "text": lambda v: isinstance(v, str),
        "list": lambda v: isinstance(v, str),
        "flag": lambda v: isinstance(v, bool),
        "number": _is_number,
        "span": _is_number,
        "metadata": lambda v: isinstance(v, str | int | float),
    }
    if name in _DATE_FIELDS and _is_number(value):
        value = str(value)  # a year, as JSON and `--filter doc_date=2026` write it
    if not fits[spec.kind](value):
        wanted = {
            "text": "text",
            "list": "text",
            "flag": "true or false",
            "metadata": "a text, a number, true or false",
        }.get(spec.kind, "a number")
        raise _invalid_error(name, f" is compared with {wanted}, not {value!r}")
    if name in _DATE_FIELDS:
        return _read_date(name, value)
    if name in _FOLDED_FIELDS:
        return unicodedata.normalize("NFKC", value).lower()
    return int(value) if spec.kind == "flag" else value


def _read_date(name: str, text: str) -> str:
    """The date in the form of the catalog and the given precision: times in UTC, without fractions
    of a second.
    """
    if match := _DATE.fullmatch(text):
        year, month, day, time, seconds, zone = match.groups()
        try:
            if time is None:
                date(int(year), int(month or 1), int(day or 1))
                return text
            moment = datetime.fromisoformat(
                f"{year}-{month}-{day}T{time}{seconds or ''}{zone or 'Z'}"
            ).astimezone(UTC)
            return moment.replace(tzinfo=None).isoformat(
                timespec="seconds" if seconds else "minutes"
            )
        except (ValueError, OverflowError):
            pass
    raise _invalid_error(
        name,
        f" is a date, and {text!r} is none; give 2026, 2026-01, 2026-01-31 or a"
        " time: 2026-01-31T10:00:00Z, 2026-01-31T18:00:00+08:00",
    )


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _is_list(value: Any) -> bool:
    return isinstance(value, (list, tuple, set, frozenset))


def _as_list(value: Any) -> list[Any]:
    return list(value) if _is_list(value) else [value]


@dataclass(frozen=True, slots=True)
class Scope:
    """A restriction to namespaces, documents and tags. One of several documents or tags suffices;
    an empty tuple restricts nothing.
    """

    namespaces: tuple[str, ...] = ()
    document_ids: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()

    def filters(self, requested: Mapping[str, Any]) -> Json:
        """The requested filters combined with the scope; both must hold, also on the same field. A
        scope of tags excludes documents without tags, unlike a filter on tags.
        """
        own: Json = {}
        if self.document_ids:
            own["doc_id"] = list(self.document_ids)
        if self.tags:
            own["tags"] = {"$in": list(self.tags), "$missing": "exclude"}
        shared = {key: value for key, value in own.items() if key in requested}
        merged = {**own, **requested}
        if shared:
            merged["$and"] = [*requested.get("$and", ()), shared]
        return merged
