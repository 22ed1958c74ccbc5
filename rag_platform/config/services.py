"""Sections of the settings about services: the object store, the HTTP server, the trace collector,
and the rate limits of model endpoints.
"""

from __future__ import annotations

from typing import Literal, Self

from pydantic import Field, model_validator

from rag_platform.config.query import Section


class BlobSettings(Section):
    """The object store shared by machines; `local`: none, only the data root."""

    provider: Literal["local", "s3"] = "local"
    bucket: str = ""
    # of every key, so that several data roots can share a bucket
    prefix: str = Field(default="", pattern=r"^([\w.-]+(/[\w.-]+)*)?$")
    # interval in which a server checks for publications
    poll_seconds: float = Field(default=5.0, gt=0)
    # a server without a heartbeat for so long counts as gone
    silent_seconds: float = Field(default=300.0, ge=30)
    # how long a hard deletion waits for the other servers
    acknowledge_seconds: float = Field(default=60.0, ge=0)

    @model_validator(mode="after")
    def _names_a_bucket(self) -> BlobSettings:
        if self.provider != "local" and not self.bucket:
            raise ValueError("blobs.bucket is empty; name the bucket (RAG_BLOBS__BUCKET)")
        return self


class OAuthSettings(Section):
    """The authorization server whose access tokens are accepted in addition to the server's own."""

    issuer: str = ""  # its URL, as in the claim `iss`; empty: none
    jwks_url: str = ""  # URL of its public keys
    # of scope names: with `rag:` the scope `rag:read` means read
    scope_prefix: str = ""

    @model_validator(mode="after")
    def _whole(self) -> Self:
        if bool(self.issuer) != bool(self.jwks_url):
            raise ValueError("issuer and jwks_url go together; give both or neither")
        return self


class HttpSettings(Section):
    """Where `rag serve --http` listens, who may use it, and limits on requests."""

    host: str = "127.0.0.1"
    port: int = Field(default=8765, ge=0, le=65535)
    # false: stateless, for several servers behind one address
    sessions: bool = True
    # URL at which clients reach the server through a proxy, e.g. https://rag.example.com
    public_url: str = Field(default="", pattern=r"^(https?://[^/\s]+)?$")
    # besides this machine's own names and public_url; a port is only compared if given
    allowed_hosts: tuple[str, ...] = ()
    allowed_origins: tuple[str, ...] = ()  # of pages in browsers, as https://app.example.com
    max_body_bytes: int = Field(default=4 * 1024 * 1024, ge=1024)
    # of all files of one upload; limits.max_bytes holds for each file
    max_upload_bytes: int = Field(default=1024 * 1024 * 1024, ge=1024)
    max_upload_files: int = Field(default=500, ge=1)
    # for the headers of a request, and again for its body
    request_seconds: float = Field(default=10.0, gt=0)
    requests_per_minute: int = Field(default=600, ge=1)  # per token
    # per address, without a valid token although one is needed
    refusals_per_minute: int = Field(default=60, ge=1)
    max_connections: int = Field(default=256, ge=1)
    max_sessions: int = Field(default=1000, ge=1)
    session_idle_seconds: float = Field(default=1800.0, gt=0)
    stop_seconds: int = Field(default=5, ge=0)  # for running requests when the server is stopped
    log_arguments: bool = False  # write the arguments of tools, including questions, to the log
    oauth: OAuthSettings = OAuthSettings()


class TraceRetention(Section):
    """How long `gc` keeps traces."""

    keep_days: float = Field(default=180.0, gt=0)
    max_bytes: int = Field(default=2 << 30, ge=1 << 20)  # of traces/; the oldest are removed first
    # for files in logs/*.jsonl whose content is in traces/
    log_days: float = Field(default=30.0, ge=1)


class OtlpSettings(Section):
    """The collector to which traces are sent."""

    endpoint: str = ""  # http://localhost:4318; empty: nothing is sent
    protocol: Literal["http", "grpc"] = "http"
    # an environment variable with headers such as access tokens, key=value,key=value
    headers_env: str = ""
    sample_rate: float = Field(default=1.0, ge=0, le=1)  # share of the traces
    content: bool = False  # include the text of questions and documents


class ObservabilitySettings(Section):
    """Retention and export of traces."""

    traces: TraceRetention = TraceRetention()
    otlp: OtlpSettings = OtlpSettings()


class ProviderLimit(Section):
    """The rate limit of a host, or of one model there; without numbers, calls are only counted, and
    all wait together when the endpoint asks for a pause.
    """

    # as in the model's URL, with its port if it has one: api.openai.com, localhost:11434
    host: str = Field(pattern=r"^[a-z0-9.:\[\]-]+$")
    model: str = ""  # empty: all models of the host together
    per_minute: int | None = Field(default=None, ge=1)  # requests, evenly spread
    at_once: int | None = Field(default=None, ge=1)  # concurrent calls

    @property
    def place(self) -> str:
        """The name under which calls are counted."""
        return f"{self.host} {self.model or '*'}"

    def covers(self, host: str, model: str) -> bool:
        """True if this limit applies to the model at the host."""
        return host == self.host and self.model in ("", model)


class TrafficSettings(Section):
    """Rate limits of remote endpoints, enforced across processes and machines that share
    a ledger.
    """

    # the first one that covers a call applies; without one a call is neither limited nor counted
    limits: tuple[ProviderLimit, ...] = ()
    # how long a call waits for its turn; an embedding child has two minutes for turn and call
    wait_seconds: float = Field(default=60.0, gt=0)
    # a process without a heartbeat for so long loses its slots
    lease_seconds: float = Field(default=30.0, ge=1)
