from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from rag_platform.cli.main import main
from rag_platform.config.settings import Settings, Strategy
from rag_platform.documents.drift import chunk_quality
from rag_platform.documents.previewing import preview, preview_data
from rag_platform.errors import DocumentError, InputError
from rag_platform.ir import Chunk

GUIDE = (
    "---\n"
    "tags: [a]\n"
    "---\n"
    "# Guide\n"
    "\n"
    "First words of the guide.\n"
    "\n"
    "## 安装\n"
    "\n"
    "运行安装命令即可。\n"
    "\n"
    "![missing](none.png)\n"
)


def snapshot(folder: Path) -> dict[str, str]:
    return {
        path.relative_to(folder).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in folder.rglob("*")
        if path.is_file()
    }


def test_a_preview_shows_parts_places_and_warnings(
    tmp_path: Path, settings: Settings, tiny: Strategy
) -> None:
    (tmp_path / "guide.md").write_text(GUIDE, encoding="utf-8")
    found = preview(tmp_path / "guide.md", tiny, settings)
    work = found.work
    assert (work.version.loader, work.version.mime, found.edits["front_matter"]) == (
        "markdown",
        "text/markdown",
        1,
    )
    assert [section.section_path for section in work.sections] == ["Guide", "Guide / 安装"]
    assert [chunk.section_path for chunk in work.chunks] == ["Guide", "Guide / 安装"]
    assert [link.reason != "" for link in work.links] == [True]
    assert any("none.png" in warning for warning in found.warnings)
    assert found.quality.coverage == 1.0
    data = preview_data(found, chunks=1)
    assert len(data["chunks"]) == 1 and data["chunks_total"] == 2
    first = data["chunks"][0]
    assert (
        GUIDE.encode()[first["byte_start"] : first["byte_end"]].decode()
        == first["chunk_text"]
        == "# Guide\n\nFirst words of the guide."
    )
    assert "lines 4-6" in data["markdown"] and "and 1 more" in data["markdown"]
    json.dumps(data)


def test_what_stands_before_the_first_heading_is_called_the_beginning(
    tmp_path: Path, settings: Settings, tiny: Strategy
) -> None:
    (tmp_path / "notes.md").write_text("Words.\n\n# Pumps\n\nAt 40 bar.\n", encoding="utf-8")
    shown = preview_data(preview(tmp_path / "notes.md", tiny, settings))["markdown"]
    assert "__preamble__" not in shown and "  (beginning)\n" in shown


def test_the_command_leaves_the_data_root_as_it_was(tmp_path: Path, home: Path) -> None:
    (tmp_path / "guide.md").write_text(GUIDE, encoding="utf-8")
    (home / "kept").write_text("x")
    before = snapshot(home)
    ended = CliRunner().invoke(
        main, ["preview", str(tmp_path / "guide.md"), "--strategy", "tiny", "--json"]
    )
    envelope = json.loads(ended.stdout)
    assert (
        ended.exit_code,
        envelope["ok"],
        envelope["data"]["chunks_total"],
        envelope["trace_id"],
    ) == (0, True, 2, "")
    assert snapshot(home) == before and sorted(path.name for path in home.iterdir()) == ["kept"]
    said = CliRunner().invoke(main, ["preview", str(tmp_path / "guide.md"), "--chunks", "1"])
    assert said.exit_code == 0 and "SECTIONS" in said.stdout and "none.png" in said.stderr
    assert snapshot(home) == before


def test_what_cannot_be_read_says_so(tmp_path: Path, settings: Settings, tiny: Strategy) -> None:
    with pytest.raises(InputError, match="is no file"):
        preview(tmp_path, tiny, settings)
    (tmp_path / "x.bin").write_bytes(b"\x00\x01\x02" * 50)
    with pytest.raises(DocumentError) as caught:
        preview(tmp_path / "x.bin", tiny, settings)
    assert caught.value.code == "unsupported_type"
    (tmp_path / "x.pdf").write_bytes(b"Dear reader,")
    with pytest.raises(DocumentError) as caught:
        preview(tmp_path / "x.pdf", tiny, settings)
    assert caught.value.code == "broken_file"


# --- measures -----------------------------------------------------------------------------------


def chunk(number: int, start: int, end: int, mark: str = "", chunk_type: str = "child") -> Chunk:
    return Chunk(
        f"c{number}",
        "s",
        "d",
        "v",
        number,
        "x" * (end - start),
        mark or str(number),
        start,
        end,
        start,
        end,
        "p",
        chunk_type=chunk_type,
    )


def test_measures_of_literal_chunks() -> None:
    text = "abcd efgh ijkl mnop"  # 16 characters that are not white space
    found = chunk_quality(
        text,
        [
            chunk(0, 0, 9),
            chunk(1, 5, 14, "twin"),
            chunk(2, 10, 14, "twin"),
            chunk(3, 0, 19, chunk_type="parent"),
        ],
    )
    assert found.chunks == 3
    assert found.coverage == 12 / 16  # all but "mnop"
    # lengths 9 + 9 + 4 over the 14 characters they hold
    assert found.overlap == pytest.approx(1 - 14 / 22)
    assert found.duplication == pytest.approx(1 / 3)
    assert (found.min_chars, found.max_chars) == (4, 9)
    assert found.mean_chars == pytest.approx(22 / 3) and found.std_chars == pytest.approx(
        ((2 * 25 + 100) / 27) ** 0.5
    )
    assert found.counts()["overlap"] == 0.3636


def test_measures_without_text_or_chunks() -> None:
    assert chunk_quality(" \n", []).coverage is None
    assert chunk_quality("words", []).coverage == 0.0
