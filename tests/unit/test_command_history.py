"""What a session remembers of its commands, and what that costs."""

import asyncio

import pytest

from orchestrator.state.command import Command, CommandExit
from orchestrator.state.command_history import MOST_ENDED, CommandHistory
from sandbox_agent.decide.protocol import MOST_STORED


def _command(name: str) -> Command:
    return Command(name, ["true"], False, "", asyncio.get_running_loop().create_future())


def _add(history: CommandHistory, name: str, *, stored: int = 0, ends: bool = True) -> Command:
    command = history[name] = _command(name)
    if ends:
        command.finish(CommandExit(exit_code=0, stored_bytes=stored))
    return command


async def test_the_latest_ended_ones_are_remembered_and_all_that_run() -> None:
    history = CommandHistory()
    runs = _add(history, "runs", ends=False)
    for number in range(3 * MOST_ENDED):
        _add(history, str(number))
    assert history.unsettled == [runs]
    assert list(history) == ["runs", *map(str, range(2 * MOST_ENDED, 3 * MOST_ENDED))]


async def test_the_latest_with_stored_output_are_remembered_besides() -> None:
    history = CommandHistory()
    for number in range(MOST_STORED + 2):
        _add(history, f"stored-{number}", stored=1)
    for number in range(2 * MOST_ENDED):
        _add(history, str(number))
    assert history.unsettled == []
    stored = [f"stored-{number}" for number in range(2, MOST_STORED + 2)]
    assert list(history) == [*stored, *map(str, range(MOST_ENDED, 2 * MOST_ENDED))]


async def test_a_command_whose_evidence_begins_after_its_end_is_not_settled() -> None:
    history = CommandHistory()
    command = _add(history, "one")
    assert history.unsettled == []
    done = asyncio.Event()

    async def keep() -> None:
        await done.wait()

    command.keeping = asyncio.create_task(keep())
    history["one"] = command
    assert history.unsettled == [command]
    for number in range(2 * MOST_ENDED):
        _add(history, str(number))
    assert "one" in history
    done.set()
    await command.keeping
    assert history.unsettled == []


async def test_a_command_that_was_never_started_is_forgotten() -> None:
    history = CommandHistory()
    _add(history, "one", ends=False)
    del history["one"]
    assert (len(history), history.unsettled) == (0, [])
    with pytest.raises(KeyError):
        del history["one"]


async def test_what_is_remembered_costs_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Counted in commands that are looked at, for each that is added."""
    looked = 0

    def counting(command: Command) -> bool:
        nonlocal looked
        looked += 1
        return command.ended

    monkeypatch.setattr(Command, "settled", property(counting))
    history = CommandHistory()
    for number in range(2 * MOST_ENDED):
        _add(history, str(number))
    looked = 0
    for number in range(100):
        assert history.unsettled == []
        _add(history, f"later-{number}")
    assert looked <= 300


async def test_a_waiter_that_is_cancelled_leaves_the_others_waiting() -> None:
    command = _command("c")
    gone, stays = (asyncio.ensure_future(command.wait()) for _ in range(2))
    await asyncio.sleep(0)
    gone.cancel()
    await asyncio.wait([gone])
    assert not command.done.cancelled()
    command.finish(CommandExit())
    await asyncio.wait_for(stays, 10)
    await asyncio.wait_for(command.wait(), 10)  # at once from now on
