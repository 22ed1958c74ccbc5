"""What several layers of a PDF decide together is read as it is shown."""

from __future__ import annotations

from pathlib import Path

import pymupdf
import pypdfium2
import pytest

from rag_platform.ir import HiddenText
from rag_platform.loaders.pdf.images import read_images
from rag_platform.loaders.pdf.mupdf import PdfLoader, page_texts
from rag_platform.loaders.pdf.opening import open_pdf
from rag_platform.loaders.pdf.printed.layers import open_page
from rag_platform.loaders.pdf.second_reading import reread

ON, OFF = "5 0 R", "6 0 R"
LAYERS = f"/OCProperties<</OCGs[{ON} {OFF}]/D<</OFF[{OFF}]>>>>"
FORM = "/Type/XObject/Subtype/Form/BBox[0 0 400 200]/Resources"
FONT = "/Font<</F 8 0 R>>"


def write_pdf(path: Path, *objects: str) -> Path:
    """A PDF of these objects, numbered from 1, of which the first is the catalog."""
    data, places = b"%PDF-1.7\n", []
    for number, text in enumerate(objects, 1):
        places.append(len(data))
        data += f"{number} 0 obj\n{text}\nendobj\n".encode()
    table = "".join(f"{place:010d} 00000 n \n" for place in places)
    size = len(objects) + 1
    path.write_bytes(
        data
        + f"xref\n0 {size}\n0000000000 65535 f \n{table}trailer<</Size {size}/Root 1 0 R>>\n"
        f"startxref\n{len(data)}\n%%EOF".encode()
    )
    return path


def stream(said: str, entries: str = "") -> str:
    return f"<<{entries}/Length {len(said)}>>stream\n{said}\nendstream"


def words(said: str, height: int) -> str:
    return f"BT /F 12 Tf 20 {height} Td ({said}) Tj ET "


def write_page(  # two layers, and the membership dictionary 7 that decides over a line
    path: Path, membership: str, *more: str, layers: str = LAYERS, drawn: str = "", page: str = ""
) -> Path:
    said = words("Plain words", 150) + f"/OC /M BDC {words('depend on layers', 100)}EMC {drawn}"
    return write_pdf(
        path / "page.pdf",
        f"<</Type/Catalog/Pages 2 0 R{layers}>>",
        # the resources are those of all pages
        f"<</Type/Pages/Kids[3 0 R]/Count 1/Resources<<{FONT}/Properties<</M 7 0 R>>{page}>>>>",
        "<</Type/Page/Parent 2 0 R/MediaBox[0 0 400 200]/Contents 4 0 R/Annots[9 0 R null]>>",
        stream(said),
        "<</Type/OCG/Name(on)>>",
        "<</Type/OCG/Name(off)>>",
        f"<</Type/OCMD{membership}>>",
        "<</Type/Font/Subtype/Type1/BaseFont/Helvetica>>",
        *more,
    )


def read(path: Path) -> tuple[str, str]:
    """(the words of the facts, the words that layers hide) of a file."""
    facts = PdfLoader(profile="fast").load(path, path.name)
    assert all((item.page, item.reason) == (1, "layer_off") for item in facts.summary.hidden)
    hidden = " ".join(item.text for item in facts.summary.hidden)
    return " ".join(facts.text.split()), hidden


def is_drawn(path: Path) -> bool:
    """Whether PDFium draws the line of the layers."""
    with pypdfium2.PdfDocument(path) as document:
        drawn = document[0].render(grayscale=True).to_numpy().squeeze()
    return bool((drawn[88:101, 20:120] < 128).any())


