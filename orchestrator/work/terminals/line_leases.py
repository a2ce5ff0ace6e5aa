"""Leases of a terminal's line: one line holds the terminal at a time, and the budget is charged."""

import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from orchestrator.ground.task_scope import TaskScope
from orchestrator.record.audit.budgets import Budgets
from orchestrator.rules.access.keys import Principal
from orchestrator.work.terminals.evidence_files import EvidenceError
from orchestrator.work.terminals.line_record import Exchange
from orchestrator.work.terminals.open_terminal import OpenTerminal
from orchestrator.work.terminals.records import Records
from orchestrator.work.terminals.terminal import Status
from orchestrator.work.terminals.terminal_ends import TerminalEnds


@dataclass(slots=True)
class LineLease:
    """One line's hold on a terminal, and what comes of it.

    `started` is in seconds since the epoch. `after` is the terminal's status after the lease;
    initially it is the status before. `counts`: the line is charged to the budget. `written`: it
    may have reached the tool. `ends` is why the terminal must be ended, if it must.
    """

    started: float = field(default_factory=time.time)
    after: Status = Status.READY
    counts: bool = False
    written: bool = False
    ends: str | None = None

    @property
    def duration_ms(self) -> int:
        """The duration so far."""
        return max(0, int((time.time() - self.started) * 1000))


class LineLeases:
    """Leases the terminals of this instance to lines; `give_up` ends a terminal for a reason."""

    def __init__(
        self,
        budgets: Budgets,
        records: Records,
        ends: TerminalEnds,
        give_up: Callable[[OpenTerminal, str], Awaitable[None]],
        tasks: TaskScope,
    ) -> None:
        self._budgets = budgets
        self._records = records
        self._ends = ends
        self._give_up = give_up
        self._tasks = tasks

    async def take(
        self,
        live: OpenTerminal,
        principal: Principal,
        use: Callable[[LineLease], Awaitable[Exchange]],
    ) -> Exchange:
        """Runs `use`, which then holds the terminal; it continues if the caller is cancelled.

        Raises: ConflictError for a terminal that has ended, BusyError while another line holds it,
        BudgetExceededError if the budget is used up before or by the line; the errors of
        `Session.check_open` and `use`.
        """
        await self._records.running(live.session, live.id)
        live.session.check_open()
        return await self._tasks.shield(self._take(live, principal, LineLease(), use))

    async def _take(
        self,
        live: OpenTerminal,
        principal: Principal,
        lease: LineLease,
        use: Callable[[LineLease], Awaitable[Exchange]],
    ) -> Exchange:
        session = live.session
        # Before the terminal is taken: if the budget is used up, it ends with the session.
        await self._budgets.admit(principal, session)
        try:
            exchange = await self._hold(live, lease, use)
        finally:
            if not lease.counts:
                self._budgets.withdraw(session)
        if exchange.status == "error" and session.budget.exceeded is not None:
            raise await self._budgets.refusal(session)
        return exchange

    async def _hold(
        self, live: OpenTerminal, lease: LineLease, use: Callable[[LineLease], Awaitable[Exchange]]
    ) -> Exchange:
        lease.after = live.take()
        try:
            async with live.lock:
                with live.session.busy_terminal():
                    try:
                        return await use(lease)
                    except EvidenceError:
                        lease.ends = "evidence_unavailable"
                        raise
                    finally:
                        live.status = lease.after
        finally:
            if lease.ends is not None:
                await self._give_up(live, lease.ends)
            elif live.terminal.exit is not None:
                await self._ends.run(live)
