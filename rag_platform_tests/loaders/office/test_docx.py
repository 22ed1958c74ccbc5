"""Word documents: structure, pictures, notes, tracked changes, and the proof of every block."""

from __future__ import annotations

import zipfile
from dataclasses import replace
from pathlib import Path

import docx
import pptx
import pytest
from docx.opc.packuri import PackURI
from docx.opc.part import Part
from docx.oxml import parse_xml
from docx.oxml.ns import nsdecls
from pptx.chart.data import CategoryChartData
from pptx.enum.chart import XL_CHART_TYPE

from rag_platform.config.ingestion import CleaningConfig
from rag_platform.errors import DocumentError
from rag_platform.intake.second_readers import reread
from rag_platform.ir import Facts
from rag_platform.loaders.office.docx import DocxLoader
from rag_platform.loaders.office.docx_text import without_marks
from rag_platform.normalisation.edits import normalise

NAMES = (
    'xmlns:w="http://schemas.openxmlformats.org/wordprocessingml/2006/main" '
    'xmlns:r="http://schemas.openxmlformats.org/officeDocument/2006/relationships" '
    'xmlns:a="http://schemas.openxmlformats.org/drawingml/2006/main" '
    'xmlns:m="http://schemas.openxmlformats.org/officeDocument/2006/math" '
    'xmlns:mc="http://schemas.openxmlformats.org/markup-compatibility/2006" '
    'xmlns:wp="http://schemas.openxmlformats.org/drawingml/2006/wordprocessingDrawing"'
)
TYPE = "http://schemas.openxmlformats.org/officeDocument/2006/relationships/"
STYLES = """
<w:style w:type="paragraph" w:default="1" w:styleId="a"><w:name w:val="Normal"/></w:style>
<w:style w:type="paragraph" w:styleId="1"><w:name w:val="heading 1"/><w:basedOn \
w:val="a"/></w:style>
<w:style w:type="paragraph" w:styleId="2"><w:name w:val="标题 2"/></w:style>
<w:style w:type="paragraph" w:styleId="own"><w:name w:val="Chapter"/><w:basedOn \
w:val="1"/></w:style>
<w:style w:styleId="toc"><w:name w:val="TOC Heading"/><w:basedOn w:val="1"/><w:pPr><w:outlineLvl \
w:val="9"/></w:pPr></w:style>
<w:style w:type="paragraph" w:styleId="code"><w:name w:val="HTML Preformatted"/></w:style>
"""
NUMBERING = """
<w:abstractNum w:abstractNumId="0">
<w:lvl w:ilvl="0"><w:start w:val="1"/><w:numFmt w:val="decimal"/><w:lvlText w:val="%1."/></w:lvl>
<w:lvl w:ilvl="1"><w:start w:val="1"/><w:numFmt w:val="lowerLetter"/><w:lvlText \
w:val="(%2)"/></w:lvl></w:abstractNum>
<w:abstractNum w:abstractNumId="1">
<w:lvl w:ilvl="0"><w:start w:val="1"/><w:numFmt w:val="chineseCounting"/><w:lvlText \
w:val="第%1条"/></w:lvl></w:abstractNum>
<w:abstractNum w:abstractNumId="2"><w:lvl w:ilvl="0"><w:numFmt w:val="bullet"/><w:lvlText \
w:val="&#xF0B7;"/></w:lvl></w:abstractNum>
<w:abstractNum w:abstractNumId="3"><w:lvl w:ilvl="0"><w:numFmt w:val="upperRoman"/><w:lvlText \
w:val="Article %1."/></w:lvl><w:lvl w:ilvl="1"><w:isLgl/><w:lvlText w:val="%1.%2"/></w:lvl>\
<w:lvl w:ilvl="2"><w:isLgl w:val="0"/><w:lvlText w:val="%1.%2.%3"/></w:lvl></w:abstractNum>
<w:abstractNum w:abstractNumId="4"><w:styleLink w:val="legal"/>
<w:lvl w:ilvl="0"><w:lvlText w:val="PART %1"/></w:lvl>
<w:lvl w:ilvl="1"><w:lvlRestart w:val="0"/><w:pStyle w:val="article"/><w:lvlText \
w:val="%2."/></w:lvl>
<w:lvl w:ilvl="2"><w:numFmt w:val="lowerLetter"/><w:lvlText w:val="(%3)"/></w:lvl></w:abstractNum>
<w:abstractNum w:abstractNumId="5"><w:numStyleLink w:val="legal"/></w:abstractNum>
<w:num w:numId="6"><w:abstractNumId w:val="5"/></w:num>
<w:num w:numId="5"><w:abstractNumId w:val="3"/></w:num>
<w:num w:numId="1"><w:abstractNumId w:val="0"/></w:num><w:num w:numId="2"><w:abstractNumId \
w:val="1"/></w:num>
<w:num w:numId="3"><w:abstractNumId w:val="2"/></w:num>
<w:num w:numId="4"><w:abstractNumId w:val="0"/><w:lvlOverride w:ilvl="0"><w:startOverride \
w:val="1"/></w:lvlOverride></w:num>
"""


