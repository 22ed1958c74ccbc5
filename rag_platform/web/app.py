"""The ASGI application: `/api`, the web pages and their static files, behind the guards."""

from __future__ import annotations

import gc
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from starlette.applications import Starlette
from starlette.datastructures import MutableHeaders
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from rag_platform import access
from rag_platform.config.services import HttpSettings
from rag_platform.config.settings import Settings
from rag_platform.errors import ConfigError, RagError
from rag_platform.observability import tracing
from rag_platform.retrieval.library import Library
from rag_platform.storage.store import Store
from rag_platform.web.failures import error_response
from rag_platform.web.first_page import QuestionForm, show_form
from rag_platform.web.guards import (
    HEALTH_PATH,
    STATIC_PATH,
    AccessLog,
    KnownOrigins,
    PlainBody,
    RequireToken,
    is_loopback,
    mcp_url,
)
from rag_platform.web.rendering import STATIC, compile_templates
from rag_platform.web.tokens import Tokens, Verifier

_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:;"
    " connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
_HEADERS = {
    "content-security-policy": _POLICY,
    "x-content-type-options": "nosniff",
    "referrer-policy": "same-origin",  # "no-referrer" would make forms send Origin: null
    "x-frame-options": "DENY",
}
_LOAD_AFTER_SECONDS = 3.0  # after the first page of a browser opened at the start


def create_app(library: Library, *, guarded: bool = True) -> Starlette:
    """The application of a library, which it closes when it stops; `guarded` is false inside
    another application with the guards. Raises ConfigError if it would listen to other machines
    without requiring a token.
    """
    pages = _Pages(library)

    def make_ready() -> None:
        pages.load()
        compile_templates()

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        loading = threading.Timer(_LOAD_AFTER_SECONDS, make_ready)
        loading.daemon = True
        loading.start()
        yield
        loading.cancel()
        library.close()

    app = Starlette(
        routes=[
            Mount(STATIC_PATH, StaticFiles(directory=STATIC)),
            Route(HEALTH_PATH, _health),
            Mount("/", pages),
        ],
        middleware=[*(guards(library.settings) if guarded else ()), Middleware(ReaderContext)],
        exception_handlers=dict.fromkeys((RagError, HTTPException, Exception), error_response),
        lifespan=lifespan,
    )
    app.state.library = library
    return app


class _Pages:
    """All pages and `/api`. FastAPI with its routes takes as long to import as everything else, so
    the first page is served without it; it is imported by the first request that needs it, or some
    seconds after the start.
    """

    def __init__(self, library: Library) -> None:
        self._library = library
        self._lock = threading.Lock()
        self._routed: ASGIApp | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        is_bare = scope["path"] == "/" and not scope["query_string"]
        if is_bare and scope["method"] == "GET" and self._routed is None:
            request = Request(scope, receive)
            await show_form(request, QuestionForm())(scope, receive, send)
        else:
            await self.load()(scope, receive, send)

    def load(self) -> ASGIApp:
        """The FastAPI application, imported and built at the first call."""
        with self._lock:
            if self._routed is None:
                from rag_platform.web.routed_app import build_app

                self._routed = build_app(self._library)
                gc.enable()  # disabled at the start of `rag ui`
            return self._routed


def guards(settings: Settings, metadata_url: str = "") -> list[Middleware]:
    """The middleware that guards every request. Raises ConfigError, as `create_app` does."""
    http = settings.server.http
    store = Store.of(settings)
    tokens = Tokens(store)
    verifier = Verifier(tokens, http.oauth, mcp_url(http), needed=_needs_tokens(http, tokens))
    stack = [
        Middleware(AccessLog, logs_dir=store.logs_dir, log_arguments=http.log_arguments),
        Middleware(KnownOrigins, settings=http),
    ]
    if http.allowed_origins:  # before RequireToken: preflight requests carry no token
        cors = Middleware(
            CORSMiddleware,
            allow_origins=list(http.allowed_origins),
            allow_methods=["GET", "POST", "DELETE"],
            allow_headers=["*"],
            expose_headers=["Mcp-Session-Id", "WWW-Authenticate"],
        )
        stack.append(cors)
    return [
        *stack,
        Middleware(RequireToken, verify=verifier.verify, settings=http, metadata_url=metadata_url),
        Middleware(PlainBody, seconds=http.request_seconds),
    ]


def _needs_tokens(http: HttpSettings, tokens: Tokens) -> bool:
    """True if requests without a token are refused even after all tokens are revoked. Raises
    ConfigError `no_tokens`.
    """
    remote = not is_loopback(http.host) or bool(http.public_url)
    if remote and not tokens.all() and not http.oauth.issuer:
        raise ConfigError(
            f"{http.public_url or http.host} lets others in, and there is no token yet: make one"
            " with `rag token create NAME`, or listen on 127.0.0.1 without a public_url",
            code="no_tokens",
        )
    return remote or bool(tokens.all()) or bool(http.oauth.issuer)


class ReaderContext:
    """Handles a request as the caller of its token, marks traces with the client `web`, and adds
    security headers.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        caller = scope.get("caller", access.OWNER)
        client = tracing.Client(door="web", client_level="L2", token_id=caller.token_id)
        is_static = scope["path"].startswith(STATIC_PATH)

        async def secured(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in _HEADERS.items():
                    headers.setdefault(name, value)
                headers.setdefault(
                    "cache-control",
                    "public, max-age=31536000, immutable" if is_static else "no-store",
                )
            await send(message)

        with access.acting_for(caller), tracing.for_client(client):
            await self._app(scope, receive, secured)


async def _health(request: Request) -> Response:
    return JSONResponse({"status": "ok", "ready": True})
