from __future__ import annotations

from typing import Any

import pytest

GUIDE = (
    "# Guide\n"
    "\n"
    "The gateway listens on port 8080.\n"
    "\n"
    "## Limits\n"
    "\n"
    "Free users may ask sixty times a minute.\n"
)


@pytest.mark.integration
def test_a_draft_from_its_first_edit_to_its_revert(desk: Any) -> None:
    desk.write(guide=GUIDE)
    doc_id = desk.call("ingest", desk.docs).data["documents"][0]["doc_id"]
    first, second = desk.call("drafts", "show", doc_id).data["chunks"]
    said = desk.call(
        "drafts",
        "edit",
        doc_id,
        second["chunk_id"],
        "--text",
        "Nobody may ask more than ninety times.",
    )
    assert said.exit_code == 0 and said.data["state"] == "open"
    assert desk.call("drafts", "move", doc_id, first["chunk_id"]).exit_code == 2
    wrong = desk.call("drafts", "split", doc_id, first["chunk_id"], "999")
    assert (wrong.exit_code, wrong.error["code"]) == (2, "bad_offset")
    desk.call("drafts", "disable", doc_id, first["chunk_id"])
    assert desk.call("drafts", "preview", doc_id).data["embeddings_to_compute"] == 1
    assert [o["op"] for o in desk.call("drafts", "undo", doc_id).data["operations"]] == [
        "edit_text"
    ]
    published = desk.call("drafts", "publish", doc_id)
    assert published.exit_code == 0, published.said
    assert (
        published.data["chunks_added"],
        published.data["chunks_removed"],
        published.data["embeddings_computed"],
    ) == (1, 1, 1)
    (row,) = desk.call("drafts", "list").data["drafts"]
    assert (row["state"], row["operations"]) == ("published", 1)
    hit = desk.call("query", "how many times may one ask").data["results"][0]
    assert (
        hit["citation"]["edited_from"] == [second["chunk_id"]]
        and "ninety" in hit["citation"]["text"]
    )
    proved = desk.call("verify", "--all")
    assert (
        proved.exit_code,
        proved.data["checked"],
        proved.data["edited"],
        proved.data["failed"],
    ) == (0, 2, 1, 0)
    again = desk.call("drafts", "publish", doc_id)
    assert (again.exit_code, again.error["code"]) == (1, "nothing_to_publish")
    assert desk.call("jobs", "list").data["jobs"][0]["kind"] == "draft"
    reverted = desk.call("drafts", "revert", doc_id)
    assert reverted.exit_code == 0 and reverted.data["edition"] == "", reverted.said
    assert (
        "sixty"
        in desk.call("query", "how many times may one ask").data["results"][0]["citation"]["text"]
    )
    assert desk.call("drafts", "list").data["drafts"] == []
    assert desk.call("drafts", "revert", doc_id).error["code"] == "nothing_to_revert"
