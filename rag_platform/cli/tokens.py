"""Commands about the tokens of the server over HTTP."""

from __future__ import annotations

import click

from rag_platform.access import SCOPES
from rag_platform.cli.output import Context, answers
from rag_platform.ir import Json
from rag_platform.storage.records import to_json
from rag_platform.web.tokens import Token, Tokens


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
