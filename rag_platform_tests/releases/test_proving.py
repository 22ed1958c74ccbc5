"""The proof counts every store, also those that only some strategies fill: descriptions, captions,
downloads, drafts.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from rag_platform.config.settings import load_settings
from rag_platform.config.strategies import load_strategy
from rag_platform.errors import NotFoundError
from rag_platform.ingestion.batches import ingest_versions
from rag_platform.ledger.schema import Draft
from rag_platform.releases.deletion import record_deletion
from rag_platform.releases.garbage_collection import collect
from rag_platform.releases.proofs.deletion_proof import Proof, prove
from rag_platform.workspace import Workspace
from rag_platform_tests.chat_server import Reply, chat_server, said
from rag_platform_tests.conftest import TINY, Shelf
from rag_platform_tests.partitions import Keys

CAPTION = {
    "image_type": "photo",
    "summary": "A gate of iron.",
    "key_points": [],
    "entities": [],
    "numbers": [],
    "uncertainties": [],
}
GATE = "# Gate\n\nThe north gate opens at 05:30.\n\n![gate](gate.png)\n"
DOCK = "# Dock\n\nThe south dock holds 12 trucks, and its gate is this:\n\n![gate](gate.png)\n"


def models(url: str) -> str:
    """A strategy in which a model describes chunks and pictures."""
    options = f"{{model: m1, base_url: '{url}', api_key_env: TEST_KEY, backoff_ms: 1, retries: 0}}"
    model = f"{{provider: openai, options: {options}}}"
    return f"{TINY}views:\n  describe: {model}\nmedia_texts:\n  captions: {model}\n"


def reply(body: dict[str, Any], number: int) -> Reply:
    seen = any(isinstance(message["content"], list) for message in body["messages"])
    return said(
        json.dumps(
            CAPTION if seen else {"title": "A gate", "summary": f"Said {number}.", "tags": ["gate"]}
        )
    )


def take(shelf: Shelf, *inputs: Any) -> None:
    from rag_platform.intake.receiving import ReceiveOptions, receive

    parts = {
        "settings": shelf.settings,
        "strategy": load_strategy(shelf.settings, "tiny"),
        "store": shelf.store,
        "ledger": shelf.ledger,
    }
    keys = receive(inputs, "default", Workspace(**parts), ReceiveOptions()).to_process
    totals = ingest_versions([shelf.ledger.version(key) for key in keys], Workspace(**parts))
    assert not totals.failures


def count(shelf: Shelf, doc: str, **options: Any) -> Proof:
    return prove("default", doc, shelf.root, **{"partitions": Keys(), **options})


def delete_hard(shelf: Shelf, doc_id: str) -> Any:
    record = record_deletion(shelf.ledger.delete("default", doc_id, None, "hard"), shelf.root)
    return collect(shelf.root, scope=record).removed


def test_what_models_said_of_chunks_and_pictures(
    shelf: Shelf, config_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TEST_KEY", "sesame")
    docs = tmp_path / "docs"
    docs.mkdir()
    for name, text in (("gate", GATE), ("dock", DOCK)):
        (docs / f"{name}.md").write_text(text, encoding="utf-8")
    Image.effect_mandelbrot((160, 120), (-2, -1, 1, 1), 60).convert("RGB").save(docs / "gate.png")
    with chat_server(reply) as server:
        (config_folder / "strategies" / "tiny.yaml").write_text(
            models(server.url), encoding="utf-8"
        )
        shelf = Shelf(load_settings(), shelf.store, shelf.ledger)
        take(shelf, docs)
        assert len(server.requests) == 4  # one picture in two surroundings, two chunks
        before = count(shelf, "gate.md")
        assert before.shared["media"] == 1  # the dock shows the same picture
        assert (
            before.remaining["media_texts"],
            before.remaining["descriptions"],
            before.remaining["embeddings"],
        ) == (1, 1, 1)

        removed = delete_hard(shelf, before.doc_id)
        assert {
            name: removed[name]["count"] for name in ("media_texts", "descriptions", "embeddings")
        } == dict.fromkeys(("media_texts", "descriptions", "embeddings"), 1)
        after = count(shelf, "gate.md")
        assert (after.total, after.shared) == (0, {"media": 1})
        assert count(shelf, "dock.md").remaining["descriptions"] == 1
        assert not collect(shelf.root).removed


def test_a_page_and_its_download(shelf: Shelf, site: Any) -> None:
    shelf = Shelf(
        shelf.settings.model_copy(update={"fetching": site.limits}), shelf.store, shelf.ledger
    )
    url = site.serve("/gate.md", GATE.encode(), Content_Type="text/markdown")
    other = site.serve("/dock.md", DOCK.encode(), Content_Type="text/markdown")
    take(shelf, url, other)
    (doc_id,) = (
        document.doc_id
        for document in shelf.ledger.documents("default")
        if document.source_uri == url
    )
    shelf.ledger.put_draft(
        Draft(
            "default",
            doc_id,
            shelf.ledger.versions("default", doc_id)[0].version_id,
            ({"op": "edit_text"},),
        )
    )
    version_id = shelf.ledger.versions("default", doc_id)[0].version_id
    before = count(shelf, doc_id, partitions=Keys(frozenset({version_id, "other"})))
    kinds = ("raw", "facts", "downloads", "drafts", "partitions", "ledger")
    assert [before.remaining[kind] for kind in kinds] == [1, 1, 1, 1, 1, 2]
    assert "downloads" in before.data()["markdown"] and before.data()["total"] == before.total
    assert delete_hard(shelf, doc_id)["downloads"]["count"] == 1
    after = count(shelf, doc_id)
    assert (
        after.total == 0 and after.data()["markdown"] == f"nothing of {doc_id} is left in any store"
    )
    assert shelf.store.download_path(other).is_file()
    with pytest.raises(NotFoundError, match="no document 'nothing'"):
        count(shelf, "nothing")


def test_a_copy_of_the_ledger_counts_after_a_sync_too(shelf: Shelf, tmp_path: Path) -> None:
    """A sync retires a deleted document whose file is gone."""
    folder = tmp_path / "docs"
    folder.mkdir()
    for name in ("gate", "dock"):
        (folder / f"{name}.md").write_text(f"# {name}\n\nIt opens at 05:30.\n", encoding="utf-8")
    shelf.ingest(folder)
    document = next(d for d in shelf.ledger.documents("default") if d.filename == "gate.md")
    delete_hard(shelf, document.doc_id)
    (folder / "gate.md").unlink()
    shelf.ingest(folder, sync=True)
    assert shelf.ledger.document("default", document.doc_id).status == "retired"
    shelf.store.ledger_path.with_name("ledger.sqlite.bak").write_bytes(b"copy")
    assert count(shelf, document.doc_id).remaining["ledger_backups"] == 1
