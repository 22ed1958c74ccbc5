"""Numbers in list formats (letters, Roman numerals, Chinese counting), and page numbers."""

from __future__ import annotations

import re

from rag_platform.text.scripts import HAN_DIGITS, count_in_han, letters

_ROMAN = dict(
    zip(
        (1000, 900, 500, 400, 100, 90, 50, 40, 10, 9, 5, 4, 1),
        "m cm d cd c xc l xl x ix v iv i".split(),
        strict=True,
    )
)
_MAX_LETTERS = 780  # 30 times z, as in Word


def format_list_number(value: int, form: str) -> str:
    """A number in a numbering format of DOCX; in digits for a format not listed here."""
    match form:
        case "decimalZero":
            return f"{value:02}"
        case "lowerLetter" | "upperLetter" if 0 < value <= _MAX_LETTERS:
            text = chr(97 + (value - 1) % 26) * ((value - 1) // 26 + 1)
            return text if form == "lowerLetter" else text.upper()
        case "lowerRoman" | "upperRoman" if 0 < value < 4000:
            return _to_roman(value) if form == "lowerRoman" else _to_roman(value).upper()
        case (
            "chineseCounting"
            | "chineseCountingThousand"
            | "taiwaneseCounting"
            | "taiwaneseCountingThousand"
            | "japaneseCounting"
        ) if 0 < value < 10_000:
            return count_in_han(value)
        case "ideographDigital" | "japaneseDigitalTenThousand" | "taiwaneseDigital":
            return "".join(HAN_DIGITS[int(digit)] for digit in str(value))
        case "decimalEnclosedCircle" | "decimalEnclosedCircleChinese" if 0 < value <= 20:
            return chr(0x245F + value)
        case "ideographTraditional" if 0 < value <= 10:
            return "甲乙丙丁戊己庚辛壬癸"[value - 1]
        case "ideographZodiac" if 0 < value <= 12:
            return "子丑寅卯辰巳午未申酉戌亥"[value - 1]
    return str(value)


def _to_roman(value: int) -> str:
    text = ""
    for amount, sign in _ROMAN.items():
        text += sign * (value // amount)
        value %= amount
    return text


NUMBER = re.compile(r"(?<![\w.,])(?:[1-9]\d{0,3}|0|[ivxlc]{1,7}|[IVXLC]{1,7})(?![\w]|[.,]\d)")
# a page number (NUL) with the words around it, as in `Page 3 of 10`
PAGE_WORDS = re.compile(
    r"[\W_]*(?:(?:page|pages|pg|p|slide|sheet|seite|s|folie|blatt|página|pagina|pág|pag|strona|str"
    r"|sida|side|стр|страница|صفحة|第|共)[\W_]*)?(?:[A-Z]-)?\0[\W_]*"
    r"(?:(?:of|from|von|de|di|sur|van|z|av|af|из|من|页|頁|ページ|共|第|page|p a g e)[\W_]*)*"
    r"(?:\d{1,4}[\W_]*(?:页|頁|ページ|pages|seiten)?)?[\W_]*",
    re.I,
)


def without_page_number(words: str) -> str:
    """The lower-cased letters of a running header or footer without its page number: the first
    number, or a NUL that the caller put in its place. "" if nothing else is left.
    """
    numbered = words if "\0" in words else NUMBER.sub("\0", words, count=1)
    if PAGE_WORDS.fullmatch(numbered):
        return ""
    return letters(PAGE_WORDS.sub("", words)).casefold()
