"""Numbers and incomplete dates as Excel's number formats show them (ECMA-376 part 1, 18.8.31).

Colours, widths and fill characters are ignored; white space is collapsed.
"""

from __future__ import annotations

import datetime
import functools
import operator
import re
from dataclasses import dataclass
from decimal import ROUND_HALF_UP, Context, Decimal
from fractions import Fraction

MAX_FORMAT = 255  # characters, as Excel allows
_TOKEN = re.compile(
    r"""(?P<text>"[^"]*"?|\\.|(?i:General))|(?P<bracket>\[[^\]]*\]?)|(?P<width>[_*].?)|(?P<exponent>[eE][-+])"""
    r"""|(?P<digit>[0#?])|(?P<sign>[.,%/;@])|(?P<other>.)""",
    re.DOTALL,
)
_CONDITION = re.compile(r"\[(<=|>=|<>|<|>|=)(-?\d+(?:\.\d+)?)\]")
_TESTS = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "=": operator.eq,
    "<>": operator.ne,
}
_DATE = re.compile(r"[ymdhs]", re.IGNORECASE)
# enough digits for a number below 1e21 with the decimals and percent signs of a format
_EXACT = Context(prec=21 + 3 * MAX_FORMAT, rounding=ROUND_HALF_UP)
# an integer part, a numerator, and a denominator with digit places or fixed: `# ??/??`, `#/8`
_FRACTION = re.compile(r"(?:([#0?]+) +)?[#0?]+ */ *(?:([#0?]+)|([1-9]\d*))")

Token = tuple[str, str]  # kind (text, bracket, exponent, digit, sign, other), characters


@dataclass(frozen=True, slots=True)
class Digits:
    """The indexes of a section's digits among its tokens."""

    places: list[int]
    whole: list[int]
    after: list[int]  # the decimal point
    point: int | None
    power: int | None  # of `E+`
    grouped: bool
    scale: int  # power of ten by which the number is multiplied


@dataclass(frozen=True, slots=True)
class Section:
    """One of the up to four parts of a format; `digits` is None if it has only text."""

    tokens: tuple[Token, ...]
    condition: tuple[str, float] | None = None
    digits: Digits | None = None

    def applies_to(self, value: float) -> bool:
        """True if the section has a condition and the value meets it."""
        return self.condition is not None and bool(
            _TESTS[self.condition[0]](value, self.condition[1])
        )


def format_number(value: float, number_format: str) -> str | None:
    """The number in the format; None if the format is not one for numbers, shows no digit of it, or
    is not understood.

    >>> format_number(1234567.891, '#,##0.00 "EUR"')
    '1,234,567.89 EUR'
    >>> format_number(123, "00000")
    '00123'
    """
    if abs(value) >= 1e21:
        return None
    sections = _parse_sections(number_format)
    chosen = _choose_section(sections, value) if sections else None
    if chosen is None:
        return None
    section, own_sign = chosen
    written = _format_section(section, abs(value))
    if written is None or (
        value
        and any(kind == "digit" for kind, _ in section.tokens)
        and not re.search(r"\d", written)
    ):
        return None
    minus = "-" if value < 0 and not own_sign else ""
    return " ".join(f"{minus}{written}".split()) or None


@functools.lru_cache(maxsize=512)
def _parse_sections(number_format: str) -> tuple[Section, ...]:
    """The sections of a format; () for one that is too long, and for dates."""
    if len(number_format) > MAX_FORMAT:
        return ()
    tokens = [(str(match.lastgroup), match.group()) for match in _TOKEN.finditer(number_format)]
    if any(kind == "other" and _DATE.fullmatch(text) for kind, text in tokens):
        return ()
    parts: list[list[Token]] = [[]]
    for kind, text in tokens:
        if (kind, text) == ("sign", ";"):
            parts.append([])
        elif kind != "width":
            parts[-1].append((kind, text))
    return tuple(_parse_section(part) for part in parts)


def _parse_section(tokens: list[Token]) -> Section:
    found = [
        match
        for kind, text in tokens
        if kind == "bracket" and (match := _CONDITION.fullmatch(text))
    ]
    condition = (found[0][1], float(found[0][2])) if found else None
    return Section(tuple(tokens), condition, _find_digits(tuple(tokens)))


def _to_decimal(value: float) -> Decimal:
    """The value with the 15 digits that Excel keeps."""
    return Decimal(value) if isinstance(value, int) else Decimal(f"{value:.15g}")


