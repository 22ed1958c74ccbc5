"""Character classes of scripts for regular expressions, and the normalisation of characters."""

from __future__ import annotations

import functools
import re
import unicodedata
from pathlib import Path
from typing import Literal

from rag_platform.config.yaml_files import packaged_yaml

# with 々 and 〇
HAN = r"\u3005\u3007\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
KANA = r"\u3040-\u30ff\u31f0-\u31ff"
HANGUL = r"\u1100-\u11ff\uac00-\ud7af"
# scripts of India and Southeast Asia, whose glyphs are in another order than their characters
REORDERED = r"\u0900-\u0dff\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff"
SOUTHEAST_ASIAN = r"\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff"  # Thai, Lao, Burmese and Khmer
HAN_DIGITS = "零一二三四五六七八九"
HAN_DIGIT = "[一二三四五六七八九十]"
HAN_NUMBER = r"[一二三四五六七八九十百零〇\d]{1,6}"
CJK = HAN + KANA + HANGUL
UNSPACED = HAN + KANA + SOUTHEAST_ASIAN  # scripts without spaces between words
# all letters from here on are of CJK scripts, Yi or full-width Latin
FIRST_CJK = "\u3040"
# a word, or a run of Chinese, Japanese or Korean characters
RUN = re.compile(rf"[^\W_{CJK}]+|[{CJK}]+")

HAN_RUN = re.compile(f"[{HAN}]+")
UNSPACED_CHAR = re.compile(f"[{UNSPACED}]")
REORDERED_CHAR = re.compile(f"[{REORDERED}]")
_HAN_CHARACTER = re.compile(f"[{HAN}]")
_CJK_CHARACTER = re.compile(f"[{CJK}]")
_OTHER_LETTER = re.compile(rf"[^\W\d_A-Za-z\u00c0-\u024f{CJK}]")
# an identifier, a path or an address counts as one word
_LATIN_WORD = re.compile(r"[A-Za-z\u00c0-\u024f]{2,}[\w\u00c0-\u024f./:@-]*", re.ASCII)


def has_han(text: str) -> bool:
    """True for a text with a Chinese character."""
    return not text.isascii() and _HAN_CHARACTER.search(text) is not None


def is_wide(text: str) -> bool:
    """True for a text with Chinese, Japanese or Korean characters, at least as many as Latin words:
    vue-router 怎么用.
    """
    if text.isascii():
        return False
    wide = len(_CJK_CHARACTER.findall(text))
    return wide > 0 and wide >= len(_LATIN_WORD.findall(text))


def find_script(text: str) -> Literal["wide", "latin", "other"]:
    """The predominant kind of script: `wide` as of `is_wide`, Latin, or another."""
    if text.isascii():
        return "latin"
    if is_wide(text):
        return "wide"
    others = len(_OTHER_LETTER.findall(text))
    return "other" if others > sum(map(len, _LATIN_WORD.findall(text))) else "latin"


# for U+2E80 to U+2EF3, from Unicode's EquivalentUnifiedIdeograph.txt; NFKC maps those from U+2F00
_UNIFIED = (
    "⺀厂乛乚乙亻冂𠘨刀刂卜㔾小小兀尣尢𡯂巳幺彑彐忄心扌攵⺚旡日月歺母民氵氺灬爫爫丬牛犭王𤴔目示礻𥫗糹纟罓罒㓁冗𦉫"
    "羊𦍌𦍋耂肀聿肉𦥑艹艹艹虎衤覀西见角𧢲讠贝𧾷车辶辶辶邑钅長镸长门𨸏阝雨青韦页风飞食𩙿飠饣𩠐马骨鬼鱼鸟卤麦黄黾斉齐歯齿竜龙龜亀龟"
)
_RADICAL = re.compile(r"[\u2e80-\u2ef3\u2f00-\u2fd5]")


def unify_radicals(text: str) -> str:
    """The text with CJK radicals replaced by unified ideographs, 长 for ⻓ (U+2ED3), 高 for ⾼
    (U+2FBC): many PDF fonts map shared glyphs to the radicals.
    """
    return _RADICAL.sub(_unify_radical, text)


def _unify_radical(found: re.Match[str]) -> str:
    place = ord(found[0]) - 0x2E80
    return _UNIFIED[place] if place < len(_UNIFIED) else unicodedata.normalize("NFKC", found[0])


def simplify(text: str) -> str:
    """The text in simplified Chinese, of the same length.

    >>> simplify("筆畫數")
    '笔画数'
    """
    if text.isascii():
        return text
    pattern, simplified = _load_simplified()
    return pattern.sub(lambda found: simplified[found[0]], text)


@functools.cache
def _load_simplified() -> tuple[re.Pattern[str], dict[str, str]]:
    table = packaged_yaml(Path(__file__).with_name("simplified.yaml"))
    simplified = dict(zip(table["traditional"], table["simplified"], strict=True))
    return re.compile(f"[{table['traditional']}]"), simplified


def count_in_han(value: int) -> str:
    """A number from 1 to 9,999 as it is counted in Chinese.

    >>> count_in_han(11), count_in_han(105)
    ('十一', '一百零五')
    """
    text = ""
    for unit, name in ((1000, "千"), (100, "百"), (10, "十"), (1, "")):
        digit, value = divmod(value, unit)
        if digit:
            text += HAN_DIGITS[digit] + name
        elif text and value and not text.endswith("零"):
            text += "零"
    return text[1:] if text.startswith("一十") else text


_NO_LETTER = re.compile(r"[\W_]+")


def letters(text: str) -> str:
    """The letters and digits of a text in NFKC, which parsing must preserve."""
    if not text.isascii():
        text = "".join(map(_nfkc, text))
    return _NO_LETTER.sub("", text)


# Cyrillic marks make other letters: й is no и
_ACCENT = re.compile("`|(?<![Ѐ-ӿ]) ?[\u0300-\u036f]")


def fold_accents(text: str) -> str:
    """The text in NFKC without accents, to compare readers that join them to letters and readers
    that do not.

    >>> fold_accents("für"), fold_accents("f¨ur")
    ('fur', 'fur')
    """
    if text.isascii():
        return text.replace("`", "")
    bare = _ACCENT.sub("", unicodedata.normalize("NFKD", text))
    return unicodedata.normalize("NFC", bare).replace("ı", "i")


@functools.lru_cache(maxsize=65536)
def _nfkc(char: str) -> str:
    return unicodedata.normalize("NFKC", unify_radicals(char))