@pytest.mark.parametrize(
    ("membership", "shown"),
    [
        (f"/OCGs {ON}", True),
        (f"/OCGs {OFF}", False),
        (f"/OCGs[{ON} {OFF}]", True),
        (f"/OCGs[{ON} {OFF}]/P/AnyOn", True),
        (f"/OCGs[{OFF} {OFF}]/P/AnyOn", False),
        (f"/OCGs[{ON} {OFF}]/P/AllOn", False),
        (f"/OCGs[{ON} {ON}]/P/AllOn", True),
        (f"/OCGs[{OFF}]/P/AllOn", False),
        (f"/OCGs[{ON} {OFF}]/P/AnyOff", True),
        (f"/OCGs[{ON} {ON}]/P/AnyOff", False),
        (f"/OCGs[{OFF} {OFF}]/P/AnyOff", True),
        (f"/OCGs[{ON} {OFF}]/P/AllOff", False),
        (f"/OCGs[{ON}]/P/AllOff", False),
        (f"/OCGs[{OFF} {OFF}]/P/AllOff", True),
        (f"/VE[/Not {ON}]", False),
        (f"/VE[/Not {OFF}]", True),
        (f"/VE[/And {ON} {OFF}]", False),
        (f"/VE[/And {ON} {ON}]", True),
        (f"/VE[/Or {OFF} {OFF}]", False),
        (f"/VE[/Or {OFF} {ON}]", True),
        (f"/VE[/And[/Not {OFF}][/Or {OFF}[/Not {OFF}]]]", True),
        (f"/VE[/Or[/And {ON} {OFF}][/Not[/Not {OFF}]]]", False),
        # an expression counts before groups and a policy
        (f"/OCGs {ON}/VE[/Not {ON}]", False),
        (f"/OCGs {OFF}/P/AllOn/VE[/Not {OFF}]", True),
        # without a layer nothing is decided; what is not there is no layer
        ("", True),
        ("/OCGs[]", True),
        ("/OCGs[null 99 0 R]/P/AllOff", True),
        ("/OCGs null/P/AllOn", True),
        (f"/OCGs[{OFF} null]", False),
        (f"/OCGs[{OFF} 99 0 R]/P/AnyOff", True),
        (f"/OCGs[{ON} null]/P/AnyOff", False),
    ],
)
def test_a_membership_shows_what_its_condition_says(
    tmp_path: Path, membership: str, shown: bool
) -> None:
    path = write_page(tmp_path, membership)
    assert is_drawn(path) == shown
    found = ("Plain words depend on layers", "") if shown else ("Plain words", "depend on layers")
    assert read(path) == found


@pytest.mark.parametrize(
    ("membership", "shown"),
    [
        # PDFium asks no policy for a layer that is not in a list
        (f"/OCGs {OFF}/P/AllOff", True),
        (f"/OCGs {ON}/P/AnyOff", False),
        # and hides what it does not understand
        (f"/OCGs {ON}/P/Some", True),
        ("/VE[]", True),
        (f"/VE[/Xor {ON} {OFF}]", True),
        (f"/OCGs {ON}/VE[/Not]", True),
        (f"/OCGs {OFF}/VE[/Not null]", False),
        (f"/OCGs {OFF}/VE 3", False),
        (f"/VE {OFF}", True),
        # expressions that are a part of themselves, once or twice, or nearly without end
        ("/VE 10 0 R", True),
        (f"/OCGs {OFF}/VE 10 0 R", False),
        (f"/VE[/And {OFF} 10 0 R]", False),
        (f"/VE {'[/Not' * 30} {OFF}{']' * 30}", False),
        (f"/VE {'[/Not' * 300} {OFF}{']' * 300}", True),
        ("/OCGs 7 0 R", True),
        ("/OCGs[7 0 R]/P/AllOff", True),
        (f"/OCGs[7 0 R {OFF}]", False),
    ],
)
def test_a_membership_that_is_broken_or_has_no_end_costs_no_page(
    tmp_path: Path, membership: str, shown: bool
) -> None:
    path = write_page(tmp_path, membership, "null", "[/Or 10 0 R[/And 10 0 R 10 0 R]]")
    found = ("Plain words depend on layers", "") if shown else ("Plain words", "depend on layers")
    assert read(path) == found


def test_all_that_a_page_draws_may_depend_on_layers(tmp_path: Path) -> None:
    marked = f"/OC /N BDC {words('form', 60)}EMC "
    path = write_page(
        tmp_path,
        f"/OCGs[{ON} {OFF}]/P/AllOn",
        "<</Type/Annot/Subtype/Stamp/F 4/Rect[0 0 400 200]/OC 7 0 R/AP<</N 10 0 R>>>>",
        stream(words("stamp", 80), f"{FORM}<<{FONT}>>"),
        stream(words("group", 40), f"{FORM}<<{FONT}>>/OC<</Type/OCMD/VE[/Not {ON}]>>"),
        # a form that draws itself and another one
        stream(
            f"{marked}{words('Seen form', 20)}/X Do /Y Do",
            f"{FORM}<<{FONT}/Properties<</N 13 0 R>>/XObject<</X 11 0 R/Y 12 0 R>>>>",
        ),
        f"<</Type/OCMD/VE[/And {ON} {OFF}]>>",
        "<</Type/XObject/Subtype/Image/Width 4/Height 4/ColorSpace/DeviceGray/BitsPerComponent 8"
        "/OC 7 0 R/Length 16>>stream\n0123456789abcdef\nendstream",
        drawn="/A Do q 40 0 0 40 300 100 cm /I Do Q",
        page="/XObject<</A 12 0 R/I 14 0 R>>",
    )
    shown, hidden = read(path)
    assert shown == "Plain words Seen form"
    assert sorted(hidden.split()) == sorted("depend on layers form group stamp".split())
    assert PdfLoader(profile="fast").load(path, path.name).media == ()
    with pypdfium2.PdfDocument(path) as document:
        drawn = document[0].render(grayscale=True, may_draw_forms=False, draw_annots=False)
    rows = drawn.to_numpy().squeeze()
    lines = {height for height in (20, 40, 60, 80, 100, 150) if rows[196 - height].min() < 128}
    assert lines == {20, 150}


