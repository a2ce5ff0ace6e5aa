"""Calls of language models: metered, bounded, and never with the key in another place."""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from orchestrator.settings.operator_models import OperatorModel
from orchestrator.work.models.errors import ModelError, ModelFailure
from orchestrator.work.models.messages import ModelMessage, Prompt
from orchestrator.work.models.metering import NOTHING, CallMeter, Completion
from orchestrator.work.models.models import Models
from tests.support.free_ports import free_port
from tests.support.models import KEY, Answer, ModelServer, chunk, event, model_server

pytestmark = pytest.mark.slow

HELLO = Prompt((ModelMessage("system", "Be brief."), ModelMessage("user", "Hello")))
SECONDS = 30.0


@pytest.fixture
async def server() -> AsyncIterator[ModelServer]:
    async with model_server() as found:
        yield found


def models(server: ModelServer, **changes: Any) -> Models:
    return Models({"small": OperatorModel.model_validate(server.setting(**changes))})


async def ask(
    server: ModelServer, *answers: Answer, meter: CallMeter | None = None, **changes: Any
) -> Completion:
    server.answers = list(answers) or server.answers
    asked = models(server, **changes)
    try:
        return await asked.complete("small", HELLO, 100, SECONDS, meter)
    finally:
        await asked.close()


async def refused(server: ModelServer, *answers: Answer, **changes: Any) -> ModelError:
    with pytest.raises(ModelError) as caught:
        await ask(server, *answers, **changes)
    assert KEY not in str(caught.value)
    assert server.url not in str(caught.value)
    assert str(caught.value).startswith("model small: ")
    return caught.value


async def test_an_answer_is_metered_by_what_the_endpoint_states(server: ModelServer) -> None:
    found = await ask(server, Answer("It works.", (1000, 500)), model="small-2026")
    assert found == Completion("It works.", 1000, 500, 450, "stop", estimated=False)
    assert server.bodies == [
        {
            "model": "small-2026",
            "messages": [
                {"role": "system", "content": "Be brief."},
                {"role": "user", "content": "Hello"},
            ],
            "max_tokens": 100,
            "stream": True,
            "stream_options": {"include_usage": True},
        }
    ]


async def test_an_endpoint_may_answer_at_once_and_have_other_names(server: ModelServer) -> None:
    changes: dict[str, Any] = {"max_tokens": 7, "limit_field": "max_completion_tokens"}
    found = await ask(server, Answer("It works.", (9, 3), "length", stream=False), **changes)
    assert found == Completion("It works.", 9, 3, 4, "length", estimated=False)
    assert server.bodies[0]["max_completion_tokens"] == 7
    assert server.bodies[0]["model"] == "small"


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("usage", [None, (-5, 3), ("many", None)])
async def test_without_a_usage_it_is_estimated(
    server: ModelServer, stream: bool, usage: tuple[Any, Any] | None
) -> None:
    found = await ask(server, Answer("It wörks.", usage, stream=stream))
    assert (found.text, found.estimated) == ("It wörks.", True)
    assert (found.input_tokens, found.output_tokens) == (9 + 5 + 32, 10)
    assert found.cost_microdollars == 13


async def test_pieces_come_as_they_are_sent(server: ModelServer) -> None:
    server.answers = [Answer(body=[event(chunk("one")), event(chunk("two"))], hangs=True)]
    asked, meter = models(server), CallMeter()
    pieces = asked.stream("small", HELLO, 100, SECONDS, meter)
    assert [await anext(pieces), await anext(pieces)] == ["one", "two"]
    assert meter.usage.output_tokens == 6
    await pieces.aclose()
    async with asyncio.timeout(SECONDS):
        await server.left.wait()
    assert meter.usage.estimated
    assert meter.cost_microdollars > 0
    await asked.close()


