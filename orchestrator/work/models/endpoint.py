"""One call of an endpoint that speaks OpenAI's chat completions."""

import asyncio
import json
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any, NamedTuple

from orchestrator.settings.operator_models import OperatorModel
from orchestrator.work.models.answers import AnswerReader, Finished
from orchestrator.work.models.errors import ModelError, ModelFailure
from orchestrator.work.models.extras import names
from orchestrator.work.models.messages import Prompt
from orchestrator.work.models.metering import NOTHING, CallMeter, estimated
from orchestrator.work.models.request_body import request_body
from orchestrator.work.models.retries import MOST_RETRIES, is_temporary, pause
from orchestrator.work.models.server_events import EventReader
from orchestrator.work.models.transport import (
    CONNECTION_FAILURES,
    PIECE,
    Connections,
    EndpointAnswer,
    never_sent,
)

_MOST_SHOWN = 500
_MOST_REFUSAL = 64 * 1024
# Others run after so many events, which may have come at once.
_EVENTS_AT_ONCE = 32
# With these statuses, the endpoint's message is about the request and not about the key.
_ABOUT_REQUEST = frozenset({400, 404, 413, 422})
_OPTIONS = "stream_options"
# How a stream begins, whatever content type the endpoint states.
_EVENT_BEGINS = (b"data:", b"event:", b":")


class ModelCall(NamedTuple):
    """What is asked of an endpoint. `name` is the operator's; `until` is the event loop's time."""

    name: str
    model: OperatorModel
    key: str
    prompt: Prompt
    max_tokens: int
    until: float

    def readable(self, message: str) -> str:
        """What an endpoint says, short, and without the key, which it may have in it."""
        plain = "".join(each if each.isprintable() else " " for each in message[:_MOST_SHOWN])
        return plain.replace(self.key, "…")


class Endpoint:
    """Calls of all models share the connections."""

    def __init__(self) -> None:
        self._connections = Connections()
        # The models whose endpoints have refused to be asked for the usage, and those whose
        # endpoints have refused what they said beside text and calls.
        self._silent: set[str] = set()
        self._plain: set[str] = set()

    async def close(self) -> None:
        """Closes the connections."""
        await self._connections.close()

    async def stream(self, call: ModelCall, meter: CallMeter) -> AsyncGenerator[str]:
        """The pieces of the answer as they come, and at last how it `Finished`.

        Raises: ModelError.
        """
        meter.usage = estimated(call.prompt, 0)
        try:
            async with asyncio.timeout_at(call.until):
                answer = await self._ask(call, meter)
            try:
                async with aclosing(_read(call, answer, meter)) as pieces:
                    while True:
                        async with asyncio.timeout_at(call.until):
                            piece = await anext(pieces)
                        yield piece
                        if isinstance(piece, Finished):
                            return
            finally:
                answer.close()
        except TimeoutError:
            failure = ModelFailure.TIMEOUT
            raise ModelError(failure, "the endpoint does not answer in time") from None
        except CONNECTION_FAILURES:
            failure = ModelFailure.BROKEN
            raise ModelError(failure, "the endpoint's answer fails or breaks off") from None

    async def _ask(self, call: ModelCall, meter: CallMeter) -> EndpointAnswer:
        """An answer with status 200. Raises: ModelError, TimeoutError."""
        retries = 0
        while True:
            usage = call.model.stream_usage and call.name not in self._silent
            extras = call.model.send_back and call.name not in self._plain
            body = await request_body(
                *(call.name, call.model, call.prompt, call.max_tokens), usage=usage, extras=extras
            )
            wait = await self._try(call, meter, body, retries)
            if isinstance(wait, EndpointAnswer):
                return wait
            retries += wait > 0
            await asyncio.sleep(wait)

    async def _try(
        self, call: ModelCall, meter: CallMeter, body: list[bytes], retries: int
    ) -> EndpointAnswer | float:
        """The answer; or the seconds until the next try, 0 if that asks for less.

        Raises: ModelError.
        """
        try:
            answer = await self._connections.post(call.model.url, call.key, body)
        except CONNECTION_FAILURES as error:
            if retries < MOST_RETRIES:
                return pause(retries)
            if never_sent(error):
                meter.usage = NOTHING
            failure = ModelFailure.UNREACHABLE
            raise ModelError(failure, "the endpoint can't be reached") from None
        if 200 <= answer.status < 300:
            return answer
        try:
            if is_temporary(answer.status) and retries < MOST_RETRIES:
                return pause(retries, answer.headers)
            message = await _refusal(answer)
        finally:
            answer.close()
        if answer.status in _ABOUT_REQUEST and self._asks_for_less(call, message):
            return 0.0
        meter.usage = NOTHING
        raise ModelError(ModelFailure.REFUSED, _refused(call, answer.status, message))

    def _asks_for_less(self, call: ModelCall, message: str) -> bool:
        """Whether the endpoint names something that it is not sent any more."""
        if call.model.stream_usage and call.name not in self._silent and _OPTIONS in message:
            self._silent.add(call.name)
            return True
        if not call.model.send_back or call.name in self._plain:
            return False
        beside = set[str]().union(*(names(each.extra, call.name) for each in call.prompt.messages))
        if any(name in message for name in beside):
            self._plain.add(call.name)
            return True
        return False


async def _read(call: ModelCall, answer: EndpointAnswer, meter: CallMeter) -> AsyncGenerator[str]:
    """Raises: ModelError, CONNECTION_FAILURES."""
    reader = AnswerReader(call.name, meter, call.readable)
    kind = answer.headers.get("content-type", "").lower()
    pieces = answer.pieces()
    if not kind.startswith("text/event-stream"):
        whole = await answer.whole()
        if not whole.lstrip().startswith(_EVENT_BEGINS):
            if text := reader.add(whole, "message"):
                yield text
            yield reader.end(complete=True)
            return
        pieces = _again(whole)
    complete, count = False, 0
    async with aclosing(_events(pieces)) as events:
        async for data in events:
            count += 1
            if count % _EVENTS_AT_ONCE == 0:
                await asyncio.sleep(0)
            if data.strip() == b"[DONE]":
                complete = True
                break
            if text := reader.add(data, "delta"):
                yield text
    yield reader.end(complete=complete)


async def _again(whole: bytes) -> AsyncGenerator[bytes]:
    """The pieces of a stream that was not announced as one, and has been read as a whole."""
    for place in range(0, len(whole), PIECE):
        yield whole[place : place + PIECE]


async def _events(body: AsyncGenerator[bytes]) -> AsyncGenerator[bytes]:
    events = EventReader()
    async with aclosing(body) as pieces:
        async for piece in pieces:
            for data in events.feed(piece):
                yield data
            # The next pieces may be here already, and others must run.
            await asyncio.sleep(0)
    for data in events.end():
        yield data


async def _refusal(answer: EndpointAnswer) -> str:
    """What the endpoint says is wrong; empty if that can't be read."""
    try:
        body: Any = json.loads(await answer.whole(_MOST_REFUSAL))
    except (ModelError, RecursionError, *CONNECTION_FAILURES):
        return ""
    error = body.get("error", body) if isinstance(body, dict) else None
    message = error.get("message") if isinstance(error, dict) else error
    return message if isinstance(message, str) else ""


def _refused(call: ModelCall, status: int, message: str) -> str:
    detail = f"the endpoint answers with status {status}"
    if 300 <= status < 400:
        return f"{detail}: redirects are not followed, because they would take the key along"
    if status not in _ABOUT_REQUEST or not message:
        return detail
    return f"{detail}: {call.readable(message)}"
