"""One application: `/api`, the pages and their static files, behind the guards."""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.datastructures import MutableHeaders
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Match
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from rag_platform import access
from rag_platform.api.envelopes import failure
from rag_platform.config.http import HttpSettings
from rag_platform.config.settings import Settings
from rag_platform.contract.schema import ErrorPart
from rag_platform.errors import (
    BusyError,
    ConfigError,
    DocumentError,
    InputError,
    NotFoundError,
    RagError,
    ReleaseError,
)
from rag_platform.observability import faults, tracing
from rag_platform.observability.build import build_info
from rag_platform.storage.store import Store
from rag_platform.web.access_tokens import Verifier
from rag_platform.web.guards import (
    HEALTH_PATH,
    STATIC_PATH,
    AccessLog,
    KnownHosts,
    PlainBody,
    RequireToken,
    SameOrigin,
    is_loopback,
    mcp_url,
)
from rag_platform.web.pages import ask, preferences
from rag_platform.web.rendering import STATIC, is_fragment, render
from rag_platform.web.site import Site
from rag_platform.web.tokens import Tokens

_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:;"
    " connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
_HEADERS = {
    "content-security-policy": _POLICY,
    "x-content-type-options": "nosniff",
    "referrer-policy": "same-origin",  # none at all would make forms of unknown origin
    "x-frame-options": "DENY",
}
_LOAD_AFTER_SECONDS = 3.0  # by then a browser that was opened with the pages has its first one
_STATUSES = {
    "insufficient_scope": 403,
    "overloaded": 503,
    "ledger_unreachable": 503,
    "deadline": 504,
    "filter_failed": 400,
    "cancelled": 499,  # nobody reads it
}


def create_app(site: Site, *, guarded: bool = True) -> FastAPI:
    """The application over a site; without guards where it stands inside another one that has them.

    Raises ConfigError where it would listen to other machines without asking for a token.
    """

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        loading = threading.Timer(_LOAD_AFTER_SECONDS, rest.load)
        loading.daemon = True
        loading.start()
        yield
        loading.cancel()
        site.close()

    app = FastAPI(
        title="rag_platform",
        version=build_info()["app_version"],
        description="What the library holds, answers, and how it came about.",
        openapi_url="/api/openapi.json",
        docs_url=None,  # their scripts come from elsewhere
        redoc_url=None,
        lifespan=lifespan,
        middleware=[*(guards(site.settings) if guarded else ()), Middleware(ForReader)],
        responses={"4XX": {"model": ErrorPart}, "5XX": {"model": ErrorPart}},
    )
    app.state.site = site
    rest = _Rest(app)
    app.openapi = rest.describe  # type: ignore[method-assign]
    app.mount(STATIC_PATH, StaticFiles(directory=STATIC))
    app.add_route(HEALTH_PATH, _health)
    for page in (ask, preferences):
        app.include_router(page.router, include_in_schema=False)
    app.router.routes.append(rest)
    app.add_exception_handler(Exception, _tell)
    for kind in (RagError, HTTPException, RequestValidationError):
        app.add_exception_handler(kind, _tell)
    return app


