"""PowerPoint presentations: titles, texts, tables, pictures and notes, each block proved against
the XML of its slide.
"""

from __future__ import annotations

import io
import re
import zipfile
from dataclasses import replace
from pathlib import Path

import pptx
import pytest
from pptx.chart.data import CategoryChartData, XyChartData
from pptx.enum.chart import XL_CHART_TYPE
from pptx.opc.package import Part
from pptx.opc.packuri import PackURI
from pptx.util import Inches

from rag_platform.contract.markdown_views import format_locator
from rag_platform.errors import DocumentError
from rag_platform.loaders.office.slides import SlidesLoader
from rag_platform_tests.conftest import PICTURE

TEXT = """\
# Budget 预算

- First point
    - Detail of it
- See [the plan](https://example.org/plan)

| Unit | EUR |
| --- | --- |
| A\\|1 | 1000 |

![a red dot](part:ppt/media/image1.png)

> Say it slowly.
> Then stop.

# Slide 2

Only a box of text
"""


@pytest.fixture
def show(tmp_path: Path) -> Path:
    made = pptx.Presentation()
    made.core_properties.author, made.core_properties.title = "Ann", ""
    first = made.slides.add_slide(made.slide_layouts[1])
    first.shapes.title.text = "Budget 预算"
    body = first.placeholders[1].text_frame
    body.text = "First point"
    detail = body.add_paragraph()
    detail.text, detail.level = "Detail of it", 1
    run = body.add_paragraph().add_run()
    run.text = "See "
    link = body.paragraphs[2].add_run()
    link.text, link.hyperlink.address = "the plan", "https://example.org/plan"
    table = first.shapes.add_table(2, 2, Inches(1), Inches(1), Inches(4), Inches(1)).table
    for row, cells in enumerate((("Unit", "EUR"), ("A|1", "1000"))):
        for column, text in enumerate(cells):
            table.cell(row, column).text = text
    first.shapes.add_picture(io.BytesIO(PICTURE), Inches(1), Inches(3))._element._nvXxPr.cNvPr.set(
        "descr", "a red dot"
    )
    first.notes_slide.notes_text_frame.text = "Say it slowly.\nThen stop."
    second = made.slides.add_slide(made.slide_layouts[6])
    group = second.shapes.add_group_shape()
    group.shapes.add_textbox(
        Inches(1), Inches(1), Inches(2), Inches(1)
    ).text_frame.text = "Only a box of text"
    second._element.set("show", "0")
    made.save(str(tmp_path / "a.pptx"))
    return tmp_path / "a.pptx"


def test_slides_read_as_markdown(show: Path) -> None:
    facts = SlidesLoader().load(show, "a.pptx")
    assert facts.text == TEXT
    assert [block.locator for block in facts.blocks] == [
        "slide=1;shape=2",
        "slide=1;shape=3",
        "slide=1;shape=4",
        "slide=1;shape=5",
        "slide=1;notes",
        "slide=2",
        "slide=2;shape=3",
    ]
    assert [ref.origin_ref for ref in facts.media] == ["part:ppt/media/image1.png"]
    assert (
        facts.summary.title,
        facts.summary.metadata["slides"],
        facts.summary.metadata["author"],
    ) == ("Budget 预算", 2, "Ann")
    assert facts.summary.warnings == ("hidden slides were read too: 2",)
    assert SlidesLoader().verify_blocks(show, facts.text, facts.blocks) == {}


OLD = '<m xmlns="a"><cm><text>Ask Bo.</text></cm><cm><text/></cm><cm><text>Why?</text></cm></m>'
NEW = (
    '<m xmlns="b" xmlns:a="http://schemas.openxmlformats.org/drawingml/2006/main"><cm><replyLst>'
    "<reply><txBody><a:p><a:r><a:t>Because.</a:t></a:r></a:p></txBody></reply></replyLst><txBody>"
    "<a:p><a:r><a:t>Why</a:t></a:r></a:p><a:p><a:r><a:t>so?</a:t></a:r></a:p></txBody></cm></m>"
)


