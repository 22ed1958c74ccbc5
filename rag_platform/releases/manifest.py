"""A release's manifest. It is written last, so a directory without one is unfinished.

Entries about single versions are in a file of their own, which lists of releases need not read.
Releases share that file; a release's differences from it are in a second file. Releases of earlier
programs have all of it in the manifest.
"""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson

from rag_platform.config.gates import GateConfig, dataset_path, read_gates
from rag_platform.config.settings import QUERY_PART, Strategy, fingerprint
from rag_platform.errors import (
    IntegrityError,
    NotFoundError,
    SchemaVersionError,
    unknown_release,
)
from rag_platform.ir import EmbedderInfo, Json
from rag_platform.registry import make_provider
from rag_platform.storage.records import from_json, parse_json
from rag_platform.storage.store import sha256_file, write_bytes

# 2 has the versions in a file of their own, 3 may have a file of changes to it as well
SCHEMA_VERSION = 3
READABLE = (1, 2, 3)
FILENAME = "manifest.json"
VERSIONS = "versions.json"
VERSION_CHANGES = "versions-changes.json"
VERSION_FIELDS = ("versions", "editions", "outputs", "given")  # fields of Manifest
VersionEntries = dict[str, dict[str, Any]]  # one of VERSION_FIELDS to its values by version_id
QUALITY_GATE = "quality_gate"  # the check by evaluation questions; only it can be overridden
# begins the details of a gate that failed because a model or service was away: it is asked again
NOT_JUDGED = "could not be judged: "
NOT_ASKED = "not asked: "  # begins the details of a gate that a deletion alone does not need
FAILED_GATES = "failed_gates"  # its figure; not 0 in what was published nevertheless


@dataclass(frozen=True, slots=True)
class CheckResult:
    """The outcome of one check of a candidate, with the numbers behind it."""

    name: str
    passed: bool
    details: str
    # comparable from release to release; empty in releases of earlier programs
    figures: Mapping[str, float] = field(default_factory=dict)

    @property
    def is_overruled(self) -> bool:
        """True for a gate that failed a release which is never held back: it deletes, or takes back
        edits by hand.
        """
        return self.passed and bool(self.figures.get(FAILED_GATES))


@dataclass(frozen=True, slots=True)
class Manifest:
    """A release's content, origin and proofs."""

    release_id: str
    namespace: str
    parent: str | None
    created_at: str
    strategy: str
    strategy_config_id: str
    strategy_config: Json  # the whole strategy, so that a release can be opened without its file
    index_profile: str
    profiles: Mapping[str, str]
    encoding: str
    embedder: EmbedderInfo | None  # None when the release holds no vectors
    versions: Mapping[str, int] = field(default_factory=dict)  # version_id: number of chunks
    counts: Json = field(default_factory=dict)
    files: Mapping[str, str] = field(default_factory=dict)  # relative path: sha256
    delta: Json = field(default_factory=dict)
    checks: tuple[CheckResult, ...] = ()
    evaluation_run: str | None = None
    gates: str = ""  # `gates_id` of those that judged it; releases of earlier programs lack it
    # version_id: edition, of the versions with edits by hand
    editions: Mapping[str, str] = field(default_factory=dict)
    # version_id: fingerprint of its stored outputs; older releases lack it
    outputs: Mapping[str, str] = field(default_factory=dict)
    # version_id: fingerprint of its row and its document's; older ones lack it
    given: Mapping[str, str] = field(default_factory=dict)
    # sequence of the newest deletion when the live versions were read; readers hide later ones
    deletions: int = 0
    schema_version: int = SCHEMA_VERSION

    @property
    def contents(self) -> dict[str, str]:
        """version_id to the edition that the release holds, "" for an unedited version."""
        return {version_id: self.editions.get(version_id, "") for version_id in self.versions}

    @property
    def failures(self) -> list[CheckResult]:
        """The checks that did not pass; a release with any is never published."""
        return [check for check in self.checks if not check.passed]

    @property
    def failed_gates(self) -> str:
        """What its gates say against a release that was published all the same."""
        return "\n".join(it.details for it in self.checks if it.is_overruled)

    @property
    def may_pass_later(self) -> bool:
        """True if all that failed is a gate whose models could not be reached."""
        return bool(self.failures) and all(
            check.name == QUALITY_GATE and check.details.startswith(NOT_JUDGED)
            for check in self.failures
        )

    @property
    def only_deletes(self) -> bool:
        """True if no gate was asked, as it is its parent without what was deleted."""
        return bool(self.parent) and any(
            check.name == QUALITY_GATE and check.details.startswith(NOT_ASKED)
            for check in self.checks
        )

    @property
    def is_judged(self) -> bool:
        """True when a quality gate recorded a result, be it that it asked no questions."""
        return any(check.name == QUALITY_GATE for check in self.checks)