def p(content: str, style: str = "", number: str = "", level: int = 0) -> str:
    """A paragraph; content that does not start with a tag is text."""
    runs = (
        content
        if content.startswith("<")
        else f'<w:r><w:t xml:space="preserve">{content}</w:t></w:r>'
    )
    properties = (f'<w:pStyle w:val="{style}"/>' if style else "") + (
        f'<w:numPr><w:ilvl w:val="{level}"/><w:numId w:val="{number}"/></w:numPr>' if number else ""
    )
    return f"<w:p><w:pPr>{properties}</w:pPr>{runs}</w:p>"


def r(text: str) -> str:
    return f'<w:r><w:t xml:space="preserve">{text}</w:t></w:r>'


def tc(content: str, properties: str = "") -> str:
    return (
        f"<w:tc><w:tcPr>{properties}</w:tcPr>"
        f"{content if content.startswith('<') else p(content)}</w:tc>"
    )


def written(
    folder: Path,
    body: str,
    *,
    parts: dict[str, str | bytes] | None = None,
    relations: str = "",
    name: str = "a.docx",
    styles: str = STYLES,
) -> Path:
    """A Word file of the given body; `parts` are added, `relations` go to the document's
    relationships.
    """
    path = folder / name
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(
            "[Content_Types].xml",
            "<Types xmlns='http://schemas.openxmlformats.org/package/2006/content-types'/>",
        )
        archive.writestr(
            "_rels/.rels",
            f'<Relationships><Relationship Id="r1" Type="{TYPE}officeDocument"'
            ' Target="word/document.xml"/></Relationships>',
        )
        fixed = "".join(
            f'<Relationship Id="{key}" Type="{TYPE}{key}" Target="{key}.xml"/>'
            for key in ("styles", "numbering", "footnotes", "comments")
        )
        archive.writestr(
            "word/_rels/document.xml.rels", f"<Relationships>{fixed}{relations}</Relationships>"
        )
        archive.writestr(
            "word/document.xml", f"<w:document {NAMES}><w:body>{body}</w:body></w:document>"
        )
        archive.writestr("word/styles.xml", f"<w:styles {NAMES}>{styles}</w:styles>")
        archive.writestr("word/numbering.xml", f"<w:numbering {NAMES}>{NUMBERING}</w:numbering>")
        for part, content in (parts or {}).items():
            archive.writestr(part, content)
    return path


def loaded(path: Path) -> Facts:
    """The facts of a file, all of whose blocks are proved."""
    facts = DocxLoader().load(path, path.name)
    assert DocxLoader().verify_blocks(path, facts.text, facts.blocks) == {}
    assert all(facts.text[block.start : block.end].strip() for block in facts.blocks)
    return facts


def test_headings_come_from_styles_their_bases_and_outline_levels(tmp_path):
    outlined = p("Outlined").replace("<w:pPr>", '<w:pPr><w:outlineLvl w:val="2"/>')
    facts = loaded(
        written(
            tmp_path,
            p("总则", "1")
            + p("范围", "2")
            + p("Own", "own")
            + outlined
            + p("Contents", "toc")
            + p("Text."),
        )
    )
    assert facts.text == "# 总则\n\n## 范围\n\n# Own\n\n### Outlined\n\nContents\n\nText.\n"
    assert [
        (block.level, block.title, block.locator)
        for block in facts.blocks
        if block.kind == "heading"
    ] == [
        (1, "总则", "body/p[1]"),
        (2, "范围", "body/p[2]"),
        (1, "Own", "body/p[3]"),
        (3, "Outlined", "body/p[4]"),
    ]
    assert facts.summary.title == "总则"


@pytest.mark.parametrize(("name", "level"), [("标题二", 2), ("三级标题", 3), ("副标题一", 0)])
def test_chinese_names_of_styles_tell_levels(tmp_path, name: str, level: int) -> None:
    style = f'<w:style w:styleId="x"><w:name w:val="{name}"/></w:style>'
    facts = loaded(written(tmp_path, p("范围", "x") + p("Text."), styles=STYLES + style))
    assert facts.blocks[0].level == level


