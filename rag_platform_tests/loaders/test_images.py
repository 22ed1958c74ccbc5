"""What an image is shown as: safe SVG, forms for every client, refusals before decoding; decoders
in children.
"""

from __future__ import annotations

import io
import shutil
from pathlib import Path

import pytest
from PIL import Image, ImageDraw

from rag_platform.config.ingestion import MediaConfig
from rag_platform.config.settings import Limits
from rag_platform.errors import DocumentError
from rag_platform.intake import isolation
from rag_platform.intake.isolation import decode_in_child
from rag_platform.ir import Facts, MediaRef, ParseSummary
from rag_platform.loaders.images import (
    ImageLoader,
    Missing,
    decode_image,
    looks_alike,
    looks_like_svg,
    sanitise,
)
from rag_platform.media.store import Base, keep, resolve
from rag_platform.storage.store import Store, read_json

HEAD = (
    "<svg xmlns='http://www.w3.org/2000/svg' xmlns:xlink='http://www.w3.org/1999/xlink' width='40'"
    " height='20'>"
)


@pytest.fixture(autouse=True, scope="module")
def _end_children():
    yield
    isolation.pool().close()


def encoded(
    kind: str, mode: str = "RGB", size: tuple[int, int] = (40, 30), **options: object
) -> bytes:
    stream = io.BytesIO()
    Image.new(mode, size).save(stream, kind, **options)
    return stream.getvalue()


@pytest.mark.parametrize(
    ("body", "gone"),
    [
        ("<script>alert(1)</script>", b"alert"),
        ("<rect onclick='alert(1)' width='1' height='1'/>", b"alert"),
        ("<a href='javascript:alert(1)'><text>x</text></a>", b"alert"),
        ("<image href='http://example.org/a.png'/>", b"example"),
        ("<image xlink:href='file:///etc/passwd'/>", b"passwd"),
        ("<use href='other.svg#x'/>", b"other"),
        (
            "<foreignObject><p xmlns='http://www.w3.org/1999/xhtml'>html</p></foreignObject>",
            b"html",
        ),
        ("<style>@import url(http://example.org/x.css);</style>", b"example"),
        ("<rect style='fill:url(http://example.org/x)' width='1' height='1'/>", b"example"),
        ("<rect fill='url(//example.org/x#y)' width='1' height='1'/>", b"example"),
        ("<style>a{b:u\\72l(http://example.org)}</style>", b"example"),
        ("<animate attributeName='href' values='javascript:alert(1)'/>", b"alert"),
        ("<image href='data:image/svg+xml;base64,PHN2Zy8+'/>", b"PHN2"),
        ("<?xml-stylesheet href='http://example.org/x.css'?>", b"example"),
    ],
)
def test_what_runs_or_is_fetched_is_taken_out(body: str, gone: bytes) -> None:
    safe, width, height = sanitise(f"{HEAD}{body}<circle r='3'/>after</svg>".encode())
    assert gone not in safe
    assert b'<circle r="3"/>after' in safe
    assert (width, height) == (40, 20)


def test_drawings_stay_as_they_are() -> None:
    body = (
        "<defs><linearGradient id='g'/></defs><rect fill='url(#g)' width='5' height='5'/><use"
        " href='#g'/><text>字 &amp; a</text>"
    )
    picture = "<image href='data:image/png;base64,AAAA' width='1' height='1'/>"
    safe, _, _ = sanitise(f"{HEAD}{body}{picture}</svg>".encode())
    for kept in ('fill="url(#g)"', 'href="#g"', "字 &amp; a", 'href="data:image/png;base64,AAAA"'):
        assert kept in safe.decode()


