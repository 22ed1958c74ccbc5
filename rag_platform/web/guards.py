"""ASGI middleware that guards every HTTP request: access log, checks of Host and Origin, body
encoding and speed, tokens and rate limits.

A refused request gets a JSON body `{error, error_description}` with the fault and the remedy.
"""

from __future__ import annotations

import ipaddress
import re
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

import anyio
from starlette.datastructures import Headers
from starlette.requests import cookie_parser
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from rag_platform.access import NOBODY, Caller
from rag_platform.config.services import HttpSettings
from rag_platform.observability import logs, tracing
from rag_platform.web.tokens import InvalidToken

HEALTH_PATH = "/health"
MCP_PATH = "/mcp"
LOGIN_PATH = "/login"
STATIC_PATH = "/static"
TOKEN_COOKIE = "rag_token"
# served without a token: they contain nothing of the library
_OPEN_PATHS = (HEALTH_PATH, LOGIN_PATH, f"{STATIC_PATH}/", "/.well-known/")
_NOTE = "rag_platform.access_note"  # key of the scope: fields added to the access log's line
_MAX_RATES = 10_000
_SAFE_METHODS = ("GET", "HEAD", "OPTIONS")

# Raises InvalidToken; None if no token was sent and none is needed.
Verify = Callable[[str | None], Awaitable[Caller | None]]
_HOST = re.compile(r"(?:\[([^\[\]@/]*)\]|([^:@/\[\]]*))(?::\d+)?")  # `[::1]:80`, `host:80`


def refuse(status: int, error: str, description: str, **headers: str) -> JSONResponse:
    """The response to a refused request."""
    body = {"error": error, "error_description": description}
    return JSONResponse(
        body, status, {key.replace("_", "-"): text for key, text in headers.items()}
    )


def mcp_url(http: HttpSettings) -> str:
    """The public URL of the MCP endpoint."""
    return f"{http.public_url or f'http://{http.host}:{http.port}'}{MCP_PATH}"


def is_loopback(host: str) -> bool:
    """True for a name or address that only this machine can reach."""
    if host == "localhost":
        return True
    return (address := _parse_address(host)) is not None and address.is_loopback


