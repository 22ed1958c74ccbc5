"""Prompts and texts in a message to a language model, and the JSON object that it replies with."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Collection
from typing import TypeGuard

from rag_platform.config import prompts
from rag_platform.errors import ProviderError
from rag_platform.ir import Json
from rag_platform.observability import context
from rag_platform.text.encoding import encodable

_FENCE = re.compile(r"\A\s*```[a-z]*\s*|\s*```\s*\Z", re.I)


def load_prompt(name: str, fields: Collection[str], query_hash: str) -> prompts.Prompt:
    """The prompt for a question, from `prompts.load`. If an experiment chose it, the trace records
    that before the model is called.
    """
    prompt = prompts.load(name, fields, query_hash)
    running = context.trace.get()
    if running is not None and prompt.experiment_id:
        chosen = {
            "experiment_id": prompt.experiment_id,
            "arm": prompt.arm,
            "version": prompt.version,
            "prompt_profile_id": prompt.profile_id,
        }
        running.merge("experiments", {prompt.name: chosen})
    return prompt


def quote_text(text: str) -> str:
    """The text as a JSON string without tags: `<` is escaped."""
    return json.dumps(encodable(text), ensure_ascii=False).replace("<", "\\u003c")


def escape_tags(text: str, name: str) -> str:
    """The text with `<` escaped where it begins or ends an element of this name, so that a text
    inside such an element does not end it.
    """
    return re.sub(rf"<(?=\s*(?:/\s*)?{name})", "&lt;", text, flags=re.IGNORECASE)


def object_schema(**properties: Json) -> Json:
    """The JSON schema of an object with these properties and no others."""
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


def strip_fence(text: str) -> str:
    """The reply without the fence that some models write around JSON."""
    return _FENCE.sub("", text)


def parse_object(text: str) -> Json:
    """The JSON object in a reply, with or without a fence. Raises ProviderError `bad_output` for
    anything else.
    """
    try:
        found = json.loads(strip_fence(text))
    except (ValueError, RecursionError) as error:
        raise bad_reply(f"no JSON ({error}): {text[:100]!r}") from error
    if not isinstance(found, dict):
        raise bad_reply(f"{type(found).__name__} instead of an object")
    return found


def is_number(value: object) -> TypeGuard[int | float]:
    """True for a finite number in a JSON reply, which no boolean is."""
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)


def bad_reply(what: str) -> ProviderError:
    """The error for a reply that does not have the requested form."""
    return ProviderError(f"the language model answered with {what}", code="bad_output")
