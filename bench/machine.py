"""Random lives of a library: after each publication the release must equal a full build, and say
what a small model says.

    python bench/machine.py [--sequences 200] [--steps 20] [--seed N] [--shared]

A sequence adds, edits, renames and removes files, syncs, deletes documents (softly and hard) and
adds them again, pins old versions, goes back and forward, collects garbage, changes the strategy,
and is killed at random write points. After every publication: chunk ids, vectors and the hits of
several queries with their scores in three modes are those of a full build of the same live
documents; every live paragraph is found by its own word and nowhere else, nothing deleted or stale
is found. Every step runs in a forked child, so that no step sees what another one has open. Exit
code 1 at the first difference, with the steps that lead to it. With `--shared` the ledger is a
PostgreSQL database and files are pushed to an S3 server, both started here, a new schema and bucket
for each sequence.
"""

from __future__ import annotations

import os

os.environ["OPENBLAS_NUM_THREADS"] = "1"  # before numpy: the parent of forks must have one thread

import argparse
import contextlib
import random
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from crash_points import Ended, Watch, forked, preload
from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis import strategies as st
from hypothesis.errors import FlakyStrategyDefinition
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    precondition,
    rule,
    run_state_machine_as_test,
)
from small_library import NAMESPACE, Place, state_of

from rag_platform.answering.engine import answer
from rag_platform.indexes.embedding_cache import EmbeddingCache
from rag_platform.intake.receiving import Reception
from rag_platform.ir import QueryRequest
from rag_platform.releases import release_store as releases
from rag_platform.releases.building import Lineage, LiveVersions, build
from rag_platform.releases.publishing import go_forward
from rag_platform.releases.version_history import is_condemned
from rag_platform_tests.postgres_server import PostgresServer
from rag_platform_tests.s3_server import S3Server

Content = tuple[int, ...]  # numbers of paragraphs
FILES = ("a.md", "b.md", "sub/c.md", "d.txt")
PARAGRAPHS = 8
QUERIES = (
    "how many kilos does the item weigh",
    "仓库里的货物",
    "zq1 zq2 zq3",
    "part of the store house 7",
)
counts: Counter[str] = Counter()


def text_of(content: Content) -> str:
    """A file's text."""
    return "\n".join(
        f"## Part {n}\n\nThe item zq{n} of the store house weighs {7 * n} kilos. 第{n}件货物"
        f"在仓库里。\n"
        for n in content
    )


@dataclass
class Doc:
    """What the model knows of a document: paragraphs of its live version and of what its file held
    last, None without one.
    """

    live: Content | None = None
    wanted: Content | None = None
    pinned: bool = False
    deleted: bool = False  # and its file is left alone
    stone: str = ""  # soft or hard, until it is received again


@dataclass
class Model:
    """Files on disk, documents, and what each release shows."""

    files: dict[str, Content] = field(default_factory=dict)
    docs: dict[str, Doc] = field(default_factory=dict)
    releases: dict[str, dict[str, Content]] = field(default_factory=dict)
    current: str = ""

    def sync(self) -> None:
        """What a sync of the folder does to the documents."""
        for name, content in self.files.items():
            doc = self.docs.setdefault(name, Doc())
            if not doc.deleted:
                self.take(doc, content)
        for name, doc in self.docs.items():
            if name not in self.files:
                doc.deleted, doc.wanted = False, None
                if not doc.pinned:
                    doc.live = None

    def take(self, doc: Doc, content: Content) -> None:
        """A document's file was received."""
        doc.wanted, doc.deleted, doc.stone = content, False, ""
        if not doc.pinned:
            doc.live = content

    def live(self) -> dict[str, Content]:
        """What the next release holds."""
        return {name: doc.live for name, doc in self.docs.items() if doc.live is not None}

    def deletable(self, mode: str) -> list[str]:
        """Documents that can be deleted: what was deleted softly can still be purged."""
        return sorted(
            name
            for name, doc in self.docs.items()
            if not doc.stone or (doc.stone, mode) == ("soft", "hard")
        )

    def delete(self, name: str, mode: str) -> None:
        """A document is deleted: gone from every release there is, too."""
        self.docs[name] = Doc(deleted=True, stone=mode)
        for shown in self.releases.values():
            shown.pop(name, None)