async def test_nothing_of_the_environment_is_used(
    server: ModelServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    seen: list[str] = []

    async def elsewhere(request: web.Request) -> web.Response:
        seen.append(str(request.rel_url))
        return web.Response()

    app = web.Application()
    app.router.add_route("*", "/{tail:.*}", elsewhere)
    async with TestServer(app) as proxy:
        url = str(proxy.make_url("/"))
        for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "OPENAI_BASE_URL"):
            monkeypatch.setenv(name, url)
            monkeypatch.setenv(name.lower(), url)
        monkeypatch.setenv("NO_PROXY", "")
        monkeypatch.setenv("OPENAI_API_KEY", "another")
        monkeypatch.setenv("OPENAI_ORG_ID", "another")
        monkeypatch.setenv("OPENAI_CUSTOM_HEADERS", "Authorization: another\nX-Own: another")
        (tmp_path / ".netrc").write_text("machine 127.0.0.1 login another password another")
        monkeypatch.setenv("HOME", str(tmp_path))
        await ask(server)
        (headers,) = server.headers
        assert headers["Authorization"] == f"Bearer {KEY}"
        assert set(map(str.lower, headers)) == {
            *("host", "authorization", "content-type", "content-length", "accept"),
            *("accept-encoding", "user-agent"),
        }
        assert "another" not in str(headers)
        # A redirect is not followed, either.
        error = await refused(server, Answer(status=307, headers={"Location": url}))
        assert error.failure is ModelFailure.REFUSED
        assert "redirects are not followed" in str(error)
    assert seen == []


async def test_without_a_key_none_of_the_environment_is_sent(
    server: ModelServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "another")
    await ask(server, key=None)
    assert server.headers[0]["Authorization"] == "Bearer none"


async def test_a_key_in_a_file_is_read_at_each_call(server: ModelServer, tmp_path: Path) -> None:
    file = tmp_path / "key"
    asked = models(server, key=None, key_file=str(file))
    for key in ("first", "second"):
        file.write_text(f"{key}\n")
        await asked.complete("small", HELLO, 100, SECONDS)
        assert server.headers[-1]["Authorization"] == f"Bearer {key}"
    file.unlink()
    with pytest.raises(ModelError, match=r"^model small: its key can't be read$") as caught:
        await asked.complete("small", HELLO, 100, SECONDS)
    assert caught.value.failure is ModelFailure.KEY
    await asked.close()


RETRY = {"retry-after-ms": "1"}


@pytest.mark.parametrize("status", [429, 500, 503])
async def test_a_temporary_error_is_tried_again(server: ModelServer, status: int) -> None:
    bad = Answer(status=status, headers=RETRY)
    found = await ask(server, bad, bad, Answer("at last"))
    assert (found.text, len(server.bodies)) == ("at last", 3)
    meter = CallMeter()
    error = await refused(server, bad, meter=meter)
    assert f"answers with status {status}" in str(error)
    assert meter.usage == NOTHING


@pytest.mark.parametrize(
    ("status", "said"),
    [
        (400, "model small: the endpoint answers with status 400: too long … ok"),
        (401, "model small: the endpoint answers with status 401"),
        (403, "model small: the endpoint answers with status 403"),
        (404, "model small: the endpoint answers with status 404: too long … ok"),
    ],
)
async def test_a_refusal_says_what_is_wrong_but_not_the_key(
    server: ModelServer, status: int, said: str
) -> None:
    error = await refused(server, Answer(status=status, said=f"too long {KEY}\nok"))
    assert (str(error), error.failure) == (said, ModelFailure.REFUSED)
    assert len(server.bodies) == 1


@pytest.mark.parametrize("key", ["", "x"])
async def test_a_large_refusal_is_short(server: ModelServer, key: str) -> None:
    error = await refused(server, Answer(status=400, said="y" * 100_000))
    assert len(str(error)) < 600


