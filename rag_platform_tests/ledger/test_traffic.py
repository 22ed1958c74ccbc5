"""Processes that share a data root, or a database, keep the limits of an endpoint together: what
arrives at a real one is counted.
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from rag_platform.config.services import TrafficSettings
from rag_platform.errors import StorageError
from rag_platform.indexes.embedding_pool import EmbeddingWorker
from rag_platform.ledger import traffic
from rag_platform.ledger.traffic import PlaceTraffic, read_places
from rag_platform.protocols import Message
from rag_platform.registry import make_provider
from rag_platform.storage.store import Store
from rag_platform_tests.chat_server import ChatServer, Reply, chat_server, refused, said
from rag_platform_tests.conftest import TINY, Desk, wait_until
from rag_platform_tests.embeddings_server import embeddings_server
from rag_platform_tests.ledger.test_races import hear, tell

pytestmark = pytest.mark.integration

# makes the calls that a line asks for, one after the other, under the line's limits
CALLER = """
import json, sys
from pathlib import Path
import openai
from rag_platform.config.services import TrafficSettings
from rag_platform.errors import ProviderError
from rag_platform.ledger import traffic
from rag_platform.protocols import Message
from rag_platform.registry import make_provider
from rag_platform.storage.store import Store
for line in sys.stdin:
    count, home, database, url, limits = json.loads(line)
    traffic.use(TrafficSettings.model_validate(limits), Store(Path(home), database))
    model = make_provider("llm", "openai", {"model": "wise", "base_url": url, "api_key_env": "",
        "backoff_ms": 1, "price_input": 2.0, "price_output": 10.0})
    try:
        for _ in range(count):
            model.generate([Message("user", "What?")], mode="offline")
        print("done", flush=True)
    except ProviderError as error:
        print(error.code, flush=True)
