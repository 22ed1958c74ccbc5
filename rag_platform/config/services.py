"""Sections of the settings about services: the object store, the server over HTTP, the collector of
traces, and what model endpoints may be asked.
"""

from __future__ import annotations

from typing import Literal, Self

from pydantic import Field, model_validator

from rag_platform.config.query import Section


class BlobSettings(Section):
    """The object store beside the data root; `local` is none: the data root is the store."""

    provider: Literal["local", "s3"] = "local"
    bucket: str = ""
    # before every key, so that several libraries fit into one bucket
    prefix: str = Field(default="", pattern=r"^([\w.-]+(/[\w.-]+)*)?$")
    # between two looks of a server at what is published there
    poll_seconds: float = Field(default=5.0, gt=0)
    # a server that has not said for so long that it lives is called gone
    silent_seconds: float = Field(default=300.0, ge=30)
    # a hard deletion waits so long for the servers that live
    acknowledge_seconds: float = Field(default=60.0, ge=0)

    @model_validator(mode="after")
    def _names_a_bucket(self) -> BlobSettings:
        if self.provider != "local" and not self.bucket:
            raise ValueError("blobs.bucket is empty; name the bucket (RAG_BLOBS__BUCKET)")
        return self


class OAuthSettings(Section):
    """The authorization server whose access tokens are accepted beside the server's own."""

    issuer: str = ""  # its address, as the claim `iss` has it; empty: none
    jwks_url: str = ""  # where its public keys are
    # before the names of scopes: `rag:` takes `rag:read` for read
    scope_prefix: str = ""

    @model_validator(mode="after")
    def _whole(self) -> Self:
        if bool(self.issuer) != bool(self.jwks_url):
            raise ValueError("issuer and jwks_url go together; give both or neither")
        return self


class HttpSettings(Section):
    """Where `rag serve --http` listens, whom it answers, and what a request may cost."""

    host: str = "127.0.0.1"
    port: int = Field(default=8765, ge=0, le=65535)
    # false: every request stands alone, as several servers behind one address need it
    sessions: bool = True
    # how clients reach the server through a proxy, e.g. https://rag.example.com
    public_url: str = Field(default="", pattern=r"^(https?://[^/\s]+)?$")
    # beside this machine's own names and that of public_url; with a port only where it is given
    allowed_hosts: tuple[str, ...] = ()
    allowed_origins: tuple[str, ...] = ()  # of pages in browsers, as https://app.example.com
    max_body_bytes: int = Field(default=4 * 1024 * 1024, ge=1024)
    # of the files that one upload hands over; each file has limits.max_bytes besides
    max_upload_bytes: int = Field(default=1024 * 1024 * 1024, ge=1024)
    max_upload_files: int = Field(default=500, ge=1)
    # for the headers of a request, and again for its body
    request_seconds: float = Field(default=10.0, gt=0)
    requests_per_minute: int = Field(default=600, ge=1)  # of one token
    # of one address without a valid token where one is needed
    refusals_per_minute: int = Field(default=60, ge=1)
    max_connections: int = Field(default=256, ge=1)
    max_sessions: int = Field(default=1000, ge=1)
    session_idle_seconds: float = Field(default=1800.0, gt=0)
    stop_seconds: int = Field(
        default=5, ge=0
    )  # for what still runs when the server is told to stop
    log_arguments: bool = False  # what tools are called with, questions too, into the access log
    oauth: OAuthSettings = OAuthSettings()


class TraceRetention(Section):
    """What `gc` keeps of traces."""

    keep_days: float = Field(default=180.0, gt=0)
    max_bytes: int = Field(default=2 << 30, ge=1 << 20)  # of traces/; the oldest go first
    # of logs/*.jsonl, once all of a file is in traces/
    log_days: float = Field(default=30.0, ge=1)


class OtlpSettings(Section):
    """The collector that traces are sent to."""

    endpoint: str = ""  # http://localhost:4318; empty: nothing is sent
    protocol: Literal["http", "grpc"] = "http"
    # an environment variable with headers, key=value,key=value, as for access tokens
    headers_env: str = ""
    sample_rate: float = Field(default=1.0, ge=0, le=1)  # share of the traces
    content: bool = False  # the words of questions and documents too


class ObservabilitySettings(Section):
    """What is kept of what happened, and who else is told."""

    traces: TraceRetention = TraceRetention()
    otlp: OtlpSettings = OtlpSettings()


class ProviderLimit(Section):
    """A host, or one model there, and what it may be asked; without numbers its calls are counted,
    and left alone together when it asks for that.
    """

    # as in the model's address, with its port if it has one: api.openai.com, localhost:11434
    host: str = Field(pattern=r"^[a-z0-9.:\[\]-]+$")
    model: str = ""  # empty: all models of the host together
    per_minute: int | None = Field(default=None, ge=1)  # requests, evenly spread
    at_once: int | None = Field(default=None, ge=1)  # calls that run

    @property
    def place(self) -> str:
        """The name under which calls are counted."""
        return f"{self.host} {self.model or '*'}"

    def covers(self, host: str, model: str) -> bool:
        """True when calls of the model at the host count here."""
        return host == self.host and self.model in ("", model)


class TrafficSettings(Section):
    """Limits of outside endpoints that hold over processes, and over machines that share a
    ledger.
    """

    # the first one that covers a call counts; none: nothing is limited and nothing counted
    limits: tuple[ProviderLimit, ...] = ()
    # a call waits so long for its turn; a child that embeds is given two minutes for turn and call
    wait_seconds: float = Field(default=60.0, gt=0)
    # a process that has not said for so long that it lives gives back its places
    lease_seconds: float = Field(default=30.0, ge=1)
