"""Every bad input gets what is expected of it: no crash, no hang, no lost neighbour, never silence.

    python bench/faults.py [--data FOLDER] [--only faults|pdf-robust|PART OF A PATH] [--profile
    layout|fast] [--json]

FOLDER holds `faults/` and `pdf-robust/`, each with its manifest.jsonl. Every file is received and
ingested as a user's would be (without Dagster, vectors by feature hashing), together with a
neighbour that must land. Printed: one line a file with its outcome, the seconds it took, and
whether the rule for its kind holds (`faults_rules.py` has the rules). Exit code 1 when one does
not.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import tarfile
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from faults_rules import Outcome, problem

from rag_platform.config.ingestion import EmbeddingConfig, LoadingConfig
from rag_platform.config.profiles import stage_profiles
from rag_platform.config.settings import Settings, Strategy, load_settings
from rag_platform.config.strategies import load_strategy
from rag_platform.documents.outputs import Outputs
from rag_platform.documents.provenance import verify_version
from rag_platform.ingestion.batches import ingest_versions
from rag_platform.ingestion.request import Hooks
from rag_platform.intake.receiving import ReceiveOptions, receive
from rag_platform.ir import StageOutcome, Version
from rag_platform.ledger.ledger import Ledger, open_ledger
from rag_platform.ledger.schema import JobItem
from rag_platform.storage.store import Store
from rag_platform.workspace import Workspace

IMAGES = (".png", ".bmp", ".jpg", ".gif", ".svg")


@dataclass(frozen=True)
class Case:
    """One line of a manifest."""

    file: str
    kind: str
    expect: str
    path: Path
    facts: dict[str, object] = field(default_factory=dict)  # what the manifest says beside


@dataclass
class Bench:
    """A data root of its own and a scratch folder."""

    settings: Settings
    strategy: Strategy
    store: Store
    ledger: Ledger
    scratch: Path
    done: int = 0
    connections: list[str] = field(default_factory=list)
    warnings: dict[str, list[str]] = field(default_factory=dict)

    def run(self, case: Case) -> Outcome:
        """What became of a file, and of a neighbour in the same batch."""
        self.done += 1
        self.connections.clear()
        neighbour = self.scratch / f"neighbour-{self.done}.md"
        neighbour.write_text(
            f"# Neighbour\n\nThe neighbour number {self.done} is well.\n", encoding="utf-8"
        )
        target = self.prepared(case)
        namespace = f"case-{self.done}"  # images and folders must not meet those of other cases
        parts = {
            "strategy": self.strategy,
            "settings": self.settings,
            "store": self.store,
            "ledger": self.ledger,
        }
        started = time.perf_counter()
        reception = receive([target, neighbour], namespace, Workspace(**parts), ReceiveOptions())
        self.warnings = {}
        ingest_versions(
            [self.ledger.version(item) for item in reception.to_process],
            Workspace(**parts),
            hooks=Hooks(on_outcome=self.note),
        )
        seconds = time.perf_counter() - started
        own = [
            item for item in reception.items if not item.source_uri.startswith("files/neighbour-")
        ]
        beside = [
            item for item in reception.items if item.source_uri.startswith("files/neighbour-")
        ]
        landed = all(
            self.ledger.version(item.version_id).status == "ready" for item in beside
        ) and bool(beside)
        if target.is_dir():
            return self.of_folder(target, own, seconds, landed)
        return self.of_item(own[0], seconds, landed)

    def note(self, version: Version, outcome: StageOutcome) -> None:
        """Keep what a stage warned of."""
        self.warnings.setdefault(version.version_id, []).extend(outcome.warnings)

    def prepared(self, case: Case) -> Path:
        """What to ingest: the file, a document that shows it when it is an image, the unpacked
        folder of a tar.
        """
        folder = self.scratch / f"case-{self.done}"
        if case.file.startswith("images/") and case.path.suffix in IMAGES:
            shutil.copytree(
                case.path.parent if case.path.parent.name == "images" else case.path.parent.parent,
                folder,
            )
            shown = folder / "shown.md"
            relative = case.path.relative_to(
                case.path.parent.parent if case.path.parent.name != "images" else case.path.parent
            )
            shown.write_text(
                f"# Picture\n\nBefore it.\n\n![shown]({relative.as_posix()})\n\nBehind it.\n",
                encoding="utf-8",
            )
            return shown
        if case.file.endswith(".tar.gz"):
            folder.mkdir()
            with tarfile.open(case.path) as archive:
                archive.extractall(folder, filter="fully_trusted")
            return folder
        return case.path

    def of_folder(
        self, folder: Path, items: Sequence[JobItem], seconds: float, neighbour: bool
    ) -> Outcome:
        """The outcome of a folder: the files that landed, and the reasons of the others."""
        names = [
            path.relative_to(folder).as_posix()
            for path in folder.rglob("*")
            if path.is_file() and not path.is_symlink()
        ]
        ready = [
            item.source_uri
            for item in items
            if item.version_id and self.ledger.version(item.version_id).status == "ready"
        ]
        return Outcome(
            landed=True,
            seconds=seconds,
            neighbour=neighbour,
            connections=tuple(self.connections),
            files=tuple(sorted(names)),
            sources=tuple(sorted(uri.partition("/")[2] for uri in ready)),
            warnings=tuple(f"{item.source_uri}: {item.reason}" for item in items if item.reason),
        )

    def of_item(self, item: JobItem, seconds: float, neighbour: bool) -> Outcome:
        """The outcome of one file."""
        shared = {
            "seconds": seconds,
            "neighbour": neighbour,
            "connections": tuple(self.connections),
        }
        if not item.version_id:
            return Outcome(landed=False, code=item.code, reason=item.reason, **shared)
        version = self.ledger.version(item.version_id)
        if version.status != "ready":
            return Outcome(
                landed=False,
                code=version.code,
                reason=version.reason,
                loader=version.loader,
                **shared,
            )
        profiles = stage_profiles(self.strategy)
        outputs = Outputs(version, self.store, profiles)
        chunks = outputs.chunks
        failures = verify_version(self.store, version, profiles, chunks, self.settings.limits)
        return Outcome(
            landed=True,
            loader=version.loader,
            facts=outputs.facts,
            links=tuple(outputs.links),
            text=outputs.normalised.text,
            sections=tuple(outputs.sections),
            chunks=tuple(chunks),
            views=tuple(outputs.views),
            warnings=tuple(self.warnings.get(version.version_id, ())),
            unproved=tuple(failure.reason for failure in failures),
            home=self.store.home,
            **shared,
        )


def cases(data: Path, only: str) -> Iterator[Case]:
    """Every line of both manifests."""
    for folder in ("faults", "pdf-robust"):
        for line in (data / folder / "manifest.jsonl").read_text(encoding="utf-8").splitlines():
            row = json.loads(line)
            kind, expect = (
                row.get("kind", "pdf-robust"),
                row.get("expect", "text, pictures, or a clear reason; no crash, no hang"),
            )
            case = Case(row["file"], kind, expect, data / folder / row["file"], row)
            if not only or only in f"{folder}/{row['file']}":
                yield case


def new_bench(profile: str) -> Bench:
    """A bench over an empty data root; connections beyond this machine's own processes are
    noted.
    """
    scratch = Path(tempfile.mkdtemp(prefix="rag-faults-"))
    os.environ["RAG_HOME"] = str(scratch / "home")
    settings = load_settings()
    strategy = load_strategy(settings, "default")
    loaders = tuple(
        (
            item.model_copy(update={"options": {**item.options, "profile": profile}})
            if item.provider == "pdf"
            else item
        )
        for item in strategy.loading.loaders
    )
    strategy = strategy.model_copy(
        update={
            "loading": LoadingConfig(loaders=loaders),
            "embedding": EmbeddingConfig(provider="hashing"),
        }
    )
    store = Store(settings.home)
    bench = Bench(settings, strategy, store, open_ledger(store), scratch)

    def watch(event: str, args: tuple[object, ...]) -> None:
        if event in ("socket.connect", "socket.getaddrinfo"):
            bench.connections.append(
                f"{event} {args[-1] if event == 'socket.connect' else args[0]}"
            )

    sys.addaudithook(watch)
    return bench


def main() -> int:
    """Print the table; 1 when a rule does not hold."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument(
        "--data", type=Path, default=Path(os.environ.get("RAG_TEST_DATA", "../shared/data"))
    )
    parser.add_argument("--only", default="")
    parser.add_argument("--profile", choices=("layout", "fast"), default="layout")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    if not (arguments.data / "faults" / "manifest.jsonl").is_file():
        parser.error(
            f"no faults/manifest.jsonl in {arguments.data}; name the folder with --data or"
            " RAG_TEST_DATA"
        )
    bench = new_bench(arguments.profile)
    verdicts: Counter[str] = Counter()
    for case in cases(arguments.data, arguments.only):
        outcome = bench.run(case)
        wrong = problem(case.file, case.kind, case.facts, case.path, outcome)
        verdicts["NOT OK" if wrong else "ok"] += 1
        _show(case, outcome, wrong, arguments.json)
    print(
        f"\n{verdicts['ok']} ok, {verdicts['NOT OK']} not ok",
        file=sys.stderr if arguments.json else sys.stdout,
    )
    shutil.rmtree(bench.scratch, ignore_errors=True)
    return 1 if verdicts["NOT OK"] else 0


def _show(case: Case, outcome: Outcome, wrong: str, as_json: bool) -> None:
    said = outcome.said()
    if as_json:
        row = {
            "file": case.file,
            "kind": case.kind,
            "expect": case.expect,
            "outcome": said,
            "seconds": round(outcome.seconds, 2),
        }
        print(json.dumps({**row, "ok": not wrong, "problem": wrong}, ensure_ascii=False))
        return
    print(
        f"{'NOT OK' if wrong else 'ok':6} {outcome.seconds:6.1f}s {case.file:48}"
        f" {case.kind[:40]:40} {said[:110]}"
    )
    if wrong:
        print(f"{'':14} expected: {case.expect}\n{'':14} found: {wrong[:200]}")


if __name__ == "__main__":
    sys.exit(main())
