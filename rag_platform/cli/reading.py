"""Commands that read: questions, status, sources, proofs, and previews."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import click

from rag_platform.api import envelopes
from rag_platform.cli.output import (
    Context,
    answers,
    complete_documents,
    complete_libraries,
    fail_if,
    make_visible,
    parse_pairs,
    strategy_option,
)
from rag_platform.cli.progress import progress_bar
from rag_platform.config.strategies import load_strategy
from rag_platform.errors import InputError, RagError
from rag_platform.ir import Json
from rag_platform.messages import LANGUAGES, terminal_language, translate
from rag_platform.storage.records import to_json
from rag_platform.text.wording import pluralise

# highlighted in the passages of an answer
_WORD = re.compile(r"[A-Za-z0-9][\w.-]{3,}|[\u4e00-\u9fff]{2}")


@click.command()
@click.argument("text", nargs=-1, required=True)
@click.option(
    "--namespace",
    "namespaces",
    multiple=True,
    metavar="NAME",
    shell_complete=complete_libraries,
    help="The library to search; repeatable. By default that of settings.yaml, or every one.",
)
@click.option("--top-k", type=click.IntRange(1, 100), help="How many results.")
@click.option(
    "--mode", type=click.Choice(["dense", "sparse", "hybrid"]), help="Which retrievers to use."
)
@click.option(
    "--filter",
    "filters",
    multiple=True,
    metavar="K=V",
    help="Only chunks whose field has this value; repeatable.",
)
@click.option(
    "--tag", "tags", multiple=True, help="Only documents with this tag, or one of several."
)
@click.option(
    "--doc",
    "documents",
    multiple=True,
    metavar="DOC",
    shell_complete=complete_documents,
    help="Only this document; repeatable.",
)
@click.option(
    "--release",
    "release_id",
    metavar="ID|DATE",
    help="Search a kept release, as the newest of a day, instead of the published one.",
)
@strategy_option("Use this strategy, by name or strategy_config_id.")
@click.option(
    "--no-rerank",
    "rerank",
    flag_value=False,
    default=True,
    help="Leave the results in the order of the search.",
)
@click.option(
    "--max-per-document",
    type=click.IntRange(0),
    metavar="N",
    help="How many results of one document; 0: no limit.",
)
@click.option(
    "--score-threshold",
    type=float,
    metavar="X",
    help="Only results with at least this score of the fusion.",
)
@click.option(
    "--no-answer", "answer", flag_value=False, default=True, help="Only search; write no answer."
)
@click.option(
    "--no-infer",
    "infer",
    flag_value=False,
    default=None,
    help="Take no filters from the words of the question.",
)
@click.option(
    "--search",
    "searches",
    multiple=True,
    metavar="WORDS",
    help="Search these words beside the question, as the documents may put it; up to four times.",
)
@click.option("--stream", is_flag=True, help="Show the answer as it is written, then checked.")
@click.option("--full", is_flag=True, help="Show the results too, not only the answer.")
@answers(own_trace=True, reports=False)
def query(
    context: Context,
    text: tuple[str, ...],
    namespaces: tuple[str, ...],
    filters: tuple[str, ...],
    tags: tuple[str, ...],
    documents: tuple[str, ...],
    stream: bool,
    full: bool,
    **request_fields: Any,
) -> Json:
    """Ask a question, in quotes or without; the answer cites its sources."""
    from rag_platform.answering.engine import answer
    from rag_platform.api.query_data import WHOLE, citation_part, fit_query
    from rag_platform.api.release_choice import DATE, find_release
    from rag_platform.documents.lookup import find_document
    from rag_platform.ir import QueryRequest
    from rag_platform.query.filters import Scope
    from rag_platform.retrieval.namespaces import choose_namespaces

    names = choose_namespaces(context.library, namespaces)
    if documents and len(names) > 1:
        raise InputError(
            "--doc names a document of one library; name one --namespace", code="usage"
        )
    doc_ids = [find_document(context.ledger, names[0], name).doc_id for name in documents]
    if len(names) == 1 and DATE.fullmatch(release := request_fields["release_id"] or ""):
        request_fields["release_id"] = find_release(context.library, names[0], release)
    request = QueryRequest(
        " ".join(text),
        names[0],
        namespaces=names if len(names) > 1 else (),
        filters=Scope(names, tuple(doc_ids), tags).filters(parse_pairs(filters, "--filter")),
        language="" if context.json_output else terminal_language(),
        **request_fields,
    )
    live = stream and not context.json_output
    on_text = (lambda part: click.echo(make_visible(part), nl=False)) if live else None
    result = answer(context.library, request, on_text=on_text)
    if live:
        click.echo("\n")
    detail = "full" if full or context.json_output or not request.answer else "brief"
    # programs get whole passages; for people and assistants there is a budget
    budget = WHOLE if context.json_output else context.settings.server.result_tokens
    data, warnings = fit_query(result, detail=detail, max_tokens=budget)
    if detail == "brief":
        whole = [citation_part(citation) for citation in result.citations]
        context.render = partial(render_answer, question=request.text, citations=whole)
    return envelopes.envelope(data, result.trace_id, warnings)


def render_answer(data: Json, question: str, citations: Sequence[Mapping[str, Any]]) -> None:
    """Print an answer: its text, each source with the lines it quotes, then the notes."""
    from rich.console import Console
    from rich.markdown import Markdown
    from rich.padding import Padding
    from rich.text import Text

    from rag_platform.contract.markdown_views import place_of, quote_of
    from rag_platform.text.plain_quotes import resolve_links

    console = Console()
    head, tail, language = _split(str(data["markdown"]))
    console.print(Markdown(head))
    words = {word.lower() for word in _WORD.findall(question)}
    for citation in map(quote_of, make_visible(citations) if tail else ()):
        line = Text()
        line.append(f"[{citation['id']}] ", style="bold")
        line.append(str(citation["source_uri"]), style="cyan")
        for part, style in (
            (citation["section_path"], "default"),
            (place_of(citation, language), "green"),
        ):
            if part:
                line.append(f"{translate(', ', language)}{part}", style=style)
        console.print()
        console.print(line)
        text = str(citation["text"])
        spans = citation.get("spans") or [[0, len(text)]]
        begin = text.rfind("\n", 0, spans[0][0]) + 1
        end = text.find("\n", spans[-1][1])
        passage = Text(text[begin : end if end >= 0 else None], style="dim")
        for start, stop in spans:
            passage.stylize("not dim", start - begin, stop - begin)
        for word in words:
            passage.highlight_regex(f"(?i){re.escape(word)}", style="bold yellow")
        console.print(Padding(passage, (0, 0, 0, 4)))
        for target in resolve_links(passage.plain, str(citation["source_uri"])):
            console.print(Padding(Text(f"→ {target}", style="cyan"), (0, 0, 0, 4)))
    for note in (tail or "").split("\n\n")[1:]:
        console.print()
        console.print(Text(note.strip("*"), style="dim" if note.startswith("*") else "yellow"))


def _split(markdown: str) -> tuple[str, str, str]:
    """(the answer, the text below the heading of the sources, the language)."""
    from rag_platform.contract.markdown_views import SOURCES

    for language in LANGUAGES:
        head, heading, tail = markdown.partition(f"\n\n**{translate(SOURCES, language)}**\n\n")
        if heading:
            return head, tail, language
    return markdown, "", "en"


@click.command()
@answers()
def status(context: Context) -> Json:
    """Show what every library publishes, and where data and config are."""
    from rag_platform.api.status import status as collect
    from rag_platform.ledger.traffic import read_places

    places = context.places()
    data = collect(context.library, serving=False)
    used = [] if data["ledger_problem"] else read_places(context.settings.traffic, context.store)
    lines = [
        data["markdown"],
        *(f"- {found.place}: {found.sentence()}" for found in used),
        *(f"- {name}: {place}" for name, place in places.items()),
    ]
    shown = {"traffic": [dataclasses.asdict(found) for found in used]} if used else {}
    return {**data, **places, **shown, "markdown": "\n".join(lines)}


@click.group()
def sources() -> None:
    """Where documents come from."""


@sources.command("list")
@answers(namespace=True)
def sources_list(context: Context) -> Json:
    """Sources, with the number of their documents, and where folders are."""
    names = context.listed_namespaces()
    shown = ("namespace", "name", "kind", "root", "include", "exclude", "on_gone")
    rows: list[Json] = [
        {
            **{key: to_json(getattr(source, key)) for key in shown},
            "documents": len(
                context.ledger.documents(source.namespace, source=source.name, status="active")
            ),
        }
        for name in names
        for source in context.ledger.sources(name)
    ]
    keeps = {"keep": ", keeps what is gone", "retire": ""}
    lines = [
        row["name"]
        + (f" ({row['namespace']})" if len(names) > 1 else "")
        + f"  {row['kind']}, {pluralise(int(row['documents']), 'document')}{keeps[row['on_gone']]}"
        + (f", at {row['root']}" if row["root"] else "")
        for row in rows
    ]
    listed = "\n".join(lines) or f"no sources in library {', '.join(map(repr, names))}"
    return {"markdown": listed, "sources": rows}


@click.command()
@click.argument("chunk_id", required=False)
@click.option(
    "--all",
    "everything",
    is_flag=True,
    help="Prove every chunk of the published releases, of all libraries unless one is named.",
)
@answers(namespace=True)
def verify(context: Context, chunk_id: str | None, everything: bool) -> Json:
    """Prove quotes against the raw bytes."""
    from rag_platform.releases.proofs.verification import verify_release

    if everything == bool(chunk_id):
        raise InputError("name a CHUNK_ID, or give --all", code="usage")
    every = everything and not context.given_namespace
    names = (list(context.library.namespaces()) if every else []) or [context.namespace]
    found: dict[str, Json] = {}
    with progress_bar(context.json_output) as advance:
        for name in names:
            try:
                found[name] = verify_release(
                    context.store,
                    name,
                    chunk_id=chunk_id,
                    limits=context.settings.limits,
                    on_progress=lambda done, total: advance("verifying", done, total),
                ).data()
            except RagError as error:  # of a damaged library; the others are proved all the same
                if len(names) == 1:
                    raise
                told = f"[{error.code}] {error.message}"
                found[name] = {"markdown": told, "checked": 0, "failed": 1}
    data = found[names[0]]
    if len(found) > 1:
        data = {
            "markdown": "\n".join(f"**{name}**: {it['markdown']}" for name, it in found.items()),
            "checked": sum(it["checked"] for it in found.values()),
            "failed": sum(it["failed"] for it in found.values()),
            "libraries": found,
        }
    return fail_if(data["failed"] > 0, data, code="unproved_chunks")


@click.command()
@click.argument("path", metavar="FILE", type=click.Path(path_type=Path))
@strategy_option("The strategy to read and cut with; the default one if not given.")
@click.option(
    "--chunks",
    type=click.IntRange(0),
    metavar="N",
    help="How many chunks to list; by default 10, with --json all.",
)
@answers(own_trace=True, reports=False)  # no trace, as that would be stored
def preview(context: Context, path: Path, strategy: str | None, chunks: int | None) -> Json:
    """Show how a file would be read and cut. Nothing is stored."""
    from rag_platform.documents import previewing
    from rag_platform.intake.discovery import require_there

    require_there([str(path)])
    with progress_bar(context.json_output) as advance:
        found = previewing.preview(
            path,
            load_strategy(context.settings, strategy, ingestion=True),
            context.settings,
            lambda done, total: advance("parsing", done, total),
        )
    listed = chunks if chunks is not None or context.json_output else 10
    language = "en" if context.json_output else terminal_language()
    data = previewing.preview_data(found, listed, language)
    return envelopes.envelope(data, "", found.warnings)
