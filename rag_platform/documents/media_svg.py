"""SVG made safe: known drawing elements only, nothing that runs, nothing that is fetched, entities never resolved."""

from __future__ import annotations

import re
from typing import Any

SVG = "http://www.w3.org/2000/svg"
_XLINK_HREF = "{http://www.w3.org/1999/xlink}href"
_SPACE = "{http://www.w3.org/XML/1998/namespace}space"
_ELEMENTS = frozenset(
    """svg g defs symbol use title desc switch a style path rect circle ellipse line polyline polygon text tspan textPath image
    linearGradient radialGradient stop pattern clipPath mask marker filter feBlend feColorMatrix feComponentTransfer feComposite
    feConvolveMatrix feDiffuseLighting feDisplacementMap feDistantLight feDropShadow feFlood feFuncA feFuncB feFuncG feFuncR
    feGaussianBlur feMerge feMergeNode feMorphology feOffset fePointLight feSpecularLighting feSpotLight feTile feTurbulence""".split()
)
_DATA_PICTURE = re.compile(r"data:image/(png|jpeg|gif|webp);base64,[A-Za-z0-9+/=\s]*\Z")
_UNSAFE_STYLE = re.compile(r"@import|expression|behaviou?r|-moz-binding|javascript:|url\((?!\s*['\"]?#)|\\|<!", re.I)
_LENGTH = re.compile(r"\s*([0-9]*\.?[0-9]+(?:e[+-]?[0-9]+)?)\s*(px|pt|pc|mm|cm|in)?\s*\Z", re.I)
_PIXELS = {"": 1.0, "px": 1.0, "pt": 4 / 3, "pc": 16.0, "mm": 96 / 25.4, "cm": 96 / 2.54, "in": 96.0}


def looks_like_svg(data: bytes) -> bool:
    """True when the text begins as XML with an svg element."""
    start = data[:4096].lstrip(b"\xef\xbb\xbf \t\r\n").lower()
    return start.startswith((b"<svg", b"<?xml", b"<!doctype svg", b"<!--")) and b"<svg" in data[:65536].lower()


def sanitised(data: bytes) -> tuple[bytes, int, int]:
    """(safe SVG, width, height in pixels). Raises ValueError saying why it cannot be read."""
    from lxml import etree

    parser = etree.XMLParser(
        resolve_entities=False, no_network=True, load_dtd=False, huge_tree=False, remove_comments=True, remove_pis=True
    )
    try:
        root = etree.fromstring(data, parser)
    except (etree.XMLSyntaxError, ValueError) as error:
        raise ValueError(str(error)[:120]) from None
    if root.tag not in (f"{{{SVG}}}svg", "svg"):
        raise ValueError(f"its root is {str(root.tag)[:60]}")
    clean = etree.Element(f"{{{SVG}}}svg", nsmap={None: SVG, "xlink": "http://www.w3.org/1999/xlink"})
    _copy(root, clean, etree)
    width, height = _size(clean)
    return etree.tostring(clean, encoding="utf-8", xml_declaration=True), width, height


def _copy(source: Any, target: Any, etree: Any) -> None:
    """Copy what is known to be safe; libxml2 bounds the depth of the tree to 256."""
    for name, value in source.attrib.items():
        if (kept := _attribute(source, str(name), value)) is not None:
            target.set(name, kept)
    target.text = source.text
    last: Any = None
    for child in source:
        tail = child.tail or ""
        local = child.tag.removeprefix(f"{{{SVG}}}") if isinstance(child.tag, str) else ""
        if local in _ELEMENTS and not (local == "style" and _UNSAFE_STYLE.search("".join(child.itertext()))):
            last = etree.SubElement(target, f"{{{SVG}}}{local}")
            _copy(child, last, etree)
            last.tail = tail
        elif last is not None:
            last.tail = (last.tail or "") + tail
        else:
            target.text = (target.text or "") + tail


def _attribute(element: Any, name: str, value: str) -> str | None:
    """The value of an attribute that may stay, None for one that goes."""
    if name in ("href", _XLINK_HREF):
        picture = str(element.tag).endswith("image") and _DATA_PICTURE.match(value.strip())
        return value if value.strip().startswith("#") or picture else None
    if name != _SPACE and name.startswith("{"):
        return None
    if name.lower().startswith("on") or _UNSAFE_STYLE.search(value):
        return None
    return value


def _size(root: Any) -> tuple[int, int]:
    """Width and height from its attributes, else from its viewBox, else the 300 x 150 of CSS."""
    box = [float(part) for part in re.findall(r"[-+]?[0-9]*\.?[0-9]+(?:[eE][+-]?[0-9]+)?", root.get("viewBox", ""))[:4]]
    fallback = (box[2], box[3]) if len(box) == 4 and box[2] > 0 and box[3] > 0 else (300.0, 150.0)
    sizes = []
    for name, other in zip(("width", "height"), fallback, strict=True):
        found = _LENGTH.match(root.get(name, ""))
        value = float(found.group(1)) * _PIXELS[(found.group(2) or "").lower()] if found else other
        sizes.append(max(1, min(100_000, round(value))))
    return sizes[0], sizes[1]
