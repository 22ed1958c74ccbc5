"""Renders lists, documents, status and traces as Markdown that is readable without the structured
data, and the place of a passage in words.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any
from urllib.parse import unquote

from rag_platform.contract.schema import (
    ChunkData,
    CollectionsData,
    DocumentPart,
    DocumentsData,
    DroppedData,
    ListedDocument,
    NamespaceStatus,
    ServerStatus,
    StatusData,
)
from rag_platform.contract.traces import TraceRow, TraceStats
from rag_platform.ir import Hit, format_section
from rag_platform.messages import translate, translate_filled
from rag_platform.observability import faults
from rag_platform.text.markdown_blocks import format_table
from rag_platform.text.wording import pluralise, shorten

SOURCES, ALSO_FOUND = "Sources", "Also found"  # headings of an answer
_FIELD_CHARS = 500  # of a document's tags and metadata
_QUESTION_CHARS = 60  # of a trace in a list
_NAMED_PICTURES = 3  # of a passage, where their text is shown
_SINGULAR = {"tags": "tag", "categories": "category"}


def quote_of(citation: Mapping[str, Any]) -> dict[str, Any]:
    """The citation with the place of its quote instead of that of its passage."""
    return {**citation, **citation.get("quote", {})}


def format_edited(edited_from: Sequence[str]) -> str:
    """The note on a text that was edited by hand, empty for a verbatim one."""
    return f"edited from {', '.join(edited_from)}" if edited_from else ""


def hit_text(hit: Hit) -> str:
    """The hit's text; for a picture its URI and the text a model read in it, marked as such."""
    return hit.chunk_text or show_picture(hit.asset_ids, hit.picture_text)


def show_picture(asset_ids: Sequence[str], text: str) -> str:
    """The URIs of the first pictures, and the text a model read in them, marked as such."""
    uris = ", ".join(map(asset_uri, asset_ids[:_NAMED_PICTURES]))
    picture = f"(picture {uris})" if uris else "(picture)"
    return f"{picture} read by a model: {text}" if text else picture


def document_line(listed: ListedDocument, grouping: str | None = None, language: str = "en") -> str:
    """One document of a list: title, source, day of the last change, id, and the tags unless the
    list is grouped by them.
    """
    title = listed["title"] or listed["filename"]
    say = partial(translate_filled, language=language)
    marks = [
        listed["source_uri"],
        say(pluralise(listed["chunks"], "chunk")),
        say(f"changed {listed['updated_at'][:10]}"),
    ]
    if listed["versions"] > 1:
        marks.append(say(f"{listed['versions']} versions"))
    if listed["status"] != "active" and not listed["problem"]:
        marks.append(say(listed["status"]))
    if listed["tags"] and grouping != "tags":
        marks.append(f"{say('tags')} {', '.join(listed['tags'])}")
    if listed["problem"]:
        marks.append(say(f"its newest version failed: {listed['problem']}"))
    shown = {"title": " ".join(title.split()), "marks": say(", ").join(marks)}
    return translate("- {title} ({marks}): `{doc_id}`", language, **shown, doc_id=listed["doc_id"])


def documents_markdown(data: DocumentsData, language: str = "en", *, filtered: bool = False) -> str:
    """A page of documents as a list by group, with labels in the given language."""
    say = partial(translate_filled, language=language)
    if not data["groups"]:
        return say(
            f"No documents in library {data['namespace']} match."
            if filtered or data["total"]
            else f"No documents in library {data['namespace']}."
        )
    heading = f"{pluralise(data['total'], 'document')} in library {data['namespace']}"
    if unpublished := data.get("unpublished"):
        heading += f", {unpublished} of them not published"
    lines = [say(heading)]
    listed: set[str] = set()  # a document with two tags is in two groups
    for group in data["groups"]:
        if data["group_by"]:
            name = group["key"] or say(f"(no {_SINGULAR.get(data['group_by'], data['group_by'])})")
            lines += ["", f"**{name}** ({group['count']})"]
        lines.append("")
        for it in group["documents"]:
            if it["doc_id"] in listed:
                lines.append(f"- {it['source_uri']}: `{it['doc_id']}`")
            else:
                lines.append(document_line(it, data["group_by"], language))
            listed.add(it["doc_id"])
    if data["next_cursor"]:
        lines += ["", say(f"More: ask again with cursor `{data['next_cursor']}`.")]
    return "\n".join(lines)


