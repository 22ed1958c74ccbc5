"""Settings of the server over HTTP."""

from __future__ import annotations

from typing import Self

from pydantic import Field, model_validator

from rag_platform.config.query import Section


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
