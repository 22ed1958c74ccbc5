"""The sections of a strategy that determine how documents are read, chunked and embedded; changing
one rebuilds everything that depends on it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Literal

from pydantic import Field, field_validator

from rag_platform import registry
from rag_platform.config.query import ProviderConfig, Section
from rag_platform.config.user_patterns import compile_pattern
from rag_platform.errors import ConfigError

# The placeholders of the prompt `describe/chunk`.
DESCRIBE_FIELDS = ("section_path", "text")


class LoadingConfig(Section):
    """Loaders, of which the first that accepts a file reads it."""

    loaders: tuple[ProviderConfig, ...]


class MediaConfig(Section):
    """Which images are kept, and how pages are drawn."""

    fetch_remote: bool = False
    max_pixels: int = 50_000_000
    max_bytes: int = 20 * 1024 * 1024
    page_dpi: int = Field(default=150, ge=50, le=600)  # of pictures of pages without text
    page_pixels: int = 4_000_000  # larger pictures are scaled down


class CaptionConfig(Section):
    """Which model captions images, and how it is called."""

    provider: str = "none"  # a provider of the kind `llm`
    options: dict[str, Any] = Field(default_factory=dict)
    # models by region and load; options take precedence
    preset: Literal["", "abroad", "abroad_batch", "china", "china_batch"] = ""
    lang: Literal["zh", "en", "auto"] = "auto"
    context_scope: Literal["local", "none"] = "local"
    context_chars: int = Field(default=1200, ge=800, le=1500)
    inject: Literal["summary", "full"] = "full"  # the part of a caption in views
    max_images_per_doc: int = Field(default=50, ge=0)
    min_pixels: int = 10_000  # smaller images are icons and rules
    parallel: int = Field(default=2, ge=1, le=16)


class MediaTextConfig(Section):
    """OCR and captions of images, on which only views depend."""

    ocr: ProviderConfig = ProviderConfig(provider="none")
    ocr_min_pixels: int = 4_000  # smaller images are icons and rules
    ocr_max_images_per_doc: int = Field(default=1000, ge=0)
    ocr_seconds: float = 60.0  # for one image
    ocr_max_lines: int = Field(default=0, ge=0)  # of an image in views, 0: all
    captions: CaptionConfig = CaptionConfig()


class NoiseRule(Section):
    """Noise: matches of `pattern` are replaced in the normalised text, never in the facts."""

    pattern: str  # `^` and `$` match at line boundaries
    replacement: str = Field(default="", max_length=200)  # literal
    # text: outside code; lines: whole lines outside code; everywhere: also code
    scope: Literal["text", "lines", "everywhere"] = "text"

    @field_validator("pattern")
    @classmethod
    def _usable(cls, pattern: str) -> str:
        try:
            compile_pattern(pattern)
        except ConfigError as error:
            raise ValueError(error.message) from error
        return pattern


class CleaningConfig(Section):
    """Normalisation before chunking, and the canonical form behind fingerprints.

    Every rule becomes edits of the normalised text: chunks lack what it removes, facts keep it, and
    citations map back to the facts.
    """

    unicode_form: Literal["NFC", "NFKC"] = "NFKC"
    max_blank_lines: int = 1
    join_cjk_lines: bool = True
    drop_page_headers: bool = True
    drop_urls: bool = False  # bare ones and those of links, which keep their text, and images
    drop_emails: bool = False
    noise: tuple[NoiseRule, ...] = Field(default=(), max_length=50)


class Stopwords(Section):
    """Words that are never keyphrases, in addition to the built-in ones."""

    path: str = ""  # UTF-8, one word per line, `#` for comments; relative to the config folder


class KeyphraseConfig(Section):
    """How the keyphrases of chunks and questions are extracted; keybert calls the strategy's
    embedder for every chunk, which is slow.
    """

    method: Literal["textrank", "light", "keybert", "none"] = "textrank"
    topk: int = Field(default=10, ge=1, le=50)
    lang: Literal["auto", "zh", "en"] = "auto"
    stopwords: Stopwords = Stopwords()


class QualityWeights(Section):
    """The weights of the quality score; its formula is in documents/quality.py."""

    garbled: float = Field(default=0.4, ge=0)
    valid: float = Field(default=0.2, ge=0)
    length: float = Field(default=0.2, ge=0)
    ocr: float = Field(default=0.2, ge=0)


class QualityObservability(Section):
    """When low scores are logged and cause warnings."""

    enabled: bool = True
    threshold: float = Field(default=0.6, ge=0, le=1)
    # share of low chunks above which a document gets a warning
    alert_ratio: float = Field(default=0.2, ge=0, le=1)
    # share of the low chunks that are logged individually
    sample_rate: float = Field(default=0.01, ge=0, le=1)


class QualityConfig(Section):
    """How the quality of a chunk is scored."""

    min_len: int = Field(default=20, ge=0)
    sat_len: int = Field(default=200, ge=1)
    weights: QualityWeights = QualityWeights()
    observability: QualityObservability = QualityObservability()


class DescribeConfig(Section):
    """Which language model, if any, writes a title, a summary and tags for each chunk."""

    provider: str = "none"  # a provider of the kind `llm`
    options: dict[str, Any] = Field(default_factory=dict)
    parallel: int = Field(default=4, ge=1, le=32)


class ViewConfig(Section):
    """Templates of the retrieval texts, and the features computed for each chunk.

    Fields: `{text}`, `{headings}`, `{terms}`, `{keyphrases}`, and with a model for `describe`
    `{title}`, `{summary}`, `{tags}`.
    """

    RETIRED: ClassVar[Mapping[str, str]] = {
        "enricher": "no enricher ever added a word; `describe` lets a model add some"
    }

    dense_template: str = "{text}"
    sparse_template: str = "{text}\n{terms}"
    keyphrases: KeyphraseConfig = KeyphraseConfig()
    quality: QualityConfig = QualityConfig()
    describe: DescribeConfig = DescribeConfig()


class EmbeddingConfig(Section):
    """Which embedder, and how it is called."""

    provider: str
    options: dict[str, Any] = Field(default_factory=dict)
    batch_size: int = Field(default=64, ge=1)
    # for cost estimates; None if embedding is free
    price_per_million_tokens: float | None = None

    @property
    def call_options(self) -> dict[str, Any]:
        """The options with the price, if the provider takes one; profiles only depend on
        `options`.
        """
        if self.price_per_million_tokens is None or not registry.takes(
            "embedder", self.provider, "price_input"
        ):
            return self.options
        return {"price_input": self.price_per_million_tokens, **self.options}
