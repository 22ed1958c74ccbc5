"""The data root that an application serves, shared by all requests."""

from __future__ import annotations

from functools import cached_property

from starlette.requests import Request

from rag_platform.config.settings import Settings
from rag_platform.retrieval.library import Library
from rag_platform.storage.store import Store


class Site:
    def __init__(self, settings: Settings, library: Library | None = None) -> None:
        self.settings = settings
        self.store = Store.of(settings)
        self._library = library

    @cached_property
    def library(self) -> Library:
        if self._library is not None:
            return self._library
        from rag_platform.ledger.hiding import LedgerView

        return Library(self.settings, self.store, LedgerView(self.store))

    def close(self) -> None:
        """Close the library, unless it was passed in."""
        if self._library is None and "library" in self.__dict__:
            self.library.close()


def get_site(request: Request) -> Site:
    site: Site = request.app.state.site
    return site
