"""How many processors a process may use."""

import os
import subprocess
import sys

import pytest

from rag_platform.processes.processors import quota_of, usable_processors


@pytest.mark.parametrize(
    ("text", "processors"),
    [
        ("200000 100000\n", 2),
        ("150000 100000\n", 2),
        ("5000 100000\n", 1),
        ("-1\n 100000\n", None),
        ("max 100000\n", None),
        ("", None),
        ("1 2 3", None),
        ("100000 0", None),
    ],
)
def test_the_quota_of_a_control_group_is_rounded_up(text: str, processors: int | None) -> None:
    assert quota_of(text) == processors


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="needs Linux")
def test_a_process_confined_to_one_processor_uses_one() -> None:
    one = min(os.sched_getaffinity(0))
    script = (
        f"import os; os.sched_setaffinity(0, {{{one}}});"
        "from rag_platform.processes.processors import usable_processors as usable; print(usable())"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert done.stdout == "1\n"


def test_no_more_than_the_machine_has() -> None:
    assert 1 <= usable_processors() <= (os.cpu_count() or 1)
