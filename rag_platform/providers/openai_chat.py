"""Language models behind any endpoint with OpenAI's chat completions API: OpenAI, Azure, DeepSeek,
Qwen, Gemini, Ollama, vLLM.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, ClassVar

from rag_platform.errors import ConfigError, ProviderError
from rag_platform.ir import Json
from rag_platform.protocols import Completion, Message
from rag_platform.providers import model_calls as calls
from rag_platform.providers.openai_client import OpenAIModel


@dataclass(frozen=True)
class OpenAIChat(OpenAIModel):
    """A chat model with the address options of OpenAIModel.

    Rate limits, server errors, lost connections and timeouts are retried up to `retries` times with
    growing waits, at most once in the mode online; nothing else is. `json_format` says how to
    request JSON by a schema; if an endpoint refuses that, plain JSON is requested, then text.
    `price_input` and `price_output` are per million tokens.
    """

    retries: int = 4
    backoff_ms: int = 500
    temperature: float | None = 0.0
    max_tokens: int | None = None
    json_format: str = "schema"  # schema | object | text
    price_input: float | None = None
    price_output: float | None = None
    # further fields of the request body, passed on unchanged
    extra: Json = field(default_factory=dict)

    VERSION: ClassVar[str] = "1"

    def __post_init__(self) -> None:
        if self.json_format not in _FORMATS:
            raise ConfigError(
                f"llm 'openai': json_format {self.json_format!r} is none of {', '.join(_FORMATS)}"
            )
        super().__post_init__()

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

        Raises ProviderError with code missing_key, unauthorized, forbidden, model_not_found,
        bad_request, too_large, content_filtered, empty_reply, broken_reply, or, retryable,
        rate_limited, timeout, connection_failed, server_error. For a broken stream,
        `details["text"]` has the text so far. Usage that the endpoint does not report is estimated
        and marked so.
        """
        endpoint = calls.Endpoint(
            self.NAME,
            self.name,
            self.place,
            self.retries,
            self.backoff_ms,
            (self.price_input, self.price_output),
        )
        body: Json = {
            "model": endpoint.model,
            "messages": [_wire(message) for message in messages],
            **self.extra,
        }
        if self.temperature is not None:
            body["temperature"] = self.temperature
        if (most := max_tokens or self.max_tokens) is not None:
            body["max_tokens"] = most
        if on_text is not None:
            body |= {"stream": True, "stream_options": {"include_usage": True}}
        sent: Json = {}

        def call() -> Any:
            nonlocal sent
            sent = self._adapt(body, json_schema)
            return self._reply(endpoint, sent, on_text)

        return calls.complete(
            endpoint,
            call,
            self._read,
            messages,
            mode=mode,
            streamed=on_text is not None,
            learns=lambda error: self._learns_from(error, sent),
        )

    def load(self) -> None:
        """Import the client, which takes a second. Raises ProviderError."""
        _ = self.client().chat.completions

    # --- the call --------------------------------------------------------------------------------

    def _reply(
        self, endpoint: calls.Endpoint, body: Json, on_text: Callable[[str], None] | None
    ) -> Any:
        """The endpoint's reply; a stream is assembled into the form of an unstreamed one."""
        made = self.client().chat.completions.create(**body)
        if on_text is None:
            return made
        last: Json = {"model": "", "usage": None, "finish_reason": None, "refusal": ""}

        def text_of(event: Any) -> str:
            last["model"] = getattr(event, "model", None) or last["model"]
            last["usage"] = getattr(event, "usage", None) or last["usage"]
            choices = getattr(event, "choices", None) or []
            if not choices:
                return ""
            last["finish_reason"] = (
                getattr(choices[0], "finish_reason", None) or last["finish_reason"]
            )
            delta = getattr(choices[0], "delta", None)
            last["refusal"] += getattr(delta, "refusal", None) or ""
            return getattr(delta, "content", None) or ""

        with made:
            text = calls.read_stream(endpoint, made, text_of, on_text)
        if last["finish_reason"] is None and text:
            raise calls.cut_stream_error(endpoint, text)
        message = SimpleNamespace(content=text, refusal=last["refusal"] or None)
        choice = SimpleNamespace(message=message, finish_reason=last["finish_reason"])
        return SimpleNamespace(choices=[choice], model=last["model"], usage=last["usage"])

    def _adapt(self, body: Json, schema: Json | None) -> Json:
        """The body in the form that the endpoint is known to accept."""
        body = {
            key: value for key, value in body.items() if key not in self._state.get("refused", ())
        }
        if "max_tokens" in body and self._state.get("completion_tokens"):
            body["max_completion_tokens"] = body.pop("max_tokens")
        if schema is not None and (
            wanted := _FORMATS[self._state.get("format", self.json_format)](schema)
        ):
            body["response_format"] = wanted
        return body

    def _learns_from(self, error: Any, sent: Json) -> bool:
        """True if the error names a parameter that later calls will send differently or omit."""
        message = f"{getattr(error, 'param', '') or ''} {error}".lower()
        sent_format = sent.get("response_format", {}).get("type")
        if sent_format and any(
            word in message
            for word in ("response_format", "json_schema", "json_object", "json mode")
        ):
            self._state["format"] = "object" if sent_format == "json_schema" else "text"
            return True
        if "max_completion_tokens" in message and "max_tokens" in sent:
            self._state["completion_tokens"] = True
            return True
        for name in ("stream_options", "temperature"):
            if name in message and name in sent:
                self._state["refused"] = (*self._state.get("refused", ()), name)
                return True
        return False

    def client(self) -> Any:
        """The SDK's client. Raises ProviderError `no_model`, `missing_key`."""
        if not self.name:
            raise ProviderError(
                "llm 'openai' has no model; set its option `model`, or `deployment_name` on Azure",
                code="no_model",
            )
        return super().client()

    # --- the reply -------------------------------------------------------------------------------

    def _read(self, reply: Any) -> calls.Reply:
        choices = getattr(reply, "choices", None)
        if (
            not isinstance(choices, list)
            or not choices
            or getattr(choices[0], "message", None) is None
        ):
            raise ProviderError(
                f"the reply of {self.model!r} holds no choice: {str(reply)[:200]}",
                code="broken_reply",
            )
        message, finish = choices[0].message, str(getattr(choices[0], "finish_reason", "") or "")
        usage = calls.read_usage(reply, "prompt_tokens", "completion_tokens")
        text = message.content if isinstance(message.content, str) else ""
        refusal = str(
            getattr(message, "refusal", None)
            or ("content filter" if finish == "content_filter" else "")
        )
        return calls.Reply(text, usage, str(getattr(reply, "model", "") or ""), finish, refusal)


_FORMATS: dict[str, Any] = {
    "schema": lambda schema: {
        "type": "json_schema",
        "json_schema": {"name": "answer", "schema": schema},
    },
    "object": lambda schema: {"type": "json_object"},
    "text": lambda schema: None,
}


def _wire(message: Message) -> Json:
    """The message in the endpoint's format; pictures follow the text as data URLs."""
    if not message.pictures:
        return {"role": message.role, "content": message.text}
    parts: list[Json] = [{"type": "text", "text": message.text}]
    for picture in message.pictures:
        data = base64.b64encode(picture.data).decode("ascii")
        parts.append(
            {"type": "image_url", "image_url": {"url": f"data:{picture.mime};base64,{data}"}}
        )
    return {"role": message.role, "content": parts}


@dataclass(frozen=True)
class NoModel:
    """No language model is configured."""

    NAME: ClassVar[str] = "none"
    VERSION: ClassVar[str] = "1"

    def generate(self, messages: Sequence[Message], **options: Any) -> Completion:
        """Raises ProviderError `no_model`."""
        raise ProviderError(
            "no language model is configured; name one, for example provider `openai` with its"
            " model",
            code="no_model",
        )
