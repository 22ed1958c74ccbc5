"""Options of providers are checked when a strategy is loaded, before anything is built with
them.
"""

from __future__ import annotations

import importlib.util
import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from pydantic import BaseModel

from rag_platform.cli.doctor import examine
from rag_platform.cli.main import main
from rag_platform.config.folders import SHIPPED
from rag_platform.config.settings import Settings, Strategy, load_settings
from rag_platform.config.strategies import load_strategy, providers, strategy_names
from rag_platform.config.yaml_files import read_mapping
from rag_platform.errors import ConfigError
from rag_platform.retrieval.library import Library
from rag_platform.storage.store import Store
from rag_platform_tests.conftest import REPOSITORY, TINY

FUSION = "fusion:\n  provider: min_max\n  options: {alpha: 0.3}\n"
SECTIONER = (
    "options: {max_section_level: 2, include_heading: true, doc_preamble_mode: separate,"
    " min_section_chars: 0}"
)
OPENAI = "{provider: openai, options: {modle: m}}"
JOINED = (
    "  provider: joined\n"
    "  options: {parts: [{provider: hashing}, {provider: hashing, options: {dims: 3}}]}\n"
)
# what a strategy says, what it says wrongly instead, the key that is told, a part of what is said
READING: dict[str, tuple[str, str, str, str]] = {
    "fusion": (
        FUSION,
        "fusion: {provider: rrf, options: {alpha: .2}}\n",
        "fusion",
        "fusion 'rrf' has no option 'alpha'; known: k",
    ),
    "unknown fusion": (
        FUSION,
        "fusion: {provider: magic}\n",
        "fusion",
        "unknown fusion 'magic'; known: min_max, rrf, z_score",
    ),
    "reranker": (
        "",
        "reranker: {provider: features, options: {top: 3}}\n",
        "reranker",
        "has no option 'top'",
    ),
    "its model": (
        "",
        f"reranker: {{provider: llm, options: {{llm: {OPENAI}}}}}\n",
        "reranker.options.llm",
        "llm 'openai' has no option 'modle'",
    ),
    "rewrite": (
        "",
        f"query: {{rewrite: {{llm: {OPENAI}}}}}\n",
        "query.rewrite.llm",
        "no option 'modle'",
    ),
    "a model": (
        "",
        f"llm: {OPENAI}\n",
        "llm",
        "llm 'openai' has no option 'modle'; known: api_key_env",
    ),
    "answerer": (
        "",
        "answerer: {provider: extractive, options: {words: 3}}\n",
        "answerer",
        "no option 'words'",
    ),
    "embedder": (
        "  provider: hashing\n",
        "  provider: hashing\n  options: {dims: 3}\n",
        "embedding",
        "no option 'dims'; known: dim",
    ),
    "a part": ("  provider: hashing\n", JOINED, "embedding.options.parts.1", "no option 'dims'"),
    "captions": (
        "",
        f"media_texts: {{captions: {OPENAI}}}\n",
        "media_texts.captions",
        "no option 'modle'",
    ),
}
INGESTING: dict[str, tuple[str, str, str, str]] = {
    "sectioner": (
        SECTIONER,
        "options: {max_level: 2}",
        "sectioner",
        "no option 'max_level'; known: doc_preamble_mode",
    ),
    "chunker": ("chunk_overlap: 0", "overlap: 0", "chunker", "no option 'overlap'"),
    "a value": ("chunk_size: 400", "chunk_size: 0", "chunker", "chunk_size"),
    "loader": (
        "{profile: fast}",
        "{profil: fast}",
        "loading.loaders.0",
        "no option 'profil'",
    ),
    "lexical": (
        "",
        "lexical: {provider: tantivy, options: {words: []}}\n",
        "lexical",
        "no option 'words'",
    ),
    "ocr": (
        "",
        "media_texts: {ocr: {provider: rapidocr, options: {scale: 2}}}\n",
        "media_texts.ocr",
        "no option 'scale'",
    ),
}


