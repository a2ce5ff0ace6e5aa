"""What endpoints do differently from each other: each row is one quirk, and what comes of it."""

import json
from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest

from orchestrator.settings.operator_models import OperatorModel
from orchestrator.work.models.errors import ModelError
from orchestrator.work.models.extras import read, sent_with
from orchestrator.work.models.messages import ModelMessage, Prompt, ToolCall
from orchestrator.work.models.metering import Completion
from orchestrator.work.models.models import Models
from tests.support.models import KEY, Answer, ModelServer, chunk, event, model_server

DONE = b"data: [DONE]\n\n"
HELLO = Prompt((ModelMessage("user", "Hello"),))
WEATHER = '{"city": "Bern"}'
TIME = '{"zone": "CET"}'
TWO = (ToolCall("a", "weather", WEATHER), ToolCall("b", "time", TIME))


@pytest.fixture
async def server() -> AsyncIterator[ModelServer]:
    async with model_server() as found:
        yield found


async def ask(server: ModelServer, prompt: Prompt = HELLO, **changes: Any) -> Completion:
    asked = Models({"small": OperatorModel.model_validate(server.setting(**changes))})
    try:
        return await asked.complete("small", prompt, 100, 30)
    finally:
        await asked.close()


def delta(**members: Any) -> dict[str, Any]:
    whole = chunk()
    whole["choices"][0]["delta"] = members
    return whole


def streamed(*deltas: dict[str, Any], finish: str | None = "tool_calls") -> Answer:
    chunks = [delta(**each) for each in deltas]
    ends = [] if finish is None else [chunk(finish=finish)]
    return Answer(body=[*map(event, [*chunks, *ends]), DONE])


def whole(finish: str | None = "stop", **message: Any) -> Answer:
    choice = {"index": 0, "message": {"role": "assistant", **message}, "finish_reason": finish}
    body = json.dumps({"id": "1", "choices": [choice]}).encode()
    return Answer(body=[body], content_type="application/json")


def piece(identity: str | None, name: str | None, arguments: Any, **others: Any) -> dict[str, Any]:
    function = {"name": name, "arguments": arguments}
    given = {"id": identity, "function": {k: v for k, v in function.items() if v is not None}}
    return {k: v for k, v in {**given, **others}.items() if v is not None}


def calls(*pieces: dict[str, Any]) -> dict[str, Any]:
    return {"tool_calls": list(pieces)}


CALLS: dict[str, tuple[Answer, Sequence[ToolCall]]] = {
    "one delta a call, no index": (
        streamed(calls(piece("a", "weather", WEATHER)), calls(piece("b", "time", TIME))),
        TWO,
    ),
    "all with index 0": (
        streamed(
            calls(piece("a", "weather", "", index=0)),
            calls(piece(None, None, WEATHER, index=0)),
            calls(piece("b", "time", TIME[:4], index=0)),
            calls(piece(None, None, TIME[4:], index=0)),
        ),
        TWO,
    ),
    "pieces of two calls in turns, told by their ids": (
        streamed(
            calls(piece("a", "weather", WEATHER[:5])),
            calls(piece("b", "time", TIME[:5])),
            calls(piece("a", None, WEATHER[5:])),
            calls(piece("b", None, TIME[5:])),
        ),
        TWO,
    ),
    "id and name in each piece": (
        streamed(
            calls(piece("a", "weather", WEATHER[:5], index=0)),
            calls(piece("a", "weather", WEATHER[5:], index=0)),
        ),
        TWO[:1],
    ),
    "neither ids nor indexes": (
        streamed(
            calls(piece(None, "weather", "")),
            calls(piece(None, None, WEATHER)),
            calls(piece(None, "time", "")),
            calls(piece(None, None, TIME)),
        ),
        (TWO[0]._replace(id="call-0"), TWO[1]._replace(id="call-1")),
    ),
    "the same tool twice, without ids": (
        streamed(calls(piece(None, "time", TIME)), calls(piece(None, "time", TIME))),
        (ToolCall("call-0", "time", TIME), ToolCall("call-1", "time", TIME)),
    ),
    "a name in pieces": (
        streamed(
            calls(piece("a", "wea", None, index=0)),
            calls(piece(None, "ther", "", index=0)),
            calls(piece(None, None, WEATHER, index=0)),
        ),
        TWO[:1],
    ),
    "arguments as an object, streamed": (
        streamed(calls(piece("a", "weather", json.loads(WEATHER), index=0))),
        TWO[:1],
    ),
    "arguments as an object": (
        whole(content=None, tool_calls=[piece("a", "weather", json.loads(WEATHER))]),
        TWO[:1],
    ),
    "no arguments": (
        whole(content=None, tool_calls=[piece("a", "now", None)]),
        (ToolCall("a", "now", ""),),
    ),
    "several calls, no index": (
        whole(tool_calls=[piece("a", "weather", WEATHER), piece("b", "time", TIME)]),
        TWO,
    ),
    "one id for two calls": (
        streamed(calls(piece("a", "weather", WEATHER, index=0), piece("a", "time", TIME, index=1))),
        (TWO[0], TWO[1]._replace(id="call-1")),
    ),
    "calls, but it says that it stops": (
        streamed(calls(piece("a", "weather", WEATHER, index=0)), finish="stop"),
        TWO[:1],
    ),
}


