"""FastAPI dependencies shared by routes and pages."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import Depends, Path, Query

from rag_platform import access
from rag_platform.errors import RagError
from rag_platform.retrieval.namespaces import choose_namespace, choose_namespaces
from rag_platform.web.site import Site, get_site

SiteOf = Annotated[Site, Depends(get_site)]


def _namespace(
    site: SiteOf,
    namespace: Annotated[
        str | None, Query(max_length=63, description="The library; default: the only one.")
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
    """The namespace of a page, by default the first one that questions search."""
    if namespace:
        site.library.require_visible(namespace)
        return namespace
    return choose_namespaces(site.library)[0]


PageNamespace = Annotated[str, Depends(_shown_namespace)]


def _path_namespace(site: SiteOf, namespace: Annotated[str, Path(max_length=63)]) -> str:
    """The namespace in the path. Raises NotFoundError."""
    site.library.require_visible(namespace)
    return namespace


PathNamespace = Annotated[str, Depends(_path_namespace)]


def _require_scope(scope: str) -> Any:
    """A dependency that refuses callers without the scope."""

    def require() -> None:
        caller = access.current()
        if not caller.may(scope):
            raise RagError(
                f"this needs a token with the scope {scope}, yours has {caller.scope}: make another"
                f" with `rag token create NAME --scope {scope}`",
                code="insufficient_scope",
            )

    return Depends(require)


MayWrite, MayAdminister = _require_scope("write"), _require_scope("admin")
