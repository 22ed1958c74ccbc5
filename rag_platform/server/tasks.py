"""Jobs as tasks of the protocol's extension of 2026-07-28, for clients that declare it.

A call that starts a job returns a task at once, whose id is the job's. The client polls it until it
has ended, and then gets the result of the call. Tasks are read from the ledger, so they work across
server processes and restarts.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from mcp.server.context import CallNext, HandlerResult, ServerRequestContext
from mcp.server.extension import Extension, MethodBinding
from mcp.shared.exceptions import MCPError
from mcp.shared.inbound import MCP_NAME_HEADER, decode_header_value
from mcp_types import (
    HEADER_MISMATCH,
    INVALID_PARAMS,
    INVALID_REQUEST,
    MISSING_REQUIRED_CLIENT_CAPABILITY,
    CallToolRequestParams,
    CallToolResult,
    EmptyResult,
    RequestParams,
)

from rag_platform.config.settings import ServerSettings, tool_name

if TYPE_CHECKING:
    from rag_platform.server.contents import Contents

_VERSIONS = frozenset({"2026-07-28"})
_STATUS = {"done": "completed", "partly": "completed", "failed": "completed"}
_STATUS |= {"cancelled": "cancelled"}  # all other states: working
_POLL_MS = 1000


class TaskParams(RequestParams):
    """The id of a task; other parameters are ignored."""

    task_id: str


class JobTasks(Extension):
    """Tasks for the jobs that the server's tools start."""

    identifier = "io.modelcontextprotocol/tasks"

    def __init__(self, settings: ServerSettings, contents: Callable[[], Contents]) -> None:
        self._contents = contents
        self._get, self._cancel, *starting = (
            tool_name(settings, name)
            for name in ("get_job", "cancel_job", "ingest", "delete_document")
        )
        self._starting = starting

    def methods(self) -> Sequence[MethodBinding]:
        return [
            MethodBinding(f"tasks/{name}", TaskParams, handler, _VERSIONS)
            for name, handler in (
                ("get", self._answer),
                ("cancel", self._stop),
                ("update", self._update),
            )
        ]

    async def intercept_tool_call(
        self,
        params: CallToolRequestParams,
        ctx: ServerRequestContext[Any, Any],
        call_next: CallNext,
    ) -> HandlerResult:
        """The result of a call, or a task if it started a job."""
        result = await call_next(ctx)
        if params.name not in self._starting or not self._is_spoken(ctx):
            return result
        if not isinstance(result, CallToolResult) or result.is_error:
            return result
        data = (result.structured_content or {}).get("data", {})
        job = data.get("job", data)
        if "job_id" not in job or job["state"] in _STATUS:
            return result
        return {"resultType": "task", **_task(job)}

    async def _answer(self, ctx: ServerRequestContext[Any, Any], params: Any) -> HandlerResult:
        result = await self._job(ctx, params)
        task = _task((result.structured_content or {})["data"])
        return {**task, "result": result} if task["status"] == "completed" else task

    async def _stop(self, ctx: ServerRequestContext[Any, Any], params: Any) -> HandlerResult:
        await self._job(ctx, params)
        result = await self._call(self._cancel, params)
        if result.is_error and _error(result)["code"] != "nothing_to_cancel":  # it has ended
            raise MCPError(INVALID_REQUEST, _error(result)["message"])
        return EmptyResult()

    async def _update(self, ctx: ServerRequestContext[Any, Any], params: Any) -> HandlerResult:
        await self._job(ctx, params)
        return EmptyResult()

    async def _job(self, ctx: ServerRequestContext[Any, Any], params: TaskParams) -> CallToolResult:
        """The result of the tool get_job. Raises MCPError for a client without this extension, a
        header that names another task, and a job that the caller may not see.
        """
        if not self._is_spoken(ctx):
            needed: dict[str, Any] = {"extensions": {self.identifier: {}}}
            raise MCPError(
                MISSING_REQUIRED_CLIENT_CAPABILITY,
                f"tasks need the client capability {self.identifier!r}",
                {"requiredCapabilities": needed},
            )
        if ctx.request is not None:
            named = decode_header_value(ctx.request.headers.get(MCP_NAME_HEADER))
            if named != params.task_id:
                raise MCPError(
                    HEADER_MISMATCH, f"the header {MCP_NAME_HEADER} must be the task's id"
                )
        result = await self._call(self._get, params)
        if result.is_error:
            raise MCPError(INVALID_PARAMS, _error(result)["message"])
        return result

    async def _call(self, name: str, params: TaskParams) -> CallToolResult:
        return await self._contents().call(name, {"job_id": params.task_id}, None)

    def _is_spoken(self, ctx: ServerRequestContext[Any, Any]) -> bool:
        declared = ctx.session.client_capabilities
        return (
            ctx.protocol_version in _VERSIONS
            and declared is not None
            and self.identifier in (declared.extensions or {})
        )


def _error(result: CallToolResult) -> dict[str, Any]:
    error: dict[str, Any] = (result.structured_content or {})["error"]
    return error


def _task(job: dict[str, Any]) -> dict[str, Any]:
    """A job as a task, without expiry."""
    created = datetime.fromisoformat(job["created_at"])
    stage = f"{job['stage']}: {job['done']} of {job['total']}" if job["total"] else job["stage"]
    return {
        "taskId": job["job_id"],
        "status": _STATUS.get(job["state"], "working"),
        "statusMessage": job["reason"] or stage or job["state"],
        "createdAt": created.isoformat(),
        "lastUpdatedAt": (created + timedelta(seconds=job["seconds"])).isoformat(),
        "ttlMs": None,
        "pollIntervalMs": _POLL_MS,
    }
