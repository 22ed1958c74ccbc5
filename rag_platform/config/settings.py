"""Typed settings and strategies: their sections, and how settings are loaded.

Precedence: command line > environment (`RAG_...`) > `settings.yaml` > defaults. Vendors' API keys
are read from the environment by the providers that need them, and are not settings.
"""

from __future__ import annotations

import difflib
import hashlib
import json
import logging
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, TypeVar

import yaml
from pydantic import AfterValidator, Field, SecretStr, ValidationError, model_validator

from rag_platform.config.folders import config_file, default_home
from rag_platform.config.ingestion import (
    CleaningConfig,
    EmbeddingConfig,
    LoadingConfig,
    MediaConfig,
    MediaTextConfig,
    ViewConfig,
)
from rag_platform.config.query import (
    AnswererConfig,
    ContextConfig,
    ProviderConfig,
    QueryConfig,
    RerankConfig,
    RetrievalConfig,
    Section,
    SummaryConfig,
)
from rag_platform.config.services import (
    BlobSettings,
    HttpSettings,
    ObservabilitySettings,
    TrafficSettings,
)
from rag_platform.config.yaml_files import invalid_value, read_mapping
from rag_platform.errors import ConfigError, did_you_mean

log = logging.getLogger(__name__)

ModelT = TypeVar("ModelT", bound=Section)


class Limits(Section):
    """Limits on the size and cost of one document."""

    max_bytes: int = Field(default=200 * 1024 * 1024, gt=0)
    read_chunk_size_bytes: int = Field(default=8 * 1024 * 1024, gt=0)
    max_pages: int = Field(default=5000, gt=0)
    max_cells: int = Field(default=2_000_000, gt=0)  # of a workbook or a CSV file
    # unpacked size of a ZIP container over its own size
    max_archive_ratio: float = Field(default=200.0, gt=0)
    max_unpacked_bytes: int = Field(default=1024 * 1024 * 1024, gt=0)
    pdf_window_pages: int = Field(default=32, gt=0)
    pdf_memory_mb: int = Field(default=900, gt=0)
    page_seconds: float = Field(default=30.0, gt=0)
    file_seconds: float = Field(default=1800.0, gt=0)
    parse_seconds: float = Field(default=120.0, gt=0)  # for a file of a format without pages
    parse_memory_mb: int = Field(default=900, gt=0)
    max_query_chars: int = Field(default=4000, gt=0)


class FetchLimits(Section):
    """Limits on one download."""

    seconds: float = Field(default=30.0, gt=0)  # from the DNS lookup to the last byte
    max_bytes: int = Field(default=100 * 1024 * 1024, gt=0)  # after decompression
    redirects: int = Field(default=5, ge=0)
    # host:port that may be private or on a port other than 80 and 443; never link-local or metadata
    allow: tuple[str, ...] = ()


class ReleasePolicy(Section):
    """How many releases are kept."""

    keep: int = Field(default=5, ge=2)


class JobPolicy(Section):
    """Retries, timeouts and the launcher of jobs."""

    # failed runs after which a version is not retried automatically
    max_attempts: int = Field(default=3, ge=1)
    # before the first retry of a transient failure in a job, doubled each time
    backoff_seconds: float = Field(default=1.0, ge=0)
    # how long a launched job waits for another one that writes its namespace
    lock_seconds: float = Field(default=30.0, ge=0)
    # a job of another machine or container without a heartbeat for so long counts as lost
    silent_seconds: float = Field(default=120.0, ge=30)
    # a job to be started by Dagster counts as lost if no job had a heartbeat for so long
    start_seconds: float = Field(default=900.0, ge=30)
    # what starts the process of a job: the calling process, or Dagster's run launcher
    launcher: Literal["child", "dagster"] = "child"
    # versions per range, the part of a job that one Dagster run processes
    range_size: int = Field(default=500, ge=1)
    # concurrent ranges of one namespace, written to dagster.yaml
    ranges_at_once: int = Field(default=4, ge=1)


