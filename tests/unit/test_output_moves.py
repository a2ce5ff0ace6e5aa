"""Output that moves from one sandbox to the next: bounded, from its start on, without gaps."""

import asyncio
import base64
import logging
from contextlib import AsyncExitStack
from typing import Any, cast

import pytest

from orchestrator.ground.errors import NotFoundError, SandboxUnavailableError
from orchestrator.host.link.agent_link import AgentLink
from orchestrator.state.command import Command, CommandExit
from orchestrator.state.session import Session
from orchestrator.work.commands.output_moves import MOST_BYTES, SECONDS, Move, OutputMoves
from sandbox_agent.core.output import STDERR, STDOUT, Chunk, Output, Room, StoredOutput
from sandbox_agent.decide.protocol import CHUNK_BYTES, MOST_CHUNKS

MIB = 2**20


class FakeSession:
    """The parts of a session that a move needs."""

    def __init__(self, *commands: Command) -> None:
        self.id = "s"
        self.commands = {command.id: command for command in commands}


def command(name: str, stored: int) -> Command:
    made = Command(name, [], False, "", asyncio.get_running_loop().create_future())
    made.finish(CommandExit(stored_bytes=stored, output_bytes=stored))
    return made


class Agent:
    """Answers with pages of its stored output, and stores the restored output."""

    def __init__(self, texts: dict[str, bytes], memory: int = 1024 * MIB) -> None:
        self.texts = texts
        self.asked: list[str] = []
        self.room = Room(memory)
        self.restored: dict[str, Output] = {}
        self.spent: list[float] = []

    def spend(self, seconds: float) -> float:
        self.spent.append(seconds)
        return 0.0

    async def request(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        self.asked.append(params["command_id"])
        if method == "output":
            return self.page(params)
        output = self.restored.setdefault(
            params["command_id"], Output.restored(StoredOutput(self.room), params["total"])
        )
        chunks = [
            Chunk(name, 0, bytearray(base64.b64decode(data))) for name, data in params["chunks"]
        ]
        return {"stored": output.restore(chunks)}

    def page(self, params: dict[str, Any]) -> dict[str, Any]:
        after = params["after"]
        data = self.texts[params["command_id"]][after : after + params["limit"]]
        return {"chunks": [[STDOUT, after, base64.b64encode(data).decode()]] if data else []}


class Broken(Agent):
    """Answers every request with the given answer."""

    def __init__(self, answer: Any) -> None:
        super().__init__({})
        self.answer = answer

    def page(self, params: dict[str, Any]) -> dict[str, Any]:
        if isinstance(self.answer, BaseException):
            raise self.answer
        return cast(dict[str, Any], self.answer)


async def moved(
    old: Agent,
    new: Agent,
    *commands: Command,
    room: int = MOST_BYTES,
    seconds: float = SECONDS,
    moves: OutputMoves | None = None,
) -> None:
    session = cast(Session, FakeSession(*commands))
    move = Move(moves or OutputMoves(), room)
    await move.take(session, cast(AgentLink, old), seconds)
    await move.give(session, cast(AgentLink, new))


def read(output: Output) -> bytes:
    data, after = b"", 0
    while True:
        chunks, after = output.read(after, CHUNK_BYTES, whole=True)
        if not chunks:
            return data
        data += b"".join(bytes(chunk.data) for chunk in chunks)


async def test_it_is_the_same_afterwards() -> None:
    text = bytes(range(256)) * 4 * 1024
    old, new = Agent({"a": text, "b": text[:9]}), Agent({})
    first, second = command("a", len(text)), command("b", 9)
    await moved(old, new, first, second)
    assert (read(new.restored["a"]), read(new.restored["b"])) == (text, text[:9])
    assert first.result is not None
    assert first.result.stored_bytes == len(text)


async def test_the_latest_go_first_and_the_room_is_a_bound() -> None:
    texts = {name: bytes(MIB) for name in "abc"}
    old, new = Agent(texts), Agent({})
    commands = [command(name, MIB) for name in texts]
    await moved(old, new, *commands, room=MIB + MIB // 2 + 10_000)
    sizes = [each.result.stored_bytes for each in commands if each.result is not None]
    assert sizes == [0, MIB // 2, MIB]
    assert old.asked[0] == "c"


async def test_what_the_new_sandbox_has_no_room_for_is_not_told_as_stored() -> None:
    old, new = Agent({"a": bytes(MIB)}), Agent({}, memory=16 * MIB)
    only = command("a", MIB)
    await moved(old, new, only)
    assert only.result is not None
    assert MIB // 4 - 100 < only.result.stored_bytes <= MIB // 4


@pytest.mark.parametrize(
    "answer",
    [
        {},
        {"chunks": 1},
        {"chunks": [[STDOUT, 0]]},
        {"chunks": [[STDOUT, 0, "?"]]},
        {"chunks": [[STDOUT, 1, "eHh4"]]},
        {"chunks": [["other", 0, "eHh4"]]},
        {"chunks": [[STDOUT, 0, ""]]},
        {"chunks": []},
        {"chunks": [[STDERR, 0, base64.b64encode(bytes(11)).decode()]]},
        SandboxUnavailableError("gone"),
    ],
)
async def test_what_a_hostile_agent_says_moves_nothing(answer: Any) -> None:
    new = Agent({})
    only = command("a", 10)
    await moved(Broken(answer), new, only)
    assert (new.asked, only.result) == ([], CommandExit(stored_bytes=0, output_bytes=10))


async def test_an_agent_that_hangs_is_left_behind() -> None:
    class Hanging(Agent):
        async def request(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
            await asyncio.Event().wait()
            return {}

    only = command("a", 10)
    await moved(Hanging({}), Agent({}), only, seconds=0.01)
    assert only.result == CommandExit(stored_bytes=0, output_bytes=10)


async def test_moves_hold_a_bounded_number_of_bytes_together(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    moves, old, new = OutputMoves(most=2 * MIB), Agent({"a": bytes(MIB)}), Agent({})
    link = cast(AgentLink, old)
    async with moves.begin() as first, moves.begin() as second:
        await first.take(cast(Session, FakeSession(command("a", MIB))), link, SECONDS)
        assert "no room" not in caplog.text
        await second.take(cast(Session, FakeSession(command("a", MIB))), link, SECONDS)
        assert "no room" in caplog.text
        assert first.held + second.held <= 2 * MIB
    # The memory that they held is available again.
    only = command("a", MIB)
    await moved(old, new, only, moves=moves)
    assert read(new.restored["a"]) == bytes(MIB)


async def test_moves_that_have_nothing_to_hold_keep_none_from_theirs() -> None:
    moves, old, new = OutputMoves(), Agent({"a": b"x"}), Agent({})
    async with AsyncExitStack() as under_way:
        for _ in range(16):
            await under_way.enter_async_context(moves.begin())
        only = command("a", 1)
        await moved(old, new, only, moves=moves)
    assert read(new.restored["a"]) == b"x"
    assert only.result == CommandExit(stored_bytes=1, output_bytes=1)


async def test_a_command_that_the_old_agent_does_not_know_keeps_no_other_back() -> None:
    class Forgetful(Agent):
        def page(self, params: dict[str, Any]) -> dict[str, Any]:
            if params["command_id"] not in self.texts:
                raise NotFoundError("no such command")
            return super().page(params)

    old, new = Forgetful({"a": b"x"}), Agent({})
    older, latest = command("a", 1), command("b", 1)
    await moved(old, new, older, latest)
    assert old.asked == ["b", "a"]
    assert read(new.restored["a"]) == b"x"
    assert (older.result, latest.result) == (
        CommandExit(stored_bytes=1, output_bytes=1),
        CommandExit(stored_bytes=0, output_bytes=1),
    )


async def test_pages_of_very_many_pieces_are_not_read() -> None:
    pieces = [[STDOUT, at, "eA=="] for at in range(MOST_CHUNKS + 1)]
    old, new = Broken({"chunks": pieces}), Agent({})
    await moved(old, new, command("a", len(pieces)), command("b", len(pieces)))
    assert (old.asked, new.asked) == (["b"], [])


async def test_an_agent_is_asked_no_more_when_there_is_no_room() -> None:
    texts = {str(number): bytes(1000) for number in range(9)}
    old, new = Agent(texts), Agent({})
    commands = [command(name, 1000) for name in texts]
    await moved(old, new, *commands, room=3000)
    assert old.asked == ["8", "7", "6"]


async def test_what_an_agent_makes_us_read_is_paid_by_its_sandbox() -> None:
    old = Agent({"a": bytes(MIB)})
    await moved(old, Agent({}), command("a", MIB))
    assert sum(old.spent) > 0


async def test_a_new_agent_that_is_full_is_given_no_more() -> None:
    old, new = Agent({"a": bytes(4 * MIB)}), Agent({}, memory=16 * MIB)
    await moved(old, new, command("a", 4 * MIB))
    # Its first page already exceeds the new agent's room.
    assert len(new.asked) == 1