def _choose_section(sections: tuple[Section, ...], value: float) -> tuple[Section, bool] | None:
    """(the section for the value, whether the section itself shows the sign)."""
    numeric = [part for part in sections[:3] if ("sign", "@") not in part.tokens]
    if not numeric:
        return None
    if any(part.condition for part in numeric):
        fitting = [i for i, part in enumerate(numeric) if part.applies_to(value)]
        fitting += [i for i, part in enumerate(numeric) if part.condition is None]
        if not fitting:
            return None
        index = fitting[0]
        signs = any(
            text.strip('\\"') in ("-", "(")
            for kind, text in numeric[index].tokens
            if kind in ("text", "other")
        )
        return numeric[index], index > 0 and signs
    if value < 0 and len(numeric) > 1:
        return numeric[1], True
    return (numeric[2] if value == 0 and len(numeric) > 2 else numeric[0]), False


def _find_digits(tokens: tuple[Token, ...]) -> Digits | None:
    places = [index for index, (kind, _) in enumerate(tokens) if kind == "digit"]
    if not places:
        return None
    start = places[0]
    point = next((i for i in range(start, len(tokens)) if tokens[i] == ("sign", ".")), None)
    if point is None and start and tokens[start - 1] == ("sign", "."):
        point = start - 1
    power = next((i for i in range(start, len(tokens)) if tokens[i][0] == "exponent"), None)
    last = max(index for index in places if power is None or index < power)
    whole_stop = min(index for index in (point, power, last + 1) if index is not None)
    whole = [index for index in places if index < whole_stop]
    after = [index for index in places if point is not None and point < index <= last]
    commas = [index for index, token in enumerate(tokens) if token == ("sign", ",")]
    grouped = any(whole and whole[0] < index < whole[-1] for index in commas)
    scale = 2 * tokens.count(("sign", "%"))
    scale -= 3 * sum(_divides(tokens, at, whole[-1] if whole else -1, last) for at in commas)
    return Digits(places, whole, after, point, power, grouped, scale)


def _format_section(section: Section, value: float) -> str | None:
    """The text of a value that is not negative; None if a part of the section is not understood."""
    tokens, digits = section.tokens, section.digits
    if digits is None:
        literal = "".join(_format_literal(*token, value) for token in tokens)
        return literal or None
    if ("sign", "/") in tokens:
        return _format_fraction(tokens, value)
    whole, after, point, power = digits.whole, digits.after, digits.point, digits.power
    number = _to_decimal(value).scaleb(digits.scale)
    exponent = 0
    if power is not None:
        step = max(1, len(whole))
        exponent = number.adjusted() // step * step if number else 0
        number = number.scaleb(-exponent)
        if _round(number, len(after)).adjusted() >= step and number:
            exponent, number = exponent + step, number.scaleb(-step)
    text = f"{_round(number, len(after)):f}"
    before, _, behind = text.partition(".")
    filled = {
        **_fill_whole_digits(tokens, whole, before.lstrip("0"), digits.grouped),
        **_fill_decimals(tokens, after, behind),
    }
    if power is not None:
        sign = "-" if exponent < 0 else "+" if tokens[power][1].endswith("+") else ""
        filled |= _fill_whole_digits(
            tokens, [index for index in digits.places if index > power], str(abs(exponent)), False
        )
        filled[power] = f"E{sign}"
    if point is not None:
        filled[point] = "." if any(filled.get(index) for index in after) or not whole else ""
        if not whole and before.strip("0"):
            filled[point] = before + filled[point]
    return "".join(
        filled[index] if index in filled else _format_literal(*token, value)
        for index, token in enumerate(tokens)
    )


def _format_fraction(tokens: tuple[Token, ...], value: float) -> str | None:
    """The text of a section such as `# ?/?`; None if it is not a fraction."""
    # one character per token
    shape = "".join(
        " " if text.strip('\\"') == " " else "x" if kind in ("text", "bracket") else text[0]
        for kind, text in tokens
    )
    found = _FRACTION.search(shape)
    if found is None or re.search("[#0?/.,%@]", shape[: found.start()] + shape[found.end() :]):
        return None
    whole, digits, fixed = found.groups()
    exact = Fraction(_to_decimal(value))
    denominator = int(fixed or 0) or exact.limit_denominator(10 ** len(digits) - 1).denominator
    numerator = int(_round(_to_decimal(value) * denominator, 0))
    integer, rest = divmod(numerator, denominator) if whole else (0, numerator)
    part = f"{rest}/{denominator}" if rest or not whole else ""
    shown = str(integer) if integer or (whole and (not part or "0" in whole)) else ""
    before = "".join(_format_literal(*token, value) for token in tokens[: found.start()])
    behind = "".join(_format_literal(*token, value) for token in tokens[found.end() :])
    return f"{before}{' '.join(filter(None, (shown, part)))}{behind}"


