"""Expands the names in a question by their synonyms, and financial ratios by their components.

Synonyms, aliases and abbreviations come from the configuration; `ratios.yaml` lists ratios with the
items that they are computed from. Names match as whole words; in scripts without spaces every
character is a word, so a Chinese name matches inside a longer run. Of overlapping names the longer
one counts.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from rag_platform.config.folders import config_file
from rag_platform.config.query import QueryConfig
from rag_platform.config.settings import fingerprint
from rag_platform.config.yaml_files import packaged_yaml, read_mapping
from rag_platform.errors import ConfigError
from rag_platform.query.constants import MAX_SYNONYM_WORDS
from rag_platform.text.scripts import UNSPACED

_WORD = re.compile(rf"[{UNSPACED}]|[^\W{UNSPACED}]+|[^\w\s]")


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """The expansions of names; `digest` is a fingerprint of all of them."""

    names: Mapping[tuple[str, ...], tuple[str, ...]]  # the words of a name to its expansions
    items: frozenset[str]  # the components of ratios
    longest: int  # number of words of the longest name
    digest: str

    def expansions(self, text: str, weight: float, most: int) -> tuple[tuple[str, float], ...]:
        """(expansion, weight) for the names in a text, at most `most`, in the order of the text and
        without those that it already contains. Components of a ratio have weight 1, like words of
        the question, because only they answer it.
        """
        if not self.names or not most or not weight:
            return ()
        words = _words(text)
        candidates = (other for name in self._find_names(words) for other in self.names[name])
        joined = f" {' '.join(words)} "
        wanted = dict.fromkeys(
            other for other in candidates if f" {' '.join(_words(other))} " not in joined
        )
        return tuple(
            (other, 1.0 if other in self.items else weight) for other in list(wanted)[:most]
        )

    def _find_names(self, words: Sequence[str]) -> Iterator[tuple[str, ...]]:
        start = 0
        while start < len(words):
            sizes = range(min(self.longest, len(words) - start), 0, -1)
            name = next(
                (
                    name
                    for size in sizes
                    if (name := tuple(words[start : start + size])) in self.names
                ),
                None,
            )
            if name is not None:
                yield name
            start += len(name) if name is not None else 1


def load_vocabulary(config: QueryConfig) -> Vocabulary:
    """The vocabulary of `synonyms`, the file `synonyms_path` and the ratios. A name expands to
    its aliases, an alias to its name, a ratio to its components.

    Raises ConfigError for a file that is no mapping of names to lists of names.
    """
    groups = [(name, tuple(aliases)) for name, aliases in config.synonyms.items()]
    groups += _read(config_file(config.synonyms_path)) if config.synonyms_path else ()
    backwards = [(alias, (name,)) for name, aliases in groups for alias in aliases]
    return _build([*groups, *backwards], _read_ratios())


@lru_cache(maxsize=1)
def _read_ratios() -> list[tuple[str, tuple[str, ...]]]:
    rows = packaged_yaml(Path(__file__).with_name("ratios.yaml"))
    return [(name, tuple(row["items"])) for row in rows for name in row["names"]]


def read_mtime(config: QueryConfig) -> int:
    """The modification time of the file `synonyms_path` in nanoseconds; 0 without one. Raises
    ConfigError when it cannot be read.
    """
    if not config.synonyms_path:
        return 0
    path = config_file(config.synonyms_path)
    try:
        return path.stat().st_mtime_ns
    except OSError as error:
        raise ConfigError(
            f"the synonyms at {path} cannot be read ({error}); correct query.synonyms_path"
        ) from error


def _build(
    groups: Sequence[tuple[str, tuple[str, ...]]], ratios: Sequence[tuple[str, tuple[str, ...]]]
) -> Vocabulary:
    names: dict[tuple[str, ...], dict[str, None]] = {}
    for name, expansions in (*groups, *ratios):
        if words := tuple(_words(name)[:MAX_SYNONYM_WORDS]):
            names.setdefault(words, {}).update(
                dict.fromkeys(other.strip() for other in expansions if other.strip())
            )
    return Vocabulary(
        {words: tuple(expansions) for words, expansions in names.items()},
        frozenset(item for _, items in ratios for item in items),
        max(map(len, names), default=0),
        fingerprint([*groups, *ratios]),
    )


def _read(path: Path) -> tuple[tuple[str, tuple[str, ...]], ...]:
    return tuple(
        (_check_name(path, name), tuple(_check_aliases(path, name, aliases)))
        for name, aliases in read_mapping(path).items()
    )


def _check_aliases(path: Path, name: object, aliases: object) -> Iterable[str]:
    listed = [aliases] if isinstance(aliases, str) else aliases
    if not isinstance(listed, list):
        raise ConfigError(
            f"{path}: the aliases of {name!r} must be a list of names, not {aliases!r}"
        )
    return [_check_name(path, alias) for alias in listed]


def _check_name(path: Path, value: object) -> str:
    if not isinstance(value, str) or not value.strip():
        raise ConfigError(f"{path}: {value!r} is no name; write it in quotes")
    return value


def _words(text: str) -> list[str]:
    return _WORD.findall(unicodedata.normalize("NFKC", text).lower())
