"""Commands about prompt versions: list, compare, try, activate, and experiments."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from rag_platform import access
from rag_platform.api import envelopes
from rag_platform.cli.output import Context, answers
from rag_platform.ir import Json
from rag_platform.messages import terminal_language
from rag_platform.storage.records import to_json

if TYPE_CHECKING:
    from rag_platform.config.prompts import Choice


@click.group()
def prompts() -> None:
    """Versions of the prompts that language models are sent."""


@prompts.command("list")
@click.argument("name", required=False, default="")
@answers()
def list_prompts(context: Context, name: str) -> Json:
    """Every version of a prompt, or of all, and which is active."""
    from rag_platform.config.prompts import list_versions

    found = list_versions(name)
    lines = []
    for item in found:
        share = f" of {item.share:.0%} of the questions" if item.share else ""
        since = f", {item.by} {item.at:%Y-%m-%d %H:%M}" if item.at else ""
        lines.append(f"{item.name}@{item.version}  {item.status}{share}{since}")
    return {"markdown": "\n".join(lines), "versions": to_json(found)}


@prompts.command("diff")
@click.argument("before", metavar="NAME@VERSION")
@click.argument("after", metavar="NAME@VERSION")
@answers()
def diff(context: Context, before: str, after: str) -> Json:
    """What changed between two versions."""
    from rag_platform.config.prompts import diff_versions

    text = diff_versions(before, after)
    return {"markdown": text or "the same text", "diff": text}


@prompts.command("try")
@click.argument("reference", metavar="NAME@VERSION")
@click.argument("question")
@answers(namespace=True, own_trace=True, reports=False)
def try_prompt(context: Context, reference: str, question: str) -> Json:
    """Answer one question with a version, whatever is active."""
    from rag_platform.answering.engine import answer
    from rag_platform.config.prompts import parse_reference
    from rag_platform.evaluation.strategies import find_strategy
    from rag_platform.ir import QueryRequest

    parse_reference(reference)
    space = context.namespace
    name = f"+{reference}"
    strategy = find_strategy(context.settings, context.library, space, name)
    language = "" if context.json_output else terminal_language()
    request = QueryRequest(question, space, strategy=strategy, language=language)
    result = answer(context.library, request)
    data = {"markdown": result.answer_markdown, "state": result.state, "flags": result.flags}
    return envelopes.envelope(data, result.trace_id, list(result.warnings))


@prompts.command("activate")
@click.argument("reference", metavar="NAME@VERSION")
@answers()
def activate(context: Context, reference: str) -> Json:
    """Make a version the active one, from the next question on."""
    from rag_platform.config import prompts as versions

    return _choose(reference, versions.activate(reference, access.current().name))


@prompts.command("rollback")
@click.argument("name")
@answers()
def rollback(context: Context, name: str) -> Json:
    """Make the version active that was so before."""
    from rag_platform.config import prompts as versions

    return _choose(name, versions.rollback(name, access.current().name))


@prompts.command("split")
@click.argument("reference", metavar="NAME@VERSION")
@click.option(
    "--share",
    type=click.FloatRange(0, 1, min_open=True, max_open=True),
    default=0.5,
    help="Of the questions, dealt by their words: the same question always gets the same version.",
)
@answers()
def split(context: Context, reference: str, share: float) -> Json:
    """Answer a share of the questions with a version, the others with the active one."""
    from rag_platform.config import prompts as versions

    return _choose(reference, versions.start_experiment(reference, share, access.current().name))


@prompts.command("verdict")
@click.argument("name")
@click.option("--end", is_flag=True, help="End the experiment; the active version answers all.")
@answers(namespace=True)
def verdict(context: Context, name: str, end: bool) -> Json:
    """How the answers of the two versions of an experiment differ so far."""
    from rag_platform.config import prompts as versions
    from rag_platform.evaluation.monitoring import experiments

    experiment = versions.require_experiment(name)
    found = experiments.judge_experiment(
        context.store.logs_dir,
        experiment.experiment_id,
        since=experiment.at,
        namespace=context.given_namespace,
    )
    markdown = experiments.experiment_markdown(found)
    if end:
        versions.end_experiment(name)
        markdown += "\n\nThe experiment has ended."
    return {"markdown": markdown, "verdict": to_json(found)}


def _choose(reference: str, choice: Choice) -> Json:
    name = reference.partition("@")[0]
    markdown = f"{name}@{choice.active.version} is active"
    if choice.experiment is not None:
        tried = choice.experiment
        markdown += (
            f"; {name}@{tried.version} answers {tried.share:.0%} of the questions"
            f" ({tried.experiment_id}), `rag prompts verdict {name}` compares them"
        )
    return {"markdown": markdown, "prompt": name, "choice": choice.model_dump(mode="json")}
