"""Commands about the data roots that share a ledger and an object store."""

from __future__ import annotations

import click

from rag_platform.api import envelopes
from rag_platform.cli.output import Context, answers
from rag_platform.ir import Json


@click.group()
def servers() -> None:
    """The machines that read what others publish."""


@servers.command("list")
@answers()
def list_(context: Context) -> Json:
    """Show every registered server: which releases it reads, when it was last seen, and how many
    hard deletions it has not carried out.
    """
    from rag_platform.api.status import servers_data
    from rag_platform.contract.markdown_views import server_line

    rows = servers_data(context.settings, context.ledger)
    lines = [server_line(row) for row in rows]
    return envelopes.envelope(
        {"markdown": "\n".join(lines) or "no server is registered", "servers": rows}
    )


@servers.command("remove")
@click.argument("server")
@answers()
def remove(context: Context, server: str) -> Json:
    """Forget a SERVER whose data root is gone: no deletion waits for it any more.

    One that runs registers again by itself.
    """
    found = context.ledger.remove_server(server)
    return envelopes.envelope(
        {
            "markdown": f"{found.server_id} is forgotten; what its disk holds of deleted documents"
            " is nobody's any more",
            "server": found.server_id,
        }
    )
