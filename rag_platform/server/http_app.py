"""The server over HTTP: one ASGI application with MCP at `/mcp`, and what runs it.

access log -> Host and Origin -> token and rate -> body -> MCP, health, OAuth metadata
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
import socket
import sys
from collections.abc import Callable, Sequence
from typing import Any

import uvicorn
from mcp.server.auth.middleware.auth_context import AuthContextMiddleware
from mcp.server.auth.routes import build_resource_metadata_url, create_protected_resource_routes
from mcp.server.auth.settings import AuthSettings
from mcp.server.transport_security import TransportSecuritySettings
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import BaseRoute, Route
from uvicorn.protocols.http.h11_impl import H11Protocol

from rag_platform.access import SCOPES
from rag_platform.config.http import HttpSettings
from rag_platform.config.settings import Settings
from rag_platform.errors import ConfigError
from rag_platform.observability import otlp
from rag_platform.observability.logs import setup_logging
from rag_platform.server.access_tokens import Verifier
from rag_platform.server.app import SWITCH_SECONDS, LibraryServer, build_server
from rag_platform.server.http_guards import (
    HEALTH_PATH,
    AccessLog,
    KnownHosts,
    PlainBody,
    RequireToken,
    is_loopback,
)
from rag_platform.server.tokens import Tokens
from rag_platform.storage.store import Store

MCP_PATH = "/mcp"


def build_app(
    server: LibraryServer, settings: Settings, pages: Sequence[BaseRoute] = ()
) -> Starlette:
    """The application over a server; `pages` are routes beside those of the protocol.

    Raises ConfigError where it would listen to other machines without asking for a token.
    """
    http = settings.server.http
    store = Store(settings.home)
    tokens = Tokens(store)
    needed = _needs_tokens(http, tokens)
    resource = f"{http.public_url or f'http://{http.host}:{http.port}'}{MCP_PATH}"
    verifier = Verifier(tokens, http.oauth, resource, needed=needed)
    inner = server.streamable_http_app(
        streamable_http_path=MCP_PATH,
        stateless_http=not http.sessions,
        max_request_body_size=http.max_body_bytes,
        session_idle_timeout=http.session_idle_seconds,
        max_sessions=http.max_sessions,
        # KnownHosts checks every path, and says what to do
        transport_security=TransportSecuritySettings(enable_dns_rebinding_protection=False),
    )
    routes: list[BaseRoute] = [*inner.routes, Route(HEALTH_PATH, _health(server)), *pages]
    metadata_url = ""
    if http.oauth.issuer:
        # the SDK's settings keep an address without a path as it is, and issuers are compared whole
        oauth = AuthSettings.model_validate(
            {
                "issuer_url": http.oauth.issuer,
                "resource_server_url": resource,
                "validate_token_resource": False,
            }
        )
        assert oauth.resource_server_url is not None
        metadata_url = str(build_resource_metadata_url(oauth.resource_server_url))
        scopes = [f"{http.oauth.scope_prefix}{scope}" for scope in SCOPES]
        routes += create_protected_resource_routes(
            oauth.resource_server_url, [oauth.issuer_url], scopes
        )
    middleware = [
        Middleware(AccessLog, logs_dir=store.logs_dir, log_arguments=http.log_arguments),
        Middleware(KnownHosts, settings=http, host=http.host),
        Middleware(RequireToken, verify=verifier.verify, settings=http, metadata_url=metadata_url),
        Middleware(AuthContextMiddleware),
        Middleware(PlainBody, seconds=http.request_seconds),
    ]
    if http.allowed_origins:
        cors = Middleware(
            CORSMiddleware,
            allow_origins=list(http.allowed_origins),
            allow_methods=["GET", "POST", "DELETE"],
            allow_headers=["*"],
            expose_headers=["Mcp-Session-Id", "WWW-Authenticate"],
        )
        middleware.insert(2, cors)  # a browser asks first, and without a token
    return Starlette(
        routes=routes, middleware=middleware, lifespan=lambda app: server.session_manager.run()
    )


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


def _health(server: LibraryServer) -> Callable[[Request], Any]:
    async def health(request: Request) -> JSONResponse:
        return JSONResponse({"status": "ok", "ready": server.is_ready()})

    return health


# --- running it ---------------------------------------------------------------------------------


class PatientProtocol(H11Protocol):
    """HTTP/1.1 that closes connections whose request headers do not come in time."""

    seconds = 10.0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin to wait for a request."""
        super().connection_made(transport)
        self._await_request(None)

    def on_response_complete(self) -> None:
        """Begin to wait for the next request."""
        answered = self.cycle
        super().on_response_complete()
        self._await_request(answered)

    def _await_request(self, last: Any) -> None:
        self.loop.call_later(self.seconds, self._close_unless_asked, last)

    def _close_unless_asked(self, last: Any) -> None:
        if self.cycle is last:
            self.transport.close()


def serve_http(settings: Settings) -> None:
    """Answer over HTTP until the process is told to stop; requests that run then may end."""
    http = settings.server.http
    # uvicorn sends itself the signal that it stopped for once more: the program then ends as usual
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: sys.exit(0))
    sys.setswitchinterval(SWITCH_SECONDS)
    setup_logging(Store(settings.home).logs_dir)
    otlp.setup(settings.observability.otlp)
    server = build_server(settings, preload=True)
    app = build_app(server, settings)
    protocol = type("Protocol", (PatientProtocol,), {"seconds": http.request_seconds})
    config = uvicorn.Config(
        app,
        loop="asyncio",
        http=protocol,
        ws="none",
        log_config=None,
        access_log=False,
        server_header=False,
        limit_concurrency=http.max_connections,
        timeout_graceful_shutdown=http.stop_seconds,
    )
    with contextlib.closing(_listen(http)) as listener:
        host, port = listener.getsockname()[:2]
        shown = f"[{host}]" if ":" in host else host
        sys.stderr.write(f"Listening on http://{shown}:{port}{MCP_PATH}\n")
        sys.stderr.flush()
        uvicorn.Server(config).run(sockets=[listener])


def _listen(http: HttpSettings) -> socket.socket:
    """The socket at which the server listens. Raises ConfigError where it cannot."""
    try:
        listener = socket.create_server(
            (http.host, http.port),
            family=socket.AF_INET6 if ":" in http.host else socket.AF_INET,
            backlog=512,
        )
        # asyncio does it for sockets of its own only; headers and body would go 40 ms apart
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return listener
    except OSError as error:
        raise ConfigError(
            f"cannot listen on {http.host}, port {http.port}: {error.strerror}; choose another with"
            " --port or --host",
            code="cannot_listen",
        ) from error
