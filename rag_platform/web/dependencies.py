"""FastAPI dependencies shared by routes and pages."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

from fastapi import Depends, Path, Query, Request
from starlette.responses import Response

from rag_platform import access
from rag_platform.config.settings import Settings
from rag_platform.errors import RagError
from rag_platform.retrieval.library import Library
from rag_platform.retrieval.namespaces import choose_namespace, choose_namespaces
from rag_platform.web.rendering import render, render_part
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


@dataclass(frozen=True, slots=True)
class View:
    """A requested page of a library."""

    request: Request
    site: Site
    namespace: str

    @property
    def settings(self) -> Settings:
        return self.site.settings

    @property
    def library(self) -> Library:
        return self.site.library

    def render(self, template: str, status: int = 200, **values: Any) -> Response:
        """A response with the page or fragment."""
        return render(self.request, template, status, namespace=self.namespace, **values)

    def render_part(self, part: str, page: str, **values: Any) -> Response:
        """The fragment for htmx, else the page that contains it."""
        return render_part(self.request, part, page, namespace=self.namespace, **values)


def _view(request: Request, site: SiteOf, namespace: PageNamespace) -> View:
    return View(request, site, namespace)


def _path_namespace(site: SiteOf, namespace: Annotated[str, Path(max_length=63)]) -> str:
    """The namespace in the path. Raises NotFoundError."""
    site.library.require_visible(namespace)
    return namespace


PathNamespace = Annotated[str, Depends(_path_namespace)]


def _view_of_path(request: Request, site: SiteOf, namespace: PathNamespace) -> View:
    return View(request, site, namespace)


Shown = Annotated[View, Depends(_view)]
ShownInPath = Annotated[View, Depends(_view_of_path)]


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
