"""Calls to model endpoints, whatever their protocol: error codes, retries, reading of streams, the
trace event of each call, and removal of the thoughts (`<think>…</think>`) that reasoning models
write before an answer.

The SDKs of OpenAI and Anthropic come from one generator and name their errors alike, so errors are
recognized by class name and neither SDK is imported here.
"""

from __future__ import annotations

import math
import os
import time
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from rag_platform.errors import ProviderError
from rag_platform.ir import Json
from rag_platform.ledger import traffic
from rag_platform.observability import tracing
from rag_platform.processes.limits import question_ends
from rag_platform.protocols import Completion, Message
from rag_platform.retrying import pause, retry_after
from rag_platform.text.tokens import estimate_tokens

R = TypeVar("R")
# Options that change how a model is reached, not what it writes.
TRANSPORT = {"api_key_env", "timeout_ms", "retries", "backoff_ms", "price_input", "price_output"}
ONLINE_RETRIES = 1  # a user is waiting for the answer
RETRYABLE = ("timeout", "connection_failed", "rate_limited", "server_error")
_CODES = {
    400: "bad_request",
    401: "unauthorized",
    402: "unauthorized",
    403: "forbidden",
    404: "model_not_found",
    408: "timeout",
    409: "conflict",
    413: "too_large",
    422: "bad_request",
    429: "rate_limited",
}
# Errors inside a stream, whose HTTP status was 200, are known only by their type.
_TYPES = {
    "overloaded_error": "server_error",
    "api_error": "server_error",
    "server_error": "server_error",
    "rate_limit_error": "rate_limited",
    "rate_limit_exceeded": "rate_limited",
    "timeout_error": "timeout",
    "authentication_error": "unauthorized",
    "permission_error": "forbidden",
    "not_found_error": "model_not_found",
    "request_too_large": "too_large",
    "invalid_request_error": "bad_request",
}


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A model at a URL, with its retries, their first wait, and its prices per million tokens of
    input and output.
    """

    provider: str
    model: str
    place: str
    retries: int
    backoff_ms: int
    prices: tuple[float | None, float | None] = (None, None)

    def error(
        self, failure: Failure, cause: Exception, *, tries: int = 0, **details: Any
    ) -> ProviderError:
        """The error to raise for a call that failed for good after `tries` retries."""
        how = "its reply is not readable" if failure.code == "broken_reply" else "did not answer"
        return ProviderError(
            f"the model {self.model!r} at {self.place}: {how} ({failure.code}, after {tries + 1}"
            f" tries): {(failure.words or str(cause))[:300]}",
            code=failure.code,
            retryable=failure.retryable,
            retries=tries,
            status=failure.status,
            **details,
        )


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a call failed: our code, the HTTP status if any, the seconds that the endpoint asks to
    wait, and the body of its response where the error's message lacks it.
    """

    code: str
    status: int | None = None
    wait: float | None = None
    words: str = ""

    @property
    def retryable(self) -> bool:
        """True when the same call may succeed later."""
        return self.code in RETRYABLE


@dataclass(frozen=True, slots=True)
class Reply:
    """A reply as the endpoint sent it: its text, thoughts included, and its metadata."""

    text: str
    usage: Json  # input_tokens, output_tokens; empty where the endpoint counts none
    model_version: str
    finish: str  # stop | length
    refusal: str = ""  # the model's reason for not answering


class StoppedByListener(Exception):
    """Carries an error of `on_text` past the retry rules."""

    def __init__(self, error: Exception) -> None:
        super().__init__(str(error))
        self.error = error


def failure_of(error: Exception) -> Failure | None:
    """The failure that an error of an SDK or HTTP client means; None for any other error."""
    names = {cls.__name__ for cls in type(error).__mro__}
    if names & {"APITimeoutError", "TimeoutException"}:
        return Failure("timeout")
    if names & {"APIConnectionError", "TransportError"}:
        return Failure("connection_failed")
    # a successful status with an unreadable body
    if isinstance(error, ValueError) or "APIResponseValidationError" in names:
        return Failure("broken_reply")
    if not names & {"APIError", "HTTPStatusError"}:
        return None
    response = getattr(error, "response", None)
    status = getattr(error, "status_code", getattr(response, "status_code", None))
    if status == 400 and "content_filter" in str(error):
        return Failure("content_filtered", status)
    if status is None or status < 400:
        return Failure(_TYPES.get(_type_of(error), "broken_reply"), status)
    code = _CODES.get(status, "server_error" if status >= 500 else "bad_request")
    wait = retry_after(response.headers.get("retry-after", "")) if response is not None else None
    words = response.text if response is not None and "HTTPStatusError" in names else ""
    return Failure(code, status, wait, words)


