"""Language models behind Anthropic's messages API, or an endpoint that speaks it."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any, ClassVar

from rag_platform.errors import ProviderError
from rag_platform.ir import Json
from rag_platform.protocols import Completion, Message
from rag_platform.providers import model_calls as calls
from rag_platform.providers.model_replies import strip_fence
from rag_platform.registry import require_packages

_URL = "https://api.anthropic.com"
_FINISH = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
}
_AS_JSON = "Answer with one JSON value that fits this JSON schema, without any text around it:\n"


@dataclass(frozen=True)
class Anthropic:
    """A model by `model`, at Anthropic itself or at `base_url`; the key is in the environment
    variable that `api_key_env` names.

    A JSON schema is written into the system text, as the protocol has no answer format of its own.
    The protocol requires `max_tokens` in every call. Prices are per million tokens.
    """

    model: str = ""
    base_url: str = ""
    api_key_env: str = "ANTHROPIC_API_KEY"
    timeout_ms: int = 60_000
    retries: int = 4
    backoff_ms: int = 500
    temperature: float | None = 0.0
    max_tokens: int = 2048
    price_input: float | None = None
    price_output: float | None = None
    extra: Json = field(default_factory=dict)  # more fields of the request body

    NAME: ClassVar[str] = "anthropic"
    VERSION: ClassVar[str] = "1"

    # the client, and what was learnt from the endpoint's errors
    _state: dict[str, Any] = field(default_factory=dict, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        require_packages("anthropic")

    def generate(
        self,
        messages: Sequence[Message],
        *,
        mode: str = "online",
        max_tokens: int | None = None,
        json_schema: Json | None = None,
        on_text: Callable[[str], None] | None = None,
    ) -> Completion:
        """The completion, streamed if `on_text` is given; with a schema its text should be JSON,
        which the caller checks.

        Raises ProviderError with the codes of the provider `openai`.
        """
        if not self.model:
            raise ProviderError(
                "llm 'anthropic' has no model; set its option `model`", code="no_model"
            )
        endpoint = calls.Endpoint(
            self.NAME,
            self.model,
            self._place,
            self.retries,
            self.backoff_ms,
            (self.price_input, self.price_output),
        )
        body = self._body(messages, max_tokens or self.max_tokens, json_schema)
        sent: Json = {}

        def call() -> Any:
            nonlocal sent
            sent = {
                key: value
                for key, value in body.items()
                if key not in self._state.get("refused", ())
            }
            return self._reply(endpoint, sent, on_text)

        completion = calls.complete(
            endpoint,
            call,
            self._read,
            messages,
            mode=mode,
            streamed=on_text is not None,
            learns=lambda error: self._learns_from(error, sent),
        )
        if json_schema is None:
            return completion
        return replace(completion, text=strip_fence(completion.text))

    # --- the call --------------------------------------------------------------------------------

    def _body(self, messages: Sequence[Message], max_tokens: int, schema: Json | None) -> Json:
        system = [message.text for message in messages if message.role == "system"]
        if schema is not None:
            system.append(_AS_JSON + json.dumps(schema, ensure_ascii=False))
        turns = [_wire(message) for message in messages if message.role != "system"]
        body: Json = {"model": self.model, "max_tokens": max_tokens, "messages": turns}
        if system:
            body["system"] = "\n\n".join(system)
        if self.temperature is not None:
            body["temperature"] = self.temperature
        return body

    def _learns_from(self, error: Exception, sent: Json) -> bool:
        """True if the error names the temperature, which some models do not accept."""
        if "temperature" not in str(error).lower() or "temperature" not in sent:
            return False
        self._state["refused"] = ("temperature",)
        return True

    def _reply(
        self, endpoint: calls.Endpoint, body: Json, on_text: Callable[[str], None] | None
    ) -> Any:
        """The endpoint's reply; a stream is assembled into the form of an unstreamed one."""
        # most fields go into `extra_body`: the SDK's own arguments vary with its version, and it
        # refuses long answers that are not streamed
        made = self._client().messages.create(
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

    @property
    def _place(self) -> str:
        return self.base_url or _URL

    def _client(self) -> Any:
        if "client" not in self._state:
            import anthropic

            key = calls.key_of(self.NAME, self.api_key_env)
            client = anthropic.Anthropic(api_key=key, base_url=self._place, max_retries=0)
            self._state["client"] = calls.close_with(self, client)
        return self._state["client"]

    def load(self) -> None:
        """Import the client, which takes a second. Raises ProviderError `missing_key`."""
        _ = self._client().messages

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
