"""Detects the language of a text by its scripts and, for Latin letters, its function words."""

from __future__ import annotations

import functools
import re
from collections import Counter
from collections.abc import Sequence

from rag_platform.text.stop_words import ENGLISH

UNKNOWN = "other"  # no letters, or a script that is not listed

# patterns of runs, because a text has far fewer of these than characters
_HAN = re.compile("[\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff]+")
_KANA = re.compile("[\u3041-\u30ff\u31f0-\u31ff]+")
_LATIN_WORD = re.compile("[A-Za-z\u00c0-\u00d6\u00d8-\u00f6\u00f8-\u024f\u1e00-\u1eff]+")
_ADDRESS = re.compile(r"\b[a-z]{2,10}://[^\s<>\"')\]]+")
_LETTERS = re.compile(r"[^\W\d_]+")
_OTHER_LETTER = re.compile(  # of no class above
    r"[^\W\d_A-Za-z\u00c0-\u00d6\u00d8-\u00f6\u00f8-\u024f\u1e00-\u1eff\u3041-\u30ff\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff]"
)

# scripts with one language here; Cyrillic and Arabic letters are distinguished further below
_SCRIPTS = {
    "ko": re.compile("[\u1100-\u11ff\u3130-\u318f\uac00-\ud7af]"),
    "ru": re.compile("[\u0400-\u052f]"),
    "el": re.compile("[\u0370-\u03ff\u1f00-\u1fff]"),
    "ar": re.compile("[\u0600-\u06ff\u0750-\u077f\ufb50-\ufdff\ufe70-\ufeff]"),
    "he": re.compile("[\u0590-\u05ff]"),
    "th": re.compile("[\u0e00-\u0e7f]"),
    "hi": re.compile("[\u0900-\u097f]"),
}
_UKRAINIAN, _RUSSIAN = re.compile("[іїєґІЇЄҐ]"), re.compile("[ыэъёЫЭЪЁ]")
_PERSIAN = re.compile("[پچژگ]")

# English comes first, as it wins ties and is the default for Latin letters
_FUNCTION_WORDS = {
    "en": (
        "the of and to is in that it for was on are as with be by this from or an which not you we"
        " can if have has will at but use"
    ),
    "de": (
        "der die das und ist nicht ein eine einen mit von den dem zu auf für wird auch sich bei"
        " werden oder im als des sind es wir"
    ),
    "fr": (
        "le la les des et est une un dans pour que qui sur pas du avec par au plus ce ne sont aux"
        " vous nous cette ou été être"
    ),
    "es": (
        "el la los las de y que en es un una por con para del se no como más al su lo está son pero"
        " este esta ser o"
    ),
    "it": (
        "il di che la è un una per non con del della sono si da nel le i gli alla più anche come"
        " essere questo dei delle o e"
    ),
    "pt": (
        "o a os as de e que em um uma para com não do da dos das por se mais no na é são como ao"
        " pelo pela ou seu sua"
    ),
    "nl": (
        "de het een en van is dat in te op voor met niet zijn aan er ook als bij door maar of"
        " worden naar deze dit wordt kan"
    ),
    "sv": (
        "och att det som en är på av för med den till inte om ett har de från kan vi eller så"
        " men ska"
    ),
    "da": (
        "og at det som en er på af for med den til ikke om et har de fra kan vi eller så men skal"
        " der blev"
    ),
    "no": (
        "og at det som en er på av for med den til ikke om et har de fra kan vi eller så men skal"
        " ble være etter"
    ),
    "fi": "ja on ei se että oli mutta kun niin myös ovat tai joka hän ole sen kuin voi mitä tämä",
    "pl": "i w na z się nie to jest do że o od przez jak po za dla są oraz ale może który tym tego",
    "cs": (
        "a je se na v že to s z do o jako pro by ale nebo jsou který být bylo podle také však při"
    ),
    "tr": (
        "ve bir bu da de için ile olarak olan daha çok gibi ne ise kadar sonra değil veya en mi var"
        " her ama"
    ),
    "vi": (
        "và của là có không được cho các trong một những với người này khi đã từ để đến cũng như"
        " về ra"
    ),
    "id": (
        "yang dan di dengan untuk tidak ini itu dari dalam pada adalah ke akan juga oleh atau"
        " sebagai bisa karena"
    ),
}


def language(text: str) -> str:
    """The ISO 639-1 code of the predominant language of a text, or `other`.

    zh has Han characters, each counting as a Latin word; ja also kana. ko, ru, uk, el, ar, fa, he,
    th and hi are detected by their script, if it has more than a quarter of the letters. Of the
    languages with Latin letters the one with most function words is chosen if it has two different
    ones, and two more than English; else en.
    """
    if "://" in text:
        text = _ADDRESS.sub(" ", text)  # the words of URLs are of no language
    if text.isascii():
        return _by_function_words(_LATIN_WORD.findall(text)) or UNKNOWN
    words = _LATIN_WORD.findall(text)
    han, kana = (
        sum(map(len, pattern.findall(text))) if pattern.search(text) else 0
        for pattern in (_HAN, _KANA)
    )
    if kana > 0.1 * (han + kana) and kana >= len(words):
        return "ja"
    if _OTHER_LETTER.search(text):
        letters, latin = (sum(map(len, found)) for found in (_LETTERS.findall(text), words))
        if letters - han - kana - latin > 0.25 * letters:
            return _by_script(text, letters)
    if han and han >= len(words):
        return "zh"
    return _by_function_words(words) or UNKNOWN


def _by_script(text: str, letters: int) -> str:
    counts = {code: len(pattern.findall(text)) for code, pattern in _SCRIPTS.items()}
    code = max(counts, key=lambda name: counts[name])
    if counts[code] <= 0.25 * letters:
        return UNKNOWN
    if code == "ru" and _UKRAINIAN.search(text) and not _RUSSIAN.search(text):
        return "uk"
    return "fa" if code == "ar" and _PERSIAN.search(text) else code


def _by_function_words(words: Sequence[str]) -> str:
    """The language of words in Latin letters, empty without any."""
    if not words:
        return ""
    table = _languages_of_words()
    hits, kinds = dict.fromkeys(_FUNCTION_WORDS, 0), dict.fromkeys(_FUNCTION_WORDS, 0)
    counts = Counter(map(str.lower, words))
    for word in counts.keys() & table.keys():
        for code in table[word]:
            hits[code] += counts[word]
            kinds[code] += 1
    best = max(hits, key=hits.__getitem__)
    return best if hits[best] >= hits["en"] + 2 and kinds[best] > 1 else "en"


@functools.cache
def _languages_of_words() -> dict[str, tuple[str, ...]]:
    found: dict[str, list[str]] = {}
    for code, words in _FUNCTION_WORDS.items():
        for word in words.split():
            # English words and single letters are no evidence of another language
            if code == "en" or (len(word) > 1 and word not in ENGLISH):
                found.setdefault(word, []).append(code)
    return {word: tuple(codes) for word, codes in found.items()}
