"""What a text must be before it leaves for a tokenizer, an engine written in C or another
machine.
"""

from __future__ import annotations

import json
from typing import Any


def encodable(text: str) -> str:
    """The text as UTF-8 can hold it: halves of surrogate pairs are dropped, and NUL, which ends a C
    string, is a space.
    """
    return text.replace("\0", " ").encode("utf-8", "ignore").decode("utf-8")


def encodable_json(value: Any) -> Any:
    """JSON data whose texts UTF-8 can hold: halves of surrogate pairs are dropped."""
    return json.loads(json.dumps(value, ensure_ascii=False).encode("utf-8", "ignore"))
