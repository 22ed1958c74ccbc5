"""Commands that serve until they are stopped: the MCP server, the web pages, Dagster's UI."""

from __future__ import annotations

import contextlib
import gc
import os
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, get_args

import click

from rag_platform.cli.language import say, say_filled
from rag_platform.config.gates import find_gate_problems
from rag_platform.config.settings import (
    Change,
    Settings,
    find_unknown_variables,
    load_settings,
    with_http,
)
from rag_platform.errors import ConfigError, InputError

LOOPBACK = "127.0.0.1"


def allow_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options `--allow` and `--root` to a command."""
    known = ", ".join(get_args(Change))
    allow = click.option(
        "--allow",
        multiple=True,
        metavar="WHAT",
        help=f"What assistants may change: {known}; repeatable, or separated by commas. "
        "By default nothing.",
    )
    root = click.option(
        "--root",
        "roots",
        multiple=True,
        metavar="FOLDER",
        type=click.Path(exists=True, file_okay=False, path_type=Path),
        help="A folder whose files assistants may ingest; repeatable.",
    )
    return allow(root(command))


def apply_allow_options(
    settings: Settings, allow: tuple[str, ...], roots: tuple[Path, ...]
) -> Settings:
    """The settings changed by `--allow` and `--root`, if given. Raises InputError for an unknown
    value.
    """
    changes: dict[str, Any] = {}
    if allow:
        names = tuple(name.strip() for name in ",".join(allow).split(",") if name.strip())
        if unknown := [name for name in names if name not in get_args(Change)]:
            raise InputError(
                f"--allow {unknown[0]!r} is unknown; known: {', '.join(get_args(Change))}",
                code="usage",
            )
        changes["allow"] = names
    if roots:
        changes["ingest_roots"] = tuple(root.resolve() for root in roots)
    server = settings.server.model_copy(update=changes)
    return settings.model_copy(update={"server": server})


def _load_settings() -> Settings:
    """The settings; prints warnings about unknown variables and gates of unknown libraries."""
    settings = load_settings()

    def libraries() -> Iterable[str]:
        # imported only if there are gates, as they delay the handshake
        from rag_platform.ledger.ledger import bound_namespaces
        from rag_platform.storage.store import Store

        return bound_namespaces(Store.of(settings))

    for message in (*find_unknown_variables().values(), *find_gate_problems(libraries)):
        click.echo(f"{say('warning')}{say(': ')}{say_filled(message)}", err=True)
    return settings


@click.command()
@click.option("--http", "over_http", is_flag=True, help="Answer over HTTP instead, at /mcp.")
@click.option("--host", help="Where to listen; by default this machine alone.")
@click.option("--port", type=click.IntRange(0, 65535), help="By default 8765; 0: any free one.")
@allow_options
def serve(
    over_http: bool,
    host: str | None,
    port: int | None,
    allow: tuple[str, ...],
    roots: tuple[Path, ...],
) -> None:
    """Answer over MCP: on standard input and output, or over HTTP."""
    if not over_http and (host is not None or port is not None):
        raise click.UsageError("--host and --port go with --http")
    gc.disable()  # until preloading is done: it takes a fifth of the start
    settings = apply_allow_options(_load_settings(), allow, roots)
    if not over_http:
        from rag_platform.server.app import serve_stdio

        if sys.stdin.isatty():
            click.echo(say("Waiting for an MCP client on standard input (Ctrl-C ends)."), err=True)
        serve_stdio(settings)
        return
    from rag_platform.server.http_app import serve_http

    serve_http(with_http(settings, {"host": host, "port": port}))


@click.command()
@click.option("--host", help="Where to listen; by default this machine alone.")
@click.option("--port", type=click.IntRange(0, 65535), help="By default 8766; 0: any free one.")
@click.option("--open", "open_browser", is_flag=True, help="Show the pages in your browser.")
def ui(host: str | None, port: int | None, open_browser: bool) -> None:
    """Show the pages: ask, browse, ingest, traces and evaluation, in a browser."""
    gc.disable()  # until the first page is served, as above
    settings = _load_settings()
    from rag_platform.web.serving import UI_PORT, serve_pages

    port = UI_PORT if port is None else port
    settings = with_http(settings, {"host": host, "port": port})
    serve_pages(settings, on_ready=click.launch if open_browser else None)


@click.command()
@click.option("--port", type=click.IntRange(1, 65535), default=3000, help="By default 3000.")
@click.option("--open", "open_browser", is_flag=True, help="Show the pages in your browser.")
def dagster(port: int, open_browser: bool) -> None:
    """Show Dagster's pages: lineage, partitions, runs and checks; its daemon runs beside them.

    They are served on this machine alone, because they have no login.
    """
    settings = _load_settings()
    _require_free(port)
    from rag_platform.assets import instance

    address = f"http://{LOOPBACK}:{port}"
    threading.Thread(target=_announce, args=(port, address, open_browser), daemon=True).start()
    words = ("dev", "--host", LOOPBACK, "--port", str(port), "--log-level", "warning")
    code = instance.run(settings, words)
    sys.exit(0 if code == instance.STOPPED else code)


def _require_free(port: int) -> None:
    try:
        socket.create_server((LOOPBACK, port)).close()
    except OSError as error:
        raise ConfigError(
            f"port {port} cannot be used: {os.strerror(error.errno or 0)}; choose another with"
            " --port",
            code="cannot_listen",
        ) from error


def _announce(port: int, address: str, open_browser: bool) -> None:
    """Print the URL, and open it in a browser, once the port accepts connections."""
    while True:
        time.sleep(0.2)
        with contextlib.suppress(OSError), socket.create_connection((LOOPBACK, port), timeout=5):
            break
    click.echo(say("Dagster's pages are at {address} (Ctrl-C ends).", address=address), err=True)
    if open_browser:
        click.launch(address)
