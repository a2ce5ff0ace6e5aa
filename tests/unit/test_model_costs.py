"""What a call of a model costs the event loop: no part of it keeps others waiting for long."""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from orchestrator.settings.operator_models import OperatorModel
from orchestrator.work.models.answers import AnswerReader
from orchestrator.work.models.errors import ModelError, ModelFailure
from orchestrator.work.models.messages import ModelMessage, Prompt, ToolCall
from orchestrator.work.models.metering import CallMeter
from orchestrator.work.models.models import Models
from orchestrator.work.models.request_body import request_body
from orchestrator.work.models.server_events import MOST_LINE, EventReader
from orchestrator.work.models.transport import MOST_WHOLE
from tests.support.models import Answer, ModelServer, model_server


@pytest.fixture
async def server() -> AsyncIterator[ModelServer]:
    async with model_server() as found:
        yield found


def seconds(work: Callable[[], Any]) -> float:
    """The processor's time, at best."""
    took = []
    for _ in range(3):
        began = time.thread_time()
        work()
        took.append(time.thread_time() - began)
    return min(took)


def conversation(count: int) -> list[ModelMessage]:
    said = ModelMessage("assistant", "", (ToolCall("a", "read_file", '{"path": "a"}'),))
    return [ModelMessage("user", "go"), *[said, ModelMessage("tool", "ok", call="a")] * count]


async def test_a_long_conversation_costs_little_more_than_its_json(server: ModelServer) -> None:
    model = OperatorModel.model_validate(server.setting())
    asked = Models({"small": model})
    prompt = Prompt(conversation(250))
    await asked.complete("small", prompt, 100, 60)
    forms = [each.json() for each in prompt.messages]
    sent = json.dumps(forms)
    assert server.bodies[-1]["messages"] == forms
    # A transformation of each message takes fifty times as long as writing it.
    alone = seconds(lambda: json.dumps(forms))
    body = request_body("small", model, prompt, 100, usage=True)
    began = time.thread_time()
    parts = await body
    assert time.thread_time() - began < 10 * alone + 0.005
    assert len(b"".join(parts)) < 2 * len(sent)
    await asked.close()


async def test_others_run_while_a_body_is_written(server: ModelServer) -> None:
    model = OperatorModel.model_validate(server.setting())
    prompt = Prompt([ModelMessage("user", "x" * 32 * 1024)] * 100)
    turns = 0

    async def others() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    waiting = asyncio.create_task(others())
    parts = await request_body("small", model, prompt, 100, usage=True)
    waiting.cancel()
    assert turns > 30
    assert max(map(len, parts)) < 128 * 1024
    assert json.loads(b"".join(parts))["messages"] == [each.json() for each in prompt.messages]


def filled(unit: bytes, size: int) -> bytes:
    """A message whose content is a list of that."""
    inside = unit * (size // len(unit))
    return b'{"choices":[{"message":{"content":[' + inside + b"1]}}]}"


HOSTILE = {
    "lists": b"[],",
    "objects": b"{},",
    "members": b'{"":1},',
    "numbers": b"1,",
    "nested": b"[[[[[[]]]]]],",
    "parts": b'{"text":"x"},',
}


@pytest.mark.parametrize("unit", HOSTILE)
def test_what_a_whole_answer_costs_is_bounded(unit: str) -> None:
    def read(size: int) -> None:
        reader = AnswerReader("small", CallMeter(), str)
        try:
            reader.add(filled(HOSTILE[unit], size), "message")
        except ModelError as error:
            assert error.failure is ModelFailure.TOO_LARGE  # noqa: PT017 - it may be taken, too

    # As a text of that size costs, and some; what is refused costs nothing.
    text = json.dumps("\\" * MOST_WHOLE)
    assert seconds(lambda: read(MOST_WHOLE)) < 40 * seconds(lambda: json.loads(text)) + 0.02


def test_the_number_of_calls_and_members_is_bounded() -> None:
    messages: tuple[dict[str, Any], ...] = (
        {"tool_calls": [{"function": {}}] * 2000},
        {f"member{number}": 1 for number in range(100)},
    )
    for message in messages:
        body = json.dumps({"choices": [{"message": message}]}).encode()
        with pytest.raises(ModelError, match="the answer has more than"):
            AnswerReader("small", CallMeter(), str).add(body, "message")


async def test_an_answer_of_many_bytes_is_not_read(server: ModelServer) -> None:
    body = [b'{"choices":[{"message":{"content":"', *[b"x" * 65536] * 256, b'"}}]}']
    server.answers = [Answer(body=body, content_type="application/json")]
    asked = Models({"small": OperatorModel.model_validate(server.setting())})
    with pytest.raises(ModelError, match="more than an answer has"):
        await asked.complete("small", Prompt([ModelMessage("user", "go")]), 100, 60)
    await asked.close()


def events(piece: bytes, count: int) -> None:
    reader = EventReader()
    for _ in range(count):
        for _ in reader.feed(piece):
            pass


@pytest.mark.parametrize("piece", [b"x" * 64, b"data: x\n\n", b"\n" * 64, b"data:\n", b"\r"])
def test_events_are_read_in_linear_time(piece: bytes) -> None:
    most = MOST_LINE // max(64, len(piece)) // 2
    few, many = seconds(lambda: events(piece, most // 8)), seconds(lambda: events(piece, most))
    assert many < 8 * 4 * few + 0.01


def test_an_event_is_bounded() -> None:
    for piece in (b"x" * 65536, b"data: " + b"x" * 65536 + b"\n"):
        with pytest.raises(ModelError, match="more than an answer has"):
            events(piece, MOST_LINE // 65536 + 1)