# --- what children do ---------------------------------------------------------------------------


def look(place: Place) -> dict[str, Any]:
    """The published release, and the paragraphs that are found in each file by their own word."""
    current = releases.current(place.store, NAMESPACE) or ""
    shown: dict[str, list[int]] = {}
    if current:
        library = place.library()
        for number in range(PARAGRAPHS):
            for mode in ("sparse", "hybrid"):
                found = answer(
                    library,
                    QueryRequest(f"zq{number}", NAMESPACE, top_k=50, mode=mode, answer=False),
                )
                assert found.release_id == current
                for hit in found.hits:
                    if f"zq{number} " in hit.chunk_text and number not in shown.setdefault(
                        hit.source_uri.partition("/")[2], []
                    ):
                        shown[hit.source_uri.partition("/")[2]].append(number)
        library.close()
    return {"current": current, "shown": {name: sorted(numbers) for name, numbers in shown.items()}}


def compare_with_full(place: Place) -> None:
    """Raises AssertionError where the published release differs from a full build of what is
    live.
    """
    published = state_of(place, queries=QUERIES)
    with EmbeddingCache(place.store.embeddings_path) as cache:
        deletions = place.ledger.deletion_sequence(NAMESPACE)
        manifest, _ = build(
            place.store,
            NAMESPACE,
            place.strategy,
            LiveVersions(place.ledger.live(NAMESPACE), deletions=deletions),
            release_id="full",
            lineage=Lineage(full=True),
            cache=cache,
            settings=place.settings,
        )
    assert not manifest.failures, manifest.failures
    full = state_of(place, "full", QUERIES)
    shutil.rmtree(place.store.release_dir(NAMESPACE, "full"))
    for part in ("chunks", "vectors", "answers", "hidden"):
        assert getattr(published, part) == getattr(full, part), (
            f"{part} of {published.release_id} differ from a full build"
        )


def pinnable(place: Place, doc_id: str) -> list[str]:
    """Version ids of a document that may be pinned."""
    if any(stone.doc_id == doc_id for stone in place.ledger.tombstones(NAMESPACE)):
        return []  # deleted, and not received since
    stones = place.ledger.tombstones(NAMESPACE, since=0)
    ready = [
        version for version in place.ledger.versions(NAMESPACE, doc_id) if version.status == "ready"
    ]
    return [v.version_id for v in ready if not is_condemned(v, stones, ())]


def content_of(place: Place, version_id: str) -> list[int]:
    """The paragraphs of a version, read from its bytes."""
    text = place.store.raw_path(place.ledger.version(version_id).file_sha256).read_text(
        encoding="utf-8"
    )
    return [
        int(line.removeprefix("## Part ")) for line in text.splitlines() if line.startswith("## ")
    ]


# --- the machine --------------------------------------------------------------------------------

contents = st.lists(st.integers(0, PARAGRAPHS - 1), min_size=1, max_size=4).map(tuple)
file_names = st.sampled_from(FILES)


class OverError(BaseException):
    """The time is over; no failure, so nothing that a test would catch."""


