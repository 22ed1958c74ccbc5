"""The sections of a strategy that decide how a question is answered; none of them changes what an
index holds.

Each may name a language model of its own; where its `llm` is absent the strategy's counts.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator


class Section(BaseModel):
    """A part of the configuration: unknown keys are refused, values never change."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    # keys that files of older versions hold, and why they mean nothing any more
    RETIRED: ClassVar[Mapping[str, str]] = {}

    @model_validator(mode="before")
    @classmethod
    def _without_retired(cls, values: Any) -> Any:
        if not cls.RETIRED or not isinstance(values, Mapping):
            return values
        return {key: value for key, value in values.items() if key not in cls.RETIRED}


class ProviderConfig(Section):
    """A provider's registry name and its options."""

    provider: str
    options: dict[str, Any] = Field(default_factory=dict)


# --- the question -------------------------------------------------------------------------------


class RewriteConfig(Section):
    """Whether a language model rewrites the question and phrases searches for it."""

    # None: where a language model is configured, of questions that bring no phrasings of their own
    enabled: bool | None = None
    llm: ProviderConfig | None = None
    prompt: str = "query/rewrite"
    # search phrasings that are searched beside the question
    queries: int = Field(default=3, ge=0, le=4)
    timeout_ms: int = Field(default=3_000, ge=1)


class InferenceConfig(Section):
    """Which filters are inferred from the words of a question."""

    enabled: bool = True
    fields: tuple[str, ...] = (
        "lang",
        "media_type",
        "content_type",
        "created_at",
        "doc_date",
        "quality_score",
        "tags",
        "keyphrases",
        "source",
    )
    # "中文,简体中文,zh": zh; beside the built-in ones
    language_aliases: dict[str, str] = Field(default_factory=dict)
    media_type_by_keyword: dict[str, str] = Field(default_factory=dict)
    # a question whose inferred filter matches nothing is asked again without it
    relax_once: bool = False
    sample_rate: float = Field(default=0.01, ge=0, le=1)  # share of such misses that are logged


class QueryConfig(Section):
    """How a question is prepared for the retrievers."""

    # word to what it may be called as well
    synonyms: dict[str, tuple[str, ...]] = Field(default_factory=dict)
    synonyms_path: str = ""  # a YAML file of the same form, relative to the config folder
    # of a synonym, the question's own words weighing 1
    expansion_weight: float = Field(default=0.4, ge=0, le=1)
    max_expansions: int = Field(default=12, ge=0, le=100)
    # which, how, 什么 and the like are not looked for in the word index
    drop_function_words: bool = True
    function_words: tuple[str, ...] = ()  # further ones
    rewrite: RewriteConfig = RewriteConfig()
    inference: InferenceConfig = InferenceConfig()


# --- candidates and hits ------------------------------------------------------------------------


class RetrievalConfig(Section):
    """How many candidates flow through the query path."""

    mode: Literal["dense", "sparse", "hybrid"] = "hybrid"
    # results at most, after reranking, grouping and de-duplication
    top_k: int = Field(default=8, ge=1, le=100)
    pool_k: int = Field(default=50, ge=1, le=1000)  # candidates of each retriever
    rerank_k: int = Field(default=0, ge=0, le=1000)  # candidates that go on after reranking; 0: all
    # of the dense retriever's score, mapped to 0..1; None: no threshold
    score_threshold: float | None = Field(default=None, ge=0, le=1)
    # up to so many vectors are scanned, above the ANN index is asked; None: by cost and measured
    # recall
    exact_scan_rows: int | None = None
    # recall@10 against the scan below which a release's ANN index is not asked
    ann_recall: float = Field(default=0.95, ge=0, le=1)
    max_per_document: int = Field(default=0, ge=0)  # 0: no limit
    dedupe: bool = True  # of hits with equal text only the best one is shown
    # hits as similar as this are one too; 0: only equal ones
    dedupe_threshold: float = Field(default=0.0, ge=0, le=1)
    # weight of relevance against novelty; 1: relevance alone
    mmr_lambda: float = Field(default=1.0, ge=0, le=1)
    # of the parts of a joined embedder, for a question in a language of no text: similarities count
    # by their squares; none: as in the vectors
    foreign_weights: tuple[float, ...] = ()
    # of the scores' range is what a document gains that the question names; 0: off
    named_documents: float = Field(default=0.5, ge=0, le=2)
    # the best hits of the fusion; the dense retriever is asked again with their vectors; 0: not
    feedback_hits: int = Field(default=0, ge=0, le=20)
    # of their mean vector beside the question's
    feedback_weight: float = Field(default=0.5, ge=0, le=2)
    # search everything again, or score what was found again, which costs next to nothing
    feedback_scope: Literal["all", "pool"] = "all"
    stage_seconds: float = Field(default=10.0, gt=0)
    query_seconds: float = Field(default=60.0, gt=0)