def _type_of(error: Exception) -> str:
    body = getattr(error, "body", None)
    inner = body.get("error", body) if isinstance(body, dict) else {}
    inner = inner if isinstance(inner, dict) else {}
    return str(getattr(error, "type", None) or inner.get("type") or inner.get("code") or "")


def ask(
    endpoint: Endpoint,
    call: Callable[[], R],
    *,
    learns: Callable[[Exception], bool] = lambda error: False,
    ends: float = math.inf,
) -> tuple[R, int]:
    """(result of `call`, number of failed tries before it).

    Only rate limits, server errors, lost connections and timeouts are retried: at most `retries`
    times and not after `ends` (time.monotonic), after the wait that the endpoint asks for, or else
    one that doubles with each try. `learns` gets each `bad_request` error first; True means that it
    changed the call, which is then repeated at once. Where the settings limit this endpoint, each
    try waits for its turn, and a rate limit that one process meets pauses all of them. Raises
    ProviderError naming model, place and code.
    """
    limit = traffic.limit_of(endpoint.place, endpoint.model)
    tries = 0
    while True:
        try:
            with traffic.turn(limit, ends=min(ends, question_ends())):
                return call(), tries
        except StoppedByListener as stopped:
            raise stopped.error from None
        except ProviderError:
            raise
        except Exception as error:
            failure = failure_of(error)
            if failure is None:
                raise
            if failure.code == "bad_request" and learns(error):
                continue
            wait = pause(tries, endpoint.backoff_ms / 1000, asked=failure.wait)
            if failure.code == "rate_limited" or failure.wait is not None:
                traffic.pause(limit, wait)
            late = time.monotonic() + wait >= ends
            if late or tries >= endpoint.retries or not failure.retryable:
                raise endpoint.error(failure, error, tries=tries) from error
            time.sleep(wait)
            tries += 1


def read_stream(
    endpoint: Endpoint,
    events: Iterable[Any],
    text_of: Callable[[Any], str],
    on_text: Callable[[str], None],
) -> str:
    """The whole text of a stream; each part outside thoughts is passed to `on_text` as it arrives.

    An error before the first such part is raised unchanged, so that the call can be retried; a
    later one as ProviderError with the text so far in `details["text"]`. Errors of `on_text` are
    wrapped in StoppedByListener. The caller closes the stream.
    """
    parts: list[str] = []
    answer = ThoughtFilter(on_text)
    following = iter(events)
    while True:
        try:
            event = next(following, None)
            part = "" if event is None else text_of(event)
        except ProviderError as error:
            error.details.setdefault("text", "".join(parts))
            raise
        except Exception as error:
            failure = failure_of(error)
            if failure is None or not answer.begun:
                raise
            raise endpoint.error(failure, error, text="".join(parts)) from error
        parts.append(part)
        try:
            if event is None:
                answer.finish()
                return "".join(parts)
            if part:
                answer.add(part)
        except Exception as error:
            raise StoppedByListener(error) from error


def cut_stream_error(endpoint: Endpoint, text: str) -> ProviderError:
    """The error of a stream whose server disconnected between two lines."""
    return ProviderError(
        f"the stream of {endpoint.model!r} at {endpoint.place} ended before its end",
        code="connection_failed",
        retryable=True,
        text=text,
    )


def complete(
    endpoint: Endpoint,
    call: Callable[[], R],
    read: Callable[[R], Reply],
    messages: Sequence[Message],
    *,
    mode: str,
    streamed: bool,
    learns: Callable[[Exception], bool],
) -> Completion:
    """The completion of one call, without the model's thoughts. Failed calls are recorded too.

    Where the endpoint reports no usage for a stream, it is estimated and marked so. Raises
    ProviderError as `ask` and `read` do, and with the codes `content_filtered` and `empty_reply`;
    its details have `usage` and `cost` where known.
    """
    model = endpoint.model
    if mode != "offline":
        endpoint = replace(endpoint, retries=min(endpoint.retries, ONLINE_RETRIES))
    started = time.perf_counter()
    prompt_profile_id = next((message.prompt for message in messages if message.prompt), "")
    question = "\n".join(message.text for message in messages)
    with record_call(
        endpoint.provider,
        model,
        place=endpoint.place,
        mode=mode,
        prompt_profile_id=prompt_profile_id,
    ) as record:
        try:
            made, record["retries"] = ask(endpoint, call, learns=learns)
            reply = read(made)
            usage = reply.usage or (estimate_usage(question, reply.text) if streamed else {})
            record |= {
                "model_version": reply.model_version,
                "usage": usage,
                "cost": cost_of(usage, *endpoint.prices),
            }
            text = strip_thoughts(reply.text)
            if reply.refusal:
                raise ProviderError(
                    f"the model {model!r} refused: {reply.refusal[:200]}", code="content_filtered"
                )
            if not text.strip():
                raise ProviderError(
                    f"the model {model!r} answered nothing{_thoughts(reply)}"
                    f" ({reply.finish or 'no reason given'})",
                    code="empty_reply",
                )
        except ProviderError as error:
            if part := error.details.get("text", ""):
                usage = estimate_usage(question, part)
                record |= {"usage": usage, "cost": cost_of(usage, *endpoint.prices)}
            error.details |= {"usage": record["usage"], "cost": record["cost"]}
            raise
        return Completion(
            text,
            endpoint.provider,
            model,
            reply.model_version,
            mode,
            usage,
            record["cost"],
            record["retries"],
            time.perf_counter() - started,
            reply.finish,
        )


