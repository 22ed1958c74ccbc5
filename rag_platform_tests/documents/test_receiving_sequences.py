"""Random sequences of edits, moves, syncs, pins and deletions against a model of what must be live
after each of them.
"""

from __future__ import annotations

import hashlib
import tempfile
from pathlib import Path

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from rag_platform.config.profiles import stage_profiles
from rag_platform.config.settings import Settings, Strategy
from rag_platform.intake.receiving import (
    ReceiveOptions,
    Reception,
    document_id,
    receive,
    version_id,
)
from rag_platform.ledger.ledger import open_ledger
from rag_platform.storage.store import Store
from rag_platform.workspace import Workspace
from rag_platform_tests.conftest import THOROUGH

NAMES = ("a.md", "b.md")
TEXTS = ("# One\n", "# Two\n")
OUTCOMES = st.sampled_from(["done", "done", "fail", "leave"])
NAME, TEXT = st.sampled_from(NAMES), st.sampled_from(TEXTS)
STRATEGY = Strategy.model_validate(
    {
        "name": "tiny",
        "loading": {"loaders": [{"provider": "markdown"}]},
        "embedding": {"provider": "hashing"},
    }
)
PROFILE = stage_profiles(STRATEGY)["embeddings"]


class Model:
    """What is known of one file: its text, and what its document should be."""

    def __init__(self) -> None:
        self.file: str | None = None
        self.known = False  # the ledger has a document
        self.live: str | None = None
        self.wanted: str | None = None
        self.pinned = False
        self.deleted = False  # and its file was there ever since
        self.ready: set[str] = set()

    def seen(self, text: str) -> bool:
        """A sync or a person found this text; True when it has to be processed."""
        self.known, self.deleted, self.wanted = True, False, text
        if text in self.ready and (self.pinned or self.live == text):
            return False
        self.ready.discard(text)
        return True

    def gone(self) -> None:
        self.wanted = None
        self.deleted = False
        if not self.pinned:
            self.live = None

    def completed(self, text: str) -> None:
        self.ready.add(text)
        if self.known and not self.deleted and not self.pinned and text == self.wanted:
            self.live = text


