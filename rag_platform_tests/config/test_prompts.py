"""Prompt files: every shipped one loads, and a wrong one is named."""

from __future__ import annotations

from pathlib import Path

import pytest

from rag_platform.config import prompts
from rag_platform.errors import ConfigError, InputError
from rag_platform.media.captions import FIELDS, PROFILES

GOOD = "system: 'Say {\"a\": 1}.'\nuser_template: 'About {topic}, in {{braces}}.'\n"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("RAG_CONFIG", str(tmp_path))
    (tmp_path / "prompts" / "test").mkdir(parents=True)
    return tmp_path / "prompts" / "test"


@pytest.mark.parametrize("name", prompts.names("caption"))
def test_shipped_caption_prompts_load(name: str) -> None:
    prompt = prompts.load(name, FIELDS)
    assert name in PROFILES.values()
    assert prompt.profile_id.startswith(name.replace("/", ".") + "-")
    assert "uncertainties" in prompt.system
    assert "<context>\nA {b}\n</context>" in prompt.user(context="A {b}", lang="English")


def test_every_image_type_has_its_prompt() -> None:
    assert set(PROFILES.values()) == set(prompts.names("caption"))


def test_placeholders_are_filled_and_the_profile_follows_the_wording(folder: Path) -> None:
    (folder / "a.yaml").write_text(GOOD, encoding="utf-8")
    first = prompts.load("test/a", ["topic"])
    assert first.system == 'Say {"a": 1}.'
    assert first.user(topic="{x}") == "About {x}, in {braces}."
    (folder / "a.yaml").write_text(GOOD.replace("Say", "Tell"), encoding="utf-8")
    assert prompts.load("test/a", ["topic"]).profile_id != first.profile_id
    with pytest.raises(InputError, match="'topic'"):
        first.user(subject="x")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (GOOD.replace("{topic}", "{topics}"), "names {topics}; known: topic"),
        (GOOD.replace("{topic}", "it"), "leaves out {topic}"),
        (GOOD.replace("{topic}", "{topic!r}"), "plain names"),
        (GOOD.replace("{topic}", "{topic"), "not well formed"),
        (GOOD + "temperature: 1\n", "unknown key 'temperature'"),
        ("system: x\n", "must hold the texts"),
        ("system: [", "this is no YAML"),
    ],
)
def test_a_wrong_file_is_named(folder: Path, text: str, said: str) -> None:
    (folder / "bad.yaml").write_text(text, encoding="utf-8")
    with pytest.raises(ConfigError, match=r"bad\.yaml") as caught:
        prompts.load("test/bad", ["topic"])
    assert said in caught.value.message


def test_an_unknown_prompt_lists_the_known_ones(folder: Path) -> None:
    with pytest.raises(ConfigError, match="caption/chart_v1"):
        prompts.load("test/none", [])
    with pytest.raises(ConfigError, match="no name of a prompt"):
        prompts.load("../secret", [])
