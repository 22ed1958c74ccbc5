"""Kills work at every point where it changes a file, and fills the disk there; afterwards the
library must be whole and the work complete.

    python bench/crashes.py [--scenario update ...] [--first-and-last] [--points 20] [--seconds 50]
    [--fault kill full] [--workers 2]

For each write point a data root is copied, the work begins in a process of its own and is killed
(SIGKILL) at that point. Then, in a fresh process: CURRENT names a complete release whose files have
their recorded hashes, its chunks, vectors and answers are wholly those of before or of after, no
quote fails, the ledger is sound. The same work is then run again: it must complete, to the same
chunks, vectors and answers as work that was never interrupted, and what a garbage collection leaves
must be the same files. `full` refuses everything that needs space from the point on, instead of
killing: the work must end with an error that says so. Exit code 1 when any point was not recovered.
`--first-and-last` takes only the first and the last occurrence of each site.
"""

from __future__ import annotations

import os

os.environ["OPENBLAS_NUM_THREADS"] = "1"  # before numpy: the parent of forks must have one thread

import argparse
import dataclasses
import hashlib
import json
import shutil
import sqlite3
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from crash_points import Ended, Point, Watch, forked, preload, side_by_side
from small_library import NAMESPACE, NOTHING, Place, State, files_of, picture, state_of

from rag_platform.errors import disk_full
from rag_platform.releases import release_store as releases

LIMITS = "\n\n## Limits\n\n| tier | requests per minute |\n| --- | --- |\n| pro | 600 |\n"
BEFORE = {
    "ports.md": f"# Ports\n\nThe gateway listens on port 8080.{LIMITS}",
    "休假.md": "# 休假制度\n\n员工每年有十五天带薪年假。\n\n## 病假\n\n病假需要医生证明。\n",
    "notes.txt": "Version 2.4.1 fixes the crash on start.\n",
    "old.md": "# Old\n\nThis page will be removed, with its code PPR-1111.\n\n![old](old.png)\n",
}
AFTER = {
    "ports.md": f"# Ports\n\nThe gateway listens on port 9090.{LIMITS}",
    "steps.md": (
        "# Steps\n\nError PPR-9087 means that the licence is missing.\n\n![chart](chart.png)\n"
    ),
    "old.md": None,
}


@dataclass(frozen=True)
class Scenario:
    """Work that is interrupted, and the data root it begins with."""

    name: str
    prepare: Callable[[Place], None]
    work: Callable[[Place], None]


def write(place: Place, files: dict[str, str | None]) -> None:
    """Change the watched folder."""
    place.docs.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        path = place.docs / name
        path.unlink() if text is None else path.write_text(text, encoding="utf-8")
    for name, colour in (("old.png", "red"), ("chart.png", "blue")):
        (place.docs / name).write_bytes(picture(colour))


def _empty(place: Place) -> None:
    write(place, BEFORE)


def _published_twice(place: Place) -> None:
    write(place, {**BEFORE, "ports.md": "# Ports\n\nTo be written.\n"})
    place.update()
    write(place, BEFORE)
    place.update()
    write(place, AFTER)


def _updated(place: Place) -> None:
    _published_twice(place)
    place.update()


def _go_back(place: Place) -> None:
    place.roll_back(releases.list_releases(place.store, NAMESPACE)[-1].release_id)


def _other_strategy(place: Place) -> None:
    Place(place.folder, place.home, "smaller").move()


def _delete(mode: str) -> Callable[[Place], None]:
    def delete(place: Place) -> None:
        document = next(d for d in place.ledger.documents(NAMESPACE) if d.filename == "steps.md")
        place.delete(document.doc_id, mode)

    return delete


SCENARIOS = [
    Scenario("first", _empty, Place.update),
    Scenario("update", _published_twice, Place.update),
    Scenario("rollback", _updated, _go_back),
    Scenario("rebuild", _updated, _other_strategy),
    Scenario("delete", _updated, _delete("soft")),
    Scenario("purge", _updated, _delete("hard")),
    Scenario("gc", _updated, Place.collect),
]


# --- one point ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Trial:
    """A scenario in a folder: its beginning, and what the work comes to when nothing happens."""

    scenario: Scenario
    folder: Path
    before: State
    after: State
    files: list[str]
    points: list[Point]

    def place(self, name: str) -> Place:
        """A place with a data root of its own over the scenario's documents."""
        return Place(self.folder, self.folder / name)

    def fresh(self, name: str) -> Place:
        """A place whose data root is a copy of the scenario's beginning."""
        place = self.place(name)
        shutil.rmtree(place.home, ignore_errors=True)
        shutil.copytree(self.folder / "begin", place.home)
        return place


