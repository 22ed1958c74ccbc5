from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rag_platform.loaders.decoding import Decoded, byte_map, decode_span


def test_byte_map_is_exact_behind_replaced_bytes() -> None:
    raw = b"a\xffb\xe4\xb8c"  # one bad byte, then two that start a character and do not finish it
    decoded = Decoded(raw.decode("utf-8", "replace"), "utf-8", lossy=True)
    assert decoded.text == "a\ufffdb\ufffdc"
    spans = [byte_map(raw, decoded).span(i, i + 1) for i in range(5)]
    assert spans == [(0, 1), (1, 2), (2, 3), (3, 5), (5, 6)]


@given(
    st.lists(
        st.sampled_from(
            [
                b"A",
                b"\r\n",
                "佳".encode(),
                "😀".encode(),
                b"\xff",
                b"\xf0\x9f",
                b"\xe4\xbd",
                b"\xc3",
                b"\xed\xa0\x80",
                b" ",
            ]
        ),
        min_size=1,
    )
)
def test_byte_map_gives_every_character_its_bytes(parts: list[bytes]) -> None:
    raw = b"".join(parts)
    decoded = Decoded(raw.decode("utf-8", "replace"), "utf-8", lossy=True)
    mapped = byte_map(raw, decoded)
    for i, char in enumerate(decoded.text):
        start, end = mapped.span(i, i + 1)
        assert raw[start:end].decode("utf-8", "replace") == char
    assert mapped.span(0, len(decoded.text)) == (0, len(raw))


@given(
    st.text(alphabet="a标題é\n😀", min_size=1),
    st.sampled_from(["utf-8", "utf-16-le", "utf-16-be", "gb18030", "utf-32-le"]),
)
def test_byte_map_of_other_encodings(text: str, encoding: str) -> None:
    raw = b"\xff\xfe" + text.encode(encoding)
    mapped = byte_map(raw, Decoded(text, encoding, 2))
    for i, char in enumerate(text):
        assert raw[slice(*mapped.span(i, i + 1))].decode(encoding) == char


@pytest.mark.parametrize(
    ("raw", "encoding", "spans"),
    [
        (
            b"a\x1b$B=*EE\x1b(B\n\x1b(J\\\x1b(B",
            "iso2022_jp_ext",
            [("a", 0, 1), ("終", 1, 6), ("電", 6, 8), ("\n", 8, 12), ("¥", 12, 19)],
        ),
        (
            b"~{;aRi~}~~x~{!#~}\n",
            "hz",
            [
                ("会", 0, 4),
                ("议", 4, 6),
                ("~", 6, 10),
                ("x", 10, 11),
                ("。", 11, 15),
                ("\n", 15, 18),
            ],
        ),
    ],
)
def test_marks_between_characters_belong_to_the_character_behind_them(
    raw: bytes, encoding: str, spans: list[tuple[str, int, int]]
) -> None:
    mapped = byte_map(raw, Decoded(raw.decode(encoding), encoding))
    for number, (char, start, end) in enumerate(spans):
        assert mapped.span(number, number + 1) == (start, end)
        assert decode_span(raw, start, end, encoding) == char
