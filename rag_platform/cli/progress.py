"""Shows progress on stderr: bars on a terminal, occasional lines in a log."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Protocol

import click

from rag_platform.cli.language import say, say_filled
from rag_platform.ledger.schema import Job


class Advance(Protocol):
    """Shows the progress of a stage."""

    def __call__(self, stage: str, done: int, total: int, note: str = "", /) -> None:
        """Show it with a note; a total of 0 is unknown."""


_LINE_SECONDS = 10.0  # between two lines in a log
_START = "starting"


@contextmanager
def progress_bar(quiet: bool) -> Iterator[Advance]:
    """A function that shows the progress of a stage on stderr; does nothing if `quiet`."""
    if quiet:
        yield lambda stage, done, total, note="": None
    elif sys.stderr.isatty():
        with _bars() as advance:
            yield advance
    else:
        yield _lines()


def _lines() -> Advance:
    """A function that prints a line for an unfinished stage, at most every ten seconds and without
    repetitions.
    """
    written, last = time.monotonic(), ""

    def advance(stage: str, done: int, total: int, note: str = "") -> None:
        nonlocal written, last
        if 0 < total <= done or time.monotonic() - written < _LINE_SECONDS:
            return
        of = f" {say('of')} {total}" if total else f" {say('so far')}" if done else ""
        count = f" {done}{of}" if done or total > 1 else ""
        line = f"{say(stage)}{count}{say(', ') + note if note else ''}"
        if line != last:
            written, last = time.monotonic(), line
            click.echo(line, err=True)

    return advance


@contextmanager
def _bars() -> Iterator[Advance]:
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
    from rich.table import Column

    columns = (
        TextColumn("{task.description:<10}"),
        BarColumn(),
        TextColumn("{task.fields[count]}"),
        TimeElapsedColumn(table_column=Column(no_wrap=True, min_width=len("0:00:00"))),
        TextColumn("{task.fields[note]}"),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        tasks: dict[str, Any] = {
            _START: progress.add_task(say(_START), total=None, count="", note="")
        }

        def advance(stage: str, done: int, total: int, note: str = "") -> None:
            if stage not in tasks:
                tasks[stage] = progress.add_task(say(stage), total=None, count="", note="")
                if _START in tasks and stage != _START:
                    progress.remove_task(tasks.pop(_START))
            count = f"{done}/{total or '?'}" if done or total else ""
            progress.update(
                tasks[stage], completed=done, total=total or None, count=count, note=note
            )

        yield advance


def show_job(job: Job, advance: Advance) -> None:
    """Show the stages of a job, and for the current one the time left."""
    from rag_platform.processes import jobs

    stages = job.progress.get("stages", {})
    if not stages:
        advance(_START, 0, len(job.args.get("version_ids", ())))
    left = jobs.seconds_left(job)
    # the current stage first: a log shows no other
    for stage, figures in sorted(stages.items(), key=lambda item: item[0] != job.progress["stage"]):
        growing = jobs.is_growing(stage, stages)
        each = jobs.rate(figures)
        notes = [jobs.pace(each)] if each and figures["done"] < figures["total"] else []
        if stage == job.progress["stage"]:
            if (step := job.progress.get("message")) and figures["done"] < figures["total"]:
                notes.append(step)
            if left is not None:
                notes.append(f"about {format_duration(left)} left")
            elif (of_stage := jobs.seconds_left_of(stage, stages)) is not None:
                notes.append(f"about {format_duration(of_stage)} of reading left")
        if growing:
            notes.append(f"more {'pages' if stage == 'pages' else 'texts'} to come")
        total = 0 if growing else int(figures["total"])
        note = say(", ").join(map(say_filled, notes))
        advance(stage, int(figures["done"]), total, note)


def format_duration(seconds: float) -> str:
    """A duration in seconds, minutes or hours."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
