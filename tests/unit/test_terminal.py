"""A terminal's driver with a scripted agent: the conditions for an answer to be accepted."""

import asyncio
import base64
import hashlib
import threading
from collections import deque
from typing import Any

import pytest

from orchestrator.ground.errors import NotFoundError, SandboxUnavailableError
from orchestrator.record.audit import secret_cutting
from orchestrator.work.terminals.device import Late
from orchestrator.work.terminals.framing import Framing, Output
from orchestrator.work.terminals.pages import Exit
from orchestrator.work.terminals.redacted_output import RedactedOutput
from orchestrator.work.terminals.terminal import SETTLE_MOST_MS, SETTLE_MS, Terminal, Wait
from sandbox_agent.decide.escapes import Span
from sandbox_agent.decide.protocol import Message
from sandbox_agent.decide.redaction import MARK, Redactor, Window
from tests.support.tool import spec

PROMPT = b"tool=> "
ENDED = {"exit_code": 3, "signal": None, "reason": None}


class Agent:
    """Prints its pieces one after another; None is silence for as long as the driver waits."""

    def __init__(self, *pieces: bytes | None, works: int = 0) -> None:
        self.pieces = deque(pieces)
        # The number of looks, all without output, before the program waits for input.
        self.works = works
        self.ended: Message | None = None
        self.said = b""
        self.waits: list[int] = []
        self.sent: list[Message] = []
        self.mark: Any = None
        self.answers: dict[str, Message] = {}
        self.redactor = Redactor()
        self.spent = 0.0

    def spend(self, seconds: float) -> float:
        self.spent += seconds
        return 0.0

    async def request(self, method: str, params: Message, timeout: float = 40.0) -> Message:
        if method in self.answers:
            return self.answers[method]
        if method == "pty.send":
            self.sent.append(params)
            return {"mark": len(self.said) if self.mark is None else self.mark}
        if method == "pty.read":
            return self._read(params)
        return {}

    def _waits(self) -> bool:
        self.works -= 1
        return self.works < 0

    def _read(self, params: Message) -> Message:
        self.waits.append(params["wait_ms"])
        if params["after"] == len(self.said) and self.pieces:
            self.said += self.pieces.popleft() or b""
        data = self.said[params["after"] :][: params["limit"]]
        position = params["after"] + len(data)
        over = self.ended is not None and not self.pieces and position == len(self.said)
        return {
            "data": base64.b64encode(data).decode(),
            "next": position,
            "waits": not data and self._waits(),
            "line_bytes": 4094,
            "ended": self.ended if over else None,
        }


FOR_EVER = 10**9


def new(agent: Agent, **members: Any) -> tuple[Terminal, bytearray]:
    raw = bytearray()

    async def search(window: Window) -> list[Span]:
        return window.spans()

    async def flush() -> None:
        pass

    said = RedactedOutput(raw.extend, lambda: agent.redactor, search)
    return Terminal("pty-1", spec(**{"output_wait_ms": 50, **members}), agent, said, flush), raw


async def started(*pieces: bytes | None, **members: Any) -> tuple[Terminal, Agent, bytearray]:
    agent = Agent(b"hello\r\n", PROMPT)
    terminal, raw = new(agent, **members)
    assert await terminal.start() is Wait.PROMPT
    agent.pieces.extend(pieces)
    return terminal, agent, raw


async def test_a_prompt_counts_when_nothing_follows_it() -> None:
    agent = Agent(b"hello\r\n", PROMPT, b"was output\r\n", PROMPT)
    terminal, raw = new(agent)
    assert await terminal.start() is Wait.PROMPT
    assert terminal.last_prompt == ("tool=> ", "ready")
    assert bytes(raw) == agent.said
    assert agent.waits[-1] == SETTLE_MS


async def test_a_prompt_counts_only_while_the_program_waits_for_input() -> None:
    agent = Agent(PROMPT, works=9)
    terminal, _ = new(agent)
    assert await terminal.start() is Wait.PROMPT
    # The driver looked again at growing intervals.
    waits = [SETTLE_MS * 2**look for look in range(9)]
    assert agent.waits[1:] == [*(min(wait, SETTLE_MOST_MS) for wait in waits), SETTLE_MOST_MS]


async def test_a_program_that_shows_a_prompt_and_never_waits_is_not_at_it() -> None:
    terminal, agent, _ = await started()
    await terminal.send("do", "spoof")
    agent.pieces.append(b"spoof\r\n" + PROMPT)
    agent.works = FOR_EVER
    answer = await terminal.answer()
    assert answer.wait is Wait.TIMEOUT
    assert not await terminal.synchronise()
    # The late true answer does not count as another line's answer.
    agent.pieces.append(b"\r\nthe answer\r\n" + PROMPT)
    agent.works = 0
    assert await terminal.synchronise()
    assert [late.text for late in await terminal.take_late()] == ["tool=> \nthe answer"]