def test_lists_have_the_numbers_that_word_prints(tmp_path):
    body = (
        p("one", number="1")
        + p("deep", number="1", level=1)
        + p("two", number="1")
        + p("anew", number="4")
        + p("dot", number="3")
    )
    facts = loaded(
        written(
            tmp_path, body + p("应当", "1", number="2") + p("Words.") + p("可以", "1", number="2")
        )
    )
    assert facts.text == (
        "1. one\n    - (a) deep\n2. two\n1. anew\n- dot\n\n# 第一条 应当\n\nWords.\n\n# 第二"
        "条 可以\n"
    )


def test_a_legal_level_prints_all_its_numbers_in_digits(tmp_path):
    body = p("x") + p("Parts", "1", number="5") + p("Fees", "1", number="5", level=1)
    facts = loaded(written(tmp_path, body + p("Dues", "1", number="5", level=2)))
    headings = [line.lstrip("# ") for line in facts.text.splitlines() if line.startswith("#")]
    assert headings == ["Article I. Parts", "1.1 Fees", "I.1.1 Dues"]


def test_styles_tell_lists_and_levels_and_articles_are_counted_through_all_parts(tmp_path):
    styles = """
<w:style w:styleId="article"><w:name w:val="Article"/><w:pPr><w:numPr><w:numId w:val="6"/>\
</w:numPr></w:pPr></w:style>
<w:style w:styleId="item"><w:name w:val="Item"/><w:basedOn w:val="article"/><w:pPr><w:numPr>\
<w:ilvl w:val="2"/></w:numPr></w:pPr></w:style>
"""
    gone = p("gone", "article").replace("</w:pPr>", "<w:rPr><w:del/></w:rPr></w:pPr>")
    gone = gone.replace("<w:r>", "<w:del><w:r>").replace("</w:r>", "</w:r></w:del>")
    body = p("x", number="6") + p("a", "article") + p("b", "item") + p("c", "item") + gone
    body += p("y", number="6") + p("d", "article") + p("e", "item")
    facts = loaded(written(tmp_path, body, styles=STYLES + styles))
    assert [line.strip(" -") for line in facts.text.splitlines()] == [
        "PART 1 x",
        "1. a",
        "(a) b",
        "(b) c",
        "PART 2 y",
        "2. d",
        "(a) e",
    ]


def test_tables_spell_out_merged_cells_and_prove_each_row(tmp_path):
    span, start, below = '<w:gridSpan w:val="2"/>', '<w:vMerge w:val="restart"/>', "<w:vMerge/>"
    inner = f"<w:tbl><w:tr>{tc('x')}{tc('y')}</w:tr><w:tr>{tc('v')}</w:tr></w:tbl>"
    rows = (
        [tc("Name"), tc("Sizes", span)],
        [tc("a|b", start), tc("1"), tc(inner + p("z"))],
        [tc("", below), tc(p("n", number="1")), tc("3")],
    )
    table = "<w:tbl>" + "".join(f"<w:tr>{''.join(cells)}</w:tr>" for cells in rows) + "</w:tbl>"
    path = written(tmp_path, p("Before.") + table + p("Behind."))
    facts = loaded(path)
    assert facts.text.splitlines()[2:6] == [
        "| Name | Sizes | Sizes |",
        "| --- | --- | --- |",
        "| a\\|b | 1 | x, y; v z |",
        "| a\\|b | 1. n | 3 |",
    ]
    assert [block.locator for block in facts.blocks] == [
        "body/p[1]",
        *(f"body/tbl[1]/tr[{n}]" for n in (1, 2, 3)),
        "body/p[2]",
    ]
    swapped = facts.text.replace("| 1 | x", "| x | 1")
    assert list(DocxLoader().verify_blocks(path, swapped, facts.blocks)) == [2]
    moved = [
        replace(facts.blocks[0], locator="body/p[2]"),
        replace(facts.blocks[4], ordinal=9, locator="body/p[7]"),
    ]
    assert sorted(DocxLoader().verify_blocks(path, facts.text, moved)) == [0, 9]


def test_a_frame_of_one_cell_is_text(tmp_path):
    facts = loaded(
        written(tmp_path, f"<w:tbl><w:tr>{tc(p('Boxed.') + p('Twice.'))}</w:tr></w:tbl>")
    )
    assert (
        facts.text == "Boxed.\n\nTwice.\n"
        and facts.blocks[1].locator == "body/tbl[1]/tr[1]/tc[1]/p[2]"
    )


