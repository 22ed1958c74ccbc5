"""What all requests share, and what a request brings: dependencies of routes and pages."""

from __future__ import annotations

from functools import cached_property
from typing import Annotated, Literal

from fastapi import Depends, Path, Query, Request

from rag_platform import access
from rag_platform.config.settings import Settings
from rag_platform.errors import RagError
from rag_platform.retrieval.library import Library
from rag_platform.retrieval.namespaces import choose_namespace, choose_namespaces
from rag_platform.storage.store import Store

Scope = Literal["read", "write", "admin"]


class Site:
    """The data root that is shown."""

    def __init__(self, settings: Settings, library: Library | None = None) -> None:
        self.settings = settings
        self.store = Store.of(settings)
        self._library = library

    @cached_property
    def library(self) -> Library:
        """The published releases."""
        if self._library is not None:
            return self._library
        from rag_platform.ledger.hiding import hidden_by_ledger

        return Library(self.settings, self.store, hidden_by_ledger(self.store))

    def close(self) -> None:
        """Close the releases, unless somebody else opened them."""
        if self._library is None and "library" in self.__dict__:
            self.library.close()


def get_site(request: Request) -> Site:
    """The site of the application."""
    site: Site = request.app.state.site
    return site


SiteOf = Annotated[Site, Depends(get_site)]


def _namespace(
    site: SiteOf,
    namespace: Annotated[
        str | None,
        Query(max_length=63, description="The library; default: the only one."),
    ] = None,
) -> str:
    """The namespace that a request is about. Raises InputError, NotFoundError."""
    if namespace is None:
        return choose_namespace(site.library)
    site.library.require_visible(namespace)
    return namespace


NamespaceOf = Annotated[str, Depends(_namespace)]


def _shown_namespace(
    site: SiteOf, namespace: Annotated[str | None, Query(max_length=63)] = None
) -> str:
    """The namespace of a page: where none is named, the one that questions ask first."""
    if namespace:
        site.library.require_visible(namespace)
        return namespace
    return choose_namespaces(site.library)[0]


PageNamespace = Annotated[str, Depends(_shown_namespace)]


def _path_namespace(site: SiteOf, namespace: Annotated[str, Path(max_length=63)]) -> str:
    """The namespace that an address names. Raises NotFoundError."""
    site.library.require_visible(namespace)
    return namespace


PathNamespace = Annotated[str, Depends(_path_namespace)]


def _require(scope: Scope) -> None:
    caller = access.current()
    if not caller.may(scope):
        raise RagError(
            f"this needs a token with the scope {scope}, yours has {caller.scope}: make another"
            f" with `rag token create NAME --scope {scope}`",
            code="insufficient_scope",
        )


def _may_write() -> None:
    _require("write")


def _may_administer() -> None:
    _require("admin")


MayWrite = Depends(_may_write)
MayAdminister = Depends(_may_administer)
