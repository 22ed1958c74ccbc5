"""Makes text encodable for tokenizers, C libraries and the network."""

from __future__ import annotations

import json
from typing import Any


def encodable(text: str) -> str:
    """The text without lone surrogates, which UTF-8 cannot encode, and with spaces instead of NUL,
    which would end a C string.
    """
    return text.replace("\0", " ").encode("utf-8", "ignore").decode("utf-8")


def encodable_json(value: Any) -> Any:
    """JSON data without lone surrogates, which UTF-8 cannot encode."""
    return json.loads(json.dumps(value, ensure_ascii=False).encode("utf-8", "ignore"))
