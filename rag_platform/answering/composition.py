"""The stage `generate`: an answer with checked citations, or a statement with the closest passages.

The strategy's answerer writes the answer. Where that fails or is skipped under load, the extractive
answerer quotes the passages instead. Where no passage answers the question, the result is a plain
statement and the closest passages.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial

import numpy as np

from rag_platform.answering import citations, states
from rag_platform.answering.citations import escape_marks, make_citation
from rag_platform.answering.constants import (
    CLOSEST_PASSAGES,
    COMPARED_CHARS,
    COMPARED_QUOTES,
    MAX_REFUSAL_CONFIDENCE,
    SNIPPET_CHARS,
)
from rag_platform.answering.doubts import find_doubts, list_quoted
from rag_platform.answering.extractive import Extractive, Nearness, explains, find_sentence
from rag_platform.answering.missing_words import Embed
from rag_platform.answering.question_context import OnText, Question
from rag_platform.answering.quotable import read_layout
from rag_platform.answering.quote_places import narrow
from rag_platform.contract.markdown_views import hit_text, show_picture
from rag_platform.errors import CancelledError
from rag_platform.ir import JOINT, Citation, Hit, Json, QueryIR, State, split_path
from rag_platform.messages import translate_filled
from rag_platform.observability import faults, tracing
from rag_platform.processes import limits
from rag_platform.processes.limits import Deadline
from rag_platform.protocols import Answerer
from rag_platform.query import analysis
from rag_platform.registry import traits, traits_of
from rag_platform.retrieval.namespace_search import Found
from rag_platform.text.entries import is_titled
from rag_platform.text.scripts import is_wide
from rag_platform.text.wording import shorten


@dataclass(frozen=True, slots=True)
class Answer:
    """The text with its citations. `answered` is False where it only lists the closest passages or
    states that nothing was found.
    """

    text: str = ""
    citations: tuple[Citation, ...] = ()
    confidence: float = 0.0
    quotes_near: float | None = None
    state: State = "nothing_found"
    warnings: tuple[str, ...] = ()
    unsupported: tuple[Json, ...] = ()  # sentence and reason
    prompt_profile_id: str = ""
    model_id: str = ""
    llm_provider_id: str = ""
    usage: Json = field(default_factory=dict)
    degraded: bool = False  # made by a fallback; not cached

    @property
    def answered(self) -> bool:
        return self.state == "answered"


def compose(
    q: Question,
    found: list[Found],
    hits: list[Hit],
    context: list[Hit],
    deadline: Deadline,
    span: tracing.Span,
    assessed: states.Assessment,
) -> Answer:
    """The answer from the context, by the strategy's answerer or its fallbacks."""
    composer = _Composer(
        found[0],
        q.language,
        assessed,
        context,
        _find_embedder(q, found[0]),
        _find_embedder(q, found[0], query=True),
    )
    written, degraded = _run_answerer(q, composer, deadline, span)
    if degraded:
        with faults.Attempt("stage.generation"):  # on failure the passages are listed below
            written = composer.run(Extractive(), "quoting", deadline)
    # text read in a picture is not quoted, but a language model may answer from it
    pictures = [hit for hit in hits if hit.picture_text and not hit.chunk_text]
    is_picture = bool(pictures) and pictures[0] is hits[0]
    # quotes in place of the model's answer have the confidence of the pictures it was given
    unsure = not written.answered or (degraded and any(hit.picture_text for hit in context))
    if written.text and not (is_picture and unsure):
        return dataclasses.replace(written, degraded=degraded)
    if written.text:  # quotes that are less near than the picture, and what is doubtful in them
        written = dataclasses.replace(written, warnings=(), unsupported=())
    error, phrased = q.flags.get("error"), bool(found[0].query.rewrites)
    if error is not None:
        kind = "unreachable"
    elif degraded:
        kind = "failed"
    else:
        kind = "no_answer" if written.state == "closest" else "nothing_found"
        if not context and not hits:
            kind = "filtered" if all(it.matched_count == 0 for it in found) else "nothing"
        if is_picture and states.decide(written.confidence, phrased=phrased) == "answered":
            kind, hits = "pictures", pictures
    warning = "the nearest passages could not be listed (%s); the hits hold them"
    with q.attempt("generation", warning, span=span):
        reason = error["message"] if error is not None else ""
        closest = (hits if is_picture else context or hits)[:CLOSEST_PASSAGES]
        text, cited = list_passages(
            kind,
            q.language,
            [(hit, _find_sentence(found[0].query, hit)) for hit in closest],
            reason,
        )
        return dataclasses.replace(
            written,
            text=text,
            citations=cited,
            degraded=degraded,
            state="closest" if cited and kind != "nothing_found" else "nothing_found",
        )
    q.flags["fallback_mode"] = "structured_response"
    return dataclasses.replace(written, text="", citations=(), degraded=True)


