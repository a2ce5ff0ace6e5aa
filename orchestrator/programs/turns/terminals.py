"""The terminals of one turn: a tool's first line opens one, and all end with the turn."""

from contextlib import suppress

from orchestrator.ground.errors import PaddockError
from orchestrator.ground.task_scope import TaskScope
from orchestrator.rules.access.keys import Principal
from orchestrator.state.session import Session
from orchestrator.work.terminals.governed_terminals import GovernedTerminals
from orchestrator.work.terminals.terminal_record import TerminalRecord
from orchestrator.work.terminals.terminals import Terminals

_REASON = "turn_ended"


class TurnTerminals:
    """Opens terminals of the operator's tools for a turn, one for each tool."""

    def __init__(
        self,
        governed: GovernedTerminals,
        terminals: Terminals,
        principal: Principal,
        session: Session,
        tasks: TaskScope,
    ) -> None:
        """`tasks` complete an opening that has begun, even if the turn is stopped meanwhile."""
        self._governed = governed
        self._terminals = terminals
        self._principal = principal
        self._session = session
        self._tasks = tasks
        # By tool.
        self._opened: dict[str, str] = {}

    async def of(self, tool: str) -> str:
        """The id of the tool's terminal, which is opened anew if it has ended.

        Raises: the errors of `GovernedTerminals.open`.
        """
        known = self._opened.get(tool)
        live = self._terminals.live(self._session)
        if known is None or not any(each.id == known and each.reason is None for each in live):
            opening = self._governed.open(self._principal, self._session, tool)
            known = (await self._tasks.shield(opening, self._abandoned)).id
            self._opened[tool] = known
        return known

    async def close(self) -> None:
        """Ends the open terminals; those of an ended sandbox have ended with it."""
        for known in self._opened.values():
            with suppress(PaddockError):
                await self._terminals.close(self._session, known, _REASON)
        self._opened.clear()

    def _abandoned(self, opened: TerminalRecord) -> None:
        """Ends a terminal whose opening completed after the turn was stopped."""
        for live in self._terminals.live(self._session):
            if live.id == opened.id:
                self._terminals.end(live, _REASON)
