"""A data root that receives files, for the tests of receiving and of downloading."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rag_platform.config.profiles import stage_profiles
from rag_platform.config.settings import Settings, Strategy
from rag_platform.intake.discovery import Content
from rag_platform.intake.receiving import ReceiveOptions, Reception, receive
from rag_platform.ledger.ledger import open_ledger
from rag_platform.storage.store import Store
from rag_platform.workspace import Workspace


class Receiver:
    """A data root with its ledger; a test may change its settings and strategy."""

    def __init__(self, settings: Settings, strategy: Strategy) -> None:
        self.settings, self.strategy = settings, strategy
        self.store = Store(settings.home)
        self.ledger = open_ledger(self.store)

    @property
    def workspace(self) -> Workspace:
        """What ingestion takes."""
        return Workspace(
            settings=self.settings, strategy=self.strategy, store=self.store, ledger=self.ledger
        )

    def receive(
        self, *inputs: Path | str | Content, namespace: str = "lib", **options: Any
    ) -> Reception:
        """What became of the inputs; the options are those of ReceiveOptions."""
        return receive(inputs, namespace, self.workspace, ReceiveOptions(**options))

    def complete(self, reception: Reception) -> None:
        """Record every version as ingested under the strategy."""
        for version_id in reception.to_process:
            self.ledger.complete(
                version_id,
                title="t",
                counts={"profile": stage_profiles(self.strategy)["embeddings"]},
            )