def test_entities_are_never_resolved(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("sesame", encoding="utf-8")
    outside = (
        "<!DOCTYPE svg [<!ENTITY x SYSTEM"
        f" 'file://{tmp_path}/secret'>]>{HEAD}<text>&x;</text></svg>"
    )
    assert b"sesame" not in sanitise(outside.encode())[0]
    bomb = "".join(f"<!ENTITY a{n} '{f'&a{n - 1};' * 10}'>" for n in range(1, 12))
    laughs = f"<!DOCTYPE svg [<!ENTITY a0 'ha'>{bomb}]>{HEAD}<text>&a11;</text></svg>"
    for bad in (laughs, laughs.replace("<text>&a11;</text>", "<text x='&a11;'/>")):
        with pytest.raises(ValueError, match="amplification"):
            sanitise(bad.encode())


@pytest.mark.parametrize(
    ("attributes", "size"),
    [
        ("viewBox='0 0 30 60'", (30, 60)),
        ("width='1in' height='72pt'", (96, 96)),
        ("", (300, 150)),
        ("width='50%' viewBox='0 0 8 9'", (8, 9)),
    ],
)
def test_the_size_is_that_of_the_drawing(attributes: str, size: tuple[int, int]) -> None:
    assert sanitise(f"<svg xmlns='http://www.w3.org/2000/svg' {attributes}/>".encode())[1:] == size


def test_broken_svg_is_named() -> None:
    assert not looks_like_svg(b"<html><svg/></html>")
    for data in (
        b"<svg><rect></svg>",
        b"<?xml version='1.0'?><html><svg/></html>",
        HEAD.encode() + b"<g>" * 400 + b"</g>" * 400 + b"</svg>",
    ):
        with pytest.raises(Missing, match="broken_svg"):
            decode_image(data, 1_000_000)


def test_an_svg_is_kept_safe_drawn_and_named_by_its_own_bytes(tmp_path: Path) -> None:
    data = f"{HEAD}<script>x</script><rect width='40' height='20' fill='#ff0000'/></svg>".encode()
    stored = keep(data, Store(tmp_path), MediaConfig())
    folder = Store(tmp_path).media_dir(stored.asset_id)
    assert (stored.mime, stored.width, stored.height, stored.size) == (
        "image/svg+xml",
        40,
        20,
        len(data),
    )
    assert sorted(path.name for path in folder.iterdir()) == [
        "display.png",
        "meta.json",
        "original.svg",
        "source.bin",
        "thumb.webp",
    ]
    assert (folder / "source.bin").read_bytes() == data
    assert b"script" not in (folder / "original.svg").read_bytes()
    assert read_json(folder / "meta.json")["display"] == "display.png"
    with Image.open(folder / "display.png") as drawn:
        assert drawn.convert("RGB").getpixel((drawn.width // 2, drawn.height // 2)) == (255, 0, 0)


@pytest.mark.parametrize(
    ("data", "mime", "variants"),
    [
        (encoded("PNG"), "image/png", ["thumb.webp"]),
        (encoded("PNG", "I;16"), "image/png", ["thumb.webp"]),
        (encoded("JPEG", "CMYK"), "image/jpeg", ["display.webp", "thumb.webp"]),
        (encoded("TIFF", "1"), "image/tiff", ["display.png", "thumb.webp"]),
        (encoded("TIFF", "F"), "image/tiff", ["display.png", "thumb.webp"]),
        (encoded("JPEG2000"), "image/jp2", ["display.webp", "thumb.webp"]),
        (encoded("ICO", size=(16, 16)), "image/x-icon", ["display.webp", "thumb.webp"]),
        (encoded("AVIF"), "image/avif", ["display.webp", "thumb.webp"]),
        (encoded("BMP"), "image/bmp", ["display.webp", "thumb.webp"]),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_few_clients_show_gets_a_form_that_all_do(
    data: bytes, mime: str, variants: list[str], tmp_path: Path
) -> None:
    found = decode_in_child(data, 1_000_000, Limits(), tmp_path)
    assert (found.mime, sorted(found.variants)) == (mime, variants)
    for content in found.variants.values():
        with Image.open(io.BytesIO(content)) as drawn:
            assert drawn.size in ((40, 30), (16, 16)) and drawn.mode in ("RGB", "RGBA", "L", "1")


def test_size_is_as_shown_after_the_orientation() -> None:
    exif = Image.Exif()
    exif[0x0112] = 6
    found = decode_image(encoded("JPEG", size=(400, 100), exif=exif), 1_000_000)
    assert (found.width, found.height) == (100, 400)
    with Image.open(io.BytesIO(found.variants["thumb.webp"])) as thumb:
        assert thumb.size == (80, 320)


def test_an_animation_shows_its_first_frame() -> None:
    stream = io.BytesIO()
    Image.new("RGB", (8, 8), "red").save(
        stream, "GIF", save_all=True, append_images=[Image.new("RGB", (8, 8), "blue")]
    )
    with Image.open(
        io.BytesIO(decode_image(stream.getvalue(), 1000).variants["thumb.webp"])
    ) as thumb:
        red, _, blue = thumb.convert("RGB").getpixel((4, 4))
    assert red > 200 > 50 > blue


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"DDS |", "type_not_read: dds"),
        (b"\x01\xda\x00", "type_not_read: sgi"),
        (b"nothing", "not_an_image"),
        (b"8BPS\x00", "type_not_read: psd"),
    ],
)
def test_refusals_have_reasons(data: bytes, reason: str, tmp_path: Path) -> None:
    with pytest.raises(Missing, match=reason):
        decode_in_child(data, 1_000_000, Limits(), tmp_path)


@pytest.mark.integration
def test_every_image_of_the_material_is_stored_or_refused_with_a_reason(
    material: Path, tmp_path: Path
) -> None:
    docs = tmp_path / "docs"
    shutil.copytree(material / "images", docs)
    names = sorted(path.name for path in docs.iterdir())
    refs = tuple(
        MediaRef(f"r{n}", "markdown", name, start=n, end=n + 1, order=n)
        for n, name in enumerate(names)
    )
    facts = Facts("", (), refs, ParseSummary("markdown", "1", "x", "1", "p", "", 0))
    store = Store(tmp_path / "home")
    links = resolve(facts, docs, store, MediaConfig(), Base(docs, docs))
    outcome = {name: link.reason or link.mime for name, link in zip(names, links, strict=True)}
    assert len(outcome) == 104
    assert sum("/" in said for said in outcome.values()) >= 86
    assert outcome["decompression_bomb.gif"] == "too_many_pixels"
    assert all(said for said in outcome.values())
    for link in links:
        if link.asset_id:
            meta = read_json(store.media_dir(link.asset_id) / "meta.json")
            for key in ("original", "thumb", "display"):
                assert (store.media_dir(link.asset_id) / meta[key]).is_file()


def test_a_picture_with_another_number_in_it_shows_something_else() -> None:
    def drawn(number: str, quality: int = 80, size: tuple[int, int] = (800, 600)) -> bytes:
        stream = io.BytesIO()
        picture = Image.new("RGB", size, "white")
        ImageDraw.Draw(picture).text((300, 200), number, "black", font_size=24)
        picture.save(stream, "WEBP", quality=quality)
        return stream.getvalue()

    assert looks_alike(drawn("450"), drawn("450", quality=79))
    assert not looks_alike(drawn("450"), drawn("460"))
    assert not looks_alike(drawn("450"), drawn("450", size=(800, 601)))
    assert not looks_alike(b"no picture", drawn("450"))


# --- image files as documents: claimed by content, no text, one picture


@pytest.mark.parametrize("kind", ["PNG", "JPEG", "GIF", "WEBP", "TIFF", "BMP"])
def test_images_are_claimed_by_content_and_have_one_picture(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "scan.bin"
    path.write_bytes(encoded(kind))
    assert ImageLoader().claims("anything.txt", path.read_bytes()[:4096])
    facts = ImageLoader().load(path, "folder/scan.bin")
    assert (facts.text, facts.blocks) == ("", ())
    assert [(ref.source_type, ref.origin_ref, ref.page) for ref in facts.media] == [
        ("image", "file:", 1)
    ]
    assert (facts.summary.pages, facts.summary.pages_without_text, facts.summary.title) == (
        1,
        (1,),
        "scan",
    )
    assert facts == ImageLoader().load(path, "folder/scan.bin")


@pytest.mark.parametrize(
    "head", [b"", b"# Text", b"%PDF-1.7", b"BM is a company", b"RIFF1234WAVE", b"<svg/>"]
)
def test_nothing_else_is_claimed(head: bytes) -> None:
    assert not ImageLoader().claims("picture.png", head)


def test_more_pages_of_a_tiff_are_named(tmp_path: Path) -> None:
    path = tmp_path / "pages.tif"
    path.write_bytes(encoded("TIFF", save_all=True, append_images=[Image.new("RGB", (40, 30))]))
    assert "only the first of 2 pages" in ImageLoader().load(path, "pages.tif").summary.warnings[1]


def test_a_broken_image_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "broken.png"
    path.write_bytes(b"\x89PNG\r\n\x1a\n and no more")
    with pytest.raises(DocumentError, match=r"broken\.png cannot be read") as caught:
        ImageLoader().load(path, "broken.png")
    assert caught.value.code == "broken_file"
