"""What a question is confined to: namespaces, documents, tags (seed 002, KnowledgeScope)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from rag_platform.errors import InputError
from rag_platform.ir import Json


@dataclass(frozen=True, slots=True)
class Scope:
    """Namespaces, documents and tags; of several documents or tags one suffices, and what is empty confines nothing."""

    namespaces: tuple[str, ...] = ()
    document_ids: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()

    def namespace(self, default: str) -> str:
        """The namespace to ask, the default one where none is named. Raises InputError `too_many_collections` for more than one."""
        names = list(dict.fromkeys(self.namespaces))
        if len(names) > 1:
            told = ", ".join(names)
            raise InputError(
                f"{len(names)} collections were named ({told}); a call reads one: ask one after the other", code="too_many_collections"
            )
        return names[0] if names else default

    def filters(self, asked: Mapping[str, Any]) -> Json:
        """The filters of a question within the scope: both must hold, also where they name the same field.

        A document without tags is outside a scope of tags, although a filter on tags would let it pass.
        """
        own: Json = {}
        if self.document_ids:
            own["doc_id"] = list(self.document_ids)
        if self.tags:
            own["tags"] = {"$in": list(self.tags), "$missing": "exclude"}
        both = {key: value for key, value in own.items() if key in asked}
        merged = {**own, **asked}
        if both:
            merged["$and"] = [*asked.get("$and", ()), both]
        return merged