def _thoughts(reply: Reply) -> str:
    """The hint for an empty answer when the reply had thoughts only."""
    return (
        " but thoughts; give it more `max_tokens`, or turn its thinking off"
        if reply.text.strip()
        else ""
    )


@contextmanager
def record_call(
    provider: str, model: str, *, place: str, mode: str = "online", **more: Any
) -> Iterator[Json]:
    """Yields the record of one call for the block to fill in; then emits it as the event
    `model.call` and counts its usage against the limits of the endpoint.
    """
    record: Json = {
        "provider": provider,
        "model": model,
        "model_version": "",
        "mode": mode,
        "usage": {},
        "cost": None,
        "retries": 0,
    }
    record |= more
    started = time.perf_counter()
    try:
        yield record
    except BaseException as error:
        record["retries"] = getattr(error, "details", {}).get("retries", record["retries"])
        record["error"] = tracing.error_fields(error)
        raise
    finally:
        record["duration_ms"] = round(1000 * (time.perf_counter() - started), 3)
        tracing.event("model.call", record)
        traffic.spend(place, model, record["usage"], record["cost"])


def close_with(owner: object, client: Any) -> Any:
    """Returns the client, to be closed when its owner is garbage-collected."""
    weakref.finalize(owner, client.close)
    return client


def key_of(provider: str, variable: str, *, kind: str = "llm") -> str:
    """The key in an environment variable; `none` if no variable is named. Raises ProviderError
    `missing_key`.
    """
    key = os.environ.get(variable, "") if variable else "none"
    if not key:
        raise ProviderError(
            f"{kind} {provider!r} needs a key in the environment variable {variable}",
            code="missing_key",
        )
    return key


def cost_of(usage: Json, price_input: float | None, price_output: float | None) -> float | None:
    """The cost of a call at prices per million tokens; None without usage or prices."""
    if not usage or price_input is None or price_output is None:
        return None
    return (
        float(usage["input_tokens"] * price_input + usage["output_tokens"] * price_output)
        / 1_000_000
    )


def estimate_usage(question: str, answer: str) -> Json:
    """Estimated usage, for endpoints that report none."""
    return {
        "input_tokens": estimate_tokens(question),
        "output_tokens": estimate_tokens(answer),
        "estimated": True,
    }


_OPENS, _CLOSES = "<think>", "</think>"


def strip_thoughts(text: str) -> str:
    """The text without its leading thoughts; empty if they are not closed."""
    rest = text.lstrip()
    if not rest.startswith(_OPENS):
        return text
    while rest.startswith(_OPENS):
        rest = rest.partition(_CLOSES)[2].lstrip()
    return rest


class ThoughtFilter:
    """Passes the parts of a stream on once its leading thoughts have ended: `strip_thoughts` for
    streams.
    """

    def __init__(self, on_text: Callable[[str], None]) -> None:
        self._on_text = on_text
        self._held = ""
        self._thinks = self._thought = False
        self.begun = False  # a part was passed on

    def add(self, part: str) -> None:
        """Adds the next part. Raises what `on_text` raises."""
        if self.begun:
            self._on_text(part)
            return
        self._held += part
        while True:
            if self._thinks:
                _, end, rest = self._held.partition(_CLOSES)
                if not end:
                    # the closing mark may be split over two parts
                    self._held = self._held[-len(_CLOSES) :]
                    return
                self._held, self._thinks, self._thought = rest, False, True
            begun = self._held.lstrip()
            if begun.startswith(_OPENS):
                self._held, self._thinks = begun.removeprefix(_OPENS), True
            elif _OPENS.startswith(begun):  # empty, or part of the opening mark
                return
            else:
                self._say()
                return

    def finish(self) -> None:
        """Passes on any text still held back that is no thought. Raises what `on_text` raises."""
        if self._held.strip() and not self._thinks and not self.begun:
            self._say()

    def _say(self) -> None:
        self.begun = True
        self._on_text(self._held.lstrip() if self._thought else self._held)