def document_heading(part: DocumentPart, language: str = "en") -> str:
    """The line above a document's sections or chunks."""
    version = translate_filled(f"version `{part['version_id']}`", language)
    title = " ".join((part["title"] or part["filename"]).split())
    place = {"title": title, "source": part["source_uri"], "version": version}
    heading = translate("**{title}** ({source}, {version})", language, **place)
    fields = {**({"tags": part["tags"]} if part["tags"] else {}), **part["metadata"]}
    shown = "; ".join(
        f"{key}: {value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)}"
        for key, value in fields.items()
    )
    return heading + (f"\n\n{shown[:_FIELD_CHARS]}" if shown else "")


def part_markdown(part: DocumentPart, language: str = "en") -> str:
    """The chunks or sections of a document, with labels in the given language."""
    return (_chunks_markdown if "chunks" in part else _sections_markdown)(part, language)


def _sections_markdown(part: DocumentPart, language: str) -> str:
    """Section by section: path and text, or, without text, an indented outline."""
    say = partial(translate_filled, language=language)
    lines = [document_heading(part, language), ""]
    for row in part["sections"]:
        if "text" in row:
            section = format_section(row["section_path"])
            lines += [*([f"[{section}]", ""] if section else []), row["text"].strip("\n"), ""]
        else:
            lines.append(
                f"{'  ' * max(0, row['level'] - 1)}-"
                f" {row['title'] or format_section(row['section_path']) or say('(beginning)')}"
                + translate(" ({count})", language, count=say(pluralise(row["chunks"], "chunk")))
            )
    return "\n".join(lines).rstrip()


def _chunks_markdown(part: DocumentPart, language: str) -> str:
    """Chunk by chunk: id, section, place and text."""
    lines = [document_heading(part, language), ""]
    for row in part["chunks"]:
        parts = [
            format_section(row["section_path"]),
            place_of(row, language),
            translate_filled(format_edited(row.get("edited_from", ())), language),
        ]
        where = ", ".join(filter(None, parts))
        pictures = list_pictures(row["asset_ids"], row["text"])
        lines += [f"`{row['chunk_id']}` {where} {pictures}".rstrip(), "", row["text"], ""]
    return "\n".join(lines).rstrip()


def chunk_uri(chunk_id: str) -> str:
    """The resource URI of a chunk."""
    return f"chunk://{chunk_id}"


def asset_uri(asset_id: str) -> str:
    """The resource URI of a picture."""
    return f"asset://{asset_id}"


def list_pictures(asset_ids: Sequence[str], text: str) -> str:
    """The URIs of the pictures of a text, without those that the text itself contains."""
    return ", ".join(uri for uri in map(asset_uri, asset_ids) if uri not in text)


def passage_markdown(data: ChunkData) -> str:
    """A chunk and its neighbours, each below its place; the chunk itself is marked."""
    lines = [f"**{data['title'] or data['source_uri']}** (`{data['doc_id']}`)", ""]
    if data["state"] == "changed":
        lines += [
            f"Changed since: this is version {data['version_id']}, which is only in older releases;"
            f" {data['release_id']} is the newest of them.",
            "",
        ]
    for row in data["chunks"]:
        mark = "→ " if row["chunk_id"] == data["chunk_id"] else ""
        where = ", ".join(
            filter(None, [data["source_uri"], format_section(row["section_path"]), place_of(row)])
        )
        edited = format_edited(row.get("edited_from", ()))
        lines += [f"{mark}[{where}]({chunk_uri(row['chunk_id'])}) {edited}".rstrip(), ""]
        text = row["text"]
        if read := row.get("picture_text"):
            text += f"\n\n{show_picture(row['asset_ids'], read)}"
        pictures = list_pictures(row["asset_ids"], text)
        lines += [*filter(None, [text, pictures]), ""]
    return "\n".join(lines).rstrip()


