"""Commands about the shared ledger database and the registered servers."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import click

from rag_platform.cli.output import Context, answers
from rag_platform.ir import Json
from rag_platform.storage.records import to_json


@click.group()
def ledger() -> None:
    """The ledger: a file of the data root, or a PostgreSQL database."""


@ledger.command("copy")
@click.argument("source", metavar="FROM")
@click.argument("target", metavar="TO")
@answers()
def ledger_copy(context: Context, source: str, target: str) -> Json:
    """Copy the ledger FROM one database TO another, empty one, and compare every table.

    Each is a file, or postgresql://USER@HOST:PORT/DATABASE. Leave the password to PGPASSWORD or
    ~/.pgpass: others see what stands on a command line.
    """
    from rag_platform.ledger.copying import copy_ledger
    from rag_platform.ledger.ledger import open_url

    with closing(open_url(_url(source))) as old, closing(open_url(_url(target))) as new:
        copied = copy_ledger(old, new)
        names = {"from": old.name, "to": new.name}
    lines = [f"{part.table:<12} {part.rows:>8} rows  {part.sha256[:12]}" for part in copied]
    lines += [
        "",
        f"{names['to']} holds all of {names['from']}, compared row by row.",
        "Name it as `ledger` in settings.yaml (RAG_LEDGER) of every process, then move the old one"
        " away, so that none goes on reading it.",
    ]
    return {"markdown": "\n".join(lines), "tables": [to_json(part) for part in copied], **names}


def _url(place: str) -> str:
    """The URL of a database; a path becomes that of an SQLite file."""
    return place if "://" in place else f"sqlite:///{Path(place).absolute()}"


# --- servers -----------------------------------------------------------------------------------


@click.group()
def servers() -> None:
    """The machines that read what others publish."""


@servers.command("list")
@answers()
def servers_list(context: Context) -> Json:
    """Show every registered server: which releases it reads, when it was last seen, and how many
    hard deletions it has not carried out.
    """
    from rag_platform.api.status import servers_data
    from rag_platform.contract.markdown_views import server_line

    rows = servers_data(context.settings, context.ledger)
    lines = [server_line(row) for row in rows]
    return {"markdown": "\n".join(lines) or "no server is registered", "servers": rows}


@servers.command("remove")
@click.argument("server")
@answers()
def servers_remove(context: Context, server: str) -> Json:
    """Forget a SERVER whose data root is gone: no deletion waits for it any more.

    One that runs registers again by itself.
    """
    found = context.ledger.remove_server(server)
    return {
        "markdown": f"{found.server_id} is forgotten; what its disk holds of deleted documents"
        " is nobody's any more",
        "server": found.server_id,
    }
