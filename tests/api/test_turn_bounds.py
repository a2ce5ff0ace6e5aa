"""A turn ends after its time, counts what its session used since the last one, and forgets."""

import asyncio
import gc
import warnings
from typing import Any

import pytest

from orchestrator.host.engine.fake import FakeEngine
from orchestrator.programs.turns.turn import LispCode
from orchestrator.programs.turns.turn_runner import RunningTurn
from orchestrator.settings.settings import Settings
from paddock.client import Paddock
from paddock.contract.turns import USUAL_TIMEOUT
from tests.api.conftest import OPERATOR_KEY, Api, served
from tests.api.test_turns import EDIT, TESTER, made, model, run
from tests.support.fake_agent import Agents
from tests.support.models import Answer, ModelServer, chunk, event
from tests.support.restart import reopened

__all__ = ["model"]

# A model that begins to answer, and never goes on.
STUCK = Answer(body=[event(chunk("so"))], hangs=True)
CALL = '(llm.complete "hello")'
PASSED = "the turn was stopped: its time limit of 1 seconds has passed"


async def test_a_turn_is_stopped_after_its_time(api: Api, model: ModelServer) -> None:
    path = await made(api, policy=EDIT)
    model.answers = [STUCK, Answer("there")]
    turn = await run(api, path, code=CALL, timeout=1)
    outcome = turn["outcome"]
    assert (outcome["tag"], outcome["error_type"]) == ("error", "interrupted")
    assert outcome["message"] == PASSED
    # What it did is on record, and ends with it.
    (called,) = turn["operations"]
    assert (called["operation"], called["error"]) == ("llm.complete", "interrupted")
    await model.left.wait()
    # The session goes on.
    assert (await run(api, path, code=CALL, timeout=86_400))["outcome"]["value"] == "there"


async def test_so_is_a_run(api: Api, model: ModelServer) -> None:
    path = (await made(api, policy=EDIT)).removesuffix("/turns")
    model.answers = [STUCK, Answer("there")]
    message = {"messages": [{"content": "hello"}]}
    ended = await api.json("POST", f"{path}/send", json={**message, "timeout": 1})
    assert ended["outcome"]["message"] == PASSED
    assert (await api.json("POST", f"{path}/send", json=message))["text"] == "there"


async def test_the_client_gives_it(api: Api, model: ModelServer) -> None:
    path = await made(api, policy=EDIT)
    model.answers = [STUCK]
    async with Paddock(f"http://127.0.0.1:{api.server.port}", OPERATOR_KEY) as paddock:
        session = await paddock.sessions.get(path.split("/")[3])
        turn = await session.turns.run(CALL, timeout=1)
        sent = await session.send("hello", timeout=1)
        rendered = await session.render(timeout=1)
    for each in (turn, sent, rendered):
        assert each.outcome is not None
        assert each.outcome.message == PASSED


async def test_without_one_a_turn_has_an_hour(api: Api, model: ModelServer) -> None:
    path = await made(api, policy=EDIT, id="box")
    model.answers = [STUCK]
    session = api.plane.sessions.registry.live[0]
    base = path.removesuffix("/turns")
    for url, body in ((path, {"code": CALL}), (f"{base}/send", {"messages": [{"content": "a"}]})):
        model.hanging.clear()
        asked = asyncio.create_task(api.json("POST", url, json=body))
        await model.hanging.wait()
        running = api.plane.turns.running(session.key)
        assert running is not None
        assert running.seconds == USUAL_TIMEOUT == 3600
        await api.json("POST", f"{base}/interrupt")
        await asked


@pytest.mark.parametrize("timeout", [0, -1, 86_401, "5", 1.5, True, None])
async def test_bad_limits_change_nothing(api: Api, timeout: Any) -> None:
    path = await made(api)
    message = {"messages": [{"content": "a"}]}
    for url, body in ((path, {"code": "1"}), (path.replace("turns", "send"), message)):
        problem = await api.problem(
            400, "validation_error", "POST", url, json={**body, "timeout": timeout}
        )
        assert problem["field"] == "timeout"
    assert (await api.json("GET", path))["items"] == []