def _run_answerer(
    q: Question, composer: _Composer, deadline: Deadline, span: tracing.Span
) -> tuple[Answer, bool]:
    """(the answer of the strategy's answerer, whether it failed or was skipped under load)."""
    relay = _Relay(q.on_text, deadline)
    warning = "the answer could not be written (%s); what was found is quoted instead"
    try:
        with q.attempt("generation", warning, span=span):
            if not composer.context:
                return composer.refuse(), False
            built = q.library.models.answerer(composer.first.strategy)
            answerer = built.instance
            if isinstance(answerer, Extractive):
                nearness = _make_nearness(q, composer.first, composer.embed)
                answerer = dataclasses.replace(answerer, nearness=nearness)
            if limits.MODEL in q.shed and built.traits.uses_llm:
                q.flags["load_shed"] = [*q.flags.get("load_shed", ()), limits.MODEL]
                q.warnings.append(
                    f"the answer only quotes, because {q.library.load.running} questions run at"
                    " once"
                )
                return Answer(), True
            on_text = relay if q.on_text is not None else None
            return composer.run(answerer, "stage.generate", deadline, on_text), False
    finally:
        relay.ended = True
    deadline.check()
    q.flags["fallback_mode"] = "structured_response"
    return Answer(), True


def _find_embedder(q: Question, found: Found, *, query: bool = False) -> Embed | None:
    """The embedder of the search, with `query` as it embeds questions, cached; None without one,
    where it is remote, and under load.
    """
    config = found.strategy.embedding
    searched = found.mode in ("dense", "hybrid")
    if not searched or q.shed or traits("embedder", config.provider).remote:
        return None
    if query:
        return lambda texts: np.stack(q.library.models.query_vectors(config, texts)[0])
    return partial(q.library.models.embed, config)


def _make_nearness(q: Question, found: Found, embed: Embed | None) -> Nearness | None:
    """A function that returns for each text its cosine with the question or its nearest phrasing;
    None without an embedder.
    """
    query, config = found.query, found.strategy.embedding
    if embed is None:
        return None

    def measure(texts: Sequence[str]) -> list[float]:
        phrasings = [analysis.reword(query, text, found.strategy.query) for text in query.rewrites]
        queries = [item.dense_text for item in (query, *phrasings)]
        vectors, _ = q.library.models.query_vectors(config, queries)
        cosines = embed(texts) @ np.stack(vectors).T
        return [float(row.max()) for row in cosines]

    return measure


@dataclass(frozen=True, slots=True)
class _Composer:
    """Runs an answerer over the context, checks what it wrote and decides the answer's state."""

    first: Found
    language: str  # of what is said around the answer
    assessed: states.Assessment
    context: list[Hit]
    embed: Embed | None
    embed_questions: Embed | None  # cached

    def run(
        self,
        answerer: Answerer,
        stage: str,
        deadline: Deadline,
        on_text: OnText | None = None,
    ) -> Answer:
        """The checked answer, within the answerer's timeout. Raises what the answerer raises."""
        return limits.run_within(
            self.first.strategy.answerer.timeout_ms / 1000,
            stage,
            lambda: self._compose(answerer, on_text),
            deadline,
            quick=traits_of(answerer).quick,
            setting="answerer.timeout_ms",
        )

    def refuse(self) -> Answer:
        """No answer, since the hits have no text to quote."""
        probability, phrased = self.assessed.probability, bool(self.first.query.rewrites)
        state = states.decide_unanswered(probability, phrased=phrased)
        return Answer(confidence=probability, state=state)

    def _compose(self, answerer: Answerer, on_text: OnText | None) -> Answer:
        query, config = self.first.query, self.first.strategy.answerer
        phrased = bool(query.rewrites)
        reads = traits_of(answerer).uses_llm  # it judges the passages itself, and may refuse
        decide = partial(states.decide, phrased=phrased, least=config.min_confidence, reads=reads)
        probability = self.assessed.probability
        if not reads and decide(probability) == "nothing_found":
            return Answer(confidence=round(probability, 3))  # its quotes would not be shown
        written = answerer.answer(query, self.context, on_text=on_text)
        checked = citations.check_answer(written.text, self.context)
        near = None if reads else self._measure_nearness(written.text)
        if near is not None:
            signals = dataclasses.replace(self.assessed.signals, quotes_near=near)
            probability = states.probability(signals, phrased=False)
            decide = partial(decide, quotes_near=near)
        confidence, warnings = round(probability * checked.agreement, 3), written.warnings
        quotes = "" if reads else written.text
        if quotes and checked.numbers and decide(confidence) != "answered":
            first = self.context[checked.numbers[0] - 1]
            if explains(query.original, first) or is_titled(
                query.original, first.section_path, first.chunk_text
            ):
                confidence = states.assure(confidence, phrased=phrased, quotes_near=near)
        doubts = find_doubts(query, quotes, self.context, self.embed) if quotes else ()
        if doubts:
            confidence = states.hedge(confidence, phrased=phrased, quotes_near=near)
            warnings += doubts
        state = decide(confidence)
        answer = Answer(
            confidence=confidence,
            quotes_near=near,
            state=state,
            warnings=warnings,
            prompt_profile_id=written.prompt_profile_id,
        )
        if (completion := written.completion) is not None:
            answer = dataclasses.replace(
                answer,
                model_id=completion.model,
                llm_provider_id=f"llm.{completion.provider}",
                usage=completion.usage,
            )
        text = written.text.strip()
        if text and checked.numbers and (state == "answered" or (state == "closest" and not reads)):
            unsupported = checked.unsupported if config.flag_unsupported else ()
            return dataclasses.replace(
                answer,
                text=checked.text if answer.answered else mark_closest(checked.text, self.language),
                citations=tuple(map(narrow, checked.citations)),
                warnings=(*warnings, *checked.warnings),
                unsupported=tuple(dataclasses.asdict(item) for item in unsupported),
            )
        if text and reads:  # it was paid for, and may have been streamed
            reason = (
                f"its confidence of {confidence} is too low"
                if checked.numbers
                else "it cites nothing"
            )
            withheld = f"the model wrote an answer that was withheld: {reason}"
            warnings = (*warnings, *checked.warnings, withheld)
        return dataclasses.replace(
            answer,
            confidence=min(confidence, MAX_REFUSAL_CONFIDENCE) if reads else confidence,
            state="closest" if state == "answered" else state,
            warnings=warnings,
        )

    def _measure_nearness(self, answer: str) -> float | None:
        """How near in meaning the quotes of a small library are, where the scores of a search say
        little; None elsewhere, with phrasings, where question and quotes differ in script, and
        where words were not looked up in the index, which alone tells how small the library is.
        """
        query, signals = self.first.query, self.assessed.signals
        small = signals.words_absent is not None and signals.sparse_reach is None
        if not small or query.rewrites or self.embed_questions is None:
            return None
        subject = analysis.subject_of(query)
        quoted = list_quoted(subject, answer, self.context)[:COMPARED_QUOTES]
        wide = is_wide(subject)
        if not quoted or any(is_wide(text) != wide for text in quoted):
            return None
        texts = [text[:COMPARED_CHARS] for text in quoted]
        vectors = self.embed_questions([subject, *texts, *states.list_unrelated(wide=wide)])
        return states.measure_nearness(vectors, len(quoted))


