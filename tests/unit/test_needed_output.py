"""Output that a command's evidence needs is not used up by who reads it before."""

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest

from orchestrator.state.command import Command
from orchestrator.work.commands import running_command


async def asked(command: Command) -> dict[str, Any]:
    """What an agent is asked when somebody reads the command's output."""
    requests: list[dict[str, Any]] = []

    async def request(_method: str, params: dict[str, Any], _timeout: float) -> dict[str, Any]:
        requests.append(params)
        return {"chunks": [], "next": 0, "ended": False}

    session = SimpleNamespace(sandbox=SimpleNamespace(link=SimpleNamespace(request=request)))
    await running_command.read_output(cast(Any, session), command, 0, 0.0)
    (params,) = requests
    return params


@pytest.mark.parametrize("captured", [True, False])
async def test_until_its_evidence_is_begun(captured: bool) -> None:
    """The start of a command may not be answered yet when its output is read."""
    done = asyncio.get_running_loop().create_future()
    command = Command("c", [], False, "", done, dispatched=True, captured=captured)
    assert (await asked(command))["looks"] is captured


async def test_until_its_evidence_is_complete() -> None:
    done = asyncio.get_running_loop().create_future()
    command = Command("c", [], False, "", done, dispatched=True, captured=True)
    over = asyncio.Event()

    async def keep() -> None:
        await over.wait()

    command.keeping = asyncio.create_task(keep())
    assert (await asked(command))["looks"] is True
    over.set()
    await command.keeping
    assert (await asked(command))["looks"] is False
