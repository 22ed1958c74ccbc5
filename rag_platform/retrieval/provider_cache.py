"""The providers of the read side: each is built once, calls of language models are metered, and
those to an endpoint limited.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

from rag_platform import registry
from rag_platform.caching import Cache
from rag_platform.config import prompts
from rag_platform.config.ingestion import EmbeddingConfig
from rag_platform.config.query import AnswererConfig, ProviderConfig, RerankConfig
from rag_platform.config.settings import Settings, Strategy, canonical_json, fingerprint
from rag_platform.errors import ConfigError
from rag_platform.observability import faults, tracing
from rag_platform.processes.limits import Gate, Metered
from rag_platform.protocols import LLM, Answerer, Embedder, Vectors
from rag_platform.storage.store import Store
from rag_platform.traits import Traits


@dataclass(frozen=True, slots=True)
class Built:
    """A provider and the fields that name it in spans."""

    instance: Any
    span: dict[str, str]

    @property
    def traits(self) -> Traits:
        """What the provider declares."""
        return registry.traits_of(self.instance)


class Models:
    """Builds providers from their configuration; safe for any number of threads."""

    def __init__(self, settings: Settings) -> None:
        # the same for ever, so only their number counts
        self.vectors: Cache[Vectors] = Cache(settings.caches.query_vectors)
        self._calls = settings.load.provider_calls
        self._cache_folder = Store.of(settings).embeddings_path.parent
        self._built: dict[tuple[str, ...], Built] = {}
        self._gates: dict[str, Gate] = {}
        self._loaded: set[int] = set()

    def provider(self, kind: str, config: ProviderConfig | EmbeddingConfig) -> Built:
        """The provider of a config. Raises ConfigError for a wrong name, package or option."""
        if isinstance(config, EmbeddingConfig):
            more = str(config.price_per_million_tokens or "")
            return self._keep(kind, config, more, lambda: self._build_embedder(config))
        return self._keep(
            kind, config, "", lambda: registry.build(kind, config.provider, config.options)
        )

    def llm(self, config: ProviderConfig | None, strategy: Strategy) -> LLM | None:
        """The metered and limited language model of a section, by default the strategy's; None
        without one.
        """
        config = config or strategy.llm
        if config.provider == "none":
            return None
        model = self.provider("llm", config).instance
        return Metered(model, self._gate(f"language model {config.provider!r}", config))

    def reranker(self, strategy: Strategy) -> Built:
        """The strategy's reranker, with the model of its option `llm` or of the strategy."""
        config = fill_timeout(strategy.reranker)
        if not registry.traits("reranker", config.provider).uses_llm:
            return self.provider("reranker", config)
        options = dict(config.options)
        options.pop("llm", None)
        chosen = _llm_of(config.options)
        if (model := self.llm(chosen, strategy)) is None:
            raise ConfigError(
                f"reranker {config.provider!r} needs a language model; set its option llm, or llm"
                " in the strategy",
                code="no_model",
            )
        named = canonical_json((chosen or strategy.llm).model_dump(mode="json"))
        return self._keep(
            "reranker",
            config,
            named,
            lambda: registry.build("reranker", config.provider, {**options, "model": model}),
        )

    def answerer(self, strategy: Strategy) -> Built:
        """The strategy's answerer. Raises ConfigError `no_model` when its model is missing."""
        config, form = strategy.answerer, strategy.context.format
        if not registry.traits("answerer", config.provider).uses_llm:
            return self._keep("answerer", config, "", lambda: build_answerer(config, None))

        named = canonical_json(
            [(config.llm or strategy.llm).model_dump(mode="json"), config.prompt, form]
        )
        return self._keep(
            "answerer",
            config,
            named,
            lambda: build_answerer(config, self.llm(config.llm, strategy), format=form),
        )

    def find_unloaded(
        self, strategy: Strategy, *, dense: bool, rerank: bool, answer: bool
    ) -> dict[str, Built]:
        """The providers that a question will call and that are not loaded yet, by kind. What cannot
        be built is left out; its stage reports it.
        """
        wanted: dict[str, Callable[[], Built | None]] = {}
        if dense:
            wanted["embedder"] = lambda: self.provider("embedder", strategy.embedding)
        if self.rewrites(strategy):
            wanted["llm of the rewriting"] = lambda: self._model(
                strategy.query.rewrite.llm, strategy
            )
        if rerank:
            uses_llm = registry.traits("reranker", strategy.reranker.provider).uses_llm
            wanted["reranker"] = lambda: (
                self._model(_llm_of(strategy.reranker.options), strategy)
                if uses_llm
                else self.reranker(strategy)
            )
        if answer and registry.traits("answerer", strategy.answerer.provider).uses_llm:
            wanted["llm of the answer"] = lambda: self._model(strategy.answerer.llm, strategy)
        found: dict[str, Built] = {}
        for kind, make in wanted.items():
            with faults.Attempt("model.build"):
                built = make()
                if (
                    built is not None
                    and hasattr(built.instance, "load")
                    and id(built.instance) not in self._loaded
                ):
                    found[kind] = built
        return found

    def load(self, built: Built) -> None:
        """Load a provider, in a span of its own. Raises what its `load` raises."""
        with tracing.span("model.load", **built.span):
            built.instance.load()
        # instances are kept for good, so no other one gets the number
        self._loaded.add(id(built.instance))

    def _model(self, config: ProviderConfig | None, strategy: Strategy) -> Built | None:
        config = config or strategy.llm
        return None if config.provider == "none" else self.provider("llm", config)

    def rewrites(self, strategy: Strategy) -> bool:
        """True where a language model rewrites questions: where one is configured, unless
        `query.rewrite.enabled` says otherwise.
        """
        config = strategy.query.rewrite
        if config.enabled is not None:
            return config.enabled
        return (config.llm or strategy.llm).provider != "none"

    def prompts_of(self, kind: str, config: ProviderConfig) -> str:
        """A fingerprint of all prompts where the provider uses a language model, else empty."""
        return prompts.fingerprint_all() if registry.traits(kind, config.provider).uses_llm else ""

    def question_prompts(self, strategy: Strategy) -> str:
        """A fingerprint of all prompts where any part of a question uses a language model, else
        empty.
        """
        if self.rewrites(strategy):
            return prompts.fingerprint_all()
        return self.prompts_of("reranker", strategy.reranker) or self.prompts_of(
            "answerer", strategy.answerer
        )

    def limit_calls(self, kind: str, built: Built, config: ProviderConfig) -> Any:
        """A context that waits for a place where the provider is on another machine."""
        return (
            self._gate(f"{kind} {config.provider!r}", config).enter()
            if built.traits.remote
            else nullcontext()
        )

    def computes_here(self, strategy: Strategy) -> bool:
        """True where a question needs only milliseconds of this processor: no remote or large
        model.
        """
        quick = all(
            registry.traits(kind, config.provider).quick
            for kind, config in (("reranker", strategy.reranker), ("answerer", strategy.answerer))
        )
        embedder = registry.traits("embedder", strategy.embedding.provider)
        slow = strategy.builds_dense and (embedder.remote or embedder.large)
        return quick and not slow and not self.rewrites(strategy)

    def query_vectors(
        self, config: EmbeddingConfig, texts: Sequence[str]
    ) -> tuple[list[Vectors], bool]:
        """(a unit vector [dim] for each question, whether all were remembered), in one call. Raises
        what the embedder raises.
        """
        space = canonical_json([config.provider, config.options])
        known = {text: self.vectors.get((space, text)) for text in dict.fromkeys(texts)}
        missing = [text for text, vector in known.items() if vector is None]
        if missing:
            made = self.embed(config, missing, query=True)
            for text, vector in zip(missing, made, strict=True):
                known[text] = vector
                self.vectors.put((space, text), vector)
        return [vector for text in texts if (vector := known[text]) is not None], not missing

    def embed(
        self, config: EmbeddingConfig, texts: Sequence[str], *, query: bool = False
    ) -> Vectors:
        """Unit vectors [n, dim] of texts, made anew. Raises what the embedder raises."""
        built = self.provider("embedder", config)
        embedder: Embedder = built.instance
        with self.limit_calls(
            "embedder", built, ProviderConfig(provider=config.provider, options=config.options)
        ):
            return embedder.embed(texts, query=query)

    def _keep(
        self,
        kind: str,
        config: ProviderConfig | EmbeddingConfig,
        more: str,
        make: Callable[[], Any],
    ) -> Built:
        key = (kind, config.provider, canonical_json(config.options), more)
        found = self._built.get(key)
        if found is None:
            version = registry.provider_version(kind, config.provider)
            span = {
                "provider_type": kind,
                "provider_id": config.provider,
                "provider_version": version,
                "profile_id": fingerprint(kind, config.provider, config.options, length=12),
            }
            found = self._built.setdefault(key, Built(make(), span))
        return found

    def _build_embedder(self, config: EmbeddingConfig) -> Any:
        options = registry.with_cache_folder(
            config.provider, config.call_options, self._cache_folder
        )
        return registry.build("embedder", config.provider, options)

    def _gate(self, name: str, config: ProviderConfig) -> Gate:
        """The gate of an endpoint, one for each set of options."""
        key = canonical_json([name, config.options])
        found = self._gates.get(key)
        return found if found is not None else self._gates.setdefault(key, Gate(name, self._calls))