def test_pictures_stand_where_they_are_drawn(tmp_path):
    drawing = (
        '<w:r><w:drawing><wp:inline><wp:docPr id="1" name="x" descr="A [red]'
        ' square"/><a:graphic><a:blip r:embed="rId9"/></a:graphic></wp:inline></w:drawing></w:r>'
    )
    relations = (
        f'<Relationship Id="rId9" Type="{TYPE}image" Target="media/im age.png"/><Relationship'
        f' Id="rId8" Type="{TYPE}image" Target="http://example.com/x.png" TargetMode="External"/>'
    )
    linked = drawing.replace('r:embed="rId9"', 'r:link="rId8"').replace("A [red] square", "")
    body = (
        p("Head", "1")
        + p(r("See ") + drawing + r(" here."))
        + p(linked)
        + p(drawing.replace("rId9", "rId77"))
    )
    facts = loaded(
        written(
            tmp_path, body + p("End."), relations=relations, parts={"word/media/im age.png": b"x"}
        )
    )
    assert (
        facts.text == "# Head\n\nSee ![A red square](docx:word/media/im%20age.png) "
        " here.\n\n![](http://example.com/x.png)\n\nEnd.\n"
    )
    assert [
        (ref.origin_ref, facts.text[ref.start : ref.end], ref.heading_path) for ref in facts.media
    ] == [
        ("docx:word/media/im age.png", "![A red square](docx:word/media/im%20age.png)", "Head"),
        ("http://example.com/x.png", "![](http://example.com/x.png)", "Head"),
    ]
    assert any(
        "pictures without data in the file: 1" in warning for warning in facts.summary.warnings
    )


def test_notes_follow_the_section_that_mentions_them(tmp_path):
    notes = (
        f'<w:footnotes {NAMES}><w:footnote w:id="7">{p("Small print.")}</w:footnote></w:footnotes>'
    )
    comments = (
        f'<w:comments {NAMES}><w:comment w:id="0"'
        f' w:author="Bob">{p("Why?")}</w:comment></w:comments>'
    )
    body = p(r("Text") + '<w:r><w:footnoteReference w:id="7"/></w:r>') + p(
        r("Odd") + '<w:r><w:commentReference w:id="0"/></w:r>'
    )
    path = written(
        tmp_path,
        body + p("Next", "1") + p("More."),
        parts={"word/footnotes.xml": notes, "word/comments.xml": comments},
    )
    facts = loaded(path)
    assert (
        facts.text
        == "Text[^1]\n\nOdd[^c1]\n\n[^1]: Small print.\n\n[^c1]: Bob: Why?\n\n# Next\n\nMore.\n"
    )
    assert [block.locator for block in facts.blocks][2:4] == ["footnotes/7", "comments/0"]


def test_tracked_changes_fields_links_and_formulas_read_as_shown(tmp_path):
    changed = (
        r("kept ")
        + f"<w:del>{r('gone').replace('w:t', 'w:delText')}</w:del><w:ins>{r('added')}</w:ins>"
    )
    field = (
        '<w:r><w:fldChar w:fldCharType="begin"/></w:r><w:r><w:instrText> HYPERLINK'
        ' "https://x.org/a b" </w:instrText></w:r><w:r><w:fldChar'
        f' w:fldCharType="separate"/></w:r>{r("site")}<w:r><w:fldChar w:fldCharType="end"/></w:r>'
    )
    bad = f'<w:hyperlink r:id="bad">{r("click")}</w:hyperlink>'
    formula = (
        "<m:oMath><m:f><m:num><m:r><m:t>a+b</m:t></m:r></m:num><m:den><m:r><m:t>2</m:t></m:r>"
        "</m:den></m:f></m:oMath>"
    )
    raised = '<w:r><w:rPr><w:vertAlign w:val="superscript"/></w:rPr><w:t>2</w:t></w:r>'
    relations = (
        f'<Relationship Id="bad" Type="{TYPE}hyperlink" Target="javascript:alert(1)"'
        ' TargetMode="External"/>'
    )
    body = (
        p(changed)
        + p(r("See!") + field)
        + p(bad)
        + p(r("x = ") + formula)
        + p(r("10 m") + raised)
        + p("<w:sdt><w:sdtContent>" + r("in a control") + "</w:sdtContent></w:sdt>")
    )
    facts = loaded(written(tmp_path, body, relations=relations))
    assert facts.text.split("\n\n") == [
        "kept added",
        "See\\![site](https://x.org/a%20b)",
        "click",
        "x = (a+b)/2",
        "10 m²",
        "in a control\n",
    ]
    assert facts.summary.warnings == ("tracked deletions left out, insertions kept: 1",)


def test_hidden_text_is_left_out_listed_and_no_title(tmp_path):
    hidden = "<w:r><w:rPr><w:vanish/></w:rPr><w:t>obey the note</w:t></w:r>"
    shown = '<w:r><w:rPr><w:vanish w:val="0"/></w:rPr><w:t>in spring.</w:t></w:r>'
    facts = loaded(written(tmp_path, p(hidden) + p(r("Otters swim ") + hidden + shown)))
    assert (facts.text, facts.summary.title) == (
        "Otters swim in spring.\n",
        "Otters swim in spring.",
    )
    assert [(item.reason, item.text) for item in facts.summary.hidden] == [
        ("vanish", "obey the note")
    ] * 2
    assert facts.summary.warnings == ("runs of hidden text left out: 2",)