@pytest.mark.parametrize("quirk", CALLS)
async def test_calls(server: ModelServer, quirk: str) -> None:
    answer, expected = CALLS[quirk]
    server.answers = [answer]
    assert (await ask(server)).called == (tuple(expected), 0)


USAGE = {"prompt_tokens": 7, "completion_tokens": 3}
PARTS = [{"type": "text", "text": "It "}, {"type": "image_url", "image_url": {}}, "works."]
ENDED = [event(chunk("It works.")), event(chunk(finish="stop"))]
# What becomes of it: text, reason, tokens received and sent, whether they are estimated.
NOT_STATED = ("It works.", "stop", 21, 9, True)
STATED = ("It works.", "stop", 7, 3, False)
ANSWERS: dict[str, tuple[Answer, tuple[str, str, int, int, bool]]] = {
    "content as parts, streamed": (streamed({"content": PARTS}, finish="stop"), NOT_STATED),
    "content as parts": (whole(content=PARTS), NOT_STATED),
    "no reason before the end": (streamed({"content": "It works."}, finish=None), NOT_STATED),
    "no reason": (whole(None, content="It works."), NOT_STATED),
    "no blank line at the end": (Answer(body=[*ENDED, DONE.strip()]), NOT_STATED),
    "lines end with CR and LF": (
        Answer(body=[each.replace(b"\n", b"\r\n") for each in (*ENDED, DONE)]),
        NOT_STATED,
    ),
    "comments, and other fields": (
        Answer(body=[b": WAITING\n\nevent: m\nid: 5\n" + ENDED[0], *ENDED[1:], DONE]),
        NOT_STATED,
    ),
    "a stream that is not called one": (
        Answer(body=[*ENDED, DONE], content_type="text/plain"),
        NOT_STATED,
    ),
    "usage of null": (
        Answer(body=[event({**chunk("It works."), "usage": None}), DONE]),
        NOT_STATED,
    ),
    "usage with the last text": (
        Answer(body=[event({**chunk("It works.", "stop"), "usage": USAGE}), DONE]),
        STATED,
    ),
    "usage after the last text": (
        Answer(body=[*ENDED, event({"choices": [], "usage": USAGE}), DONE]),
        STATED,
    ),
    "usage in each piece, growing": (
        Answer(
            body=[
                event({**chunk("It "), "usage": {"prompt_tokens": 7, "completion_tokens": 1}}),
                event({**chunk("works.", "stop"), "usage": USAGE}),
                event({"choices": [], "usage": USAGE}),
                DONE,
            ]
        ),
        STATED,
    ),
}


@pytest.mark.parametrize("quirk", ANSWERS)
async def test_texts_and_usage(server: ModelServer, quirk: str) -> None:
    answer, expected = ANSWERS[quirk]
    server.answers = [answer]
    found = await ask(server)
    usage = (found.input_tokens, found.output_tokens, found.estimated)
    assert (found.text, found.finish_reason, *usage) == expected


