"""EPUB books: chapters in the order of the spine, each block proved against its chapter."""

from __future__ import annotations

import zipfile
from dataclasses import replace
from pathlib import Path

import pytest

from rag_platform.errors import DocumentError
from rag_platform.loaders.markup.books import EpubLoader
from rag_platform_tests.conftest import PICTURE

CONTAINER = """<container xmlns="urn:oasis:names:tc:opendocument:xmlns:container">
<rootfiles><rootfile full-path="OEBPS/b.opf"/></rootfiles></container>"""
PACKAGE = """<?xml version="1.0" encoding="utf-8"?>
<package xmlns="http://www.idpf.org/2007/opf"><metadata xmlns:dc="http://purl.org/dc/elements/1.1/">
<dc:title>Two Tales \
两个故事</dc:title><dc:creator>Ann</dc:creator><dc:creator>Bob</dc:creator><dc:language>en</dc:language></metadata>
<manifest><item id="two" href="ch%202.xhtml" media-type="application/xhtml+xml"/>
<item id="one" href="ch1.xhtml" media-type="application/xhtml+xml"/>
<item id="pic" href="img/a.png" media-type="image/png"/><item id="gone" href="gone.xhtml" \
media-type="application/xhtml+xml"/></manifest>
<spine><itemref idref="one"/><itemref idref="two"/><itemref idref="gone"/></spine></package>"""
ONE = """<?xml version="1.0" encoding="utf-8"?><html \
xmlns="http://www.w3.org/1999/xhtml"><head><title>x</title></head>
<body><h1>Chapter One</h1><p>Once upon a <b>time</b>.</p><p><img src="img/a.png" alt="a \
map"/></p></body></html>"""
TWO = "<html><body><h1>第二章</h1><ul><li>one</li><li>two</li></ul></body></html>"
ENCRYPTED = """<encryption \
xmlns="urn:oasis:names:tc:opendocument:xmlns:container"><e:EncryptedData \
xmlns:e="http://www.w3.org/2001/04/xmlenc#">
<e:EncryptionMethod Algorithm="{}"/><e:CipherData><e:CipherReference \
URI="{}"/></e:CipherData></e:EncryptedData></encryption>"""
PARTS = {
    "mimetype": "application/epub+zip",
    "META-INF/container.xml": CONTAINER,
    "OEBPS/b.opf": PACKAGE,
    "OEBPS/ch1.xhtml": ONE,
    "OEBPS/ch 2.xhtml": TWO,
    "OEBPS/img/a.png": PICTURE,
}


def book(path: Path, **changed: str | None) -> Path:
    parts = {**PARTS, **{name.replace("__", "/"): text for name, text in changed.items()}}
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, text in parts.items():
            if text is not None:
                archive.writestr(name, text)
    return path


def test_chapters_read_in_the_order_of_the_spine(tmp_path: Path) -> None:
    path = book(tmp_path / "a.epub")
    facts = EpubLoader().load(path, "a.epub")
    assert (
        facts.text
        == "# Chapter One\n\nOnce upon a **time**.\n\n![a map](img/a.png)\n\n# 第二章\n\n- one\n-"
        " two\n"
    )
    assert [block.locator for block in facts.blocks] == [
        "part=OEBPS/ch1.xhtml;xpath=/html/body/h1",
        "part=OEBPS/ch1.xhtml;xpath=/html/body/p[1]",
        "part=OEBPS/ch1.xhtml;xpath=/html/body/p[2]",
        "part=OEBPS/ch 2.xhtml;xpath=/html/body/h1",
        "part=OEBPS/ch 2.xhtml;xpath=/html/body/ul",
    ]
    assert [ref.origin_ref for ref in facts.media] == ["part:OEBPS/img/a.png"]
    assert (facts.summary.title, facts.summary.metadata) == (
        "Two Tales 两个故事",
        {"author": "Ann, Bob", "language": "en", "chapters": 3},
    )
    assert facts.summary.warnings == ("the chapter OEBPS/gone.xhtml is missing in the file",)
    assert EpubLoader().verify_blocks(path, facts.text, facts.blocks) == {}


def test_headers_and_notes_of_a_chapter_are_text(tmp_path: Path) -> None:
    chapter = (
        "<html><body><header><p>Part One</p><h1>Rain</h1></header><p>It rained.</p><aside><p>For a"
        " week.</p></aside><footer><p>Ann, 1911</p></footer></body></html>"
    )
    path = book(tmp_path / "a.epub", **{"OEBPS__ch1.xhtml": chapter})
    facts = EpubLoader().load(path, "a.epub")
    assert facts.text.startswith(
        "Part One\n\n# Rain\n\nIt rained.\n\nFor a week.\n\nAnn, 1911\n\n# 第二章"
    )
    assert EpubLoader().verify_blocks(path, facts.text, facts.blocks) == {}


def test_a_forged_text_or_place_is_not_proved(tmp_path: Path) -> None:
    path = book(tmp_path / "a.epub")
    facts = EpubLoader().load(path, "a.epub")
    for number, block in enumerate(facts.blocks):
        forged = f"{facts.text[: block.end - 1]}X{facts.text[block.end :]}"
        assert EpubLoader().verify_blocks(path, forged, [block])
        assert EpubLoader().verify_blocks(
            path, facts.text, [replace(block, locator=facts.blocks[number - 1].locator)]
        )
        assert EpubLoader().verify_blocks(
            path, facts.text, [replace(block, locator="part=other;xpath=/html/body/h1")]
        )


@pytest.mark.parametrize(
    ("changed", "code"),
    [
        ({"META-INF__container.xml": None}, "broken_file"),
        ({"OEBPS__b.opf": "<broken"}, "broken_file"),
        ({"OEBPS__ch1.xhtml": "<html/>", "OEBPS__ch 2.xhtml": "<html/>"}, "empty_file"),
        (
            {
                "META-INF__encryption.xml": ENCRYPTED.format(
                    "http://www.w3.org/2001/04/xmlenc#aes128-cbc", "OEBPS/ch1.xhtml"
                )
            },
            "encrypted",
        ),
        ({"OEBPS__big.bin": "0" * 90_000_000}, "archive_bomb"),
    ],
)
def test_what_cannot_be_read_is_refused(
    tmp_path: Path, changed: dict[str, str | None], code: str
) -> None:
    with pytest.raises(DocumentError) as caught:
        EpubLoader().load(book(tmp_path / "a.epub", **changed), "a.epub")
    assert caught.value.code == code and "Error" not in caught.value.message


def test_hidden_fonts_lock_no_book(tmp_path: Path) -> None:
    fonts = ENCRYPTED.format("http://www.idpf.org/2008/embedding", "OEBPS/font.otf")
    assert (
        EpubLoader()
        .load(book(tmp_path / "a.epub", **{"META-INF__encryption.xml": fonts}), "a.epub")
        .blocks
    )