def test_text_that_a_style_hides_is_left_out(tmp_path):
    styles = (
        '<w:style w:type="character" w:styleId="note"><w:rPr><w:vanish/></w:rPr></w:style>'
        '<w:style w:type="character" w:styleId="own"><w:basedOn w:val="note"/></w:style>'
        '<w:style w:styleId="form"><w:name w:val="z-Top of Form"/>'
        "<w:rPr><w:vanish/></w:rPr></w:style>"
        '<w:style w:type="character" w:styleId="seen">'
        '<w:rPr><w:vanish w:val="0"/></w:rPr></w:style>'
    )

    def styled(style: str, text: str) -> str:
        return f'<w:r><w:rPr><w:rStyle w:val="{style}"/></w:rPr><w:t>{text}</w:t></w:r>'

    body = p(r("Otters ") + styled("own", "(never) ") + r("swim.")) + p("Top of Form", "form")
    body += p(styled("seen", "They dive.") + r("secret"), "form")
    path = written(tmp_path, body, styles=STYLES + styles)
    facts = loaded(path)
    assert facts.text == "Otters swim.\n\nThey dive.\n"
    hidden = [item.text for item in facts.summary.hidden]
    assert hidden == ["(never)", "Top of Form", "secret"]
    assert reread(path, "docx", facts.text, facts.blocks) == ({}, {})


def test_only_the_result_of_a_field_is_shown(tmp_path):
    def mark(kind: str, data: str = "") -> str:
        return f'<w:r><w:fldChar w:fldCharType="{kind}">{data}</w:fldChar></w:r>'

    def code(text: str) -> str:
        return f'<w:r><w:instrText xml:space="preserve">{text}</w:instrText></w:r>'

    name = mark("begin") + code(" MERGEFIELD sex ") + mark("separate") + r("m") + mark("end")
    greeting = mark("begin") + code(" IF ") + name + code(' = "m" "Sir" "Madam" ')
    greeting += mark("separate") + r("Sir") + mark("end")
    index = mark("begin") + code(" XE ") + r("otters") + mark("end")
    choice = (
        '<w:ffData><w:ddList><w:result w:val="1"/><w:listEntry w:val="Austria"/>'
        '<w:listEntry w:val="the Cook Islands in the Pacific"/></w:ddList></w:ffData>'
    )
    form = mark("begin", choice) + code(" FORMDROPDOWN ") + mark("end")
    open_field = mark("begin") + code(" TOC ") + mark("separate") + r("Scope 3")
    path = written(
        tmp_path, p(r("Dear ") + greeting + r(", ") + index) + p(r("From ") + form) + p(open_field)
    )
    facts = loaded(path)
    assert facts.text == "Dear Sir,\n\nFrom the Cook Islands in the Pacific\n\nScope 3\n"
    assert reread(path, "docx", facts.text, facts.blocks) == ({}, {})


def test_formulas_keep_their_brackets_and_lines(tmp_path):
    def letter(text: str) -> str:
        return f"<m:e><m:r><m:t>{text}</m:t></m:r></m:e>"

    size = f'<m:d><m:dPr><m:begChr m:val="|"/><m:endChr m:val="|"/></m:dPr>{letter("x")}</m:d>'
    cases = (
        '<m:d><m:dPr><m:begChr m:val="{"/><m:endChr m:val=""/></m:dPr><m:e><m:eqArr>'
        f"{letter('1')}{letter('0')}</m:eqArr></m:e></m:d>"
    )
    plain = f"<m:d>{letter('a')}</m:d>"
    facts = loaded(written(tmp_path, p(f"<m:oMath>{size}{cases}{plain}</m:oMath>")))
    assert facts.text == "|x|{1; 0(a)\n"


