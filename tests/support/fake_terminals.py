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
    run: Message | None = None
    waits: bool = False
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
        # Whether commands of kept shells ignore interrupts.
        self.stubborn = False

    @property
    def running(self) -> list[str]:
        return [key for key, terminal in self.all.items() if terminal.ended is None]

    async def answer(self, method: str, params: Message) -> Message:
        if method == "pty.open":
            shell = params["commands"] is None
            said = b"$ " if shell else self.banner
            made = self.all[params["terminal_id"]] = FakeTerminal(params, said)
            if params["kept"]:
                made.said = b""
                absent = {"/no-bash": (True,), "/no-shell": (True, "sh")}
                if params["kept"] in absent.get(params["cwd"], ()):
                    self.end(params["terminal_id"], 127, None)
                    return {}
                self._end_run(made, {"number": 0, "syntax_error": ""}, 0)
            return {}
        if method == "pty.close":
            self.end(params["terminal_id"], 143, params["reason"])
            return {}
        terminal = self.all[params["terminal_id"]]
        if method == "pty.read":
            return await self._read(terminal, params)
        if method == "pty.run":
            return self._run(terminal, params)
        if method == "pty.interrupt":
            terminal.sent.append(params)
            if terminal.run is not None and not (self.stubborn and not params["kill"]):
                self._end_run(terminal, terminal.run, 137 if params["kill"] else 130)
            return {"reached": True}
        if method == "pty.resize":
            terminal.sent.append(params)
            return {}
        if method == "pty.write":
            terminal.sent.append(params)
            data = base64.b64decode(params["data"])
            if terminal.params["kept"] and terminal.run is not None:
                terminal.waits = False
                terminal.say(b"got " + data)
                self._end_run(terminal, terminal.run, 0)
                return {}
            terminal.say(data)  # the echo
            return {}
        terminal.sent.append(params)
        mark = len(terminal.said)
        text = params["text"].encode()
        default = text + b"\r\nyou said " + text + b"\r\n" + PROMPT
        terminal.say(self.answers.get(params["text"], default))
        return {"mark": mark}

    def _run(self, terminal: FakeTerminal, params: Message) -> Message:
        """A kept shell's command, by its text: an exit code, `ask`, `hang`, `exit`, or an echo."""
        terminal.sent.append(params)
        terminal.run = {"number": params["number"], "syntax_error": "", "ended": None}
        terminal.waits = False
        match params["text"].split():
            case ["ask", *words]:
                terminal.waits = True
                terminal.say(" ".join([*words, "? "]).encode())
            case ["hang", *words]:
                terminal.say("".join(f"{word}\n" for word in words).encode())
            case ["wrong"]:
                terminal.run["syntax_error"] = "line 1: syntax error"
                self._end_run(terminal, terminal.run, 2)
            case ["exit", code]:
                self.end(terminal.params["terminal_id"], int(code), None)
            case ["return", code]:
                self._end_run(terminal, terminal.run, int(code))
            case _:
                terminal.say(f"ran {params['text']}\n".encode())
                self._end_run(terminal, terminal.run, 0)
        return {}

    def _end_run(self, terminal: FakeTerminal, run: Message, exit_code: int) -> None:
        ended = {"exit_code": exit_code, "cwd": "/workspace", "at": len(terminal.said)}
        terminal.run = {**run, "ended": ended}
        terminal.wake()

    async def _read(self, terminal: FakeTerminal, params: Message) -> Message:
        after, limit, wait = params["after"], params["limit"], params["wait_ms"] / 1000
        with suppress(TimeoutError):
            async with asyncio.timeout(wait):
                run = terminal.run
                while len(terminal.said) <= after and terminal.ended is None and wait:
                    if terminal.run is not run or terminal.waits:
                        break
                    await terminal.changed.wait()
        data = terminal.said[after:][:limit]
        over = after + len(data) == len(terminal.said)
        return {
            "data": base64.b64encode(data).decode(),
            "next": after + len(data),
            "waits": not data and (terminal.waits or not terminal.params["kept"]),
            "line_bytes": self.line_bytes,
            "ended": terminal.ended if over else None,
            **({"run": terminal.run} if terminal.params["kept"] else {}),
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
