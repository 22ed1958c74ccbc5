"""The sections of a strategy that determine how a question is answered; none of them changes the
content of an index. Each may have an `llm` of its own, else the strategy's is used.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator


class Section(BaseModel):
    """A part of the configuration: immutable, unknown keys are refused."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    # obsolete keys in files of older versions, with the reason; they are ignored
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
    """Whether a language model rewrites the question and writes search phrasings for it."""

    # None: if a language model is configured and the caller gave no phrasings
    enabled: bool | None = None
    llm: ProviderConfig | None = None
    prompt: str = "query/rewrite"
    # phrasings searched in addition to the question
    queries: int = Field(default=3, ge=0, le=4)
    timeout_ms: int = Field(default=3_000, ge=1)


class InferenceConfig(Section):
    """Which filters are inferred from a question."""

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
        "product_version",  # in paths like django-5.2/
    )
    # "中文,简体中文,zh": zh; in addition to the built-in ones
    language_aliases: dict[str, str] = Field(default_factory=dict)
    media_type_by_keyword: dict[str, str] = Field(default_factory=dict)
    # repeat a question without the inferred filter if that matches nothing
    relax_once: bool = False
    sample_rate: float = Field(default=0.01, ge=0, le=1)  # share of such misses that are logged


class QueryConfig(Section):
    """How a question is prepared for the retrievers."""

    # word to its synonyms
    synonyms: dict[str, tuple[str, ...]] = Field(default_factory=dict)
    synonyms_path: str = ""  # a YAML file of the same form, relative to the config folder
    # of a synonym; the question's own words weigh 1
    expansion_weight: float = Field(default=0.4, ge=0, le=1)
    max_expansions: int = Field(default=12, ge=0, le=100)
    # do not search the lexical index for which, how, 什么 and the like
    drop_function_words: bool = True
    # search for the words of a Chinese question also in English, if no Chinese document has most of
    # them, and the other way round
    translate: bool = True
    function_words: tuple[str, ...] = ()  # additional ones
    rewrite: RewriteConfig = RewriteConfig()
    inference: InferenceConfig = InferenceConfig()


# --- candidates and hits ------------------------------------------------------------------------


class RetrievalConfig(Section):
    """How many candidates flow through the query path."""

    mode: Literal["dense", "sparse", "hybrid"] = "hybrid"
    # maximum results after reranking, grouping and de-duplication
    top_k: int = Field(default=8, ge=1, le=100)
    pool_k: int = Field(default=50, ge=1, le=1000)  # candidates of each retriever
    rerank_k: int = Field(default=0, ge=0, le=1000)  # candidates kept after reranking; 0: all
    # for the dense retriever's score, mapped to 0..1; None: no threshold
    score_threshold: float | None = Field(default=None, ge=0, le=1)
    # up to so many vectors are scanned, more use the ANN index; None: by cost and measured recall
    exact_scan_rows: int | None = None
    # a release's ANN index is not used if its recall@10 against the scan is lower
    ann_recall: float = Field(default=0.95, ge=0, le=1)
    max_per_document: int = Field(default=0, ge=0)  # 0: no limit
    dedupe: bool = True  # of hits with equal text show only the best one
    # hits of this similarity count as equal too; 0: only equal texts
    dedupe_threshold: float = Field(default=0.0, ge=0, le=1)
    # weight of relevance against novelty; 1: relevance alone
    mmr_lambda: float = Field(default=1.0, ge=0, le=1)
    # of the parts of a joined embedder, for a question in a language that no document has;
    # similarities are weighted by the squares; none: as in the vectors
    foreign_weights: tuple[float, ...] = ()
    # the same for a question of whose words the documents in its language have few, if others are
    # in English or Chinese
    mixed_weights: tuple[float, ...] = ()
    # boost of documents that the question names, as a share of the score range; 0: off
    named_documents: float = Field(default=0.5, ge=0, le=2)
    # pseudo-relevance feedback: hits of the fusion with which the dense search is repeated; 0: off
    feedback_hits: int = Field(default=0, ge=0, le=20)
    # of their mean vector, relative to the question's
    feedback_weight: float = Field(default=0.5, ge=0, le=2)
    # search everything again, or only rescore the candidates, which costs almost nothing
    feedback_scope: Literal["all", "pool"] = "all"
    stage_seconds: float = Field(default=10.0, gt=0)
    query_seconds: float = Field(default=60.0, gt=0)


class RerankConfig(ProviderConfig):
    """Which reranker, its input, and how its scores are shown."""

    provider: str = "none"
    # candidates that it scores; the others follow in their previous order
    top_n: int = Field(default=20, ge=1, le=1000)
    timeout_ms: int = Field(default=800, ge=1)
    batch_size: int = Field(default=16, ge=1)
    score_mode: Literal["rank", "normalize", "raw"] = "raw"
    normalize: Literal["min_max", "sigmoid", "softmax", "zscore"] = "min_max"
    score_threshold: float | None = None  # hits with a lower normalised score are dropped
    # rerank only if the confidence of the fusion is lower
    only_below_confidence: float | None = Field(default=None, ge=0, le=1)
    # of each soft preference, as a share of the score range
    preference_weight: float = Field(default=0.1, ge=0, le=1)


# --- evidence and answer ------------------------------------------------------------------------


class ContextConfig(Section):
    """The evidence for the answerer."""

    max_tokens: int = Field(default=3000, ge=1)
    max_chunks: int = Field(default=8, ge=1)
    # parent: a child hit is replaced by the text of its parent
    mode: Literal["chunk", "parent", "neighbours"] = "parent"
    # chunks before and after, in mode neighbours
    neighbours: int = Field(default=1, ge=0, le=5)
    order: Literal["rank", "document"] = "rank"
    group_by: Literal["none", "document", "section"] = "none"
    # drop a text if a better one has this share of its word pairs; 0: equal texts only
    dedupe_threshold: float = Field(default=0.9, ge=0, le=1)
    # the same by cosine similarity, if vectors are available
    dedupe_cosine: float = Field(default=0.97, ge=0, le=1)
    # weight of relevance against novelty; 1: relevance alone
    mmr_lambda: float = Field(default=1.0, ge=0, le=1)
    max_per_document: int = Field(default=0, ge=0)
    format: Literal["markdown", "xml", "plain"] = "markdown"
    tokenizer: str = "estimate"  # estimate, or a tokenizer known to text.tokens


class AnswererConfig(ProviderConfig):
    """Which provider writes the answer, and when there is none."""

    provider: str = "extractive"
    llm: ProviderConfig | None = None
    prompt: str = "retrieval/answer"
    # with less a question is not `answered`; None: the calibrated threshold in
    # answering/states.yaml
    min_confidence: float | None = Field(default=None, ge=0, le=1)
    timeout_ms: int = Field(default=30_000, ge=1)
    flag_unsupported: bool = True


class SummaryConfig(Section):
    """How documents are summarised."""

    # auto: by a model if one is configured; llm: an error without
    method: Literal["auto", "llm", "textrank"] = "auto"
    llm: ProviderConfig | None = None
    timeout_ms: int = Field(default=120_000, ge=1)
    max_sections: int = Field(default=200, ge=1)
    call_tokens: int = Field(default=6000, ge=200)  # of sections or notes per call
    parallel: int = Field(default=4, ge=1, le=32)  # concurrent calls
