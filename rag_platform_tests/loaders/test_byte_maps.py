from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from rag_platform.loaders.decoding import Decoded, byte_map


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
