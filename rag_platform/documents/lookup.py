"""Finds documents and versions by abbreviated ids and paths."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from pathlib import PurePosixPath

from rag_platform.errors import InputError, NotFoundError
from rag_platform.ir import Document, Version
from rag_platform.ledger.ledger import Ledger

_SHOWN = 5


def find_document(ledger: Ledger, namespace: str, name: str) -> Document:
    """The document with that doc_id or source_uri, else ending of a source_uri, else one without
    the file suffix, else doc_id prefix.

    Retired and deleted documents are found too. Raises NotFoundError `unknown_document` with
    similar names, InputError `ambiguous` with the candidates.
    """
    with suppress(NotFoundError):
        return ledger.document(namespace, name)
    documents = ledger.documents(namespace)
    tail = "/" + name.lstrip("/")
    ways: tuple[Callable[[Document], bool], ...] = (
        lambda document: document.source_uri == name,
        lambda document: f"/{document.source_uri}".endswith(tail),
        lambda document: f"/{_without_suffix(document.source_uri)}".endswith(tail),
        lambda document: document.doc_id.startswith(name),
    )
    found = ([document for document in documents if way(document)] for way in ways)
    meant = next(filter(None, found), []) if name else []
    if len(meant) == 1:
        return meant[0]
    if meant:
        listed = ", ".join(
            f"{document.doc_id} ({document.source_uri})" for document in meant[:_SHOWN]
        )
        raise InputError(
            f"{name!r} may be any of {len(meant)} documents: {listed}; name one by its doc_id",
            code="ambiguous",
        )
    raise unknown_document(
        namespace, name, [d.doc_id for d in documents] + [d.source_uri for d in documents]
    )


def unknown_document(namespace: str, name: str, names: Iterable[str]) -> NotFoundError:
    """The error for a document that a library does not have, suggesting similar names."""
    near = difflib.get_close_matches(name, list(names), n=3, cutoff=0.5)
    hint = (
        f"did you mean {', '.join(near)}?"
        if near
        else f"`rag docs list --namespace {namespace}` shows them"
    )
    return NotFoundError(
        f"no document {name!r} in library {namespace!r}; {hint}",
        code="unknown_document",
        near=near,
    )


def _without_suffix(source_uri: str) -> str:
    return source_uri.removesuffix(PurePosixPath(source_uri).suffix)


def find_version(document: Document, versions: Sequence[Version], name: str) -> Version:
    """The version with that version_id or file hash prefix, or the `live` or `wanted` one.

    Raises NotFoundError `unknown_version` and InputError `ambiguous`, both listing versions.
    """
    wanted = {"live": document.live_version, "wanted": document.wanted_version}.get(name) or name
    meant = [v for v in versions if v.version_id == wanted] or [
        v for v in versions if wanted and v.file_sha256.startswith(wanted)
    ]
    if len(meant) == 1:
        return meant[0]
    listed = ", ".join(v.file_sha256[:12] for v in versions[::-1][:_SHOWN]) or "none"
    if meant:
        raise InputError(
            f"{name!r} may be any of {len(meant)} versions of {document.doc_id}: {listed}",
            code="ambiguous",
        )
    raise NotFoundError(
        f"{document.doc_id} has no version {name!r}; it has {listed}, newest first: `rag docs"
        f" history {document.doc_id} --namespace {document.namespace}`",
        code="unknown_version",
    )