@pytest.mark.parametrize(
    ("xml", "said"), [(OLD, "> Ask Bo.\n> Why?\n"), (NEW, "> Why so?\n> Because.\n")]
)
def test_the_comments_on_a_slide_stand_behind_it(tmp_path: Path, xml: str, said: str) -> None:
    made = pptx.Presentation()
    slide = made.slides.add_slide(made.slide_layouts[5])
    slide.shapes.title.text = "Plan"
    name, package = PackURI("/ppt/comments/comment1.xml"), slide.part.package
    slide.part.relate_to(Part(name, "x/y", package, xml.encode()), "x/comments")
    made.save(str(tmp_path / "a.pptx"))
    facts = SlidesLoader().load(tmp_path / "a.pptx", "a.pptx")
    assert facts.text == f"# Plan\n\n{said}"
    assert facts.blocks[-1].locator == "slide=1;comments"
    assert format_locator("slide=1;comments") == "slide 1, comments"
    assert SlidesLoader().verify_blocks(tmp_path / "a.pptx", facts.text, facts.blocks) == {}


def test_shapes_that_are_switched_off_are_left_out(tmp_path: Path) -> None:
    made = pptx.Presentation()
    slide = made.slides.add_slide(made.slide_layouts[6])
    for text in ("Shown words", "Hidden words"):
        slide.shapes.add_textbox(0, 0, Inches(2), Inches(1)).text_frame.text = text
    slide.shapes[1]._element.nvSpPr.cNvPr.set("hidden", "1")
    made.save(str(tmp_path / "a.pptx"))
    facts = SlidesLoader().load(tmp_path / "a.pptx", "a.pptx")
    assert facts.text == "# Slide 1\n\nShown words\n"
    assert facts.summary.warnings == ("hidden shapes left out: 1",)


def test_shapes_that_share_an_id_are_proved(tmp_path: Path) -> None:
    made = pptx.Presentation()
    slide = made.slides.add_slide(made.slide_layouts[6])
    for text in ("Left caption", "Right caption"):
        box = slide.shapes.add_textbox(0, 0, Inches(2), Inches(1))
        box.text_frame.text, box._element.nvSpPr.cNvPr.id = text, 1
    made.save(str(tmp_path / "a.pptx"))
    facts = SlidesLoader().load(tmp_path / "a.pptx", "a.pptx")
    assert SlidesLoader().verify_blocks(tmp_path / "a.pptx", facts.text, facts.blocks) == {}
    places = [block.locator for block in facts.blocks]
    assert places == ["slide=1", "slide=1;shape=1", "slide=1;shape=1.2"]
    forged = facts.text.replace("Right", "Wrong")
    assert list(SlidesLoader().verify_blocks(tmp_path / "a.pptx", forged, facts.blocks)) == [2]


def test_a_forged_text_or_place_is_not_proved(show: Path) -> None:
    facts = SlidesLoader().load(show, "a.pptx")
    for number, block in enumerate(facts.blocks):
        at = next(i for i in range(block.start, block.end) if facts.text[i].isalnum())
        forged = f"{facts.text[:at]}Ж{facts.text[at + 1 :]}"
        assert SlidesLoader().verify_blocks(show, forged, [block]), block
        assert SlidesLoader().verify_blocks(
            show, facts.text, [replace(block, locator=facts.blocks[number - 1].locator)]
        ), block
        assert SlidesLoader().verify_blocks(
            show, facts.text, [replace(block, locator="slide=9;shape=2")]
        ), block


def test_text_that_is_not_read_is_told(show: Path, tmp_path: Path) -> None:
    with zipfile.ZipFile(show) as old, zipfile.ZipFile(tmp_path / "b.pptx", "w") as new:
        for name in old.namelist():
            data = old.read(name)
            if name == "ppt/slides/slide2.xml":
                extra = (
                    b"<mc:AlternateContent"
                    b' xmlns:mc="http://schemas.openxmlformats.org/markup-compatibility/2006"><a:t>lost</a:t>'
                )
                data = data.replace(b"</p:spTree>", extra + b"</mc:AlternateContent></p:spTree>")
            new.writestr(name, data)
    facts = SlidesLoader().load(tmp_path / "b.pptx", "b.pptx")
    assert (
        "slide 2: letters in formulas or other objects that were not read: 4"
        in facts.summary.warnings
    )