@pytest.mark.parametrize(
    ("answer", "failure"),
    [
        (Answer(body=[b"data: {"]), ModelFailure.BROKEN),
        (Answer(body=[b"garbage\n\n\xff\xfe" * 100]), ModelFailure.BROKEN),
        (Answer(body=[b"data: 5\n\n"]), ModelFailure.BROKEN),
        (Answer(body=[b"data: [1]\n\n"]), ModelFailure.BROKEN),
        (Answer(body=[event({"choices": 5})]), ModelFailure.BROKEN),
        (Answer(body=[event({"choices": [{"delta": {"content": [5]}}]})]), ModelFailure.BROKEN),
        (Answer(body=[event({"error": {"message": KEY}})]), ModelFailure.BROKEN),
        (Answer(body=[]), ModelFailure.BROKEN),
        (Answer(body=[event(chunk("cut"))]), ModelFailure.BROKEN),
        (Answer(body=[b"<html>"], content_type="text/html"), ModelFailure.BROKEN),
        (Answer(body=[b"{}"], content_type="application/json"), ModelFailure.BROKEN),
        (Answer(body=[b"data: [DONE]\n\n"]), ModelFailure.BROKEN),
        (Answer(headers={"Content-Encoding": "gzip"}), ModelFailure.BROKEN),
        (Answer(body=[b"x" * 65536] * 40), ModelFailure.TOO_LARGE),
        (Answer(body=[b":" + b"x" * 8000 + b"\n"] * 2200), ModelFailure.TOO_LARGE),
        (Answer(body=[event(chunk("x" * 60_000))] * 20), ModelFailure.TOO_LARGE),
    ],
)
async def test_what_makes_no_sense_is_an_error(
    server: ModelServer, answer: Answer, failure: ModelFailure
) -> None:
    meter = CallMeter()
    error = await refused(server, answer, meter=meter)
    assert error.failure is failure
    assert meter.usage.input_tokens > 0  # it may have been paid for


@pytest.mark.parametrize(
    "answer",
    [
        Answer(body=[], hangs=True),
        Answer(body=[event(chunk("a"))], hangs=True),
        Answer(body=[b":\n\n"] * 50, hangs=True),
        Answer(body=[b"{"], hangs=True, content_type="application/json"),
    ],
)
async def test_an_endpoint_that_hangs_ends_in_time(server: ModelServer, answer: Answer) -> None:
    error = await refused(server, answer, timeout=0.3)
    assert error.failure is ModelFailure.TIMEOUT
    async with asyncio.timeout(SECONDS):
        await server.left.wait()


async def test_a_wait_before_the_next_try_ends_in_time(server: ModelServer) -> None:
    slow = Answer(status=429, headers={"retry-after": "60"})
    error = await refused(server, slow, timeout=0.3)
    assert error.failure is ModelFailure.TIMEOUT


async def test_an_endpoint_that_is_not_there_costs_nothing(server: ModelServer) -> None:
    meter = CallMeter()
    url = f"http://127.0.0.1:{free_port()}/v1"
    error = await refused(server, meter=meter, url=url)
    assert error.failure is ModelFailure.UNREACHABLE
    assert meter.usage == NOTHING


async def test_what_is_unknown_or_too_much_is_not_sent(server: ModelServer) -> None:
    asked = models(server)
    with pytest.raises(ModelError, match="there is no model large: there are small") as caught:
        await asked.complete("large", HELLO, 100, SECONDS)
    assert caught.value.failure is ModelFailure.UNKNOWN
    much = Prompt([ModelMessage("user", "x" * (4 * 2**20 + 1))])
    with pytest.raises(ModelError, match="more than 4194304 characters"):
        await asked.complete("small", much, 100, SECONDS)
    with pytest.raises(ModelError, match="there is no model small: there are none"):
        await Models({}).complete("small", HELLO, 100, SECONDS)
    assert server.bodies == []


async def test_a_cancelled_call_leaves_its_meter(server: ModelServer) -> None:
    server.answers = [Answer(body=[event(chunk("abc"))], hangs=True)]
    asked, meter = models(server), CallMeter()
    began = asyncio.Event()

    async def consume() -> None:
        async with aclosing(asked.stream("small", HELLO, 100, SECONDS, meter)) as pieces:
            async for _ in pieces:
                began.set()

    call = asyncio.ensure_future(consume())
    await began.wait()
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    assert meter.usage.output_tokens == 3
    async with asyncio.timeout(SECONDS):
        await server.left.wait()
    await asked.close()


async def test_calls_at_once_share_the_client(
    server: ModelServer, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    asked = models(server)
    calls = [asked.complete("small", HELLO, 100, SECONDS) for _ in range(20)]
    assert {found.text for found in await asyncio.gather(*calls)} == {"done"}
    await asked.close()
    assert KEY not in caplog.text
    assert "Be brief." not in caplog.text
