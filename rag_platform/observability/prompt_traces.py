"""Prompts of questions: chosen by the question where an experiment runs, and named in its trace."""

from __future__ import annotations

from collections.abc import Collection

from rag_platform.config import prompts
from rag_platform.observability import context


def load_prompt(name: str, fields: Collection[str], query_hash: str) -> prompts.Prompt:
    """The prompt for a question, as `prompts.load` gives it. The trace keeps the experiment that
    chose it, also where the call of the model fails afterwards.
    """
    prompt = prompts.load(name, fields, query_hash)
    running = context.trace.get()
    if running is not None and prompt.experiment_id:
        chosen = {
            "experiment_id": prompt.experiment_id,
            "arm": prompt.arm,
            "version": prompt.version,
            "prompt_profile_id": prompt.profile_id,
        }
        running.merge("experiments", {prompt.name: chosen})
    return prompt
