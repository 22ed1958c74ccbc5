"""The providers of the read side: each is built once, calls of language models are metered, and
concurrent calls of an endpoint limited.
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
from rag_platform.config.settings import Settings, Strategy, canonical_json
from rag_platform.errors import ConfigError
from rag_platform.observability import faults, tracing
from rag_platform.processes.limits import Gate, Metered
from rag_platform.protocols import LLM, Answerer, Embedder, Vectors
from rag_platform.storage.store import Store
from rag_platform.traits import Traits


@dataclass(frozen=True, slots=True)
class Built:
    """A provider, and the span fields that identify it."""

    instance: Any
    span: dict[str, str]

    @property
    def traits(self) -> Traits:
        return registry.traits_of(self.instance)


class Models:
    """Builds providers from their configuration; safe for any number of threads."""

    def __init__(self, settings: Settings) -> None:
        # never outdated, so limited by number only
        self.vectors: Cache[Vectors] = Cache(settings.caches.query_vectors)
        self._calls = settings.load.provider_calls
        self._cache_folder = Store.of(settings).embeddings_path.parent
        self._built: dict[tuple[str, ...], Built] = {}
        self._gates: dict[str, Gate] = {}
        self._loaded: set[int] = set()

    def provider(self, kind: str, config: ProviderConfig | EmbeddingConfig) -> Built:
        """The provider of a config. Raises ConfigError for an unknown provider, a missing package
        or an invalid option.
        """
        if isinstance(config, EmbeddingConfig):
            price = str(config.price_per_million_tokens or "")
            return self._build_once(kind, config, price, lambda: self._build_embedder(config))
        return self._build_once(
            kind, config, "", lambda: registry.make_provider(kind, config.provider, config.options)
        )

    def llm(self, config: ProviderConfig | None, strategy: Strategy) -> LLM | None:
        """The language model of a config section, by default the strategy's, metered and with
        limited concurrency; None without one.
        """
        config = config or strategy.llm
        if config.provider == "none":
            return None
        model = self.provider("llm", config).instance
        return Metered(model, self._gate(f"language model {config.provider!r}", config))

    def reranker(self, strategy: Strategy) -> Built:
        """The strategy's reranker, with the model of its option `llm` or of the strategy. Raises
        ConfigError `no_model` when its model is missing.
        """
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
        llm_config = canonical_json((chosen or strategy.llm).model_dump(mode="json"))
        return self._build_once(
            "reranker",
            config,
            llm_config,
            lambda: registry.make_provider(
                "reranker", config.provider, {**options, "model": model}
            ),
        )

    def answerer(self, strategy: Strategy) -> Built:
        """The strategy's answerer. Raises ConfigError `no_model` when its model is missing."""
        config, form = strategy.answerer, strategy.context.format
        if not registry.traits("answerer", config.provider).uses_llm:
            return self._build_once("answerer", config, "", lambda: build_answerer(config, None))

        more = canonical_json(
            [(config.llm or strategy.llm).model_dump(mode="json"), config.prompt, form]
        )
        return self._build_once(
            "answerer",
            config,
            more,
            lambda: build_answerer(config, self.llm(config.llm, strategy), format=form),
        )

    def find_unloaded(
        self, strategy: Strategy, *, dense: bool, rerank: bool, answer: bool
    ) -> dict[str, Built]:
        """The providers, by kind, that a question will call and that are not loaded yet. One that
        cannot be built is left out, and reported by its stage.
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
        # instances are never freed, so their ids stay unique
        self._loaded.add(id(built.instance))

    def _model(self, config: ProviderConfig | None, strategy: Strategy) -> Built | None:
        config = config or strategy.llm
        return None if config.provider == "none" else self.provider("llm", config)

    def rewrites(self, strategy: Strategy) -> bool:
        """True where a language model rewrites questions: by `query.rewrite.enabled`, by default
        where a model is configured.
        """
        config = strategy.query.rewrite
        if config.enabled is not None:
            return config.enabled
        return (config.llm or strategy.llm).provider != "none"

    def prompts_of(self, kind: str, config: ProviderConfig) -> str:
        """A fingerprint of all prompts if the provider uses a language model, else empty."""
        return prompts.fingerprint_all() if registry.traits(kind, config.provider).uses_llm else ""

    def question_prompts(self, strategy: Strategy) -> str:
        """A fingerprint of all prompts if any stage uses a language model, else empty."""
        if self.rewrites(strategy):
            return prompts.fingerprint_all()
        return self.prompts_of("reranker", strategy.reranker) or self.prompts_of(
            "answerer", strategy.answerer
        )

    def limit_calls(self, kind: str, built: Built, config: ProviderConfig) -> Any:
        """A context manager that limits concurrent calls of a remote provider."""
        return (
            self._gate(f"{kind} {config.provider!r}", config).enter()
            if built.traits.remote
            else nullcontext()
        )

    def computes_here(self, strategy: Strategy) -> bool:
        """True where a question takes only milliseconds on this machine, without a remote or large
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
        """(a unit vector [dim] for each question, whether all were cached). The missing ones are
        embedded in one call. Raises what the embedder raises.
        """
        space = canonical_json([config.provider, config.options])
        cached = {text: self.vectors.get((space, text)) for text in dict.fromkeys(texts)}
        missing = [text for text, vector in cached.items() if vector is None]
        if missing:
            for text, vector in zip(missing, self.embed(config, missing, query=True), strict=True):
                cached[text] = vector
                self.vectors.put((space, text), vector)
        return [vector for text in texts if (vector := cached[text]) is not None], not missing

    def embed(
        self, config: EmbeddingConfig, texts: Sequence[str], *, query: bool = False
    ) -> Vectors:
        """Unit vectors [n, dim] of texts, uncached. Raises what the embedder raises."""
        built = self.provider("embedder", config)
        embedder: Embedder = built.instance
        with self.limit_calls(
            "embedder", built, ProviderConfig(provider=config.provider, options=config.options)
        ):
            return embedder.embed(texts, query=query)

    def _build_once(
        self,
        kind: str,
        config: ProviderConfig | EmbeddingConfig,
        more: str,
        make: Callable[[], Any],
    ) -> Built:
        """The provider built by `make`, cached by its config and by `more`, which it depends on
        besides.
        """
        key = (kind, config.provider, canonical_json(config.options), more)
        found = self._built.get(key)
        if found is None:
            version = registry.provider_version(kind, config.provider)
            span = {
                "provider_type": kind,
                "provider_id": config.provider,
                "provider_version": version,
            }
            found = self._built.setdefault(key, Built(make(), span))
        return found

    def _build_embedder(self, config: EmbeddingConfig) -> Any:
        options = registry.with_cache_folder(
            config.provider, config.call_options, self._cache_folder
        )
        return registry.make_provider("embedder", config.provider, options)

    def _gate(self, name: str, config: ProviderConfig) -> Gate:
        """The gate of an endpoint, one for each set of options."""
        key = canonical_json([name, config.options])
        found = self._gates.get(key)
        return found if found is not None else self._gates.setdefault(key, Gate(name, self._calls))


def fill_timeout(config: RerankConfig) -> RerankConfig:
    """The section with its `timeout_ms` as an option, if the provider takes one that is not set."""
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
    """The answerer of a config; one that uses a language model gets the model, its prompt and the
    passage format. Raises ConfigError `no_model` when the model is missing.
    """
    answerer: Any = registry.make_provider("answerer", config.provider, config.options)
    if not registry.traits_of(answerer).uses_llm:
        return answerer  # type: ignore[no-any-return]
    if llm is None:
        raise ConfigError(
            f"answerer {config.provider!r} needs a language model; set answerer.llm or llm in the"
            " strategy, or take `extractive`",
            code="no_model",
        )
    changes = {"format": format} if format and "format" not in config.options else {}
    return dataclasses.replace(answerer, llm=llm, prompt=config.prompt, **changes)  # type: ignore[no-any-return]