def change(path: Path, target: Path, **edits: tuple[bytes, bytes]) -> Path:
    """The presentation with bytes replaced in the parts whose names hold those of the edits."""
    with zipfile.ZipFile(path) as old, zipfile.ZipFile(target, "w") as new:
        for name in old.namelist():
            data = old.read(name)
            for part, (before, after) in edits.items():
                data = data.replace(before, after) if part in name else data
            new.writestr(name, data)
    return target


@pytest.mark.parametrize("kind", ["slideshow", "template", "strict"])
def test_slide_shows_templates_and_strict_files_are_read(
    show: Path, tmp_path: Path, kind: str
) -> None:
    main = b"presentation.main+xml"
    path = change(
        show, tmp_path / "b.ppsx", Content=(main, main.replace(b"presentation", kind.encode()))
    )
    if kind == "strict":
        path = show
        for name in ("officeDocument", "presentationml", "drawingml"):
            usual = f"http://schemas.openxmlformats.org/{name}/2006/".encode()
            strict = f"http://purl.oclc.org/ooxml/{name}/".encode()
            path = change(path, tmp_path / f"{name}.ppsx", **{"": (usual, strict)})
    facts = SlidesLoader().load(path, "b.ppsx")
    assert facts.text == TEXT
    assert SlidesLoader().verify_blocks(path, facts.text, facts.blocks) == {}


def test_the_title_that_powerpoint_gives_is_none(show: Path) -> None:
    made = pptx.Presentation(str(show))
    for name in ("PowerPoint Presentation", "PowerPoint 演示文稿", "幻灯片 1"):
        made.core_properties.title = name
        made.save(str(show))
        assert SlidesLoader().load(show, "a.pptx").summary.title == "Budget 预算"


def test_a_picture_in_place_of_the_title_is_read(tmp_path: Path) -> None:
    made = pptx.Presentation()
    slide = made.slides.add_slide(made.slide_layouts[8])
    slide.placeholders[1].insert_picture(io.BytesIO(PICTURE))
    slide.placeholders[2].text = "Caption"
    slide.shapes._spTree.remove(slide.shapes.title._element)
    made.save(str(tmp_path / "a.pptx"))
    end = b"</mc:AlternateContent><p:spPr"
    # as a Mac writes it, with a PDF first that others cannot show
    alternatives = (
        b'<mc:AlternateContent xmlns:mc="http://schemas.openxmlformats.org/markup-compatibility/2006">'
        b'<mc:Choice Requires="ma"><p:blipFill><a:blip r:embed="rId99"/></p:blipFill></mc:Choice>'
        b"<mc:Fallback><p:blipFill>"
    )
    slide1 = change(
        change(tmp_path / "a.pptx", tmp_path / "b.pptx", slide1=(b'type="pic"', b'type="title"')),
        tmp_path / "c.pptx",
        slide1=(b"<p:blipFill>", alternatives),
    )
    closed = change(
        slide1,
        tmp_path / "d.pptx",
        slide1=(
            b"</p:blipFill><p:spPr",
            b"</p:blipFill></mc:Fallback>" + end,
        ),
    )
    facts = SlidesLoader().load(closed, "d.pptx")
    assert facts.text == "# Slide 1\n\n![image.png](part:ppt/media/image1.png)\n\nCaption\n"
    assert SlidesLoader().verify_blocks(closed, facts.text, facts.blocks) == {}