def prepare(scenario: Scenario, folder: Path) -> Trial:
    """Make the beginning unless another scenario left it in the folder, run the work once
    undisturbed and note every point it passes.
    """
    trial = Trial(scenario, folder, NOTHING, NOTHING, [], [])
    begin = trial.place("begin")
    if not begin.home.exists():
        begin.home.mkdir(parents=True)
        _value(forked(lambda: scenario.prepare(begin.enter())))
    before = _value(forked(lambda: _plain(state_of(begin.enter()))))
    clean = trial.fresh("clean")

    def undisturbed() -> dict[str, Any]:
        clean.enter()
        watch = Watch(clean.home).install()
        scenario.work(clean)
        points = [(point.site, point.nth) for point in watch.seen]
        return {"points": points, **_settled(clean), "modules": list(sys.modules)}

    after = _value(forked(undisturbed))
    points = after["points"]
    preload(after["modules"])
    return Trial(
        scenario,
        folder,
        _state(before),
        _state(after["state"]),
        after["files"],
        [Point(*point) for point in points],
    )


def _settled(place: Place) -> Any:
    """The state after the work and what is left of files when everything that nobody needs was
    collected.
    """
    state = _plain(state_of(place))
    check_ledger(place)
    collect(place)
    assert _plain(state_of(place)) == state, "collecting garbage changed what readers see"
    return {"state": state, "files": [*files_of(place.home), *rows_of(place)]}


def collect(place: Place) -> None:
    """Remove what nobody needs, files left by dead processes included: their age is what the
    collector goes by.
    """
    for path in place.home.rglob("*"):
        if path.is_file() and (path.name.startswith(".") or path.parent == place.store.spool_dir):
            os.utime(path, (0, 0))
    place.collect()


def check_ledger(place: Place) -> None:
    """The ledger is sound and says what lies on disk."""
    db = sqlite3.connect(place.store.ledger_path)
    assert db.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    db.close()
    published = [
        row.release_id for row in place.ledger.releases(NAMESPACE) if row.state == "published"
    ]
    current = releases.current(place.store, NAMESPACE)
    assert published == [current], (
        f"the ledger says {published} is published, CURRENT says {current}"
    )
    rows = {row.release_id for row in place.ledger.releases(NAMESPACE)}
    unknown = [
        m.release_id
        for m in releases.list_releases(place.store, NAMESPACE)
        if m.release_id not in rows
    ]
    assert not unknown, f"releases on disk that the ledger does not know: {unknown}"


def rows_of(place: Place) -> list[str]:
    """How many vectors the cache keeps."""
    db = sqlite3.connect(place.store.embeddings_path)
    count = db.execute("SELECT count(*) FROM embeddings").fetchone()[0]
    db.close()
    return [f"{count} vectors in the cache"]


def _plain(state: State) -> Any:
    return json.loads(json.dumps(dataclasses.asdict(state)))


def _state(value: Any) -> State:
    pairs = {name: tuple(map(tuple, value[name])) for name in ("chunks", "visible")}
    return State(**{**value, **pairs, "hidden": tuple(value["hidden"])})


def _value(ended: Ended) -> Any:
    if ended.signal or ended.error:
        raise RuntimeError(f"signal {ended.signal}\n{ended.error}")
    return ended.value


def try_point(trial: Trial, worker: int, point: Point, fault: str) -> dict[str, Any]:
    """What became of the library when the work met the fault at one point; `wrong` is empty when
    all is well.
    """
    place = trial.fresh(f"worker{worker}")
    found: dict[str, Any] = {
        "point": str(point),
        "kind": point.kind,
        "fault": fault,
        "wrong": "",
        "live": "",
        "ended": "",
    }

    def disturbed() -> None:
        watch = Watch(place.enter().home, **{fault: point}).install()
        work(trial, place, watch)

    return judged(trial, place, forked(disturbed), found)


def work(trial: Trial, place: Place, watch: Watch | None = None) -> None:
    """Do the scenario's work. Raises StorageError, as a job tells it, when the disk is full through
    whatever library.
    """
    try:
        trial.scenario.work(place)
    except Exception as error:
        if watch is not None:
            watch.refusing = False
        raise disk_full(error, place.home) or error from error


