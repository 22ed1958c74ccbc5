"""A process that listens for HTTP requests and answers them with an application."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import socket
import sys
from collections.abc import Callable
from typing import Any

import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol

from rag_platform.config.services import HttpSettings
from rag_platform.config.settings import Settings
from rag_platform.errors import ConfigError
from rag_platform.observability import otlp
from rag_platform.observability.logs import setup_logging
from rag_platform.storage.store import Store

UI_PORT = 8766
OnReady = Callable[[str], Any]  # gets the address at which a browser finds the pages


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


def serve_pages(settings: Settings, on_ready: OnReady | None = None) -> None:
    """Show the pages of a data root until the process is told to stop."""
    from rag_platform.releases.following import following
    from rag_platform.web.app import create_app
    from rag_platform.web.site import Site

    setup_logging(Store.of(settings).logs_dir)
    otlp.setup(settings.observability.otlp)
    with following(settings):
        serve_app(create_app(Site(settings)), settings.server.http, on_ready=on_ready)


def serve_app(
    app: ASGIApp, http: HttpSettings, path: str = "/", on_ready: OnReady | None = None
) -> None:
    """Answer until the process is told to stop; `path` is what the user is pointed to, and
    `on_ready` gets its address.

    Raises ConfigError where it cannot listen.
    """
    # uvicorn sends itself the signal that it stopped for once more: the program then ends as usual
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: sys.exit(0))
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
        address = f"http://{shown}:{port}{path}"
        sys.stderr.write(f"Listening on {address}\n")
        sys.stderr.flush()
        if on_ready is not None:
            on_ready(address)
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