"""


class Endpoint:
    """Notes when calls arrive and how many there are at once."""

    def __init__(self, seconds: float = 0.0, refuse_first: float = 0.0) -> None:
        self.seconds, self.refuse_first = seconds, refuse_first
        self.arrived: list[float] = []
        self.running = self.most = 0
        self.open = threading.Event()  # until it is set, calls stay
        self.open.set()
        self._lock = threading.Lock()

    def __call__(self, body: dict[str, Any], number: int) -> Reply:
        with self._lock:
            self.arrived.append(time.monotonic())
            self.running += 1
            self.most = max(self.most, self.running)
        self.open.wait(30)
        time.sleep(self.seconds)
        with self._lock:
            self.running -= 1
        if number == 0 and self.refuse_first:
            return refused(429, "slow down", **{"Retry-After": str(self.refuse_first)})
        return said("It is.")


@pytest.fixture
def shared(ledger_url: str, tmp_path: Path) -> Store:
    """A data root whose ledger is on either database."""
    return Store(tmp_path, "" if ledger_url.startswith("sqlite") else ledger_url)


def limits(server: ChatServer, lease_seconds: float = 30, **numbers: int) -> TrafficSettings:
    limit = {"host": traffic.host_of(server.url), "model": "wise", **numbers}
    return TrafficSettings.model_validate({"limits": [limit], "lease_seconds": lease_seconds})


@dataclass
class Callers:
    """Processes, begun when they are first asked; each imports its client for a second."""

    processes: list[subprocess.Popen[str]] = field(default_factory=list)

    def ask(self, number: int, count: int, store: Store, server: ChatServer, limits: Any) -> None:
        """Tell a process to make so many calls."""
        while len(self.processes) <= number:
            self.processes.append(
                subprocess.Popen(
                    [sys.executable, "-c", CALLER],
                    stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                )
            )  # fmt: skip
        given = limits.model_dump(mode="json")
        line = [count, str(store.home), store.database, server.url, given]
        tell(self.processes[number], json.dumps(line))

    def hear(self, *numbers: int) -> list[str]:
        """How the calls of the processes ended."""
        return [hear(self.processes[number]) for number in numbers]

    def kill(self, number: int) -> None:
        """End a process at once; another one takes its number."""
        process = self.processes.pop(number)
        process.kill()
        process.communicate()


@pytest.fixture(scope="module")
def callers() -> Iterator[Callers]:
    """The processes of all tests here."""
    made = Callers()
    yield made
    while made.processes:
        made.kill(0)


def place_of(settings: TrafficSettings, store: Store) -> PlaceTraffic:
    """The one place of the settings, once a call was made there."""
    [place] = read_places(settings, store)
    return place


def test_a_minute_share_and_its_cost_are_shared(shared: Store, callers: Callers) -> None:
    endpoint = Endpoint()
    with chat_server(endpoint) as server:
        settings = limits(server, per_minute=600)
        for count in (1, 4):  # once for the processes to be there
            began = time.monotonic()
            for number in range(3):
                callers.ask(number, count, shared, server, settings)
            assert callers.hear(0, 1, 2) == ["done"] * 3
    assert len(endpoint.arrived) == 15
    assert endpoint.arrived[-1] - began >= 1.1  # 12 calls have 11 gaps of a tenth of a second
    found = place_of(settings, shared)
    # 10 tokens in at 2 and 5 out at 10 a million, a call
    assert (found.calls, found.input_tokens, found.output_tokens) == (15, 150, 75)
    assert found.cost == pytest.approx(0.00105)
    assert (found.running, found.waiting, found.paused_seconds) == ((), (), 0)


def test_calls_at_once_are_those_of_all_processes(shared: Store, callers: Callers) -> None:
    endpoint = Endpoint(seconds=0.2)
    with chat_server(endpoint) as server:
        settings = limits(server, at_once=2)
        endpoint.open.clear()
        for number in range(4):
            callers.ask(number, 2, shared, server, settings)
        wait_until(lambda: endpoint.running == 2 and len(place_of(settings, shared).waiting) == 2)
        assert len(place_of(settings, shared).running) == 2
        endpoint.open.set()
        assert callers.hear(0, 1, 2, 3) == ["done"] * 4
    assert (len(endpoint.arrived), endpoint.most) == (8, 2)


def test_a_refusal_holds_back_the_other_processes(shared: Store, callers: Callers) -> None:
    endpoint = Endpoint(refuse_first=1.5)
    with chat_server(endpoint) as server:
        settings = limits(server)
        callers.ask(0, 1, shared, server, settings)
        wait_until(lambda: endpoint.arrived and place_of(settings, shared).paused_seconds)
        callers.ask(1, 1, shared, server, settings)
        assert callers.hear(0, 1) == ["done"] * 2
    first, second, _ = endpoint.arrived
    assert second - first >= 1.5


def test_a_killed_process_gives_its_place_back(shared: Store, callers: Callers) -> None:
    endpoint = Endpoint()
    with chat_server(endpoint) as server:
        settings = limits(server, lease_seconds=2, at_once=1)
        for number in (0, 1):  # so that both are there
            callers.ask(number, 1, shared, server, settings)
        assert callers.hear(0, 1) == ["done"] * 2
        endpoint.seconds = 3
        callers.ask(0, 1, shared, server, settings)
        wait_until(lambda: endpoint.running)
        callers.ask(1, 1, shared, server, settings)
        # a lease is renewed as long as its process lives: nobody came in between
        assert callers.hear(0) == ["done"]
        wait_until(lambda: len(endpoint.arrived) == 4)
        assert endpoint.most == 1
        callers.kill(1)
        endpoint.seconds = 0
        callers.ask(0, 1, shared, server, settings)
        assert callers.hear(0) == ["done"]
    assert len(endpoint.arrived) == 5


def test_a_call_whose_turn_does_not_come_says_so(shared: Store, callers: Callers) -> None:
    endpoint = Endpoint()
    endpoint.open.clear()
    with chat_server(endpoint) as server:
        settings = limits(server, at_once=1).model_copy(update={"wait_seconds": 0.3})
        callers.ask(0, 1, shared, server, settings)
        wait_until(lambda: endpoint.arrived)
        callers.ask(1, 1, shared, server, settings)
        assert callers.hear(1) == ["provider_busy"]
        endpoint.open.set()
        assert callers.hear(0) == ["done"]
    assert len(endpoint.arrived) == 1
    assert place_of(settings, shared).waiting == ()


def test_children_that_embed_keep_the_limits_of_their_parent(tmp_path: Path) -> None:
    store = Store(tmp_path)
    with embeddings_server() as server:
        settings = limits(server, per_minute=600)
        options = {"model": "wise", "base_url": server.url, "dim": 256, "api_key_env": ""}
        traffic.use(settings, store)
        worker = EmbeddingWorker("openai", options)
        try:
            assert worker.embed(["one", "two"], 60).shape == (2, 256)
        finally:
            worker.close()
            traffic.use(TrafficSettings(), store)
    found = place_of(settings, store)
    assert (found.calls, found.input_tokens) == (1, 14)  # 7 a text


def test_ingests_and_questions_are_counted_and_told(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk.write(note="# Note\n\nThe harbour master keeps the tide tables in the north tower.\n")
    with embeddings_server() as server:
        options = f"{{model: wise, base_url: '{server.url}', dim: 256, api_key_env: ''}}"
        text = TINY.replace("provider: hashing", f"provider: openai\n  options: {options}")
        (desk.folder / "config/strategies/tiny.yaml").write_text(text, encoding="utf-8")
        host = traffic.host_of(server.url)
        monkeypatch.setenv("RAG_TRAFFIC__LIMITS", f"[{{host: '{host}', at_once: 2}}]")
        desk.publish()
        assert len(server.requests) == 1
        assert desk.call("query", "who keeps the tide tables").exit_code == 0
        asked = len(server.requests)
        assert asked > 1
        status, doctor = desk.call("status").data, desk.call("doctor").said
        monkeypatch.delenv("RAG_TRAFFIC__LIMITS")
        assert "traffic" not in desk.call("status").data
    [place] = status["traffic"]
    assert (place["place"], place["calls"], place["running"]) == (f"{host} *", asked, [])
    assert f"{host} *: {asked} calls today" in status["markdown"]
    assert f"traffic {host} *" in doctor and f"{asked} calls today" in doctor


def test_without_limits_nothing_is_kept(tmp_path: Path, callers: Callers) -> None:
    store = Store(tmp_path)
    elsewhere = TrafficSettings.model_validate({"limits": [{"host": "api.example.com"}]})
    with chat_server(Endpoint()) as server:
        for settings in (TrafficSettings(), elsewhere):
            callers.ask(0, 1, store, server, settings)
            assert callers.hear(0) == ["done"]
    assert list(tmp_path.iterdir()) == []


def test_where_nothing_can_be_counted_no_call_is_made(tmp_path: Path) -> None:
    store = Store(tmp_path)
    store.traffic_path.parent.mkdir()
    store.traffic_path.write_bytes(b"no database at all" * 100)
    with chat_server(Endpoint()) as server:
        settings = limits(server)
        options = {"model": "wise", "base_url": server.url, "api_key_env": "", "backoff_ms": 1}
        model = make_provider("llm", "openai", options)
        traffic.use(settings, store)
        try:
            with pytest.raises(StorageError, match=r"counted in .* is not a database"):
                model.generate([Message("user", "What?")], mode="offline")
            store.traffic_path.unlink()
            assert model.generate([Message("user", "What?")], mode="offline").text == "It is."
        finally:
            traffic.use(TrafficSettings(), store)
        assert len(server.requests) == 1


def test_a_limit_of_a_host_covers_its_models() -> None:
    settings = TrafficSettings.model_validate(
        {"limits": [{"host": "h:1", "model": "wise"}, {"host": "h:1"}]}
    )
    places = [
        next((each.place for each in settings.limits if each.covers(*asked)), None)
        for asked in (("h:1", "wise"), ("h:1", "quick"), ("h:2", "wise"))
    ]
    assert places == ["h:1 wise", "h:1 *", None]
