"""Traces reach a collector by OTLP with the names of the conventions, and nothing leaves the
machine where none is configured.
"""

from __future__ import annotations

import importlib.util
import json
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from rag_platform.config.services import OtlpSettings
from rag_platform.errors import ConfigError, ProviderError
from rag_platform.observability import otlp, tracing

pytest.importorskip("opentelemetry.sdk", reason="needs the extra `otlp`")

SECRET = "sk-abcdefghijklmnopqrstuvwxyz"


@pytest.fixture(autouse=True)
def no_sinks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tracing, "_sinks", [])


def export(settings: OtlpSettings) -> Any:
    """The finished spans of what is traced from now on."""
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

    kept = InMemorySpanExporter()
    tracing.export_to(otlp.SpanExport(settings, SimpleSpanProcessor(kept)).take)
    return kept


def ask(logs_dir: Path) -> str:
    """A trace as a question leaves it; its id."""
    with tracing.trace("query", logs_dir=logs_dir, namespace="default") as running:
        running.describe("scfg_1", {})
        running.set(request={"text": "Where is the key?"}, query_hash="ab")
        with tracing.span(
            "stage.retrieve_dense", provider_type="dense_index", provider_id="chroma", top_k=2
        ):
            listed = [{"chunk_id": "chk_1", "score": 0.5, "source": "dense"}]
            tracing.event("retrieval.candidates", {"source": "dense", "candidates": listed})
        with tracing.span("stage.generate"):
            call = {
                "provider": "openai",
                "model": "m-1",
                "model_version": "m-1-2026",
                "usage": {"input_tokens": 10, "output_tokens": 5},
                "cost": 0.25,
                "duration_ms": 2.0,
            }
            tracing.event("model.call", call)
        with pytest.raises(ProviderError), tracing.span("stage.rerank", note=f"key {SECRET}"):
            raise ProviderError("the reranker quotes the document", code="away")
    return running.trace_id


def test_spans_have_the_names_of_the_conventions(tmp_path: Path) -> None:
    kept = export(OtlpSettings(endpoint="x"))
    trace_id = ask(tmp_path)
    spans = {span.name: span for span in kept.get_finished_spans()}
    assert set(spans) == {
        "rag.query",
        "stage.retrieve_dense",
        "stage.generate",
        "chat m-1",
        "stage.rerank",
    }
    root = spans["rag.query"]
    assert f"{root.context.trace_id:032x}" == trace_id[4:] and root.parent is None
    assert {f"{span.context.trace_id:032x}" for span in spans.values()} == {trace_id[4:]}
    for name in ("stage.retrieve_dense", "stage.generate", "stage.rerank"):
        assert spans[name].parent.span_id == root.context.span_id
    assert spans["chat m-1"].parent.span_id == spans["stage.generate"].context.span_id
    retrieval = dict(spans["stage.retrieve_dense"].attributes)
    assert retrieval["gen_ai.operation.name"] == "retrieval"
    assert retrieval["gen_ai.data_source.id"] == "default"
    documents = json.loads(retrieval["gen_ai.retrieval.documents"])
    assert documents == [{"id": "chk_1", "score": 0.5}]
    assert retrieval["openinference.span.kind"] == "RETRIEVER"
    assert retrieval["retrieval.documents.0.document.id"] == "chk_1"
    assert retrieval["rag.provider_id"] == "dense_index.chroma" and retrieval["rag.top_k"] == 2
    call = dict(spans["chat m-1"].attributes)
    assert (call["gen_ai.provider.name"], call["gen_ai.request.model"]) == ("openai", "m-1")
    assert call["gen_ai.response.model"] == "m-1-2026"
    assert (call["gen_ai.usage.input_tokens"], call["gen_ai.usage.output_tokens"]) == (10, 5)
    length = spans["chat m-1"].end_time - spans["chat m-1"].start_time
    assert abs(length - 2_000_000) <= 1_000
    assert root.start_time <= spans["stage.generate"].start_time <= root.end_time
    assert spans["stage.rerank"].attributes["error.type"] == "away"
    assert not spans["stage.rerank"].status.is_ok and root.status.is_ok
    resource = dict(root.resource.attributes)
    assert resource["service.name"] == "rag-platform" and resource["service.version"]


@pytest.mark.parametrize("content", [False, True])
def test_words_are_sent_only_where_that_is_wanted_and_secrets_never(
    tmp_path: Path, content: bool
) -> None:
    kept = export(OtlpSettings(endpoint="x", content=content))
    ask(tmp_path)
    sent = "".join(span.to_json() for span in kept.get_finished_spans())
    assert ("Where is the key?" in sent, "quotes the document" in sent) == (content, content)
    assert SECRET not in sent and "[redacted]" in sent


def test_failures_are_sent_with_their_codes_but_without_their_words() -> None:
    refs = [{"ref_id": "img-1", "error_code": "too_large"}, {"asset_id": "ab", "error": "key.png"}]
    assert otlp.without_content({"failed": refs, "error": "no key.png", "reason": "key.png"}) == {
        "failed": [{"ref_id": "img-1", "error_code": "too_large"}, {"asset_id": "ab"}]
    }
    error = {"code": "away", "message": "key.png"}
    assert otlp.without_content({"failed": 2, "error": error}) == {
        "failed": 2, "error": {"code": "away"}
    }  # fmt: skip


