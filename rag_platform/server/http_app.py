"""The server over HTTP: one ASGI application with MCP at `/mcp` and the pages beside it.

guards (access log, Host and Origin, token and rate, body) -> MCP, OAuth metadata, pages and `/api`
"""

from __future__ import annotations

from dataclasses import dataclass

from mcp.server.auth.middleware.auth_context import AuthContextMiddleware
from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser
from mcp.server.auth.provider import AccessToken
from mcp.server.auth.routes import build_resource_metadata_url, create_protected_resource_routes
from mcp.server.auth.settings import AuthSettings
from mcp.server.transport_security import TransportSecuritySettings
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import BaseRoute, Mount, Route
from starlette.types import ASGIApp, Receive, Scope, Send

from rag_platform.access import SCOPES
from rag_platform.config.settings import Settings
from rag_platform.server.app import LibraryServer, build_server
from rag_platform.server.opening import set_up_process
from rag_platform.web.app import create_app, guards
from rag_platform.web.guards import HEALTH_PATH, MCP_PATH, mcp_url
from rag_platform.web.serving import serve_app


@dataclass(slots=True)
class UserMiddleware:
    """Sets the user of a request for the SDK, which binds sessions to users."""

    app: ASGIApp

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if (caller := scope.get("caller")) is not None:
            token = AccessToken(token="", client_id=caller.token_id, scopes=[caller.scope])
            scope["user"] = AuthenticatedUser(token)
        await self.app(scope, receive, send)


def build_app(server: LibraryServer, settings: Settings) -> Starlette:
    """The ASGI application of a server. Raises ConfigError if it would listen to other machines
    without requiring a token.
    """
    http = settings.server.http
    inner = server.streamable_http_app(
        streamable_http_path=MCP_PATH,
        stateless_http=not http.sessions,
        max_request_body_size=http.max_body_bytes,
        session_idle_timeout=http.session_idle_seconds,
        max_sessions=http.max_sessions,
        # KnownOrigins checks every path, with a helpful message
        transport_security=TransportSecuritySettings(enable_dns_rebinding_protection=False),
    )

    async def health(request: Request) -> JSONResponse:
        return JSONResponse({"status": "ok", "ready": server.is_ready()})

    routes: list[BaseRoute] = [*inner.routes, Route(HEALTH_PATH, health)]
    metadata_url = ""
    if http.oauth.issuer:
        # the SDK's settings model does not append a slash to the issuer, which is compared exactly
        oauth = AuthSettings.model_validate(
            {
                "issuer_url": http.oauth.issuer,
                "resource_server_url": mcp_url(http),
                "validate_token_resource": False,
            }
        )
        assert oauth.resource_server_url is not None
        metadata_url = str(build_resource_metadata_url(oauth.resource_server_url))
        scopes = [f"{http.oauth.scope_prefix}{scope}" for scope in SCOPES]
        routes += create_protected_resource_routes(
            oauth.resource_server_url, [oauth.issuer_url], scopes
        )
    routes.append(Mount("/", create_app(server.library, guarded=False)))
    middleware = [
        *guards(settings, metadata_url),
        Middleware(UserMiddleware),
        Middleware(AuthContextMiddleware),
    ]
    return Starlette(
        routes=routes, middleware=middleware, lifespan=lambda app: server.session_manager.run()
    )


def serve_http(settings: Settings) -> None:
    """Serve over HTTP until the process is told to stop; running requests are finished."""
    set_up_process(settings)
    server = build_server(settings)
    app = build_app(server, settings)
    # preloads only after listening succeeded, so that a failure ends the process at once
    serve_app(app, settings.server.http, MCP_PATH, lambda _: server.preload(server.library))
