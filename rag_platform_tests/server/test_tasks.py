"""Jobs as tasks of the protocol, asked for by the SDK's client."""

from __future__ import annotations

import threading
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any, Literal

import anyio
import pytest
from mcp import Client, MCPError
from mcp.client.extension import ClaimContext, ClientExtension, ResultClaim
from mcp_types import (
    INVALID_PARAMS,
    INVALID_REQUEST,
    MISSING_REQUIRED_CLIENT_CAPABILITY,
    CallToolResult,
    Request,
    RequestParams,
    Result,
)

from rag_platform.api import writing
from rag_platform.processes import jobs
from rag_platform_tests.server.test_tools import data_of, serve

TASKS = "io.modelcontextprotocol/tasks"
DOCUMENT = {"content": "# Gate\n\nThe gate closes at 22:15.\n", "filename": "gate.md"}


class Named(RequestParams):
    """The parameters of a request for a task."""

    task_id: str


class Task(Result):
    """A task as the wire has it."""

    result_type: Literal["task"] = "task"
    task_id: str
    status: str
    created_at: str
    last_updated_at: str
    ttl_ms: int | None
    poll_interval_ms: int


class Shown(Result):
    """The answer to `tasks/get`, `tasks/cancel` and `tasks/update`."""

    result_type: str
    task_id: str | None = None
    status: str | None = None
    result: CallToolResult | None = None


async def ask(client: Any, method: str, task_id: str) -> Shown:
    """What the server says of a task."""
    asked: Any = Request(method=f"tasks/{method}", params=Named(task_id=task_id))
    session = getattr(client, "session", client)
    found: Shown = await session.send_request(asked, Shown)
    return found


class SpeaksTasks(ClientExtension):
    """A client that waits for the end of a task, and keeps what it saw."""

    identifier = TASKS

    def __init__(self) -> None:
        self.created: list[Task] = []
        self.seen: list[Shown] = []

    def claims(self) -> Sequence[ResultClaim[Any]]:
        """The shape that the extension adds."""
        return [ResultClaim(result_type="task", model=Task, resolve=self._settle)]

    async def _settle(self, task: Task, context: ClaimContext) -> CallToolResult:
        self.created.append(task)
        while True:
            self.seen.append(await ask(context.session, "get", task.task_id))
            if self.seen[-1].status != "working":
                return self.seen[-1].result or CallToolResult(content=[])
            await anyio.sleep(0.1)


def talk(
    server: Any, speaks: Sequence[ClientExtension], said: Callable[[Client], Awaitable[Any]]
) -> Any:
    """What a conversation with a client came to."""

    async def run() -> Any:
        async with Client(server, extensions=speaks) as client:
            return await said(client)

    return anyio.run(run)


@pytest.mark.e2e
def test_a_job_is_a_task_until_it_has_ended(shelf: Any) -> None:
    speaks = SpeaksTasks()
    server = serve(shelf)

    async def said(client: Client) -> None:
        job = data_of(await client.call_tool("library_ingest", DOCUMENT))
        assert (job["state"], job["count"]) == ("done", 1)
        [task] = speaks.created
        assert task.task_id == job["job_id"] and task.status == "working"
        assert task.ttl_ms is None and task.created_at <= task.last_updated_at
        assert [shown.status for shown in speaks.seen][-1] == "completed"

        # of a task that has ended all is as it was
        for method in ("cancel", "update"):
            assert (await ask(client, method, job["job_id"])).result_type == "complete"
        assert (await ask(client, "get", job["job_id"])).status == "completed"

    talk(server, [speaks], said)


def test_a_confirmed_deletion_is_a_task(
    shelf: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "gate.md").write_text(DOCUMENT["content"], encoding="utf-8")
    shelf.ingest(tmp_path / "gate.md")
    monkeypatch.setattr(jobs, "launch", lambda job, *_: jobs.Started(job, None))  # it is not run
    monkeypatch.setattr(writing, "watch", lambda *_: None)

    async def said(client: Client) -> Any:
        async def delete(**more: str) -> Any:
            return await client.session.call_tool(
                "library_delete_document", {"doc_id": doc_id, **more}, allow_claimed=True
            )

        listed = data_of(await client.call_tool("library_list_documents", {}))
        doc_id = listed["groups"][0]["documents"][0]["doc_id"]
        return await delete(confirm=data_of(await delete())["confirm"])

    task = talk(serve(shelf), [SpeaksTasks()], said)
    assert isinstance(task, Task) and task.status == "working"
    assert shelf.ledger.job(task.task_id).kind == "delete"


def test_a_task_is_cancelled(shelf: Any) -> None:
    job_id = shelf.ledger.add_job("ingest", "default", {}).job_id

    async def said(client: Client) -> None:
        assert (await ask(client, "get", job_id)).status == "working"
        ended = await ask(client, "cancel", job_id)
        assert (ended.result_type, ended.task_id, ended.status) == ("complete", None, None)
        shown = await ask(client, "get", job_id)
        assert (shown.status, shown.result) == ("cancelled", None)

    talk(serve(shelf), [SpeaksTasks()], said)


def test_the_newest_open_job_is_waited_for(shelf: Any) -> None:
    ledger = shelf.ledger
    job_id = ledger.add_job("ingest", "default", {}).job_id
    newest = ledger.add_job("gc", "default", {}).job_id
    ledger.update_job(newest, state="done")
    ending = threading.Timer(1.0, ledger.update_job, (job_id,), {"state": "done"})

    async def said(client: Client) -> Any:
        ending.start()
        return data_of(await client.call_tool("library_get_job", {"wait": 30}))

    shown = talk(serve(shelf), [], said)
    ending.join()
    assert [(job["job_id"], job["state"]) for job in shown["jobs"]] == [
        (newest, "done"),
        (job_id, "done"),
    ]


def test_what_no_task_is_stays_a_result(read_only_shelf: Any) -> None:
    speaks = SpeaksTasks()

    async def said(client: Client) -> None:
        assert not data_of(await client.call_tool("library_get_job", {}))["jobs"]
        refused = await client.call_tool("library_ingest", {"content": "no name"})
        assert refused.is_error and not speaks.created
        with pytest.raises(MCPError, match="no job 'job_none'") as told:
            await ask(client, "get", "job_none")
        assert told.value.code == INVALID_PARAMS

    talk(serve(read_only_shelf), [speaks], said)


def test_a_client_that_speaks_no_tasks_has_none(read_only_shelf: Any) -> None:
    async def said(client: Client) -> None:
        for method in ("get", "cancel", "update"):
            with pytest.raises(MCPError) as told:
                await ask(client, method, "job_none")
            assert told.value.code == MISSING_REQUIRED_CLIENT_CAPABILITY
            assert told.value.error.data == {"requiredCapabilities": {"extensions": {TASKS: {}}}}

    talk(serve(read_only_shelf), [], said)


def test_a_server_that_changes_nothing_cancels_nothing(shelf: Any, tmp_path: Path) -> None:
    job_id = shelf.ledger.add_job("ingest", "default", {}).job_id

    async def said(client: Client) -> None:
        with pytest.raises(MCPError, match="library_cancel_job is not allowed") as told:
            await ask(client, "cancel", job_id)
        assert told.value.code == INVALID_REQUEST

    talk(serve(shelf, allow=()), [SpeaksTasks()], said)
