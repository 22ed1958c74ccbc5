"""Commands about traces: list, show, statistics and export."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, get_args

import click

from rag_platform.api import envelopes
from rag_platform.cli.evaluating.runs import replay_trace
from rag_platform.cli.output import Context, answers
from rag_platform.errors import InputError
from rag_platform.ir import Json
from rag_platform.observability.trace_store.queries import Status, TraceFilter, TraceType

_AGO = re.compile(r"(\d+(?:\.\d+)?)([mhd])")
_UNITS = {"m": "minutes", "h": "hours", "d": "days"}


@click.group()
def trace() -> None:
    """What happened in a query or an ingest."""


def _filters(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options that filter traces."""
    options = [
        click.option(
            "--type",
            "kinds",
            multiple=True,
            type=click.Choice(get_args(TraceType)),
            help="Only traces of that type; repeatable.",
        ),
        click.option(
            "--status",
            "statuses",
            multiple=True,
            type=click.Choice(get_args(Status)),
            help="Only traces in that state; repeatable.",
        ),
        click.option("--namespace", metavar="NAME", help="Only traces of that library."),
        click.option(
            "--since", metavar="TIME", help="Begun at that time or later: 24h, 7d, 2026-11-20."
        ),
        click.option("--until", metavar="TIME", help="Begun before that time."),
        click.option(
            "--strategy",
            "strategy_config_id",
            metavar="SCFG",
            help="Only traces of that strategy_config_id.",
        ),
        click.option(
            "--client",
            metavar="NAME",
            help="Asked by this program, or through this interface: cli, http.",
        ),
        click.option("--words", metavar="TEXT", help="Questions that have all of these words."),
        click.option(
            "--min-latency",
            "min_latency_ms",
            type=float,
            metavar="MS",
            help="Only traces that took at least this long.",
        ),
        click.option(
            "--max-latency",
            "max_latency_ms",
            type=float,
            metavar="MS",
            help="Only traces that took at most this long.",
        ),
        click.option(
            "--min-confidence",
            type=float,
            metavar="P",
            help="Only answers with at least this confidence.",
        ),
        click.option(
            "--max-confidence",
            type=float,
            metavar="P",
            help="Only answers with at most this confidence.",
        ),
        click.option("--job", "job_id", metavar="ID", help="Only traces of that job."),
        click.option(
            "--published/--all",
            default=None,
            help=(
                "Without or with questions to a release by its id, as evaluations, canaries and"
                " comparisons ask them; `list` leaves them out by default."
            ),
        ),
    ]
    for option in reversed(options):
        function = option(function)
    return function


def _filter(values: dict[str, Any]) -> TraceFilter:
    """The filter that the options describe. Raises InputError for an invalid time."""
    times = {name: _read_time(values[name], f"--{name}") for name in ("since", "until")}
    return TraceFilter(**{**values, **times, "published": bool(values["published"])})


def _read_time(text: str | None, option: str) -> datetime | None:
    """A time given as ISO 8601 (by default UTC), or as how long ago it was."""
    if text is None:
        return None
    if ago := _AGO.fullmatch(text.strip()):
        return datetime.now(UTC) - timedelta(**{_UNITS[ago[2]]: float(ago[1])})
    try:
        time = datetime.fromisoformat(text.strip())
    except ValueError:
        raise InputError(
            f"{option} takes a time like 2026-11-20 or 2026-11-20T14:30, or how long ago it was"
            f" (30m, 24h, 7d), not {text!r}",
            code="usage",
        ) from None
    return time if time.tzinfo else time.replace(tzinfo=UTC)


@trace.command("list")
@click.option("--limit", type=click.IntRange(1, 1000), default=20)
@click.option("--cursor", metavar="TEXT", help="Where the page before ended.")
@_filters
@answers(own_trace=True)
def trace_list(context: Context, limit: int, cursor: str | None, **values: Any) -> Json:
    """Traces, newest first: questions of users and ingests; --all adds questions that the program
    asks itself, --type command those of other commands.
    """
    from rag_platform.api.traces import list_traces

    values["published"] = values["published"] is not False
    left_out = ("command", "evaluation") if values["published"] else ("command",)
    values["kinds"] = values["kinds"] or [k for k in get_args(TraceType) if k not in left_out]
    data = list_traces(context.store, _filter(values), limit=limit, cursor=cursor)
    return envelopes.envelope(data, "", data.get("warnings", ()))


@trace.command("show")
@click.argument("trace_id")
@answers(own_trace=True)
def trace_show(context: Context, trace_id: str) -> Json:
    """One trace as a waterfall; the first digits of its id suffice."""
    from rag_platform.api.traces import get_trace

    data = get_trace(context.store, trace_id)
    if data["trace"]["trace_type"] == "query" and not context.json_output:
        data["markdown"] += _last_ranking(context, data["trace"])
    return envelopes.envelope(data, data["trace"]["trace_id"])


def _last_ranking(context: Context, trace: Any) -> str:
    """The last ranking of a question, each hit with its score, place and text; empty where several
    libraries were asked, whose rankings differ.
    """
    from rag_platform.api.trace_details import list_rankings

    rankings = list_rankings(context.library, trace)
    lines: list[str] = []
    for hit in rankings[-1]["rows"] if rankings else ():
        if hit["source_uri"]:
            place = ", ".join(filter(None, (hit["source_uri"], hit["section_path"])))
            lines += [f"{hit['rank']:>3}  {hit['score'] or 0:.2f}  {place}  {hit['chunk_id']}"]
            lines += [f"     {hit['text']}"]
    return "\n".join(["", *lines]) if lines else ""


@trace.command("stats")
@_filters
@answers(own_trace=True)
def trace_stats(context: Context, **values: Any) -> Json:
    """Percentiles of stages, failures, caches, and what models cost."""
    from rag_platform.api.traces import trace_stats as measure

    data = measure(context.store, _filter(values))
    return envelopes.envelope(data, "", data.get("warnings", ()))


@trace.command("export")
@click.argument("folder", type=click.Path(path_type=Path, file_okay=False))
@click.option("--format", "form", type=click.Choice(["parquet", "jsonl"]), default="parquet")
@_filters
@answers(own_trace=True)
def trace_export(context: Context, folder: Path, form: str, **values: Any) -> Json:
    """Write traces, spans, events and model calls to files that pandas reads."""
    from rag_platform.observability.trace_store.queries import export

    counts = export(context.store.logs_dir, _filter(values), folder, form)
    lines = [f"{folder / name}: {count:,} rows" for name, count in counts.items()]
    return {"markdown": "\n".join(lines), "files": counts}


trace.add_command(replay_trace)
