from __future__ import annotations

import pytest

from rag_platform.text.language import language


@pytest.mark.parametrize(
    ("text", "lang"),
    [
        ("使用 FastAPI 构建接口", "zh"),
        ("資料庫連線逾時", "zh"),
        ("plain English words", "en"),
        ("x = compute(y)", "en"),  # Latin letters without a small word
        ("これは日本語です。東京の大学", "ja"),
        ("한국어 문장입니다", "ko"),
        ("Русский текст об этом", "ru"),
        ("Це український текст, і він її", "uk"),
        ("Η ελληνική γλώσσα", "el"),
        ("هذا نص باللغة العربية", "ar"),
        ("این یک متن فارسی است و چیز دیگر", "fa"),
        ("טקסט בעברית", "he"),
        ("ข้อความภาษาไทย", "th"),
        ("हिन्दी में पाठ", "hi"),
        ("ასე იწერება ქართულად", "other"),
        (
            (
                "Die Daten werden nicht auf dem Server gespeichert, und der Zugriff ist für alle"
                " offen."
            ),
            "de",
        ),
        (
            "Les données ne sont pas conservées sur le serveur et l'accès est ouvert pour tous.",
            "fr",
        ),
        ("Los datos no se guardan en el servidor y el acceso está abierto para todos.", "es"),
        ("I dati non sono salvati nel server e l'accesso è aperto anche per gli ospiti.", "it"),
        (
            (
                "Os dados não são guardados no servidor e o acesso é aberto para todos, mas com uma"
                " senha."
            ),
            "pt",
        ),
        ("De gegevens worden niet op de server bewaard en het is voor alle gasten open.", "nl"),
        (
            (
                "- [Ubuntu](https://apps.example.com/a.com)\n"
                "- [Debian](https://apps.example.com/b.com) com"
            ),
            "en",
        ),
        ("123 — !", "other"),
        ("", "other"),
    ],
)
def test_language(text: str, lang: str) -> None:
    assert language(text) == lang


def test_an_english_text_with_a_foreign_title_stays_english() -> None:
    assert (
        language("The song 'La vie en rose' is one of the best known works of the singer.") == "en"
    )


def test_a_chinese_text_with_code_words_stays_chinese() -> None:
    assert (
        language("调用 client.search 之前，先用 Embedder 把查询转换成向量，然后再传给索引。")
        == "zh"
    )
