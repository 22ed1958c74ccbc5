"""Work on a disk that is really full at some moment: the error says so, the library is whole, and
with space the work completes.

    unshare -Urm python bench/full_disk.py [--scenario update ...] [--levels 12]

Where bench/crashes.py refuses what Python asks of the system, here the system refuses, whoever
asks: each trial runs on a file system in memory with only so many bytes free, from hardly any to
what the work needs. Mounting wants a user namespace of its own, hence `unshare`.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

from crash_points import forked
from crashes import SCENARIOS, Trial, judged, prepare, work
from small_library import Place

from rag_platform.releases import building

LARGE = 256 << 20
FIRST, LAST = 4096, 12 << 20  # the work of these scenarios needs less


def mount(folder: Path, size: int, *, again: bool = False) -> None:
    """Mount a file system of so many bytes, or give the mounted one another size."""
    option = f"{'remount,' if again else ''}size={size // 4096 * 4096}"
    subprocess.run(["mount", "-t", "tmpfs", "-o", option, "tmpfs", str(folder)], check=True)


def try_level(trial: Trial, free: int) -> dict[str, Any]:
    """What became of the library when the work began with so many bytes free."""
    place = trial.place("small")
    place.home.mkdir(exist_ok=True)
    mount(place.home, LARGE)
    try:
        shutil.copytree(trial.folder / "begin", place.home, dirs_exist_ok=True)
        usage = os.statvfs(place.home)
        mount(place.home, (usage.f_blocks - usage.f_bfree) * usage.f_frsize + free, again=True)
        ended = forked(lambda: unwarned(trial, place))
        mount(place.home, LARGE, again=True)
        return judged(trial, place, ended, {"free": free, "wrong": "", "live": "", "ended": ""})
    finally:
        subprocess.run(["umount", str(place.home)], check=True)


def unwarned(trial: Trial, place: Place) -> None:
    """The work without the look at the free space that comes before a release is built: another
    process takes the space after it.
    """
    building.RESERVE = -LARGE
    work(trial, place.enter())


def main() -> int:
    """Run the trials."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--scenario", nargs="*", default=["first", "update", "rebuild", "purge"])
    parser.add_argument("--levels", type=int, default=12)
    options = parser.parse_args()
    wrong = 0
    with tempfile.TemporaryDirectory(prefix="rag-full-") as folder:
        for scenario in (known for known in SCENARIOS if known.name in options.scenario):
            trial = prepare(scenario, Path(folder) / scenario.name)
            levels = [
                int(FIRST + (LAST - FIRST) * (step / max(1, options.levels - 1)) ** 3)
                for step in range(options.levels)
            ]
            results = [try_level(trial, level) for level in levels]
            ends = Counter(
                f"{result['ended']}, {result['live'] or '?'} release live" for result in results
            )
            bad = [result for result in results if result["wrong"]]
            print(
                f"{scenario.name}: {len(results) - len(bad)} of {len(results)} recovered:"
                f" {dict(ends)}",
                flush=True,
            )
            for result in bad:
                print(
                    f"  WRONG with {result['free']:,} bytes free: {result['wrong']}\n"
                    f"{result.get('stack', '')[-1500:]}"
                )
            wrong += len(bad)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