def text_of(old: str, new: str) -> str:
    text = TINY.replace(old, new, 1) if old else TINY + new
    assert text != TINY
    return text


@pytest.mark.parametrize("case", [*READING, *INGESTING])
def test_what_is_wrong_is_told_with_file_and_key(
    case: str, config_folder: Path, settings: Settings
) -> None:
    old, new, key, said = {**READING, **INGESTING}[case]
    path = config_folder / "strategies" / "wrong.yaml"
    path.write_text(text_of(old, new), encoding="utf-8")
    with pytest.raises(ConfigError) as caught:
        load_strategy(settings, "wrong", ingestion=True)
    place = rf"{re.escape(str(path))}:\d+: {re.escape(key)}\.(options|provider): "
    assert re.match(place, caught.value.message) and said in caught.value.message, (
        caught.value.message
    )
    (finding,) = [found for found in examine(settings) if found.subject == "strategy wrong"]
    assert finding.level == "error" and key in finding.message
    if case in READING:  # a question is told as well, and loads nothing that only ingestion uses
        with pytest.raises(ConfigError, match="wrong"):
            load_strategy(settings, "wrong")


def test_doctor_tells_what_a_kept_strategy_lacks(config_folder: Path, settings: Settings) -> None:
    """A copy from before an upgrade hides what came with it, such as the loader of mails."""
    shipped = (SHIPPED / "strategies" / "fast.yaml").read_text(encoding="utf-8")
    path = config_folder / "strategies" / "fast.yaml"
    said = []
    for text in (f"# mine\n{shipped}", shipped.replace("    - provider: eml\n", "")):
        path.write_text(text, encoding="utf-8")
        (finding,) = [found for found in examine(settings) if found.subject == "strategy fast"]
        said.append(finding.message.partition("; ")[2])
    assert said == ["", f"{path} differs from the shipped one in loading"]


@pytest.mark.integration
def test_a_wrong_sectioner_makes_no_release(desk: Any) -> None:
    (desk.folder / "config" / "strategies" / "tiny.yaml").write_text(
        text_of(SECTIONER, "options: {max_level: 2}"), encoding="utf-8"
    )
    desk.write(guide="# Limits\n\nThe largest upload is 50 MB.\n")
    outcome = desk.call("ingest", desk.docs)
    assert outcome.exit_code == 1 and "sectioner.options" in outcome.envelope["error"]["message"]
    assert (
        not desk.store.current_path("default").exists() and not desk.store.ledger_path.exists()
    ) or not desk.ledger().__enter__().live("default")