def _divides(tokens: tuple[Token, ...], index: int, whole_end: int, last: int) -> bool:
    """True for a comma that divides by 1000: it follows the whole part's or number's last digit."""
    ends = [end for end in (whole_end, last) if 0 <= end < index]
    return any(all(token == ("sign", ",") for token in tokens[end + 1 : index]) for end in ends)


def _round(number: Decimal, decimals: int) -> Decimal:
    return number.quantize(Decimal(1).scaleb(-decimals), context=_EXACT)


def _fill_whole_digits(
    tokens: tuple[Token, ...], places: list[int], digits: str, grouped: bool
) -> dict[int, str]:
    """Token index to digits, filled from the right; the first place takes all remaining digits."""
    filled: dict[int, str] = {}
    count = 0
    for index in reversed(places):
        taken = digits if index == places[0] else digits[-1:]
        digits = digits[: len(digits) - len(taken)]
        taken = taken or ("0" if tokens[index][1] == "0" else "")
        text = ""
        for digit in reversed(taken):
            text = digit + ("," if grouped and count and count % 3 == 0 else "") + text
            count += 1
        filled[index] = text
    return filled


def _fill_decimals(tokens: tuple[Token, ...], places: list[int], digits: str) -> dict[int, str]:
    """Token index to digit; trailing zeros are kept only where the format has a 0."""
    kept = digits
    for index in reversed(places):
        if tokens[index][1] == "0" or kept[-1:] != "0":
            break
        kept = kept[:-1]
    return {index: kept[at : at + 1] for at, index in enumerate(places)}


def _format_literal(kind: str, text: str, value: float) -> str:
    """The text of a token that is not a digit."""
    match kind:
        case "text" if text.lower() == "general":
            return format_general(value)
        case "text":
            return text[1:] if text.startswith("\\") else text.strip('"')
        # a currency as in [$€-407]; colours, languages and conditions are not shown
        case "bracket":
            return text[2:-1].partition("-")[0] if text.startswith("[$") else ""
        case "sign":
            return text if text == "%" else ""
        case _:
            return text


def format_general(value: float) -> str:
    """A number with the 15 digits that Excel keeps."""
    return str(int(value)) if float(value).is_integer() and abs(value) < 1e15 else f"{value:.15g}"


# --- dates --------------------------------------------------------------------------------------

_MONTHS = (
    "January February March April May June July August September October November December".split()
)
_DAYS = "Monday Tuesday Wednesday Thursday Friday Saturday Sunday".split()
_DATE_TOKEN = re.compile(
    r'"([^"]*)"|\\(.)|\[[^\]]*\]|[_*].|(y+|m+|d+)|(.)', re.DOTALL | re.IGNORECASE
)
# another calendar, or names in another language than English
_OTHER_CALENDAR = re.compile(r"\[\$-(?!0*[48C1]?09\])|[egb]", re.IGNORECASE)


def format_partial_date(value: datetime.date, number_format: str) -> str | None:
    """A date in a format that lacks the year, month or day (`mmm-yy`); None for other formats: the
    caller writes full dates in ISO form, which is unambiguous.
    """
    form = number_format.split(";")[0]
    found = list(_DATE_TOKEN.finditer(form))
    kinds = {match[3][0].lower() for match in found if match[3]}
    rest = "".join(match[4] or "" for match in found)
    if (
        not kinds
        or len(kinds) == 3
        or re.search("[hsgebn]", rest, re.IGNORECASE)
        or _OTHER_CALENDAR.search(re.sub(r'"[^"]*"|\\.', "", form))
    ):
        return None
    parts = [
        _date_part(match[3].lower(), value) if match[3] else match[1] or match[2] or match[4] or ""
        for match in found
    ]
    return " ".join("".join(parts).split()) or None


def _date_part(letters: str, value: datetime.date) -> str:
    match letters[0], len(letters):
        case "y", length:
            return f"{value.year:04}" if length > 2 else f"{value.year % 100:02}"
        case _, (1 | 2) as length:
            return f"{value.month if letters[0] == 'm' else value.day:0{length}}"
        case kind, length:
            name = _MONTHS[value.month - 1] if kind == "m" else _DAYS[value.weekday()]
            return name[:3] if length == 3 else name[:1] if length == 5 else name
