"""Cells of code in turns: a tool of models where level and policy permit it, and an operation."""

import asyncio
from typing import Any

import pytest

from tests.api.conftest import OPERATOR_KEY, Api
from tests.api.test_runs import model, results, send
from tests.api.test_turns import EDIT, call, run
from tests.support.fake_runner import FakeRunner
from tests.support.models import Answer, ModelServer, calling
from tests.support.until import until

__all__ = ["model"]

PATH = "/api/sessions/box"
WORK = {"execution_rules": EDIT["execution_rules"] | {"allow_shell_commands": True}}


@pytest.fixture
def runner(api: Api) -> FakeRunner:
    runner = FakeRunner()
    api.agents.plays["python3"] = runner.play()
    return runner


async def made(api: Api, policy: Any = "SAFE_WORK", level: str = "high") -> None:
    await api.session(id="box", key=OPERATOR_KEY, permission_level=level, policy=policy)


def offered(server: ModelServer) -> set[str]:
    return {each["function"]["name"] for each in server.bodies[-1]["tools"]}


async def perform(api: Api, code: str) -> dict[str, Any]:
    """A turn of one cell."""
    return await run(api, PATH + "/turns", call("world.code", code=code))


async def events(api: Api, operation: str) -> list[dict[str, Any]]:
    found = await api.json("GET", f"{PATH}/audit?operation={operation}")
    return list(found["items"])


async def test_a_model_runs_cells_that_keep_their_names(
    api: Api, model: ModelServer, runner: FakeRunner
) -> None:
    await made(api)
    model.answers = [
        calling(("run_code", {"code": "print a\nvalue 42"})),
        calling(("run_code", {"code": "raise bad", "seconds": 5})),
        Answer("done"),
    ]
    ran = await send(api, PATH)
    assert ran["text"] == "done"
    assert results(model) == ["a42\n[ok]", "Traceback: bad\n[error]"]
    assert runner.cells == ["print a\nvalue 42", "raise bad"]
    # One context, and the turn's own record names its cells.
    starts, turns = await events(api, "code.start"), await events(api, "world.code")
    assert len({each["args"]["command_id"] for each in starts}) == 1
    assert starts[1]["args"]["timeout_ms"] == 5000
    assert [each["result"]["cell"] for each in turns] == [each["args"]["cell"] for each in starts]
    assert [each["args"]["code"] for each in turns] == runner.cells


async def test_a_level_with_single_commands_offers_no_code_and_refuses_it(
    api: Api, model: ModelServer, runner: FakeRunner
) -> None:
    await made(api, level="medium")
    model.answers = [calling(("run_code", {"code": "value 1"})), Answer("done")]
    await send(api, PATH)
    assert "exec" in offered(model)
    assert "run_code" not in offered(model)
    assert runner.cells == []
    turn = await perform(api, "value 1")
    assert turn["outcome"]["tag"] != "ok"
    refused = [(each["decision"], each["rule"]) for each in await events(api, "code.start")]
    assert refused == [("deny", "code-level")] * 2
    assert runner.cells == []


async def test_a_policy_without_shell_offers_no_code_and_refuses_it(
    api: Api, model: ModelServer, runner: FakeRunner
) -> None:
    allowed = [*EDIT["allowed_operations"], "world.run", "world.exec"]
    await made(api, policy=EDIT | WORK | {"allowed_operations": allowed})
    model.answers = [calling(("run_code", {"code": "value 1"})), Answer("done")]
    await send(api, PATH)
    assert "exec" in offered(model)
    assert "run_code" not in offered(model)
    assert runner.cells == []
    turn = await perform(api, "value 1")
    assert turn["outcome"]["tag"] != "ok"
    assert (await events(api, "world.code"))[-1]["decision"] == "deny"
    assert await events(api, "code.start") == []


async def test_an_interrupted_turn_interrupts_its_cell(api: Api, runner: FakeRunner) -> None:
    await made(api)
    turn = asyncio.ensure_future(perform(api, "hang"))
    await until(lambda: runner.cells == ["hang"])
    await api.json("POST", PATH + "/interrupt", key=OPERATOR_KEY)
    assert (await turn)["outcome"]["tag"] != "ok"
    (context,) = api.plane.contexts.listed(api.plane.sessions.registry.live[0])
    await until(lambda: context.cell is None and not context.lock.locked())
    (end,) = await events(api, "code.exit")
    assert end["result"]["status"] == "interrupted"