def dropped_markdown(data: DroppedData, language: str = "en") -> str:
    """The dropped texts, one per line: place, reason and words."""
    say = partial(translate_filled, language=language)
    kept = data["text_kept"]
    lines = []
    if kept:
        lines.append(
            say(
                f"{kept['found']} of {pluralise(kept['words'], 'word')} that a second reader finds"
                " stand in chunks or in this list"
            )
        )
        if short := kept["short_pages"]:
            pages = (
                f"{format_place([page, page], None, language=language)} {share:.1%}"
                for page, share in short.items()
            )
            lines.append(say(f"not all of them: {', '.join(pages)}"))
    if not data["dropped"]:
        return "\n".join([*lines, say("Nothing was dropped.")])
    counts = (
        f"{say(reason)} {say(pluralise(words, 'word'))}" for reason, words in data["words"].items()
    )
    lines.append(say(f"dropped: {', '.join(counts)}"))
    for row in data["dropped"]:
        page, line = row.get("page"), row.get("line")
        where = format_place(
            [page, page] if page else None, [line, line] if line else None, language=language
        )
        lines.append(
            f"- {where + ': ' if where else ''}{say(row['reason'])}:"
            f" {' '.join(row['text'].split())}"
        )
    return "\n".join(lines)


def collections_markdown(data: CollectionsData) -> str:
    """A line for each published library."""
    lines = []
    for row in data["collections"]:
        state = (
            f"cannot be read: {row['problem']}"
            if row["problem"]
            else f"{pluralise(row['documents'], 'document')}, {pluralise(row['chunks'], 'chunk')}"
        )
        spoken = ", ".join(f"{name} {share:.0%}" for name, share in row["languages"].items())
        default = ", asked by default" if row["namespace"] in data["default"] else ""
        lines.append(
            f"- **{row['namespace']}**: {state}{f', {spoken}' if spoken else ''}, published"
            f" {_moment(row['published_at'])}{default}"
        )
    return "\n".join(lines) or "Nothing is published yet: the user runs `rag ingest PATH`."


def _moment(stamp: str | None) -> str:
    """A stored time to the second."""
    return f"{stamp[:19]}Z" if stamp else "at an unknown time"


def server_line(row: ServerStatus) -> str:
    """The state of a server in one line."""
    read = ", ".join(f"{name} {release}" for name, release in row["releases"].items() if release)
    waiting = row["unacknowledged"]
    return (
        f"{row['server']} {'is gone' if row['gone'] else 'lives'}, seen {row['seen_at']}, reads"
        f" {read or 'nothing'}"
        + (f", has not carried out {pluralise(waiting, 'hard deletion')}" if waiting else "")
    )


def _waiting_lines(row: NamespaceStatus) -> list[str]:
    """What the published release of a namespace lacks."""
    lines = []
    if behind := row.get("behind", 0):
        lines.append(f"  {pluralise(behind, 'publication')} did not come here yet")
    counts = ((row["pending"], "not yet published"), (row["failed"], "failed"))
    if shown := [f"{count} {what}" for count, what in counts if count]:
        lines.append(f"  {', '.join(shown)}")
    if row["stale"]:
        lines.append(
            f"  {row['stale']} built by an earlier config or program; the next ingest, or `rag"
            f" rebuild --namespace {row['namespace']}`, builds them anew"
        )
    return lines


def status_markdown(data: StatusData) -> str:
    """One line for the installation, one for each namespace, then jobs, servers and problems."""
    up = f", up {data['uptime_seconds']:.0f} s" if "running_queries" in data else ""
    lines = [f"rag_platform {data['app_version']}{up}"]
    names = [row["namespace"] for row in data["namespaces"]]
    if not names or data["default_namespace"] in names:
        lines[0] += f", default library {data['default_namespace']}"
    for row in data["namespaces"]:
        name = f"**{row['namespace']}**"
        if row["problem"]:
            lines.append(f"- {name}: cannot be opened: {row['problem']}")
        elif row["release_id"] is None:
            lines.append(f"- {name}: nothing published yet")
        else:
            lines.append(
                f"- {name}: {pluralise(row['documents'], 'document')},"
                f" {pluralise(row['chunks'], 'chunk')}, release {row['release_id']}"
                f" of {_moment(row['published_at'])}, strategy {row['strategy']}, embedder"
                f" {row['embedder'].split(' ')[0]}"  # without its long version
            )
        lines += _waiting_lines(row)
    if not data["namespaces"]:
        lines.append("- nothing ingested yet; run `rag ingest PATH`")
    lines += [
        f"- job {job['job_id']} ({job['kind']} of {job['namespace']}): {job['state']}"
        for job in data.get("jobs", ())
        if not job["ended_at"]  # what went wrong with others is below
    ]
    lines += [f"- server {server_line(row)}" for row in data.get("servers", ())]
    if problems := data.get("problems"):
        indented = (problem.replace("\n", "\n  ") for problem in problems)
        lines += ["", "What is wrong:", *(f"- {problem}" for problem in indented), ""]
    shares = [
        f"{name.replace('_', ' ')} {cache['hit_rate']:.0%} of {looked}"
        for name, cache in data.get("caches", {}).items()
        if (looked := cache["hits"] + cache["misses"])
    ]
    if shares:
        lines.append(f"- answered from memory: {', '.join(shares)}")
    if found := data.get("unexpected_errors"):
        lines.append(f"- {faults.sentence(found)}")
    return "\n".join(lines)