def fill_timeout(config: RerankConfig) -> RerankConfig:
    """The section with its `timeout_ms` as an option of a provider that takes one and has none."""
    if (
        not registry.takes("reranker", config.provider, "timeout_ms")
        or "timeout_ms" in config.options
    ):
        return config
    return config.model_copy(
        update={"options": {**config.options, "timeout_ms": config.timeout_ms}}
    )


def _llm_of(options: Mapping[str, Any]) -> ProviderConfig | None:
    """The language model that a reranker's options name, if any."""
    own = options.get("llm")
    return ProviderConfig.model_validate(own) if own else None


def build_answerer(config: AnswererConfig, llm: LLM | None, *, format: str = "") -> Answerer:
    """The answerer of that config, with its language model, prompt and passage format where it uses
    one. Raises ConfigError `no_model` when the model is missing.
    """
    made: Any = registry.build("answerer", config.provider, config.options)
    if not registry.traits_of(made).uses_llm:
        return made  # type: ignore[no-any-return]
    if llm is None:
        raise ConfigError(
            f"answerer {config.provider!r} needs a language model; set answerer.llm or llm in the"
            " strategy, or take `extractive`",
            code="no_model",
        )
    changes = {"format": format} if format and "format" not in config.options else {}
    return dataclasses.replace(made, llm=llm, prompt=config.prompt, **changes)  # type: ignore[no-any-return]
