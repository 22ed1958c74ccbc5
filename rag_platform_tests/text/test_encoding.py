"""Texts that leave for engines and other machines."""

from __future__ import annotations

from rag_platform.text.encoding import encodable


def test_what_utf8_cannot_hold_goes_and_the_rest_stays() -> None:
    assert encodable("a\0b") == "a b"
    assert encodable("x\ud83dy\udc00z") == "xyz"
    assert encodable("表 é 👩‍💻") == "表 é 👩‍💻"
