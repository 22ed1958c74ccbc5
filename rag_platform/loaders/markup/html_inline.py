"""Inline HTML as Markdown: collapsed white space, links, emphasis, code and images; and which
elements a reader does not see.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from rag_platform.loaders.markup.html_styles import REASONS, hidden_by, without_property
from rag_platform.loaders.parts import Image, ticks_around

if TYPE_CHECKING:
    from lxml.etree import _Element

HEADINGS = {"h1", "h2", "h3", "h4", "h5", "h6"}
SKIPPED = set(
    "script style noscript template head title meta link base iframe frame frameset object embed"
    " applet svg canvas video audio map button option optgroup datalist progress meter dialog"
    " noframes noembed".split()
)
_FIELDS = {"input", "select", "textarea"}
_CHECKABLE = {"checkbox", "radio"}
# types of `input` that show no typed text, and buttons (HTML standard, 4.10.5)
_TEXTLESS = _CHECKABLE | set("hidden password submit button reset image file range color".split())
_UNREAD = {"button": "control", "svg": "drawing"}  # elements of SKIPPED that a reader sees
SKIPPED_ROLES = set("navigation search menu menubar toolbar dialog alertdialog tablist".split())
LINE_NUMBERS = set("linenos lineno linenodiv line-numbers-rows gutter rouge-gutter ln-num".split())
_PANELS = {"dd", "div", "p", "section"}  # below the title of an accordion; a list would be a menu
_ACCORDIONS = {"accordion", "collapsible"}  # classes of such titles in tutorials
MARKS = {"b": "**", "strong": "**", "i": "*", "em": "*", "del": "~~", "s": "~~", "strike": "~~"}
CODE = {"code", "kbd", "samp", "tt"}
LINE_BREAKING = set("p div li tr td th ul ol dd dt blockquote pre table".split())
MAX_INLINE_DEPTH = 120
MAX_TARGET = 500  # characters of a link that is kept; longer ones hold data
_WHOLE = {"html", "body", "main", "article"}  # if these are hidden, a script shows them
# classes of rendered formulas, next to which the page has their source, and of icons
_FORMULA_CLASS = re.compile(r"katex|mathjax|\bmjx", re.IGNORECASE)
_ICON_CLASS = re.compile(r"icon|glyph|symbol|\bfa\b", re.IGNORECASE)
_HAN_BREAK = re.compile(
    r"(?<=[\u3000-\u9fff\uff00-\uffef])[ \t]*\n\s*(?=[\u3000-\u9fff\uff00-\uffef])"
)
_SPECIAL = re.compile(r"<(?=[A-Za-z/!?])|!(?=\[)")
_LINE_SPECIAL = re.compile(r"#{1,6}(?=\s|$)|`{3}|~{3}|>|(?:=+|-+)(?=\s*$)")
_ANCHOR_SIGNS = {"", "¶", "#", "§", "◆", "🔗", "\uf0c1", "∞"}
_REFUSED_SCHEMES = ("javascript:", "vbscript:", "data:")


def hidden_reason(element: _Element) -> str:
    """Why a reader does not see the element, or "". Tab panels count as visible, because a reader
    can select each.
    """
    if element.get("role") == "tabpanel" or element.tag in _WHOLE:
        return ""
    if element.get("hidden") is not None:
        return "not_displayed"
    name = hidden_by(style) if (style := element.get("style")) else ""
    if name == "font-size" and len(element):  # its children may have sizes of their own
        return ""
    return REASONS.get(name, "")


def _is_ornament(element: _Element) -> bool:
    """True for an element with aria-hidden that adds no words: an icon, a sign, a line number, a
    formula rendered next to its source. Other text with aria-hidden is content.
    """
    if element.get("aria-hidden") != "true":
        return False
    named = f"{element.tag} {element.get('class', '')}"
    if element.tag == "i" or _ICON_CLASS.search(named) or _FORMULA_CLASS.search(named):
        return True
    text = "".join(element.itertext())
    if any(above.tag in ("pre", "code") for above in element.iterancestors()):
        return not any(map(str.isalpha, text))
    return not any(map(str.isalnum, text))


def is_skipped(element: _Element) -> bool:
    """True for a comment, and for an element whose text does not belong to the document."""
    tag = element.tag
    if not isinstance(tag, str):
        return True
    if tag == "a":
        return _is_self_link(element)
    if tag in _FIELDS:
        return not (_is_checkable(element) or field_text(element)) or bool(hidden_reason(element))
    if (tag in SKIPPED and not _is_panel_title(element)) or unread_reason(element):
        return True
    if hidden_reason(element) or _is_ornament(element):
        return True
    names = element.get("class", "").split()
    if LINE_NUMBERS.isdisjoint(names) and not (tag == "pre" and "lines" in names):  # as in YARD
        return False
    # the class `gutter` is also used for columns of text
    return not any(map(str.isalpha, "".join(element.itertext())))


def field_text(element: _Element) -> str:
    """The text that a form field shows: typed text, or the selected options."""
    if element.tag == "textarea":
        return "".join(element.itertext())
    if element.tag == "select":
        chosen = [item for item in element.iter("option") if item.get("selected") is not None]
        return ", ".join("".join(item.itertext()).strip() for item in chosen)
    return "" if element.get("type", "").lower() in _TEXTLESS else str(element.get("value", ""))


def _is_checkable(element: _Element) -> bool:
    """True for a check box or radio button."""
    return element.tag == "input" and element.get("type", "").lower() in _CHECKABLE


def unread_reason(element: _Element) -> str:
    """Why a visible element is not content, or ""."""
    tag = str(element.tag)
    if tag == "nav" or element.get("role") in SKIPPED_ROLES:
        return "navigation"
    if tag in ("header", "footer", "aside") and _is_page_frame(element):
        return "navigation"
    if tag == "summary" and element.get("class") == "hideme":  # only shown without its details
        return "control"
    return "" if _is_panel_title(element) else _UNREAD.get(tag, "")


def _is_panel_title(element: _Element) -> bool:
    """True for a button that is the title of a panel, which a click opens: it is the whole of a
    heading or term, or its attributes say that it opens text and not a menu.
    """
    if element.tag != "button":
        return False
    marked = not _ACCORDIONS.isdisjoint(element.get("class", "").lower().split())
    return marked or _heading_of(element) is not element or bool(panels_of(element))


def _heading_of(button: _Element) -> _Element:
    """The heading or term that consists of the button only, else the button itself."""
    heading = next(button.iterancestors(*HEADINGS, "dt"), None)
    return button if heading is None or _full_text(heading) != _full_text(button) else heading


def panels_of(button: _Element) -> list[_Element]:
    """The elements that a button opens and closes: those of its `aria-controls`, else the one below
    its title; [] for a menu.
    """
    title = _heading_of(button)
    expands = button.get("aria-expanded") is not None
    if button.get("aria-haspopup") or not (expands or title is not button):
        return []
    names = str(button.get("aria-controls", "")).split()
    below = title.getnext()
    if expands and names:
        return [item for name in names for item in button.xpath("id($name)", name=name)]
    return [below] if below is not None and below.tag in _PANELS else []


def show_closed_panels(root: _Element) -> None:
    """Unhide the panels that a button opens, like `details`, and an element with most of the page's
    text that is invisible until a script has run, as in articles of WeChat.
    """
    for element in [item for button in root.iter("button") for item in panels_of(button)]:
        element.attrib.pop("hidden", None)
        if style := element.get("style"):
            element.set("style", without_property(style, "display"))
    if root.find(".//script") is None:
        return
    half, remaining = _count_letters(root) / 2, [root]
    while remaining:
        element = remaining.pop()
        style = element.get("style")
        if not style or hidden_by(style) != "visibility":
            remaining.extend(element)
        elif _count_letters(element) > half:
            element.set("style", without_property(style, "visibility"))


def _count_letters(element: _Element) -> int:
    texts = element.xpath(".//text()[not(parent::script or parent::style)]")
    return sum(len(word) for text in texts for word in text.split())


def _full_text(element: _Element) -> str:
    return "".join(element.itertext()).strip()


def _is_self_link(element: _Element) -> bool:
    """True for the sign next to a heading that links to the heading itself."""
    return (
        str(element.get("href", "")).startswith("#")
        and not element.findall(".//img")
        and _full_text(element) in _ANCHOR_SIGNS
    )


def _is_page_frame(element: _Element) -> bool:
    """True for a header, footer or aside of the page, not of an article in it."""
    if any(
        above.tag in ("main", "article", "blockquote") or above.get("role") == "main"
        for above in element.iterancestors()
    ):
        return False
    return element.tag != "header" or element.find(".//h1") is None


def spans(cell: _Element) -> tuple[int, int]:
    """(columns, rows) that a cell spans, limited as in HTML; 0 rows means all remaining ones."""
    found = []
    for name, most in (("colspan", 1000), ("rowspan", 65534)):
        value = str(cell.get(name, "1")).strip()
        found.append(min(int(value), most) if value.isdecimal() and len(value) < 9 else 1)
    return max(1, found[0]), found[1]


def visible(element: _Element, *, preformatted: bool = False) -> str:
    """The visible text of an element, formulas as TeX, without table captions."""
    parts: list[str] = []
    stack: list[tuple[_Element | str, bool]] = [(element, True)]
    while stack:
        node, outer = stack.pop()
        if isinstance(node, str):
            parts.append(node)
            continue
        if not outer and (is_skipped(node) or node.tag == "caption"):
            continue
        if node.tag == "br" or (
            preformatted
            and node.tag == "code"
            and parts
            and parts[-1]
            and (before := node.getprevious()) is not None
            and before.tag == "code"
            and not before.tail
        ):
            parts.append("\n")
        if node.tag == "br":
            continue
        if node.tag in _FIELDS:
            parts += [" ", text, " "] if (text := field_text(node)) else []
        elif node.tag == "math" and (tex := _tex(node)):
            parts.append(tex)
        else:
            below: list[_Element | str] = [node.text or ""]
            for child in node:
                below += [child, child.tail or ""]
            stack.extend(
                (item, False) for item in reversed(below) if not isinstance(item, str) or item
            )
            if not preformatted and node.tag not in MARKS.keys() | CODE and not outer:
                parts.append(
                    " " if node.tag in ("p", "div", "li", "td", "th", "tr", "dt", "dd") else ""
                )
    return "".join(parts)


def _tex(formula: _Element) -> str:
    for note in formula.iter("annotation"):
        if "tex" in note.get("encoding", "").lower():
            return " ".join((note.text or "").split())
    return ""


class Inline:
    """Writes nodes as Markdown; `one_line` turns line breaks into spaces, `cell` escapes pipes.
    Without `italics` these are plain: `**f(**arguments*)**` would end before its end.
    """

    def __init__(self, *, one_line: bool = False, cell: bool = False, italics: bool = True) -> None:
        self.one_line, self.cell, self.italics = one_line, cell, italics
        self.size = 0
        self.images: list[Image] = []  # with their offsets in the text
        self.written = 0  # number of texts and images, without marks
        self._parts: list[str] = []
        self._space = False  # a space comes before the next text
        self._pending: list[str] = []  # opening marks to be written before the next text
        self._open: list[str] = []
        self._last = ""  # last character

    def text(self) -> str:
        """The Markdown so far."""
        return "".join(self._parts).rstrip("\n")

    def open(self, mark: str) -> None:
        """Write a mark before the next text, unless the same mark is already open."""
        self._open.append(mark)
        if self._open.count(mark) == 1:
            self._pending.append(mark)

    def close(self, mark: str, closing: str) -> None:
        """Write the end of the last mark, or drop the mark if no text followed it."""
        self._open.pop()
        if mark in self._open:
            return
        if self._pending:
            self._pending.pop()
        else:
            self.write(closing)

    def add(self, node: _Element | str, depth: int = 0) -> None:
        """Write a text, or an element with its content."""
        if isinstance(node, str):
            self._write_text(node)
        elif not is_skipped(node):
            self._write_element(node, depth)

    def _write_element(self, element: _Element, depth: int) -> None:
        tag = str(element.tag)
        if depth > MAX_INLINE_DEPTH:
            self._write_text(visible(element))
        elif tag in MARKS and (self.italics or MARKS[tag] != "*"):
            self._enclose(element, MARKS[tag], MARKS[tag], depth)
        elif tag == "a":
            self._write_link(element, depth)
        elif tag == "rt" and element.getparent().find("rp") is None:  # without own parentheses
            self._enclose(element, "(", ")", depth)
        elif tag == "table" and self.cell:
            self._write_inner_table(element, depth)
        elif not self._write_leaf(element, tag):
            self._write_container(element, tag, depth)

    def _write_leaf(self, element: _Element, tag: str) -> bool:
        """Write an element that is handled without its children; False for any other element."""
        if tag == "br":
            self._break()
        elif tag == "img":
            self._write_image(element)
        elif tag in _FIELDS:
            self._write_field(element)
        elif tag == "math":
            tex = _tex(element)
            self._put(f"${tex}$") if tex else self._write_text(visible(element))
        elif tag in CODE:
            self.write_code(" ".join(visible(element).split()))
        else:
            return False
        return True

    def _write_field(self, element: _Element) -> None:
        self._space = True
        if _is_checkable(element):
            self._put("[x]" if element.get("checked") is not None else "[ ]")
        for number, line in enumerate(field_text(element).splitlines()):
            if number:
                self._break(1)
            self._write_text(line)
        self._space = True

    def _write_container(self, element: _Element, tag: str, depth: int) -> None:
        joined = tag == "sup" and not self._space and self._last.isalnum()
        if joined and visible(element).strip()[:1].isalnum():
            self.write("^")
        if tag in LINE_BREAKING:
            self._break(1)
        self._write_children(element, depth)
        if tag in LINE_BREAKING:
            self._break(1)

    def _write_children(self, element: _Element, depth: int) -> None:
        if element.text:
            self._write_text(element.text)
        for child in element:
            self.add(child, depth + 1)
            if child.tail:
                self._write_text(child.tail)

    def _write_inner_table(self, table: _Element, depth: int) -> None:
        """A table in a cell: `a, b; c, d`."""
        gap = ""
        for row in table.iter("tr", "caption"):
            if next(row.iterancestors("table")) is not table or is_skipped(row):
                continue
            for cell in row if row.tag == "tr" else [row]:
                if is_skipped(cell) or not (visible(cell).strip() or cell.findall(".//img")):
                    continue
                if gap:
                    self.write(gap)
                self._space = not gap
                self._write_children(cell, depth + 1)
                gap, self._space = ", ", False
            gap = "; " if gap else ""
        self._space = True

    def _enclose(self, element: _Element, mark: str, closing: str, depth: int) -> None:
        self.open(mark)
        self._write_children(element, depth)
        self.close(mark, closing)

    def _write_link(self, element: _Element, depth: int) -> None:
        target = (element.get("href") or "").strip()
        scheme = re.sub(r"[\x00-\x20]", "", target).lower()
        if (
            not target
            or target.startswith("#")
            or scheme.startswith(_REFUSED_SCHEMES)
            or len(target) > MAX_TARGET
            or "[" in self._open
        ):
            self._write_children(element, depth)
        else:
            self._enclose(element, "[", f"]({_escape_target(target)})", depth)

    def _write_image(self, element: _Element) -> None:
        target = _image_address(element)
        if not target or {element.get("width"), element.get("height")} & {"1", "0"}:
            return
        alt = " ".join(element.get("alt", "").split())
        self._put("")
        start = self.size
        shown = target
        if target[:5].lower() == "data:":
            shown = "data:" + re.split("[;,]", target[5:], maxsplit=1)[0]
        label = re.sub(r"([\[\]\\])", r"\\\1", alt)
        if self.cell:
            label = label.replace("|", "\\|")
        self.write(f"![{label}]({_escape_target(shown)})")
        self.written += 1
        self.images.append(Image(start, self.size, target, alt))

    def write_code(self, words: str) -> None:
        """Write words as code."""
        if not words:
            self._space = True
            return
        ticks = ticks_around(words, 1)
        padding = " " if words[0] == "`" or words[-1] == "`" else ""
        if self.cell:
            words = words.replace("|", "\\|")
        self._put(f"{ticks}{padding}{words}{padding}{ticks}")

    def _write_text(self, raw: str) -> None:
        joined = _HAN_BREAK.sub("", raw)
        words = joined.split()
        if not words:
            self._space = self._space or bool(raw)
            return
        self._space = self._space or joined[0].isspace()
        text = _SPECIAL.sub(lambda found: "\\" + found.group(), " ".join(words))
        if self.cell:
            text = text.replace("|", "\\|")
        elif (
            not self.one_line
            and (not self.size or self._last == "\n")
            and _LINE_SPECIAL.match(text)
        ):
            text = "\\" + text
        self._put(text)
        self._space = joined[-1].isspace()

    def _put(self, text: str) -> None:
        if self._space and self.size and self._last not in "\n ":
            self.write(" ")
        self._space = False
        for mark in self._pending:
            self.write(mark)
        self._pending.clear()
        if text:
            self.write(text)
            self.written += 1

    def write(self, text: str) -> None:
        """Write text as it is."""
        self._parts.append(text)
        self.size += len(text)
        self._last = text[-1]

    def _break(self, most: int = 2) -> None:
        if self.one_line:
            self._space = True
        elif self.size and "".join(self._parts[-2:])[-most:] != "\n" * most:
            self.write("\n")
            self._space = False


def _image_address(element: _Element) -> str:
    """The image's address, for a lazily loaded image not the placeholder in `src`."""
    source = (element.get("src") or "").strip()
    if not source or (source.startswith("data:") and len(source) < 1000):
        for name in ("data-src", "data-original", "data-lazy-src"):
            if lazy := (element.get(name) or "").strip():
                return lazy
    if not source and (
        several := (element.get("srcset") or element.get("data-srcset") or "").split()
    ):
        return several[0].rstrip(",")
    return source


def _escape_target(target: str) -> str:
    return re.sub(
        r"[\s()<>|\\]",
        lambda found: "".join(f"%{byte:02X}" for byte in found.group().encode()),
        target,
    )
