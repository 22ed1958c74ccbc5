"""Commands about releases: what was published, what is kept, going back and forward."""

from __future__ import annotations

import json

import click

from rag_platform.cli_context import Context, answers, namespace_option
from rag_platform.ir import Json
from rag_platform.retrieval import responses
from rag_platform.store import to_json


@click.group()
def releases() -> None:
    """Published and earlier releases."""


@releases.command("list")
@namespace_option
@answers()
def releases_list(context: Context, namespace: str | None) -> Json:
    """Releases of a namespace, newest first."""
    rows = [to_json(row) for row in context.ledger.releases(context.namespace(namespace))]
    lines = [
        f"{r['release_id']}  {r['state']:<10} {r['counts'].get('documents', 0)} documents, {r['counts'].get('chunks', 0)} chunks"
        for r in rows
    ]
    return responses.envelope({"markdown": "\n".join(lines) or "no releases", "releases": rows}, "")


@releases.command("show")
@click.argument("release_id", required=False)
@namespace_option
@answers()
def releases_show(context: Context, release_id: str | None, namespace: str | None) -> Json:
    """The manifest of a release; the published one if none is named."""
    from rag_platform.indexes.manifest import read_manifest
    from rag_platform.indexes.release import require_current

    name = context.namespace(namespace)
    wanted = release_id or require_current(context.store, name)
    manifest = to_json(read_manifest(context.store.release_dir(name, wanted)))
    return responses.envelope({"markdown": json.dumps(manifest, ensure_ascii=False, indent=1), "manifest": manifest}, "")


@releases.command("rollback")
@click.argument("release_id", required=False)
@namespace_option
@answers()
def releases_rollback(context: Context, release_id: str | None, namespace: str | None) -> Json:
    """Publish another kept release: the one before the current if none is named; naming the newest goes forward again."""
    from rag_platform.indexes.updating import roll_back

    row = roll_back(context.namespace(namespace), release_id, store=context.store, ledger=context.ledger)
    return responses.envelope({"markdown": f"{row.release_id} is published", "release": to_json(row)}, "")