def test_a_trace_that_follows_another_is_linked_to_it(tmp_path: Path) -> None:
    kept = export(OtlpSettings(endpoint="x"))
    parent = "trc_" + "ab" * 16
    with tracing.trace("ingestion", logs_dir=tmp_path, parent_trace_id=parent):
        pass
    (span,) = kept.get_finished_spans()
    assert f"{span.links[0].context.trace_id:032x}" == parent[4:]


def test_whole_traces_are_sampled(tmp_path: Path) -> None:
    kept = export(OtlpSettings(endpoint="x", sample_rate=0.5))
    for _ in range(60):
        with tracing.trace("query", logs_dir=tmp_path), tracing.span("stage.x"):
            pass
    spans = kept.get_finished_spans()
    ids = {f"{span.context.trace_id:032x}" for span in spans}
    assert len(spans) == 2 * len(ids) and 5 < len(ids) < 55
    assert all(int(item[:8], 16) < 0x8000_0000 for item in ids)


def test_a_receiver_that_fails_does_not_fail_the_work(tmp_path: Path) -> None:
    def refuse(header: object, line: object) -> None:
        raise OSError("no route to host")

    tracing.export_to(refuse)
    ask(tmp_path)
    assert len(list(tmp_path.glob("*.jsonl"))) == 1


def test_nothing_is_loaded_or_sent_unless_an_endpoint_is_named() -> None:
    otlp.setup(OtlpSettings())
    assert not tracing.is_exported()


def test_headers_are_read_from_the_variable_that_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    named = OtlpSettings(endpoint="x", headers_env="COLLECTOR_HEADERS")
    with pytest.raises(ConfigError, match="COLLECTOR_HEADERS, which holds no `key=value`"):
        otlp.headers_of(named)
    monkeypatch.setenv("COLLECTOR_HEADERS", "Authorization=Basic%20abc,x-team=docs")
    assert otlp.headers_of(named) == {"authorization": "Basic abc", "x-team": "docs"}


def test_a_missing_extra_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry.sdk.trace.export", None)
    with pytest.raises(ConfigError, match=r"pip install 'rag-platform\[otlp\]'"):
        otlp.setup(OtlpSettings(endpoint="http://localhost:4318"))


def test_an_endpoint_without_a_scheme_is_refused() -> None:
    with pytest.raises(ConfigError, match="is 'localhost:4318'; it must begin with http://"):
        otlp.setup(OtlpSettings(endpoint="localhost:4318"))


# --- over the wire ------------------------------------------------------------------------------


@contextmanager
def http_collector(requests: list[Any]) -> Iterator[str]:
    from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            if self.headers.get("Content-Encoding") == "gzip":
                import gzip

                body = gzip.decompress(body)
            requests.append(
                (self.path, dict(self.headers), ExportTraceServiceRequest.FromString(body))
            )
            self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *args: object) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


@contextmanager
def grpc_collector(requests: list[Any]) -> Iterator[str]:
    import grpc
    from opentelemetry.proto.collector.trace.v1 import trace_service_pb2, trace_service_pb2_grpc

    class Servicer(trace_service_pb2_grpc.TraceServiceServicer):
        def Export(self, request: Any, context: Any) -> Any:
            requests.append(("grpc", dict(context.invocation_metadata()), request))
            return trace_service_pb2.ExportTraceServiceResponse()

    server = grpc.server(ThreadPoolExecutor(2))
    trace_service_pb2_grpc.add_TraceServiceServicer_to_server(Servicer(), server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    yield f"http://127.0.0.1:{port}"
    server.stop(None)


@pytest.mark.integration
@pytest.mark.parametrize("protocol", ["http", "grpc"])
def test_a_collector_receives_the_spans(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, protocol: str
) -> None:
    exporter = f"opentelemetry.exporter.otlp.proto.{protocol}"
    if importlib.util.find_spec(exporter) is None:
        pytest.skip(f"needs {exporter}, of the extra `otlp`")
    monkeypatch.setenv("COLLECTOR_HEADERS", "x-team=docs")
    requests: list[Any] = []
    collector = http_collector if protocol == "http" else grpc_collector
    with collector(requests) as url:
        settings = OtlpSettings(endpoint=url, protocol=protocol, headers_env="COLLECTOR_HEADERS")
        processor = otlp._processor(settings)
        tracing.export_to(otlp.SpanExport(settings, processor).take)
        trace_id = ask(tmp_path)
        processor.shutdown()
    headers = {key.lower(): value for _, given, _ in requests for key, value in given.items()}
    assert headers["x-team"] == "docs"
    assert protocol == "grpc" or requests[0][0] == "/v1/traces"
    spans = [
        span
        for _, _, request in requests
        for resource in request.resource_spans
        for scope in resource.scope_spans
        for span in scope.spans
    ]
    assert {span.trace_id.hex() for span in spans} == {trace_id[4:]} and len(spans) == 5
