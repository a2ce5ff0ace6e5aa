"""Terminals of packaged manifests with the real programs, used as clients do."""

import re
from dataclasses import dataclass
from pathlib import Path

import pytest

from orchestrator.ground.errors import PermissionDeniedError
from orchestrator.rules.access.keys import Principal, Role
from orchestrator.rules.tools import session_loader
from orchestrator.work.terminals.governed_terminals import GovernedTerminals
from orchestrator.work.terminals.line_record import Exchange
from tests.support.box import TESTER, Box
from tests.support.programs import DATABASE, USER
from tests.support.tool import results

SHIPPED = Path(session_loader.__file__).with_name("manifests")
OPERATOR = Principal("operator", Role.ADMIN)
_ANY = "[session.commands.any]\npattern = '^.*$'\n\n"


def loose(name: str) -> str:
    """A packaged manifest that allows any line: only the level confines the program."""
    text = manifest(name)
    text = text.replace(f'name = "{name}"', f'name = "loose-{name}"')
    text = text.replace('input_sanitize = ["injection"]\n', "")
    text = text.replace('line_terminator = ";\\n"\n', 'line_terminator = "\\n"\n')
    text = re.sub('parser = "sql"\ndialect = ".*"\n', "", text)
    text = re.sub("max_interactions = [0-9]+", "max_interactions = 1_000_000", text)
    commands, output = text.index("[session.commands."), text.index("[output]")
    return text[:commands] + _ANY + text[output:]


def edited() -> dict[str, str]:
    """Loose manifests of programs that use readline, in addition to the packaged ones."""
    python = loose("python3").replace('"loose-python3"', '"readline-python3"')
    sqlite = python.replace('"readline-python3"', '"loose-sqlite3"')
    sqlite = sqlite.replace('"python3"', '"sqlite3"').replace("python3 -I -S -q", "sqlite3")
    return {
        "readline-python3": python.replace("python3 -I -S -q", "python3 -q"),
        "loose-sqlite3": sqlite.replace("^>>> $", "^sqlite> $"),
    }


def manifest(name: str) -> str:
    """A packaged manifest, with the database for psql."""
    text = (SHIPPED / f"{name}.clad.toml").read_text()
    return text.replace(
        "PSQL_HISTORY", f'PGUSER = "{USER}"\nPGDATABASE = "{DATABASE}"\nPSQL_HISTORY'
    )


@dataclass(frozen=True)
class RealTool:
    """One terminal of a tool."""

    box: Box
    tool: str
    id: str

    @classmethod
    async def open(cls, box: Box, tool: str) -> "RealTool":
        opened = await _governed(box).open(TESTER, box.session, tool)
        return cls(box, tool, opened.id)

    async def do(self, command: str, text: str, wait: float = 0) -> Exchange:
        """The answer to a line."""
        call = (TESTER, self.box.session, self.id, f"{self.tool}.{command}", text)
        return await _governed(self.box).interact(*call, wait)

    async def said(self, command: str, text: str) -> str:
        """The tool's output for an allowed line."""
        exchange = await self.do(command, text)
        assert exchange.status == "success", exchange
        return results(exchange).output

    async def state(self) -> str:
        """Its current state."""
        records = self.box.plane.terminals.records
        state = (await records.get(self.box.session.key, self.id)).session_state
        assert state is not None
        return state

    async def refuses(self, command: str, text: str, rule: str = "pattern") -> None:
        """Checks that a line is refused and never reaches the program, which would echo it."""
        before = self._heard()
        with pytest.raises(PermissionDeniedError) as refused:
            await self.do(command, text)
        assert refused.value.fields["rule"] == rule, text
        assert self._heard() == before

    async def decide(self, decision: str) -> str:
        """Decides the waiting approval; returns its text."""
        approvals = self.box.plane.approvals
        waiting, _ = await approvals.list(OPERATOR, status="pending")
        (approval,) = [each for each in waiting if each.terminal_id == self.id]
        await approvals.decide(OPERATOR, approval.id, decision, "tested")
        return approval.text

    async def transcript(self) -> str:
        """Its evidence in readable form."""
        return await self.box.plane.terminals.records.transcript(self.box.session.key, self.id)

    async def close(self) -> None:
        """Ends it."""
        await self.box.plane.terminals.close(self.box.session, self.id)

    def _heard(self) -> bytes:
        state_dir = self.box.plane.settings.state_dir
        return (state_dir / "evidence" / self.box.session.key / self.id / "raw").read_bytes()


def _governed(box: Box) -> GovernedTerminals:
    return box.plane.tools
