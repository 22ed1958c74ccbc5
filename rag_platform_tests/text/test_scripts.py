from __future__ import annotations

import re
import unicodedata

import pytest

from rag_platform.text.scripts import (
    CJK,
    HAN,
    HANGUL,
    KANA,
    SOUTHEAST_ASIAN,
    UNSPACED,
    find_script,
    fold_accents,
    has_han,
    is_wide,
    letters,
    simplify,
    unify_radicals,
)


@pytest.mark.parametrize(
    ("chars", "script"),
    [
        ("中〇々㐀豈\U00020000\U000323af", HAN),
        ("ぁんァヶーㇰ", KANA),
        ("가힣ᄀᆨ", HANGUL),
        ("กໝကខ", SOUTHEAST_ASIAN),
        ("中かカ가", CJK),
        ("中かก", UNSPACED),
    ],
)
def test_characters_belong_to_their_script(chars: str, script: str) -> None:
    assert all(re.fullmatch(f"[{script}]", char) for char in chars)
    assert not re.search(f"[{script}]", "aéя٣א。，、·①Ａ１ \n-_")


def test_hangul_is_written_with_spaces() -> None:
    assert not re.search(f"[{UNSPACED}]", "한국어")


@pytest.mark.parametrize(
    ("text", "found"),
    [("", False), ("naïve", False), ("カメラ", False), ("a\U00020001", True), ("第3", True)],
)
def test_a_text_with_a_chinese_character(text: str, found: bool) -> None:
    assert has_han(text) is found


@pytest.mark.parametrize(
    ("text", "wide"),
    [
        ("", False),
        ("plain words", False),
        ("使用 Redis 缓存", True),
        ("vue-element-admin 支持ie吗", True),
        ("order_target_percent 和 order_percent 的区别", True),
        ("a word like 好 in English", False),
        ("한국어", True),
        ("Ж", False),
    ],
)
def test_a_text_is_wide_when_most_of_it_is_chinese_japanese_or_korean(
    text: str, wide: bool
) -> None:
    assert is_wide(text) is wide


@pytest.mark.parametrize(
    ("text", "script"),
    [
        ("Plain words 12", "latin"),
        ("Größe über façade", "latin"),
        ("лицензия PaddleOCR для людей", "other"),
        ("PaddleOCR license (лиц.)", "latin"),
        ("许可证 Apache", "wide"),
        ("الترخيص Apache", "other"),
    ],
)
def test_the_script_that_most_of_a_text_is_in(text: str, script: str) -> None:
    assert find_script(text) == script


def test_radicals_become_the_characters_they_are_drawn_as() -> None:
    assert unify_radicals("欧阳⾼级⼯程师，部⻔⻓⻜⻛") == "欧阳高级工程师，部门长飞风"
    assert unify_radicals("⺀⺚ 长 a") == "⺀⺚ 长 a"  # the first two have no such character
    # each is the one that NFKC gives, where it gives any
    for code in [*range(0x2E80, 0x2EF4), *range(0x2F00, 0x2FD6)]:
        composed = unicodedata.normalize("NFKC", chr(code))
        assert composed in (chr(code), unify_radicals(chr(code)))
    assert letters("⻓") == letters("长")


@pytest.mark.parametrize(
    ("text", "simplified"),
    [
        ("時間語義解析是做什麼的？", "时间语义解析是做什么的？"),
        ("裏面爲了佔用週期", "里面为了占用周期"),
        (
            "乾坤著名，皇后在干活。",
            "乾坤著名，皇后在干活。",
        ),  # nothing of simplified Chinese changes
        ("naïve 9", "naïve 9"),
    ],
)
def test_traditional_characters_become_simplified_ones(text: str, simplified: str) -> None:
    assert simplify(text) == simplified


def test_accents_are_folded_alike_however_a_reader_writes_them() -> None:
    for word in ("Citt`a", "Città", "Citta\u0300"):
        assert fold_accents(word) == "Citta"
    assert fold_accents("sı́ sí s´ı") == "si si si"
    assert fold_accents("한국 が мой ещё") == "한국 が мой ещё"
