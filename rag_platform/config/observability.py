"""How long traces are kept, and where they go beside this machine."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from rag_platform.config.query import Section


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