class TextKept(Section):
    """The shares of a file's words in its chunks below which a document gets a warning, and below
    which its check fails.
    """

    warn_below: float = Field(default=0.95, ge=0, le=1)
    fail_below: float = Field(default=0.5, ge=0, le=1)


class Retention(Section):
    """What `gc` keeps besides live versions and those in kept releases, and of Dagster's runs
    besides those with the newest results.
    """

    versions: int = Field(default=3, ge=0)  # of each document, newest first
    # since a version was received, or a document was soft-deleted or retired
    days: float = Field(default=30.0, ge=0)
    run_days: float = Field(default=30.0, ge=0)  # since a run of Dagster ended


class CacheSettings(Section):
    """Sizes of the read side's caches; keys include the release and the strategy, so a publication
    makes old entries unreachable.
    """

    query_vectors: int = Field(default=512, ge=0)
    retrievals: int = Field(default=256, ge=0)
    responses: int = Field(default=0, ge=0)  # 0: off
    seconds: float = Field(default=300.0, gt=0)  # lifetime of an entry


class LoadSettings(Section):
    """Load shedding: the numbers of running questions at which each step is taken, in
    this order.
    """

    skip_rerank_at: int = Field(default=16, ge=1)
    smaller_pool_at: int = Field(default=32, ge=1)
    extractive_at: int = Field(default=48, ge=1)
    refuse_at: int = Field(default=128, ge=1)
    # concurrent calls of one remote provider; others wait within their deadline
    provider_calls: int = Field(default=4, ge=1)


Change = Literal["ingest", "delete", "expect"]


class ServerSettings(Section):
    """How the MCP server presents itself."""

    name: str = "rag-platform"
    underscore_tool_names: bool = True
    # of one result, text and structured content together
    result_tokens: int = Field(default=8000, gt=0)
    query_tokens: int = Field(default=4000, gt=0)  # the same, of an answer
    # what assistants may change; nothing unless named here or by `rag serve --allow`
    allow: tuple[Change, ...] = ()
    # folders whose files assistants may ingest; none: only content and URLs
    ingest_roots: tuple[Path, ...] = ()
    # URL of the Dagster UI, for links to its runs; empty: no links
    dagster_url: str = Field(default="", pattern=r"^(https?://[^\s]+)?$")
    # that answer questions under load; 0: one per core, at most 4; 1: only the server
    processes: int = Field(default=0, ge=0)
    http: HttpSettings = HttpSettings()


def tool_name(settings: ServerSettings, name: str) -> str:
    """The public name of a tool, with an underscore, as many clients refuse dots, or with a dot."""
    return f"library_{name}" if settings.underscore_tool_names else f"library.{name}"


class CanarySettings(Section):
    """How many questions with a known answer are asked after a release is published."""

    # time that they may take; the first eight are always asked; 0: off
    seconds: float = Field(default=3.0, ge=0)
    documents: int = Field(default=60, ge=1)  # in a stable sample
    per_document: int = Field(default=2, ge=1, le=6)


class DriftSettings(Section):
    """When users' questions and answers count as drifted."""

    days: float = Field(default=7.0, gt=0)  # of a window
    windows: int = Field(default=8, ge=2)  # to look back for a stable one
    min_questions: int = Field(default=30, ge=10)  # of a window, to be compared
    # largest distance between two distributions of a figure (Kolmogorov-Smirnov); chosen by hand
    ks: float = Field(default=0.25, gt=0, le=1)
    # population stability index of shares; above 0.25 is a shift (Siddiqi, Credit Risk Scorecards)
    psi: float = Field(default=0.25, gt=0)
    # probability of such a difference by chance, for each signal
    significance: float = Field(default=0.001, gt=0, lt=1)


def _require_timezone(name: str) -> str:
    from zoneinfo import ZoneInfo  # late, as few commands need it

    try:
        return ZoneInfo(name).key
    except (KeyError, ValueError, OSError) as error:
        raise ValueError(
            f"{name!r} is no time zone; write one such as UTC or Asia/Shanghai"
        ) from error