async def test_an_answer_has_what_came_after_the_line() -> None:
    terminal, agent, _ = await started()
    assert await terminal.synchronise()
    agent.pieces.extend([b"say 1\r\n", b"1\r\n", PROMPT])
    await terminal.send("do", "say 1")
    answer = await terminal.answer()
    assert (answer.wait, answer.output) == (Wait.PROMPT, Output("1", False))
    assert answer.raw_bytes == len(b"say 1\r\n1\r\n" + PROMPT)
    assert agent.sent == [{"terminal_id": "pty-1", "command": "do", "text": "say 1"}]


async def test_what_came_before_the_line_is_in_no_answer() -> None:
    terminal, agent, raw = await started()
    assert await terminal.synchronise()
    agent.said += b"late\r\n" + PROMPT  # after the look and before the line
    agent.pieces.extend([b"say 1\r\n1\r\n" + PROMPT])
    await terminal.send("do", "say 1")
    assert await terminal.take_late() == [Late("late", len(b"late\r\n" + PROMPT))]
    assert await terminal.take_late() == []
    answer = await terminal.answer()
    assert answer.output == Output("1", False)
    assert answer.raw_bytes == len(b"say 1\r\n1\r\n" + PROMPT)
    assert b"late" in raw


async def test_a_program_that_speaks_and_still_waits_is_at_its_prompt() -> None:
    terminal, agent, _ = await started(b"a notice\r\nand ", b"another")
    assert await terminal.synchronise()
    assert terminal.last_prompt == ("tool=> ", "ready")
    assert await terminal.take_late() == [Late("a notice\nand another", 21)]
    agent.pieces.append(b"say 1\r\n1\r\n" + PROMPT)
    await terminal.send("do", "say 1")
    assert (await terminal.answer()).output == Output("1", False)
    assert await terminal.take_late() == []


async def test_lines_that_follow_the_prompt_at_once_do_not_end_its_use() -> None:
    terminal, agent, _ = await started()
    agent.pieces.append(b"say 1\r\n1\r\n" + PROMPT + b"a notice\r\n")
    await terminal.send("do", "say 1")
    answer = await terminal.answer()
    assert answer.wait is Wait.PROMPT
    assert answer.output == Output("1\ntool=> a notice", False)
    agent.pieces.append(b"say 2\r\n2\r\n" + PROMPT)
    await terminal.send("do", "say 2")
    assert (await terminal.answer()).output == Output("2", False)


async def test_a_program_that_works_is_not_in_step() -> None:
    terminal, agent, _ = await started(b"something is going on\r\n")
    agent.works = FOR_EVER
    assert not await terminal.synchronise()
    agent.works = 0
    agent.pieces.append(PROMPT)
    assert await terminal.synchronise()
    first, second = await terminal.take_late()
    assert first == Late("something is going on", len(b"something is going on\r\n"))
    assert second == Late("", len(PROMPT))


async def test_no_prompt_in_time() -> None:
    terminal, agent, _ = await started()
    agent.pieces.append(b"say 1\r\npart")
    await terminal.send("do", "say 1")
    answer = await terminal.answer()
    assert (answer.wait, answer.output) == (Wait.TIMEOUT, Output("part", False))


async def test_a_flood_is_not_read_for_ever() -> None:
    terminal, agent, _ = await started()
    await terminal.send("do", "say 1")
    agent.pieces.extend([b"flood\r\n"] * 1_000_000)
    answer = await terminal.answer()
    assert answer.wait is Wait.TIMEOUT
    assert agent.pieces


async def test_its_end_is_its_last_answer() -> None:
    terminal, agent, _ = await started()
    await terminal.send("do", "exit")
    agent.pieces.append(b"exit\r\nbye\r\n")
    agent.ended = ENDED
    answer = await terminal.answer()
    assert (answer.wait, answer.output) == (Wait.ENDED, Output("bye", False))
    assert terminal.exit == Exit(3, None, None)
    assert not await terminal.synchronise()


async def test_the_rest_is_read_as_far_as_it_is_there() -> None:
    terminal, agent, raw = await started(b"rest")
    agent.ended = ENDED
    await terminal.read_rest()
    assert raw.endswith(b"rest")

    class Gone(Agent):
        async def request(self, method: str, params: Message, timeout: float = 40.0) -> Message:
            raise NotFoundError("no terminal")

    terminal, _ = new(Gone())
    await terminal.read_rest()


GOOD = {"data": "", "next": 0, "waits": True, "line_bytes": 4094, "ended": None}


@pytest.mark.parametrize(
    "page",
    [
        {},
        {**GOOD, "data": None},
        {**GOOD, "data": "*"},
        {**GOOD, "data": "AAAA"},
        {**GOOD, "next": 1},
        {**GOOD, "line_bytes": "4094"},
        {**GOOD, "line_bytes": None},
        {**GOOD, "next": "0"},
        {**GOOD, "data": base64.b64encode(b"x" * 140_000).decode(), "next": 140_000},
        {**GOOD, "ended": []},
        {**GOOD, "ended": {"exit_code": "0", "signal": None, "reason": None}},
        {**GOOD, "ended": {"exit_code": 0, "signal": {}, "reason": None}},
        {**GOOD, "ended": {"exit_code": 0, "signal": None, "reason": "x" * 200}},
    ],
)
async def test_garbage_is_not_believed(page: Message) -> None:
    agent = Agent()
    agent.answers["pty.read"] = page
    terminal, raw = new(agent)
    with pytest.raises(SandboxUnavailableError, match="malformed answer"):
        await terminal.start()
    assert raw == b""


