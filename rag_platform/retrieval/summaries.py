"""Summaries of a document: a language model over its sections where one is configured, else its most central sentences."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from rag_platform.config_query import SummaryConfig
from rag_platform.ir import Json
from rag_platform.protocols import LLM
from rag_platform.retrieval.contract import SummaryData
from rag_platform.retrieval.library import Library

Style = Literal["short", "bullet", "detailed"]
STYLES: tuple[Style, ...] = ("short", "bullet", "detailed")


@dataclass(frozen=True, slots=True)
class Part:
    """A section to be summarised."""

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


def summarise(sections: Sequence[Part], config: SummaryConfig, style: Style = "short", llm: LLM | None = None) -> Summary:
    """The summary of a document's sections."""
    raise NotImplementedError


def summarize_document(
    library: Library, namespace: str, doc_id: str, *, style: str = "short", llm: LLM | None = None, config: SummaryConfig | None = None
) -> SummaryData:
    """The summary of a document of the published release, as the public contract has it."""
    raise NotImplementedError
