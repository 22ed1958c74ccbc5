"""The group `rag eval` with all its commands."""

from __future__ import annotations

from rag_platform.cli.evaluating import questions, strategies
from rag_platform.cli.evaluating.runs import evaluation

__all__ = ["evaluation"]

for _command in (
    strategies.promote,
    strategies.canaries,
    strategies.drift,
    questions.sample,
    questions.synthesize,
    questions.gaps,
):
    evaluation.add_command(_command)