def test_roots_sums_integrals_matrices_and_symbols_are_written_on_one_line(tmp_path):
    def part(name: str, text: str) -> str:
        return f"<m:{name}><m:r><m:t>{text}</m:t></m:r></m:{name}>"

    root = f"<m:rad>{part('deg', '3')}{part('e', 'y')}</m:rad>"
    total = (
        '<m:nary><m:naryPr><m:chr m:val="∑"/></m:naryPr>'
        f"{part('sub', 'i=1')}{part('sup', 'n')}{part('e', 'i')}</m:nary>"
    )
    integral = f"<m:nary><m:naryPr/>{part('sub', '0')}{part('sup', '1')}<m:e>{total}</m:e></m:nary>"
    matrix = (
        f"<m:m><m:mr>{part('e', 'a')}{part('e', 'b')}</m:mr><m:mr>{part('e', 'c')}</m:mr></m:m>"
    )
    ticked = '<w:r><w:sym w:font="Wingdings" w:char="F0FE"/></w:r>'
    formulas = (p(f"<m:oMath>{formula}</m:oMath>") for formula in (root, integral, matrix))
    path = written(tmp_path, "".join(formulas) + p(ticked + r(" paid")))
    assert loaded(path).text == "3√(y)\n\n∫_0^1 ∑_(i=1)^n i\n\n[a; b | c]\n\n☑ paid\n"


def test_a_reading_aloud_stands_behind_what_is_read(tmp_path):
    ruby = (
        f"<w:r><w:ruby><w:rubyPr/><w:rt>{r('とうきょう')}</w:rt><w:rubyBase>{r('東京')}</w:rubyBase>"
        "</w:ruby></w:r>"
    )
    path = written(tmp_path, p(r("私は") + ruby + r("に住んでいます。")))
    facts = loaded(path)
    assert facts.text == "私は東京(とうきょう)に住んでいます。\n"
    assert reread(path, "docx", facts.text, facts.blocks) == ({}, {})


def test_text_boxes_headers_footers_and_code(tmp_path):
    box = f"<w:txbxContent>{p('Boxed.')}</w:txbxContent>"
    boxed = (
        "<w:r><mc:AlternateContent><mc:Choice"
        f' Requires="wps">{box}</mc:Choice><mc:Fallback>{box}</mc:Fallback>'
        f"</mc:AlternateContent></w:r>"
    )
    section = (
        '<w:sectPr><w:headerReference r:id="h1"/><w:headerReference r:id="h1"/><w:footerReference'
        ' r:id="f1"/></w:sectPr>'
    )
    relations = "".join(
        f'<Relationship Id="{key}1" Type="{TYPE}{kind}" Target="{kind}1.xml"/>'
        for key, kind in (("h", "header"), ("f", "footer"))
    )
    parts = {
        f"word/{kind}1.xml": f"<w:{tag} {NAMES}>{p(kind)}</w:{tag}>"
        for kind, tag in (("header", "hdr"), ("footer", "ftr"))
    }
    body = (
        p(r("Beside") + boxed)
        + p("def f():", "code")
        + p("    return 1", "code")
        + p("```not a fence")
        + section
    )
    facts = loaded(written(tmp_path, body, relations=relations, parts=parts))
    assert (
        facts.text == "header\n\nBeside\n\nBoxed.\n\n```\ndef f():\n    return 1\n```\n\n\\```not a"
        " fence\n\nfooter\n"
    )
    assert [(block.kind, block.locator) for block in facts.blocks] == [
        ("header", "header1/p[1]"),
        ("paragraph", "body/p[1]"),
        ("paragraph", "body/p[1]/txbx[1]/p[1]"),
        ("code", "body/p[2-3]"),
        ("paragraph", "body/p[4]"),
        ("footer", "footer1/p[1]"),
    ]


def test_headers_and_footers_repeat_unless_their_words_stand_nowhere_else(tmp_path):
    document = docx.Document()
    section = document.sections[0]
    section.header.paragraphs[0].text = "Acme Pumps, 12 Mill Lane"
    section.header.add_paragraph("PUMP MANUAL")
    section.footer.paragraphs[0].text = "Document QM-042"
    for text in ("Page 1 of 3", "1 | P a g e", "Page of", "Acme Pumps, 12 Mill Lane"):
        section.footer.add_paragraph(text)
    section.first_page_footer.paragraphs[0].text = "Not shown on any page"
    section.even_page_header.paragraphs[0].text = "Nor this"
    document.add_heading("Pump manual", 1)
    document.save(tmp_path / "a.docx")
    facts = loaded(tmp_path / "a.docx")
    assert normalise(facts, (), CleaningConfig()).text.split("\n\n") == [
        "Acme Pumps, 12 Mill Lane",
        "# Pump manual",
        "Document QM-042",
        "",
    ]
    section.different_first_page_header_footer = True
    document.settings.odd_and_even_pages_header_footer = True
    document.save(tmp_path / "a.docx")
    text = loaded(tmp_path / "a.docx").text
    assert "Not shown on any page" in text and "Nor this" in text


