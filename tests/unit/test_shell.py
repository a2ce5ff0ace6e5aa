"""A shell's driver with a scripted agent: it survives a lost connection, and nothing else."""

import asyncio
import base64
from collections import deque
from typing import Any, cast

import pytest

from orchestrator.ground.errors import BusyError, SandboxUnavailableError
from orchestrator.host.link.agent_link import AgentLink
from orchestrator.work.terminals.redacted_output import RedactedOutput
from orchestrator.work.terminals.shell import SHELL_LIMITS, Shell, shell_spec
from orchestrator.work.terminals.viewers import Size
from sandbox_agent.decide.escapes import Span
from sandbox_agent.decide.protocol import Message
from sandbox_agent.decide.redaction import Redactor, Window
from tests.support.limits import WAIT_SECONDS

SIZE = Size(80, 24)
ENDED = {"exit_code": 0, "signal": None, "reason": None}
LOST = SandboxUnavailableError("the sandbox agent disconnected")


class Link:
    """An agent that answers each request to read with the next of its pieces, or fails."""

    def __init__(self, *pieces: bytes | Exception) -> None:
        self.pieces = deque(pieces)
        self.connected = True
        self.waited = 0
        self.said = 0
        self.asked: list[tuple[str, Message]] = []

    async def request(self, method: str, params: Message, timeout: float = 40.0) -> Message:
        self.asked.append((method, params))
        if method != "pty.read":
            return {}
        piece: bytes | Exception = self.pieces.popleft() if self.pieces else b""
        if isinstance(piece, Exception):
            self.connected = False
            raise piece
        if params["after"] != self.said:
            return {}  # garbage
        self.said += len(piece)
        return {
            "data": base64.b64encode(piece).decode(),
            "next": self.said,
            "waits": False,
            "line_bytes": 1,
            "ended": None if piece else ENDED,
        }

    async def wait_connected(self, timeout: float) -> None:
        self.waited += 1
        self.connected = True

    def spend(self, seconds: float) -> float:
        return 0.0


def new(link: Link, *, frozen: bool = False, secret: str = "hidden-value") -> tuple[Shell, Any]:
    told: dict[str, bytes] = {"said": b"", "typed": b"", "shown": b""}
    redactor = Redactor((secret,))

    async def search(window: Window) -> list[Span]:
        return window.spans()

    def keep(name: str) -> Any:
        def add(data: bytes) -> None:
            told[name] += data

        return add

    async def flush() -> None:
        """Nothing waits for a disk."""

    def said(name: str) -> RedactedOutput:
        return RedactedOutput(keep(name), lambda: redactor, search)

    shell = Shell(
        "pty-1",
        shell_spec(SIZE, {"A": "b"}, SHELL_LIMITS),
        cast(AgentLink, link),
        said("said"),
        said("typed"),
        flush,
        keep("shown"),
        watched=lambda: True,
        frozen=lambda: frozen,
    )
    return shell, told


async def test_a_lost_connection_loses_nothing() -> None:
    link = Link(b"one ", LOST, b"two")
    shell, told = new(link)
    await shell.follow(60)
    await shell.take_late()
    assert told["shown"] == told["said"] == b"one two"
    assert link.waited == 1
    assert shell.exit is not None


async def test_a_connected_agent_that_does_not_answer_sensibly_is_given_up() -> None:
    link = Link(b"one")
    link.said = 7
    shell, _ = new(link)
    with pytest.raises(SandboxUnavailableError, match="malformed"):
        await shell.follow(60)
    assert link.waited == 0


async def test_what_is_typed_is_recorded_without_secrets_before_it_is_sent() -> None:
    link = Link()
    shell, told = new(link)
    for piece in (b"echo hid", b"den-val", b"ue\r"):
        await shell.write(piece)
    sent = [base64.b64decode(params["data"]) for method, params in link.asked]
    assert b"".join(sent) == b"echo hidden-value\r"
    await shell.take_late()
    assert told["typed"] == b"echo [redacted]\r"


async def test_nothing_is_sent_that_can_not_be_recorded() -> None:
    link = Link()
    shell, _ = new(link)

    async def full() -> None:
        raise BusyError("full")

    shell._flush = full
    with pytest.raises(BusyError):
        await shell.write(b"rm -rf .\r")
    assert link.asked == []


async def test_reading_is_stopped_when_the_end_is_known() -> None:
    class Silent(Link):
        async def request(self, method: str, params: Message, timeout: float = 40.0) -> Message:
            answer: asyncio.Future[Message] = asyncio.get_running_loop().create_future()
            return await answer

    shell, _ = new(Silent())
    reading = asyncio.create_task(shell.follow(60))
    await asyncio.sleep(0)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("orchestrator.work.terminals.shell._SETTLE_SECONDS", 0.01)
        await shell.stop_reading()
    assert reading.cancelled()


async def test_who_reads_the_end_may_wait_for_who_waits_for_that(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("orchestrator.work.terminals.shell._SETTLE_SECONDS", 1e6)
    going = asyncio.Event()

    class Slow(Link):
        async def request(self, method: str, params: Message, timeout: float = 40.0) -> Message:
            await going.wait()
            return await super().request(method, params, timeout)

    shell, _ = new(Slow(b"one"))
    stopping: asyncio.Task[None]

    async def tend() -> None:
        await shell.follow(60)
        await stopping

    tending = asyncio.create_task(tend())
    await asyncio.sleep(0)
    stopping = asyncio.create_task(shell.stop_reading())
    await asyncio.sleep(0)
    going.set()
    async with asyncio.timeout(WAIT_SECONDS):
        await tending
