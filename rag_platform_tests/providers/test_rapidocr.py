"""OCR with the models of the wheel: straight, turned and two columns; order of lines by hand."""

from __future__ import annotations

import io
import socket

import pytest
from PIL import Image, ImageDraw, ImageFont

from rag_platform.errors import ProviderError
from rag_platform.providers.rapidocr import Line, RapidOcr, printed_lines
from rag_platform_tests.conftest import needs

pytestmark = needs("rapidocr", "ocr")


def page(*lines: str, turned: int = 0, size: tuple[int, int] = (420, 380)) -> bytes:
    picture = Image.new("RGB", size, "white")
    font = ImageFont.load_default(size=28)
    for number, line in enumerate(lines):
        ImageDraw.Draw(picture).text((20, 15 + 60 * number), line, fill="black", font=font)
    stream = io.BytesIO()
    picture.rotate(turned, expand=True).save(stream, "PNG")
    return stream.getvalue()


@pytest.fixture(scope="module")
def ocr() -> RapidOcr:
    return RapidOcr(threads=1)


@pytest.mark.integration
@pytest.mark.parametrize("turned", [0, 90, 180])
def test_a_page_is_read_whichever_way_it_lies(
    ocr: RapidOcr, turned: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_network(*args: object, **kwargs: object) -> None:
        raise AssertionError("nothing may be fetched")

    monkeypatch.setattr(socket.socket, "connect", no_network)
    text, confidence = ocr.read(
        page("The gateway listens here", "and the pump is blue", turned=turned)
    )
    assert text.split("\n") == ["The gateway listens here", "and the pump is blue"]
    assert confidence is not None and confidence > 0.9


@pytest.mark.integration
def test_threads_of_the_engine_wait_asleep(ocr: RapidOcr) -> None:
    ocr.read(page("The gateway listens here"))
    engine = ocr._loaded["engine"]
    assert [
        step.session.session.get_session_options().get_session_config_entry(
            "session.intra_op.allow_spinning"
        )
        for step in (engine.text_det, engine.text_rec)
    ] == ["0", "0"]


@pytest.mark.integration
def test_a_page_without_text_has_none(ocr: RapidOcr) -> None:
    assert ocr.read(page()) == ("", None)


def test_what_is_no_image_is_named(ocr: RapidOcr) -> None:
    with pytest.raises(ProviderError) as caught:
        ocr.read(b"no image")
    assert caught.value.code == "broken_image"


def line(text: str, x: float, y: float, width: float = 100, height: float = 10) -> Line:
    return Line(text, 1.0, (x, y, x + width, y + height))


def test_pieces_of_one_line_are_joined() -> None:
    assert printed_lines([line("b", 110, 1), line("a", 0, 0), line("c", 0, 14)]) == ["a b", "c"]


def test_columns_are_read_one_after_the_other() -> None:
    columns = [
        line(f"{name}{row}", x, 40 + 14 * row)
        for row in range(4)
        for name, x in (("l", 0), ("r", 150))
    ]
    title = line("title", 0, 0, width=250, height=12)
    assert printed_lines([*columns, title]) == [
        "title",
        *(f"l{n}" for n in range(4)),
        *(f"r{n}" for n in range(4)),
    ]


def test_no_line_is_no_text() -> None:
    assert printed_lines([]) == []
