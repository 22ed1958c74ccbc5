"""Runs an ASGI application in a uvicorn server."""

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
OnReady = Callable[[str], Any]  # gets the URL of the application


class PatientProtocol(H11Protocol):
    """HTTP/1.1 that closes connections whose request headers do not arrive in time."""

    seconds = 10.0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._await_request(None)

    def on_response_complete(self) -> None:
        answered = self.cycle
        super().on_response_complete()
        self._await_request(answered)

    def _await_request(self, last: Any) -> None:
        self.loop.call_later(self.seconds, self._close_if_idle, last)

    def _close_if_idle(self, last: Any) -> None:
        if self.cycle is last:
            self.transport.close()


def serve_pages(settings: Settings, on_ready: OnReady | None = None) -> None:
    """Serve the web pages of a data root until the process is told to stop."""
    from rag_platform.releases.servers import following
    from rag_platform.retrieval.library import Library
    from rag_platform.web.app import create_app

    setup_logging(Store.of(settings).logs_dir)
    otlp.setup(settings.observability.otlp)
    with following(settings):
        serve_app(create_app(Library.open(settings)), settings.server.http, on_ready=on_ready)


def serve_app(
    app: ASGIApp, http: HttpSettings, path: str = "/", on_ready: OnReady | None = None
) -> None:
    """Serve until the process is told to stop; `path` is the path of the URL that is printed and
    passed to `on_ready`. Raises ConfigError if it cannot listen.
    """
    # uvicorn re-raises the signal that stopped it, after which the program shall exit normally
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
    """The listening socket. Raises ConfigError `cannot_listen`."""
    try:
        listener = socket.create_server(
            (http.host, http.port),
            family=socket.AF_INET6 if ":" in http.host else socket.AF_INET,
            backlog=512,
        )
        # asyncio sets it only for sockets of its own; else headers and body arrive 40 ms apart
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return listener
    except OSError as error:
        raise ConfigError(
            f"cannot listen on {http.host}, port {http.port}: {error.strerror}; choose another with"
            " --port or --host",
            code="cannot_listen",
        ) from error
