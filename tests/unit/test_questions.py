"""Questions of the `session` program: any bytes have an answer, within bounds."""

import asyncio
import json
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.ground.errors import SandboxUnavailableError
from orchestrator.host.node.sockets import listening_for_questions
from orchestrator.programs.questions.questions import (
    MOST_ANSWER_BYTES,
    MOST_QUESTION_BYTES,
    AnswerLine,
    Questions,
)
from orchestrator.programs.questions.questions_part import QuestionDoor
from orchestrator.rules.access.keys import Principal, Role
from orchestrator.rules.policy.session_policy import SAFE_EDIT, SessionPolicy
from orchestrator.state.budget import Budget
from orchestrator.state.session import Session
from paddock.contract.words import Kind
from sandbox_agent.decide.globs import Globs

POLICY: SessionPolicy = replace(
    SAFE_EDIT,
    name=None,
    denied_operations=frozenset(),
    world_rules=replace(SAFE_EDIT.world_rules, write_patterns=Globs(["src/**/*"])),
)
KINDS = ["time", "iterations", "commands", "tokens", "egress_bytes"]


def session(**members: Any) -> Session:
    budget = Budget(datetime.now(UTC), {Kind.TOKENS: 100})
    known = {"id": "s", "key": "k", "owner": "ci", "status": "active", "policy": POLICY}
    return cast(Session, SimpleNamespace(**known | {"budget": budget} | members))


def questions(staged: Any = None, number: int | None = None) -> Questions:
    async def show(asker: Principal, _session: Session) -> Any:
        assert (asker.role, asker.session_key) == (Role.HANDLE, "k")
        if isinstance(staged, Exception):
            raise staged
        return SimpleNamespace(items=staged or [])

    return Questions(lambda _session: number, show)


async def asked(*words: str, of: Questions | None = None) -> AnswerLine:
    line = json.dumps(words).encode() + b"\n"
    return await (of or questions()).answer(session(), line)


@pytest.mark.parametrize(
    ("words", "status", "said"),
    [
        (["id"], 0, "s\n"),
        (["status"], 0, "active\n"),
        (["turn-number"], 0, "no turn is running\n"),
        (["--json", "turn-number"], 0, "null\n"),
        (["budget", "tokens"], 0, "100\n"),
        (["budget", "cost"], 0, "unlimited\n"),
        (["--json", "budget", "cost"], 0, "null\n"),
        (["allowed", "world.write", "src/a.py"], 0, "allowed\n"),
        (["allowed", "world.write", "a.py"], 1, "Write not allowed: a.py\n"),
        (["allowed", "world.read"], 0, "allowed\n"),
        (["allowed", "format"], 1, "Operation not allowed: format\n"),
        (["read-only"], 1, "no\n"),
        (["proposal-mode"], 0, "yes\n"),
        (["--json", "proposal-mode"], 0, "true\n"),
        (["proposals"], 0, ""),
    ],
)
async def test_answers(words: list[str], status: int, said: str) -> None:
    assert await asked(*words) == AnswerLine(status, said, "")


async def test_all_of_the_budget() -> None:
    told = await asked("--json", "budget")
    left = json.loads(told.stdout)
    assert set(KINDS) <= set(left)
    assert left["tokens"] == 100
    assert "tokens        100\n" in (await asked("budget")).stdout


async def test_a_running_turn_and_what_is_staged() -> None:
    changes = [
        SimpleNamespace(type="write", ref="src/a\nb"),
        SimpleNamespace(type="delete", ref="c"),
    ]
    of = questions(changes, 7)
    assert (await asked("turn-number", of=of)).stdout == "7\n"
    assert (await asked("proposals", of=of)).stdout == 'write\t"src/a\\nb"\ndelete\tc\n'
    away = questions(SandboxUnavailableError("the helper is gone"))
    assert await asked("proposals", of=away) == AnswerLine(3, "", "session: the helper is gone\n")


@pytest.mark.parametrize(
    "words", [[], ["no"], ["id", "x"], ["allowed"], ["budget", "money"], ["--json"], ["\x1b[2J"]]
)
async def test_what_is_no_question_says_how_to_ask(words: list[str]) -> None:
    told = await asked(*words)
    assert (told.exit_code, told.stdout) == (2, "")
    assert "usage: session" in told.stderr
    assert "\x1b" not in told.stderr


async def test_help() -> None:
    assert (await asked("--help")).stdout.startswith("usage: session")


@given(
    st.binary()
    | st.recursive(st.none() | st.text(), st.lists).map(lambda v: json.dumps(v).encode())
)
def test_any_line_has_a_short_answer(line: bytes) -> None:
    told = asyncio.run(questions().answer(session(), line))
    assert told.exit_code in (0, 1, 2)
    assert len(told.encode()) <= MOST_ANSWER_BYTES


def test_a_long_answer_is_an_error() -> None:
    told = json.loads(AnswerLine(0, "x" * MOST_ANSWER_BYTES).encode())
    assert (told["exit_code"], told["stdout"]) == (3, "")


class TestDoor:
    """The socket on the host."""

    async def test_what_is_no_line_gets_no_answer_and_others_do(self, tmp_path: Path) -> None:
        door = QuestionDoor(session(), questions())
        door.open(listening_for_questions(tmp_path, 0))
        for data in (b"", b"x" * (MOST_QUESTION_BYTES + 1), b'["id"]'):
            assert await answered(tmp_path, data) == b""
        assert json.loads(await answered(tmp_path, b'["id"]\n'))["stdout"] == "s\n"
        await door.close()
        with pytest.raises(ConnectionRefusedError):
            await answered(tmp_path, b"")

    async def test_a_silent_client_is_cut(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("orchestrator.programs.questions.questions_part._SECONDS", 0.01)
        door = QuestionDoor(session(), questions())
        door.open(listening_for_questions(tmp_path, 0))
        reader, writer = await opened(tmp_path)
        assert await reader.read() == b""
        writer.close()
        await door.close()

    async def test_few_are_served_at_once(self, tmp_path: Path) -> None:
        serving = 0

        async def show(_asker: Principal, _session: Session) -> Any:
            nonlocal serving
            serving += 1
            await asyncio.get_running_loop().create_future()

        door = QuestionDoor(session(), Questions(lambda _: None, show))
        door.open(listening_for_questions(tmp_path, 0))
        clients = [await opened(tmp_path) for _ in range(8)]
        for _, writer in clients:
            writer.write(b'["proposals"]\n')
            await writer.drain()
        for _ in range(200):
            await asyncio.sleep(0)
        assert serving == 4
        await door.close()
        for _, writer in clients:
            writer.close()


async def opened(directory: Path) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    return await asyncio.open_unix_connection(directory / "questions.sock")


async def answered(directory: Path, data: bytes) -> bytes:
    """What a client that sends this and nothing more is answered."""
    reader, writer = await opened(directory)
    writer.write(data)
    if writer.can_write_eof():
        writer.write_eof()
    try:
        return await reader.read()
    except ConnectionResetError:
        return b""
    finally:
        writer.close()
