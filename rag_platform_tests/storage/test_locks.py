"""A lock is held alone or shared, taken again by the thread that holds it, says who holds it, and
dies with its process.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from rag_platform.errors import BusyError
from rag_platform.storage import locks
from rag_platform.storage.locks import hold_lock

WHAT = "the library is written"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "locks" / "write"


def taken(path: Path, *, shared: bool = False, wait: float = 0.0) -> bool:
    """True when the lock can be had now."""
    try:
        with hold_lock(path, "somebody", WHAT, shared=shared, wait=wait):
            return True
    except BusyError:
        return False


def test_one_holds_it_alone_and_is_named(path: Path, elsewhere: Any) -> None:
    with elsewhere(hold_lock(path, "job 1", WHAT, wait=0)):
        with (
            pytest.raises(
                BusyError, match=rf"^{WHAT} by job 1 \(process {os.getpid()}, for \d s\)"
            ) as raised,
            hold_lock(path, "job 2", WHAT, wait=0),
        ):
            pass
        assert (raised.value.details["owner"], raised.value.details["pid"]) == (
            "job 1",
            os.getpid(),
        )
        assert not taken(path, shared=True)
    assert taken(path)


def test_many_share_it_and_nobody_holds_it_alone_meanwhile(path: Path, elsewhere: Any) -> None:
    with elsewhere(hold_lock(path, "reader 1", WHAT, shared=True, wait=0)):
        assert taken(path, shared=True)
        assert not taken(path)


def test_the_thread_that_holds_it_takes_it_again(path: Path, elsewhere: Any) -> None:
    with hold_lock(path, "job 1", WHAT, wait=0):
        with (
            hold_lock(path, "its run", WHAT, wait=0),
            hold_lock(path, "its reader", WHAT, shared=True, wait=0),
        ):
            pass
        with elsewhere(hold_lock(path.with_name("other"), "job 2", WHAT, wait=0)):
            pass
        others: list[bool] = []
        thread = threading.Thread(target=lambda: others.append(taken(path, shared=True)))
        thread.start()
        thread.join()
        assert others == [False]  # the inner blocks let go of nothing
    assert taken(path)


def test_a_thread_that_shares_it_cannot_hold_it_alone(path: Path, elsewhere: Any) -> None:
    with hold_lock(path, "reader", WHAT, shared=True, wait=0):
        with hold_lock(path, "reader again", WHAT, shared=True, wait=0):
            pass
        with (
            pytest.raises(
                BusyError, match="by this thread itself, which shares the lock for 'reader'"
            ) as raised,
            hold_lock(path, "writer", WHAT, wait=60),
        ):
            pass
        assert raised.value.details["owner"] == "reader"
        # still shared, by both
        with elsewhere(hold_lock(path, "another reader", WHAT, shared=True, wait=0)):
            pass
    assert taken(path) and not locks._held


def test_what_fails_inside_lets_go(path: Path) -> None:
    with pytest.raises(ZeroDivisionError), hold_lock(path, "job", WHAT, wait=0):
        raise ZeroDivisionError
    assert taken(path) and path.read_text(encoding="utf-8") == ""


def test_one_that_waits_gets_it_when_it_is_free(path: Path) -> None:
    inside, got = threading.Event(), []

    def hold() -> None:
        with hold_lock(path, "first", WHAT, wait=0):
            inside.set()
            waiting.wait(60)

    waiting = threading.Event()
    holder = threading.Thread(target=hold)
    holder.start()
    assert inside.wait(60)
    follower = threading.Thread(target=lambda: got.append(taken(path, wait=60)))
    follower.start()
    waiting.set()
    holder.join()
    follower.join()
    assert got == [True]


@pytest.mark.integration
def test_a_killed_process_leaves_no_lock(path: Path) -> None:
    code = (
        "import sys, time; from pathlib import Path; from rag_platform.storage.locks import"
        " hold_lock\n"
        "with hold_lock(Path(sys.argv[1]), 'job', 'it is written', wait=0): print('in',"
        " flush=True); time.sleep(600)"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code, str(path)], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None and process.stdout.readline() == "in\n"
    with (
        pytest.raises(BusyError, match=rf"job \(process {process.pid}, for"),
        hold_lock(path, "us", WHAT, wait=0),
    ):
        pass
    process.kill()
    process.wait()
    process.stdout.close()
    assert taken(path)


def test_an_owner_that_is_not_readable_is_another_process(path: Path, elsewhere: Any) -> None:
    with elsewhere(hold_lock(path, "job 1", WHAT, wait=0)):
        path.write_text('{"owner": "jo', encoding="utf-8")
        with (
            pytest.raises(BusyError, match=f"^{WHAT} by another process; try again"),
            hold_lock(path, "us", WHAT, wait=0),
        ):
            pass