def test_word_art_of_older_files_is_read_where_it_stands(tmp_path):
    name = "urn:schemas-microsoft-com:vml"
    art = f'<v:shape xmlns:v="{name}"><v:textpath string="Summer sale"/></v:shape>'
    path = written(tmp_path, p(f"{r('Our')}<w:r><w:pict>{art}</w:pict></w:r>{r('begins')}"))
    facts = loaded(path)
    assert facts.text == "Our Summer sale begins\n"
    assert reread(path, "docx", facts.text, facts.blocks) == ({}, {})


def test_marks_of_ours_are_told_from_the_words():
    assert (
        without_marks("a[^c2] [site](http://x/y) ![alt text](docx:word/m.png) \\![b](u)")
        == "a [site]  \\![b]"
    )


def test_strict_and_macro_files_are_read(tmp_path):
    path = written(tmp_path, p("Words."), name="a.docm", parts={"word/vbaProject.bin": b"x"})
    assert DocxLoader().claims("a.docm", b"PK\x03\x04") and loaded(path).summary.warnings == (
        "the macros were ignored",
    )
    with zipfile.ZipFile(path) as source, zipfile.ZipFile(tmp_path / "b.docx", "w") as strict:
        for name in source.namelist():
            data = source.read(name).replace(
                b"http://schemas.openxmlformats.org/wordprocessingml/2006/main",
                b"http://purl.oclc.org/ooxml/wordprocessingml/main",
            )
            strict.writestr(name, data)
    assert loaded(tmp_path / "b.docx").text == "Words.\n"


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ("", "empty_file"),
        (p(" "), "empty_file"),
        ("<w:p>", "broken_file"),
        ("<!-- x --><w:p>&e;</w:p>", "broken_file"),
        ("<w:x>" * 400, "broken_file"),
    ],
)
def test_an_empty_or_damaged_document_is_refused(tmp_path, body, code):
    with pytest.raises(DocumentError) as caught:
        DocxLoader().load(written(tmp_path, body), "a.docx")
    assert caught.value.code == code and len(caught.value.message.split()) > 5


def test_a_document_with_damaged_compressed_data_is_refused(tmp_path):
    path = tmp_path / "b.docx"
    with (
        zipfile.ZipFile(written(tmp_path, p("Words."))) as source,
        zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as packed,
    ):
        for name in source.namelist():
            packed.writestr(name, source.read(name))
        entry = packed.getinfo("word/document.xml")
    raw = bytearray(path.read_bytes())
    raw[entry.header_offset + 30 + len(entry.filename)] = 0xFF  # no type of a deflated block
    path.write_bytes(raw)
    with pytest.raises(DocumentError, match=r"word/document\.xml is damaged") as caught:
        DocxLoader().load(path, "b.docx")
    assert caught.value.code == "broken_file"


def test_what_python_docx_writes_is_read(tmp_path):
    docx = pytest.importorskip("docx")
    made = docx.Document()
    made.core_properties.title = "Guide"
    made.add_heading("Ports", 1)
    made.add_paragraph("first", style="List Number")
    made.add_table(2, 2).cell(1, 1).text = "8080"
    made.save(tmp_path / "a.docx")
    facts = loaded(tmp_path / "a.docx")
    assert (
        facts.text == "# Ports\n\n1. first\n\n|  |  |\n| --- | --- |\n|  | 8080 |\n"
        and facts.summary.title == "Guide"
    )


def test_lists_nested_by_their_style_alone_keep_their_levels(tmp_path: Path) -> None:
    import docx

    document = docx.Document()
    for text, style in (
        ("One", "List Bullet"),
        ("Two", "List Bullet 2"),
        ("Three", "List Bullet 3"),
        ("First", "List Number 2"),
    ):
        document.add_paragraph(text, style=style)
    document.save(str(tmp_path / "a.docx"))
    facts = DocxLoader().load(tmp_path / "a.docx", "a.docx")
    assert facts.text == "- One\n    - Two\n        - Three\n    1. First\n"
    assert DocxLoader().verify_blocks(tmp_path / "a.docx", facts.text, facts.blocks) == {}


