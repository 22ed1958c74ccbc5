"""A data root with its settings, and the workspace of a namespace, as one parameter each."""

from __future__ import annotations

from dataclasses import dataclass

from rag_platform.config.profiles import providers_snapshot, strategy_config_id
from rag_platform.config.settings import Settings, Strategy
from rag_platform.config.strategies import load_strategy
from rag_platform.errors import unknown_namespace
from rag_platform.ledger import traffic
from rag_platform.ledger.ledger import Ledger, open_ledger
from rag_platform.observability.tracing import Trace
from rag_platform.storage.store import Store, keep_config


@dataclass(frozen=True, kw_only=True)
class DataRoot:
    """The settings, the store and the ledger of one data root."""

    settings: Settings
    store: Store
    ledger: Ledger

    def __post_init__(self) -> None:
        """Apply the rate limits of model endpoints to this process."""
        traffic.use(self.settings.traffic, self.store)

    @classmethod
    def open(cls, settings: Settings) -> DataRoot:
        """The data root at `settings.home`; its ledger is created by the first write."""
        store = Store.of(settings)
        return DataRoot(settings=settings, store=store, ledger=open_ledger(store))

    def bound_strategy(self, namespace: str) -> str:
        """The name of the strategy that a namespace is bound to. Raises NotFoundError
        `unknown_namespace`.
        """
        known = self.ledger.namespaces()
        if namespace not in known:
            raise unknown_namespace(namespace, known)
        return known[namespace]

    def workspace(self, namespace: str, strategy: str | None = None) -> Workspace:
        """The workspace of a namespace with the named strategy, else the bound one, else the
        default one. Raises what `load_strategy` raises.
        """
        name = strategy or self.ledger.namespaces().get(namespace)
        return Workspace(
            settings=self.settings,
            store=self.store,
            ledger=self.ledger,
            strategy=load_strategy(self.settings, name, ingestion=True),
        )


@dataclass(frozen=True, kw_only=True)
class Workspace(DataRoot):
    """A data root with the strategy for ingestion."""

    strategy: Strategy

    def keep_config(self) -> str:
        """Store the strategy's configuration, and return its id."""
        config_id = strategy_config_id(self.strategy)
        keep_config(self.store, config_id, self.strategy.model_dump(mode="json"))
        return config_id

    def describe(self, trace: Trace) -> None:
        """Record the strategy and its providers in a trace."""
        trace.describe(self.keep_config(), providers_snapshot(self.strategy))
