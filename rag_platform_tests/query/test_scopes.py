"""A scope confines a question: whatever else is asked for must hold besides."""

from __future__ import annotations

from typing import Any

import pytest

from rag_platform.answering.engine import answer
from rag_platform.errors import InputError
from rag_platform.ir import QueryRequest
from rag_platform.query.filters import Scope
from rag_platform.retrieval.namespaces import choose_namespace


@pytest.mark.parametrize(
    ("scope", "asked", "expected"),
    [
        (Scope(), {}, {}),
        (Scope(), {"lang": "en"}, {"lang": "en"}),
        (Scope(document_ids=("a", "b")), {"lang": "en"}, {"doc_id": ["a", "b"], "lang": "en"}),
        (Scope(tags=("ops",)), {}, {"tags": {"$in": ["ops"], "$missing": "exclude"}}),
        (
            Scope((), ("a",)),
            {"doc_id": "b", "prefer_recent": True},
            {"doc_id": "b", "prefer_recent": True, "$and": [{"doc_id": ["a"]}]},
        ),
        (
            Scope((), ("a",)),
            {"doc_id": "b", "$and": [{"lang": "en"}]},
            {"doc_id": "b", "$and": [{"lang": "en"}, {"doc_id": ["a"]}]},
        ),
    ],
    ids=[
        "nothing",
        "only a filter",
        "documents",
        "tags",
        "both name the field",
        "both and a conjunction",
    ],
)
def test_scope_and_filters_both_hold(
    scope: Scope, asked: dict[str, Any], expected: dict[str, Any]
) -> None:
    given = {**asked}
    assert scope.filters(asked) == expected and asked == given


def test_one_namespace_is_asked(read_only_shelf: Any) -> None:
    library: Any = read_only_shelf.library()
    assert choose_namespace(library) == "default"
    assert choose_namespace(library, ("hr", "hr")) == "hr"
    with pytest.raises(InputError, match="2 libraries were named") as raised:
        choose_namespace(library, ("hr", "ops"))
    assert raised.value.code == "too_many_collections"


@pytest.mark.integration
def test_what_is_outside_is_not_found(read_only_shelf: Any) -> None:
    """A filter on tags lets documents without tags pass, a scope does not; contradictory conditions
    match nothing.
    """
    library = read_only_shelf.library()
    documents = {
        document.filename: document for document, _ in read_only_shelf.ledger.live("default")
    }

    def names(scope: Scope, **asked: Any) -> set[str]:
        request = QueryRequest(
            "gateway port crash 休假", mode="sparse", filters=scope.filters(asked), answer=False
        )
        return {hit.filename for hit in answer(library, request).hits}

    try:
        assert names(Scope()) == {"ports.md", "notes.txt", "休假.md"}
        assert names(Scope(tags=("hr",))) == {"休假.md"} and names(Scope(tags=("hr", "guide"))) == {
            "ports.md",
            "notes.txt",
            "休假.md",
        }
        assert names(Scope(document_ids=(documents["notes.txt"].doc_id,))) == {"notes.txt"}
        assert names(Scope(tags=("ops",)), filename="ports.md") == {"ports.md"}
        assert names(Scope(tags=("ops",)), tags="hr") == set()
    finally:
        library.close()


@pytest.mark.integration
def test_the_command_line_takes_names_of_documents(desk: Any) -> None:
    desk.write(gate="# Gate\n\nThe gate opens at five.\n", dock="# Dock\n\nThe dock has a gate.\n")
    desk.publish(desk.docs / "gate.md", tags=("ops",))
    desk.publish(desk.docs / "dock.md")

    def files(*options: str) -> list[str]:
        data = desk.call("query", "gate", *options).data
        return sorted(result["citation"]["source_uri"] for result in data["results"])

    assert files() == ["files/dock.md", "files/gate.md"]
    assert files("--doc", "dock.md") == ["files/dock.md"] and files("--tag", "ops") == [
        "files/gate.md"
    ]
    assert files("--doc", "dock.md", "--doc", "gate.md") == ["files/dock.md", "files/gate.md"]
    assert files("--doc", "dock.md", "--tag", "ops") == []
    unknown = desk.call("query", "gate", "--doc", "dokc.md")
    assert unknown.error["code"] == "unknown_document"
    (row,) = desk.call("namespaces", "list").data["namespaces"]
    assert (row["namespace"], row["documents"], row["chunks"], row["strategy"]) == (
        "default",
        2,
        2,
        "tiny",
    )
