"""The Dagster resource of the assets: the data root."""

from functools import cached_property

import dagster as dg

from rag_platform.config.settings import load_settings
from rag_platform.observability import otlp
from rag_platform.workspace import DataRoot


class Platform(dg.ConfigurableResource[None]):
    """One data root; `home` overrides RAG_HOME."""

    home: str = ""

    @cached_property
    def root(self) -> DataRoot:
        settings = load_settings({"home": self.home} if self.home else None)
        otlp.setup(settings.observability.otlp)
        return DataRoot.open(settings)
