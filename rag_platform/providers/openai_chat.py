"""Language models behind any endpoint with OpenAI's chat completions API: OpenAI, Azure, DeepSeek,
Qwen, Gemini, Ollama, vLLM.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, ClassVar, Literal

from rag_platform.errors import ProviderError
from rag_platform.ir import Json
from rag_platform.protocols import Completion, Message
from rag_platform.providers import model_calls as calls
from rag_platform.providers.model_clients import ChatModel, OpenAIModel


@dataclass(frozen=True)
class OpenAIChat(OpenAIModel, ChatModel):
    """A chat model with the address options of OpenAIModel and the other ones of ChatModel.

    `json_format` says how to request JSON by a schema; if an endpoint refuses that, plain JSON is
    requested, then text.
    """

    json_format: Literal["schema", "object", "text"] = "schema"

    VERSION: ClassVar[str] = "1"
    NO_MODEL: ClassVar[str] = (
        "llm 'openai' has no model; set its option `model`, or `deployment_name` on Azure"
    )

    def load(self) -> None:
        """Import the client, which takes a second. Raises ProviderError `missing_key`."""
        _ = self.client().chat.completions

    # --- the call --------------------------------------------------------------------------------

    def _body(self, messages: Sequence[Message], most: int | None, schema: Json | None) -> Json:
        body: Json = {"model": self.name, "messages": [_wire(it) for it in messages], **self.extra}
        if most is not None:
            body["max_tokens"] = most
        if "max_tokens" in body and self._state.get("completion_tokens"):
            body["max_completion_tokens"] = body.pop("max_tokens")
        wanted = _FORMATS[self._state.get("format", self.json_format)]
        if schema is not None and wanted(schema):
            body["response_format"] = wanted(schema)
        return body

    def _send(
        self, endpoint: calls.Endpoint, body: Json, on_text: Callable[[str], None] | None
    ) -> Any:
        if on_text is not None:
            body["stream"] = True
            if "stream_options" not in self._refused:
                body["stream_options"] = {"include_usage": True}
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

    def _learns_from(self, error: Any, sent: Json) -> bool:
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
        return super()._learns_from(error, sent)

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

    VERSION: ClassVar[str] = "1"

    def generate(self, messages: Sequence[Message], **options: Any) -> Completion:
        """Raises ProviderError `no_model`."""
        raise ProviderError(
            "no language model is configured; name one, for example provider `openai` with its"
            " model",
            code="no_model",
        )
