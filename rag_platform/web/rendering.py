"""Templates, in the reader's language and theme."""

from __future__ import annotations

import hashlib
from functools import cache, partial
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from fastapi import Request
from jinja2 import Environment, FileSystemLoader
from markdown_it import MarkdownIt
from markupsafe import Markup
from starlette.responses import Response
from starlette.templating import Jinja2Templates

from rag_platform import access
from rag_platform.messages import LANGUAGES, choose_language, translate
from rag_platform.web.guards import STATIC_PATH
from rag_platform.web.site import get_site

HERE = Path(__file__).parent
STATIC = HERE / "static"
LANGUAGE_COOKIE, THEME_COOKIE = "rag_lang", "rag_theme"
THEMES = ("auto", "light", "dark")
# (path, English name) of the pages, in the order of the menu
PAGES = (
    ("/", "Ask"),
    ("/ingestion-traces", "Ingestion traces"),
    ("/query-traces", "Query traces"),
    ("/evaluation", "Evaluation"),
)


def language_of(request: Request) -> str:
    """The language that the reader chose, else the one that the browser prefers."""
    chosen = request.cookies.get(LANGUAGE_COOKIE, "")
    if chosen in LANGUAGES:
        return chosen
    return choose_language(request.headers.get("accept-language", ""))


def theme_of(request: Request) -> str:
    """The theme that the reader chose; auto follows the system."""
    chosen = request.cookies.get(THEME_COOKIE, "auto")
    return chosen if chosen in THEMES else "auto"


def render(request: Request, template: str, status: int = 200, **values: Any) -> Response:
    """The page or fragment that the template makes of the values."""
    return _templates().TemplateResponse(request, template, values, status_code=status)


def is_fragment(request: Request) -> bool:
    """True where htmx asks for a part of a page."""
    return request.headers.get("hx-request") == "true"


@cache
def _templates() -> Jinja2Templates:
    environment = Environment(
        loader=FileSystemLoader(HERE / "templates"),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["markdown"] = markdown
    environment.globals["static"] = static_url
    environment.globals["link"] = link
    return Jinja2Templates(env=environment, context_processors=[_context])


def _context(request: Request) -> dict[str, Any]:
    """What every template may use: `_` translates, `link` builds addresses."""
    language = language_of(request)
    site = get_site(request)
    return {
        "_": partial(translate, language=language),
        "language": language,
        "languages": LANGUAGES,
        "theme": theme_of(request),
        "themes": THEMES,
        "pages": PAGES,
        "namespaces": [n for n in site.library.namespaces() if access.current().may_see(n)],
        "caller": access.current(),
    }


def link(path: str, **parameters: Any) -> str:
    """The address of a page with those parameters that have a value."""
    given = {key: value for key, value in parameters.items() if value or value == 0}
    return f"{path}?{urlencode(given, doseq=True)}" if given else path


@cache
def static_url(name: str) -> str:
    """The address of a static file, which changes with its bytes."""
    digest = hashlib.sha256((STATIC / name).read_bytes()).hexdigest()[:10]
    return f"{STATIC_PATH}/{name}?v={digest}"


@cache
def _markdown() -> MarkdownIt:
    # no HTML of the document's own; links of schemes that could run something are left as text
    parser = MarkdownIt("commonmark", {"html": False}).enable(["table", "strikethrough"])
    return parser.disable("image")


def markdown(text: str) -> Markup:
    """Markdown as HTML in which nothing runs and nothing is fetched."""
    return Markup(_markdown().render(text))
