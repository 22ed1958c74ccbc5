"""Words of a question in the other of Chinese and English, by the dictionary."""

from __future__ import annotations

import pytest

from rag_platform.query.translation import translate


def options_of(text: str, *library: str) -> dict[str, list[str]]:
    """The translations of each word that a library with these words has."""
    words = translate(text, lambda word: word in library)
    return {word.text: [other for other, _ in word.options] for word in words}


@pytest.mark.parametrize(
    ("text", "library", "found"),
    [
        # not 服务 for 服务器, nor 怎么
        (
            "缓存服务器的日志怎么合并？",
            ("cache", "server", "serve", "log", "merge"),
            {"缓存": ["cache"], "服务器": ["server"], "日志": ["log"], "合并": ["merge"]},
        ),
        # a compound that the dictionary lacks by its parts; 镜像 is also a mirror
        ("镜像文件", ("image", "file"), {"镜像": ["image"], "文件": ["file"]}),
        ("設定瀏覽器", ("browser", "set"), {"设定": ["set"], "浏览器": ["browser"]}),  # traditional
        ("合并仓库", ("merge",), {"合并": ["merge"], "仓库": []}),  # nothing in the library
        ("PR-12 什么", ("PR-12",), {}),  # names are searched for as they are
        (
            "Where do the servers encrypt their caches?",
            ("服务器", "加密", "缓存", "高速缓存", "端到端加密"),
            {
                "server": ["服务器"],
                "encrypt": ["加密", "端到端加密"],  # the whole sense, then a part of one
                "cach": ["缓存", "高速缓存"],
            },
        ),
        ("art or article", ("艺术", "文章"), {"art": ["艺术"], "articl": ["文章"]}),
        ("policies", ("政策",), {"polici": ["政策"]}),  # by its stem, as `policy`
        ("", (), {}),
    ],
)
def test_words_become_those_of_the_other_language_that_the_library_has(
    text: str, library: tuple[str, ...], found: dict[str, list[str]]
) -> None:
    assert options_of(text, *library) == found


def test_the_weights_of_a_word_add_up_to_one_and_the_first_sense_has_the_most() -> None:
    [word] = translate("缓存", lambda word: True)
    assert word.text == "缓存" and word.options[0][0] == "cache"
    weights = [weight for _, weight in word.options]
    assert sum(weights) == pytest.approx(1.0)
    assert weights == sorted(weights, reverse=True) and weights[0] > weights[-1]


def test_a_word_has_at_most_four_translations() -> None:
    assert max(len(word.options) for word in translate("请打开设定", lambda word: True)) == 4