class Receptions(RuleBasedStateMachine):
    """A folder that changes, a ledger that follows."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory(prefix="receptions-")
        home = Path(self.folder.name)
        self.docs = home / "docs"
        self.docs.mkdir()
        self.settings = Settings(home=home / "home")
        self.store = Store(home / "home")
        self.ledger = open_ledger(self.store)
        self.model = {name: Model() for name in NAMES}
        self.late: list[tuple[str, str]] = []  # (name, text) that were queued and never processed

    def teardown(self) -> None:
        self.ledger.close()
        self.folder.cleanup()

    def receive(self, path: Path, sync: bool) -> Reception:
        return receive(
            [path],
            "lib",
            Workspace(
                strategy=STRATEGY, settings=self.settings, store=self.store, ledger=self.ledger
            ),
            ReceiveOptions(sync=sync, retire_all=True),
        )

    def version(self, name: str, text: str) -> str:
        return version_id(
            "lib", document_id("lib", f"docs/{name}"), hashlib.sha256(text.encode()).hexdigest()
        )

    def complete(self, name: str, text: str) -> None:
        self.ledger.complete(self.version(name, text), title="t", counts={"profile": PROFILE})
        self.model[name].completed(text)

    def process(self, reception: Reception, queued: dict[str, str], outcome: str) -> None:
        assert set(reception.to_process) == {
            self.version(name, text) for name, text in queued.items()
        }
        for name, text in queued.items():
            if outcome == "done":
                self.complete(name, text)
            elif outcome == "fail":
                self.ledger.fail(self.version(name, text), "broken_file", "it is broken")
            else:
                self.late.append((name, text))

    @initialize(name=NAME, text=TEXT, outcome=OUTCOMES)
    def the_folder_is_a_source(self, name: str, text: str, outcome: str) -> None:
        self.write_and_sync(name, text, outcome)  # an empty folder would make no library

    @rule(name=NAME, text=TEXT, outcome=OUTCOMES)
    def write_and_sync(self, name: str, text: str, outcome: str) -> None:
        self.write(name, text)
        self.sync(outcome)

    @rule(name=NAME, text=TEXT)
    def write(self, name: str, text: str) -> None:
        (self.docs / name).write_text(text, encoding="utf-8")
        self.model[name].file = text

    @rule(name=NAME)
    def remove_and_sync(self, name: str) -> None:
        (self.docs / name).unlink(missing_ok=True)
        self.model[name].file = None
        self.sync("done")

    @rule(name=NAME, to=NAME)
    def move(self, name: str, to: str) -> None:
        if self.model[name].file is not None and name != to:
            (self.docs / name).rename(self.docs / to)
            self.model[to].file, self.model[name].file = self.model[name].file, None

    @rule(outcome=OUTCOMES)
    def sync(self, outcome: str) -> None:
        queued = {}
        for name, model in self.model.items():
            if model.file is None:
                model.gone()
            elif not model.deleted and model.seen(model.file):
                queued[name] = model.file
        self.process(self.receive(self.docs, sync=True), queued, outcome)

    @rule()
    def sync_twice(self) -> None:
        self.sync("done")
        before = self.ledger.documents("lib")
        again = self.receive(self.docs, sync=True)
        assert (again.to_process, again.retired, again.changed) == ((), (), False)
        assert self.ledger.documents("lib") == before

    @rule(name=NAME, outcome=st.sampled_from(["done", "fail"]))
    def name_the_file(self, name: str, outcome: str) -> None:
        model = self.model[name]
        if model.file is not None:
            queued = {name: model.file} if model.seen(model.file) else {}
            self.process(self.receive(self.docs / name, sync=False), queued, outcome)

    @precondition(lambda self: self.late)
    @rule()
    def process_what_was_left(self) -> None:
        for name, text in self.late:
            self.complete(name, text)
        self.late.clear()

    @rule(name=NAME)
    def delete(self, name: str) -> None:
        model = self.model[name]
        if model.known:
            self.ledger.delete("lib", document_id("lib", f"docs/{name}"), None, "soft")
            model.deleted, model.live, model.wanted, model.pinned = True, None, None, False

    @rule(name=NAME, text=TEXT)
    def pin(self, name: str, text: str) -> None:
        model = self.model[name]
        deleted = {stone.doc_id for stone in self.ledger.tombstones("lib")}
        if text in model.ready and document_id("lib", f"docs/{name}") not in deleted:
            self.ledger.pin("lib", document_id("lib", f"docs/{name}"), self.version(name, text))
            model.live, model.pinned = text, True

    @rule(name=NAME)
    def unpin(self, name: str) -> None:
        model = self.model[name]
        if model.pinned:
            self.ledger.unpin("lib", document_id("lib", f"docs/{name}"))
            model.pinned = False
            if model.wanted is None or model.wanted in model.ready:
                model.live = model.wanted

    @invariant()
    def the_ledger_agrees(self) -> None:
        held = {document.source_uri: document for document in self.ledger.documents("lib")}
        assert held.keys() == {f"docs/{name}" for name, model in self.model.items() if model.known}
        for name, model in self.model.items():
            if model.known:
                document = held[f"docs/{name}"]
                assert document.live_version == (model.live and self.version(name, model.live)), (
                    name
                )
                assert document.wanted_version == (
                    model.wanted and self.version(name, model.wanted)
                ), name
                assert document.pinned == model.pinned
                expected = (
                    "deleted"
                    if model.deleted
                    else "active"
                    if model.live or model.wanted
                    else "retired"
                )
                assert document.status == expected, name


Receptions.TestCase.settings = settings(
    max_examples=200 if THOROUGH else 12,
    stateful_step_count=30,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
TestReceptions = Receptions.TestCase