def traces_markdown(rows: list[TraceRow], next_cursor: str | None) -> str:
    """One line per trace."""
    lines = [_trace_line(row) for row in rows]
    if next_cursor is not None:
        lines.append(f"more: --cursor {next_cursor}")
    return "\n".join(lines) or "no traces"


def _trace_line(row: TraceRow) -> str:
    question = shorten(row["question"] or "", _QUESTION_CHARS)
    code = row["error"]["code"] if row["error"] else ""
    failures = pluralise(count, "error") if (count := row["error_count"]) and not code else ""
    facts = [", ".join(row["namespaces"]), row["job_id"] or "", failures, question, code]
    return (
        f"{row['trace_id']}  {row['started_at']} {row['latency_ms'] or 0:>8.0f} ms"
        f"  {row['trace_type']}  {row['status']}  {'  '.join(filter(None, facts))}"
    ).rstrip()


def stats_markdown(stats: TraceStats) -> str:
    """The statistics of traces as tables, without empty ones."""
    counted = ("count", "failed", "p50_ms", "p95_ms", "p99_ms")
    used = ("calls", "failed", "input_tokens", "output_tokens", "cost")
    parts = [
        _stats_table("traces", stats["kinds"], "trace_type", *counted),
        _stats_table("stages", stats["stages"], "trace_type", "stage", *counted),
        _stats_table("caches", stats["caches"], "cache", "hits", "misses", "hit_rate"),
        _stats_table("model calls", stats["model_calls"], "provider", "model", *used),
    ]
    day = stats["last_24h"]
    counts = [f"{count} {kind}" for kind, count in sorted(day["counts"].items())]
    parts.append(f"last 24 hours: {', '.join(counts) or 'no traces'}")
    return "\n\n".join(filter(None, parts))


def _stats_table(title: str, rows: Sequence[Mapping[str, Any]], *fields: str) -> str:
    """A table of these fields with its title; empty without rows."""
    heads = [field.removeprefix("trace_").replace("_", " ") for field in fields]
    cells = [[_format_figure(field, row[field]) for field in fields] for row in rows]
    return "\n".join([f"## {title}", "", *format_table(heads, cells)]) if rows else ""


def _format_figure(field: str, value: Any) -> Any:
    if field.endswith("_ms") and value is not None:
        return f"{value:.1f}"
    return f"{value:.0%}" if field.endswith("_rate") else value


# --- places -------------------------------------------------------------------------------------

# steps of the locators of Word documents, workbooks, slides and notebooks; the loaders make them
_NOUNS = {
    "p": "paragraph",
    "tbl": "table",
    "tr": "row",
    "tc": "cell",
    "txbx": "text frame",
    "footnotes": "footnote",
    "endnotes": "endnote",
    "comments": "comment",
    "header": "header",
    "footer": "footer",
    "rows": "row",
    "columns": "column",
    "slide": "slide",
    "cell": "cell",
    "output": "output",
    "lines": "line",
}
_STEP = re.compile(r"([a-z]+?)(?:\[([\d-]+)\]|=([\dA-Z-]+)|(\d+))?")
_SEPARATOR = re.compile(r"( to |, )(?=[a-z]+\d*[=/])")  # not inside the name of a sheet
_PART = re.compile(r"part=([^;]*)(?:;|$)")  # of a book, mail or saved page
# the number printed on a page of a passage
_PRINTED = re.compile(r"page=(\d+);char=\d+;printed=([^;]*?)(?=, page=|$)")
_XPATH = re.compile(r"xpath=[^;]*(?:;nodes=[\d-]+)?")
# steps that say nothing to people: every paragraph has them, or nobody can count them
_OMITTED = ("body", "shape", "head", "note")


