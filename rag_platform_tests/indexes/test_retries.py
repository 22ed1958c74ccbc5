"""What may pass is tried again in the same run, what will not fails at once, and what failed too
often waits for a person.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import pytest

from rag_platform.config.ingestion import EmbeddingConfig, LoadingConfig
from rag_platform.config.query import ProviderConfig
from rag_platform.config.settings import Strategy
from rag_platform.errors import DocumentError, FetchError, ProviderError, StorageError
from rag_platform.indexes import embedding
from rag_platform.ingestion.batches import ingest_versions, stale_versions
from rag_platform.ingestion.committing import is_transient
from rag_platform.ingestion.request import Hooks
from rag_platform.intake.isolation import pool
from rag_platform.intake.receiving import (
    ReceiveOptions,
    failure_profile,
    given_up_item,
    is_given_up,
    receive,
)
from rag_platform.ir import EmbedderInfo
from rag_platform.protocols import Vectors
from rag_platform.providers.hashing import Hashing
from rag_platform.workspace import Workspace

LOADER = '''
import os
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from rag_platform.errors import DocumentError
from rag_platform.loaders.text import TextLoader
from rag_platform.traits import Traits


@dataclass(frozen=True)
class Moody:
    """Reads a text, unless it says what happens to its reader; `folder` counts the attempts."""

    folder: str = ""
    VERSION: ClassVar[str] = "1"
    traits: ClassVar[Traits] = Traits(isolated=True)

    def claims(self, filename, head):
        return filename.endswith(".txt")

    def load(self, path, filename):
        with open(Path(self.folder, filename), "a+") as journal:
            journal.write("read\\n")
            journal.seek(0)
            attempt = len(journal.readlines())
        text = path.read_text()
        if "killed twice" in text and attempt <= 2 or "always killed" in text:
            os.kill(os.getpid(), 9)
        if "broken" in text:
            raise DocumentError("nothing to read", code="broken_file")
        return TextLoader().load(path, filename)
'''


@dataclass(frozen=True)
class Absent:
    """An embedder that answers after `calls` calls nobody answered; they are counted in
    `journal`.
    """

    VERSION: ClassVar[str] = "1"

    journal: str = ""
    calls: int = 0

    def info(self) -> EmbedderInfo:
        return replace(Hashing().info(), embedder_id="absent")

    def embed(self, texts: Sequence[str], *, query: bool = False) -> Vectors:
        with open(self.journal, "a+", encoding="utf-8") as journal:
            journal.write("call\n")
            journal.seek(0)
            if len(journal.readlines()) <= self.calls:
                raise ProviderError("nobody answers", retryable=True)
        return Hashing().embed(texts, query=query)


@dataclass(frozen=True)
class Greedy:
    """A chunker that needs more disk than there is."""

    VERSION: ClassVar[str] = "1"

    def spans(self, text: str) -> list[tuple[int, int]]:
        with open("/dev/full", "wb", buffering=0) as full:
            return [(0, full.write(b"x"))]


@dataclass(frozen=True)
class Swollen:
    """An embedder that needs more disk than there is."""

    VERSION: ClassVar[str] = "1"

    def info(self) -> EmbedderInfo:
        return replace(Hashing().info(), embedder_id="swollen")

    def embed(self, texts: Sequence[str], *, query: bool = False) -> Vectors:
        with open("/dev/full", "wb", buffering=0) as full:
            full.write(b"x")
        return Hashing().embed(texts, query=query)


class Try:
    """A run over texts by file name: what was told of it, and how often each file was read."""

    def __init__(self, shelf: Any, tiny: Strategy, folder: Path) -> None:
        self.parts = {
            "settings": shelf.settings,
            "strategy": tiny,
            "store": shelf.store,
            "ledger": shelf.ledger,
        }
        self.ledger, self.docs, self.journal = shelf.ledger, folder / "docs", folder / "journal"
        self.failed: list[tuple[str, str]] = []
        self.said: list[str] = []
        self.docs.mkdir()
        self.journal.mkdir()

    def receive(self, **texts: str) -> list[str]:
        for name, text in texts.items():
            (self.docs / f"{name}.txt").write_text(text, encoding="utf-8")
        self.reception = receive([self.docs], "default", Workspace(**self.parts), ReceiveOptions())
        return list(self.reception.to_process)

    def run(self, version_ids: Sequence[str]) -> Any:
        return ingest_versions(
            [self.ledger.version(version_id) for version_id in version_ids],
            Workspace(**self.parts),
            hooks=Hooks(
                on_failure=lambda version, stage, error: self.failed.append(
                    (version.filename, error.code)
                ),
                on_progress=lambda stage, done, total, message: self.said.append(message),
            ),
        )

    def attempts(self) -> dict[str, int]:
        return {path.stem: len(path.read_text().splitlines()) for path in self.journal.iterdir()}


@pytest.fixture
def moody(shelf: Any, tiny: Strategy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A try whose loader is Moody, in child processes that know it."""
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / "moody_reader.py").write_text(LOADER, encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path / "code"))
    pool().close()
    loader = ProviderConfig(
        provider="moody_reader:Moody", options={"folder": str(tmp_path / "journal")}
    )
    yield Try(
        shelf, tiny.model_copy(update={"loading": LoadingConfig(loaders=(loader,))}), tmp_path
    )
    pool().close()


