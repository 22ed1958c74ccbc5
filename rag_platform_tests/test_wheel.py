"""The wheel holds all that a run needs, and works in an empty folder with an empty HOME."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.integration

REPOSITORY = Path(__file__).resolve().parent.parent
_BUILD = "from setuptools import build_meta; build_meta.build_wheel('out')"


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The content of the wheel, as pip would put it into site-packages."""
    source = tmp_path_factory.mktemp("source")
    for name in ("pyproject.toml", "README.md", "LICENSE", "NOTICE", "THIRD_PARTY_NOTICES.md"):
        shutil.copy(REPOSITORY / name, source)
    shutil.copytree(
        REPOSITORY / "rag_platform",
        source / "rag_platform",
        ignore=shutil.ignore_patterns("__pycache__"),
    )
    subprocess.run([sys.executable, "-c", _BUILD], cwd=source, check=True, capture_output=True)
    folder = tmp_path_factory.mktemp("site")
    (wheel,) = (source / "out").glob("*.whl")
    with zipfile.ZipFile(wheel) as packed:
        packed.extractall(folder)
    return folder


def rag(installed: Path, place: Path, *arguments: str) -> dict[str, Any]:
    """The envelope of a command of that installation, run in a folder of `place` with another
    one as HOME.
    """
    for name in ("work", "home"):
        (place / name).mkdir(exist_ok=True)
    kept = {key: value for key, value in os.environ.items() if key in ("PATH", "LANG", "TMPDIR")}
    ended = subprocess.run(
        [sys.executable, "-m", "rag_platform.cli.main", *arguments, "--json"],
        capture_output=True,
        text=True,
        timeout=240,
        cwd=place / "work",
        env={**kept, "HOME": str(place / "home"), "PYTHONPATH": str(installed)},
    )
    assert ended.stdout, ended.stderr
    answer: dict[str, Any] = json.loads(ended.stdout)
    return answer


def test_the_wheel_holds_config_samples_types_and_licences(installed: Path) -> None:
    files = {path.relative_to(installed).as_posix() for path in installed.rglob("*")}
    for folder in ("defaults", "samples"):
        for path in (REPOSITORY / "rag_platform" / folder).rglob("*"):
            assert path.relative_to(REPOSITORY).as_posix() in files
    assert "rag_platform/py.typed" in files
    (about,) = installed.glob("*.dist-info")
    licences = {path.name for path in (about / "licenses").iterdir()}
    assert licences == {"LICENSE", "NOTICE", "THIRD_PARTY_NOTICES.md"}
    assert not any(name.startswith(("rag_platform_tests", "bench")) for name in files)


def test_an_empty_folder_is_enough_to_ingest_and_ask(installed: Path, tmp_path: Path) -> None:
    (tmp_path / "keys.md").write_text("# Keys\n\nRotate the keys with `vault roll`.\n", "utf-8")
    ingested = rag(installed, tmp_path, "ingest", str(tmp_path / "keys.md"), "--strategy", "fast")
    assert ingested["ok"] and ingested["data"]["new"] == 1
    answer = rag(installed, tmp_path, "query", "How are keys rotated?", "--mode", "sparse")
    assert "vault roll" in answer["data"]["answer_markdown"]
    assert (tmp_path / "home/.local/share/rag-platform/ledger.sqlite").is_file()
    assert list((tmp_path / "work").iterdir()) == []
