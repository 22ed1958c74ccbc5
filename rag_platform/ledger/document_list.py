"""Pages and counts of a namespace's documents: selected, grouped and counted in SQL."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from operator import itemgetter
from typing import Any, Literal, NamedTuple

from rag_platform.ledger.schema import Database

GroupBy = Literal["tags", "categories", "source"]
GONE = ("retired", "deleted")
_RECENT_INGESTS = 50  # jobs whose refused files are still reported

_NEWEST = """
(SELECT v.{column} FROM versions v WHERE v.namespace = d.namespace AND v.doc_id = d.doc_id
    ORDER BY v.received_at DESC, v.rowid DESC LIMIT 1)
"""
# replaced by the backend's own condition for a published version
_IS_PUBLISHED = re.compile(r"is_published\(([\w.]+)\)")
# after a rollback, an earlier version
_EARLIER = """
(SELECT v.version_id FROM versions v WHERE v.namespace = d.namespace AND v.doc_id = d.doc_id
    AND is_published(v.version_id) LIMIT 1)
"""
_VERSION = f"""
CASE WHEN is_published(d.live_version) THEN d.live_version
    ELSE COALESCE({_EARLIER}, d.live_version, {_NEWEST.format(column="version_id")}, '') END
"""
_STATUS = f"""
CASE
    WHEN d.doc_id IN (SELECT doc_id FROM deletions WHERE namespace = :namespace
        AND version_id IS NULL AND lifted_at = '') THEN 'deleted'
    WHEN is_published(d.live_version) OR {_EARLIER} IS NOT NULL THEN 'active'
    WHEN d.status != 'active' THEN d.status
    WHEN d.live_version IS NULL
        AND {_NEWEST.format(column="status")} IN ('failed', 'dead') THEN 'failed'
    ELSE 'pending' END
"""
# the users' list followed by that of the file, as one JSON list
_MEMBERS = f"""
(SELECT CASE WHEN own = '[]' THEN d.{{key}} WHEN d.{{key}} = '[]' THEN own
    ELSE substr(d.{{key}}, 1, length(d.{{key}}) - 1) || ', ' || substr(own, 2) END
FROM (SELECT COALESCE((SELECT json_extract(s.counts, '$.metadata.{{key}}') FROM versions s
    WHERE s.version_id = {_VERSION}), '[]') AS own) AS from_file)
"""
_TAGS, _CATEGORIES = _MEMBERS.format(key="tags"), _MEMBERS.format(key="categories")
_PAGE = """
WITH places AS MATERIALIZED (
    SELECT {group} AS place, d.source_uri, d.doc_id FROM documents d {members}
    WHERE d.namespace = :namespace {conditions}),
page AS (
    SELECT place, source_uri, doc_id FROM places
    WHERE CAST(:after AS TEXT) IS NULL
        OR (place = '', place, source_uri) > (:after = '', :after, :after_uri)
    ORDER BY place = '', place, source_uri LIMIT :limit),
counts AS (SELECT place, count(*) AS count FROM places GROUP BY place)
SELECT total, page.place, doc_id, counts.count
FROM (SELECT count({counted}) AS total FROM places) AS totals
    LEFT JOIN page ON TRUE LEFT JOIN counts ON counts.place = page.place
ORDER BY page.place = '', page.place, source_uri
"""
# newest versions that failed, unless the source has another one now
_FAILED_NEWEST = f"""
SELECT n.doc_id, d.source_uri, '[' || n.code || '] ' || n.reason AS problem
FROM versions n CROSS JOIN documents d
WHERE d.namespace = n.namespace AND d.doc_id = n.doc_id
    AND n.namespace = :namespace AND n.status IN ('failed', 'dead')
    AND n.rowid = {_NEWEST.format(column="rowid")}
    AND (d.wanted_version IS NULL OR d.wanted_version = n.version_id)
"""
_FAILED = f"{_FAILED_NEWEST} AND {_STATUS} NOT IN ('retired', 'deleted')"
# without live versions that only failed under a new config
_FAILED_UPDATES = f"""
{_FAILED_NEWEST} AND n.doc_id IN (SELECT value FROM json_each(:doc_ids))
    AND d.pinned = 0 AND n.version_id != d.live_version