async def test_a_turn_that_is_stopped_before_it_begins_leaves_no_coroutine(api: Api) -> None:
    path = await made(api, policy=EDIT, id="box")
    session, turns = api.plane.sessions.registry.live[0], api.plane.turns
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        running = await turns.start(TESTER, session, LispCode("1"))
        assert isinstance(running, RunningTurn)
        assert running.work is None
        turns.interrupt(session)
        turn = await turns.wait(running)
        del running  # which holds the program's task
        gc.collect()
    assert [str(each.message) for each in warned] == []
    assert turn.outcome is not None
    assert turn.outcome["message"] == "the turn was stopped: interrupted"
    assert (await run(api, path, code="2"))["outcome"]["value"] == 2


async def test_a_turn_counts_what_its_host_has_reported_since_the_last_one(
    api: Api, model: ModelServer
) -> None:
    path = await made(api, policy=EDIT)
    usage = path.replace("turns", "usage")
    await api.json("POST", usage, json={"tokens": 40})
    first = await run(api, path, code="1")
    await api.json("POST", usage, json={"tokens": 5})
    await api.json("POST", usage, json={"tokens": 2})
    second = await run(api, path, code=CALL)
    failed = await run(api, path, code="(car 1)")
    assert [each["tokens_used"] for each in (first, second, failed)] == [40, 22, 0]
    # What the turn itself used stays apart.
    assert second["outcome"]["metadata"]["tokens"] == 15
    budget = await api.json("GET", path.replace("turns", "budget"))
    assert budget["consumed"]["tokens"] == 62
    listed = (await api.json("GET", path))["items"]
    assert [each["tokens_used"] for each in listed] == [40, 22, 0]
    ends = await api.json("GET", path.replace("turns", "audit") + "?operation=turn.end")
    assert [each["result"]["tokens"] for each in ends["items"]] == [40, 22, 0]


async def test_a_restart_loses_none_of_them(
    api: Api, settings: Settings, engine: FakeEngine, agents: Agents
) -> None:
    path = await made(api, id="box")
    await api.json("POST", path.replace("turns", "usage"), json={"tokens": 40})
    await run(api, path, code="1")
    await api.json("POST", path.replace("turns", "usage"), json={"tokens": 3})
    await api.plane.close()
    plane = await reopened(settings, engine, agents)
    async with served(plane, engine, agents) as again:
        assert (await run(again, path, code="1"))["tokens_used"] == 3
        await plane.close()


@pytest.mark.parametrize(
    "nested",
    [
        "(subeval '(begin (assert 2) (assert 3)))",
        "(subeval '(assert 2) ((budget (iterations 9))))",
        # The inner program's facts end with it, and the outer one's with that.
        "(subeval '(begin (assert 2) (subeval '(assert 3)) (facts)))",
        "(subeval '(begin (assert 2) (assert 3) (assert 4)) ((budget (iterations 2))))",
        "(with-budget ((iterations 3)) (subeval '(begin (assert 2) (assert 3) (assert 4))))",
        "(subeval '(with-budget ((iterations 1)) (assert 2) (assert 3)))",
    ],
)
async def test_facts_of_a_nested_program_end_with_it(api: Api, nested: str) -> None:
    path = await made(api)
    code = f"(begin (assert 1) {nested} (assert 5) (facts))"
    assert (await run(api, path, code=code))["outcome"]["value"] == [1, 5]
    assert (await run(api, path, code="(facts)"))["outcome"]["value"] == [1, 5]


async def test_a_nested_program_knows_the_facts_around_it_and_its_own(api: Api) -> None:
    path = await made(api)
    code = "(begin (assert 1) (subeval '(begin (assert 1) (assert 2) (facts))))"
    assert (await run(api, path, code=code))["outcome"]["value"] == [1, 2]
    kept = "(begin (with-budget ((iterations 9)) (assert 3)) (facts))"
    assert (await run(api, path, code=kept))["outcome"]["value"] == [1, 3]
