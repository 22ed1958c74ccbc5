"""The page with the question form, which works before the other pages are imported."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel, Field, model_validator
from starlette.requests import Request
from starlette.responses import Response

from rag_platform.api.asking import QuestionAddress
from rag_platform.config.strategies import strategy_names
from rag_platform.retrieval.namespaces import choose_namespaces
from rag_platform.web.rendering import library_of, render


class FormFields(BaseModel):
    """Fields as a form sends them: empty ones are ignored, lists are separated by commas, phrasings
    by lines.
    """

    @model_validator(mode="before")
    @classmethod
    def _tidy(cls, given: dict[str, Any]) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for name, value in given.items():
            if isinstance(value, list):
                split = str.splitlines if name == "searches" else split_list
                parts = [part.strip() for item in value for part in split(str(item))]
                value = [part for part in parts if part]
            elif isinstance(value, str):
                value = value.strip()
            if value not in ("", []):
                found[name] = value
        return found


class QuestionForm(FormFields, QuestionAddress):
    """A question as the form sends it."""

    q: str = Field(default="", max_length=4000)

    def address(self) -> dict[str, Any]:
        """The query parameters of this question's URL."""
        return self.model_dump(mode="json", exclude_defaults=True)


def split_list(text: str) -> list[str]:
    """The items of a comma-separated list."""
    return [part.strip() for part in text.replace("，", ",").split(",") if part.strip()]


def show_form(
    request: Request,
    form: QuestionForm,
    answer: Mapping[str, Any] | None = None,
    status: int = 200,
) -> Response:
    """The page with the form, filled with the question, and below it the answer or the error."""
    library = library_of(request)
    chosen = choose_namespaces(library, form.namespace)
    values = {
        "form": form,
        "chosen": chosen,
        "namespace": chosen[0],
        "strategies": strategy_names(library.settings),
    }
    return render(request, "asking/ask.html", status, **{**values, **(answer or {})})
