"""What `rag serve` lets assistants change."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, get_args

import click

from rag_platform.config.settings import Change, Settings
from rag_platform.errors import InputError


def allow_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """The options `--allow` and `--root` of a command that serves."""
    known = ", ".join(get_args(Change))
    allow = click.option(
        "--allow",
        metavar="WHAT",
        help=f"What assistants may change, separated by commas: {known}. By default nothing.",
    )
    root = click.option(
        "--root",
        "roots",
        multiple=True,
        metavar="FOLDER",
        type=click.Path(exists=True, file_okay=False, path_type=Path),
        help="A folder whose files assistants may ingest; repeatable.",
    )
    return allow(root(command))


def allowing(settings: Settings, allow: str | None, roots: tuple[Path, ...]) -> Settings:
    """The settings with what the options say; what they leave out stays as it is. Raises InputError
    for what cannot be allowed.
    """
    changes: dict[str, Any] = {}
    if allow is not None:
        names = tuple(name.strip() for name in allow.split(",") if name.strip())
        if unknown := [name for name in names if name not in get_args(Change)]:
            raise InputError(
                f"--allow {unknown[0]!r} is unknown; known: {', '.join(get_args(Change))}",
                code="usage",
            )
        changes["allow"] = names
    if roots:
        changes["ingest_roots"] = tuple(root.resolve() for root in roots)
    server = settings.server.model_copy(update=changes)
    return settings.model_copy(update={"server": server})
