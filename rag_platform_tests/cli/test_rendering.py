"""An answer as a terminal shows it, from literal data."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from rag_platform.cli.reading import render_answer

DATA: dict[str, Any] = {
    "markdown": "Use `vault roll`. [1]\n\n**Sources**\n\n- [1] notes/keys.md, Keys, lines 1-3\n\n"
    "*mode hybrid · confidence 0.72*",
}
# the quote is the passage's last line but one
CITATION: dict[str, Any] = {
    "id": 1,
    "source_uri": "notes/keys.md",
    "section_path": "Keys",
    "line_range": [1, 9],
    "text": "# Vault\n\nKept apart.\n\nRotate the keys with vault roll. Weekly.\nNever by hand.\n",
    "spans": [[22, 54]],
    "quote": {"line_range": [5, 5]},
}


Render = Callable[..., str]


@pytest.fixture
def rendered(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Render:
    """Prints an answer, and returns what a terminal of 120 columns shows."""
    monkeypatch.setenv("COLUMNS", "120")

    def render(data: dict[str, Any] = DATA, citation: dict[str, Any] = CITATION) -> str:
        render_answer(data, "How are keys rotated?", [citation])
        return capsys.readouterr().out

    return render


def test_the_place_and_the_passage_stand_under_the_answer(rendered: Render) -> None:
    text = rendered()
    assert text.index("vault roll. [1]") < text.index("[1] notes/keys.md, Keys, line 5")
    assert "    Rotate the keys with vault roll. Weekly." in text
    assert "Kept apart" not in text and "by hand" not in text
    assert text.count("notes/keys.md") == 1 and "**" not in text
    assert text.rstrip().endswith("mode hybrid · confidence 0.72")


def test_an_answer_in_chinese_has_its_places_in_chinese(rendered: Render) -> None:
    markdown = (
        "用 `vault roll`。 [1]\n\n**来源**\n\n- [1] notes/keys.md，Keys，第 1-3 行\n\n*混合检索*"
    )
    text = rendered({**DATA, "markdown": markdown})
    assert "[1] notes/keys.md，Keys，第 5 行" in text
    assert "    Rotate the keys with vault roll. Weekly." in text
    assert "来源" not in text


def test_relative_links_lead_to_their_documents(rendered: Render) -> None:
    text = "Rotate them as in [the plan](../plans/roll.md#weekly), not as [on the web](https://x.org).\n"
    shown = rendered(citation={**CITATION, "text": text, "spans": [[0, 20]]})
    assert "    → plans/roll.md#weekly " in shown and shown.count("→") == 1


def test_words_of_the_question_are_marked(
    rendered: Render, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm-256color")
    text = rendered()
    assert "Rotate the \x1b[1;33mkeys\x1b[0m with" in text and "\x1b[2m Weekly.\x1b[0m" in text
    assert "\x1b[36mnotes/keys.md" in text and "\x1b[32m, line 5" in text
