"""Builds judges by their registry names."""

from __future__ import annotations

from rag_platform.config.settings import Settings, fingerprint
from rag_platform.errors import ConfigError
from rag_platform.evaluation.measuring import Judge
from rag_platform.ir import Json
from rag_platform.registry import build
from rag_platform.storage.store import Store


def open_judge(name: str, settings: Settings, store: Store) -> Judge:
    """The judge of that name. Raises ConfigError: for an unknown name, and `no_judge` for `llm`
    without a configured model.
    """
    options: Json = {}
    if name == "llm":
        if settings.judge.provider == "none":
            raise ConfigError(
                "the judge 'llm' has no language model; name one under `judge` in settings.yaml, as"
                " {provider: openai, options: {model: ...}}, or take --judge rules",
                code="no_judge",
            )
        options = {"llm": settings.judge.model_dump(), "cache": str(store.judgements_path)}
    judge: Judge = build("judge", name, options)
    return judge


def judge_profile_id(judge: Judge) -> str:
    """The hash of the judge's profile; scores are comparable only if it is equal."""
    return f"jdg_{fingerprint(judge.profile())}"
