"""Benchmarks start from any folder, build what they are asked for, say what that is, and refuse a
kept library that is another one.
"""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

BENCH = Path(__file__).resolve().parent.parent / "bench"

pytestmark = pytest.mark.integration


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The folder in which bench/release.py left a library of 150 chunks, and what it printed."""
    folder = tmp_path_factory.mktemp("kept")
    return folder, run("release.py", folder, "--chunks", "150", "--edits", "1")


def run(script: str, folder: Path, *options: str) -> Any:
    """A benchmark that keeps its library in `folder`."""
    return subprocess.run(
        [sys.executable, str(BENCH / script), *options, "--keep", str(folder)],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        env={**os.environ, "TMPDIR": str(folder)},
    )


def manifests(folder: Path) -> list[Path]:
    """The manifests of every release of the kept library, oldest first."""
    releases = folder / "150" / "home" / "releases" / "bench"
    return sorted(
        releases.glob("*/manifest.json"),
        key=lambda path: json.loads(path.read_text(encoding="utf-8"))["created_at"],
    )


def test_as_many_chunks_are_built_as_were_asked_for_and_said(kept: Any) -> None:
    folder, ended = kept
    assert ended.returncode == 0, ended.stdout + ended.stderr
    counts = json.loads(manifests(folder)[0].read_text(encoding="utf-8"))["counts"]
    assert 140 <= counts["chunks"] <= 160
    built = next(line for line in ended.stdout.splitlines() if "built:" in line)
    assert (
        f"{counts['documents']} documents of " in built
        and f" {counts['chunks']} chunks, {counts['chunks']} vectors of 384 numbers" in built
    )
    assert (
        "strategy bench (scfg_" in built
        and "embedder hashing" in built
        and "chunks of 1600" in built
    )


@pytest.mark.parametrize("field", ["size", "strategy", "code"])
def test_a_kept_library_of_another_size_strategy_or_code_is_refused(kept: Any, field: str) -> None:
    folder, _ = kept
    asked, originals = "150", {path: path.read_text(encoding="utf-8") for path in manifests(folder)}
    values = {path: json.loads(text) for path, text in originals.items()}
    published = (
        (folder / "150" / "home" / "releases" / "bench" / "CURRENT")
        .read_text(encoding="utf-8")
        .strip()
    )
    chunks = next(
        value["counts"]["chunks"] for path, value in values.items() if path.parent.name == published
    )
    told = {
        "size": f"300 chunks were asked for and {chunks} are there",
        "strategy": "was built with strategy scfg_other",
        "code": "the config or the program of chunks changed",
    }[field]
    try:
        if field == "size":
            asked = "300"
            (folder / "150").rename(folder / "300")
        for path, value in values.items() if field != "size" else ():
            changed = (
                {"strategy_config_id": "scfg_other"}
                if field == "strategy"
                else {
                    "index_profile": "other",
                    "profiles": {**value["profiles"], "chunks": "other"},
                }
            )
            path.write_text(json.dumps({**value, **changed}), encoding="utf-8")
        ended = run("query.py", folder, "--chunks", asked, "--queries", "1", "--clients", "0")
    finally:
        if field == "size":
            (folder / "300").rename(folder / "150")
        for path, text in originals.items():
            path.write_text(text, encoding="utf-8")
    assert ended.returncode != 0 and told in ended.stderr, ended.stdout + ended.stderr


@pytest.mark.parametrize(
    ("asked", "built", "fits"),
    [(100_000, 98_100, True), (100_000, 51_003, False), (2_000, 2_041, False), (60, 69, True)],
)
def test_two_percent_or_two_documents_are_let_pass(asked: int, built: int, fits: bool) -> None:
    spec = importlib.util.spec_from_file_location("bench_sizes", BENCH / "sizes.py")
    assert spec and spec.loader
    sizes = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(sizes)
    if fits:
        sizes.require_size(asked, built)
        return
    with pytest.raises(SystemExit) as refused:
        sizes.require_size(asked, built)
    assert str(asked) in str(refused.value) and str(built) in str(refused.value)


START_EACH = """
import gc; gc.disable()
import contextlib, io, runpy, sys
from pathlib import Path

found = list(sys.path)
for script in sorted(Path(sys.argv[1]).glob("*.py")):
    if "argparse.ArgumentParser(" not in script.read_text(encoding="utf-8"):
        continue
    sys.path[:] = [str(script.parent), *found]
    sys.argv = [str(script), "--help"]
    for name in [it for it in sys.modules if it.partition(".")[0] == "rag_platform_tests"]:
        del sys.modules[name]
    said = io.StringIO()
    try:
        with contextlib.redirect_stdout(said):
            runpy.run_path(str(script), run_name="__main__")
    except SystemExit as end:
        assert not end.code and "usage" in said.getvalue(), (script.name, end.code)
    except ImportError as error:
        sys.exit(f"{script.name}: {error}")
    print(script.name, flush=True)
gc.freeze()
"""


def test_every_benchmark_starts_from_any_folder(tmp_path: Path) -> None:
    """As `python bench/NAME.py` starts it, where only the package is installed."""
    command = [sys.executable, "-P", "-c", START_EACH, str(BENCH)]
    ended = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, check=False)
    assert ended.returncode == 0, ended.stderr[-2_000:]
    assert len(ended.stdout.split()) > 30
