"""Eight processes that want the same thing: one gets it, and the others are told why not."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from rag_platform.ledger.ledger import open_url
from rag_platform.ledger.schema import Release

PUBLISHERS, ROUNDS = 8, 20
# each waits for a line, publishes its own release instead of the one it is told, and says whether
PUBLISHER = """
import sys
from rag_platform.errors import ReleaseError
from rag_platform.ledger.ledger import open_url
ledger = open_url(sys.argv[1])
print("ready", flush=True)
for line in sys.stdin:
    known, own = line.split()
    try:
        instead_of = frozenset({known}) - {"-"}
        with ledger.publication("lib", own, instead_of=instead_of, manifest_sha256=""):
            pass
        print("won", flush=True)
    except ReleaseError as error:
        print(error.code, flush=True)
"""
DELETER = """
import sys
from rag_platform.ledger.ledger import open_url
ledger = open_url(sys.argv[1])
print("ready", flush=True)
sys.stdin.readline()
for number in range(25):
    seen = ledger.deletion_sequence("lib")
    own = ledger.delete("lib", f"{sys.argv[2]}-{number}", None, "soft").sequence
    assert own > seen
print("done", flush=True)
"""


@contextmanager
def started(code: str, count: int, url: str) -> Iterator[list[subprocess.Popen[str]]]:
    """Processes that are ready, and have ended well after the block."""
    made = [
        subprocess.Popen(
            [sys.executable, "-c", code, url, str(number)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )
        for number in range(count)
    ]  # fmt: skip
    try:
        assert [hear(process) for process in made] == ["ready"] * count
        yield made
        for process in made:
            process.communicate(timeout=60)
            assert process.returncode == 0
    finally:
        for process in made:
            process.kill()
            process.communicate()


def tell(process: subprocess.Popen[str], line: str) -> None:
    assert process.stdin is not None
    process.stdin.write(f"{line}\n")
    process.stdin.flush()


def hear(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


@pytest.mark.integration
def test_one_of_eight_publishers_wins_each_round(ledger_url: str) -> None:
    ledger = open_url(ledger_url)
    for number in range(PUBLISHERS):
        ledger.put_release(Release("lib", f"r{number}", None, "candidate", "tiny", "scfg_1", "t"))
    known = "-"
    with started(PUBLISHER, PUBLISHERS, ledger_url) as publishers:
        for _ in range(ROUNDS):
            rivals = [number for number in range(PUBLISHERS) if f"r{number}" != known]
            for number in rivals:
                tell(publishers[number], f"{known} r{number}")
            said = {number: hear(publishers[number]) for number in rivals}
            (winner,) = [number for number, word in said.items() if word == "won"]
            assert set(said.values()) == {"won", "outdated_candidate"}
            known = f"r{winner}"
            assert ledger.read_published("lib") == {known}
    ledger.close()


@pytest.mark.integration
def test_deletions_are_seen_in_the_order_of_their_numbers(ledger_url: str) -> None:
    """A release records the newest number: no smaller one may turn up after it."""
    ledger = open_url(ledger_url)
    ledger.delete("lib", "first", None, "soft")
    seen: set[int] = set()
    with started(DELETER, 4, ledger_url) as deleters:
        for process in deleters:
            tell(process, "go")
        while len(seen) < 101:
            found = {stone.sequence for stone in ledger.tombstones("lib", since=0)}
            assert not [number for number in found - seen if number < max(seen, default=0)]
            seen = found
    ledger.close()


def test_what_fails_to_move_the_pointer_is_not_recorded(ledger_url: str) -> None:
    ledger = open_url(ledger_url)
    for name in ("r1", "r2"):
        ledger.put_release(Release("lib", name, None, "candidate", "tiny", "scfg_1", "t"))
    with (
        pytest.raises(ZeroDivisionError),
        ledger.publication("lib", "r1", instead_of=frozenset(), manifest_sha256="ab"),
    ):
        raise ZeroDivisionError  # the pointer could not be moved
    assert ledger.read_published("lib") == frozenset()
    with ledger.publication("lib", "r1", instead_of=frozenset(), manifest_sha256="ab"):
        pass
    assert [(row.release_id, row.state) for row in ledger.releases("lib")] == [
        ("r2", "candidate"),
        ("r1", "published"),
    ]
    ledger.close()


def test_the_manifest_of_a_release_is_recorded_once(ledger_url: str) -> None:
    """A rollback must not record what somebody made of it meanwhile."""
    ledger = open_url(ledger_url)
    ledger.put_release(Release("lib", "r1", None, "candidate", "tiny", "scfg_1", "t"))
    for recorded, found in (([], "ab"), (["r1"], "cd")):
        with ledger.publication("lib", "r1", instead_of=frozenset(recorded), manifest_sha256=found):
            pass
        assert [row.manifest_sha256 for row in ledger.releases("lib")] == ["ab"]
    ledger.close()