def lacks_verdict(manifest: Manifest, strategy: Strategy | None = None) -> bool:
    """True when the namespace has gates, and the release was not judged by them as they are, or
    not as the `strategy` asks now.
    """
    gates = read_gates().get(manifest.namespace)
    if not gates:
        return False
    if strategy is not None:
        judged = Strategy.model_validate(manifest.strategy_config)
        if any(getattr(judged, part) != getattr(strategy, part) for part in QUERY_PART):
            return True
    if not manifest.gates:
        return not manifest.is_judged
    # programs before this one did not record the datasets
    parts = zip(manifest.gates.split("."), gates_id(gates).split("."), strict=False)
    return any(before != now for before, now in parts)


def gates_id(gates: Sequence[GateConfig]) -> str:
    """A fingerprint of gates as gates.yaml has them: settings that later programs add change it
    only where they are used. After a dot, if all their datasets are files, one of these.
    """
    own = fingerprint(*(gate.model_dump(mode="json", exclude_defaults=True) for gate in gates))
    paths = [dataset_path(gate.dataset) for gate in gates]
    if not (paths and all(path.is_file() for path in paths)):
        return own
    return f"{own}.{fingerprint(*(sha256_file(path) for path in paths))}"


def embedder_info(strategy: Strategy) -> EmbedderInfo | None:
    """The fingerprint of the strategy's embedder, None without vectors. Loads no weights."""
    if not strategy.builds_dense:
        return None
    info: EmbedderInfo = make_provider(
        "embedder", strategy.embedding.provider, strategy.embedding.options
    ).info()
    return info


def write_manifest(directory: Path, manifest: Manifest) -> None:
    """Write a release directory's manifest atomically, without the per-version fields when `files`
    names the file of versions, which `write_versions` wrote.
    """
    omitted = VERSION_FIELDS if VERSIONS in manifest.files else ()
    data = {
        field.name: getattr(manifest, field.name)
        for field in dataclasses.fields(manifest)
        if field.name not in omitted
    }
    options = orjson.OPT_INDENT_2 | orjson.OPT_SORT_KEYS | orjson.OPT_APPEND_NEWLINE
    write_bytes(directory / FILENAME, orjson.dumps(data, option=options))


@dataclass(frozen=True, slots=True)
class VersionChanges:
    """How a release differs from the shared file of versions: versions in `removed` are left out,
    `entries` replace or add to those of the file.
    """

    entries: VersionEntries = field(default_factory=lambda: {name: {} for name in VERSION_FIELDS})
    removed: frozenset[str] = frozenset()

    def __len__(self) -> int:
        return len(self.entries["given"].keys() | self.removed)

    def then(self, later: VersionChanges) -> VersionChanges:
        """These changes with later ones applied."""
        entries = {name: _apply(dict(self.entries[name]), name, later) for name in VERSION_FIELDS}
        return VersionChanges(entries, self.removed | later.removed)

    def apply_to(self, base: VersionEntries) -> VersionEntries:
        """The entries of every version. Changes `base` in place."""
        return {name: _apply(known, name, self) for name, known in base.items()}


def _apply(known: dict[str, Any], name: str, changes: VersionChanges) -> dict[str, Any]:
    for version_id in changes.removed:
        known.pop(version_id, None)
    return known | changes.entries[name]


def write_versions(path: Path, entries: VersionEntries, removed: Collection[str] = ()) -> str:
    """Write per-version entries, one line a field. Returns the file's sha256."""
    ids = sorted(set[str]().union(*entries.values()))
    lines = [
        {"schema_version": SCHEMA_VERSION, "fields": VERSION_FIELDS, "gone": sorted(removed)},
        ids,
        *(list(map(entries[name].get, ids)) for name in VERSION_FIELDS),
    ]
    data = b"".join(orjson.dumps(line, option=orjson.OPT_APPEND_NEWLINE) for line in lines)
    write_bytes(path, data)
    return hashlib.sha256(data).hexdigest()


