"""The result envelope, exit codes, the removal of paths, and data in a shape of the contract, as
pure functions that server, pages and command line share.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, TypeVar, cast

from rag_platform.errors import InputError, NotFoundError, RagError
from rag_platform.ir import Json
from rag_platform.storage.records import to_json

ShapeT = TypeVar("ShapeT")
DONE, NOTHING_DONE, USAGE, PARTLY_DONE = 0, 1, 2, 3

# An absolute path, outside of a URL or a relative path.
_PATH = re.compile(
    r"(?<![\w/:.~-])(?:[A-Za-z]:[\\/]|~?/)(?:[^\s'\"/\\:*?<>|]+[\\/])+([^\s'\"/\\:*?<>|]*)"
)


def envelope(data: Mapping[str, Any], trace_id: str = "", warnings: Sequence[str] = ()) -> Json:
    """The envelope (`contract.schema.Envelope`) of a call, with duplicate warnings removed; a
    failed one if the data has a `failure`.
    """
    shown = to_json(dict(data))
    failed = shown.pop("failure", None)
    return {
        "ok": failed is None,
        "trace_id": trace_id,
        "data": shown,
        "warnings": list(dict.fromkeys(warnings)),
        "error": failed,
    }


def failure(
    error: BaseException,
    trace_id: str = "",
    *,
    local: bool = False,
    data: Json | None = None,
) -> Json:
    """The envelope of a failed call: code, message and details of a RagError, `internal_error` for
    any other exception; `data` is what the call found nevertheless.

    `details.kind` is `usage` for a wrong argument, `not_found` for a name that does not exist, else
    `failed`. Absolute paths are cut to their last name, except with `local` (the command line).
    """
    if isinstance(error, RagError):
        code, message, details = error.code, error.message, to_json(error.details)
    else:
        code, details = "internal_error", {}
        message = (
            f"internal error ({type(error).__name__}); trace {trace_id or 'unknown'} and the log"
            " have the details"
        )
    if not local:
        message, details = without_paths(message), without_paths(details)
    part = {"code": code, "message": message, "details": {**_plain(details), "kind": _kind(error)}}
    return {
        "ok": False,
        "trace_id": trace_id,
        "data": data,
        "warnings": [],
        "error": part,
    }


def exit_code(outcome: Mapping[str, Any]) -> int:
    """The exit code of a command: DONE, NOTHING_DONE, USAGE (a wrong argument) or PARTLY_DONE (some
    documents failed). Failures that an earlier sync told do not count.
    """
    if not outcome["ok"]:
        error = outcome["error"]
        return USAGE if error and error["details"].get("kind") == "usage" else NOTHING_DONE
    data = outcome["data"] or {}
    achieved = [data[key] for key in ("new", "new_versions", "continued", "skipped") if key in data]
    nothing = achieved and not sum(achieved)
    if (failed := data.get("failed") or 0) > data.get("failed_before", 0):
        return NOTHING_DONE if nothing and not data.get("published") else PARTLY_DONE
    # no file, or none that could be ingested
    nothing = nothing and not (failed or data.get("retired") or data.get("kept"))
    return NOTHING_DONE if nothing and (data.get("ignored") or data.get("empty")) else DONE


def _kind(error: BaseException) -> str:
    if isinstance(error, NotFoundError):
        return "not_found"
    return "usage" if isinstance(error, InputError) else "failed"


def fill_shape(shape: type[ShapeT], record: object, **own: Any) -> ShapeT:
    """The data of a TypedDict: every field from `own`, else as JSON from the attribute of `record`
    (or the item of a mapping) that has its name.
    """
    read = record.__getitem__ if isinstance(record, Mapping) else partial(getattr, record)
    names = shape.__annotations__
    return cast(ShapeT, {key: own[key] if key in own else to_json(read(key)) for key in names})


def optional_fields(**fields: Any) -> Json:
    """The fields that have a value, as JSON; a shape lacks the others."""
    return {name: to_json(value) for name, value in fields.items() if value}


def without_paths(value: Any) -> Any:
    """A text, or JSON data, with absolute paths cut to their last name; tuples become lists."""
    if isinstance(value, str):
        return _PATH.sub(r"\1", value)
    if isinstance(value, dict):
        return {key: without_paths(item) for key, item in value.items()}
    return [without_paths(item) for item in value] if isinstance(value, (list, tuple)) else value


def _plain(value: Any) -> Any:
    """An error's details as JSON data."""
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if isinstance(value, (set, frozenset)):
        return sorted(str(item) for item in value)
    return value if value is None or isinstance(value, (str, int, float, bool)) else str(value)