@pytest.mark.parametrize(
    ("error", "passes"),
    [
        (ProviderError("busy", retryable=True), True),
        (ProviderError("no such model"), False),
        (FetchError("503", retryable=True), True),
        (DocumentError("needs a password", code="encrypted"), False),
        (OSError(5, "input/output error"), True),
        (MemoryError(), True),
        (ValueError("a bug"), False),
    ],
    ids=lambda value: repr(value)[:30],
)
def test_what_may_pass(error: Exception, passes: bool) -> None:
    assert is_transient(error) is passes


def test_a_document_whose_reader_is_killed_is_read_again(moody: Try) -> None:
    """Killed twice, the third attempt reads it; what is broken is read once; nobody is told of the
    attempts but in the progress.
    """
    totals = moody.run(
        moody.receive(good="Fine.", fragile="This one is killed twice.", bad="This is broken.")
    )
    assert moody.failed == [("bad.txt", "broken_file")] and len(totals.failures) == 1
    assert moody.attempts() == {"good": 1, "fragile": 3, "bad": 1}
    assert (totals.documents, totals.chunks, totals.embeddings_computed) == (2, 2, 2)
    assert {d.filename for d, _ in moody.ledger.live("default")} == {"good.txt", "fragile.txt"}
    told = [said for said in moody.said if "try again" in said]
    assert [re.sub(r"0\.0\d+ s$", "", said) for said in told] == ["1 document to try again in "] * 2


def test_what_stays_dead_after_every_attempt_fails_once(moody: Try) -> None:
    (version_id,) = moody.receive(fatal="always killed")
    totals = moody.run([version_id])
    assert (
        moody.failed == [("fatal.txt", "parser_failed")]
        and moody.attempts() == {"fatal": 3}
        and totals.documents == 0
    )
    version = moody.ledger.version(version_id)
    assert (version.status, version.attempts, version.code) == ("failed", 1, "parser_failed")