@pytest.mark.parametrize(
    "layers",
    [
        "",
        "/OCProperties 3",
        "/OCProperties<</OCGs[]/D<<>>>>",
        f"/OCProperties<</OCGs {OFF}/D<</OFF[{OFF}]>>>>",
        f"/OCProperties<</OCGs[{ON} {OFF}]>>",
        f"/OCProperties<</OCGs[{ON} {OFF}]/D 3>>",
        "/OCProperties<</OCGs[99 0 R null 3 [3]]/D<<>>>>",
    ],
)
def test_without_layers_nothing_is_hidden(tmp_path: Path, layers: str) -> None:
    path = write_page(tmp_path, f"/OCGs[{ON} {OFF}]", layers=layers)
    assert read(path) == ("Plain words depend on layers", "")


def test_layers_are_off_by_their_base_state(tmp_path: Path) -> None:
    layers = f"/OCProperties<</OCGs[{ON} {OFF}]/D<</BaseState/OFF/ON[{ON}]>>>>"
    path = write_page(tmp_path, f"/OCGs[{ON} {OFF}]/P/AnyOff", layers=layers)
    assert is_drawn(path)
    assert read(path) == ("Plain words depend on layers", "")


def test_a_page_is_drawn_proved_and_read_again_as_it_is_shown(tmp_path: Path) -> None:
    path = write_page(tmp_path, f"/OCGs[{ON} {OFF}]/P/AllOn")
    loader = PdfLoader(profile="fast")
    facts = loader.load(path, path.name)
    assert facts.summary.hidden == (HiddenText(1, "layer_off", "depend on layers"),)
    assert loader.verify_blocks(path, facts.text, facts.blocks) == {}
    assert reread(path, "pdf", facts.text, facts.blocks) == ({}, {})
    assert [text.split() for _, text in page_texts(path, 0, 1)] == [["Plain", "words"]]
    ((_, image),) = read_images(path, ["pdf:page=1;dpi=72;pixels=4000000"])
    assert isinstance(image, bytes)
    drawn = pymupdf.Pixmap(image)
    assert drawn.pixel(22, 45) != drawn.pixel(0, 0)
    assert {drawn.pixel(x, y) for x in range(20, 120) for y in range(88, 101)} == {(255,)}


def test_the_pages_before_and_behind_are_read_alike(tmp_path: Path) -> None:
    said = "/OC /M BDC " + words("{}", 100) + "EMC"
    path = write_pdf(
        tmp_path / "pages.pdf",
        f"<</Type/Catalog/Pages 2 0 R{LAYERS}>>",
        "<</Type/Pages/Kids[9 0 R 11 0 R 13 0 R]/Count 3>>",
        f"<</Type/OCMD/OCGs[{ON} {OFF}]/P/AnyOff>>",
        f"<</Type/OCMD/OCGs[{ON} {OFF}]/P/AllOn>>",
        "<</Type/OCG/Name(on)>>",
        "<</Type/OCG/Name(off)>>",
        "<<>>",
        "<</Type/Font/Subtype/Type1/BaseFont/Helvetica>>",
        *(
            text
            for number, (word, member) in enumerate((("one", 3), ("two", 4), ("three", 3)))
            for text in (
                f"<</Type/Page/Parent 2 0 R/MediaBox[0 0 400 200]/Contents {10 + 2 * number} 0 R"
                f"/Resources<<{FONT}/Properties<</M {member} 0 R>>>>>>",
                stream(said.format(word)),
            )
        ),
    )
    with open_pdf(path) as document:
        for _ in range(2):
            texts = [open_page(document, number).get_text().strip() for number in range(3)]
            assert texts == ["one", "", "three"]


def test_a_file_without_layers_is_left_as_it_is(tmp_path: Path) -> None:
    path = write_page(tmp_path, f"/OCGs[{ON} {OFF}]", layers="")
    with open_pdf(path) as document:
        before = [document.xref_object(number) for number in range(1, document.xref_length())]
        open_page(document, 0)
        after = [document.xref_object(number) for number in range(1, document.xref_length())]
    assert len(before) == 8 and before == after