SAID = f"the tokens of {KEY} are used up"
ERRORS: dict[str, Answer] = {
    "in a stream": Answer(body=[event(chunk("It ")), event({"error": {"message": SAID}}), DONE]),
    "as text": Answer(body=[event({"error": SAID})]),
    "with status 200": Answer(
        body=[json.dumps({"error": {"message": SAID, "code": 429}}).encode()],
        content_type="application/json",
    ),
}


@pytest.mark.parametrize("quirk", ERRORS)
async def test_an_error_within_an_answer_is_told(server: ModelServer, quirk: str) -> None:
    server.answers = [ERRORS[quirk]]
    with pytest.raises(ModelError) as caught:
        await ask(server)
    assert str(caught.value) == (
        "model small: the endpoint answers with an error: the tokens of … are used up"
    )


SIGNED = {"google": {"thought_signature": "c2ln"}}
SAID_BESIDE: dict[str, Answer] = {
    "streamed": streamed(
        {"role": "assistant", "reasoning_content": "I wonder", "refusal": None},
        {"reasoning_content": " why.", "details": [{"text": "1"}]},
        {"details": [{"text": "2"}]},
        calls(piece("a", "weather", "", index=0, extra_content=SIGNED)),
        calls(piece(None, None, WEATHER, index=0)),
    ),
    "at once": whole(
        content=None,
        reasoning_content="I wonder why.",
        refusal=None,
        details=[{"text": "1"}, {"text": "2"}],
        tool_calls=[piece("a", "weather", WEATHER, extra_content=SIGNED)],
    ),
}


@pytest.mark.parametrize("quirk", SAID_BESIDE)
async def test_what_is_said_beside_calls_goes_back_to_the_model_that_said_it(
    server: ModelServer, quirk: str
) -> None:
    server.answers = [SAID_BESIDE[quirk], Answer()]
    found = await ask(server)
    assert found.called.calls == TWO[:1]
    said = ModelMessage("assistant", "", found.called.calls, extra=found.extra)
    plain = {
        "role": "assistant",
        "content": None,
        "tool_calls": [{**TWO[0].json()}],
    }
    whole_message = {
        **plain,
        "reasoning_content": "I wonder why.",
        "details": [{"text": "1"}, {"text": "2"}],
        "tool_calls": [{**TWO[0].json(), "extra_content": SIGNED}],
    }
    for expected, changes in ((whole_message, {}), (plain, {"send_back": False})):
        await ask(server, Prompt((said, ModelMessage("tool", "", call="a"))), **changes)
        assert server.bodies[-1]["messages"][0] == expected
    # Another model may not know them.
    assert said.json_for("large") == plain


def test_what_can_not_be_read_is_nothing() -> None:
    for text in ("", "[]", "{", '{"message": 5}', '{"calls": {"x": {}}}', "x" * 200_000):
        assert sent_with({"role": "user"}, read(text)[1]) == {"role": "user"}


async def test_an_endpoint_that_refuses_to_state_the_usage_is_not_asked_again(
    server: ModelServer,
) -> None:
    server.answers = [Answer(refuses="stream_options")]
    asked = Models({"small": OperatorModel.model_validate(server.setting())})
    for _ in range(2):
        assert (await asked.complete("small", HELLO, 100, 30)).text == "done"
    await asked.close()
    assert ["stream_options" in body for body in server.bodies] == [True, False, False]
    # Nor one of which the operator says so.
    await ask(server, stream_usage=False)
    assert "stream_options" not in server.bodies[-1]


async def test_an_endpoint_that_refuses_what_it_said_gets_it_no_more(server: ModelServer) -> None:
    server.answers = [whole(content="So.", reasoning="I wonder."), Answer(refuses="reasoning")]
    asked = Models({"small": OperatorModel.model_validate(server.setting())})
    first = await asked.complete("small", HELLO, 100, 30)
    said = Prompt((ModelMessage("assistant", first.text, extra=first.extra), *HELLO.messages))
    for _ in range(2):
        assert (await asked.complete("small", said, 100, 30)).text == "done"
    await asked.close()
    sent = ["reasoning" in body["messages"][0] for body in server.bodies[1:]]
    assert sent == [True, False, False]


async def test_who_calls_is_said(server: ModelServer) -> None:
    await ask(server)
    assert server.headers[0]["User-Agent"] == "paddock"
