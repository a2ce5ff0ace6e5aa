"""One call of an endpoint that speaks OpenAI's protocol, by the package of that name.

Importing the package takes more than a second and 20 MB, so this module is imported by the first
call, in a thread.
"""

import asyncio
import json
import logging
from collections.abc import AsyncGenerator
from contextlib import aclosing
from types import SimpleNamespace
from typing import Any

import httpx2
from openai import (
    APIConnectionError,
    APIStatusError,
    APITimeoutError,
    AsyncOpenAI,
    AsyncStream,
    OpenAIError,
)

from orchestrator.config.operator_models import OperatorModel
from orchestrator.models.errors import ModelError, ModelFailure
from orchestrator.models.messages import Prompt
from orchestrator.models.metering import NOTHING, CallMeter, estimated, stated
from orchestrator.models.tool_calls import AnswerCalls, CallPieces
from orchestrator.models.transport import (
    AnswerTooLargeError,
    BoundedTransport,
    EncodedAnswerError,
)

_CONNECT_SECONDS = 10.0
_RETRIES = 2
_MOST_TEXT = 1024 * 1024
_MOST_SAID = 500
# Others run after so many pieces, which may have come at once.
_PIECES_AT_ONCE = 32
# What the endpoint says about these is about the request, not about the key.
_ABOUT_REQUEST = frozenset({400, 404, 413, 422})


class Finished(str):
    """How an answer ended, in the endpoint's word; the last piece of it. `called`: its calls."""

    called = AnswerCalls()

    @classmethod
    def calling(cls, reason: str, called: AnswerCalls) -> "Finished":
        """An end with these calls of tools."""
        end = cls(reason)
        end.called = called
        return end


class Endpoint:
    """Calls of all models share the connections."""

    def __init__(self) -> None:
        # Both would log requests with their texts.
        for name in ("openai", "httpx2", "httpcore2"):
            logging.getLogger(name).setLevel(logging.WARNING)
        self._http = httpx2.AsyncClient(
            transport=BoundedTransport(), trust_env=False, follow_redirects=False
        )

    async def close(self) -> None:
        """Closes the connections."""
        await self._http.aclose()

    async def stream(
        self,
        name: str,
        model: OperatorModel,
        key: str,
        prompt: Prompt,
        max_tokens: int,
        meter: CallMeter,
        until: float,
    ) -> AsyncGenerator[str]:
        """The pieces of the answer as they come, and at last how it `Finished`.

        `until` is the event loop's time. Raises: ModelError.
        """
        meter.usage = estimated(prompt, 0)
        try:
            async with asyncio.timeout_at(until):
                answer = await self._ask(name, model, key, prompt, max_tokens)
            async with aclosing(answer), aclosing(_pieces(answer, meter)) as pieces:
                while True:
                    async with asyncio.timeout_at(until):
                        piece = await anext(pieces)
                    yield piece
                    if isinstance(piece, Finished):
                        return
        except ModelError:
            raise
        except Exception as error:  # noqa: BLE001 - it may raise anything for what is sent
            if isinstance(error, APIStatusError) or _never_sent(error):
                meter.usage = NOTHING
            raise _failure(error, key) from None

    async def _ask(
        self,
        name: str,
        model: OperatorModel,
        key: str,
        prompt: Prompt,
        max_tokens: int,
    ) -> AsyncStream[Any]:
        client = AsyncOpenAI(
            api_key=key,
            # Before what a variable of the environment says.
            default_headers={"Authorization": f"Bearer {key}"},
            base_url=model.url,
            http_client=self._http,
            max_retries=_RETRIES,
            timeout=httpx2.Timeout(model.timeout, connect=_CONNECT_SECONDS),
        )
        create: Any = client.chat.completions.create
        answer: AsyncStream[Any] = await create(
            model=model.model or name,
            messages=[each.json() for each in prompt.messages],
            stream=True,
            stream_options={"include_usage": True},
            **{model.limit_field: max_tokens},
            **({"tools": [each.json() for each in prompt.tools]} if prompt.tools else {}),
        )
        return answer


