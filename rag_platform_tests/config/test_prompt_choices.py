"""Versions of prompts: which is in force, who made it so, and which questions try another one."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

from rag_platform.config import prompts
from rag_platform.config.prompts import (
    Experiment,
    activate,
    diff_versions,
    end_experiment,
    list_versions,
    rollback,
    start_experiment,
    use_prompt,
)
from rag_platform.config.settings import load_settings
from rag_platform.config.strategies import load_strategy
from rag_platform.errors import ConfigError, InputError

NAME, FIELDS = "retrieval/answer", ("query", "context")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A config folder that adds a second version to a shipped prompt."""
    monkeypatch.setenv("RAG_CONFIG", str(tmp_path))
    folder = tmp_path / "prompts" / NAME
    folder.mkdir(parents=True)
    write(folder, 2, "Be brief.")
    return folder


def write(folder: Path, version: int, system: str, template: str = "{query}{context}") -> None:
    text = f"system: {system}\nuser_template: '{template}'\n"
    (folder / f"v{version}.yaml").write_text(text, encoding="utf-8")


def statuses() -> dict[int, str]:
    return {item.version: item.status for item in list_versions(NAME)}


def test_a_new_version_is_a_draft_until_it_is_activated_and_one_step_leads_back(
    folder: Path,
) -> None:
    first, before = prompts.load(NAME, FIELDS), prompts.wording("retrieval")
    assert first.version == 1 and statuses() == {1: "active", 2: "draft"}
    assert NAME in prompts.names() and f"{NAME}/v2" not in prompts.names()

    activate(f"{NAME}@2", "ada")
    second = prompts.load(NAME, FIELDS)
    assert (second.version, second.system) == (2, "Be brief.")
    assert second.profile_id != first.profile_id
    assert statuses() == {1: "retired", 2: "active"}
    assert {item.version: item.by for item in list_versions(NAME)} == {1: "", 2: "ada"}
    assert prompts.wording("retrieval") != before
    assert prompts.load(f"{NAME}@1", FIELDS) == first  # by its number, whatever is active

    rollback(NAME, "bob")
    assert prompts.load(NAME, FIELDS) == first and prompts.wording("retrieval") == before
    with pytest.raises(InputError, match="no other version of prompt"):
        rollback(NAME, "bob")


def test_questions_are_dealt_by_their_hash_and_stay_with_their_version(folder: Path) -> None:
    # sha256("exp_1:aa") begins at .294 of its range, of cc at .857, of dd at .394
    experiment = Experiment(
        experiment_id="exp_1", version=2, share=0.3, at=datetime(2026, 1, 1, tzinfo=UTC)
    )
    assert [experiment.arm(word) for word in ("aa", "cc", "dd")] == [
        "treatment",
        "control",
        "control",
    ]
    start_experiment(f"{NAME}@2", 0.3, "ada")
    assert statuses() == {1: "active", 2: "trial"}
    dealt = [prompts.load(NAME, FIELDS, f"{n:016x}") for n in range(400)]
    assert dealt == [prompts.load(NAME, FIELDS, f"{n:016x}") for n in range(400)]
    assert {(item.version, item.arm) for item in dealt} == {(1, "control"), (2, "treatment")}
    assert 90 <= sum(item.version == 2 for item in dealt) <= 150  # 120, three deviations of 9
    assert prompts.load(NAME, FIELDS).version == 1  # what belongs to no question
    end_experiment(NAME)
    assert {prompts.load(NAME, FIELDS, f"{n:016x}").version for n in range(50)} == {1}
    with pytest.raises(InputError, match="no experiment runs"):
        end_experiment(NAME)


def test_what_is_activated_ends_its_own_experiment_alone(folder: Path) -> None:
    write(folder, 3, "Be long.")
    start_experiment(f"{NAME}@3", 0.5, "ada")
    assert activate(f"{NAME}@2", "ada").experiment is not None
    assert statuses() == {1: "retired", 2: "active", 3: "trial"}
    assert activate(f"{NAME}@3", "ada").experiment is None


@pytest.mark.parametrize(
    ("reference", "message"),
    [
        (f"{NAME}@1", "active version already"),
        (f"{NAME}@9", r"no version 9; known: 1, 2\. Write .*v9\.yaml"),
        (NAME, "names no version of a prompt, as in retrieval/answer@2"),
        ("retrieval/answr@2", "no prompt 'retrieval/answr'"),
        ("../x@2", "no name of a prompt"),
    ],
)
def test_what_cannot_be_activated_says_why(folder: Path, reference: str, message: str) -> None:
    with pytest.raises((ConfigError, InputError), match=message):
        activate(reference, "ada")


def test_a_version_with_other_placeholders_is_refused_before_any_question_meets_it(
    folder: Path,
) -> None:
    write(folder, 3, "Be brief.", "{query}")
    with pytest.raises(InputError, match="placeholders query; the program fills context, query"):
        activate(f"{NAME}@3", "ada")
    (folder.parents[1] / "summary" / "merge").mkdir(parents=True)
    (folder.parents[1] / "summary" / "merge" / "v2.yaml").write_text(
        "system: x\nuser_template: '{title}{form}{notes}'\n", encoding="utf-8"
    )
    with pytest.raises(InputError, match="belongs to no single question"):
        start_experiment("summary/merge@2", 0.5, "ada")


def test_a_broken_file_of_choices_is_named_with_its_key(folder: Path) -> None:
    path = folder.parents[1] / "active.yaml"
    path.write_text(f"{NAME}: {{active: {{version: 0}}}}\n", encoding="utf-8")
    with pytest.raises(ConfigError, match=rf"active\.yaml:1: {NAME}\.active\.version: .*value: 0"):
        prompts.load(NAME, FIELDS)


def test_versions_are_compared_line_by_line(folder: Path) -> None:
    write(folder, 3, "Be very brief.")
    assert diff_versions(f"{NAME}@2", f"{NAME}@3").splitlines()[3:5] == [
        "-system: Be brief.",
        "+system: Be very brief.",
    ]


def test_a_strategy_takes_a_version_where_it_sends_the_prompt(tmp_path: Path) -> None:
    fast = load_strategy(load_settings(), "fast")
    found = use_prompt(fast, "query/rewrite@1")
    assert found.query.rewrite.prompt == "query/rewrite@1"
    with pytest.raises(InputError, match=r"'fast' sends no prompt.*answerer\.provider: llm"):
        use_prompt(fast, f"{NAME}@1")