class Settings(Section):
    """All configuration that does not change the content of an index."""

    schema_version: Literal[1] = 1
    home: Path = Field(default_factory=default_home)
    # postgresql://USER:PASSWORD@HOST:PORT/DATABASE; empty: the file ledger.sqlite of the data root
    ledger: SecretStr = SecretStr("")
    blobs: BlobSettings = BlobSettings()
    # used by calls that name no library, if it is set; else what is published
    default_namespace: str = "default"
    default_strategy: str = "default"
    # None: `strategies` in the config folder, then the shipped ones
    strategies_dir: Path | None = None
    limits: Limits = Limits()
    fetching: FetchLimits = FetchLimits()
    releases: ReleasePolicy = ReleasePolicy()
    retention: Retention = Retention()
    text_kept: TextKept = TextKept()
    jobs: JobPolicy = JobPolicy()
    server: ServerSettings = ServerSettings()
    caches: CacheSettings = CacheSettings()
    load: LoadSettings = LoadSettings()
    traffic: TrafficSettings = TrafficSettings()
    canaries: CanarySettings = CanarySettings()
    drift: DriftSettings = DriftSettings()
    observability: ObservabilitySettings = ObservabilitySettings()
    # the language model with which `rag eval run --judge llm` scores answers
    judge: ProviderConfig = ProviderConfig(provider="none")
    # owners of the assets in Dagster: an e-mail address or `team:NAME` each
    asset_owners: tuple[
        Annotated[str, Field(pattern=r"^(team:[A-Za-z0-9_-]+|[^@\s]+@[^@\s]+)$")], ...
    ] = ("team:library",)
    nightly_cron: str = "0 3 * * *"
    evaluation_cron: str = "0 5 * * *"
    gc_cron: str = "0 6 * * *"
    schedule_timezone: Annotated[str, AfterValidator(_require_timezone)] = "UTC"
    # a file of the inbox that changed within this time may still be written
    inbox_settle_seconds: float = Field(default=5.0, ge=0)
    # a sync that would retire more than this share of a source's documents stops and asks, as
    # `rclone bisync --max-delete` does at the same default; 1: only where nothing is left to read
    max_gone_share: float = Field(default=0.5, ge=0, le=1)
    # for embedding, building many small documents and proving releases; 0: one per core
    embedding_processes: int = Field(default=0, ge=0)


# how questions are asked, which the current file says; a release keeps the rest
QUERY_PART = ("query", "retrieval", "fusion", "reranker", "context", "answerer", "summary", "llm")


class Strategy(Section):
    """One way to ingest and to query; its canonical JSON is its identity."""

    RETIRED: ClassVar[Mapping[str, str]] = {
        "filters": "its `rules` had no effect; the rules of filters are those of the program"
    }

    name: str
    description: str = ""
    loading: LoadingConfig
    media: MediaConfig = MediaConfig()
    media_texts: MediaTextConfig = MediaTextConfig()
    cleaning: CleaningConfig = CleaningConfig()
    sectioner: ProviderConfig = ProviderConfig(provider="markdown_headings")
    chunker: ProviderConfig = ProviderConfig(provider="recursive")
    views: ViewConfig = ViewConfig()
    encoding: Literal["sparse_only", "dense_only", "hybrid"] = "hybrid"
    embedding: EmbeddingConfig
    lexical: ProviderConfig = ProviderConfig(provider="tantivy")
    dense: ProviderConfig = ProviderConfig(provider="chroma")
    query: QueryConfig = QueryConfig()
    retrieval: RetrievalConfig = RetrievalConfig()
    fusion: ProviderConfig = ProviderConfig(provider="min_max")
    reranker: RerankConfig = RerankConfig()
    context: ContextConfig = ContextConfig()
    answerer: AnswererConfig = AnswererConfig()
    summary: SummaryConfig = SummaryConfig()
    # for every part of the query path that names none of its own
    llm: ProviderConfig = ProviderConfig(provider="none")

    @model_validator(mode="after")
    def _weighs_each_part(self) -> Strategy:
        parts = self.embedding.options.get("parts") or ()
        given = self.retrieval
        for name, weights in (
            ("foreign_weights", given.foreign_weights),
            ("mixed_weights", given.mixed_weights),
        ):
            if weights and (len(weights) != len(parts) or min(weights) <= 0):
                raise ValueError(
                    f"retrieval.{name} is {list(weights)} and the embedder has {len(parts)}"
                    " parts; give one number above 0 for each part, or none"
                )
        return self

    @property
    def builds_dense(self) -> bool:
        """True when releases of this strategy hold a dense index."""
        return self.encoding != "sparse_only"

    @property
    def builds_lexical(self) -> bool:
        """True when releases of this strategy hold a lexical index."""
        return self.encoding != "dense_only"


