"""Commands about releases and the libraries that they belong to."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from rag_platform.cli.output import Context, answers
from rag_platform.errors import InputError
from rag_platform.ir import Json
from rag_platform.messages import terminal_language, translate_filled
from rag_platform.storage.records import to_json
from rag_platform.text.wording import pluralise

if TYPE_CHECKING:
    from rag_platform.contract.schema import NamespaceStatus


@click.group()
def releases() -> None:
    """Published and earlier releases."""


@releases.command("list")
@answers(namespace=True)
def releases_list(context: Context) -> Json:
    """Releases of a library, newest first."""
    from rag_platform.releases.publishing import history

    rows = history(context.known_namespace(), context.root)
    language = "en" if context.json_output else terminal_language()
    lines = "\n".join(_line(row, language) for row in rows)
    return {"markdown": lines or "no releases", "releases": rows}


def _line(row: Json, language: str) -> str:
    say = partial(translate_filled, language=language)
    delta = row["delta"]
    parts = [
        say(pluralise(row["documents"], "document")),
        say(pluralise(row["chunks"], "chunk")),
        f"{row['bytes'] / 1e6:.1f} MB" if row["bytes"] else "",
        say(f"+{delta['chunks_added']} -{delta['chunks_removed']} chunks") if delta else "",
        say("built whole") if delta and delta["full_build"] else "",
        say(f"published {row['published_at']}") if row["published_at"] else "",
        say(row["reason"].partition("\n")[0]) if row["state"] == "rejected" else "",
    ]
    state = f"{say(row['state']):<10}{' ' + say('pinned') if row['pinned'] else ''}"
    return f"{row['release_id']}  {state}  {say('; ').join(filter(None, parts))}"


@releases.command("show")
@click.argument("release_id", required=False)
@answers(namespace=True)
def releases_show(context: Context, release_id: str | None) -> Json:
    """What a release holds and what its checks say, by default of the published one; its whole
    manifest with --json.
    """
    from rag_platform.releases.release_store import manifest_of, require_current

    name = context.namespace
    manifest = manifest_of(context.store, name, release_id or require_current(context.store, name))
    counts = manifest.counts
    lines = [
        f"{manifest.release_id} of library {name!r},"
        f" {f'after {manifest.parent}' if manifest.parent else 'the first'}:"
        f" {pluralise(counts['documents'], 'document')}, {pluralise(counts['chunks'], 'chunk')}",
        f"strategy {manifest.strategy} ({manifest.strategy_config_id}), embedder"
        f" {manifest.embedder.embedder_id if manifest.embedder else 'none'}",
        *(
            f"Chunks: {delta['chunks_added']} added, {delta['chunks_removed']} removed,"
            f" {delta['chunks_kept']} kept."
            for delta in filter(None, [manifest.delta])
        ),
        *(
            f"- {'ok' if check.passed and not check.is_overruled else 'failed'}: {check.name}: "
            + check.details.replace("\n", "\n  ")
            for check in manifest.checks
        ),
        f"`rag releases show {manifest.release_id} --namespace {manifest.namespace} --json` prints"
        " the whole manifest.",
    ]
    return {"markdown": "\n".join(lines), "manifest": to_json(manifest)}


@releases.command("diff")
@click.argument("before", required=False)
@click.argument("after", required=False)
@click.option(
    "--queries",
    type=click.IntRange(0, 1000),
    default=20,
    help="How many of the latest questions to ask of both.",
)
@answers(namespace=True)
def releases_diff(context: Context, before: str | None, after: str | None, queries: int) -> Json:
    """Documents, chunks and answers that differ between two releases, by default the published one
    and its parent.
    """
    from rag_platform.api.release_diff import compare

    space = context.namespace
    return dict(compare(context.library, space, before, after, queries=queries))


@releases.command("publish")
@click.argument("release_id")
@click.option(
    "--override",
    required=True,
    metavar="REASON",
    help="Why it is published although the quality gate failed; recorded with the release.",
)
@answers(namespace=True)
def releases_publish(context: Context, release_id: str, override: str) -> Json:
    """Publish a candidate that the quality gate rejected."""
    from rag_platform.releases.publishing import publish_candidate

    if not override.strip():
        raise InputError("--override takes the reason", code="usage")
    return _show_published(
        publish_candidate(
            context.namespace,
            release_id,
            context.root,
            override=override.strip(),
        )
    )


@releases.command("rollback")
@click.argument("release_id", required=False)
@answers(namespace=True)
def releases_rollback(context: Context, release_id: str | None) -> Json:
    """Publish an earlier release again, by default the one before the published one."""
    from rag_platform.releases.publishing import roll_back

    return _show_published(roll_back(context.namespace, release_id, context.root))


@releases.command("forward")
@answers(namespace=True)
def releases_forward(context: Context) -> Json:
    """Publish the newest release again after a rollback, or mend a damaged CURRENT."""
    from rag_platform.releases.publishing import go_forward

    return _show_published(go_forward(context.namespace, context.root))


def _show_published(row: Any) -> Json:
    return {"markdown": f"{row.release_id} is published", "release": to_json(row)}


@releases.command("pull")
@answers(namespace=True)
def releases_pull(context: Context) -> Json:
    """Bring what the object store publishes, of one library or of all, and read it from now on."""
    from rag_platform.releases.transfer import pull, require_remote

    require_remote(context.store)
    given = context.given_namespace
    names = [given] if given else sorted(context.ledger.namespaces())
    rows = [{"namespace": name, **to_json(pull(name, context.root)[0])} for name in names]
    lines = [
        f"{row['namespace']}: {row['release_id'] or 'nothing'} is published;"
        f" {pluralise(row['files'], 'file')} came ({row['bytes'] / 1e6:.1f} MB),"
        f" {row['linked']} were here"
        for row in rows
    ]
    return {"markdown": "\n".join(lines) or "no libraries", "pulled": rows}


@releases.command("push")
@answers(namespace=True)
def releases_push(context: Context) -> Json:
    """Put the published release into the object store, where a publication could not."""
    from rag_platform.releases.publishing import push_current
    from rag_platform.releases.transfer import require_remote

    require_remote(context.store)
    name = context.namespace
    release_id = push_current(name, context.root)
    return {"markdown": f"{release_id} is published in the object store", "release_id": release_id}


@releases.command("export")
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False))
@answers(namespace=True)
def releases_export(context: Context, file: Path) -> Json:
    """Write the published release of a library and all that proves it into one FILE, signed with
    RAG_EXPORT_KEY where that is set.
    """
    from rag_platform.releases.exchange import export_release

    name = context.known_namespace()
    done = export_release(name, file, store=context.store, ledger=context.ledger)
    return _show_exchanged(done, "written", "signed" if done.signed else "not signed")


@releases.command("import")
@click.argument("file", type=click.Path(path_type=Path, exists=True, dir_okay=False))
@answers()
def releases_import(context: Context, file: Path) -> Json:
    """Publish the release of an exported FILE as a library that is not here yet, once all of it is
    proved; with RAG_EXPORT_KEY it must be signed with that.
    """
    from rag_platform.releases.exchange import import_release

    done = import_release(file, context.root)
    how = "signed" if done.signed else "signature not checked"
    data = _show_exchanged(done, "published", how)
    if not done.signed:
        data["markdown"] += (
            "\nWarning: RAG_EXPORT_KEY is not set, so whoever could write the file may have changed"
            " it: set the same key where files are written and read to have that checked"
        )
    return data


def _show_exchanged(done: Any, what: str, signed: str) -> Json:
    line = (
        f"{done.release_id} of {done.namespace} is {what}: {pluralise(done.documents, 'document')},"
        f" {pluralise(done.files, 'file')}, {pluralise(done.deletions, 'deletion')},"
        f" {done.bytes / 1e6:.1f} MB, {signed}"
    )
    return {"markdown": line, **to_json(done)}


@releases.command("pin")
@click.argument("release_id")
@answers(namespace=True)
def releases_pin(context: Context, release_id: str) -> Json:
    """Keep a release, whatever retention says."""
    return _pin(context, release_id, True)


@releases.command("unpin")
@click.argument("release_id")
@answers(namespace=True)
def releases_unpin(context: Context, release_id: str) -> Json:
    """Leave a release to retention again."""
    return _pin(context, release_id, False)


def _pin(context: Context, release_id: str, pinned: bool) -> Json:
    from rag_platform.releases.publishing import pin_release

    row = pin_release(context.namespace, release_id, pinned, context.root)
    state = "is kept until it is unpinned" if pinned else "is kept as long as retention says"
    return {"markdown": f"{row.release_id} {state}", "release": to_json(row)}


@click.group()
def namespaces() -> None:
    """The libraries, each with its own releases."""


def _namespace_line(row: NamespaceStatus) -> str:
    if row["release_id"]:
        return (
            f"{pluralise(row['documents'], 'document')}, {pluralise(row['chunks'], 'chunk')},"
            f" release {row['release_id']}, strategy {row['strategy']}"
        )
    if row["problem"]:
        return f"cannot be opened: {row['problem']}"
    waiting, failed = row["pending"], row["failed"]
    return f"nothing published yet: {waiting} not yet published, {failed} failed"


@namespaces.command("list")
@answers()
def namespaces_list(context: Context) -> Json:
    """Every library: its documents, chunks, release and strategy."""
    from rag_platform.api.status import status

    rows = status(context.library)["namespaces"]
    lines = [f"{row['namespace']}  {_namespace_line(row)}" for row in rows]
    return {"markdown": "\n".join(lines) or "no libraries", "namespaces": rows}
