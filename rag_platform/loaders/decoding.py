"""Bytes to text, with detection of the encoding; and character offsets to byte offsets, which are
exact even for damaged and multi-byte files.

Encodings are tried in this order: byte order mark; UTF-16/32 without a mark; ISO-2022-JP, and HZ
if declared, which consist of ASCII bytes; strict UTF-8; a legacy encoding whose decoded text looks
like a language; UTF-8 with U+FFFD for unreadable bytes. Statistical detectors fail on short legacy
files (a 30-byte Big5 file reads as Japanese), so the common encodings are distinguished by the
share of everyday characters; charset-normalizer decides on the rest.
"""

from __future__ import annotations

import codecs
import itertools
import re
import unicodedata
from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from rag_platform.errors import DocumentError
from rag_platform.ir import Block

BOMS = (  # longest first: the mark of UTF-32 LE starts with the one of UTF-16 LE
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
# first bytes of binary formats and of some texts, name of a binary format, media type
MAGIC = (
    (b"%PDF-", "PDF", "application/pdf"),
    (b"PK\x03\x04", "ZIP or Office", ""),
    (b"PK\x05\x06", "ZIP", ""),
    (b"\x7fELF", "ELF program", "application/x-executable"),
    (b"\x89PNG\r\n\x1a\n", "PNG", "image/png"),
    (b"\xff\xd8\xff", "JPEG", "image/jpeg"),
    (b"GIF87a", "GIF", "image/gif"),
    (b"GIF89a", "GIF", "image/gif"),
    (b"II*\x00", "TIFF", "image/tiff"),
    (b"MM\x00*", "TIFF", "image/tiff"),
    (b"\x1f\x8b", "gzip", "application/gzip"),
    (b"BZh9", "bzip2", "application/x-bzip2"),
    (b"\xfd7zXZ\x00", "xz", "application/x-xz"),
    (b"7z\xbc\xaf\x27\x1c", "7-Zip", "application/x-7z-compressed"),
    (b"Rar!\x1a\x07", "RAR", "application/vnd.rar"),
    (b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", "old Office", "application/x-ole-storage"),
    (b"SQLite format 3\x00", "SQLite", "application/vnd.sqlite3"),
    (b"MZ\x90\x00", "Windows program", "application/x-msdownload"),
    (b"RIFF", "RIFF media", ""),
    (b"\x00asm", "WebAssembly", ""),
    (b"PAR1", "Parquet", ""),
    (b"{\\rtf", "", "application/rtf"),
    (b"%!PS", "", "application/postscript"),
)
# labels that are decoded as a superset of the encoding they name (WHATWG Encoding, labels)
CODECS = {
    label: codec
    for codec, labels in (
        ("gb18030", "gb2312 gbk x-gbk"),
        ("cp1252", "iso-8859-1 latin1 us-ascii ascii"),
        ("cp932", "shift_jis shift-jis x-sjis windows-31j"),
        ("cp949", "ks_c_5601-1987 euc-kr"),
        ("big5hkscs", "big5"),
        ("cp1254", "iso-8859-9"),
        ("cp874", "tis-620"),
        ("iso2022_jp_ext", "iso-2022-jp csiso2022jp iso2022_jp_ext"),
        ("hz", "hz-gb-2312 hz"),
    )
    for label in labels.split()
}
# encodings that can be declared; some of Python's, such as unicode_escape, are not for documents
DECLARED = re.compile(
    r"(?:x-)?(?:iso[-_]?8859[-_]\d{1,2}|(?:windows-|cp)(?:125\d|874|932|949|950)|koi8[-_][ru]|(?:ibm|cp)866|macintosh|mac-cyrillic|"
    r"gb18030|big5hkscs|big5-hkscs|euc[-_]jp|euc[-_]kr|johab|utf-?8)"
)
# encodings with escape sequences that change the meaning of the bytes after them (RFC 1468, 1843)
STATEFUL = ("iso2022_jp_ext", "hz")
_JIS_MARK = re.compile(rb"\x1b(?:\$[@B]|\$\(D|\([BJI])")
SAMPLE = 1 << 18  # bytes of a legacy file that are scored
MIN_LETTERS = 6  # non-ASCII characters of a text recognised as a rare encoding
EVERYDAY = 0.75  # score to accept an encoding: the share of the language's everyday characters
Score = Callable[[str, Sequence[str]], float]  # of a text and its non-ASCII characters


@dataclass(frozen=True, slots=True)
class Decoded:
    """The text of a file without its byte order mark, which has `bom_len` bytes."""

    text: str
    encoding: str
    bom_len: int = 0
    lossy: bool = False
    warnings: tuple[str, ...] = ()


def decode(raw: bytes, *declared: str) -> Decoded:
    """The text of the bytes, with warnings if its encoding was guessed or parts are unreadable.

    Bytes that are not UTF-8 are decoded with the first declared encoding that is valid for them.
    Raises DocumentError: `empty_file` for white space alone, `binary_content` for binary data.
    """
    if not raw:
        raise DocumentError("the file is empty, 0 bytes; nothing to index", code="empty_file")
    if kind := sniff_binary(raw[:4096])[0]:
        raise DocumentError(
            f"the content is {kind}, not text; give the file its right suffix",
            code="binary_content",
        )
    decoded = _decode(raw, *declared)
    if not decoded.text.strip().strip("\ufeff\u200b\x00"):
        raise DocumentError(
            f"the file holds no text ({len(raw)} bytes of white space); nothing to index",
            code="empty_file",
        )
    return decoded


def is_pdf(head: bytes) -> bool:
    """True for the first bytes of a PDF file, whose magic other bytes may precede."""
    return b"%PDF-" in head[:1024]


def sniff_binary(head: bytes) -> tuple[str, str]:
    """(name, media type) of the binary format that begins with these bytes; the name is "" for
    text.
    """
    if head[:4] == b"RIFF" and head[8:12] == b"WEBP":
        return "WebP", "image/webp"
    if head[:2] == b"BM" and len(head) > 14 and b"\x00" in head[:14]:
        return "BMP", "image/bmp"
    return next(((name, mime) for magic, name, mime in MAGIC if head.startswith(magic)), ("", ""))


def looks_like_text(head: bytes) -> bool:
    """True if a file that begins with these bytes, or an empty one, can be decoded as text."""
    return _decode_head(head) is not None


def holds_words(head: bytes) -> bool:
    """True if these bytes begin a text of which half the letters and digits stand in words: false
    for keys, checksums and tables of numbers.

    >>> holds_words(b"See 3 files for details."), holds_words(b"v 0.12 4.50 1.08e-3 7 f0a9")
    (True, False)
    """
    runs = re.findall(r"[^\W_]+", _decode_head(head) or "")
    words = [run for run in runs if run.isalpha() and (not run.isascii() or 1 < len(run) <= 30)]
    return 0 < sum(map(len, runs)) <= 2 * sum(map(len, words))


def _decode_head(head: bytes) -> str | None:
    """The text of the first bytes of a file; None for one that cannot be decoded as text."""
    if sniff_binary(head)[0]:
        return None
    if _is_utf8(head) and len(head) >= 4096:
        head = head.decode("utf-8", "ignore").encode()  # the last character may be cut off
    try:
        return _decode(head).text
    except DocumentError:
        return None


def codec_of(name: str) -> str:
    """Python's name of an encoding from the label of a page or server; "" for an unknown one."""
    name = name.strip().lower()
    codec = CODECS.get(name, name.removeprefix("x-"))
    try:
        return codecs.lookup(codec).name if name in CODECS or DECLARED.fullmatch(name) else ""
    except LookupError:
        return ""


def _decode(raw: bytes, *declared: str) -> Decoded:
    for bom, encoding in BOMS:
        if raw.startswith(bom):
            return _decode_as(raw, encoding, len(bom))
    if wide := _find_wide_encoding(raw):
        return Decoded(raw.decode(wide), wide, warnings=(f"no byte order mark; read as {wide}",))
    if decoded := _decode_stateful(raw, declared):
        return decoded
    nul = raw.count(0)
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError:
        if nul:
            raise DocumentError(
                f"{nul} NUL bytes, and not UTF-8: the content is binary",
                code="binary_content",
            ) from None
        return _decode_declared(raw, declared)
    if nul > max(8, len(raw) // 10):
        raise DocumentError(
            f"{nul} of {len(raw)} bytes are NUL: the content is binary", code="binary_content"
        )
    return Decoded(text, "utf-8", warnings=(f"{nul} NUL characters in the text",) if nul else ())


def _decode_stateful(raw: bytes, declared: Sequence[str]) -> Decoded | None:
    """The text of ASCII bytes in a declared stateful encoding, or in ISO-2022-JP by its escapes."""
    if not raw.isascii() or not (b"\x1b$" in raw or b"~{" in raw):
        return None
    for codec in map(codec_of, declared):
        if codec in STATEFUL:
            return _decode_as(raw, codec, 0)
    if b"\x1b$" not in raw or raw.count(b"\x1b") != len(_JIS_MARK.findall(raw)):
        return None
    decoded = _decode_as(raw, "iso2022_jp_ext", 0)
    guess = f"not UTF-8; read as {decoded.encoding}, which is a guess"
    return replace(decoded, warnings=(guess, *decoded.warnings))


def _decode_declared(raw: bytes, declared: Sequence[str]) -> Decoded:
    """The text in the first valid declared encoding, else in a guessed one, with warnings."""
    notes: list[str] = []
    for name in filter(None, declared):
        if not (codec := codec_of(name)):
            notes.append(f"the page says charset={name[:40]}, which is no known encoding")
            continue
        try:
            return Decoded(raw.decode(codec), codec, warnings=tuple(notes))
        except UnicodeDecodeError as error:
            notes.append(f"the page says charset={name}, but byte {error.start} is not of it")
    guessed = _decode_legacy(raw)
    return replace(guessed, warnings=(*guessed.warnings, *notes))


def _decode_as(raw: bytes, encoding: str, bom_len: int) -> Decoded:
    try:
        return Decoded(raw[bom_len:].decode(encoding), encoding, bom_len)
    except UnicodeDecodeError as error:
        text = raw[bom_len:].decode(encoding, "replace")
        warning = (
            f"not valid {encoding}, first at byte {error.start + bom_len}; unreadable parts became"
            " U+FFFD"
        )
        return Decoded(text, encoding, bom_len, lossy=True, warnings=(warning,))


def _find_wide_encoding(raw: bytes) -> str:
    """UTF-16 or UTF-32 without a mark, if the bytes decode to everyday characters; else ""."""
    head = raw[:4096]
    nul = head.count(0)
    encodings = ["utf-32-le", "utf-32-be"] if nul >= len(head) / 4 else []
    # Pairs of ASCII letters decode to Han characters as UTF-16, so valid UTF-8 counts as UTF-16
    # only if it is full of NULs. Those of ASCII characters are all at even or all at odd offsets.
    aligned = max(head[::2].count(0), head[1::2].count(0)) >= 0.9 * nul
    if nul and aligned and not (nul < 0.4 * len(head) and _is_utf8(head)):
        encodings += ["utf-16-le", "utf-16-be"]
    for encoding in encodings:
        sample = head.decode(encoding, "ignore")
        everyday = sum(
            (char.isascii() and char.isprintable()) or char in "\r\n\t" or _is_common_script(char)
            for char in sample
        )
        if sample and everyday >= 0.95 * len(sample) and _decodes(raw, encoding):
            return encoding
    return ""


def _decodes(raw: bytes, encoding: str) -> bool:
    try:
        raw.decode(encoding)
    except UnicodeDecodeError:
        return False
    return True


def _is_utf8(head: bytes) -> bool:
    """True for valid UTF-8, whose last character may be truncated."""
    try:
        codecs.getincrementaldecoder("utf-8")().decode(head)
    except UnicodeDecodeError:
        return False
    return True


def _is_common_script(char: str) -> bool:
    return (
        "\u00a0" <= char <= "\u05ff"
        or "\u2010" <= char <= "\u2027"
        or "\u3000" <= char <= "\u30ff"
        or "\u4e00" <= char <= "\u9fff"
        or "\uac00" <= char <= "\ud7a3"
        or "\uff01" <= char <= "\uffee"
    )


# --- legacy encodings ---------------------------------------------------------------------------


def _decode_legacy(raw: bytes) -> Decoded:
    damaged = raw.decode("utf-8", "replace")
    lost = damaged.count("\ufffd")
    # A file with only a few bytes that are not UTF-8 is a damaged UTF-8 file.
    whole = sum(len(char.encode()) for char in damaged if char > "\x7f" and char != "\ufffd")
    encoding = "" if whole >= 4 * lost else _guess_legacy(raw)
    if encoding:
        guess = f"not UTF-8; read as {encoding}, which is a guess"
        return Decoded(raw.decode(encoding), encoding, warnings=(guess,))
    warning = f"not valid UTF-8; {lost} unreadable parts became U+FFFD"
    return Decoded(damaged, "utf-8", lossy=True, warnings=(warning,))


def _guess_legacy(raw: bytes) -> str:
    """The legacy encoding whose decoded text looks most like a language; "" if none does."""
    return _find_best(raw, SCORES) or _find_best(raw, RARE_SCORES) or _detect(raw)


def _find_best(raw: bytes, scores: Sequence[tuple[str, Score]]) -> str:
    found: list[tuple[float, int, str]] = []
    for rank, (encoding, score) in enumerate(scores):
        try:
            text = raw.decode(encoding)
        except UnicodeDecodeError:
            continue
        high = [char for char in text[:SAMPLE] if char > "\x7f"]
        if high and (value := score(text[:SAMPLE], high)) >= EVERYDAY:
            found.append((value, -rank, encoding))
    return max(found)[2] if found else ""


def _detect(raw: bytes) -> str:
    """The encoding that charset-normalizer detects, if the decoded text is coherent; else ""."""
    from charset_normalizer import from_bytes

    best = from_bytes(raw[:SAMPLE]).best()
    if best is None or best.encoding.startswith("utf") or best.chaos > 0.1 or best.coherence < 0.2:
        return ""
    try:
        text = raw.decode(best.encoding)
    except (UnicodeDecodeError, LookupError):
        return ""
    unassigned = any(unicodedata.category(char) in ("Co", "Cn") for char in set(text))
    return "" if unassigned else str(best.encoding)


def _make_range_test(encoding: str, *ranges: tuple[int, int]) -> Callable[[str], bool]:
    """A predicate: is the first byte of a character's two-byte code in one of the ranges?"""

    def test(char: str) -> bool:
        code = char.encode(encoding, "ignore")
        return len(code) == 2 and any(low <= code[0] <= high for low, high in ranges)

    return test


_gb_everyday = _make_range_test("gb2312", (0xA1, 0xA3), (0xB0, 0xD7))
_big5_everyday = _make_range_test("big5", (0xA1, 0xA2), (0xA4, 0xC6))
_jis_everyday = _make_range_test("cp932", (0x81, 0x83), (0x88, 0x97))
_korean_everyday = _make_range_test("euc_kr", (0xA1, 0xA3), (0xB0, 0xC8))


def _is_kana(char: str) -> bool:
    return "\u3041" <= char <= "\u30fe"


def _measure_gb(text: str, high: Sequence[str]) -> float:
    if sum(map(_is_kana, high)) > 0.15 * len(high):
        return 0.0  # EUC-JP, which has the same codes for kana as GB 2312, but not for kanji
    return sum(map(_gb_everyday, high)) / len(high)


def _measure_big5(text: str, high: Sequence[str]) -> float:
    return sum(map(_big5_everyday, high)) / len(high)


def _measure_japanese(text: str, high: Sequence[str]) -> float:
    kana = sum(map(_is_kana, high)) / len(high)
    return 0.0 if kana < 0.15 else sum(map(_jis_everyday, high)) / len(high) + 0.02


def _measure_korean(text: str, high: Sequence[str]) -> float:
    # Chinese in GB 2312 decodes to Hangul and rare Hanja; Korean is written in short words with
    # ASCII spaces between.
    words = re.findall("[\uac00-\ud7a3]+", text)
    letters = sum(map(len, words))
    if letters < 4 or letters < 0.9 * len(high) or letters / len(words) > 7:
        return 0.0
    return sum(map(_korean_everyday, high)) / len(high) + 0.01


CENTRAL = "ěřůťďňąćęłńśźżőűăčŕľĺ"
# the letters beyond ASCII of a language; then sets, of each of which its texts hold a letter
_ALPHABETS = tuple(
    tuple(map(frozenset, row.split()))
    for row in ("čćđšž šž", "áčďéěíňóřšťúůýž šž", "áäčďéíĺľňóôŕšťúýž šž", "áéíóöőúüű őű áíóöúü")
)
_ALPHABET_SHARE = 0.95
_ONE_LETTER_WORDS = frozenset("àéóíèåøöÀÉßäü")


def _measure_western(text: str, high: Sequence[str]) -> float:
    """The share of non-ASCII characters that are letters of Latin words or common symbols."""
    if any("\x80" <= char <= "\x9f" for char in high):
        return 0.0
    words = re.findall(r"\w+", text)
    runs = [(word, re.sub("[\x00-\x7f]", "", word)) for word in words]
    letters = sum(len(run) for word, run in runs if run and len(run) <= len(word) / 2)
    letters += sum(word in _ONE_LETTER_WORDS for word in words)
    letters -= sum(char in "ªº³²¹¾¼½ÐðÞþ×÷" for char in high)
    usual = sum(char in "€„“”‘’‚«»–—…°§©®·•™£¥±¡¿µ\u00a0ªº²³½" for char in high)
    umlauts = sum(map(len, re.findall(r"\b[äöüßÄÖÜéèàçñáíóúåøæ]+\b", text)))
    share = (letters + usual + umlauts if letters or umlauts else 0) / len(high)
    return min(1.0, share) - 0.05


def _measure_central(text: str, high: Sequence[str]) -> float:
    # Central European letters are unlikely characters in cp1252: signs in words, rare mixtures. Or
    # nearly all letters are of one alphabet, with `š` or `ž`, or `ő` or `ű` beside other vowels;
    # capitalised words may be names of other languages.
    western = text.encode("cp1250").decode("cp1252", "replace")
    words = (word for word in text.split() if word[0].islower())
    letters = [char for word in words for char in word if char > "\x7f" and char.isalpha()]
    likely = (
        re.search("(?<=[a-z])[³¹¿¾¼œ\ufffd]|[³¹¿¾\ufffd](?=[a-z])", western)
        or len(set("øìùèòï").intersection(western)) >= 3
        or any(
            all(not marks.isdisjoint(letters) for marks in needed)
            and sum(char in alphabet for char in letters) > _ALPHABET_SHARE * len(letters)
            for alphabet, *needed in _ALPHABETS
        )
    )
    has_central = any(char.lower() in CENTRAL for char in high)
    return _measure_western(text, high) + 0.1 if has_central and likely else 0.0


def _score_cased(alphabet: str) -> Callable[[str, Sequence[str]], float]:
    """A score for an alphabet with case: the share of characters in properly cased words."""
    lower, upper = alphabet, alphabet.upper()
    word = re.compile(f"[{lower}{upper}][{lower}]*|[{upper}]+")

    def score(text: str, high: Sequence[str]) -> float:
        good = sum(
            len(run)
            for run in re.findall(r"[^\W\d_]+", text)
            if run[0] > "\x7f" and word.fullmatch(run)
        )
        small = sum(char in lower for char in high)
        return 0.0 if small < 0.5 * len(high) else good / len(high)

    return score


def _score_script(letters: str, wrong: str) -> Score:
    """A score for a script: the share of its letters. 0 if they are few or next to a Latin letter,
    or if the text matches the pattern `wrong`.
    """
    never = re.compile(f"[A-Za-z][{letters}]|[{letters}][A-Za-z]|{wrong}")
    letter = re.compile(f"[{letters}]")

    def score(text: str, high: Sequence[str]) -> float:
        if len(high) < MIN_LETTERS or never.search(text):
            return 0.0
        return sum(letter.match(char) is not None for char in high) / len(high) + 0.03

    return score


# `wrong`: a final form within a word, which Cyrillic text read as Hebrew has
_HEBREW = _score_script("א-ת", "[ךםןףץ](?=[א-ת])")
_MARKS = "\u0e31\u0e34-\u0e3a\u0e47-\u0e4e"  # vowels and tones, written on Thai consonants
_THAI = _score_script("\u0e01-\u0e5b", f"(?<![ก-ฮ{_MARKS}])[{_MARKS}]")
_ARABIC = _score_script("\u0621-\u0652،؛؟", "[à-ÿ]")
_RUSSIAN = "абвгдежзийклмнопрстуфхцчшщъыьэюяё"
SCORES: tuple[tuple[str, Score], ...] = (
    ("gb18030", _measure_gb),
    ("big5hkscs", _measure_big5),
    ("cp932", _measure_japanese),
    ("euc_jp", _measure_japanese),
    ("cp949", _measure_korean),
    ("cp1251", _score_cased(_RUSSIAN)),
    ("koi8_r", _score_cased(_RUSSIAN)),
    ("cp1255", _HEBREW),
    ("cp1253", _score_cased("αβγδεζηθικλμνξοπρσςτυφχψωάέήίόύώ")),
    ("cp1252", _measure_western),
    ("cp1250", _measure_central),
    ("iso8859_15", _measure_western),
)
# tried only if none of the others is accepted
RARE_SCORES: tuple[tuple[str, Score], ...] = (
    ("cp1256", _ARABIC),
    ("iso8859_6", _ARABIC),
    ("cp874", _THAI),
    ("cp866", _score_cased(_RUSSIAN)),
    ("cp1254", _measure_western),
)


STEP = 4096  # characters between two anchors of a ByteMap


@dataclass(frozen=True, slots=True)
class ByteMap:
    """Character offsets to byte offsets, exact from the first anchor on."""

    text: str
    encoding: str
    chars: tuple[int, ...]  # anchors, ascending
    bytes: tuple[int, ...]  # raw offset of each anchor
    irregular_chars: tuple[int, ...] = ()  # characters whose raw length is not their encoded length
    irregular_sums: tuple[int, ...] = ()  # running sums of (raw - encoded length), from 0

    def at(self, offset: int) -> int:
        """The raw offset of the character at `offset`."""
        return self._from_anchor(offset, offset)

    def span(self, start: int, end: int) -> tuple[int, int]:
        """The raw offsets of the non-empty text[start:end]."""
        return self.at(start), self._from_anchor(end, end - 1)

    def _from_anchor(self, offset: int, inside: int) -> int:
        """The raw offset of `offset`, counted from the last anchor up to the character `inside`."""
        index = max(0, bisect_right(self.chars, inside) - 1)
        anchor = self.chars[index]
        length = encoded_length(self.text, anchor, offset, self.encoding)
        return self.bytes[index] + length + self.sum_differences(anchor, offset)

    def sum_differences(self, start: int, end: int) -> int:
        """The raw length of text[start:end] minus its encoded length."""
        if not self.irregular_chars:
            return 0
        first, last = (bisect_right(self.irregular_chars, at - 1) for at in (start, end))
        return self.irregular_sums[last] - self.irregular_sums[first]


def encoded_length(text: str, start: int, end: int, encoding: str) -> int:
    """The number of bytes of text[start:end] in the encoding."""
    part = text[start:end]
    if encoding in STATEFUL:  # escapes count as irregular lengths of the next character
        return len(part) + sum(char > "\x7f" for char in part)
    if part.isascii() and not encoding.startswith(("utf-16", "utf-32")):
        return len(part)
    return len(part.encode(encoding, "replace"))


def byte_map(raw: bytes, decoded: Decoded) -> ByteMap:
    """The byte map of a decoded file. Raises DocumentError if a character's bytes are unclear."""
    irregular = _find_irregular_lengths(raw, decoded)
    whole = (0, len(decoded.text) + 1, decoded.bom_len)
    result = _map_spans(decoded.text, decoded.encoding, [whole], irregular)
    if result.at(len(decoded.text)) != len(raw):
        raise _unmappable(decoded.encoding)
    return result


def _map_spans(
    text: str,
    encoding: str,
    spans: Iterable[tuple[int, int, int]],
    irregular: Sequence[tuple[int, int]],
) -> ByteMap:
    """The byte map with an anchor at the start of each span (start, end, raw offset) of the text,
    and at every STEP characters in it; `irregular` are (character, raw - encoded length).
    """
    sums = tuple(itertools.accumulate((delta for _, delta in irregular), initial=0))
    result = ByteMap(text, encoding, (), (), tuple(char for char, _ in irregular), sums)
    chars: list[int] = []
    starts: list[int] = []
    for start, end, position in spans:
        for char in range(start, end, STEP):
            if char > start:
                position += encoded_length(text, char - STEP, char, encoding)
            chars.append(char)
            starts.append(position + result.sum_differences(start, char))
    return replace(result, chars=tuple(chars), bytes=tuple(starts))


def _unmappable(encoding: str) -> DocumentError:
    return DocumentError(
        f"its characters cannot be mapped to bytes in {encoding}; convert the file to UTF-8"
    )


def format_lengths(text_map: ByteMap, start: int, end: int) -> str:
    """Irregular lengths in a block as `bytes=12:-2,40:1` (offset: raw - encoded length), or ""."""
    first = bisect_right(text_map.irregular_chars, start - 1)
    last = bisect_right(text_map.irregular_chars, end - 1)
    sums = text_map.irregular_sums
    pairs = [
        f"{text_map.irregular_chars[i] - start}:{sums[i + 1] - sums[i]}" for i in range(first, last)
    ]
    return "bytes=" + ",".join(pairs) if pairs else ""


def byte_map_of_blocks(text: str, encoding: str, blocks: Sequence[Block]) -> ByteMap | None:
    """The byte map recorded in the blocks of a text format; None for other formats."""
    spans: list[tuple[int, int, int]] = []
    irregular: list[tuple[int, int]] = []
    for block in blocks:
        if block.byte_start is None:
            continue
        spans.append((block.start, block.end, block.byte_start))
        if block.locator.startswith("bytes="):
            pairs = (pair.split(":") for pair in block.locator[6:].split(","))
            irregular.extend((block.start + int(char), int(delta)) for char, delta in pairs)
    return _map_spans(text, encoding, spans, irregular) if spans else None


def _find_irregular_lengths(raw: bytes, decoded: Decoded) -> list[tuple[int, int]]:
    """(character, raw - encoded length) of each character for which the lengths differ."""
    text, encoding = decoded.text, decoded.encoding
    if (
        not decoded.lossy
        and encoding not in STATEFUL
        and text.encode(encoding, "replace") == raw[decoded.bom_len :]
    ):
        return []
    decoder = codecs.getincrementaldecoder(encoding)("replace")
    irregular: list[tuple[int, int]] = []
    char, pending = 0, 0
    for index in range(decoded.bom_len, len(raw)):
        pending += 1
        got = decoder.decode(raw[index : index + 1], index == len(raw) - 1)
        if not got:
            continue
        kept = len(decoder.getstate()[0])
        for position, one in enumerate(got):
            # one byte can complete several characters: a broken sequence and the byte that ends it
            taken = pending - kept - (len(got) - 1) if position == 0 else 1
            if delta := taken - encoded_length(one, 0, 1, encoding):
                irregular.append((char + position, delta))
        char, pending = char + len(got), kept
    if char != len(text):
        raise _unmappable(encoding)
    if pending:  # escapes after the last character
        known = irregular.pop()[1] if irregular and irregular[-1][0] == char - 1 else 0
        irregular.append((char - 1, known + pending))
    return irregular


def decode_span(raw: bytes, start: int, end: int, encoding: str, errors: str = "strict") -> str:
    """The text of raw[start:end]; both offsets must be character boundaries."""
    if encoding not in STATEFUL:
        return raw[start:end].decode(encoding, errors)
    return raw[:end].decode(encoding, errors)[len(raw[:start].decode(encoding, errors)) :]
