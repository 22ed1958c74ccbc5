"""Numbers as lists print them: letters, Roman numerals, Chinese counting."""

from __future__ import annotations

_ROMAN = dict(
    zip(
        (1000, 900, 500, 400, 100, 90, 50, 40, 10, 9, 5, 4, 1),
        "m cm d cd c xc l xl x ix v iv i".split(),
        strict=True,
    )
)
HAN_DIGITS = "零一二三四五六七八九"


def number_text(value: int, form: str) -> str:
    """A number as a numbering format prints it; formats not listed here print digits."""
    match form:
        case "decimalZero":
            return f"{value:02}"
        case "lowerLetter" | "upperLetter" if value > 0:
            text = chr(97 + (value - 1) % 26) * ((value - 1) // 26 + 1)
            return text if form == "lowerLetter" else text.upper()
        case "lowerRoman" | "upperRoman" if 0 < value < 4000:
            return _roman(value) if form == "lowerRoman" else _roman(value).upper()
        case (
            "chineseCounting"
            | "chineseCountingThousand"
            | "taiwaneseCounting"
            | "taiwaneseCountingThousand"
            | "japaneseCounting"
        ) if 0 < value < 10_000:
            return _chinese(value)
        case "ideographDigital" | "japaneseDigitalTenThousand" | "taiwaneseDigital":
            return "".join(HAN_DIGITS[int(digit)] for digit in str(value))
        case "decimalEnclosedCircle" | "decimalEnclosedCircleChinese" if 0 < value <= 20:
            return chr(0x245F + value)
        case "ideographTraditional" if 0 < value <= 10:
            return "甲乙丙丁戊己庚辛壬癸"[value - 1]
        case "ideographZodiac" if 0 < value <= 12:
            return "子丑寅卯辰巳午未申酉戌亥"[value - 1]
    return str(value)


def _roman(value: int) -> str:
    text = ""
    for amount, letters in _ROMAN.items():
        text += letters * (value // amount)
        value %= amount
    return text


def _chinese(value: int) -> str:
    """Chinese counting: 11 is 十一, 105 is 一百零五."""
    text = ""
    for unit, name in ((1000, "千"), (100, "百"), (10, "十"), (1, "")):
        digit, value = divmod(value, unit)
        if digit:
            text += HAN_DIGITS[digit] + name
        elif text and value and not text.endswith("零"):
            text += "零"
    return text[1:] if text.startswith("一十") else text