def away(calls: int, tiny: Strategy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Strategy:
    """A strategy whose embedder answers after so many calls."""
    monkeypatch.setattr(embedding, "BACK_OFF_SECONDS", 0.001)
    options = {"journal": str(tmp_path / "calls"), "calls": calls}
    return tiny.model_copy(
        update={
            "embedding": EmbeddingConfig(
                provider=f"{__name__}:Absent", options=options, batch_size=1
            )
        }
    )


def test_an_embedder_that_comes_back_finds_the_documents_waiting(
    shelf: Any, tiny: Strategy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Three batches of four calls each end the first round, the next one is answered at once."""
    tried = Try(shelf, away(3 * embedding.ATTEMPTS, tiny, tmp_path, monkeypatch), tmp_path)
    totals = tried.run(tried.receive(**{f"note{number}": f"Note {number}." for number in range(5)}))
    assert (totals.documents, totals.failures, tried.failed) == (5, [], [])
    assert totals.embeddings_computed == 5 and len(shelf.ledger.live("default")) == 5


def test_an_embedder_that_stays_away_stops_the_run(
    shelf: Any, tiny: Strategy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried = Try(shelf, away(10_000, tiny, tmp_path, monkeypatch), tmp_path)
    with pytest.raises(ProviderError, match="cannot be reached"):
        tried.run(tried.receive(**{f"note{number}": f"Note {number}." for number in range(5)}))
    assert (tmp_path / "calls").read_text(encoding="utf-8").count(
        "call"
    ) == 3 * 3 * embedding.ATTEMPTS
    assert tried.failed == [] and shelf.ledger.live("default") == []  # no document's fault


def test_a_full_disk_stops_the_run_at_once(shelf: Any, tiny: Strategy, tmp_path: Path) -> None:
    greedy = tiny.model_copy(update={"chunker": ProviderConfig(provider=f"{__name__}:Greedy")})
    tried = Try(shelf, greedy, tmp_path)
    version_ids = tried.receive(one="One.", two="Two.", three="Three.")
    with pytest.raises(StorageError, match="MB are free") as raised:
        tried.run(version_ids)
    assert raised.value.code == "disk_full" and tried.failed == []
    assert {shelf.ledger.version(version_id).status for version_id in version_ids} == {"received"}
    assert not [
        path
        for path in shelf.store.home.rglob(".*")
        if path.is_file() and path.parent.name == "chunks"
    ]


@pytest.mark.parametrize("batch_size", [1, 16])
def test_a_disk_that_an_embedder_finds_full_is_no_documents_fault(
    shelf: Any, tiny: Strategy, tmp_path: Path, batch_size: int
) -> None:
    swollen = EmbeddingConfig(provider=f"{__name__}:Swollen", batch_size=batch_size)
    tried = Try(shelf, tiny.model_copy(update={"embedding": swollen}), tmp_path)
    version_ids = tried.receive(one="One.", two="Two.", three="Three.")
    with pytest.raises(StorageError, match="the disk is full") as raised:
        tried.run(version_ids)
    assert raised.value.code == "disk_full" and tried.failed == []
    assert {shelf.ledger.version(version_id).status for version_id in version_ids} == {"received"}


def test_what_failed_in_three_runs_is_left_alone_until_something_changes(
    moody: Try, tiny: Strategy
) -> None:
    (version_id,) = moody.receive(bad="broken")
    for attempt, status in ((1, "failed"), (2, "failed"), (3, "dead")):
        assert moody.receive() == [version_id] or attempt == 1
        moody.run([version_id])
        version = moody.ledger.version(version_id)
        assert (version.status, version.attempts) == (status, attempt)
    assert moody.receive() == []
    (item,) = moody.reception.items
    assert (item.decision, item.state, item.code) == ("dead", "dead", "broken_file")
    assert item.reason == "nothing to read"
    assert moody.ledger.version(version_id).status == "dead"

    # a person names the file
    named = receive([moody.docs / "bad.txt"], "default", Workspace(**moody.parts), ReceiveOptions())
    assert named.to_process == (version_id,)
    moody.run([version_id])
    assert moody.ledger.version(version_id).status == "dead" and moody.receive() == []

    # another config reads it in its own way, and counts anew
    other = moody.parts["strategy"].model_copy(
        update={"chunker": tiny.chunker.model_copy(update={"options": {"chunk_size": 500}})}
    )
    moody.parts = {**moody.parts, "strategy": other}
    assert moody.receive() == [version_id]
    moody.run([version_id])
    assert (moody.ledger.version(version_id).status, moody.ledger.version(version_id).attempts) == (
        "failed",
        1,
    )

    # a retry forgets, other bytes are another version
    moody.ledger.revive([version_id])
    assert (moody.ledger.version(version_id).status, moody.ledger.version(version_id).attempts) == (
        "received",
        0,
    )
    (fresh,) = moody.receive(bad="All is well.")
    assert fresh != version_id and moody.run([fresh]).documents == 1


def test_a_live_version_that_a_new_config_cannot_read_is_told_and_not_tried(moody: Try) -> None:
    (version_id,) = moody.receive(good="Fine.")
    moody.run([version_id])
    workspace = Workspace(**moody.parts)
    for _ in range(3):
        moody.ledger.fail(
            version_id,
            "broken_file",
            "the new loader cannot read it",
            max_attempts=3,
            profile=failure_profile(workspace),
        )
    version = moody.ledger.version(version_id)
    assert [v.version_id for v in stale_versions(moody.ledger, "default", "new")] == [version_id]
    assert is_given_up(version, workspace)
    settings = workspace.settings
    roomier = settings.limits.model_copy(update={"max_pages": 9000})
    roomy = settings.model_copy(update={"limits": roomier})
    assert not is_given_up(version, Workspace(**{**moody.parts, "settings": roomy}))
    assert (given_up_item(version).state, given_up_item(version).doc_id) == ("dead", version.doc_id)
