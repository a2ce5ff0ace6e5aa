"""Output on its way from one sandbox to the next: bounded, from the beginning, without gaps."""

import asyncio
import base64
from typing import Any, cast

import pytest

from orchestrator.agent_link import AgentLink
from orchestrator.errors import SandboxUnavailableError
from orchestrator.sessions import output_moves
from orchestrator.sessions.output_moves import Move, OutputMoves
from orchestrator.sessions.session import Command, Session
from sandbox_agent.output import STDERR, STDOUT, Chunk, Output
from sandbox_agent.protocol import CHUNK_BYTES
from sandbox_agent.stored_output import Room, StoredOutput

MIB = 2**20


class FakeSession:
    """What a move asks of a session."""

    def __init__(self, *commands: Command) -> None:
        self.id = "s"
        self.commands = {command.id: command for command in commands}


def command(name: str, stored: int) -> Command:
    made = Command(name, [], False, "", asyncio.get_running_loop().create_future())
    made.finish({"stored_bytes": stored, "output_bytes": stored})
    return made


class Agent:
    """Answers with pages of what was stored, and stores what is restored."""

    def __init__(self, texts: dict[str, bytes], memory: int = 1024 * MIB) -> None:
        self.texts = texts
        self.asked: list[str] = []
        self.room = Room(memory)
        self.restored: dict[str, Output] = {}

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
    """Answers with whatever it was made for."""

    def __init__(self, answer: Any) -> None:
        super().__init__({})
        self.answer = answer

    def page(self, params: dict[str, Any]) -> dict[str, Any]:
        if isinstance(self.answer, BaseException):
            raise self.answer
        return cast(dict[str, Any], self.answer)


async def moved(old: Agent, new: Agent, *commands: Command, room: int = 64 * MIB) -> None:
    session, move = cast(Session, FakeSession(*commands)), Move(room)
    await move.take(session, cast(AgentLink, old))
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
    assert first.result["stored_bytes"] == len(text)


async def test_the_latest_go_first_and_the_room_is_a_bound() -> None:
    texts = {name: bytes(MIB) for name in "abc"}
    old, new = Agent(texts), Agent({})
    commands = [command(name, MIB) for name in texts]
    await moved(old, new, *commands, room=MIB + MIB // 2 + 10_000)
    sizes = [each.result["stored_bytes"] for each in commands if each.result is not None]
    assert sizes == [0, MIB // 2, MIB]
    assert old.asked[0] == "c"


async def test_what_the_new_sandbox_has_no_room_for_is_not_told_as_stored() -> None:
    old, new = Agent({"a": bytes(MIB)}), Agent({}, memory=16 * MIB)
    only = command("a", MIB)
    await moved(old, new, only)
    assert only.result is not None
    assert MIB // 4 - 100 < only.result["stored_bytes"] <= MIB // 4


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
    assert (new.asked, only.result) == ([], {"stored_bytes": 0, "output_bytes": 10})


async def test_an_agent_that_hangs_is_left_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(output_moves, "SECONDS", 0.01)

    class Hanging(Agent):
        async def request(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
            await asyncio.Event().wait()
            return {}

    only = command("a", 10)
    await moved(Hanging({}), Agent({}), only)
    assert only.result == {"stored_bytes": 0, "output_bytes": 10}


async def test_moves_hold_a_bounded_number_of_bytes_together() -> None:
    moves = OutputMoves()
    async with moves.begin(), moves.begin(), moves.begin(), moves.begin(), moves.begin() as last:
        old = Agent({"a": b"x"})
        await last.take(cast(Session, FakeSession(command("a", 1))), cast(AgentLink, old))
        new = Agent({})
        await last.give(cast(Session, FakeSession()), cast(AgentLink, new))
        assert new.asked == []
    async with moves.begin() as move:
        only = command("a", 1)
        await move.take(cast(Session, FakeSession(only)), cast(AgentLink, old))
        await move.give(cast(Session, FakeSession(only)), cast(AgentLink, new))
        assert read(new.restored["a"]) == b"x"
