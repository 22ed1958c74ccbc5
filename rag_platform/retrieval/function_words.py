"""Words that ask and join and name nothing: what the word leg does not look for, because few texts hold them and none is right for it.

BM25 weighs a word by its rarity, and documentation seldom says `which` or `什么`. Of Chinese they are interrogatives and their idioms, in
simplified and traditional characters.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache

from rag_platform.text.scripts import UNSPACED
from rag_platform.text.stop_words import FUNCTION_WORDS

_CHINESE = (
    "(?:表示|代表)?(?:什么|什麼|甚麼)(?:意思)?|哪(?!吒)一?[些个個种種里裡儿兒位]?|多少|谁|誰|怎么样|怎麼樣|怎么|怎麼|怎样|怎樣|如何|为什么|為什麼|为何|為何"
    r"|何时|何時|何地|[是能可]否(?![定认認决決])|请问|請問|有没有|有沒有|是不是|能不能|分别|分別|已[经經]|已(?![知故婚])|[吗嗎呢](?!\w)"
    "|[几幾](?=[个個种種次年月日天人名位岁歲家座])"
)
# What stands within an identifier, a path, an option, a quotation or a call is no function word: on_delete, what-if, --in, `for`, is().
_BEFORE, _AFTER = r"(?<![\w.\-/\\:@#$&+'’`])", r"(?![\w\-/\\@#&+`(]|[.:'’]\w)"
_CONTRACTED = r"(?:['’](?:s|re|ll|d|ve|m)(?!\w))?"
_SENTENCE_END = ".?!。？！"
_LOOKED_BACK = 40  # characters
_UNSPACED = re.compile(f"[{UNSPACED}]")


def without(text: str, further: Sequence[str] = (), spared: Sequence[tuple[int, int]] = ()) -> str:
    """The text without function words and the `further` ones, on one line; as it is when nothing else would be left.

    Left alone: what lies in a `spared` span [start, end), parts of identifiers, and words in capitals or with one inside a sentence (WHO,
    the Who, vitamin A). `I` goes only where a function word stands before it, so that it may be a number.

    >>> without("What is the default of on_delete?")
    'default on_delete?'
    >>> without("ge 和 le 分别表示什么？")
    'ge 和 le ？'
    """
    pieces: list[str] = []
    end = 0
    for match in _pattern(tuple(further)).finditer(text):
        if not _is_name(text, match) and not any(start < match.end() and match.start() < stop for start, stop in spared):
            pieces.append(text[end : match.start()])
            end = match.end()
    left = " ".join(" ".join([*pieces, text[end:]]).split())
    return left if any(map(str.isalnum, left)) else text


def _is_name(text: str, match: re.Match[str]) -> bool:
    word = match.group()
    if word.islower() or not word[0].isupper():
        return False
    before = text[max(0, match.start() - _LOOKED_BACK) : match.start()].rstrip()
    if word[0] == "I" and not word[1:].isalpha():
        previous = re.split(r"\W", before)[-1].lower() if before else ""
        return bool(before) and previous not in FUNCTION_WORDS
    return (len(word) > 1 and word.isupper()) or not (not before or before[-1] in _SENTENCE_END)


@lru_cache(maxsize=64)
def _pattern(further: tuple[str, ...]) -> re.Pattern[str]:
    spaced = [*sorted(FUNCTION_WORDS), *(word for word in further if not _UNSPACED.search(word))]
    unspaced = [word for word in further if _UNSPACED.search(word)]
    words = "|".join(map(re.escape, sorted(spaced, key=len, reverse=True)))
    runs = "|".join([*map(re.escape, sorted(unspaced, key=len, reverse=True)), _CHINESE])
    return re.compile(rf"{_BEFORE}(?:{words}){_CONTRACTED}{_AFTER}|{runs}", re.IGNORECASE)