# Canonical JSON: sorted keys, no spaces, non-ASCII kept; json.dumps creates an encoder every time.
canonical_json = json.JSONEncoder(sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode


def fingerprint(*parts: Any, length: int = 16) -> str:
    """The first `length` hex digits of the sha256 over the canonical JSON of the parts."""
    return hashlib.sha256(canonical_json(parts).encode()).hexdigest()[:length]


def load_settings(overrides: Mapping[str, Any] | None = None) -> Settings:
    """Settings from defaults, `settings.yaml`, the environment and `overrides`, in increasing
    precedence, with an absolute `home`.

    Environment: `RAG_` and the key in capitals, two underscores between a section and its key
    (`RAG_SERVER__PROCESSES=2`, `RAG_FETCHING__ALLOW='["intranet:8080"]'`), values as YAML;
    `RAG_STRATEGY` and `RAG_NAMESPACE` are short for the default ones. Raises ConfigError naming the
    file or the variable, and the key; also if the data root cannot be a folder.
    """
    _require_config_dir()
    path = config_file("settings.yaml")
    values = read_mapping(path)
    origins = _read_environment(values)
    values.update({key: value for key, value in (overrides or {}).items() if value is not None})
    settings = validate(Settings, values, path, origins)
    strategies = settings.strategies_dir
    return settings.model_copy(
        update={
            "home": _as_folder(settings.home.expanduser().resolve()),
            "strategies_dir": strategies and strategies.expanduser().resolve(),
        }
    )


def _require_config_dir() -> None:
    """Raise ConfigError if `RAG_CONFIG` is not a folder."""
    given = os.environ.get("RAG_CONFIG")
    if given and not Path(given).is_dir():
        raise ConfigError(
            f"RAG_CONFIG names {given}, which is no folder; `rag init {given}` writes one, or unset"
            " it"
        )


def _as_folder(home: Path) -> Path:
    """The data root. Raises ConfigError if it or a parent is a file."""
    found = next(place for place in (home, *home.parents) if os.path.exists(place))
    if not found.is_dir():
        raise ConfigError(
            f"the data root {home} cannot be a folder: {found} is a file; name a folder with"
            " RAG_HOME, or with `home` in settings.yaml"
        )
    return home


def with_http(settings: Settings, changes: Mapping[str, Any]) -> Settings:
    """The settings with other values for the server over HTTP; None keeps a value."""
    given = {key: value for key, value in changes.items() if value is not None}
    http = settings.server.http.model_copy(update=given)
    return settings.model_copy(update={"server": settings.server.model_copy(update={"http": http})})


SHORT = {"default_strategy": "RAG_STRATEGY", "default_namespace": "RAG_NAMESPACE"}
# read elsewhere
_OTHER_VARIABLES = (
    "RAG_CONFIG",
    "RAG_ENV",
    "RAG_EXPORT_KEY",
    "RAG_GIT_SHA",
    "RAG_LANG",
    "RAG_LOG_LEVEL",
)
_ALIKE = 0.85  # of 1: RAG_HOEM and RAG_RETENTION_DAYS are warned about, RAG_PASSWORD is not
# values that are taken from the environment verbatim; all others are parsed as YAML
_PLAIN_TEXT = {
    "home",
    "ledger",
    "strategies_dir",
    "default_namespace",
    "default_strategy",
    "nightly_cron",
    "evaluation_cron",
    "gc_cron",
    "schedule_timezone",
    "server.name",
    "blobs.bucket",
    "blobs.prefix",
}


def variables(model: type[Section] = Settings, above: str = "") -> dict[str, str]:
    """Dotted key of the settings to its environment variable."""
    found: dict[str, str] = {}
    for name, info in model.model_fields.items():
        key, kind = f"{above}{name}", info.annotation
        if isinstance(kind, type) and issubclass(kind, Section):
            found |= variables(kind, f"{key}.")
        else:
            found[key] = f"RAG_{key.replace('.', '__').upper()}"
    return found


def find_unknown_variables() -> dict[str, str]:
    """Environment variables that name no setting, each with a warning: those of the form
    `RAG_SECTION__KEY`, and those that look like one that is known.
    """
    known = {*variables().values(), *SHORT.values(), *_OTHER_VARIABLES}
    flat = {name.replace("__", "_"): name for name in known}
    found = {}
    for name, value in sorted(os.environ.items()):
        # Kubernetes describes a service called rag-server in RAG_SERVER_PORT=tcp://10.0.0.1:80
        of_service = value.startswith(("tcp://", "udp://", "sctp://"))
        if not name.startswith("RAG_") or name in known or not value.strip() or of_service:
            continue
        near = difflib.get_close_matches(name.replace("__", "_"), flat, n=1, cutoff=_ALIKE)
        if near or "__" in name:
            meant = f"; did you mean {flat[near[0]]!r}?" if near else did_you_mean(name, known)
            found[name] = f"the environment variable {name} names no setting and is ignored{meant}"
    return found


def _read_environment(values: dict[str, Any]) -> dict[str, str]:
    """Put the values of the environment into `values`. Returns the changed keys, each with its
    variable. Raises ConfigError for invalid YAML.
    """
    given: dict[str, str] = {}
    for key, variable in variables().items():
        variable = variable if os.environ.get(variable) else SHORT.get(key, variable)
        # empty counts as unset: an empty path would mean the current folder
        if not (text := os.environ.get(variable, "")).strip():
            continue
        try:
            value = text if key in _PLAIN_TEXT else yaml.safe_load(text)
        except yaml.YAMLError as error:
            raise ConfigError(
                f"the environment variable {variable} = {text!r} is no YAML: {error}"
            ) from error
        *sections, last = key.split(".")
        section = values
        for name in sections:
            below = section.get(name)
            section[name] = section = dict(below) if isinstance(below, dict) else {}
        section[last] = value
        given[key] = variable
    return given


def validate(
    model: type[ModelT],
    values: Mapping[str, Any],
    path: Path,
    variables: Mapping[str, str] | None = None,
) -> ModelT:
    """The validated values. Raises ConfigError with the variable or the file, the key and the
    value.
    """
    for key, why in _find_retired(model, values):
        log.warning("%s: %s is ignored (%s); remove it", path, key, why)
    try:
        return model.model_validate(values)
    except ValidationError as error:
        raise invalid_value(error, path, model=model, variables=variables) from error


def _find_retired(
    model: type[Section], values: Mapping[str, Any], where: str = ""
) -> Iterator[tuple[str, str]]:
    """(key, reason) for the retired keys in a file of an older version."""
    for key, value in values.items():
        if key in model.RETIRED:
            yield f"{where}{key}", model.RETIRED[key]
        kind = model.model_fields[key].annotation if key in model.model_fields else None
        if isinstance(value, Mapping) and isinstance(kind, type) and issubclass(kind, Section):
            yield from _find_retired(kind, value, f"{where}{key}.")
