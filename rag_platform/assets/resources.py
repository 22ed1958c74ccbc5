"""The Dagster resource of the assets: the data root."""

from functools import cached_property

import dagster as dg

from rag_platform.config.settings import load_settings
from rag_platform.observability import otlp
from rag_platform.workspace import DataRoot


class DataRootOpener:
    """Opens the data root of this process when it is first needed."""

    @cached_property
    def root(self) -> DataRoot:
        settings = load_settings()
        otlp.setup(settings.observability.otlp)
        return DataRoot.open(settings)


Platform = dg.ResourceParam[DataRootOpener]
# without config: Dagster's daemon, sensors and partitions belong to one data root, so a run from
# the launchpad cannot name another
platform = dg.ResourceDefinition(lambda _: DataRootOpener(), config_schema={})