class RerankConfig(ProviderConfig):
    """Which reranker, what it sees and how its scores are shown."""

    provider: str = "none"
    # candidates that it reads; the others follow in their former order
    top_n: int = Field(default=20, ge=1, le=1000)
    timeout_ms: int = Field(default=800, ge=1)
    batch_size: int = Field(default=16, ge=1)
    score_mode: Literal["rank", "normalize", "raw"] = "raw"
    normalize: Literal["min_max", "sigmoid", "softmax", "zscore"] = "min_max"
    score_threshold: float | None = None  # hits below it, after normalisation, are dropped
    # reranks only when the fusion is less sure than that
    only_below_confidence: float | None = Field(default=None, ge=0, le=1)
    # of each soft preference, as a share of the score range
    preference_weight: float = Field(default=0.1, ge=0, le=1)


# --- evidence and answer ------------------------------------------------------------------------


class ContextConfig(Section):
    """The evidence handed to the answerer."""

    max_tokens: int = Field(default=3000, ge=1)
    max_chunks: int = Field(default=8, ge=1)
    # parent: a child hit brings the text of its parent where it has one
    mode: Literal["chunk", "parent", "neighbours"] = "parent"
    # chunks before and after, in the mode neighbours
    neighbours: int = Field(default=1, ge=0, le=5)
    order: Literal["rank", "document"] = "rank"
    group_by: Literal["none", "document", "section"] = "none"
    # share of a text's word pairs that a better one has; 0: equal texts only
    dedupe_threshold: float = Field(default=0.9, ge=0, le=1)
    # the same by vectors, where the caller has them
    dedupe_cosine: float = Field(default=0.97, ge=0, le=1)
    # weight of relevance against novelty; 1: relevance alone
    mmr_lambda: float = Field(default=1.0, ge=0, le=1)
    max_per_document: int = Field(default=0, ge=0)
    format: Literal["markdown", "xml", "plain"] = "markdown"
    tokenizer: str = "estimate"  # estimate, or a tokenizer that the module of tokens knows


class AnswererConfig(ProviderConfig):
    """Who writes the answer, and when none is given."""

    provider: str = "extractive"
    llm: ProviderConfig | None = None
    prompt: str = "retrieval/answer"
    # below it a question is not `answered`; None: the calibrated threshold of answering/states.yaml
    min_confidence: float | None = Field(default=None, ge=0, le=1)
    timeout_ms: int = Field(default=30_000, ge=1)
    flag_unsupported: bool = True


class SummaryConfig(Section):
    """How documents are summarised."""

    # auto: a model where one is configured; llm: raises without
    method: Literal["auto", "llm", "textrank"] = "auto"
    llm: ProviderConfig | None = None
    timeout_ms: int = Field(default=120_000, ge=1)
    max_sections: int = Field(default=200, ge=1)
    call_tokens: int = Field(default=6000, ge=200)  # of sections or notes in one call
    parallel: int = Field(default=4, ge=1, le=32)  # calls at a time
