"""Terminals of the fake tool, and decisions on their lines like those of a manifest."""

import asyncio
import re
import signal
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from orchestrator.rules.tools.gates import Verdict
from orchestrator.rules.tools.states import PromptState
from orchestrator.work.approvals.approval_rows import Approval
from orchestrator.work.terminals.line_record import Exchange, Results
from orchestrator.work.terminals.open_terminal import OpenTerminal
from orchestrator.work.terminals.spec import (
    Decide,
    LineApproval,
    SentLine,
    Situation,
    TerminalSpec,
)
from orchestrator.work.terminals.terminal_record import TerminalRecord
from tests.support import fake_tool
from tests.support.box import PATIENCE, TESTER, Box

PLACE = "fake_tool.py"
SOURCE = Path(fake_tool.__file__).read_bytes()
READY = r"^[a-z]+=[>#*] $"


class Pattern:
    """A regular expression that must match a whole text."""

    def __init__(self, text: str) -> None:
        self._compiled = re.compile(text)

    def matches(self, text: str) -> bool:
        return self._compiled.fullmatch(text) is not None


def judged(
    decision: str = "allow",
    rule: str = "allowed",
    message: str = "allowed",
    command: str = "do",
    matched: tuple[str, ...] = ("do",),
    scope: str | None = None,
) -> Verdict:
    """A decision of the gates."""
    return Verdict(decision, rule, message, command, matched, scope)


def infer_state(_before: PromptState | None, prompt: str, _command: str | None) -> str:
    return {">": "ready", "#": "admin", "*": "transaction"}[prompt.rstrip()[-1]]


def no_problem(_result: Mapping[str, Any]) -> str | None:
    return None


def spec(*arguments: str, **members: Any) -> TerminalSpec:
    """The fake tool, with short limits."""
    values: dict[str, Any] = {
        "tool": "fake",
        "manifest_sha256": "0" * 64,
        "startup_command": " ".join(["fake", *arguments]),
        "argv": ("python3", "-I", "-S", f"/workspace/{PLACE}", *arguments),
        "env": {},
        "ready": Pattern(READY),
        "line_terminator": "\n",
        "sanitize": (),
        "commands": ("do",),
        "output_max_bytes": 64 * 1024,
        "output_wait_ms": 5000,
        "startup_timeout_seconds": 20,
        "idle_timeout_seconds": 300,
        "session_timeout_seconds": 1800,
        "max_interactions": 1000,
        "infer_state": infer_state,
        "result_problem": no_problem,
    }
    return TerminalSpec(**{**values, **members})


def always(verdict: Verdict) -> Decide:
    """The same decision at every prompt."""

    def decide(_: Situation) -> Verdict:
        return verdict

    return decide


def results(exchange: Exchange) -> Results:
    """The tool's output for a line; it must have printed something."""
    assert exchange.results is not None, exchange
    return exchange.results


class Person:
    """Approves every line that needs approval; `steps` lists what happens."""

    def __init__(self) -> None:
        self.steps: list[str] = []

    async def ask(self, _: Verdict) -> LineApproval:
        approval = Approval(
            id="apr-1",
            session_key="",
            session_id="",
            owner="",
            terminal_id="",
            tool="",
            text="",
            risk_tier="high",
            status="approved",
            requested_by="",
            requested_at="",
            decided_by="ann",
        )
        return LineApproval(
            approval, lambda: self.steps.append("use"), lambda w: self.steps.append(str(w))
        )


class Tool:
    """One terminal of the fake tool in a real sandbox."""

    def __init__(self, box: Box, view: TerminalRecord) -> None:
        self.box = box
        self.id = view.id
        self.opened = view

    @classmethod
    async def open(cls, box: Box, *arguments: str, **members: Any) -> "Tool":
        if PLACE not in await box.paths():
            await box.write(PLACE, SOURCE)
        opened = await box.plane.terminals.open(TESTER, box.session, spec(*arguments, **members))
        return cls(box, opened)

    async def do(self, text: str, verdict: Verdict | None = None, **more: Any) -> Exchange:
        """The answer to a line."""
        decide = more.pop("decide", always(verdict or judged()))
        tool = more.pop("tool", "fake.do")
        sent = SentLine(TESTER, self.box.session, self.id, tool, text)
        return await self.box.plane.terminals.interact(sent, decide, **more)

    async def wake(self) -> None:
        """Sends the tool its signal, and waits until it has printed something."""
        await self.box.ask("pty.signal", terminal_id=self.id, signal=signal.SIGUSR1)
        await self.more()

    async def more(self) -> None:
        """Waits until the tool has printed something unread."""
        position = self._live().terminal.position
        answer = await self.box.ask(
            "pty.read", terminal_id=self.id, after=position, limit=1, wait_ms=20_000
        )
        assert answer["data"]

    async def settled(self) -> None:
        """Waits until no request is pending."""
        async with self._live().lock:
            pass

    def _live(self) -> OpenTerminal:
        all_live = self.box.plane.terminals.live(self.box.session)
        return next(live for live in all_live if live.id == self.id)

    async def output(self, text: str) -> str:
        """The output for a line that must succeed."""
        exchange = await self.do(text)
        assert exchange.status == "success", exchange
        return results(exchange).output

    async def view(self) -> TerminalRecord:
        return await self.box.plane.terminals.records.get(self.box.session.key, self.id)

    async def transcript(self) -> str:
        return await self.box.plane.terminals.records.transcript(self.box.session.key, self.id)

    async def close(self) -> TerminalRecord:
        return await self.box.plane.terminals.close(self.box.session, self.id)

    async def recorded(self, operation: str) -> None:
        """Waits for an event of this terminal."""
        seq = 0
        async with asyncio.timeout(PATIENCE):
            while not any(
                event["args"]["terminal_id"] == self.id
                for event in await self.box.events(operation)
            ):
                seq = await self.box.plane.ledger.wait(self.box.session.key, seq)

    async def ended(self) -> TerminalRecord:
        """The terminal's record, once its end is recorded."""
        await self.recorded("pty.close")
        return await self.view()
