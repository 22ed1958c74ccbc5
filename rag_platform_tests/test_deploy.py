"""The files in deploy/ name settings that there are, and limit runs as the program itself does."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from rag_platform.assets import instance
from rag_platform.config.settings import JobPolicy, variables

DEPLOY = Path(__file__).resolve().parent.parent / "deploy"
MANIFESTS = list(yaml.safe_load_all((DEPLOY / "kubernetes/rag.yaml").read_text("utf-8")))
[KUBERNETES] = [
    manifest["data"]["dagster.yaml"]
    for manifest in MANIFESTS
    if manifest["metadata"]["name"] == "dagster-instance"
]
INSTANCES = {
    "celery": (DEPLOY / "celery/dagster/dagster.yaml").read_text("utf-8"),
    "kubernetes": KUBERNETES,
}
OWN = {"RAG_PASSWORD", "RAG_BROKER"}  # of the files themselves


@pytest.mark.parametrize("name", INSTANCES)
def test_runs_are_limited_as_the_program_limits_them(name: str) -> None:
    written: Any = yaml.safe_load(INSTANCES[name])
    assert written["concurrency"]["runs"] == instance._limits(JobPolicy(launcher="dagster"))
    assert written["telemetry"] == {"enabled": False}


def test_every_variable_is_a_setting() -> None:
    text = "".join(path.read_text("utf-8") for path in DEPLOY.rglob("*") if path.is_file())
    named = set(re.findall(r"\bRAG_[A-Z_]+\b", text))
    assert named - OWN - {"RAG_HOME"} - set(variables().values()) == set()


def test_no_service_sets_variables_of_the_pods() -> None:
    """One called rag-server would set RAG_SERVER_PORT."""
    pods = [it["spec"]["template"]["spec"] for it in MANIFESTS if "template" in it.get("spec", {})]
    assert [pod["enableServiceLinks"] for pod in pods] == [False, False]
    runs = yaml.safe_load(KUBERNETES)["run_launcher"]["config"]["run_k8s_config"]
    assert runs["pod_spec_config"]["enable_service_links"] is False


def test_every_secret_that_is_used_has_an_example() -> None:
    example = (DEPLOY / "kubernetes/secrets.example.yaml").read_text("utf-8")
    made = {secret["metadata"]["name"] for secret in yaml.safe_load_all(example)}
    text = (DEPLOY / "kubernetes/rag.yaml").read_text("utf-8")
    used = re.findall(r"(?:secretRef: \{name|secretName): ([\w-]+)", text)
    assert set(used) == made
