"""The title and the metadata found in a file, normalised for filters and lists."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import PurePosixPath
from typing import Any

from rag_platform.ir import Document, Facts, Json, Version
from rag_platform.loaders.text import TEMPLATE_CODE, reads_as_title, titles_section
from rag_platform.text.dates import iso_date

MAX_TAGS, MAX_TAG_CHARS = 32, 60
MAX_METADATA_CHARS = 8192
MAX_TITLE_CHARS = 200

_MARKS = (
    (re.compile(rf"(`+[^`]*`+)|(?: [|·–—-])? ?(?:{TEMPLATE_CODE.pattern})(?: [|·–—-] )?"), r"\1"),
    (re.compile(r"^\s*(?:#{1,6}\s+|>\s*|[-*+]\s+|\d{1,9}[.)]\s+)+"), ""),
    (re.compile(r"!?\[([^\]]*)\](?:\([^)]*\)|\[[^\]]*\])"), r"\1"),
    (re.compile(r"</?[A-Za-z][^<>]*>"), ""),
    (re.compile(r"(?<!\\)(\*{1,3}|`+|~~)(?=\S)(.+?)(?<=\S)\1"), r"\2"),
    (re.compile(r"(?<!\w)_(?=\S)([^_]+)(?<=\S)_(?!\w)"), r"\1"),
    (re.compile(r"\\([!-/:-@\[-`{-~])"), r"\1"),
)

_TAGS = ("tags", "tag", "keywords", "keyword")
_CATEGORIES = ("categories", "category")
_CREATED = (
    "created created_at date_created creationdate published publish_date pubdate date".split()
)
_MODIFIED = (
    "modified modified_at updated updated_at lastmod last_modified date_modified moddate ms.date"
).split()
# 1990: npm dates every file 1985-10-26, zips without times 1980-01-01, others the epoch
_FIRST_MTIME = 631_152_000
_MONTH_FIRST = frozenset({"ms.date"})  # fields whose 5/1/2024 is known to be the first of May


def file_metadata(found: Mapping[str, Any], file_modified: float | None = None) -> Json:
    """The loader's values, plus the lists `tags` and `categories` and the dates `created` and
    `modified`.

    A date comes from the first known field with a valid one: times in UTC, days without a time;
    ambiguous dates are ignored. `file_modified`, the file's mtime, is the fallback for `modified`,
    unless it is one that packers write in place of the real one.
    Values beyond MAX_METADATA_CHARS of JSON are left out.
    """
    known = {str(key).lower(): value for key, value in found.items()}
    tags = _words(known.get(key) for key in (*_TAGS, *_CATEGORIES))
    categories = _words(known.get(key) for key in _CATEGORIES)
    created, modified = _first_date(known, _CREATED), _first_date(known, _MODIFIED)
    if not modified and file_modified is not None and file_modified >= _FIRST_MTIME:
        modified = datetime.fromtimestamp(file_modified, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    named = {"tags": tags, "categories": categories, "created": created, "modified": modified}
    kept: Json = {key: value for key, value in named.items() if value}
    room = MAX_METADATA_CHARS
    for key, value in found.items():
        size = len(json.dumps([key, value], ensure_ascii=False, default=str))
        if (
            str(key).lower() not in (*named, *_TAGS, *_CATEGORIES)
            and value not in ("", None, [], {})
            and size <= room
        ):
            kept[str(key)] = value
            room -= size
    return kept


def document_title(facts: Facts, filename: str, source_uri: str) -> str:
    """The first text that reads as a title: the loader's title, a heading, a paragraph or list,
    else the filename. Headings and paragraphs are skipped if the first heading only names a
    section.

    Returned without Markdown and code of templates, at most MAX_TITLE_CHARS characters. A title
    that is only the file's name has its folder before it, if that is not the source itself:
    `popover/docs.md`.
    """
    headings = [block for block in facts.blocks if block.kind == "heading"]
    texts = [facts.summary.title]
    if not titles_section(headings):
        texts += [block.title or facts.text[block.start : block.end] for block in headings]
        texts += [
            facts.text[block.start : block.end].strip()
            for block in facts.blocks
            if block.kind in ("paragraph", "list")
        ]
    firsts = (next(filter(None, map(_plain, text.splitlines())), "") for text in texts)
    title = next(filter(reads_as_title, firsts), filename)[:MAX_TITLE_CHARS].rstrip()
    folders = source_uri.rpartition("://")[2].split("/")[1:-1]
    is_name = title == filename or (title == PurePosixPath(filename).stem and not headings)
    return f"{folders[-1]}/{title}" if is_name and folders else title


def _plain(line: str) -> str:
    for pattern, kept in _MARKS:
        line = pattern.sub(kept, line)
    return " ".join(line.split())


def with_file_metadata(document: Document, version: Version) -> Document:
    """The document, its metadata merged with that of its live version's file; values given by users
    take precedence.
    """
    from_file = version.counts.get("metadata") or {}
    if not from_file:
        return document
    plain = {key: value for key, value in from_file.items() if key not in ("tags", "categories")}
    return replace(
        document,
        tags=tuple(dict.fromkeys((*document.tags, *from_file.get("tags", ())))),
        categories=tuple(dict.fromkeys((*document.categories, *from_file.get("categories", ())))),
        metadata={**plain, **document.metadata},
    )


def _first_date(known: Mapping[str, Any], keys: Iterable[str]) -> str:
    dates = (iso_date(known[key], month_first=key in _MONTH_FIRST) for key in keys if key in known)
    return next((date for date in dates if date), "")


def _words(values: Iterable[Any]) -> list[str]:
    """Tags from lists, or from texts separated by commas or semicolons, without duplicates."""
    found: list[str] = []
    for value in values:
        parts = (
            value
            if isinstance(value, list | tuple)
            else re.split(r"[,;，；、]", value)
            if isinstance(value, str)
            else ()
        )
        found += [
            word
            for part in parts
            if isinstance(part, str | int) and (word := " ".join(str(part).split()))
        ]
    return [word for word in dict.fromkeys(found) if len(word) <= MAX_TAG_CHARS][:MAX_TAGS]