def test_a_chart_and_a_diagram_are_read_where_they_are_drawn(tmp_path: Path) -> None:
    figures = CategoryChartData()
    figures.categories = ["North", "西部"]
    figures.add_series("2024", (4.5, 0.125))
    figures.add_series("Share", (1.2, 0.07), number_format="0.0%")
    show = pptx.Presentation()
    slide = show.slides.add_slide(show.slide_layouts[6])
    drawn = slide.shapes.add_chart(XL_CHART_TYPE.LINE, 0, 0, 9, 9, figures).chart
    drawn.chart_title.text_frame.text = "Sales"
    model = (
        '<dgm:dataModel xmlns:dgm="http://schemas.openxmlformats.org/drawingml/2006/diagram"'
        ' xmlns:a="http://schemas.openxmlformats.org/drawingml/2006/main"><dgm:ptLst>'
        '<dgm:pt modelId="0" type="doc"/><dgm:pt modelId="1"><dgm:t><a:p><a:r><a:t>Plan</a:t>'
        "</a:r></a:p></dgm:t></dgm:pt></dgm:ptLst><dgm:cxnLst>"
        '<dgm:cxn modelId="9" srcId="0" destId="1" srcOrd="0"/></dgm:cxnLst></dgm:dataModel>'
    )
    document = docx.Document()
    parts = {"chart1": drawn.part.blob, "data1": model.encode(), "chart2": b"<broken"}
    ids = {
        name: document.part.relate_to(
            Part(PackURI(f"/word/{name}.xml"), "application/xml", blob, document.part.package),
            f"http://schemas.openxmlformats.org/officeDocument/2006/relationships/{name[:-1]}",
        )
        for name, blob in parts.items()
    }
    drawings = (
        f'<c:chart xmlns:c="c" r:id="{ids["chart1"]}"/>',
        f'<dgm:relIds xmlns:dgm="d" r:dm="{ids["data1"]}"/>',
        f'<c:chart xmlns:c="c" r:id="{ids["chart2"]}"/>',
    )
    for text, drawing in zip(("One.", "Two.", "Three."), drawings, strict=True):
        document.add_paragraph(text)._p.append(
            parse_xml(
                f'<w:r {nsdecls("w", "r")}><w:drawing xmlns:a="a"><a:graphic>{drawing}</a:graphic>'
                "</w:drawing></w:r>"
            )
        )
    path = tmp_path / "a.docx"
    document.save(str(path))
    facts = loaded(path)
    assert facts.text.split("\n\n") == [
        "One.",
        "| Sales | 2024 | Share |\n| --- | --- | --- |\n"
        "| North | 4.5 | 120% |\n| 西部 | 0.125 | 7% |",
        "Two.",
        "- Plan",
        "Three.\n",
    ]
    assert facts.blocks[1].locator == "body/p[1]/drawing[1]"
    assert reread(path, "docx", facts.text, facts.blocks) == ({}, {})
    assert facts.summary.warnings == ("charts and diagrams that were not read: 1",)
    for word in ("4.5", "120", "西部", "Plan"):
        wrong = facts.text.replace(word, "x" * len(word))
        assert len(DocxLoader().verify_blocks(path, wrong, facts.blocks)) == 1


def test_a_line_in_bold_type_is_a_heading_where_no_style_says_so(tmp_path: Path) -> None:
    def b(text: str) -> str:
        return f"<w:p><w:r><w:rPr><w:b/></w:rPr><w:t>{text}</w:t></w:r></w:p>"

    body = (
        b("采购合同")
        + b("甲方：星河公司")  # a field
        + b("（草案）")
        + b("一、标的")
        + p(r("设备两台。"))
        + b("Never open it.")  # a sentence
        + p(r("二、") + "<w:r><w:rPr><w:b w:val='0'/></w:rPr><w:t>付款</w:t></w:r>", "strong")
        + p(r("问：何时付款？"), "strong")
        + p(r("答：月底。"))
        + p(r("Terms"), "1")
        + b("Delivery")
        + p(r("In May."))
        + b("The end")  # of nothing
    )
    strong = (
        '<w:style w:type="paragraph" w:styleId="strong"><w:name w:val="S"/><w:rPr><w:b/></w:rPr>'
        "</w:style>"
    )
    facts = loaded(written(tmp_path, body, styles=STYLES + strong))
    assert facts.text.split("\n\n") == [
        "# 采购合同",
        "甲方：星河公司",
        "（草案）",
        "## 一、标的",
        "设备两台。",
        "Never open it.",
        "二、付款",
        "## 问：何时付款？",
        "答：月底。",
        "# Terms",
        "## Delivery",
        "In May.",
        "The end\n",
    ]


def test_a_numbered_line_in_bold_type_is_the_heading_of_the_clauses_below_it(
    tmp_path: Path,
) -> None:
    def b(text: str, level: int = 0) -> str:
        return p(f"<w:r><w:rPr><w:b/></w:rPr><w:t>{text}</w:t></w:r>", number="5", level=level)

    body = b("Fees") + p("Rent is due.", number="5", level=1) + b("Late fees", 1)
    body += p("Two per cent.", number="5", level=2) + b("Term") + b("Years")
    assert loaded(written(tmp_path, p("x") + body + p("y"))).text.split("\n\n") == [
        "x",
        "## Article I. Fees",
        "    - 1.1 Rent is due.",
        "### 1.2 Late fees",
        "        - I.2.1 Two per cent.\n- Article II. Term",
        "## Article III. Years",
        "y\n",
    ]
