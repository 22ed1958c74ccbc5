"""Finds a kept release by its id or by a date."""

from __future__ import annotations

import re

from rag_platform.errors import NotFoundError
from rag_platform.releases.release_store import list_heads
from rag_platform.retrieval.library import Library

DATE = re.compile(r"\d{4}(-\d\d(-\d\d([T ][\d:]+(\.\d+)?(Z|\+00:00)?)?)?)?", re.ASCII)


def find_release(library: Library, namespace: str, text: str, *, before: bool = False) -> str:
    """The kept release that `text` names: a release_id, `latest` or `current` for the published
    one, or an ISO date for the newest release at that date.

    A date is a year, month, day or UTC time, and means its end; with `before` its beginning, or the
    oldest release if none is older. Raises NotFoundError: `unknown_release` with the
    kept releases, and that of a namespace without a release.
    """
    published = library.current(namespace)
    kept = [manifest for manifest in list_heads(library.store, namespace) if not manifest.failures]
    if DATE.fullmatch(text.strip()):
        date = text.strip().replace(" ", "T").removesuffix("Z").removesuffix("+00:00")
        if before:
            kept_then = [m for m in kept if m.created_at < date] or kept[-1:]
        else:
            kept_then = [m for m in kept if m.created_at[: len(date)] <= date]
        if kept_then:
            return kept_then[0].release_id
    elif text.strip().lower() in ("latest", "current"):
        return published
    elif text in {manifest.release_id for manifest in kept}:
        return text
    listed = ", ".join(f"{m.release_id} ({m.created_at[:10]})" for m in kept[:5])
    raise NotFoundError(
        f"no release {text[:40]!r} of library {namespace!r} is kept; there are: {listed}",
        code="unknown_release",
    )
