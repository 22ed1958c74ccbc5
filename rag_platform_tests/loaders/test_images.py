"""Image files as documents: claimed by content, no text, one picture."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from PIL import Image

from rag_platform.errors import DocumentError
from rag_platform.loaders.images import ImageLoader


def encoded(kind: str, **options: object) -> bytes:
    stream = io.BytesIO()
    Image.new("RGB", (40, 30), "red").save(stream, kind, **options)
    return stream.getvalue()


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
