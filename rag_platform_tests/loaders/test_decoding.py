from __future__ import annotations

import codecs

import pytest

from rag_platform.errors import DocumentError
from rag_platform.loaders.decoding import byte_map, decode, looks_like_text

CHINESE = "# 标题\n\n这是一个用于测试编码的段落，包含中文标点；以及 English words。\n"


@pytest.mark.parametrize(
    ("raw", "encoding", "text"),
    [
        (b"plain", "utf-8", "plain"),
        (codecs.BOM_UTF8 + "é".encode(), "utf-8", "é"),
        (codecs.BOM_UTF16_LE + "标题 a".encode("utf-16-le"), "utf-16-le", "标题 a"),
        (codecs.BOM_UTF32_BE + "标".encode("utf-32-be"), "utf-32-be", "标"),
        (CHINESE.encode("utf-16-le"), "utf-16-le", CHINESE),
        ("plain words\n".encode("utf-16-be"), "utf-16-be", "plain words\n"),
        (CHINESE.encode("gbk"), "gb18030", CHINESE),
        (
            "# 標題\n\n這是繁體中文的段落。\n".encode("big5"),
            "big5hkscs",
            "# 標題\n\n這是繁體中文的段落。\n",
        ),
        ("これは日本語の文章です。".encode("cp932"), "cp932", "これは日本語の文章です。"),
        ("これは日本語の文章です。".encode("euc_jp"), "euc_jp", "これは日本語の文章です。"),
        ("이것은 한국어 문장입니다.".encode("euc_kr"), "cp949", "이것은 한국어 문장입니다."),
        (
            "Это русский текст для проверки.".encode("koi8_r"),
            "koi8_r",
            "Это русский текст для проверки.",
        ),
        (
            "# Überschrift\n\nÄrger mit Umlauten: naïve café.\n".encode("latin-1"),
            "cp1252",
            "# Überschrift\n\nÄrger mit Umlauten: naïve café.\n",
        ),
        ("Příliš žluťoučký kůň".encode("cp1250"), "cp1250", "Příliš žluťoučký kůň"),
        ("Preis 5 € für Übung".encode("iso8859_15"), "iso8859_15", "Preis 5 € für Übung"),
        ("終電は11時。".encode("iso2022_jp"), "iso2022_jp_ext", "終電は11時。"),
        ("이것은 문장".encode("iso2022_kr"), "iso2022_kr", "이것은 문장"),
        ("会议在 3 点举行。".encode("hz"), "hz", "会议在 3 点举行。"),
        (
            b'(format t "~{~a~^, ~}~%" list) ~{ab~}',
            "utf-8",
            '(format t "~{~a~^, ~}~%" list) ~{ab~}',
        ),
        (b"~{A1B2~}", "utf-8", "~{A1B2~}"),
        (b"\x1b$ no escape sequence", "utf-8", "\x1b$ no escape sequence"),
    ],
)
def test_decode_reads_what_was_written(raw: bytes, encoding: str, text: str) -> None:
    decoded = decode(raw)
    assert (decoded.encoding, decoded.text, decoded.lossy) == (encoding, text, False)


def test_a_few_shifted_characters_count_where_they_are_declared() -> None:
    assert decode("会议".encode("hz")).text == "~{;aRi~}"
    assert decode("会议".encode("hz"), "hz-gb-2312").text == "会议"


def test_bytes_that_shift_have_no_byte_map() -> None:
    raw = "終電は11時。".encode("iso2022_jp")
    with pytest.raises(DocumentError, match="iso2022_jp_ext; convert the file to UTF-8"):
        byte_map(raw, decode(raw))


def test_decode_says_when_the_encoding_is_a_guess() -> None:
    assert decode(CHINESE.encode("gbk")).warnings == (
        "not UTF-8; read as gb18030, which is a guess",
    )
    assert decode(CHINESE.encode()).warnings == ()


def test_decode_replaces_what_cannot_be_read() -> None:
    decoded = decode(b"# Title\n\nbad bytes: \xff\xfe\xc3( \xf0(\x8c( and \xed\xa0\x80 end\n")
    assert (decoded.encoding, decoded.lossy, decoded.text.count("\ufffd")) == ("utf-8", True, 8)
    assert decoded.warnings == ("not valid UTF-8; 8 unreadable parts became U+FFFD",)


def test_decode_treats_mostly_valid_utf8_as_damaged_utf8() -> None:
    decoded = decode("中文段落，包含标点。".encode() + b"\xe4\xb8")
    assert (decoded.encoding, decoded.text[-1], decoded.lossy) == ("utf-8", "\ufffd", True)


@pytest.mark.parametrize("raw", [b"", codecs.BOM_UTF8, b" \n\t\r\n", "\u3000\n".encode()])
def test_decode_refuses_empty_files(raw: bytes) -> None:
    with pytest.raises(DocumentError) as caught:
        decode(raw)
    assert caught.value.code == "empty_file"


@pytest.mark.parametrize(
    "raw",
    [
        b"%PDF-1.7\n",
        b"PK\x03\x04rest",
        b"\x7fELF\x02\x01",
        b"\x89PNG\r\n\x1a\n..",
        b"ab\x00\xff\x81z\x00\x02c",
        b"\x00" * 99,
    ],
)
def test_decode_refuses_binary_content(raw: bytes) -> None:
    with pytest.raises(DocumentError) as caught:
        decode(raw)
    assert caught.value.code == "binary_content"
    assert not looks_like_text(raw)


def test_a_few_nul_characters_are_text_with_a_warning() -> None:
    decoded = decode(b"# Ti\x00tle\n\nbefore after\n")
    assert (decoded.text, decoded.warnings) == (
        "# Ti\x00tle\n\nbefore after\n",
        ("1 NUL characters in the text",),
    )


def test_looks_like_text_accepts_a_head_that_ends_inside_a_character() -> None:
    assert looks_like_text(("好" * 2000).encode()[:4096])