ORDER BY d.source_uri
"""
_ROWS = f"""
SELECT d.doc_id, d.filename, d.title, {_TAGS}, d.source, d.source_uri, {_VERSION}, {_STATUS},
    COALESCE((SELECT problem FROM ({_FAILED}) f WHERE f.doc_id = d.doc_id), ''), d.updated_at,
    (SELECT count(*) FROM versions v WHERE v.namespace = d.namespace AND v.doc_id = d.doc_id
        AND v.status = 'ready' AND NOT EXISTS (SELECT 1 FROM deletions x
            WHERE x.namespace = v.namespace AND x.doc_id = v.doc_id
            AND x.version_id = v.version_id AND x.lifted_at = ''))
FROM documents d
WHERE d.namespace = :namespace AND d.doc_id IN (SELECT value FROM json_each(:doc_ids))
"""
_COUNTS = f"""
SELECT {_STATUS} AS state, count(*) FROM documents d WHERE d.namespace = :namespace GROUP BY state
"""
# the version that a document should show is not published, and did not fail
_WAITING = """
SELECT count(*) FROM documents d JOIN versions v
    ON v.version_id = CASE WHEN d.pinned = 1 THEN d.live_version
        ELSE COALESCE(d.wanted_version, d.live_version) END
WHERE d.namespace = :namespace AND d.status = 'active' AND v.status NOT IN ('failed', 'dead')
    AND NOT is_published(v.version_id) AND d.doc_id NOT IN (SELECT doc_id FROM deletions
        WHERE namespace = :namespace AND version_id IS NULL AND lifted_at = '')
"""
_PROBLEMS = f"""
SELECT source_uri, problem, count(*) OVER () FROM ({_FAILED}) AS failed
WHERE source_uri NOT IN (SELECT value FROM json_each(:refused))
    AND substr(problem, 1, length(CAST(:code AS TEXT))) <> CAST(:code AS TEXT)
ORDER BY source_uri LIMIT :limit
"""
# of some source_uris, those of documents and folders that an earlier version answers for
_ANSWERING = f"""
SELECT source_uri FROM documents d WHERE d.namespace = :namespace AND {_STATUS} = 'active'
    AND source_uri IN (SELECT value FROM json_each(:uris))
UNION SELECT name FROM sources WHERE namespace = :namespace
UNION SELECT name || '/' FROM sources WHERE namespace = :namespace
"""
# without runs that Dagster starts, and jobs that did not record the scanned places
_REFUSED = f"""
WITH recent AS (
    SELECT job_id, json_extract(args, '$.looked') AS looked,
        json_extract(args, '$.retry_of') AS retry_of,
        row_number() OVER (ORDER BY rowid DESC) AS place
    FROM jobs WHERE namespace = :namespace AND kind = 'ingest'
        AND json_extract(args, '$.looked') IS NOT NULL
    ORDER BY place LIMIT {_RECENT_INGESTS})
SELECT r.place, r.looked, r.retry_of, i.source_uri, '[' || i.code || '] ' || i.reason
FROM recent r LEFT JOIN job_items i ON i.job_id = r.job_id AND i.version_id = ''
    AND i.state IN ('failed', 'dead')
    AND NOT EXISTS (SELECT 1 FROM recent m JOIN job_items n ON n.job_id = m.job_id
        AND n.source_uri = i.source_uri WHERE m.place < r.place)
ORDER BY r.place
"""


@dataclass(frozen=True, slots=True)
class DocumentFilter:
    """Which documents to list. Empty fields match everything; of several values in a field, one
    must match.

    `words` must all occur in title, file name or source_uri, in any case. `since` and `until` are
    prefixes of ISO times of the last change, both inclusive. Retired and deleted documents are
    listed only when `gone` or a status asks for them.
    """

    tags: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    source: tuple[str, ...] = ()
    status: tuple[str, ...] = ()
    words: str = ""
    since: str = ""
    until: str = ""
    gone: bool = False


class DocumentRow(NamedTuple):
    """A document as listed; `problem` says why its newest version failed."""

    doc_id: str
    filename: str
    title: str
    tags: list[str]
    source: str
    source_uri: str
    version_id: str
    status: str  # active | pending | failed | retired | deleted
    problem: str
    updated_at: str
    versions: int  # that were built and are kept


@dataclass(frozen=True, slots=True)
class Place:
    """A document in a group of `count` documents; with two tags it has two places."""

    group: str
    document: DocumentRow
    count: int


@dataclass(frozen=True, slots=True)
class Page:
    """Places by group and source_uri, ungrouped ones last; `total` counts all pages' documents."""

    total: int
    places: list[Place] = field(default_factory=list)