@pytest.mark.parametrize("mark", ["x", True, -1, 3, 10**9])
async def test_a_mark_before_what_was_read_is_garbage(mark: Any) -> None:
    terminal, agent, _ = await started()
    agent.mark = mark
    with pytest.raises(SandboxUnavailableError, match="malformed answer"):
        await terminal.send("do", "x")


async def test_the_state_follows_the_command_also_when_its_prompt_came_late() -> None:
    seen: list[tuple[str, str | None]] = []

    def infer(_: object, prompt: str, command: str | None) -> str:
        seen.append((prompt, command))
        return "ready"

    terminal, agent, _ = await started(infer_state=infer)
    await terminal.send("do", "x")
    agent.pieces.append(b"x\r\n")
    assert (await terminal.answer()).wait is Wait.TIMEOUT
    agent.pieces.append(PROMPT)
    assert await terminal.synchronise()
    assert seen == [("tool=> ", None), ("tool=> ", "do")]


# Secrets

SECRET = "0123456789abcdef"


async def test_a_secret_in_several_pieces_is_in_no_hash_and_not_kept() -> None:
    terminal, agent, raw = await started(output_wait_ms=600_000)
    agent.redactor = Redactor([SECRET])
    agent.pieces.extend(say(f"say\r\nit is {SECRET}!\r\n"))
    await terminal.send("do", "say")
    answer = await terminal.answer()
    kept = f"say\r\nit is {MARK}!\r\ntool=> ".encode()
    assert bytes(raw).endswith(kept)
    assert SECRET.encode() not in raw
    assert answer.raw_hash == f"sha256:{hashlib.sha256(kept).hexdigest()}"
    assert answer.output == Output(f"it is {SECRET}!", False)
    agent.said += f"late {SECRET}".encode()
    assert await terminal.synchronise()
    assert [late.text for late in await terminal.take_late()] == [f"late {SECRET}"]
    assert bytes(raw).endswith(f"late {MARK}".encode())


def say(text: str) -> list[bytes]:
    return [*(text[place : place + 1].encode() for place in range(len(text))), PROMPT]


async def test_long_output_is_searched_once_and_in_pieces_between_which_others_go_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    terminal, agent, raw = await started(output_wait_ms=600_000)
    agent.redactor = Redactor([SECRET])
    searched: list[int] = []
    fed: list[int] = []
    spans, feed = Redactor.spans, Framing.feed

    def watch_search(self: Redactor, data: bytes) -> list[Span]:
        searched.append(len(data))
        return spans(self, data)

    def watch_feed(self: Framing, data: bytes) -> None:
        fed.append(turns)
        assert len(data) <= 4096
        feed(self, data)

    monkeypatch.setattr(Redactor, "spans", watch_search)
    monkeypatch.setattr(Framing, "feed", watch_feed)
    turns = 0

    async def others() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    beside = asyncio.create_task(others())
    text = b"x" * (1024 * 1024)
    agent.pieces.append(b"say\r\n" + text + b"\r\n" + PROMPT)
    await terminal.send("do", "say")
    answer = await terminal.answer()
    beside.cancel()
    assert answer.wait is Wait.PROMPT
    assert raw.count(b"x") == len(text)
    assert sum(searched) < 1.1 * len(text)
    assert max(searched) <= secret_cutting.MOST_AT_ONCE
    # Each piece is processed in a separate turn of the loop.
    assert len(set(fed)) == len(fed) >= len(text) // 4096
    assert agent.spent > 0


async def test_a_search_that_fails_loses_nothing() -> None:
    redactor, kept, fails = Redactor([SECRET]), bytearray(), True

    async def search(window: Window) -> list[Span]:
        if fails:
            raise SandboxUnavailableError("not in time")
        return window.spans()

    said = RedactedOutput(kept.extend, lambda: redactor, search)
    with pytest.raises(SandboxUnavailableError):
        await said.feed(b"x" * 1000 + SECRET.encode())
    fails = False
    await said.finish()
    assert bytes(kept) == b"x" * 1000 + MARK.encode()


async def test_long_windows_are_searched_in_a_thread_which_is_paid_for() -> None:
    paid: list[float] = []
    threads: set[int] = set()

    class Watched(Redactor):
        def spans(self, data: bytes) -> list[Span]:
            threads.add(threading.get_ident())
            return super().spans(data)

    search, redactor = secret_cutting.SecretCutting(), Watched(["0123456789abcdef" * 1000])
    window = Window(redactor, b"x" * 500_000, 400_000)
    assert await search.spans("key", window, paid.append) == []
    assert threads == threads - {threading.get_ident()}
    assert len(paid) == 1
    assert paid[0] > 0
    short = Window(redactor, b"x" * 1000, 1000)
    assert await search.spans("key", short, paid.append) == []
    assert threading.get_ident() in threads
    assert len(paid) == 1