def _parse_address(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(host.strip("[]"))
    except ValueError:
        return None


def add_log_fields(scope: Mapping[str, Any], **fields: Any) -> None:
    """Add fields to the access log's line of a request."""
    known = scope.get(_NOTE)
    if known is not None:
        known.update({key: value for key, value in fields.items() if value not in ("", None)})


class AccessLog:
    """Logs one structured line per request after its response: without query strings, and without
    tool arguments unless the settings allow them.
    """

    def __init__(self, app: ASGIApp, logs_dir: Path, *, log_arguments: bool) -> None:
        self._app = app
        self._logs_dir = logs_dir
        self._log_arguments = log_arguments

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        began = time.perf_counter()
        added: dict[str, Any] = {}
        scope[_NOTE] = added
        status, size = 0, 0

        async def watch(message: Message) -> None:
            nonlocal status, size
            if message["type"] == "http.response.start":
                status = message["status"]
            size += len(message.get("body", b""))
            await send(message)

        try:
            await self._app(scope, receive, watch)
        finally:
            if not self._log_arguments:
                added.pop("arguments", None)
            client = scope.get("client")
            line = {
                "schema_version": logs.LOG_SCHEMA_VERSION,
                "line": "access",
                "ts": tracing.now(),
                "address": client[0] if client else "",
                "method": scope["method"],
                "path": scope["path"][:200],
                "status": status,
                "bytes": size,
                "duration_ms": round((time.perf_counter() - began) * 1000, 1),
                **added,
            }
            logs.append(self._logs_dir, line)


class KnownOrigins:
    """Refuses requests with a foreign Host or Origin, which pages of other sites can make a browser
    send (DNS rebinding), and changes requested by pages of another origin, even one on this machine
    (CSRF). The health check is exempt, as load balancers use IP addresses.
    """

    def __init__(self, app: ASGIApp, settings: HttpSettings) -> None:
        self._app = app
        public, address = urlsplit(settings.public_url), _parse_address(settings.host)
        names = {*settings.allowed_hosts, public.netloc}
        names |= {settings.host} if address is None or not address.is_unspecified else set()
        self._hosts = {name.lower() for name in names if name}
        self._allowed = {origin.lower().rstrip("/") for origin in settings.allowed_origins}
        self._origins = {*self._allowed, settings.public_url.lower().rstrip("/")}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        refused = self._check(scope) if scope["type"] == "http" else None
        await (refused or self._app)(scope, receive, send)

    def _check(self, scope: Scope) -> Response | None:
        """The response to a request that is refused."""
        headers = Headers(scope=scope)
        host, origin = headers.get("host", ""), headers.get("origin", "")
        if scope["path"] == HEALTH_PATH:
            return None
        if not self._knows_host(host):
            return refuse(
                421,
                "unknown_host",
                f"this server does not answer for the host {host[:100]!r}; name it in"
                " server.http.allowed_hosts",
            )
        changes = scope["method"] not in _SAFE_METHODS and scope["path"] != MCP_PATH
        if not self._knows_origin(origin):
            may = "use this server"
        elif changes and not self._is_own(origin, host):
            may = "change anything here"
        else:
            return None
        return refuse(
            403,
            "unknown_origin",
            f"pages of {origin[:100]!r} may not {may}; name it in server.http.allowed_origins",
        )

    def _knows_host(self, host: str) -> bool:
        host = host.lower()
        name = _without_port(host)
        return host in self._hosts or name in self._hosts or is_loopback(name)

    def _knows_origin(self, origin: str) -> bool:
        if not origin or origin.lower() in self._origins:
            return True
        scheme, _, host = origin.lower().partition("://")
        return scheme in ("http", "https") and is_loopback(_without_port(host))

    def _is_own(self, origin: str, host: str) -> bool:
        """True for a page of this server or of an origin named in the settings, or no page."""
        own = origin.lower().partition("://")[2] == host.lower()
        return not origin or own or origin.lower() in self._allowed


def _without_port(host: str) -> str:
    """The host of `host:port`; an IPv6 address without its brackets; empty for anything else."""
    found = _HOST.fullmatch(host)
    return (found[1] or found[2] or "") if found else ""


class _TooSlow(Exception):
    """The body did not arrive in time."""


class PlainBody:
    """Refuses compressed bodies, which may expand to any size, and bodies that arrive too slowly;
    for file uploads the time limit holds per message, else for the whole body.
    """

    def __init__(self, app: ASGIApp, seconds: float) -> None:
        self._app = app
        self._seconds = seconds

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        encoding = Headers(scope=scope).get("content-encoding", "identity")
        if encoding.lower() not in ("", "identity"):
            answer = refuse(
                415,
                "compressed_body",
                f"bodies are not unpacked here; send it without Content-Encoding {encoding[:40]!r}",
                Accept_Encoding="identity",
            )
            await answer(scope, receive, send)
            return
        until = anyio.current_time() + self._seconds
        complete = started = False
        has_files = Headers(scope=scope).get("content-type", "").startswith("multipart/form-data")

        async def timed() -> Message:
            nonlocal complete, until
            if complete:  # only the disconnect is left, which has no time limit
                return await receive()
            with anyio.move_on_at(until):
                message = await receive()
                complete = not message.get("more_body", False)
                if has_files:
                    until = anyio.current_time() + self._seconds
                return message
            raise _TooSlow

        async def watch(message: Message) -> None:
            nonlocal started
            started = True
            await send(message)

        try:
            await self._app(scope, timed, watch)
        except _TooSlow:
            if not started:
                answer = refuse(
                    408,
                    "slow_body",
                    f"the body did not arrive within {self._seconds:g} s",
                    Connection="close",
                )
                await answer(scope, receive, send)


class Rate:
    """A token bucket per key: `per_minute` requests at once, refilled evenly."""

    def __init__(self, per_minute: int) -> None:
        self._max_per_minute = float(per_minute)
        self._left: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def wait_seconds(self, key: str) -> float:
        """0 if the request is allowed, which counts it; else the seconds until one is allowed."""
        now = time.monotonic()
        left, at = self._left.pop(key, (self._max_per_minute, now))
        left = min(self._max_per_minute, left + (now - at) * self._max_per_minute / 60)
        allowed = left >= 1
        self._left[key] = (left - allowed, now)
        if len(self._left) > _MAX_RATES:
            self._left.popitem(last=False)
        return 0.0 if allowed else (1 - left) * 60 / self._max_per_minute


class RequireToken:
    """Refuses requests without a valid token if one is needed, and tokens above their rate limit.
    Browsers send the token as a cookie; without one they are redirected to the login page.
    """

    def __init__(
        self, app: ASGIApp, verify: Verify, settings: HttpSettings, metadata_url: str = ""
    ) -> None:
        self._app = app
        self._verify = verify
        self._rates = Rate(settings.requests_per_minute)
        self._refusals = Rate(settings.refusals_per_minute)
        self._challenge = f', resource_metadata="{metadata_url}"' if metadata_url else ""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        path = scope.get("path", "")
        if scope["type"] != "http" or path.startswith(_OPEN_PATHS):
            scope["caller"] = NOBODY
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        kind, _, sent = headers.get("authorization", "").partition(" ")
        secret = sent.strip() if kind.lower() == "bearer" else None
        if secret is None and path != MCP_PATH:
            secret = cookie_parser(headers.get("cookie", "")).get(TOKEN_COOKIE)
        try:
            caller = await self._verify(secret)
        except InvalidToken as error:
            answer = self._refuse_token(scope, str(error), sent=bool(secret))
            if shown := headers.get("hx-current-url", ""):  # part of a page, which starts anew
                answer.headers["HX-Redirect"] = f"{LOGIN_PATH}?next={quote(_without_host(shown))}"
            elif "text/html" in headers.get("accept", ""):
                asked = scope.get("query_string", b"").decode("latin-1")
                address = f"{path}?{asked}" if asked else path
                if scope["method"] != "GET" and (form := headers.get("referer", "")):
                    address = _without_host(form)
                answer = RedirectResponse(f"{LOGIN_PATH}?next={quote(address)}", 303)
            await answer(scope, receive, send)
            return
        if caller is not None:
            if wait := self._rates.wait_seconds(caller.token_id):
                await _too_many(wait)(scope, receive, send)
                return
            scope["caller"] = caller
            add_log_fields(scope, token_id=caller.token_id)
        await self._app(scope, receive, send)

    def _refuse_token(self, scope: Scope, why: str, *, sent: bool) -> Response:
        client = scope.get("client")
        if wait := self._refusals.wait_seconds(client[0] if client else ""):
            return _too_many(wait)
        error = 'error="invalid_token", ' if sent else ""
        challenge = f'Bearer {error}error_description="{why}"{self._challenge}'
        return refuse(401, "invalid_token", why, WWW_Authenticate=challenge)


def _without_host(address: str) -> str:
    return re.sub("^https?://[^/?#]*", "", address)  # urlsplit raises on what a client may send


def _too_many(wait: float) -> JSONResponse:
    seconds = max(1, round(wait + 0.5))
    return refuse(
        429,
        "too_many_requests",
        f"too many requests; the next one is taken in {seconds} s",
        Retry_After=str(seconds),
    )
