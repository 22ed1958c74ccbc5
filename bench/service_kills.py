"""Services killed while a library is updated: PostgreSQL and the S3 server, at random moments.

    python bench/service_kills.py [--trials 10] [--documents 12] [--seed 1]

Each trial begins with a published library over both services, edits some documents and updates it
in a child process; after a random time PostgreSQL, or the S3 server, is killed with SIGKILL and
started again. PostgreSQL recovers what it had; the S3 server, which keeps all in memory, comes back
empty, and the published release is pushed to it anew. Then the update is done again, and chunks,
vectors, answers and scores must be those of a full build. Before it, readers see the release of
before or the new one, whole. Exit code 1 when something differs.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import httpx
from small_library import NAMESPACE, Place, state_of

from rag_platform.releases.publishing import push_current
from rag_platform.releases.release_store import current
from rag_platform_tests.postgres_server import PostgresServer
from rag_platform_tests.s3_server import S3Server


def write(place: Place, documents: int, word: str) -> None:
    """The folder's documents, half of them with another word."""
    place.docs.mkdir(parents=True, exist_ok=True)
    for number in range(documents):
        said = word if number % 2 else "always"
        text = f"# Gate {number}\n\nGate {number} opens at {number % 12}:30, {said}.\n"
        (place.docs / f"gate{number}.md").write_text(text, encoding="utf-8")


def forked(work: object) -> int:
    """The id of a process that does something, or ends with 1."""
    if process := os.fork():
        return process
    try:
        assert callable(work)
        work()
        os._exit(0)
    except BaseException as error:
        print(f"      the child ended: {str(error)[:150]}", flush=True)
        os._exit(1)


def kill_postgres(server: PostgresServer) -> None:
    """End every process of the database at once, and start it again."""
    assert server.process is not None
    children = Path(f"/proc/{server.process.pid}/task/{server.process.pid}/children")
    ids = [int(child) for child in children.read_text(encoding="utf-8").split()]
    for process in (server.process.pid, *ids):
        try:
            os.kill(process, signal.SIGKILL)
        except ProcessLookupError:
            continue
    server.process.wait(30)
    (server.folder / "data" / "postmaster.pid").unlink(missing_ok=True)
    server.start()


def kill_s3(server: S3Server, bucket: str) -> None:
    """End the object store, and start it again with an empty bucket."""
    server.kill()
    server.start()
    httpx.put(f"{server.url}/{bucket}").raise_for_status()


def trial(service: str, servers: tuple[PostgresServer, S3Server], options: argparse.Namespace,
          rng: random.Random) -> tuple[bool, str]:  # fmt: skip
    """(whether it was killed at work, what was wrong)."""
    database, store = servers
    os.environ |= {**store.variables(), "RAG_LEDGER": database.new_url()}
    with tempfile.TemporaryDirectory(prefix="rag-kills-") as folder:
        place = Place(Path(folder), Path(folder) / "home").enter()
        place.home.mkdir()
        write(place, options.documents, "never")
        began = time.monotonic()
        assert os.waitpid(forked(lambda: fresh(place).update()), 0)[1] == 0
        took = time.monotonic() - began
        before = current(place.store, NAMESPACE)
        write(place, options.documents, "seldom")
        child = forked(lambda: fresh(place).update())
        time.sleep(rng.uniform(0.02, took))
        at_work = os.waitpid(child, os.WNOHANG)[0] == 0
        if service == "postgres":
            kill_postgres(database)
        else:
            kill_s3(store, os.environ["RAG_BLOBS__BUCKET"])
        if at_work:
            os.waitpid(child, 0)
        again = forked(lambda: check(fresh(place), before, service))
        return at_work, "" if os.waitpid(again, 0)[1] == 0 else f"{service}: see above"


def fresh(place: Place) -> Place:
    """The same place, with nothing open."""
    return Place(place.folder, place.home).enter()


def check(place: Place, before: str | None, service: str) -> None:
    """The release that is read is whole; after another update it is as a full build."""
    try:
        read = state_of(place).release_id
        published = place.ledger.read_published(NAMESPACE)
        assert published <= {read, before}, f"{published} is recorded, {read} is read"
        if service == "s3":
            push_current(NAMESPACE, place.workspace)
            time.sleep(1)  # the database lets go of a lock some time after its connection
        place.update()
        after = state_of(place)
        place.publish(full=True)
        assert state_of(place).content() == after.content(), "another library than a full build"
    except BaseException:
        traceback.print_exc()
        raise


def main() -> int:
    """Run the trials and say what came of them."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--trials", type=int, default=10)
    parser.add_argument("--documents", type=int, default=12)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    rng, wrong, hits = random.Random(options.seed), [], Counter[str]()
    servers = PostgresServer(), S3Server.moto()
    try:
        for number in range(2 * options.trials):
            service = ("postgres", "s3")[number % 2]
            at_work, reason = trial(service, servers, options, rng)
            hits[service] += at_work
            wrong += [reason] if reason else []
            print(f"  {number + 1}: {service}, at work: {at_work}, {reason or 'equal'}", flush=True)
    finally:
        servers[1].kill()
        servers[0].close()
    print(f"{options.trials} trials each, killed at work: {dict(hits)}, wrong: {len(wrong)}")
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