def test_diagrams_are_lists_in_the_order_of_their_connections(show: Path, tmp_path: Path) -> None:
    names = (
        'xmlns:dgm="http://schemas.openxmlformats.org/drawingml/2006/diagram"'
        ' xmlns:a="http://schemas.openxmlformats.org/drawingml/2006/main"'
    )
    points = "".join(
        f'<dgm:pt modelId="{name}"><dgm:t><a:p><a:r><a:t>{words}</a:t></a:r></a:p></dgm:t></dgm:pt>'
        for name, words in (("c", "Build"), ("b", "Plan"), ("d", "Draw"), ("x", "Not shown"))
    )
    links = "".join(
        f'<dgm:cxn srcId="{above}" destId="{below}" srcOrd="{order}"/>'
        for above, below, order in (("a", "c", 1), ("a", "b", 0), ("b", "d", 0))
    )
    (tmp_path / "data.xml").write_text(
        f'<dgm:dataModel {names}><dgm:ptLst><dgm:pt modelId="a" type="doc"/>{points}</dgm:ptLst>'
        f"<dgm:cxnLst>{links}</dgm:cxnLst></dgm:dataModel>"
    )
    frame = (
        f'<p:graphicFrame><p:nvGraphicFramePr><p:cNvPr id="77" name=""/><p:cNvGraphicFramePr/>'
        f'<p:nvPr/></p:nvGraphicFramePr><a:graphic><a:graphicData uri="d">'
        f'<dgm:relIds {names} r:dm="rId77"/>'
        "</a:graphicData></a:graphic></p:graphicFrame></p:spTree>"
    )
    relation = (
        '<Relationship Id="rId77" Target="../diagrams/data1.xml" Type="http://schemas'
        '.openxmlformats.org/officeDocument/2006/relationships/diagramData"/></Relationships>'
    )
    path = change(show, tmp_path / "b.pptx", slide2=(b"</p:spTree>", frame.encode()))
    path = change(
        path,
        tmp_path / "c.pptx",
        **{"slides/_rels/slide2": (b"</Relationships>", relation.encode())},
    )
    with zipfile.ZipFile(path, "a") as archive:
        archive.write(tmp_path / "data.xml", "ppt/diagrams/data1.xml")
    facts = SlidesLoader().load(path, "c.pptx")
    assert facts.text == f"{TEXT}\n- Plan\n    - Draw\n- Build\n"
    assert facts.summary.warnings == ("hidden slides were read too: 2",)
    assert SlidesLoader().verify_blocks(path, facts.text, facts.blocks) == {}
    forged = facts.text.replace("Draw", "Brew")
    assert list(SlidesLoader().verify_blocks(path, forged, facts.blocks)) == [len(facts.blocks) - 1]


@pytest.mark.parametrize(("kept", "code"), [(400, "broken_file"), (None, "broken_file")])
def test_a_damaged_presentation_is_refused(
    show: Path, tmp_path: Path, kept: int | None, code: str
) -> None:
    path = tmp_path / "b.pptx"
    if kept:
        path.write_bytes(show.read_bytes()[:-kept])
    else:
        with zipfile.ZipFile(show) as old, zipfile.ZipFile(path, "w") as new:
            for name in old.namelist():
                new.writestr(name, b"<broken" if name == "ppt/presentation.xml" else old.read(name))
    with pytest.raises(DocumentError) as caught:
        SlidesLoader().load(path, "b.pptx")
    assert caught.value.code == code and "Error" not in caught.value.message