def judged(trial: Trial, place: Place, ended: Ended, found: dict[str, Any]) -> dict[str, Any]:
    """`found` with what became of the library after a fault, and what is wrong with it."""
    found["ended"] = (
        f"signal {ended.signal}"
        if ended.signal
        else ended.raised.split(":")[0] or "nothing happened"
    )
    if ended.error.startswith("hung"):
        return {**found, "wrong": ended.error}
    if ended.raised and not ended.raised.startswith("StorageError [disk_full]"):
        return {
            **found,
            "wrong": f"another error than that the disk is full: {ended.raised}",
            "stack": ended.error,
        }

    def looked() -> str:
        state = state_of(place.enter())
        if state.content() == trial.before.content():
            return "old"
        if state.hidden and (state.chunks, state.vectors, state.visible) == (
            trial.before.chunks,
            trial.before.vectors,
            trial.after.visible,
        ):
            return "old with the deletion"
        assert state.content() == trial.after.content(), (
            f"neither before nor after: {len(state.chunks)} chunks, hidden {state.hidden}"
        )
        return "new"

    def repaired() -> None:
        place.enter()
        trial.scenario.work(place)
        settled = _settled(place)
        state = _state(settled["state"])
        assert state.content() == trial.after.content(), (
            "the work done again came to something else"
        )
        over = sorted(set(settled["files"]) ^ set(trial.files))
        assert not over, f"other files than without the fault: {over}"

    for step, function in (("afterwards", looked), ("done again", repaired)):
        seen = forked(function)
        if seen.signal or seen.error:
            return {**found, "wrong": f"{step}: {seen.raised or seen.signal}", "stack": seen.error}
        found["live"] = found["live"] or seen.value
    return found


# --- all points ---------------------------------------------------------------------------------


def chosen(points: Sequence[Point], first_and_last: bool) -> list[Point]:
    """The points to try: all, or the first and last occurrence of each site."""
    if not first_and_last:
        return list(points)
    occurrences = defaultdict(list)
    for point in points:
        occurrences[point.site].append(point)
    return [
        point for found in occurrences.values() for point in dict.fromkeys((found[0], found[-1]))
    ]


def run(scenario: Scenario, options: argparse.Namespace, folder: Path) -> tuple[int, int]:
    """(points tried, points not recovered) of one scenario, printed."""
    began = time.monotonic()
    trial = prepare(scenario, folder / scenario.prepare.__name__)
    points = chosen(trial.points, options.first_and_last)
    sites = {point.site for point in trial.points}
    print(
        f"\n"
        f"{scenario.name}: {len(trial.points)} write points at {len(sites)} sites; the work took"
        f" {time.monotonic() - began:.1f} s",
        flush=True,
    )
    # what is tried of them is a mixture
    points.sort(key=lambda point: hashlib.sha256(str(point).encode()).digest())
    items = [(point, fault) for point in points[: options.points] for fault in options.fault]
    until = time.monotonic() + options.seconds

    def attempt(worker: int, item: tuple[Point, str]) -> Any:
        return None if time.monotonic() > until else try_point(trial, worker, *item)

    results = [result for result in side_by_side(attempt, items, options.workers) if result]
    bad = [result for result in results if result.get("broken") or result["wrong"]]
    for fault in options.fault:
        mine = [result for result in results if result.get("fault") == fault]
        kinds = Counter(result["kind"] for result in mine)
        lives = Counter(result["live"] or "?" for result in mine)
        recovered = sum(not result["wrong"] for result in mine)
        print(
            f"  {fault}: {recovered} of {len(mine)} recovered"
            f" ({', '.join(f'{k} {n}' for k, n in sorted(kinds.items()))}); live afterwards:"
            f" {', '.join(f'{k} {n}' for k, n in sorted(lives.items()))}"
        )
        ends = Counter(result["ended"][:110] for result in mine)
        print("    ended: " + "; ".join(f"{end} ({count})" for end, count in ends.most_common(8)))
    for result in bad[: options.show]:
        print(
            f"  NOT RECOVERED {result.get('fault')} {result.get('point')}\n"
            f"    ended: {result.get('ended')}\n"
            f"    {result.get('wrong')}"
        )
        print(
            "      "
            + (result.get("broken") or result.get("stack") or "")
            .strip()
            .replace("\n", "\n      ")[-1500:]
        )
    if untried := len(points) * len(options.fault) - len(results):
        print(f"  {untried} faults were not tried: --points and --seconds bound them")
    return len(results), len(bad)


def main() -> int:
    """Run the fault injection."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--scenario", nargs="*", default=[scenario.name for scenario in SCENARIOS])
    parser.add_argument("--fault", nargs="*", default=["kill", "full"], choices=["kill", "full"])
    parser.add_argument("--first-and-last", action="store_true")
    parser.add_argument(
        "--points", type=int, help="points to try of each scenario, a mixture; default: all"
    )
    parser.add_argument("--seconds", type=float, default=float("inf"), help="for each scenario")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--show", type=int, default=5, help="how many failures to print in full")
    options = parser.parse_args()
    tried = wrong = 0
    with tempfile.TemporaryDirectory(prefix="rag-crashes-") as folder:
        for scenario in SCENARIOS:
            if scenario.name in options.scenario:
                done, bad = run(scenario, options, Path(folder))
                tried, wrong = tried + done, wrong + bad
    print(f"\n{tried} faults, {tried - wrong} recovered, {wrong} not")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
