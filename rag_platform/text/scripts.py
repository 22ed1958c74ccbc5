"""Which characters belong to which script, as contents of a regular expression's brackets."""

from __future__ import annotations

import functools
import re
import unicodedata
from typing import Literal

# with 々 and 〇, which are written among them
HAN = r"\u3005\u3007\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
KANA = r"\u3040-\u30ff\u31f0-\u31ff"
HANGUL = r"\u1100-\u11ff\uac00-\ud7af"
# of India and Southeast Asia, whose syllables are drawn as glyphs of their own
REORDERED = r"\u0900-\u0dff\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff"
SOUTHEAST_ASIAN = r"\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff"  # Thai, Lao, Burmese and Khmer
CJK = HAN + KANA + HANGUL
UNSPACED = HAN + KANA + SOUTHEAST_ASIAN  # scripts that write no blanks between words
# no letter of a script with blanks comes after it, but for Hangul, Yi and full-width Latin
FIRST_CJK = "\u3040"
# a word, or Chinese, Japanese or Korean without a break
RUN = re.compile(rf"[^\W_{CJK}]+|[{CJK}]+")

_HAN_CHARACTER = re.compile(f"[{HAN}]")
_CJK_CHARACTER = re.compile(f"[{CJK}]")
_OTHER_LETTER = re.compile(rf"[^\W\d_A-Za-z\u00c0-\u024f{CJK}]")
_LATIN_WORD = re.compile(r"[A-Za-z\u00c0-\u024f]{2,}")


def has_han(text: str) -> bool:
    """True for a text with a Chinese character."""
    return not text.isascii() and _HAN_CHARACTER.search(text) is not None


def is_wide(text: str) -> bool:
    """True for a text with more Chinese, Japanese and Korean characters than Latin words."""
    return not text.isascii() and len(_CJK_CHARACTER.findall(text)) > len(_LATIN_WORD.findall(text))


def find_script(text: str) -> Literal["wide", "latin", "other"]:
    """The kind of script that most of a text is in: `wide` as `is_wide` says, Latin, or another."""
    if text.isascii():
        return "latin"
    if is_wide(text):
        return "wide"
    others = len(_OTHER_LETTER.findall(text))
    return "other" if others > sum(map(len, _LATIN_WORD.findall(text))) else "latin"


_NO_LETTER = re.compile(r"[\W_]+")


def letters(text: str) -> str:
    """Letters and digits of a text, each in NFKC by itself: what parsing may never change."""
    if not text.isascii():
        text = "".join(map(_nfkc, text))
    return _NO_LETTER.sub("", text)


@functools.lru_cache(maxsize=65536)
def _nfkc(char: str) -> str:
    return unicodedata.normalize("NFKC", char)
