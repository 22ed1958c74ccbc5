"""The releases of a Debian changelog become sections."""

from __future__ import annotations

from pathlib import Path

from rag_platform.config.ingestion import CleaningConfig
from rag_platform.loaders.text import TextLoader
from rag_platform.normalisation.edits import normalise

CHANGELOG = """\
pump (1.2-3) unstable; urgency=medium

  [ A B ]
  * Close the valve (1.1) unstable; it dripped.

 -- A B <a@example.org>  Wed, 08 Jul 2020 23:41:28 +0200

pump (1.2-2~rc1) experimental frozen; urgency=low, binary-only=yes

  * Open it.

 -- A B <a@example.org>  some day
"""


def test_a_release_is_a_heading_with_its_date(tmp_path: Path) -> None:
    """An entry without a date that can be read keeps its last line alone."""
    path = tmp_path / "changelog"
    path.write_text(CHANGELOG)
    facts = TextLoader().load(path, path.name)
    assert facts.text == CHANGELOG
    assert [(block.title, block.level) for block in facts.blocks if block.title] == [
        ("pump (1.2-3) unstable", 2),
        ("pump (1.2-2~rc1) experimental frozen", 2),
    ]
    text = normalise(facts, (), CleaningConfig()).text
    assert text == CHANGELOG.replace(
        "pump (1.2-3) unstable; urgency=medium", "## pump (1.2-3) unstable – 2020-07-08"
    ).replace(
        "pump (1.2-2~rc1) experimental frozen; urgency=low, binary-only=yes",
        "## pump (1.2-2~rc1) experimental frozen",
    ).replace("  [ A B ]\n", "**A B**\n\n")
    (tmp_path / "notes").write_text("The pump (1.2) is old; replace it.\n\n" + CHANGELOG)
    notes = TextLoader().load(tmp_path / "notes", "notes")
    assert not [block for block in notes.blocks if block.title]


def test_other_ends_of_lines_and_odd_dates_lose_nothing(tmp_path: Path) -> None:
    def read(text: str) -> str:
        path = tmp_path / "changelog"
        path.write_bytes(text.encode())
        return normalise(TextLoader().load(path, path.name), (), CleaningConfig()).text

    assert read(CHANGELOG.replace("\n", "\r\n")) == read(CHANGELOG)
    assert "Open it." in read(CHANGELOG.replace("\n", "\r"))
    assert read(f"  {CHANGELOG[:38]}") == f"  {CHANGELOG[:38]}"
    assert "## pump (1.2-3) unstable\n" in read(CHANGELOG.replace("+0200", f"+{10**20}"))
    unsigned = CHANGELOG.replace(" -- A B", "A B", 1).replace(
        "some day", "Wed, 08 Jul 2020 1:02:03"
    )
    assert "## pump (1.2-3) unstable\n" in read(unsigned)
