from __future__ import annotations

import codecs

import pytest

from rag_platform.errors import DocumentError
from rag_platform.loaders.decoding import decode, looks_like_text

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
        (b"\x1b$B=*EE$O8a8e$G$9!#\x1b(B", "iso2022_jp_ext", "終電は午後です。"),
        ("이것은 한국어 문장입니다.".encode("euc_kr"), "cp949", "이것은 한국어 문장입니다."),
        (
            "Это русский текст для проверки.".encode("koi8_r"),
            "koi8_r",
            "Это русский текст для проверки.",
        ),
        ("Короткий файл в DOS.".encode("cp866"), "cp866", "Короткий файл в DOS."),
        ("שלום עולם, 3 קבצים.".encode("cp1255"), "cp1255", "שלום עולם, 3 קבצים."),
        ("مرحبا، ملف قصير".encode("cp1256"), "cp1256", "مرحبا، ملف قصير"),
        ("مرحبا، ملف قصير".encode("iso8859_6"), "iso8859_6", "مرحبا، ملف قصير"),
        ("ใบแจ้งหนี้เลขที่ 42".encode("cp874"), "cp874", "ใบแจ้งหนี้เลขที่ 42"),
        ("Kısa bir dosya, şöyle".encode("cp1254"), "cp1254", "Kısa bir dosya, şöyle"),
        (
            "# Überschrift\n\nÄrger mit Umlauten: naïve café.\n".encode("latin-1"),
            "cp1252",
            "# Überschrift\n\nÄrger mit Umlauten: naïve café.\n",
        ),
        ("Příliš žluťoučký kůň".encode("cp1250"), "cp1250", "Příliš žluťoučký kůň"),
        (
            "Pročitajte što želite učiniti".encode("cp1250"),
            "cp1250",
            "Pročitajte što želite učiniti",
        ),
        (
            "A fájl törlődött, nem tűnt el".encode("cp1250"),
            "cp1250",
            "A fájl törlődött, nem tűnt el",
        ),
        ("São só põe e já compôs".encode("cp1252"), "cp1252", "São só põe e já compôs"),
        (
            "Il a dû goûter au mois d'août".encode("cp1252"),
            "cp1252",
            "Il a dû goûter au mois d'août",
        ),
        ("Øl på bordet hos Dušan".encode("cp1252"), "cp1252", "Øl på bordet hos Dušan"),
        ("šokolaad ja võõras mõte".encode("cp1252"), "cp1252", "šokolaad ja võõras mõte"),
        ("Preis 5 € für Übung".encode("iso8859_15"), "iso8859_15", "Preis 5 € für Übung"),
    ],
)
def test_decode_reads_what_was_written(raw: bytes, encoding: str, text: str) -> None:
    decoded = decode(raw)
    assert (decoded.encoding, decoded.text, decoded.lossy) == (encoding, text, False)


@pytest.mark.parametrize(
    "text",
    [
        "\x1b[31mred\x1b[0m",  # colours of a terminal
        "\x1b[1m\x1b$B0 bytes\x1b[0m",
        "use ~{a,b} and ~}",
        "cost ~{n log n}~ steps",
    ],
)
def test_ascii_with_escapes_and_tildes_stays_ascii(text: str) -> None:
    assert (decode(text.encode()).text, decode(text.encode()).encoding) == (text, "utf-8")


def test_what_a_stateful_encoding_does_not_know_is_replaced() -> None:
    decoded = decode(b"\x1b$B=*EE-!$O\x1b(B end")  # a number in a circle
    assert (decoded.text, decoded.lossy) == ("終電\ufffdは end", True)
    assert decoded.warnings == (
        "not UTF-8; read as iso2022_jp_ext, which is a guess",
        "not valid iso2022_jp_ext, first at byte 7; unreadable parts became U+FFFD",
    )


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
