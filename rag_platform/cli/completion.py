"""Shell completion of names from the data root and the config."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import click

from rag_platform.errors import RagError


def _offer(names: Callable[[Any], Iterator[str]]) -> Callable[..., list[str]]:
    """A completion function by `names`, which are read on demand; empty if that fails."""

    def complete(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[str]:
        from rag_platform.cli.output import Context

        context = Context(given_namespace=ctx.params.get("namespace"))
        try:
            return [name for name in names(context) if name.startswith(incomplete)]
        except RagError:
            return []

    return complete


def _libraries(context: Any) -> Iterator[str]:
    yield from context.library.namespaces()


def _strategies(context: Any) -> Iterator[str]:
    from rag_platform.config.settings import strategy_names

    yield from strategy_names(context.settings)


def _documents(context: Any) -> Iterator[str]:
    if context.store.has_ledger():
        for document in context.ledger.documents(context.namespace, status="active"):
            yield document.doc_id


def strategy_option(text: str) -> Callable[[Any], Any]:
    """The option that names a strategy, with its help."""
    return click.option("--strategy", metavar="NAME", shell_complete=_offer(_strategies), help=text)


complete_libraries = _offer(_libraries)
complete_documents = _offer(_documents)
