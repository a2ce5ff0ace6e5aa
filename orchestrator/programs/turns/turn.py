"""Turns: programs that a session has run."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, TypeAlias

from orchestrator.programs.turns.host_tools import HostTool
from orchestrator.programs.turns.outcome import Value
from paddock.contract.turns import USUAL_TIMEOUT

# Of one turn.
MOST_OPERATIONS = 2000


class OperationCall(NamedTuple):
    """One operation of a list, with its arguments by name."""

    operation: str
    args: Mapping[str, Value]


class LispCode(NamedTuple):
    """A program in Lisp."""

    text: str


class AgentRun(NamedTuple):
    """A model that calls tools, with new messages for it. An empty name is the first model.

    `tools` are the host's, in addition to the built-in ones. It is stopped after so many `seconds`.
    """

    messages: tuple[str, ...] = ()
    model: str = ""
    system: str | None = None
    max_ticks: int = 10
    max_timeline_entries: int = 500
    tools: tuple[HostTool, ...] = ()
    seconds: int = USUAL_TIMEOUT


Script: TypeAlias = LispCode | AgentRun | tuple[OperationCall, ...]


class StagedProposal(NamedTuple):
    """A change that a turn has staged: a file's, or what a command may have changed."""

    type: Literal["write", "delete", "run"]
    ref: str | None
    command: str | None
    timestamp: str

    def json(self) -> dict[str, Any]:
        """The members in JSON's types."""
        return self._asdict()


@dataclass(frozen=True, slots=True)
class TurnRecord:
    """A turn as it is stored; `ended_at` and what follows are None while it runs.

    `outcome` is in the form of the API. `printed` is what the program displayed.
    `budget_remaining` has the kinds tokens, cost, time and iterations in the units of the API.
    `operations` is their number; they are in the session's record. `permission_level` and
    `workspace_root` are the session's when it began.
    """

    number: int
    started_at: str
    actor: str
    ended_at: str | None = None
    outcome: Mapping[str, Any] | None = None
    tokens_used: int = 0
    operations: int = 0
    printed: str = ""
    proposals: tuple[Mapping[str, Any], ...] = ()
    budget_remaining: Mapping[str, int | float | None] | None = None
    permission_level: str | None = None
    workspace_root: str | None = None

    @property
    def ended(self) -> bool:
        """Whether it has ended."""
        return self.ended_at is not None
