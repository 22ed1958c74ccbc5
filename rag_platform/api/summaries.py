"""Summarises a document: by a language model if one is configured, else extractively, by its most
central sentences.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from math import inf
from typing import TYPE_CHECKING, Literal

from rag_platform.answering.citations import remove_foreign_markup
from rag_platform.answering.groundedness import missing_numbers
from rag_platform.answering.quotable import find_path
from rag_platform.api.documents import get_document
from rag_platform.api.envelopes import fill_shape
from rag_platform.config import prompts
from rag_platform.config.query import SummaryConfig
from rag_platform.contract.schema import SummaryData
from rag_platform.errors import (
    CancelledError,
    ConfigError,
    InputError,
    NotFoundError,
    ProviderError,
)
from rag_platform.ir import JOINT, Json, format_section, split_path
from rag_platform.observability import faults, tracing
from rag_platform.processes import limits
from rag_platform.processes.limits import Budget, Deadline
from rag_platform.providers.model_replies import escape_tags
from rag_platform.retrieval.library import Library
from rag_platform.text import textrank
from rag_platform.text.markdown_blocks import cells
from rag_platform.text.passages import units
from rag_platform.text.tokens import estimate_tokens
from rag_platform.text.wording import pluralise

if TYPE_CHECKING:  # protocols need numpy, which the server's start does without
    from rag_platform.protocols import LLM, Completion, Message

Style = Literal["short", "bullet", "detailed"]
STYLES: tuple[Style, ...] = ("short", "bullet", "detailed")
_FORMS = {
    "short": "one to three sentences in one paragraph",
    "bullet": "five to eight list items, each one sentence beginning with `- `",
    "detailed": (
        "a paragraph of one to four sentences for each section that says something, under its name"
        " as `**Section**`"
    ),
}
_MAX_TOKENS = {"short": 300, "bullet": 600, "detailed": 2000}
_NOTE_TOKENS = 500
_MAX_TABLES = {"short": 1, "bullet": 3, "detailed": 8}  # of a document without sentences
_ROWS_SHOWN = 3
_PER_SECTION = 2  # sentences per section in style `detailed`


@dataclass(frozen=True, slots=True)
class Part:
    section_path: str
    text: str


@dataclass(frozen=True, slots=True)
class Summary:
    """A summary as Markdown, how it was made, and the sections it names."""

    markdown: str
    method: str  # llm | textrank
    style: Style
    sections: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    prompt_profile_id: str = ""
    usage: Json = field(default_factory=dict)


def summarise(
    sections: Sequence[Part],
    config: SummaryConfig,
    style: Style = "short",
    llm: LLM | None = None,
    *,
    title: str = "",
) -> Summary:
    """The summary of a document's sections: by the model if there is one and `config.method` allows
    it, else extractive.

    If the model fails, the summary is extractive and has a warning. Raises ConfigError only for
    method `llm`: `no_model` without a model, and errors in its prompts.
    """
    if config.method == "llm" and llm is None:
        raise ConfigError(
            "summary.method is llm, and no language model is configured; set summary.llm, or"
            " method: auto",
            code="no_model",
        )
    read = [part for part in sections if part.text.strip()]
    warnings: list[str] = []
    if len(read) > config.max_sections:
        warnings.append(
            f"only the first {config.max_sections} of {len(read)} sections were read"
            " (summary.max_sections)"
        )
        read = read[: config.max_sections]
    summary = None
    if llm is not None and config.method != "textrank" and read:
        budget = Budget(Deadline.after(config.timeout_ms / 1000))
        with _Attempt(config) as attempt:
            summary = _write(read, config, style, llm, title, budget)
        if summary is None:
            warnings.append(attempt.warning)
            summary = replace(_quote(read, style), usage=_usage(budget))
    summary = summary or _quote(read, style)
    return replace(summary, warnings=(*warnings, *summary.warnings))


class _Attempt(faults.Attempt):
    """Work of a language model: if it fails, `warning` says that the summary is extractive instead.

    A CancelledError passes through, and with `method: llm` a ConfigError.
    """

    warning = ""

    def __init__(self, config: SummaryConfig) -> None:
        passing = (CancelledError, ConfigError) if config.method == "llm" else (CancelledError,)
        super().__init__("stage.summary", passing=passing)

    def give_up(self, error: Exception) -> None:
        super().give_up(error)
        tracing.event("summary.fallback", tracing.error_fields(error))
        self.warning = (
            f"the summary could not be written ({faults.describe(error)}); it quotes the document"
            " instead"
        )


def summarize_document(
    library: Library,
    namespace: str,
    doc_id: str,
    *,
    version_id: str | None = None,
    style: str = "short",
) -> SummaryData:
    """The summary of a document of the published release, in the form of the public contract, by
    the strategy's `summary`. If its model cannot be built, a warning says so, or with `method: llm`
    a ConfigError is raised. Raises InputError `unknown_style`, and what `get_document` raises.
    """
    known = {name: name for name in STYLES}
    if style not in known:
        raise InputError(
            f"unknown style {style!r}; known: {', '.join(STYLES)}", code="unknown_style"
        )
    with library.lease(namespace) as lease:
        strategy = library.query_strategy(lease)
        config = strategy.summary
        found = get_document(library, namespace, doc_id, version_id=version_id, format="sections")[
            "document"
        ]
        if lease.release_id != library.current(namespace):
            raise NotFoundError(
                "a new release was published while the document was read; ask again",
                code="release_changed",
            )
        model = None
        with _Attempt(config) as attempt:
            if config.method != "textrank":
                model = library.models.llm(config.llm, strategy)
        parts = [
            Part(format_section(row["section_path"]), row.get("text", ""))
            for row in found.get("sections", [])
        ]
        name = found["title"] or found["filename"]
        summary = summarise(parts, config, known[style], model, title=name)
    return fill_shape(
        SummaryData,
        summary,
        doc_id=found["doc_id"],
        version_id=found["version_id"],
        title=name,
        release_id=lease.release_id,
        warnings=list(filter(None, (attempt.warning, *summary.warnings))),
    )


# --- quoted sentences ---------------------------------------------------------------------------


def _quote(parts: Sequence[Part], style: Style) -> Summary:
    """The most central sentences, verbatim, each with its section."""
    sentences = textrank.rank_sentences([part.text for part in parts])
    if style == "detailed":
        best = [
            item
            for n in range(len(parts))
            for item in textrank.choose_sentences(
                [s for s in sentences if s.section == n], _PER_SECTION
            )
        ]
    else:
        least, most = (1, 3) if style == "short" else (5, 8)
        best = textrank.choose_sentences(sentences, textrank.count_wanted(sentences, least, most))
    if not best:
        return _quote_tables(parts, style)
    lines: list[str] = []
    above, named = "", dict[str, None]()
    for item in best:
        own = split_path(parts[item.section].section_path)
        path = JOINT.join(find_path(own, item.headings))
        quote = " ".join(item.text.split())
        if style != "detailed":
            lines.append(
                f"{'- ' if style == 'bullet' else ''}{quote}" + (f" ({path})" if path else "")
            )
        elif not lines or path != above:
            lines.append(f"**{path or 'Beginning'}**\n\n{quote}")
        else:
            lines[-1] += quote if lines[-1].endswith(("。", "！", "？")) else f" {quote}"
        above = path
        named |= {path: None} if path else {}
    markdown = ("\n" if style == "bullet" else "\n\n").join(lines)
    return Summary(markdown, "textrank", style, tuple(named))


def _quote_tables(parts: Sequence[Part], style: Style) -> Summary:
    """The header and first rows of the first tables, for a document without sentences."""
    shown: list[str] = []
    named: dict[str, None] = {}
    most = _MAX_TABLES[style]
    for part in parts:
        rows = [unit for unit in units(part.text) if unit.kind == "row" and unit.header]
        for header, found in groupby(rows, key=lambda unit: unit.header):
            if len(shown) == most or header is None:
                break
            table = [part.text[unit.start : unit.end] for unit in found]
            names = part.text[slice(*header)]
            rule = f"|{' --- |' * len(cells(names))}"
            left = len(table) - _ROWS_SHOWN
            more = f"\n\n… {pluralise(left, 'row')} more" if left > 0 else ""
            path = f"**{part.section_path}**\n\n" if part.section_path else ""
            shown.append(path + "\n".join([names, rule, *table[:_ROWS_SHOWN]]) + more)
            named |= {part.section_path: None} if part.section_path else {}
    warnings = () if shown else ("the document holds no sentences to quote",)
    return Summary("\n\n".join(shown), "textrank", style, tuple(named), warnings)


# --- by a language model ------------------------------------------------------------------------


def _write(
    parts: Sequence[Part],
    config: SummaryConfig,
    style: Style,
    llm: LLM,
    title: str,
    budget: Budget,
) -> Summary:
    """The model's summary: groups of sections are condensed to notes until all fit in one call (a
    short document does at once), which writes the summary.
    """
    note = prompts.load("summary/section", ("title", "text"))
    merge = prompts.load("summary/merge", ("title", "form", "notes"))
    notes = [f"{part.section_path}\n{part.text.strip()}" for part in parts]
    while len(groups := list(_groups(notes, config.call_tokens))) > 1:
        made = _ask_all(
            llm,
            [note.messages(title=title, text=escape_tags(group, "parts")) for group in groups],
            _NOTE_TOKENS,
            config.parallel,
            budget,
        )
        if sum(map(estimate_tokens, made)) >= sum(map(estimate_tokens, notes)):
            raise ProviderError(
                "the notes on the sections are no shorter than the sections", code="bad_output"
            )
        notes = made
    held = escape_tags(groups[0], "notes")
    messages = merge.messages(title=title, form=_FORMS[style], notes=held)
    text = _ask_all(llm, [messages], _MAX_TOKENS[style], 1, budget)[0].strip()
    source = "\n".join(part.text for part in parts)
    text, removed = remove_foreign_markup(text, source)
    paths = dict.fromkeys(part.section_path for part in parts if part.section_path)
    if unknown := missing_numbers(text, f"{source}\n{' '.join(paths)}"):
        removed.append(
            f"the summary has numbers that the document does not hold: {', '.join(unknown[:5])}"
        )
    named = tuple(path for path in paths if path in text)
    usage = _usage(budget)
    tracing.event(
        "summary.written", {"prompt_profile_id": merge.profile_id, "style": style, **usage}
    )
    return Summary(text, "llm", style, named, tuple(removed), merge.profile_id, usage)


def _groups(notes: Sequence[str], budget: int) -> Iterator[str]:
    """Consecutive notes joined up to the budget; a note above the budget is split at line ends."""
    group: list[str] = []
    size = 0
    for note in (piece for whole in notes for piece in _pieces(whole, budget)):
        tokens = estimate_tokens(note)
        if group and size + tokens > budget:
            yield "\n\n".join(group)
            group, size = [], 0
        group.append(note)
        size += tokens
    yield "\n\n".join(group)


def _pieces(note: str, budget: int) -> Iterator[str]:
    if estimate_tokens(note) <= budget:
        yield note
        return
    lines = note.splitlines()
    middle = len(lines) // 2
    halves = ["\n".join(lines[:middle]), "\n".join(lines[middle:])]
    if len(lines) == 1:
        halves = [note[: len(note) // 2], note[len(note) // 2 :]]
    for half in halves:
        yield from _pieces(half, budget)


def _ask_all(
    llm: LLM,
    requests: Sequence[tuple[Message, ...]],
    max_tokens: int,
    parallel: int,
    budget: Budget,
) -> list[str]:
    """The model's answers in order; `parallel` calls run at a time, within the budget's
    deadline.
    """

    def call(messages: tuple[Message, ...]) -> Callable[[], Completion]:
        return lambda: budget.ask(lambda: llm.generate(messages, max_tokens=max_tokens))

    texts: list[str] = []
    for first in range(0, len(requests), parallel):
        running = [limits.start(call(messages)) for messages in requests[first : first + parallel]]
        for future in running:
            completion = limits.wait(
                future,
                budget.deadline.left(),
                "stage.summarise",
                Deadline.after(inf),
                setting="summary.timeout_ms",
            )
            texts.append(completion.text)
    return texts


def _usage(budget: Budget) -> Json:
    """Tokens and cost of the calls; `cost` is None without prices."""
    usage = budget.usage()
    return {"cost": None, **usage} if usage else {}