def read_version_changes(
    directory: Path, fields: Collection[str] = VERSION_FIELDS
) -> VersionChanges:
    """How a release differs from the file of versions that it shares with other releases."""
    path = directory / VERSION_CHANGES
    return VersionChanges(*_read_part(path, fields)) if path.is_file() else VersionChanges()


def _read_versions(directory: Path, fields: Collection[str]) -> VersionEntries:
    """The per-version entries of a release; fields other than `fields` stay empty."""
    path = directory / VERSIONS
    if not fields:
        path.stat()
        return {}
    return read_version_changes(directory, fields).apply_to(_read_part(path, fields)[0])


@contextmanager
def _reporting_damage(path: Path) -> Iterator[None]:
    """Turn errors of parsing a release's file into IntegrityError `manifest_damaged`."""
    try:
        yield
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise IntegrityError(
            f"{path.name} of release {path.parent.name} cannot be read ({error}); build another"
            f" with `rag rebuild --full --namespace {path.parent.parent.name}`",
            code="manifest_damaged",
        ) from error


def _read_part(path: Path, fields: Collection[str]) -> tuple[VersionEntries, frozenset[str]]:
    """(entries, removed version_ids) of one file of versions."""
    with _reporting_damage(path):
        # one line a field, so that reading one field parses no other
        first, ids, *values = path.read_bytes().splitlines()
        head, version_ids = orjson.loads(first), orjson.loads(ids)
        lines = dict(zip(head["fields"], values, strict=True))
        entries: VersionEntries = {name: {} for name in VERSION_FIELDS}
        for name in fields:
            pairs = zip(version_ids, orjson.loads(lines[name]), strict=True)
            entries[name] = {version_id: value for version_id, value in pairs if value is not None}
        return entries, frozenset(head.get("gone", ()))


def read_manifest(directory: Path, fields: Collection[str] = VERSION_FIELDS) -> Manifest:
    """The manifest of a release directory, with only these per-version `fields`. Raises
    NotFoundError, SchemaVersionError, IntegrityError `manifest_damaged`.
    """
    data = _read(directory)
    try:
        entries = _read_versions(directory, fields) if VERSIONS in data["files"] else {}
    except FileNotFoundError:
        raise NotFoundError(
            f"release {directory.name} has lost {VERSIONS}; build another with `rag rebuild"
            f" --namespace {directory.parent.name}`",
            code="unknown_release",
        ) from None
    data = {**entries, **data, **{name: {} for name in VERSION_FIELDS if name not in fields}}
    data.pop("rows", None)  # in releases of earlier programs
    return from_json(Manifest, data)


def new_outputs(directory: Path, before: Path | None) -> list[str]:
    """The version_ids whose stored outputs are not those that `before` was built from."""
    fields = ("outputs",)
    if before is None:
        return list(read_manifest(directory, fields).outputs)
    shared = read_head(directory).files.get(VERSIONS)
    if shared is not None and shared == read_head(before).files.get(VERSIONS):
        current, known = (
            read_version_changes(path, fields).entries["outputs"] for path in (directory, before)
        )
    else:
        current, known = (dict(read_manifest(path, fields).outputs) for path in (directory, before))
    return [version_id for version_id, found in current.items() if known.get(version_id) != found]


def read_head(directory: Path) -> Manifest:
    """The manifest without per-version fields. Raises as `read_manifest`."""
    return read_manifest(directory, ())


def _read(directory: Path) -> Json:
    try:
        with _reporting_damage(directory / FILENAME):
            data: Json = dict(parse_json((directory / FILENAME).read_bytes()))
    except (FileNotFoundError, NotADirectoryError):
        raise unknown_release(directory.name, directory.parent.name) from None
    if data.get("schema_version") not in READABLE:
        raise SchemaVersionError(
            f"release {directory.name} has schema {data.get('schema_version')}, this program reads"
            f" {', '.join(map(str, READABLE))}; upgrade rag-platform, or rebuild the release with"
            f" `rag rebuild --namespace {directory.parent.name}`"
        )
    return data