class Life(RuleBasedStateMachine):
    """One library from its first file on."""

    until = float("inf")
    clean = False  # nothing was published since garbage was collected
    services: Callable[[], dict[str, str]] = dict  # the environment of a sequence

    @initialize(files=st.dictionaries(file_names, contents, min_size=1))
    def begin(self, files: dict[str, Content]) -> None:
        """A folder with files, published."""
        if time.monotonic() > self.until:
            raise OverError
        os.environ |= self.services()
        folder = Path(tempfile.mkdtemp(prefix="rag-life-"))
        self.place = Place(folder, folder / "home").enter()
        self.place.home.mkdir()
        self.model = Model()
        for name, content in files.items():
            self.write(name, content)
        counts["sequences"] += 1
        self.sync()

    def teardown(self) -> None:
        """Remove the folder."""
        if hasattr(self, "place"):
            shutil.rmtree(self.place.folder)

    # files

    @rule(name=file_names, content=contents)
    def write(self, name: str, content: Content) -> None:
        """Add a file, or change it."""
        path = self.place.docs / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text_of(content), encoding="utf-8")
        self.model.files[name] = content

    @precondition(lambda self: self.model.files)
    @rule(data=st.data())
    def remove(self, data: st.DataObject) -> None:
        """Remove a file."""
        name = data.draw(st.sampled_from(sorted(self.model.files)))
        (self.place.docs / name).unlink()
        del self.model.files[name]

    @precondition(lambda self: self.model.files)
    @rule(data=st.data(), to=file_names)
    def rename(self, data: st.DataObject, to: str) -> None:
        """Give a file another name, over whatever has it."""
        name = data.draw(st.sampled_from(sorted(self.model.files)))
        (self.place.docs / "sub").mkdir(exist_ok=True)
        (self.place.docs / name).replace(self.place.docs / to)
        self.model.files[to] = self.model.files.pop(name)

    # publishing

    @rule()
    def sync(self) -> None:
        """Bring the library up to the folder."""
        self.place.docs.mkdir(exist_ok=True)
        self.model.sync()
        self.step("sync", self.place.update)

    @rule(at=st.integers(1, 260))
    def crash(self, at: int) -> None:
        """A sync that is killed somewhere, then what readers see, then the sync again."""
        self.place.docs.mkdir(exist_ok=True)
        before = self.look()

        def dies() -> None:
            Watch(self.place.home, kill=at).install()
            self.place.update()

        self.child("crash", dies, killed=True)
        after = self.look()
        self.model.sync()
        if after != before:  # it came as far as publishing
            assert after["current"] != before["current"], "the published release changed"
            self.publishes(after["current"])
            self.agree(after)
        self.step("sync", self.place.update)

    @rule(strategy=st.sampled_from(("small", "smaller")))
    def move(self, strategy: str) -> None:
        """Change the strategy, which rebuilds everything that it leaves stale."""
        self.place.docs.mkdir(exist_ok=True)
        self.place = Place(self.place.folder, self.place.home, strategy)
        self.model.sync()
        self.step("move", self.place.move)

    # documents

    @rule(data=st.data(), mode=st.sampled_from(("soft", "hard")))
    def delete(self, data: st.DataObject, mode: str) -> None:
        """Delete a document; its file stays where it is."""
        if not (names := self.model.deletable(mode)):
            return
        name = data.draw(st.sampled_from(names))
        self.model.delete(name, mode)
        self.step(f"delete {mode}", lambda: self.place.delete(self.doc_id(name), mode))

    @precondition(
        lambda self: any(
            doc.deleted and name in self.model.files for name, doc in self.model.docs.items()
        )
    )
    @rule(data=st.data())
    def add_again(self, data: st.DataObject) -> None:
        """Name the file of a deleted document."""
        deleted = sorted(
            name
            for name, doc in self.model.docs.items()
            if doc.deleted and name in self.model.files
        )
        name = data.draw(st.sampled_from(deleted))
        self.model.take(self.model.docs[name], self.model.files[name])
        self.step("add again", lambda: self.place.update(self.place.docs / name))

    @precondition(lambda self: any(not doc.deleted for doc in self.model.docs.values()))
    @rule(data=st.data(), which=st.integers(0, 5))
    def pin(self, data: st.DataObject, which: int) -> None:
        """Make some version of a document live whatever its file holds."""
        name = data.draw(
            st.sampled_from(
                sorted(name for name, doc in self.model.docs.items() if not doc.deleted)
            )
        )
        versions = self.child("ask", lambda: pinnable(self.place, self.doc_id(name))).value
        if not versions:
            return
        version_id = versions[which % len(versions)]
        content = tuple(self.child("ask", lambda: content_of(self.place, version_id)).value)
        doc = self.model.docs[name]
        doc.live, doc.pinned = content, True

        def pinned() -> None:
            self.place.ledger.pin(NAMESPACE, self.doc_id(name), version_id)
            self.release()

        self.step("pin", pinned)

    @precondition(lambda self: any(doc.pinned for doc in self.model.docs.values()))
    @rule(data=st.data())
    def unpin(self, data: st.DataObject) -> None:
        """Let a document follow its file again."""
        name = data.draw(
            st.sampled_from(sorted(name for name, doc in self.model.docs.items() if doc.pinned))
        )
        doc = self.model.docs[name]
        doc.live, doc.pinned = doc.wanted, False

        def let_go() -> None:
            self.place.ledger.unpin(NAMESPACE, self.doc_id(name))
            self.release()

        self.step("unpin", let_go)

    # releases

    @rule(which=st.integers(0, 5))
    def roll_back(self, which: int) -> None:
        """Publish some release that is kept."""

        def back() -> tuple[str, str]:
            kept = [
                manifest.release_id
                for manifest in releases.list_releases(self.place.store, NAMESPACE)
                if not manifest.failures
            ]
            self.place.roll_back(kept[which % len(kept)])
            return kept[which % len(kept)], self.place.ledger.namespaces()[NAMESPACE]

        if self.model.current:
            self.goes_to(*self.child("roll back", back).value)

    @precondition(lambda self: self.model.current != list(self.model.releases)[-1])
    @rule()
    def forward(self) -> None:
        """Publish the newest release that was public, unless it is."""

        def newest() -> tuple[str, str]:
            ledger = self.place.ledger
            found = go_forward(NAMESPACE, self.place.workspace)
            return found.release_id, ledger.namespaces()[NAMESPACE]

        ended = self.child("forward", newest, allowed="nothing_to_go_forward")
        if ended.raised:
            self.agree(self.look())
        else:
            self.goes_to(*ended.value)

    @precondition(lambda self: not self.clean)
    @rule()
    def gc(self) -> None:
        """Collect garbage: readers notice nothing."""
        before = self.look()
        self.child("gc", self.place.collect)
        assert self.look() == before, "collecting garbage changed what readers see"
        self.clean = True

    # checking

    def doc_id(self, name: str) -> str:
        """The document's id in the ledger."""
        return next(
            d.doc_id
            for d in self.place.ledger.documents(NAMESPACE)
            if d.source_uri == f"docs/{name}"
        )

    def release(self) -> None:
        """Build what is stale and publish what is live, as a job without a sync does."""
        with self.place.store.writer(NAMESPACE, "release"):
            self.place.ingest(Reception(NAMESPACE, (), (), (), (), False))
            if self.place.behind():
                self.place.publish()

    def child(
        self, name: str, function: Callable[[], Any], *, killed: bool = False, allowed: str = ""
    ) -> Ended:
        """How a child that did the work ended. Raises AssertionError when it failed, or was not
        killed by us.
        """
        counts[name] += 1
        ended = forked(function)
        if ended.signal and not (killed and ended.signal == signal.SIGKILL and not ended.error):
            raise AssertionError(f"{name} ended with signal {ended.signal} {ended.error}")
        if ended.raised and not (allowed and f"[{allowed}]" in ended.raised):
            raise AssertionError(f"{name} failed: {ended.raised}\n{ended.error}")
        return ended

    def look(self) -> dict[str, Any]:
        """What readers see."""
        found: dict[str, Any] = self.child("look", lambda: look(self.place)).value
        return found

    def step(self, name: str, work: Callable[[], Any]) -> None:
        """Do what may publish, then compare with the model and, where something was published, with
        a full build.
        """
        self.child(name, work)
        self.clean = False
        seen = self.look()
        if seen["current"] != self.model.current:
            self.publishes(seen["current"])
            self.child("full build", lambda: compare_with_full(self.place))
        else:  # somebody went back on purpose, and nothing changed since
            assert self.model.live() in (
                *self.model.releases.values(),
                {},
            ), f"{self.model.live()} is live, nothing was published"
        self.agree(seen)

    def goes_to(self, release_id: str, strategy: str) -> None:
        """A release was published again, and the library has its strategy."""
        self.model.current = release_id
        self.place = Place(self.place.folder, self.place.home, strategy)
        self.agree(self.look())

    def publishes(self, release_id: str) -> None:
        """A release of what is live was published."""
        self.model.releases[release_id] = dict(self.model.live())
        self.model.current = release_id
        counts["publications"] += 1

    def agree(self, seen: dict[str, Any]) -> None:
        """Readers see what the model says they see."""
        assert seen["current"] == self.model.current, (
            f"{seen['current']} is published, expected {self.model.current}"
        )
        expected = {
            name: sorted(set(content))
            for name, content in self.model.releases.get(self.model.current, {}).items()
        }
        assert seen["shown"] == expected, f"readers find {seen['shown']}, expected {expected}"
        counts["comparisons"] += 1