@dataclass
class _Relay:
    """Passes the parts of an answer on; raises CancelledError once nobody waits for it."""

    on_text: OnText | None
    deadline: Deadline
    ended: bool = False

    def __call__(self, part: str) -> None:
        if self.ended:
            raise CancelledError("the answer is no longer waited for")
        self.deadline.check("the answer")
        if self.on_text is not None:
            self.on_text(part)


# --- without an answer ----------------------------------------------------------------------------

_STATEMENTS = {
    "nothing": "Nothing in the library matches this question.",
    "filtered": "No passage that matches the filters was found.",
    "nothing_found": "The library seems to hold nothing on this. The nearest passages are:",
    "closest": "This may not be the answer. What comes closest:",
    "no_answer": (
        "No passage clearly answers this question. The closest ones, which may not answer it:"
    ),
    "pictures": "No text can be quoted, but a model read this in pictures, perhaps with errors:",
    "failed": "The answer could not be written; these are the passages found:",
    "unreachable": "The library could not be searched: {reason}",
}


def list_passages(
    kind: str, language: str, passages: Sequence[tuple[Hit, str]], reason: str = ""
) -> tuple[str, tuple[Citation, ...]]:
    """(a statement in Chinese or English and the closest passages as Markdown, their citations).

    `kind` is a key of `_STATEMENTS`. Each passage comes with its sentence nearest to the question;
    where that is empty, its beginning is shown if nothing in it can be quoted, as of an image.
    """
    lines = [translate_filled(_STATEMENTS[kind].format(reason=reason), language)]
    if passages:
        lines.append("")
    cited: list[Citation] = []
    for n, (hit, sentence) in enumerate(passages, 1):
        at = hit.chunk_text.find(sentence) if sentence else -1
        spans = ((at, at + len(sentence)),) if at >= 0 else ()
        cited.append(narrow(dataclasses.replace(make_citation(n, hit), spans=spans)))
        title = hit.doc_title or hit.filename
        names = split_path(cited[-1].quote_section or hit.section_path)
        path = JOINT.join(names[names[:1] == [title] :])
        section = f" ({path})" if path else ""
        if not hit.chunk_text:
            sentence = show_picture(hit.asset_ids, sentence or hit.picture_text)
        shown = sentence or ("" if read_layout(hit.chunk_text).parts else hit_text(hit))
        snippet = f": {escape_marks(shorten(shown, SNIPPET_CHARS))}" if shown else ""
        lines.append(f"- **{title}**{section}{snippet} [{n}]")
    return "\n".join(lines), tuple(cited)


def _find_sentence(query: QueryIR, hit: Hit) -> str:
    """The sentence of a passage, or of the text in a picture, that best matches the question."""
    text = hit.chunk_text or hit.picture_text
    return find_sentence(query, dataclasses.replace(hit, chunk_text=text))


def mark_closest(text: str, language: str) -> str:
    """The quotes, preceded by a statement that they may not be the answer."""
    return f"{translate_filled(_STATEMENTS['closest'], language)}\n\n{text}"
