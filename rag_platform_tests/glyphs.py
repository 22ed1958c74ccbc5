"""PDFs glyph by glyph: each with the meaning that the file gives it, at a place of its own."""

from __future__ import annotations

from pathlib import Path

import pymupdf

Glyph = tuple[str, float, float]  # what the file says it means, left edge, width


def write_glyphs(path: Path, *lines: list[Glyph], size: float = 12.0, simple: bool = False) -> Path:
    """A page of one font that is not embedded: each glyph stands at its own place, in the order
    given, 30 points a line.

    `simple`: of a font with one byte for each glyph, which PDFium reads too.
    """
    meanings = sorted({text for line in lines for text, _, _ in line})
    # glyphs that MuPDF's own font draws
    codes = {text: code for code, text in enumerate(meanings, 40)}
    widths = {codes[text]: width for line in lines for text, _, width in line}
    digits = 2 if simple else 4
    content, y = ["BT", f"/F {size:g} Tf"], 800
    for line in lines:
        content += [f"1 0 0 1 {x:g} {y} Tm <{codes[text]:0{digits}x}> Tj" for text, x, _ in line]
        y -= 30
    mapped = "\n".join(
        f"<{codes[text]:0{digits}x}> <{text.encode('utf-16-be').hex()}>" for text in meanings
    )
    unicode = (
        "/CIDInit /ProcSet findresource begin 12 dict begin begincmap /CMapType 2 def\n"
        f"1 begincodespacerange <{'0' * digits}> <{'f' * digits}> endcodespacerange\n"
        f"{len(meanings)} beginbfchar\n"
        f"{mapped}\n"
        f"endbfchar\n"
        f"endcmap end end"
    )
    wide = " ".join(f"{code} [{1000 * width / size:g}]" for code, width in widths.items())
    with pymupdf.open() as document:
        page = document.new_page(width=595, height=842)
        stream, meaning, descriptor, inner, font = (document.get_new_xref() for _ in range(5))
        for xref, source in ((stream, " ".join([*content, "ET"])), (meaning, unicode)):
            document.update_object(xref, "<<>>")
            document.update_stream(xref, source.encode())
        document.update_object(
            descriptor,
            "<</Type/FontDescriptor/FontName/Hand/Flags 4/FontBBox[0 -200 1000 800]/ItalicAngle"
            " 0/Ascent 800/Descent -200/StemV 80>>",
        )
        document.update_object(
            inner,
            "<</Type/Font/Subtype/CIDFontType2/BaseFont/Hand/CIDSystemInfo<</Registry(Adobe)/Ordering(Identity)/Supplement"
            f" 0>>/FontDescriptor {descriptor} 0 R/W[{wide}]>>",
        )
        each = " ".join(f"{1000 * widths.get(code, 0) / size:g}" for code in range(40, 256))
        document.update_object(
            font,
            (
                "<</Type/Font/Subtype/Type1/BaseFont/Helvetica/FirstChar 40/LastChar"
                f" 255/Widths[{each}]/ToUnicode {meaning} 0 R>>"
                if simple
                else (
                    f"<</Type/Font/Subtype/Type0/BaseFont/Hand/Encoding/Identity-H/DescendantFonts[{inner}"
                    f" 0 R]/ToUnicode {meaning} 0 R>>"
                )
            ),
        )
        document.xref_set_key(page.xref, "Contents", f"{stream} 0 R")
        document.xref_set_key(page.xref, "Resources", f"<</Font<</F {font} 0 R>>>>")
        document.save(path)
    return path


def name_glyphs(path: Path, first: int, last: int, text: str) -> None:
    """Let the page say beside its glyphs `first` to `last`, from 0 on, what they mean together."""
    with pymupdf.open(path) as document:
        [xref] = document[0].get_contents()
        glyphs = document.xref_stream(xref).split(b"1 0 0 1 ")  # before each of them
        said = f"/Span <</ActualText <FEFF{text.encode('utf-16-be').hex()}>>> BDC "
        glyphs[first] += said.encode()
        glyphs[last + 1] = glyphs[last + 1].replace(b"Tj", b"Tj EMC")
        document.update_stream(xref, b"1 0 0 1 ".join(glyphs))
        document.saveIncr()


def seen(text: str, x: float = 100.0, width: float = 6.0) -> list[Glyph]:
    """Glyphs set one after the other from left to right."""
    return [(char, x + i * width, width) for i, char in enumerate(text)]