def test_a_package_that_is_not_installed_is_told_by_who_needs_it(
    config_folder: Path, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    # as an import that fails
    monkeypatch.setitem(__import__("sys").modules, "rag_platform.providers.hashing", None)
    text = text_of("  provider: hashing\n", "  provider: hashing\n  options: {dim: 64}\n")
    (config_folder / "strategies" / "wrong.yaml").write_text(text, encoding="utf-8")
    assert load_strategy(settings, "wrong").embedding.options == {"dim": 64}


def test_the_shipped_strategies_are_right(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAG_CONFIG", str(REPOSITORY / "rag_platform" / "defaults"))
    shipped = load_settings()
    assert [
        load_strategy(shipped, name, ingestion=True).name for name in strategy_names(shipped)
    ] == strategy_names(shipped)


def test_every_provider_of_a_strategy_is_looked_at(settings: Settings) -> None:
    """Each section with `provider` and `options` that a strategy can hold is one of those that are
    checked.
    """
    strategy = load_strategy(settings, "tiny")
    llm = strategy.llm
    strategy = strategy.model_copy(
        update={
            "query": strategy.query.model_copy(
                update={"rewrite": strategy.query.rewrite.model_copy(update={"llm": llm})}
            ),
            "answerer": strategy.answerer.model_copy(update={"llm": llm}),
            "summary": strategy.summary.model_copy(update={"llm": llm}),
        }
    )

    def keys(value: object, where: str) -> set[str]:
        if isinstance(value, tuple):
            return {
                key for number, item in enumerate(value) for key in keys(item, f"{where}.{number}")
            }
        if not isinstance(value, BaseModel):
            return set()
        own = (
            {f"{where}.options"}
            if {"provider", "options"} <= set(type(value).model_fields)
            else set()
        )
        return own.union(
            *(
                keys(getattr(value, name), f"{where}.{name}".lstrip("."))
                for name in type(value).model_fields
            )
        )

    assert isinstance(strategy, Strategy)
    assert {named.key for named in providers(strategy)} == keys(strategy, "")


# the file, what it says wrongly, the line and key that are named, what is said of it
BROKEN: dict[str, tuple[str, str, str, str]] = {
    "option": (
        "strategies/tiny.yaml",
        TINY.replace("{alpha: 0.3}", "\n    alpah: 0.3"),
        "19: fusion.options",
        "has no option 'alpah'; known: alpha",
    ),
    "type": (
        "strategies/tiny.yaml",
        TINY.replace("{alpha: 0.3}", "{alpha: much}"),
        "18: fusion.options",
        "alpha is 'much': input should be a valid number",
    ),
    "extra": (
        "strategies/tiny.yaml",
        TINY + "reranker:\n  provider: cross_encoder\n  options: {model: x}\n",
        "20: reranker.provider",
        "pip install 'rag-platform[models]'",
    ),
    "key": (
        "settings.yaml",
        "default_strategy: tiny\nserver:\n  proceses: 2\n",
        "3: server.proceses",
        "no such setting; known: allow,",
    ),
    "limit": (  # files were read 0 bytes at a time, and refused as empty
        "settings.yaml",
        "default_strategy: tiny\nlimits:\n  read_chunk_size_bytes: 0\n",
        "3: limits.read_chunk_size_bytes",
        "greater than 0 (value: 0)",
    ),
    "yaml": (
        "strategies/tiny.yaml",
        TINY.replace("{alpha: 0.3}", "{alpha: ]}"),
        "18",
        "this is no YAML",
    ),
    "twice": (
        "settings.yaml",
        "limits:\n  max_pages: 10\ndefault_strategy: tiny\nlimits: {max_cells: 10}\n",
        "4: 'limits'",
        "is given twice, first in line 1; keep one of them",
    ),
    "twice below": (
        "strategies/tiny.yaml",
        TINY.replace("{alpha: 0.3}", "{alpha: 0.3, alpha: 0.4}"),
        "18: 'alpha'",
        "is given twice, first in line 18",
    ),
    "gate": (
        "gates.yaml",
        "notes:\n  - dataset: golden\n    floors: {retrieval.hit_rate@10: high}\n",
        "3: floors.retrieval.hit_rate@10",
        "valid number",
    ),
}


@pytest.mark.parametrize("case", BROKEN)
def test_a_broken_config_is_told_with_its_line_wherever_it_is_used_first(
    case: str, desk: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from rag_platform.server.app import build_server

    name, text, place, said = BROKEN[case]
    found = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda n, *a: None if "sentence" in n else found(n, *a)
    )
    path = desk.folder / "config" / name
    path.write_text(text, encoding="utf-8")
    desk.write(guide="# Limits\n\nThe largest upload is 50 MB.\n")
    doctor = desk.call("doctor")
    assert doctor.exit_code == 1
    messages = [json.dumps(doctor.envelope, ensure_ascii=False)]
    if case != "gate":  # which nobody asks before a release is built
        messages.append(desk.call("ingest", desk.docs).envelope["error"]["message"])
        with pytest.raises(ConfigError) as caught:
            build_server(load_settings())
        messages.append(caught.value.message)
    for message in messages:
        assert f"{path}:{place}" in message and said in message, message


def test_doctor_reports_each_thing_once_and_then_what_is_to_be_mended(desk: Any) -> None:
    shipped = REPOSITORY / "rag_platform" / "defaults" / "strategies" / "default.yaml"
    strategies = desk.folder / "config" / "strategies"
    for name in ("default", "same"):
        shutil.copy(shipped, strategies / f"{name}.yaml")
    (strategies / "tiny.yaml").write_text(TINY + "reranker: [", encoding="utf-8")
    ended = CliRunner().invoke(main, ["doctor"])
    assert ended.exit_code == 1
    assert ended.stderr == "error [unhealthy]: to be mended: strategy tiny\n"
    subjects = [line[9:].partition(":")[0] for line in ended.stdout.split("\n\n")[0].splitlines()]
    assert len(set(subjects)) == len(subjects)
    assert {"extras", "strategy same", "weights weights.npz"} <= set(subjects)
    assert f"home: {desk.folder / 'home'}\n" in ended.stdout
    changed = ended.stdout.partition("settings that differ from the shipped ones:\n")[2]
    assert '"jobs": {\n  "backoff_seconds": 0.01,\n  "lock_seconds": 0.2\n }' in changed
    assert "max_attempts" not in changed


def test_a_running_server_keeps_its_last_good_strategy(config_folder: Path, home: Path) -> None:
    library = Library(load_settings(), Store(home))
    path = config_folder / "strategies" / "tiny.yaml"
    good = library.strategy("tiny")
    path.write_text(TINY.replace("{alpha: 0.3}", "{alpha: much}"), encoding="utf-8")
    assert library.strategy("tiny") == good
    path.write_text(TINY.replace("alpha: 0.3", "alpha: 0.5"), encoding="utf-8")
    assert library.strategy("tiny").fusion.options == {"alpha": 0.5}


def test_an_alias_and_what_it_is_merged_with_are_no_repetition(tmp_path: Path) -> None:
    path = tmp_path / "any.yaml"
    path.write_text(
        "one: &one {a: 1, b: 2}\ntwo: &two {<<: *one, a: 3}\nthree: {<<: *two, b: 4}\n"
        "4: *one\n'4': x\n",
        encoding="utf-8",
    )
    found = read_mapping(path)
    assert found == {
        "one": {"a": 1, "b": 2},
        "two": {"a": 3, "b": 2},
        "three": {"a": 3, "b": 4},
        4: {"a": 1, "b": 2},
        "4": "x",
    }


def test_an_empty_variable_is_not_set(monkeypatch: pytest.MonkeyPatch) -> None:
    """As compose files pass on what nobody set; the data root is not the working directory."""
    plain = load_settings()
    for name in (
        "RAG_HOME",
        "RAG_NAMESPACE",
        "RAG_STRATEGY",
        "RAG_SERVER__PROCESSES",
        "RAG_LEDGER",
    ):
        monkeypatch.setenv(name, " " if name == "RAG_LEDGER" else "")
    monkeypatch.delenv("RAG_HOME")
    without = load_settings()
    monkeypatch.setenv("RAG_HOME", "")
    assert load_settings() == without
    assert without.home.is_absolute() and without.server == plain.server


@pytest.mark.parametrize("inside", ["", "home"])
def test_a_data_root_that_is_a_file_is_refused(
    desk: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, inside: str
) -> None:
    file = tmp_path / "notes.txt"
    file.write_text("x", encoding="utf-8")
    monkeypatch.setenv("RAG_HOME", str(file / inside))
    message = (
        f"the data root {file / inside} cannot be a folder: {file} is a file; name a folder with"
        " RAG_HOME, or with `home` in settings.yaml"
    )
    for command in (("ingest", desk.docs), ("status",), ("doctor",)):
        assert desk.call(*command).error["message"] == message
