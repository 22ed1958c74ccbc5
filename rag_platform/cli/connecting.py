"""Commands that connect clients: MCP clients and what they would start, and tokens of the server
over HTTP.
"""

from __future__ import annotations

import difflib
from pathlib import Path
from typing import Any

import click

from rag_platform.access import SCOPES
from rag_platform.api import envelopes
from rag_platform.cli.output import Context, answers
from rag_platform.cli.serving import allow_options, apply_allow_options
from rag_platform.errors import RagError
from rag_platform.ir import Json
from rag_platform.storage.records import to_json
from rag_platform.web.tokens import Token, Tokens

CLIENTS = ("claude-desktop", "claude-code", "vscode", "cursor", "zed", "codex", "generic")
_client_option = click.option(
    "--client", type=click.Choice(CLIENTS), help="Which client; see docs/assistants.md."
)
_name_option = click.option(
    "--name", default="rag", show_default=True, help="What the client calls the server."
)


@click.group("mcp")
def mcp() -> None:
    """Set up assistants: Claude, VS Code, Cursor, Zed, Codex and others."""


@mcp.command("install")
@_client_option
@_name_option
@click.option("--write", is_flag=True, help="Write the file; without it the change is only shown.")
@allow_options
@answers()
def install(
    context: Context,
    client: str | None,
    name: str,
    write: bool,
    allow: tuple[str, ...],
    roots: tuple[Path, ...],
) -> Json:
    """Show what a client's file needs to start the server, and put it there with --write. Other
    entries, and comments, stay as they are.
    """
    from rag_platform.server.client_files import check_name, client_files, launch_of

    check_name(name)
    apply_allow_options(context.settings, allow, roots)  # raises what the server would raise
    options = ["--allow", ",".join(allow)] if allow else []
    options += [part for root in roots for part in ("--root", str(root.resolve()))]
    file = client_files(Path.home(), Path.cwd())[client or "generic"]
    launch = launch_of(context.settings, options)
    data: dict[str, Any] = {
        "client": file.client,
        "path": str(file.path) if file.path else None,
        "entry": launch.entry(**file.more),
        "written": False,
        "changed": False,
    }
    if file.path is None:
        return {"markdown": file.snippet(name, launch), **data}
    before, after = file.merge(name, launch)
    data["changed"] = before != after
    if before == after:
        return {"markdown": f"{file.path} names the server already; nothing to do.", **data}
    if write:
        file.write(after)
        data["written"] = True
        message = (
            f"Wrote {file.path}: {file.restart}. `rag mcp doctor --client {client}` checks it."
        )
        return {"markdown": message, **data}
    change = difflib.unified_diff(
        before.splitlines(), after.splitlines(), str(file.path), str(file.path), lineterm="", n=2
    )
    lines = [*change, "", "Nothing is written yet; --write does it."]
    return {"markdown": "\n".join(lines), **data}


@mcp.command("doctor")
@_client_option
@_name_option
@answers()
def doctor(context: Context, client: str | None, name: str) -> Json:
    """Start the server as a client would, and report what it finds."""
    from rag_platform.server.client_files import client_files, launch_of
    from rag_platform.server.probing import probe

    file = client_files(Path.home(), Path.cwd())[client or "generic"]
    launch = launch_of(context.settings) if file.path is None else file.read(name)
    # clients start servers in any folder, so nothing may depend on the current one
    found = probe(launch, Path.home())
    command = " ".join((launch.command, *launch.args))
    data = {"markdown": found.markdown(command), **to_json(found)}
    if found.problems:
        error = RagError("a client could not work with this server", code="mcp_unhealthy")
        return envelopes.failure(error, local=True, data=data)
    return data


# --- tokens ---------------------------------------------------------------------------------------


@click.group()
def token() -> None:
    """Who may use `rag serve --http`."""


@token.command()
@click.argument("name")
@click.option(
    "--scope",
    type=click.Choice(SCOPES),
    default=SCOPES[0],
    show_default=True,
    help="What its holder may do; each includes those before it.",
)
@click.option(
    "--namespace",
    "namespaces",
    multiple=True,
    metavar="NAME",
    help="A library that its holder may see; repeatable. By default every one.",
)
@click.option(
    "--days",
    type=click.FloatRange(min=0, min_open=True),
    help="How long it is valid; by default for good.",
)
@answers()
def create(
    context: Context, name: str, scope: str, namespaces: tuple[str, ...], days: float | None
) -> Json:
    """Make a token and print it, once."""
    made, secret = Tokens(context.store).create(name, scope, namespaces, days)
    lines = [
        secret,
        "",
        f"It is shown this once. Clients send it as `Authorization: Bearer {secret}`.",
        _describe(made),
    ]
    return {"markdown": "\n".join(lines), "secret": secret, **_public(made)}


@token.command("list")
@answers()
def list_tokens(context: Context) -> Json:
    """The tokens there are, without their secrets."""
    found = Tokens(context.store).all()
    lines = [_describe(item) for item in found] or ["no tokens; `rag token create NAME` makes one"]
    return {"markdown": "\n".join(lines), "tokens": [_public(item) for item in found]}


@token.command()
@click.argument("name", metavar="NAME|ID")
@answers()
def revoke(context: Context, name: str) -> Json:
    """Take a token back; running servers refuse it from their next request on."""
    gone = Tokens(context.store).revoke(name)
    return {"markdown": f"revoked: {_describe(gone)}", **_public(gone)}


def _public(item: Token) -> Json:
    """A token without its hash."""
    public = {key: value for key, value in to_json(item).items() if key != "sha256"}
    return {**public, "expired": item.has_expired()}


def _describe(item: Token) -> str:
    where = ", ".join(item.namespaces) or "every library"
    until = f"expired {item.expires_at}" if item.has_expired() else item.expires_at or "no expiry"
    return f"{item.token_id}  {item.name}  {item.scope}  {where}  {until}"
