"""The terminals of a fake agent, with scripted answers to lines."""

import asyncio
import base64
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field

from sandbox_agent.decide.protocol import Message

PROMPT = b"tool=> "


@dataclass
class FakeTerminal:
    """One terminal. `said` is all output so far."""

    params: Message
    said: bytes = b""
    sent: list[Message] = field(default_factory=list)
    ended: Message | None = None
    changed: asyncio.Event = field(default_factory=asyncio.Event)

    def say(self, data: bytes) -> None:
        self.said += data
        self.wake()

    def wake(self) -> None:
        self.changed.set()
        self.changed = asyncio.Event()


class FakeTerminals:
    """`answers` maps lines to their answers, prompt included; the default is an echo."""

    def __init__(self, emit: Callable[..., None]) -> None:
        self._emit = emit
        self.all: dict[str, FakeTerminal] = {}
        self.answers: dict[str, bytes] = {}
        self.banner = b"fake\r\n" + PROMPT
        self.line_bytes = 4094

    @property
    def running(self) -> list[str]:
        return [key for key, terminal in self.all.items() if terminal.ended is None]

    async def answer(self, method: str, params: Message) -> Message:
        if method == "pty.open":
            shell = params["commands"] is None
            said = b"$ " if shell else self.banner
            self.all[params["terminal_id"]] = FakeTerminal(params, said)
            return {}
        if method == "pty.close":
            self.end(params["terminal_id"], 143, params["reason"])
            return {}
        terminal = self.all[params["terminal_id"]]
        if method == "pty.read":
            return await self._read(terminal, params)
        if method == "pty.resize":
            terminal.sent.append(params)
            return {}
        if method == "pty.write":
            terminal.sent.append(params)
            terminal.say(base64.b64decode(params["data"]))  # the echo
            return {}
        terminal.sent.append(params)
        mark = len(terminal.said)
        text = params["text"].encode()
        default = text + b"\r\nyou said " + text + b"\r\n" + PROMPT
        terminal.say(self.answers.get(params["text"], default))
        return {"mark": mark}

    async def _read(self, terminal: FakeTerminal, params: Message) -> Message:
        after, limit, wait = params["after"], params["limit"], params["wait_ms"] / 1000
        with suppress(TimeoutError):
            async with asyncio.timeout(wait):
                while len(terminal.said) <= after and terminal.ended is None and wait:
                    await terminal.changed.wait()
        data = terminal.said[after:][:limit]
        over = after + len(data) == len(terminal.said)
        return {
            "data": base64.b64encode(data).decode(),
            "next": after + len(data),
            "waits": not data,
            "line_bytes": self.line_bytes,
            "ended": terminal.ended if over else None,
        }

    def end(self, terminal_id: str, exit_code: int, reason: str | None) -> None:
        terminal = self.all.get(terminal_id)
        if terminal is None or terminal.ended is not None:
            return
        terminal.ended = {"exit_code": exit_code, "signal": None, "reason": reason}
        self.report(terminal_id, terminal.ended)
        terminal.wake()

    def report(self, terminal_id: str, result: Message) -> None:
        """Reports its end, true or not."""
        args = {"terminal_id": terminal_id}
        self._emit("pty.exit", decision=None, args=args, result={**result, "duration_us": 1})
