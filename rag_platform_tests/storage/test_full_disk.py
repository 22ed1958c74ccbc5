"""A full disk is read as a read-only one is, `rag gc` makes room on it, and what would write says
what is the matter.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from rag_platform.errors import StorageError, is_full
from rag_platform.ledger.ledger import open_ledger
from rag_platform.ledger.schema import Source
from rag_platform.storage.locks import hold_lock
from rag_platform.storage.store import Store
from rag_platform_tests.conftest import PORTS, Answer, Desk, seated
from rag_platform_tests.small_disk import fill, small_disk

pytestmark = pytest.mark.e2e

QUESTION = "Which port does the gateway listen on?"
READING = (
    "docs list",
    "docs show ports.md",
    "verify --all",
    "status",
    "doctor",
    "releases list",
    "jobs list --all",
    "trace list",
    "sources list",
    "rebuild --plan",
    "gc --plan",
    "gc --prove ports.md",
)
WRITING = (
    "ingest docs",
    "docs delete ports.md --yes",
    "gc",
    "docs edit ports.md --title T",
    "expect add q --file ports.md",
)


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Desk]:
    """A desk with one document published, on a disk that was filled afterwards."""
    folder = tmp_path_factory.mktemp("full") / "desk"
    with seated(folder) as desk, small_disk(desk.store.home, "64m"):
        desk.write(ports=PORTS)
        assert desk.call("ingest", desk.docs).exit_code == 0
        with desk.ledger() as ledger:
            job_id = ledger.add_job("ingest", "lost", {}).job_id
            ledger.bind_strategy("lost", "tiny", "scfg_0")
            ledger.update_job(job_id, state="running", pid=2**22 - 1)
        fill(desk.store.home)
        yield desk


@pytest.fixture
def killed(filled: Desk) -> str:
    """A job whose process died while nothing could be written."""
    with filled.ledger() as ledger:
        return ledger.jobs("lost")[0].job_id


@pytest.fixture(scope="module")
def answers(filled: Desk) -> dict[str, Answer]:
    """What commands answered on the full disk, in one process."""
    asked = [["query", QUESTION], *(each.split() for each in (*READING, *WRITING))]
    found = filled.ask_all(asked)
    # of logs and traces, once a process
    assert sum(answer.said.count("of this process are not kept") for answer in found.values()) == 1
    return found


def test_questions_are_answered(answers: dict[str, Answer]) -> None:
    answer = answers[f"query {QUESTION}"]
    assert "8080" in answer.data["answer_markdown"] and answer.data["effective_mode"] == "hybrid"
    assert answer.envelope["warnings"] == []


@pytest.mark.parametrize("args", READING)
def test_what_reads(answers: dict[str, Answer], args: str) -> None:
    assert answers[args].exit_code == 0, answers[args]
    assert "Traceback" not in answers[args].said


def test_a_job_whose_process_is_gone_is_not_said_to_run(
    answers: dict[str, Answer], filled: Desk, killed: str
) -> None:
    with filled.ledger() as ledger:
        assert ledger.job(killed).state == "running"  # nobody could record its end
    (told,) = (job for job in answers["status"].data["jobs"] if job["job_id"] == killed)
    assert (told["state"], "a full disk" in told["reason"]) == ("failed", True)
    states = {job["job_id"]: job["state"] for job in answers["jobs list --all"].data["jobs"]}
    assert states[killed] == "failed"
    assert (
        filled.call("query", "x", "--namespace", "lost")
        .error["message"]
        .startswith(
            f"nothing of library 'lost' is published: {killed} failed; `rag jobs show {killed}`"
        )
    )


def test_nothing_is_called_damaged(answers: dict[str, Answer]) -> None:
    assert answers["verify --all"].data["failed"] == 0


def test_doctor_says_what_is_the_matter(answers: dict[str, Answer]) -> None:
    (found,) = [f for f in answers["doctor"].data["findings"] if f["subject"] == "data root"]
    assert found["level"] == "warning" and found["message"].startswith("the disk is full: 0.0 MB")


@pytest.mark.parametrize("args", WRITING)
def test_what_writes_says_so(answers: dict[str, Answer], args: str) -> None:
    assert (answers[args].exit_code, answers[args].error["code"]) == (1, "disk_full")


def test_collecting_garbage_makes_room(filled: Desk, answers: dict[str, Answer]) -> None:
    assert "now that 0.0 MB that nothing needs are removed" in answers["gc"].error["message"]
    home = filled.store.home
    (home / "filler").write_bytes(bytes((home / "filler").stat().st_size - 8_000_000))
    (home / "raw" / "ab").mkdir()
    (home / "raw" / "ab" / "abcd").write_bytes(bytes(7_000_000))
    fill(home)
    assert is_full(home)
    assert filled.call("gc", "--plan").data["removed"] == {"raw": {"count": 1, "bytes": 7_000_000}}
    assert (home / "raw" / "ab" / "abcd").is_file()
    done = filled.call("gc")
    assert done.exit_code == 0, done.said
    assert done.data["removed"]["raw"] == {"count": 1, "bytes": 7_000_000}
    assert not (home / "raw" / "ab" / "abcd").exists()


def test_a_ledger_is_read_while_the_disk_is_full_and_written_afterwards(tmp_path: Path) -> None:
    with small_disk(tmp_path, "4m"):
        ledger = open_ledger(Store(tmp_path))
        ledger.put_source(Source("default", "one", "folder", "/docs"))
        ledger.close()
        fill(tmp_path)
        ledger = open_ledger(Store(tmp_path))
        assert ledger.read_only and [each.name for each in ledger.sources()] == ["one"]
        with pytest.raises(StorageError, match="the disk is full") as refused:
            ledger.put_source(Source("default", "two", "folder", "/docs"))
        assert refused.value.code == "disk_full"
        (tmp_path / "filler").unlink()
        ledger.put_source(Source("default", "two", "folder", "/docs"))
        assert not ledger.read_only
        assert [each.name for each in ledger.sources()] == ["one", "two"]
        ledger.close()


def test_a_lock_is_held_without_a_word_on_a_full_disk(tmp_path: Path) -> None:
    with small_disk(tmp_path, "1m"):
        fill(tmp_path)
        with hold_lock(tmp_path / ".lock", "gc", "garbage is being collected", wait=0):
            assert (tmp_path / ".lock").read_bytes() == b""


def test_a_job_that_has_no_room_for_a_release_says_how_much_it_needs(tmp_path: Path) -> None:
    with seated(tmp_path / "desk") as desk, small_disk(desk.store.home, "24m"):
        desk.write(ports=PORTS)
        ended = desk.call("ingest", desk.docs)
        assert (ended.exit_code, ended.error["code"]) == (1, "disk_full")
        assert "the next release needs" in ended.error["message"]