def test_a_bomb_and_a_password_are_refused(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "a.pptx", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("[Content_Types].xml", "<x/>")
        archive.writestr("ppt/slides/slide1.xml", b" " * 60_000_000)
    (tmp_path / "b.pptx").write_bytes(
        b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + "EncryptedPackage".encode("utf-16-le")
    )
    for name, code in (("a.pptx", "archive_bomb"), ("b.pptx", "encrypted")):
        with pytest.raises(DocumentError) as caught:
            SlidesLoader().load(tmp_path / name, name)
        assert caught.value.code == code


def test_the_text_of_a_merged_cell_stands_in_all_its_places(tmp_path: Path) -> None:
    show = pptx.Presentation()
    slide = show.slides.add_slide(show.slide_layouts[6])
    table = slide.shapes.add_table(3, 3, Inches(1), Inches(1), Inches(4), Inches(1)).table
    for row, texts in enumerate(
        (("Wool", "fine", "11"), ("", "coarse", "21"), ("Total", "", "32"))
    ):
        for column, text in enumerate(texts):
            table.cell(row, column).text = text
    table.cell(0, 0).merge(table.cell(1, 0))
    table.cell(2, 0).merge(table.cell(2, 1))
    path = tmp_path / "a.pptx"
    show.save(str(path))
    facts = SlidesLoader().load(path, "a.pptx")
    assert facts.text.split("\n")[-4:-1] == [
        "| --- | --- | --- |",
        "| Wool | coarse | 21 |",
        "| Total | Total | 32 |",
    ]
    assert SlidesLoader().verify_blocks(path, facts.text, facts.blocks) == {}
    assert SlidesLoader().verify_blocks(path, facts.text.replace("21", "27"), facts.blocks)


@pytest.mark.parametrize(
    ("own", "axis", "labels", "read"),
    [
        ("0%", None, None, ["25%", "7.25%", "120%"]),
        ("General", "0.0 %", None, ["25%", "7.25%", "120%"]),
        ("General", None, "0%", ["25%", "7.25%", "120%"]),
        ('0.00"% of all"', "General", None, ["0.25", "0.0725", "1.2"]),
        # what stands for the share of the whole
        ("stacked", "0%", None, ["0.25", "0.0725", "1.2"]),
        ("shares", None, "0%", ["0.25", "0.0725", "1.2"]),
    ],
)
def test_figures_that_a_chart_shows_as_percent_read_as_percent(
    tmp_path: Path, own: str, axis: str | None, labels: str | None, read: list[str]
) -> None:
    figures = CategoryChartData(number_format="General" if own.isalpha() else own)
    figures.categories = ["North", "South", "West"]
    figures.add_series("2024", (0.25, 0.0725, 1.2))
    show = pptx.Presentation()
    slide = show.slides.add_slide(show.slide_layouts[6])
    kind = XL_CHART_TYPE[f"COLUMN_{'STACKED_100' if own == 'stacked' else 'CLUSTERED'}"]
    drawn = slide.shapes.add_chart(kind, 0, 0, 9, 9, figures).chart
    if axis:
        drawn.value_axis.tick_labels.number_format = axis
    if labels:
        drawn.plots[0].has_data_labels = True
        drawn.plots[0].data_labels.number_format = labels
        drawn.plots[0].data_labels.show_percentage = own == "shares"
    path = tmp_path / "a.pptx"
    show.save(str(path))
    facts = SlidesLoader().load(path, "a.pptx")
    assert SlidesLoader().verify_blocks(path, facts.text, facts.blocks) == {}
    assert [line.split(" | ")[1][:-2] for line in facts.text.strip().split("\n")[-3:]] == read


def test_a_chart_is_a_table_of_its_figures(tmp_path: Path) -> None:
    show = pptx.Presentation()
    slide = show.slides.add_slide(show.slide_layouts[6])
    figures = CategoryChartData()
    figures.categories = ["North", "西部"]
    figures.add_series("2023", (4.5, None))
    figures.add_series("2024", (1_200_000, 0.125))
    place = Inches(1), Inches(1), Inches(4), Inches(3)
    drawn = slide.shapes.add_chart(XL_CHART_TYPE.COLUMN_CLUSTERED, *place, figures).chart
    drawn.has_title = True
    drawn.chart_title.text_frame.text = "Sales by region"
    drawn.value_axis.axis_title.text_frame.text = "Million euro"
    drawn.category_axis.axis_title.text_frame.text = "Where"
    points = XyChartData()
    points.add_series("m").add_data_point(1, 2)
    slide.shapes.add_chart(XL_CHART_TYPE.XY_SCATTER, *place, points)
    path = tmp_path / "a.pptx"
    show.save(str(path))
    facts = SlidesLoader().load(path, "a.pptx")
    assert facts.text.split("\n\n")[1] == (
        "| Sales by region; Where; Million euro | 2023 | 2024 |\n| --- | --- | --- |\n"
        "| North | 4.5 | 1200000 |\n| 西部 |  | 0.125 |\n"
    )
    assert facts.summary.warnings == ("charts that were not read: 1",)
    assert SlidesLoader().verify_blocks(path, facts.text, facts.blocks) == {}
    assert SlidesLoader().verify_blocks(path, facts.text.replace("4.5", "4.6"), facts.blocks)


@pytest.mark.parametrize(
    ("old", "new", "row"),
    [
        (b"c:pieChart", b"c:area3DChart", "North | 4.5"),
        (b"c:pieChart", b"c:surfaceChart", "North | 4.5"),
        (b"c:pieChart", b"c:stockChart", "North | 4.5"),
        (b"c:pieChart", b"c:ofPieChart", "North | 4.5"),
        (b"c:pieChart", b"c:futureChart", ""),
        (rb'<c:pt idx="0">\s*<c:v>North</c:v>\s*</c:pt>', b"", " | 4.5"),
        (b"4.5</c:v>", b"4.5x</c:v>", ""),
    ],
)
def test_a_chart_of_a_rare_kind_is_read_and_a_strange_one_counted(
    tmp_path: Path, old: bytes, new: bytes, row: str
) -> None:
    show = pptx.Presentation()
    slide = show.slides.add_slide(show.slide_layouts[5])
    slide.shapes.title.text = "Sales"
    figures = CategoryChartData()
    figures.categories = ["North"]
    figures.add_series("2024", (4.5,))
    slide.shapes.add_chart(XL_CHART_TYPE.PIE, 0, 0, 9, 9, figures)
    show.save(str(tmp_path / "a.pptx"))
    path = tmp_path / "b.pptx"
    with zipfile.ZipFile(tmp_path / "a.pptx") as first, zipfile.ZipFile(path, "w") as second:
        for name in first.namelist():
            data = first.read(name)
            chart = name.startswith("ppt/charts/chart")
            second.writestr(name, re.sub(old, new, data) if chart else data)
    facts = SlidesLoader().load(path, path.name)
    said = f"\n|  | 2024 |\n| --- | --- |\n| {row} |\n" if row else ""
    assert facts.text == f"# Sales\n{said}"
    assert facts.summary.warnings == (() if row else ("charts that were not read: 1",))
    assert SlidesLoader().verify_blocks(path, facts.text, facts.blocks) == {}


def test_a_shape_with_a_formula_is_read_in_its_place(show: Path, tmp_path: Path) -> None:
    names = (
        b'xmlns:mc="http://schemas.openxmlformats.org/markup-compatibility/2006"'
        b' xmlns:a14="http://schemas.microsoft.com/office/drawing/2010/main"'
        b' xmlns:m="http://schemas.openxmlformats.org/officeDocument/2006/math"'
    )
    formula = b"<a14:m><m:oMath><m:sSup><m:e><m:r><m:t>c</m:t></m:r></m:e><m:sup><m:r><m:t>2</m:t>"
    formula += b"</m:r></m:sup></m:sSup></m:oMath></a14:m>"

    def box(text: bytes) -> bytes:
        return (
            b'<p:sp><p:nvSpPr><p:cNvPr id="77" name="t"/><p:cNvSpPr/><p:nvPr/></p:nvSpPr><p:spPr/>'
            b"<p:txBody><a:bodyPr/><a:p>" + text + b"</a:p></p:txBody></p:sp>"
        )

    said = b"<a:r><a:t>Energy is </a:t></a:r>" + formula
    both = b"<mc:AlternateContent " + names + b'><mc:Choice Requires="a14">' + box(said)
    both += b"</mc:Choice><mc:Fallback>" + box(b"<a:r><a:t> </a:t></a:r>")
    both += b"</mc:Fallback></mc:AlternateContent>"
    path = change(show, tmp_path / "b.pptx", slide2=(b"<p:grpSp>", both + b"<p:grpSp>"))
    facts = SlidesLoader().load(path, "b.pptx")
    assert facts.text.endswith("# Slide 2\n\nEnergy is c^2\n\nOnly a box of text\n")
    assert not [said for said in facts.summary.warnings if "not read" in said]
    assert SlidesLoader().verify_blocks(path, facts.text, facts.blocks) == {}
    forged = facts.text.replace("c^2", "c^3")
    assert SlidesLoader().verify_blocks(path, forged, facts.blocks)


def test_lists_have_the_numbers_that_are_shown(tmp_path: Path) -> None:
    show = pptx.Presentation()
    slide = show.slides.add_slide(show.slide_layouts[1])
    slide.shapes.title.text = "Start"
    lines = (
        ("Open the valve", 0, "arabicPeriod", ""),
        ("left one", 1, "alphaLcParenBoth", ""),
        ("right one", 1, "alphaLcParenBoth", ""),
        ("", 0, "arabicPeriod", ""),
        ("Start the pump", 0, "arabicPeriod", ""),
        ("Wait", 0, "", ""),
        ("Stop", 0, "arabicPeriod", ""),
        ("Drain", 0, "romanUcPeriod", "4"),
    )
    frame = slide.placeholders[1].text_frame
    for number, (text, level, kind, start) in enumerate(lines):
        paragraph = frame.add_paragraph() if number else frame.paragraphs[0]
        paragraph.text, paragraph.level = text, level
        if kind:
            properties = paragraph._p.get_or_add_pPr()
            numbering = properties.makeelement(properties.tag.replace("pPr", "buAutoNum"))
            numbering.set("type", kind)
            if start:
                numbering.set("startAt", start)
            properties.append(numbering)
    path = tmp_path / "a.pptx"
    show.save(str(path))
    facts = SlidesLoader().load(path, "a.pptx")
    assert facts.text == (
        "# Start\n\n1. Open the valve\n    - (a) left one\n    - (b) right one\n"
        "2. Start the pump\n- Wait\n1. Stop\n- IV. Drain\n"
    )
    assert facts.summary.warnings == ()
    assert SlidesLoader().verify_blocks(path, facts.text, facts.blocks) == {}


def text_of_boxes(folder: Path, *boxes: tuple[str, float, float, float, float], rtl: bool = False):
    """What is read of text boxes drawn in this order, with their left, top, width, height."""
    made = pptx.Presentation()
    shapes = made.slides.add_slide(made.slide_layouts[6]).shapes
    for text, *place in boxes:
        box = shapes.add_textbox(*(Inches(length) for length in place))
        box.text_frame.text = text
        box.text_frame.paragraphs[0]._p.get_or_add_pPr().set("rtl", str(int(rtl)))
    made.save(str(folder / "a.pptx"))
    return SlidesLoader().load(folder / "a.pptx", "a.pptx").text.split("\n\n")[1:]


def test_boxes_are_read_by_their_places_and_as_drawn_where_these_leave_it_open(
    tmp_path: Path,
) -> None:
    title, note = ("Title", 0.5, 0.3, 9, 1), ("Note", 0.5, 6.5, 9, 0.5)
    step = [(f"Step {at}", 3.1 * at, 2, 3, 1) for at in range(3)]
    assert text_of_boxes(tmp_path, note, step[2], step[0], title, step[1]) == [
        *("Title", "Step 0", "Step 1", "Step 2", "Note\n")
    ]
    grid = [
        (f"{side}{row}", 5 * at, 2.0 * row, 4, 1) for at, side in enumerate("LR") for row in (0, 1)
    ]
    assert text_of_boxes(tmp_path, *grid) == ["L0", "L1", "R0", "R1\n"]
    by_row = sorted(grid, key=lambda box: box[2])
    assert text_of_boxes(tmp_path, *by_row) == ["L0", "R0", "L1", "R1\n"]
    assert text_of_boxes(tmp_path, *step[:2], rtl=True) == ["Step 1", "Step 0\n"]
    over = ("Callout", 0, 5.0, 2, 0.5), ("Body", 0, 1.0, 4, 5), ("Tall", 5, 1.0, 4, 5)
    assert text_of_boxes(tmp_path, *over[1:], over[0]) == ["Body", "Tall", "Callout\n"]
