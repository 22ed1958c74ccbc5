"""Language models behind Anthropic's messages API, or an endpoint that speaks it."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, ClassVar

from rag_platform.errors import ProviderError
from rag_platform.ir import Json
from rag_platform.protocols import Message
from rag_platform.providers import model_calls as calls
from rag_platform.providers.model_clients import ChatModel
from rag_platform.registry import require_packages

_FINISH = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
}
_AS_JSON = "Answer with one JSON value that fits this JSON schema, without any text around it:\n"


@dataclass(frozen=True)
class Anthropic(ChatModel):
    """A model by `model`, at Anthropic itself or at `base_url`, with the options of ChatModel.

    A JSON schema is written into the system text, as the protocol has no answer format of its own.
    The protocol requires `max_tokens` in every call.
    """

    api_key_env: str = "ANTHROPIC_API_KEY"
    max_tokens: int | None = 2048

    NAME: ClassVar[str] = "anthropic"
    URL: ClassVar[str] = "https://api.anthropic.com"
    VERSION: ClassVar[str] = "1"
    NO_MODEL: ClassVar[str] = "llm 'anthropic' has no model; set its option `model`"

    def __post_init__(self) -> None:
        require_packages("anthropic")

    def load(self) -> None:
        """Import the client, which takes a second. Raises ProviderError `missing_key`."""
        _ = self.client().messages

    def _connect(self, key: str) -> Any:
        import anthropic

        return anthropic.Anthropic(api_key=key, base_url=self.place, max_retries=0)

    # --- the call --------------------------------------------------------------------------------

    def _body(self, messages: Sequence[Message], most: int | None, schema: Json | None) -> Json:
        system = [message.text for message in messages if message.role == "system"]
        if schema is not None:
            system.append(_AS_JSON + json.dumps(schema, ensure_ascii=False))
        turns = [_wire(message) for message in messages if message.role != "system"]
        body: Json = {"model": self.model, "max_tokens": most, "messages": turns}
        return body | ({"system": "\n\n".join(system)} if system else {})

    def _send(
        self, endpoint: calls.Endpoint, body: Json, on_text: Callable[[str], None] | None
    ) -> Any:
        # most fields go into `extra_body`: the SDK's own arguments vary with its version, and it
        # refuses long answers that are not streamed
        made = self.client().messages.create(
            model=body["model"],
            max_tokens=body["max_tokens"],
            messages=body["messages"],
            stream=on_text is not None,
            timeout=self.timeout_ms / 1000,
            extra_body={**{k: v for k, v in body.items() if k not in _NAMED}, **self.extra},
        )
        if on_text is None:
            return made
        seen: Json = {"model": "", "input": 0, "output": 0, "stop_reason": None, "ended": False}

        def text_of(event: Any) -> str:
            if event.type == "message_start":
                seen.update(
                    model=event.message.model,
                    input=event.message.usage.input_tokens,
                    output=event.message.usage.output_tokens,
                )
            elif event.type == "message_delta":
                seen.update(stop_reason=event.delta.stop_reason, output=event.usage.output_tokens)
                seen["input"] = getattr(event.usage, "input_tokens", None) or seen["input"]
            elif event.type == "message_stop":
                seen["ended"] = True
            elif event.type == "content_block_delta" and event.delta.type == "text_delta":
                return str(event.delta.text)
            return ""

        with made:
            text = calls.read_stream(endpoint, made, text_of, on_text)
        if not seen["ended"]:
            raise calls.cut_stream_error(endpoint, text)
        usage = SimpleNamespace(input_tokens=seen["input"], output_tokens=seen["output"])
        block = SimpleNamespace(type="text", text=text)
        return SimpleNamespace(
            content=[block], model=seen["model"], stop_reason=seen["stop_reason"], usage=usage
        )

    # --- the reply -------------------------------------------------------------------------------

    def _read(self, reply: Any) -> calls.Reply:
        blocks = getattr(reply, "content", None)
        if not isinstance(blocks, list):
            raise ProviderError(
                f"the reply of {self.model!r} holds no content: {str(reply)[:200]}",
                code="broken_reply",
            )
        reason = str(getattr(reply, "stop_reason", "") or "")
        text = "".join(str(block.text) for block in blocks if getattr(block, "type", "") == "text")
        usage = calls.read_usage(reply, "input_tokens", "output_tokens")
        refusal = text or "no reason given" if reason == "refusal" else ""
        version = str(getattr(reply, "model", "") or "")
        return calls.Reply(text, usage, version, _FINISH.get(reason, reason), refusal)


_NAMED = ("model", "max_tokens", "messages")


def _wire(message: Message) -> Json:
    """The message in the endpoint's format, with pictures before the text, which works best."""
    if not message.pictures:
        return {"role": message.role, "content": message.text}
    parts: list[Json] = []
    for picture in message.pictures:
        data = base64.b64encode(picture.data).decode("ascii")
        parts.append(
            {
                "type": "image",
                "source": {"type": "base64", "media_type": picture.mime, "data": data},
            }
        )
    return {"role": message.role, "content": [*parts, {"type": "text", "text": message.text}]}