def place_of(passage: Mapping[str, Any], language: str = "en") -> str:
    """The place of a citation or chunk in words: page, lines or rows."""
    return format_place(
        passage.get("page_range"), passage.get("line_range"), passage.get("locator") or "", language
    )


def format_place(
    page_range: Sequence[int] | None,
    line_range: Sequence[int] | None,
    locator: str = "",
    language: str = "en",
) -> str:
    """The place of a span: `page 3`, `pages 3-4 (printed iii-iv)`, `lines 10-24`, else the locator
    in words, else empty.
    """
    for name, bounds in (("page", page_range), ("line", line_range)):
        if bounds is not None:
            place = _count(name, "-".join(map(str, bounds)), language)
            break
    else:
        return format_locator(locator, language)
    printed = find_printed_pages(page_range, locator)
    if not printed or printed == [str(page) for page in page_range or ()]:
        return place
    label = "-".join(dict.fromkeys(printed))
    return translate("{place} (printed {label})", language, place=place, label=label)


def find_printed_pages(page_range: Sequence[int] | None, locator: str) -> list[str]:
    """The numbers printed on the first and last page of a span, where those of its passage are
    other than the pages' positions, else [].

    >>> place = "page=7;char=0;printed=iv, page=8;char=120;printed=A-1"
    >>> find_printed_pages([7, 8], place), find_printed_pages([3, 3], "")
    (['iv', 'A-1'], [])
    """
    labels = {page: unquote(label) for page, label in _PRINTED.findall(locator)}
    return [labels.get(str(page), str(page)) for page in page_range or ()] if labels else []


def format_locator(locator: str, language: str = "en") -> str:
    """A locator in words; one of an unknown format is unchanged. Of one with an XPath, only the
    part of the book or mail is named.

    >>> format_locator("body/tbl[2]/tr[3-9]"), format_locator("sheet=Q1%3B;rows=4;head=1")
    ('table 2, rows 3-9', 'sheet Q1;, row 4')
    >>> format_locator("part=ch1.xhtml;xpath=/html/body/p[3]"), format_locator("xpath=/html/body/p")
    ('part ch1.xhtml', '')
    """
    first, *rest = _SEPARATOR.split(locator, maxsplit=1)
    if rest:
        separator = translate({", ": "; "}.get(rest[0], rest[0]), language)
        ends = format_locator(first, language), format_locator(rest[1], language)
        return separator.join(dict.fromkeys(filter(None, ends)))
    part = _PART.match(locator)
    others = _XPATH.sub("", _PART.sub("", locator))
    steps = re.split("[;/]", re.sub(r"(?<=notes)/|(?<=comments)/", "=", others))
    words = [_format_step(step, language) for step in steps if step]
    if None in words:
        return locator
    if part is not None:
        words.insert(0, translate("part {name}", language, name=unquote(part[1])))
    return translate(", ", language).join(filter(None, words))


def _format_step(step: str, language: str) -> str | None:
    """A step in words, empty for one that is omitted; None for an unknown one."""
    if step.startswith("sheet="):
        return translate("sheet {name}", language, name=unquote(step.removeprefix("sheet=")))
    if step in ("notes", "comments"):
        return translate(step, language)
    if step.startswith("header="):  # of a mail
        return translate("mail header", language)
    match = _STEP.fullmatch(step)
    if match is None or match[1] not in (*_NOUNS, *_OMITTED):
        return None
    if match[1] in _OMITTED:
        return ""
    return _count(_NOUNS[match[1]], match[2] or match[3] or match[4] or "1", language)


def _count(noun: str, place: str, language: str) -> str:
    first, _, last = place.partition("-")
    place = first if first == last else place
    plural = "s" if "-" in place else ""
    return translate(f"{noun}{plural} {{place}}", language, place=place)
