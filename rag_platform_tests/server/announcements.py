"""What a client hears of a publication, by either way that the protocol has."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import anyio
from mcp import Client


class Listener:
    """The messages that reached a client: `heard` is one line each, method and URI."""

    def __init__(self) -> None:
        self.heard: list[str] = []

    async def __call__(self, message: Any) -> None:
        """Take a message down, as the `message_handler` of a client."""
        uri = getattr(getattr(message, "params", None), "uri", "")
        self.heard.append(f"{message.method} {uri}".strip())

    async def hear(
        self, client: Client, mode: str, uri: str, publish: Callable[[], object], seconds: float
    ) -> None:
        """Publish, and require both announcements, of the list and of the resource, in time."""
        if mode == "legacy":
            await client.subscribe_resource(uri)
            await anyio.to_thread.run_sync(publish)
            with anyio.fail_after(seconds):
                while len(self.heard) < 2:
                    await anyio.sleep(0.02)
            assert self.heard == [
                "notifications/resources/list_changed",
                f"notifications/resources/updated {uri}",
            ]
            return
        async with client.listen(
            resources_list_changed=True, resource_subscriptions=[uri]
        ) as events:
            await anyio.to_thread.run_sync(publish)
            with anyio.fail_after(seconds):
                kinds = [type(await anext(events)).__name__ for _ in range(2)]
        assert kinds == ["ResourcesListChanged", "ResourceUpdated"]
