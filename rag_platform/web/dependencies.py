"""FastAPI dependencies shared by routes and pages."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

from fastapi import Depends, Form, Path, Query, Request
from starlette.responses import Response

from rag_platform import access
from rag_platform.config.settings import Settings
from rag_platform.errors import RagError
from rag_platform.retrieval.library import Library
from rag_platform.retrieval.namespaces import choose_namespace, choose_namespaces
from rag_platform.web.rendering import library_of, render, render_part

LibraryOf = Annotated[Library, Depends(library_of)]


def _settings(library: LibraryOf) -> Settings:
    return library.settings


SettingsOf = Annotated[Settings, Depends(_settings)]


@dataclass(frozen=True, slots=True)
class View:
    """A requested page of a library."""

    request: Request
    library: Library
    namespace: str

    @property
    def settings(self) -> Settings:
        return self.library.settings

    def render(self, template: str, status: int = 200, **values: Any) -> Response:
        """A response with the page or fragment."""
        return render(self.request, template, status, namespace=self.namespace, **values)

    def render_part(self, part: str, page: str, **values: Any) -> Response:
        """The fragment for htmx, else the page that contains it."""
        return render_part(self.request, part, page, namespace=self.namespace, **values)


def _view_of_api(
    request: Request,
    library: LibraryOf,
    namespace: Annotated[
        str | None, Query(max_length=63, description="The library; default: the only one.")
    ] = None,
) -> View:
    if namespace is None:
        return View(request, library, choose_namespace(library))
    return _view_of_path(request, library, namespace)


def _view_of_page(
    request: Request,
    library: LibraryOf,
    namespace: Annotated[str | None, Query(max_length=63)] = None,
) -> View:
    return _view_of_path(request, library, namespace or choose_namespaces(library)[0])


def _view_of_path(
    request: Request, library: LibraryOf, namespace: Annotated[str, Path(max_length=63)]
) -> View:
    library.require_visible(namespace)
    return View(request, library, namespace)


def _view_of_form(
    request: Request, library: LibraryOf, namespace: Annotated[str, Form(max_length=63)]
) -> View:
    return _view_of_path(request, library, namespace)


# The view of a request's namespace. Each raises NotFoundError for one that the caller may not see,
# `ApiView` also InputError.
ApiView = Annotated[View, Depends(_view_of_api)]  # the named one, else the only one
PageView = Annotated[View, Depends(_view_of_page)]  # else the first one that questions search
PathView = Annotated[View, Depends(_view_of_path)]  # the one in the path
FormView = Annotated[View, Depends(_view_of_form)]  # the one in the form


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
