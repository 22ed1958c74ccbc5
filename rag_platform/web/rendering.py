"""Renders templates in the reader's language and theme."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

from jinja2 import Environment, FileSystemLoader
from markupsafe import Markup
from starlette.requests import Request
from starlette.responses import Response
from starlette.templating import Jinja2Templates

from rag_platform import access
from rag_platform.contract.markdown_views import place_of, quote_of
from rag_platform.errors import NEEDS_ANOTHER_FILE
from rag_platform.ir import format_section
from rag_platform.messages import LANGUAGES, choose_language, translate, translate_filled
from rag_platform.retrieval.library import Library
from rag_platform.web.commands import show_message
from rag_platform.web.guards import STATIC_PATH

if TYPE_CHECKING:
    from markdown_it import MarkdownIt
    from markdown_it.token import Token

HERE = Path(__file__).parent
STATIC = HERE / "static"
LANGUAGE_COOKIE, THEME_COOKIE = "rag_lang", "rag_theme"
THEMES = ("auto", "light", "dark")
_EXCERPT, _BEFORE = 700, 250  # characters of an excerpt, and of its text around the citation
_END = re.compile(r"[.!?](?=\s)\s*|[。！？；]|\n+")
_MARK = re.compile(r"\[(\d{1,3})\]")
# (path, English name) of the pages, in the order of the menu
PAGES = (
    ("/", "Ask"),
    ("/browser", "Browse"),
    ("/ingestion", "Ingest"),
    ("/releases", "Releases"),
    ("/ingestion-traces", "Ingestion traces"),
    ("/query-traces", "Query traces"),
    ("/evaluation", "Evaluation"),
    ("/overview", "Overview"),
)
# first segment of other paths to the menu page that they belong to
_MENU_PAGES = {"documents": "/browser", "chunks": "/browser", "drafts": "/browser", "source": "/"}
_OVERRIDES = str.maketrans("", "", "\u202d\u202e")  # bidi overrides, which can spoof a name


def library_of(request: Request) -> Library:
    """The library that the application serves."""
    library: Library = request.app.state.library
    return library


def language_of(request: Request) -> str:
    """The language that the reader chose, else the browser's preferred one."""
    chosen = request.cookies.get(LANGUAGE_COOKIE, "")
    if chosen in LANGUAGES:
        return chosen
    return choose_language(request.headers.get("accept-language", ""))


def render(request: Request, template: str, status: int = 200, **values: Any) -> Response:
    """A response with the rendered page or fragment."""
    return _templates().TemplateResponse(request, template, values, status_code=status)


def render_part(
    request: Request, part: str, page: str, status: int = 200, **values: Any
) -> Response:
    """The fragment for htmx, else the page that contains it."""
    template = part if is_fragment(request) else page
    return render(request, template, status, part=part, **values)


def render_text(request: Request, template: str, **values: Any) -> str:
    """The rendered fragment as text, for server-sent events."""
    shown = _templates().env.get_template(template)
    return str(shown.render({"request": request, **_context(request), **values}))


def compile_templates() -> None:
    """Compile every template, which would delay the first view of a page by a tenth of a second."""
    environment = _templates().env
    for name in environment.list_templates():
        environment.get_template(name)


def is_fragment(request: Request) -> bool:
    """True if htmx requests a part of a page."""
    return request.headers.get("hx-request") == "true"


@cache
def _templates() -> Jinja2Templates:
    environment = Environment(
        loader=FileSystemLoader(HERE / "templates"),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_without_overrides,
    )
    environment.filters |= {"markdown": markdown, "section": format_section}
    environment.globals |= {
        "static": static_url,
        "markdown": markdown,
        "link": link,
        "pieces": pieces,
        "excerpt": excerpt,
        "namespace": "",  # of a page without a library; Jinja's own would be a class
        "needs_another_file": NEEDS_ANOTHER_FILE,
        "filled": show_message,
    }
    return Jinja2Templates(env=environment, context_processors=[_context])


def _context(request: Request) -> dict[str, Any]:
    """The variables of every template: `_` translates, and `translated` translates texts that
    already contain their values, such as error messages (`filled` also links what they name);
    `place_of` describes a passage's place, and `quote_of` puts the place of its quote into a
    citation.
    """
    language = language_of(request)
    theme = request.cookies.get(THEME_COOKIE)
    return {
        "_": partial(translate, language=language),
        "translated": partial(translate_filled, language=language),
        "place_of": partial(place_of, language=language),
        "quote_of": quote_of,
        "language": language,
        "languages": LANGUAGES,
        "theme": theme if theme in THEMES else "auto",  # auto follows the system
        "themes": THEMES,
        "pages": PAGES,
        "section": section_of(request.url.path),
        "namespaces": library_of(request).namespaces(),
        "caller": access.current(),
    }


