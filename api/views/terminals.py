"""Terminals, and lines that were sent to them, as the API shows them."""

from api.shape.objects import members
from api.views.approvals import approval
from orchestrator.work.terminals.line_record import Exchange
from orchestrator.work.terminals.terminal_record import TerminalRecord
from paddock.contract.terminals import Evidence, Interaction, Results, Terminal


def terminal(shown: TerminalRecord) -> Terminal:
    """The terminal, as it is or as it has ended."""
    evidence = None if shown.evidence is None else members(Evidence, shown.evidence)
    status = str(shown.status)
    return Terminal.model_validate(members(Terminal, shown, status=status, evidence=evidence))


def interaction(exchange: Exchange) -> Interaction:
    """The line, and what came of it; a terminal has one stream, so `stderr` is empty."""
    results, asked = exchange.results, exchange.approval
    return Interaction.model_validate(
        members(
            Interaction,
            exchange,
            pty=exchange.terminal_id,
            stderr="",
            results=None if results is None else members(Results, results),
            approval=None if asked is None else approval(asked),
        )
    )
