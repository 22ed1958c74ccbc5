"""The Dagster resource of the assets: the data root."""

from functools import cached_property

import dagster as dg

from rag_platform.config.settings import load_settings
from rag_platform.observability import otlp
from rag_platform.workspace import DataRoot, Workspace


class Platform(dg.ConfigurableResource[None]):
    """One data root; `home` overrides RAG_HOME."""

    home: str = ""

    @cached_property
    def root(self) -> DataRoot:
        settings = load_settings({"home": self.home} if self.home else None)
        otlp.setup(settings.observability.otlp)
        return DataRoot.open(settings)

    def workspace(self, namespace: str) -> Workspace:
        """The workspace of a namespace; its config is stored for readers of its traces."""
        workspace = self.root.workspace(namespace)
        workspace.keep_config()
        return workspace