def section_of(path: str) -> str:
    """The menu page that a path belongs to; empty if there is no single one.

    >>> section_of("/documents/lib/guide"), section_of("/evaluation/gaps"), section_of("/traces/t")
    ('/browser', '/evaluation', '')
    """
    first = path.split("/")[1]
    return _MENU_PAGES.get(first) or next((page for page, _ in PAGES if page == f"/{first}"), "")


def _without_overrides(value: Any) -> Any:
    # `translate` keeps Markup as Markup; nearly all values are ASCII
    return value.translate(_OVERRIDES) if isinstance(value, str) and not value.isascii() else value


def link(path: str, **parameters: Any) -> str:
    """The URL of a page with the parameters that have a value."""
    given = {key: value for key, value in parameters.items() if value or value == 0}
    return f"{path}?{urlencode(given, doseq=True)}" if given else path


def pieces(text: str, spans: Sequence[Sequence[int]]) -> list[tuple[str, bool]]:
    """The text split at spans [start, end): (piece, whether it is inside a span), in order."""
    found, at = [], 0
    for start, end in sorted((max(0, start), min(end, len(text))) for start, end in spans):
        if (start := max(start, at)) < end:
            found += [(text[at:start], False), (text[start:end], True)]
            at = end
    return [(piece, inside) for piece, inside in [*found, (text[at:], False)] if piece]


def excerpt(text: str, spans: Sequence[Sequence[int]]) -> list[tuple[str, bool]]:
    """The pieces of a text around its spans; a long text is cut between sentences or lines."""
    if len(text) <= _EXCERPT:
        return pieces(text, spans)
    first = min((start for start, _ in spans), default=0)
    last = max((end for _, end in spans), default=0)
    begin = max(0, first - _BEFORE)
    if begin:
        ends = [begin + match.end() for match in _END.finditer(text[begin:first])]
        begin = ends[0] if ends else first
    stop = min(len(text), max(last + _BEFORE, begin + _EXCERPT))
    if stop < len(text):
        ends = [last + match.end() for match in _END.finditer(text[last:stop])]
        stop = ends[-1] if ends else stop
    shown = pieces(text[begin:stop].rstrip(), [[a - begin, b - begin] for a, b in spans])
    return [
        *([("… ", False)] if begin else []),
        *shown,
        *([(" …", False)] if stop < len(text) else []),
    ]


@cache
def static_url(name: str) -> str:
    """The URL of a static file, with a hash of its content."""
    digest = hashlib.sha256((STATIC / name).read_bytes()).hexdigest()[:10]
    return f"{STATIC_PATH}/{name}?v={digest}"


@cache
def _markdown() -> MarkdownIt:
    from markdown_it import MarkdownIt  # imported with the first answer

    # no raw HTML; links with schemes that could run code are left as text
    parser = MarkdownIt("commonmark", {"html": False}).enable(["table", "strikethrough"])
    return parser.disable("image")


def markdown(text: str, marks: Mapping[int, Mapping[str, str]] | None = None) -> Markup:
    """Markdown as HTML that runs no code and fetches nothing; a mark [n] becomes a link with the
    attributes `marks[n]`.
    """
    parser = _markdown()
    tokens = parser.parse(text)
    for token in tokens if marks else ():
        token.children = token.children and list(_with_links(token.children, marks or {}))
    return Markup(parser.renderer.render(tokens, parser.options, {}))


def _with_links(tokens: Sequence[Token], marks: Mapping[int, Mapping[str, str]]) -> Iterator[Token]:
    from markdown_it.token import Token

    depth = 0
    for token in tokens:
        depth += (token.type == "link_open") - (token.type == "link_close")
        if token.type != "text" or depth:
            yield token
            continue
        for at, piece in enumerate(_MARK.split(token.content)):
            attributes = marks.get(int(piece)) if at % 2 else None
            shown = f"[{piece}]" if at % 2 else piece
            if attributes is not None:
                yield Token("link_open", "a", 1, attrs=dict(attributes))
            yield Token("text", "", 0, content=shown)
            if attributes is not None:
                yield Token("link_close", "a", -1)
