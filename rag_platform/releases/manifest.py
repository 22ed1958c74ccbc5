"""What a release says about itself: written last, so a directory without one is unfinished."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import orjson

from rag_platform.config.settings import Strategy
from rag_platform.errors import NotFoundError, SchemaVersionError
from rag_platform.ir import EmbedderInfo, EmbedderPart, Json
from rag_platform.registry import build
from rag_platform.storage.records import from_json
from rag_platform.storage.store import atomic_path, read_json

SCHEMA_VERSION = 1
FILENAME = "manifest.json"
QUALITY_GATE = "quality_gate"  # the check that questions make; it alone can be overridden


@dataclass(frozen=True, slots=True)
class CheckResult:
    """The outcome of one check over a candidate, with the numbers behind it."""

    name: str
    passed: bool
    details: str
    # what can be followed from release to release; releases built before have none
    figures: Mapping[str, float] = field(default_factory=dict)


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
    versions: Mapping[str, int]  # version_id: number of chunks
    counts: Json = field(default_factory=dict)
    files: Mapping[str, str] = field(default_factory=dict)  # relative path: sha256
    delta: Json = field(default_factory=dict)
    checks: tuple[CheckResult, ...] = ()
    evaluation_run: str | None = None
    # version_id: edition, of the versions with edits by hand
    editions: Mapping[str, str] = field(default_factory=dict)
    # version_id: fingerprint of its stored outputs; older releases lack it
    outputs: Mapping[str, str] = field(default_factory=dict)
    # version_id: fingerprint of its row and its document's; older ones lack it
    given: Mapping[str, str] = field(default_factory=dict)
    # version_id: fingerprint of the ledger's rows that it was built from; likewise
    rows: Mapping[str, str] = field(default_factory=dict)
    # sequence of the newest deletion when the live versions were read; later ones are hidden by
    # readers
    deletions: int = 0
    schema_version: int = SCHEMA_VERSION

    @property
    def contents(self) -> dict[str, str]:
        """version_id to the edition that the release holds, empty for none."""
        return {version_id: self.editions.get(version_id, "") for version_id in self.versions}

    @property
    def failures(self) -> list[CheckResult]:
        """The checks that did not pass; a release with any is never published."""
        return [check for check in self.checks if not check.passed]


def embedder_info(strategy: Strategy) -> EmbedderInfo | None:
    """The fingerprint of the strategy's embedder, None without vectors; loads no weights."""
    if not strategy.builds_dense:
        return None
    info: EmbedderInfo = build(
        "embedder", strategy.embedding.provider, strategy.embedding.options
    ).info()
    return info


def write_manifest(directory: Path, manifest: Manifest) -> None:
    """Write the manifest of a release directory atomically."""
    with atomic_path(directory / FILENAME) as temporary:
        options = orjson.OPT_INDENT_2 | orjson.OPT_SORT_KEYS | orjson.OPT_APPEND_NEWLINE
        temporary.write_bytes(orjson.dumps(manifest, option=options))


def read_manifest(directory: Path) -> Manifest:
    """The manifest of a release directory. Raises NotFoundError, SchemaVersionError."""
    try:
        data = read_json(directory / FILENAME)
    except (FileNotFoundError, NotADirectoryError):
        raise NotFoundError(
            f"no release {directory.name!r}; see `rag releases list`", code="unknown_release"
        ) from None
    if data.get("schema_version") != SCHEMA_VERSION:
        raise SchemaVersionError(
            f"release {directory.name} has schema {data.get('schema_version')}, this program reads"
            f" {SCHEMA_VERSION}; upgrade rag-platform, or rebuild the release with `rag rebuild`"
        )
    embedder = data.pop("embedder")
    checks = data.pop("checks")
    return Manifest(
        **data,
        embedder=None if embedder is None else _embedder(embedder),
        checks=tuple(from_json(CheckResult, check) for check in checks),
    )


def _embedder(data: Json) -> EmbedderInfo:
    parts = tuple(from_json(EmbedderPart, part) for part in data.pop("parts", ()))
    return dataclasses.replace(from_json(EmbedderInfo, data), parts=parts)
