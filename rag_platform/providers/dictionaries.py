"""Words that are kept whole beside what the usual cut makes of them: names of people and products, mixed words such as `T恤`."""

from __future__ import annotations

import functools
import hashlib
import re
import unicodedata
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rag_platform.config import config_dir
from rag_platform.errors import ConfigError

MAX_WORDS = 200_000
MAX_CHARS = 60  # of a word
MARK = "="  # before a term that is a word of the dictionary; no other term begins with it
_SPACE = re.compile(r"\s+")


@dataclass(frozen=True)
class Dictionary:
    """The words, and how they are found in a text: every one at every place, also inside of and across others."""

    words: tuple[str, ...] = ()
    _lengths: Mapping[str, tuple[int, ...]] = field(default_factory=dict, init=False, repr=False, compare=False)
    _known: frozenset[str] = field(default=frozenset(), init=False, repr=False, compare=False)
    _first: Any = field(default=None, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        lengths: defaultdict[str, set[int]] = defaultdict(set)
        for word in self.words:
            lengths[word[0]].add(len(word))
        object.__setattr__(self, "_known", frozenset(self.words))
        object.__setattr__(self, "_lengths", {first: tuple(sorted(found)) for first, found in lengths.items()})
        object.__setattr__(self, "_first", re.compile(f"[{re.escape(''.join(sorted(lengths)))}]") if lengths else None)

    def terms(self, text: str) -> list[str]:
        """The words in NFKC `text` as `found` gives them, each as one term.

        >>> Dictionary(("big data",)).terms("Big Data")
        ['=big␣data']
        """
        return [MARK + word.replace(" ", "\u2423") for word in self.found(text)]  # a term holds no white space

    def found(self, text: str) -> list[str]:
        """The words in NFKC `text`, in order and in lower case; a word that begins or ends with a letter or digit of a spaced script stands
        alone there.

        >>> Dictionary(("阿里云", "阿里云ecs", "t恤")).found("阿里云ECS与T恤")
        ['阿里云', '阿里云ecs', 't恤']
        """
        if self._first is None:
            return []
        text = _SPACE.sub(" ", text.lower())
        found = []
        for match in self._first.finditer(text):
            start = match.start()
            for length in self._lengths[match.group()]:
                word = text[start : start + length]
                if word in self._known and not _cuts_a_word(text, start, start + length):
                    found.append(word)
        return found


def normalised(words: Sequence[str]) -> tuple[str, ...]:
    """The words as they are compared: NFKC, lower case, single spaces, sorted, each once. Raises ConfigError for one that is too long."""
    found = sorted({_SPACE.sub(" ", unicodedata.normalize("NFKC", word).lower().replace("\0", " ")).strip() for word in words} - {""})
    if long := [word for word in found if len(word) > MAX_CHARS]:
        raise ConfigError(f"the dictionary's word {long[0][:20]!r}… has {len(long[0])} characters, {MAX_CHARS} are the most")
    if len(found) > MAX_WORDS:
        raise ConfigError(f"the dictionary has {len(found)} words, {MAX_WORDS} are the most")
    return tuple(found)


def load(dictionary: Sequence[str] | str) -> Dictionary:
    """The dictionary of a list of words, or of a UTF-8 file, one word a line, `#` starts a comment; relative to the config folder.

    Raises ConfigError when there is no such file, or it is no UTF-8.
    """
    if not isinstance(dictionary, str):
        return Dictionary(normalised([str(word) for word in dictionary]))
    return _of_text(_read(dictionary)) if dictionary else Dictionary()


def profile(dictionary: Sequence[str] | str) -> str:
    """What identifies the words of a dictionary file, empty for a list, which stands in the config itself."""
    return hashlib.sha256(_read(dictionary).encode()).hexdigest() if isinstance(dictionary, str) and dictionary else ""


def _read(name: str) -> str:
    path = config_dir() / name
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"the dictionary {str(path)!r} cannot be read: {error}; it must be UTF-8 with one word a line") from error


@functools.lru_cache(maxsize=4)
def _of_text(text: str) -> Dictionary:
    return Dictionary(normalised([line.partition("#")[0] for line in text.splitlines()]))


def _cuts_a_word(text: str, start: int, end: int) -> bool:
    """True when an end of the span lies inside of a word or number of a script with spaces."""
    return any(0 < at < len(text) and _spaced(text[at - 1]) and _spaced(text[at]) for at in (start, end))


def _spaced(char: str) -> bool:
    return char.isalnum() and char < "\u0e00"