class _Rest(BaseRoute):
    """The routes that the first page does without: they take as long to import as everything else,
    and come in with the first request that only they can answer, or once the first page stands.
    """

    def __init__(self, app: FastAPI) -> None:
        self._app = app
        self._described = app.openapi
        self._lock = threading.Lock()
        self._is_loaded = False

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        """No match; those that follow are there from now on."""
        self.load()
        return Match.NONE, {}

    def describe(self) -> dict[str, Any]:
        """What OpenAPI says of all routes."""
        self.load()
        return self._described()

    def load(self) -> None:
        """Import and include the routes, once."""
        with self._lock:
            if not self._is_loaded:
                self._include()
            self._is_loaded = True

    def _include(self) -> None:
        from rag_platform.web.pages import (
            browsing,
            drafting,
            evaluation,
            explaining,
            ingesting,
            overview,
            releasing,
            sources,
            traces,
        )
        from rag_platform.web.routes import asking, documents, drafts, jobs, releases, system
        from rag_platform.web.routes import evaluation as evaluation_routes
        from rag_platform.web.routes import overview as overview_routes
        from rag_platform.web.routes import sources as source_routes
        from rag_platform.web.routes import traces as trace_routes

        # a request builds the routers up to the one that answers it, those of /api slowly
        for page in (
            sources,
            browsing,
            drafting,
            ingesting,
            releasing,
            explaining,
            traces,
            evaluation,
            overview,
        ):
            self._app.include_router(page.router, include_in_schema=False)
        for routes in (
            system,
            asking,
            source_routes,
            documents,
            drafts,
            jobs,
            releases,
            trace_routes,
            evaluation_routes,
            overview_routes,
        ):
            self._app.include_router(routes.router, prefix="/api")


def guards(settings: Settings, metadata_url: str = "") -> list[Middleware]:
    """What stands before every request. Raises ConfigError, as `create_app` does."""
    http = settings.server.http
    store = Store.of(settings)
    tokens = Tokens(store)
    verifier = Verifier(tokens, http.oauth, mcp_url(http), needed=_needs_tokens(http, tokens))
    stack = [
        Middleware(AccessLog, logs_dir=store.logs_dir, log_arguments=http.log_arguments),
        Middleware(KnownHosts, settings=http, host=http.host),
    ]
    if http.allowed_origins:  # a browser asks first, and without a token
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
        Middleware(SameOrigin, settings=http),
        Middleware(PlainBody, seconds=http.request_seconds),
    ]


def _needs_tokens(http: HttpSettings, tokens: Tokens) -> bool:
    """True where a request without a token is refused whatever happens to the tokens."""
    remote = not is_loopback(http.host) or bool(http.public_url)
    if remote and not tokens.all() and not http.oauth.issuer:
        raise ConfigError(
            f"{http.public_url or http.host} lets others in, and there is no token yet: make one"
            " with `rag token create NAME`, or listen on 127.0.0.1 without a public_url",
            code="no_tokens",
        )
    return remote or bool(tokens.all()) or bool(http.oauth.issuer)


class ForReader:
    """Answers for the caller whose token a request carries, names the pages in traces, and sets the
    headers that keep foreign scripts out.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Go on as that caller."""
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


# --- errors -------------------------------------------------------------------------------------


def _tell(request: Request, error: Exception) -> Response:
    """The error as JSON under /api, else as a page."""
    status, part = _describe(error)
    if status == 500:
        faults.report(error, f"web {request.url.path}")
    if request.url.path.startswith("/api/"):
        return JSONResponse(part, status)
    template = "error_part.html" if is_fragment(request) else "error.html"
    return render(request, template, status, error=part)


def _describe(error: Exception) -> tuple[int, ErrorPart]:
    """Status and description of an error."""
    if isinstance(error, RequestValidationError):
        problems = "; ".join(
            f"{'.'.join(map(str, item['loc'][1:]))}: {item['msg']}"
            f" (given: {str(item['input'])[:80]!r})"
            for item in error.errors()
        )
        error = InputError(problems, code="invalid_arguments")
    if isinstance(error, HTTPException):
        return error.status_code, {
            "code": "http_error",
            "message": str(error.detail),
            "details": {"kind": "usage"},
        }
    part: Any = failure(error)["error"]
    return _status(error), part


def _status(error: Exception) -> int:
    if isinstance(error, NotFoundError):
        return 404
    if isinstance(error, InputError):
        return 400
    if isinstance(error, BusyError | ReleaseError):
        return 409
    if isinstance(error, DocumentError):  # a file that cannot be read
        return 422
    code = error.code if isinstance(error, RagError) else ""
    return _STATUSES.get(code, 500)