class DocumentList(Database):
    """Lists documents. `published` are the version_ids of the published release."""

    def document_page(
        self,
        namespace: str,
        wanted: DocumentFilter,
        published: Collection[str],
        *,
        group_by: GroupBy | None = None,
        after: tuple[str, str] | None = None,
        limit: int = 50,
    ) -> Page:
        """At most `limit` places after the place with the (group, source_uri) `after`."""
        db, bound = self._bind(published)
        group, members, counted = "''", "", "*"
        if group_by == "source":
            group = "d.source"
        elif group_by is not None:
            group, counted = "DISTINCT member.value", "DISTINCT doc_id"
            lists = _TAGS if group_by == "tags" else _CATEGORIES
            members = f""", json_each(COALESCE(NULLIF({lists}, '[]'), '[""]')) member"""
        conditions, values = _conditions(wanted)
        if words := wanted.words.casefold().split():
            conditions += " AND d.doc_id IN (SELECT value FROM json_each(:with_words))"
            values["with_words"] = json.dumps(self._find_words(namespace, words))
        sql = _PAGE.format(group=group, members=members, conditions=conditions, counted=counted)
        group_after, uri_after = after or (None, None)
        values |= {"namespace": namespace, "limit": limit}
        values |= {"after": group_after, "after_uri": uri_after}
        found = db.execute(self._sql(sql), {**values, **bound}).fetchall()
        keys = [(place, doc_id, count) for _, place, doc_id, count in found if doc_id is not None]
        rows = self._document_rows(namespace, {doc_id for _, doc_id, _ in keys}, bound)
        places = [Place(group, rows[doc_id], count) for group, doc_id, count in keys]
        return Page(found[0][0], places)

    def document_row(
        self, namespace: str, doc_id: str, published: Collection[str]
    ) -> DocumentRow | None:
        """A document as listed; None for an unknown one."""
        _, bound = self._bind(published)
        return self._document_rows(namespace, {doc_id}, bound).get(doc_id)

    def count_documents(self, namespace: str, published: Collection[str]) -> dict[str, int]:
        """Status to number of documents."""
        db, bound = self._bind(published)
        return dict(db.execute(self._sql(_COUNTS), {"namespace": namespace, **bound}).fetchall())

    def count_waiting(self, namespace: str, published: Collection[str]) -> int:
        """The number of documents that are new or changed, did not fail, and are not published."""
        _, bound = self._bind(published)
        return int(self._value(self._sql(_WAITING), {"namespace": namespace, **bound}))

    def document_problems(
        self, namespace: str, published: Collection[str], limit: int, *, without: str = ""
    ) -> tuple[int, list[tuple[str, str, bool]]]:
        """(number of documents whose newest version failed or whose file could not be received,
        source_uri and reason of the first ones, and whether an earlier version still answers).
        Problems with the code `without` are left out.
        """
        db, bound = self._bind(published)
        code = f"[{without}] "
        refused = {
            uri: problem
            for uri, problem in self._find_refused_files(namespace).items()
            if not problem.startswith(code)
        }
        # with no row there would be no count
        values = {"namespace": namespace, "limit": max(limit, 1)}
        values |= {"refused": json.dumps(list(refused)), "code": code}
        found = db.execute(self._sql(_PROBLEMS), {**values, **bound}).fetchall()
        problems = sorted([*refused.items(), *((uri, problem) for uri, problem, _ in found)])
        uris = json.dumps([uri for uri, _ in problems[:limit]])
        values = {"namespace": namespace, "uris": uris, **bound}
        answering = {uri for (uri,) in db.execute(self._sql(_ANSWERING), values)}
        listed = [(uri, problem, uri in answering) for uri, problem in problems[:limit]]
        return len(refused) + (found[0][2] if found else 0), listed

    def failed_updates(self, namespace: str, doc_ids: Collection[str]) -> dict[str, str]:
        """source_uri to reason, of documents whose newest version failed while another is live."""
        values = {"namespace": namespace, "doc_ids": json.dumps(sorted(doc_ids))}
        found = self._db().execute(_FAILED_UPDATES, values).fetchall()
        return {source_uri: problem for _, source_uri, problem in found}

    def _find_refused_files(self, namespace: str) -> dict[str, str]:
        """source_uri to reason, of the files that the newest scan of their place could not receive.
        Files outside of folder sources are reported until the next ingest.
        """
        db = self._db()
        named = "SELECT name FROM sources WHERE namespace = ? AND kind = 'folder'"
        folders = tuple(f"{name}/" for (name,) in db.execute(named, (namespace,)).fetchall())
        refused: dict[str, str] = {}
        scanned: tuple[str, ...] = ()
        newest = True
        rows = db.execute(_REFUSED, {"namespace": namespace}).fetchall()
        for (_, places, retry_of), items in groupby(rows, itemgetter(0, 1, 2)):
            for *_, uri, problem in items:
                path = f"{uri}/"  # the uri may be a folder's
                scanned_again = uri is None or path.startswith(scanned)
                if not scanned_again and (newest or path.startswith(folders)):
                    refused[uri] = problem
            scanned += tuple(json.loads(places))
            newest = newest and retry_of is not None
            if not newest and set(folders) <= set(scanned):
                break
        return refused

    def _bind(self, published: Collection[str]) -> tuple[Any, Mapping[str, Any]]:
        """The connection, and the parameters of the `is_published` condition."""
        return self._db(), self.backend.bind_published(published)

    def _sql(self, sql: str) -> str:
        condition = self.backend.is_published
        return _IS_PUBLISHED.sub(lambda found: condition.format(version=found[1]), sql)

    def _find_words(self, namespace: str, words: Sequence[str]) -> list[str]:
        """The doc_ids whose title, file name and source_uri together contain all words."""
        rows = self._db().execute(
            "SELECT doc_id, title || ' ' || filename || ' ' || source_uri FROM documents WHERE"
            " namespace = ?",
            (namespace,),
        )
        return [doc_id for doc_id, text in rows if all(w in text.casefold() for w in words)]

    def _document_rows(
        self, namespace: str, doc_ids: set[str], bound: Mapping[str, Any]
    ) -> dict[str, DocumentRow]:
        values = {"namespace": namespace, "doc_ids": json.dumps(sorted(doc_ids)), **bound}
        rows = (DocumentRow(*row) for row in self._db().execute(self._sql(_ROWS), values))
        return {
            row.doc_id: row._replace(tags=list(dict.fromkeys(json.loads(str(row.tags)))))
            for row in rows
        }


def _conditions(wanted: DocumentFilter) -> tuple[str, dict[str, Any]]:
    """(SQL conditions on a document `d`, each after AND; their parameters)."""
    found: list[str] = []
    values: dict[str, Any] = {"since": wanted.since, "until": wanted.until}
    for key, sql in (
        ("source", "d.source IN {}"),
        ("status", f"{_STATUS} IN {{}}"),
        ("tags", f"EXISTS (SELECT 1 FROM json_each({_TAGS}) WHERE value IN {{}})"),
        ("categories", f"EXISTS (SELECT 1 FROM json_each({_CATEGORIES}) WHERE value IN {{}})"),
    ):
        if given := getattr(wanted, key):
            found.append(sql.format(f"(SELECT value FROM json_each(:{key}))"))
            values[key] = json.dumps(given)
    hidden = [f"'{status}'" for status in GONE if status not in wanted.status]
    if hidden and not wanted.gone:
        found.append(f"{_STATUS} NOT IN ({', '.join(hidden)})")
    if wanted.since:
        found.append("d.updated_at >= :since")
    if wanted.until:
        found.append("d.updated_at < :until || '~'")  # includes times with this prefix
    return "".join(f" AND {condition}" for condition in found), values
