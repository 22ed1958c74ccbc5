"""What the assets work with, built from the same settings as everything else."""

from functools import cached_property

import dagster as dg

from rag_platform.config.profiles import strategy_config_id
from rag_platform.config.settings import Settings, Strategy, load_settings, load_strategy
from rag_platform.ledger.ledger import Ledger
from rag_platform.storage.store import Store, keep_config


class Platform(dg.ConfigurableResource[None]):
    """Settings, store and ledger of one data root; `home` overrides RAG_HOME."""

    home: str = ""

    @cached_property
    def settings(self) -> Settings:
        """The effective settings."""
        return load_settings({"home": self.home} if self.home else None)

    @cached_property
    def store(self) -> Store:
        """The data root."""
        return Store(self.settings.home)

    @cached_property
    def ledger(self) -> Ledger:
        """The system of record."""
        return Ledger(self.store.ledger_path)

    def strategy(self, namespace: str) -> Strategy:
        """The ingestion strategy of a namespace, or the default one before its first ingest."""
        strategy = load_strategy(
            self.settings, self.ledger.namespaces().get(namespace), ingestion=True
        )
        keep_config(self.store, strategy_config_id(strategy), strategy.model_dump(mode="json"))
        return strategy
