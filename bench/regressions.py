"""Is a planted change found again, and does a recorded question give what it gave?

    python bench/regressions.py FOLDER [--strategy fast] [--traces 200]

FOLDER holds `r1.tar.gz` and `r3.tar.gz`, two revisions of the FastAPI documentation. Eight releases
lead from one to the other, a few documents at a time, and five of them carry a planted change:
a document deleted, a sentence taken out, other chunks, a document that outranks another, the
reranker turned round. Questions that changed once are bisected, at most four releases asked; the
release must be the one that asking all eight finds, and each planted change must be named by one
of them. Then questions asked of one release are replayed on it, and on the next one, where each
difference must be explained. A wrong result ends with exit code 1.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import tarfile
import tempfile
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import yaml
from gates import NAMESPACE, QUESTIONS, REPOSITORY, Place

from rag_platform.answering.engine import answer
from rag_platform.config.settings import load_settings
from rag_platform.evaluation.cases import Dataset, EvalCase
from rag_platform.evaluation.expectations import TOP, expectation, judge
from rag_platform.evaluation.monitoring.replaying import bisect, replay
from rag_platform.evaluation.results import ResultStore
from rag_platform.evaluation.runs import RunOptions, evaluate, open_library
from rag_platform.ir import QueryRequest
from rag_platform.observability.trace_reader import show as read_trace
from rag_platform.releases.release_store import current
from rag_platform.retrieval.library import Library
from rag_platform.storage.store import Store

DELETED, EDITED, RECUT, OUTRANKED, INVERTED = 1, 2, 3, 4, 6  # places of the releases
SUSPECTS = {
    DELETED: "cors",
    EDITED: "document changed: ",
    RECUT: "config chunker",
    OUTRANKED: "rival",
    INVERTED: "config reranker",
}


def read_questions() -> list[EvalCase]:
    """The answerable questions over this documentation, as expectations."""
    sets = yaml.safe_load(QUESTIONS.read_text(encoding="utf-8"))
    return [
        expectation(item["ask"], file=item["file"], text=item["needle"])
        for name in ("tune", "held_out")
        for item in sets[name]["answerable"]
    ]


def write_rivals(folder: Path) -> None:
    """Write documents that repeat three of the questions, each in other company."""
    company = ("On Mondays", "In the north", "For beginners", "With two hands", "After lunch")
    for number, asked in enumerate(
        (
            "How do I declare a cookie parameter?",
            "How do I serve static files from a directory?",
            "Should I pin the version of Starlette?",
        )
    ):
        for words in company:
            body = f"# {asked}\n\n{words}: {asked} {words.lower()}, nobody knows {number}.\n"
            name = f"rival-{number}-{words.lower().replace(' ', '-')}.md"
            (folder / name).write_text(body, encoding="utf-8")


def build_releases(place: Place, old: Path, new: Path, base: str) -> list[str]:
    """Publish the eight releases; their ids, oldest first."""
    store = Store(load_settings().home)
    names = sorted({path.relative_to(root) for root in (old, new) for path in root.rglob("*.md")})
    shutil.copytree(old, place.docs)
    cut = {"provider": "recursive", "options": {"chunk_size": 300, "chunk_overlap": 0}}
    changes: dict[str, object] = {}
    found = []
    for number in range(8):
        for name in names[number::8] if number else ():
            target = place.docs / name
            if (new / name).is_file():
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_bytes((new / name).read_bytes())
            else:
                target.unlink(missing_ok=True)
        for gone in place.docs.rglob("cors.md") if number >= DELETED else ():
            gone.unlink()
        if number >= EDITED:
            path = place.docs / "docs/en/docs/tutorial/request-files.md"
            text = path.read_text(encoding="utf-8").replace("python-multipart", "a package")
            path.write_text(text, encoding="utf-8")
        if number == RECUT:
            changes["chunker"] = cut
        if number == OUTRANKED:
            write_rivals(place.docs)
        if number == INVERTED:
            changes["reranker"] = {"provider": "gates:Inverted"}
        place.write_strategy(base, changes)
        place.release(publish=True)
        release = current(store, NAMESPACE)
        assert release is not None and release not in found, "nothing was published"
        found.append(release)
        print(f"release {number + 1} of 8: {release}", flush=True)
    return found


def ask_all(
    library: Library, releases: Sequence[str], cases: Sequence[EvalCase], results: ResultStore
) -> dict[str, list[bool]]:
    """Whether each case is met by each release: every one is asked."""
    dataset = Dataset(dataset_id="all", version="1", cases=tuple(cases), k_values=(TOP, 10))
    found: dict[str, list[bool]] = {case.case_id: [] for case in cases}
    for release in releases:
        with library.lease(NAMESPACE, release) as lease:
            config = library.config_id(lease.strategy)
        run = evaluate(
            library,
            dataset,
            RunOptions(namespace=NAMESPACE, release_id=release, strategy=config),
            results,
        )
        for result in results.cases(run.run_id):
            found[result.case_id].append(judge(result).met)
    return found


def check_bisections(
    library: Library, releases: Sequence[str], cases: Sequence[EvalCase], results: ResultStore
) -> int:
    """Bisect every question that changed once; the number of wrong results."""
    met = ask_all(library, releases, cases, results)
    wrong = 0
    named: set[int] = set()
    for case in cases:
        states = met[case.case_id]
        turns = [place for place in range(1, 8) if states[place] != states[place - 1]]
        if len(turns) != 1:
            continue
        found = bisect(library, NAMESPACE, releases, case, results)
        place = releases.index(found.release_id)
        good = place == turns[0] and len(found.asked) <= 4
        wrong += not good
        cause = SUSPECTS.get(place)
        if cause and any(cause in item for item in found.suspects):
            named.add(place)
        print(
            f"{'right' if good else 'WRONG'}: {case.query!r} since release {place + 1},"
            f" {len(found.asked)} asked: {'; '.join(found.suspects)}"
        )
    for place in SUSPECTS.keys() - named:
        print(f"WRONG: the change planted in release {place + 1} was not named")
    return wrong + len(SUSPECTS.keys() - named)


def check_replays(library: Library, store: Store, asked: str, later: str, count: int) -> int:
    """Replay questions on their release and on a later one; the number of wrong results."""
    sets = yaml.safe_load(QUESTIONS.read_text(encoding="utf-8"))
    texts = [item["ask"] for name in ("tune", "held_out") for item in sets[name]["answerable"]]
    texts += [text for name in ("tune", "held_out") for text in sets[name]["unknown"]]
    with library.lease(NAMESPACE, asked) as lease:
        config = library.config_id(lease.strategy)
    requests = [
        QueryRequest(text, NAMESPACE, top_k=top, mode=mode, release_id=asked, strategy=config)
        for mode, top in (("hybrid", 10), ("sparse", 5), ("dense", 3))
        for text in texts
    ][:count]
    same = differ = wrong = 0
    for request in requests:
        trace = read_trace(store.logs_dir, answer(library, request).trace_id)
        again = replay(library, trace)
        same += again.same
        then = replay(library, trace, release_id=later)
        differ += not then.same
        wrong += not again.same or (not then.same and not then.reasons)
    print(
        f"\n{same} of {len(requests)} replays are the same; {differ} differ on the next release,"
        f" {wrong} of all wrong or without a reason"
    )
    return wrong + (len(requests) < count) + (differ == 0)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("--strategy", default="fast")
    parser.add_argument("--traces", type=int, default=200, metavar="N")
    options = parser.parse_args()
    root = Path(tempfile.mkdtemp(prefix="rag-regressions-"))
    config = root / "config"
    shutil.copytree(REPOSITORY / "rag_platform" / "defaults", config)
    settings = config / "settings.yaml"
    settings.write_text(settings.read_text("utf-8").replace("keep: 5", "keep: 9"), "utf-8")
    os.environ |= {"RAG_CONFIG": str(config), "RAG_HOME": str(root / "home")}
    for name in ("r1", "r3"):
        with tarfile.open(options.folder / f"{name}.tar.gz") as opened:
            opened.extractall(root / name, filter="data")
    place = Place(root, root / "docs")
    releases = build_releases(place, root / "r1", root / "r3", options.strategy)
    store = Store(load_settings().home)
    with (
        open_library(load_settings(), store) as library,
        closing(ResultStore(store.home)) as results,
    ):
        wrong = check_bisections(library, releases, read_questions(), results)
        wrong += check_replays(library, store, releases[3], releases[4], options.traces)
    shutil.rmtree(root)
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