def run(sequences: int, steps: int, number: int, shrink: bool) -> None:
    """Run random sequences; the same number gives the same ones."""
    phases = (Phase.generate, Phase.shrink) if shrink else (Phase.generate,)
    chosen = settings(
        max_examples=sequences,
        stateful_step_count=steps,
        deadline=None,
        database=None,
        phases=phases,
        suppress_health_check=list(HealthCheck),
        print_blob=False,
    )
    try:
        run_state_machine_as_test(seed(number)(Life), settings=chosen)
    except (OverError, FlakyStrategyDefinition):  # so it calls a sequence that is not begun
        if time.monotonic() < Life.until:
            raise


@contextlib.contextmanager
def shared_services() -> Iterator[Callable[[], dict[str, str]]]:
    """What gives the environment of a new, empty database and bucket."""
    database, server = PostgresServer(), S3Server.moto()
    try:
        yield lambda: {**server.variables(), "RAG_LEDGER": database.new_url()}
    finally:
        server.kill()
        database.close()


def main() -> int:
    """Run the machine and say what it did."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--sequences", type=int, default=200)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--seed", type=int, default=random.getrandbits(32))
    parser.add_argument(
        "--seconds", type=float, default=float("inf"), help="no sequence begins after so long"
    )
    parser.add_argument(
        "--shrink", action="store_true", help="look for a shorter way to a difference"
    )
    parser.add_argument(
        "--shared", action="store_true", help="PostgreSQL and an S3 server instead of files"
    )
    options = parser.parse_args()
    began = time.monotonic()
    with (
        # before temporary files lie in a folder of ours: the database runs as another user
        shared_services() if options.shared else contextlib.nullcontext(dict) as services,
        tempfile.TemporaryDirectory(prefix="rag-machine-") as folder,
    ):
        Life.services = staticmethod(services)
        tempfile.tempdir = folder
        warm = Place(Path(folder) / "warm", Path(folder) / "warm" / "home")
        warm.docs.mkdir(parents=True)
        (warm.docs / "a.md").write_text(text_of((1, 2)), encoding="utf-8")
        os.environ |= services()
        modules = forked(
            lambda: [
                warm.enter().update(),
                compare_with_full(warm),
                warm.collect(),
                list(sys.modules),
            ][-1]
        )
        assert not modules.raised, modules.error
        preload(modules.value)
        Life.until = began + options.seconds
        try:
            run(options.sequences, options.steps, options.seed, options.shrink)
            differences = 0
        except AssertionError:
            traceback.print_exc()
            differences = 1
    done = ", ".join(
        f"{name} {count}"
        for name, count in sorted(counts.items())
        if name not in ("sequences", "look", "ask")
    )
    print(
        f"{counts['sequences']} sequences in {time.monotonic() - began:.0f} s ({done});"
        f" differences={differences}, seed {options.seed}"
    )
    return 1 if differences else 0


if __name__ == "__main__":
    sys.exit(main())