async def _pieces(answer: AsyncStream[Any], meter: CallMeter) -> AsyncGenerator[str]:
    """Raises: ModelError, and whatever the package does."""
    if not answer.response.headers.get("content-type", "").startswith("text/event-stream"):
        async for piece in _whole(answer, meter):
            yield piece
        return
    usage, finished, size = meter.usage, None, 0
    said = None
    calls = CallPieces()
    count = 0
    async for chunk in answer:
        count += 1
        if count % _PIECES_AT_ONCE == 0:
            await asyncio.sleep(0)
        said = stated(getattr(chunk, "usage", None)) or said
        text, reason, pieces = _part(chunk, "delta")
        finished = reason or finished
        added = calls.add(pieces) + len(text.encode(errors="replace"))
        if added:
            size += added
            _check_size(size)
            meter.usage = usage._replace(output_tokens=size)
        if text:
            yield text
    if finished is None:
        raise ModelError(ModelFailure.BROKEN, "the endpoint's answer breaks off")
    meter.usage = said or meter.usage
    yield Finished.calling(finished, calls.called)


async def _whole(answer: AsyncStream[Any], meter: CallMeter) -> AsyncGenerator[str]:
    """The answer of an endpoint that does not stream."""
    body = await answer.response.aread()
    try:
        chunk = json.loads(body, object_hook=lambda members: SimpleNamespace(**members))
    except (ValueError, RecursionError):
        raise ModelError(
            ModelFailure.BROKEN, "the endpoint's answer is not one of a model"
        ) from None
    text, reason, pieces = _part(chunk, "message")
    calls = CallPieces()
    size = calls.add(pieces) + len(text.encode(errors="replace"))
    _check_size(size)
    meter.usage = stated(getattr(chunk, "usage", None)) or meter.usage._replace(output_tokens=size)
    if reason is None:
        raise ModelError(ModelFailure.BROKEN, "the endpoint's answer breaks off")
    if text:
        yield text
    yield Finished.calling(reason, calls.called)


def _part(chunk: Any, member: str) -> tuple[str, str | None, Any]:
    """The text of a chunk, why the answer ends with it, and its calls: whatever is sent there."""
    choices = getattr(chunk, "choices", None)
    if not isinstance(choices, list) or not choices:
        return "", None, None
    said = getattr(choices[0], member, None)
    text = getattr(said, "content", None)
    reason = getattr(choices[0], "finish_reason", None)
    return (
        text if isinstance(text, str) else "",
        reason[:32] if isinstance(reason, str) and reason else None,
        getattr(said, "tool_calls", None),
    )


def _check_size(size: int) -> None:
    if size > _MOST_TEXT:
        raise ModelError(ModelFailure.TOO_LARGE, f"the answer has more than {_MOST_TEXT} bytes")


def _never_sent(error: BaseException) -> bool:
    return isinstance(error.__cause__, httpx2.ConnectError | httpx2.ConnectTimeout)


def _failure(error: BaseException, key: str) -> ModelError:
    """The error in our words; what an endpoint says may have the key in it."""
    causes = {type(error), type(error.__cause__)}
    if AnswerTooLargeError in causes:
        return ModelError(ModelFailure.TOO_LARGE, "the endpoint sends more than an answer has")
    if EncodedAnswerError in causes:
        return ModelError(ModelFailure.BROKEN, "the endpoint compresses its answer")
    if isinstance(error, TimeoutError | APITimeoutError):
        return ModelError(ModelFailure.TIMEOUT, "the endpoint does not answer in time")
    if isinstance(error, APIStatusError):
        return ModelError(ModelFailure.REFUSED, _refusal(error, key))
    if isinstance(error, APIConnectionError):
        return ModelError(ModelFailure.UNREACHABLE, "the endpoint can't be reached")
    if isinstance(error, OpenAIError | httpx2.HTTPError):
        return ModelError(ModelFailure.BROKEN, "the endpoint's answer fails or breaks off")
    return ModelError(ModelFailure.BROKEN, "the endpoint's answer is not one of a model")


def _refusal(error: APIStatusError, key: str) -> str:
    said = f"the endpoint answers with status {error.status_code}"
    if 300 <= error.status_code < 400:
        return f"{said}: redirects are not followed, because they would take the key along"
    body = error.body
    message = body.get("message") if isinstance(body, dict) else None
    if error.status_code not in _ABOUT_REQUEST or not isinstance(message, str):
        return said
    shown = "".join(each if each.isprintable() else " " for each in message[:_MOST_SAID])
    return f"{said}: {shown.replace(key, '…')}"
