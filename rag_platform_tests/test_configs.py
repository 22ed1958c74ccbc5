"""Every file under defaults/ loads, and every provider that a strategy or the registry names can be
built or says what is missing.
"""

from __future__ import annotations

import importlib.util
import tomllib
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement

from rag_platform.config.profiles import index_profile, stage_profiles, strategy_config_id
from rag_platform.config.settings import Strategy, load_settings
from rag_platform.config.strategies import load_strategy
from rag_platform.errors import ConfigError, NotFoundError
from rag_platform.observability.logs import load_log_config
from rag_platform.registry import EXTRAS, PROVIDERS, make_provider, provider_class
from rag_platform.server.opening import open_library
from rag_platform_tests.conftest import TINY, write_config

CONFIG = Path(__file__).resolve().parent.parent / "rag_platform" / "defaults"
STRATEGIES = sorted(path.stem for path in (CONFIG / "strategies").glob("*.yaml"))
ENTRIES = [(kind, name) for kind, table in PROVIDERS.items() for name in table]
REQUIRED: dict[str, dict[str, object]] = {  # options without which an entry cannot be built
    "sentence_transformers": {"model": "intfloat/multilingual-e5-small"},
    "cross_encoder": {"model": "BAAI/bge-reranker-base"},
    "http": {"url": "http://127.0.0.1:9/v1/rerank"},
    "s3": {"bucket": "library"},
    "joined": {
        "parts": [
            {"provider": "hashing", "weight": 2.0},
            {"provider": "hashing", "options": {"dim": 64}},
        ]
    },
}
PACKAGES = {  # what each extra installs, as it is imported
    "models": {"sentence_transformers", "torch", "transformers", "huggingface_hub"},
    "ocr": {"rapidocr", "onnxruntime"},
    "tokens": {"bpe_openai"},
    "anthropic": {"anthropic"},
    "postgres": {"psycopg"},
    "s3": {"obstore"},
    "celery": {"dagster_celery", "dagster_postgres"},
    "k8s": {"dagster_k8s", "dagster_postgres"},
    "otlp": {
        "opentelemetry_sdk",
        "opentelemetry_exporter_otlp_proto_http",
        "opentelemetry_exporter_otlp_proto_grpc",
    },
    "eval": {"ragas", "deepeval", "instructor", "langchain_openai", "langchain_community"},
}


@pytest.fixture(autouse=True)
def shipped_config(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAG_CONFIG", str(CONFIG))
    for name in ("RAG_HOME", "RAG_STRATEGY", "RAG_NAMESPACE"):
        monkeypatch.delenv(name, raising=False)


def providers_of(strategy: Strategy) -> list[tuple[str, str, dict[str, object]]]:
    """(kind, name, options) of every provider a strategy names."""
    single = {
        "sectioner": strategy.sectioner,
        "chunker": strategy.chunker,
        "lexical_index": strategy.lexical,
        "dense_index": strategy.dense,
        "fusion": strategy.fusion,
        "reranker": strategy.reranker,
        "answerer": strategy.answerer,
    }
    named = [("loader", item.provider, item.options) for item in strategy.loading.loaders]
    named.append(("embedder", strategy.embedding.provider, strategy.embedding.options))
    return named + [(kind, item.provider, item.options) for kind, item in single.items()]


def test_settings_file_equals_the_defaults_it_documents() -> None:
    settings = load_settings()
    assert (
        settings.default_strategy,
        settings.default_namespace,
        settings.server.result_tokens,
    ) == ("default", "default", 8000)
    assert settings.home.is_absolute()


@pytest.mark.parametrize("name", STRATEGIES)
def test_strategy_loads_and_its_providers_build(name: str) -> None:
    strategy = load_strategy(load_settings(), name)
    assert strategy.name == name and strategy.description
    for kind, provider, options in providers_of(strategy):
        make_provider(kind, provider, options)
    assert set(stage_profiles(strategy)) >= {"facts", "chunks", "embeddings"}
    assert index_profile(strategy) and strategy_config_id(strategy).startswith("scfg_")


def test_strategies_have_different_identities() -> None:
    found = [strategy_config_id(load_strategy(load_settings(), name)) for name in STRATEGIES]
    assert len(set(found)) == len(found)


@pytest.mark.parametrize("path", sorted(CONFIG.rglob("*.yaml")), ids=lambda path: path.name)
def test_yaml_files_are_mappings(path: Path) -> None:
    found = yaml.safe_load(path.read_text(encoding="utf-8"))
    if path.name == "gates.yaml":  # comments alone, so that a gate can be written below them
        assert found is None
    else:
        assert isinstance(found, dict)


def test_logging_file_loads() -> None:
    assert load_log_config().level == "INFO"


@pytest.mark.parametrize(("kind", "name"), ENTRIES)
def test_registered_provider_builds_or_names_its_extra(kind: str, name: str) -> None:
    assert provider_class(kind, name).__doc__  # importing the module of a provider needs no extra
    try:
        make_provider(kind, name, REQUIRED.get(name))
    except ConfigError as error:
        extra = EXTRAS[name]
        assert f"needs the extra `{extra}`: pip install 'rag-platform[{extra}]'" in error.message
        # and it is not installed, indeed
        assert not all(importlib.util.find_spec(package) for package in PACKAGES[extra])


def test_extras_are_those_of_the_project() -> None:
    project = tomllib.loads((CONFIG.parents[1] / "pyproject.toml").read_text(encoding="utf-8"))[
        "project"
    ]
    offered = project["optional-dependencies"]
    named_elsewhere = {"tokens", "otlp", "postgres", "celery", "k8s"}  # no providers
    for_developers = {"dev", "docs", "hosts"}
    assert {*EXTRAS.values(), *named_elsewhere} == set(offered) - for_developers == set(PACKAGES)
    for extra, packages in PACKAGES.items():
        named = {Requirement(line).name.replace("-", "_") for line in offered[extra]}
        assert named == packages


def test_unknown_names_are_refused_with_the_known_ones() -> None:
    with pytest.raises(NotFoundError, match=r"unknown strategy 'nope'; known: default, .*fast"):
        load_strategy(load_settings(), "nope")
    with pytest.raises(ConfigError, match="unknown embedder 'nope'; known: e5_onnx, hashing"):
        make_provider("embedder", "nope")
    with pytest.raises(ConfigError, match="has no option 'colour'"):
        make_provider("fusion", "rrf", {"colour": "red"})


def test_a_server_that_may_ingest_refuses_options_that_ingestion_cannot_use(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = TINY.replace("chunk_overlap: 0", "colour: 1")
    monkeypatch.setenv("RAG_CONFIG", str(write_config(tmp_path / "config", broken=broken)))
    monkeypatch.setenv("RAG_HOME", str(tmp_path / "home"))
    settings = load_settings({"default_strategy": "broken"})
    open_library(settings).close()
    server = settings.server.model_copy(update={"allow": ("ingest",)})
    with pytest.raises(ConfigError, match=r"broken\.yaml:\d+: .* has no option 'colour'"):
        open_library(settings.model_copy(update={"server": server}))
