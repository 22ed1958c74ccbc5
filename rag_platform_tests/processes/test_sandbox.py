"""rag_platform.processes.sandbox: messages of one task, and children that break the protocol, hang
or die.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator

import pytest

from rag_platform.processes.child import JsonLines, take_pipes
from rag_platform.processes.sandbox import ChildLost, SandboxChild, SandboxPool

MODULE = "rag_platform_tests.processes.test_sandbox"


def main() -> None:
    """Answer tasks as they ask for; runs in the child."""
    tasks, replies = take_pipes(quiet=True)
    codec = JsonLines()
    codec.write({"ready": "start"}, replies)
    while True:
        task = codec.read(tasks)
        if task["do"] == "nonsense":
            replies.write(b"what is no JSON\n")
            replies.flush()
        elif task["do"] == "number":
            codec.write(5, replies)
        elif task["do"] == "hang":
            time.sleep(600)
        elif task["do"] == "die":
            sys.exit(3)
        else:
            codec.write({"page": 1, "engine": sys.argv[1]}, replies)
            codec.write({"done": True, "worn": task["do"] == "grow"}, replies)


@pytest.fixture
def pool() -> Iterator[SandboxPool]:
    opened = SandboxPool(MODULE, 1)
    yield opened
    opened.close()


def ask(child: SandboxChild, what: str, seconds: float = 60.0) -> list[dict[str, object]]:
    return list(child.ask({"do": what}, lambda: seconds))


def test_a_healthy_child_waits_for_the_next_task_and_a_worn_one_is_ended(
    pool: SandboxPool,
) -> None:
    with pool.child("one") as first:
        assert ask(first, "read") == [{"page": 1, "engine": "one"}, {"done": True, "worn": False}]
    with pool.child("one") as again:
        assert again is first
        ask(again, "grow")
    assert pool.free == [] and not first.is_alive()


@pytest.mark.parametrize(
    ("what", "reason"),
    [("nonsense", "wrote nonsense"), ("number", "wrote nonsense"), ("die", "ended with code 3")],
)
def test_a_child_that_breaks_the_protocol_is_lost_and_ended(
    pool: SandboxPool, what: str, reason: str
) -> None:
    with pytest.raises(ChildLost, match=reason) as lost, pool.child("one") as child:
        ask(child, what)
    assert not lost.value.hung and pool.all == set() and not child.is_alive()


def test_a_child_that_hangs_is_killed_when_its_patience_is_over(pool: SandboxPool) -> None:
    with (
        pytest.raises(ChildLost, match="no answer within 0") as lost,
        pool.child("one") as child,
    ):
        ask(child, "read")
        ask(child, "hang", seconds=0.1)
    assert lost.value.hung and not child.is_alive()


if __name__ == "__main__":
    main()
