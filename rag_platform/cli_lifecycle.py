"""Commands about what data is kept: collecting garbage, proving that a deletion left nothing."""

from __future__ import annotations

import logging
from contextlib import ExitStack
from typing import Any

import click

from rag_platform.cli_context import Context, answers, awaited, namespace_option
from rag_platform.errors import InputError, RagError, read_only
from rag_platform.ir import Json
from rag_platform.retrieval import responses

_log = logging.getLogger(__name__)


@click.command()
@click.option("--plan", is_flag=True, help="Say what would be removed, and remove nothing.")
@click.option("--prove", "doc", metavar="DOC", help="Count what every store still holds of a document, and remove nothing.")
@click.option("--version", metavar="VERSION", help="With --prove: of one version alone.")
@namespace_option
@answers(own_trace=True)
def gc(context: Context, plan: bool, doc: str | None, version: str | None, namespace: str | None) -> Json:
    """Remove what no document, release or draft needs any more, in all namespaces."""
    from rag_platform.assets.collecting import partition_keys
    from rag_platform.indexes.collecting import collect, start_gc
    from rag_platform.indexes.proving import prove

    parts: dict[str, Any] = {"settings": context.settings, "store": context.store, "ledger": context.ledger}
    if version and not doc:
        raise InputError("--version goes with --prove DOC", code="usage")
    if doc:
        with ExitStack() as opened:
            if context.ledger.read_only:
                parts["unreached"] = ["Dagster's storage, which is opened by writing it"]
            else:
                parts |= _recorded(context, opened)
            return responses.envelope(prove(context.namespace(namespace), doc, version, **parts).data(), "")
    if context.ledger.read_only:
        raise read_only(context.store.home)
    if plan:
        with partition_keys(context.store) as keys:
            return responses.envelope(collect(partitions=keys, plan=True, **parts).data(), "")
    job = awaited(context, *start_gc(**parts))
    if job.state == "failed":
        return responses.failure(RagError(job.reason, code="gc_failed", job_id=job.job_id), job.trace_id, local=True)
    return responses.envelope({**job.result, "job_id": job.job_id}, job.trace_id, [job.reason] if job.reason else [])


def _recorded(context: Context, opened: ExitStack) -> dict[str, Any]:
    """What `prove` asks Dagster, and why it cannot be asked where its storage is away."""
    from rag_platform.assets.collecting import partition_keys

    try:
        keys = opened.enter_context(partition_keys(context.store))
        return {"partitions": keys.keys(), "recorded": keys.recorded}
    except Exception as error:  # noqa: BLE001 (each storage driver fails in its own way, and the proof names what it could not ask)
        _log.warning("Dagster's storage cannot be opened", exc_info=True)
        return {"unreached": [f"Dagster's storage cannot be opened ({type(error).__name__}: {str(error).splitlines()[0][:200]})"]}
