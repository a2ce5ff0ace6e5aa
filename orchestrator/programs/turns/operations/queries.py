"""What a program may ask about its own session, and the rollback of what is staged."""

from datetime import UTC, datetime

from orchestrator.ground.errors import PaddockError
from orchestrator.programs.turns.operations.context import OperationContext
from orchestrator.programs.turns.operations.turn_operation import Done, Needed, turn_operation
from orchestrator.programs.turns.outcome import Symbol, Value, needs
from orchestrator.programs.turns.programs import OperationFailed
from orchestrator.rules.policy.session_policy import COMMANDS, PolicyRefusalError
from orchestrator.state.budget import BudgetView
from orchestrator.work.commands import running_command
from orchestrator.work.commands.output_pages import page_text
from paddock.contract.words import Kind

OF_TURNS = (Kind.TOKENS, Kind.COST, Kind.TIME, Kind.ITERATIONS)


async def session_id(context: OperationContext) -> Done:
    """The session's id."""
    return Done(context.session.id)


async def turn_number(context: OperationContext) -> Done:
    """The number of this turn, from 1."""
    return Done(context.number)


async def output(context: OperationContext, command_id: str, after: int = 0) -> Done:
    """What a command printed from a byte on: text, the byte to continue at, and bytes in all."""
    if not any(_is_allowed(context, name) for name in (*COMMANDS, "world.tool")):
        raise OperationFailed("session/output: the policy permits no commands")
    try:
        command = running_command.find(context.session, command_id)
        # Whoever waits for the output, or for its evidence, gets it all the same.
        page = await running_command.read_output(
            context.session, command, max(0, after), 0, looks=True, whole=True
        )
    except PaddockError as error:
        raise OperationFailed(f"session/output: {error.detail}") from None
    if page.lost:
        raise OperationFailed("session/output: what this command printed is not kept any more")
    text, following = page_text(page.chunks, max(0, after), page.next)
    return Done((("text", text), ("next", following), ("total", command.output_bytes)))


async def status(context: OperationContext) -> Done:
    """The session's status, a symbol."""
    return Done(Symbol(context.session.status))


async def budget_remaining(context: OperationContext, kind: str) -> Done:
    """What is left of tokens, cost, time or iterations; nil: no limit."""
    return Done(_amounts(context).remaining[_kind(kind)])


async def has_remaining(context: OperationContext, kind: str) -> Done:
    """Whether something is left of that kind."""
    left = _amounts(context).remaining[_kind(kind)]
    return Done(left is None or left > 0)


async def report(context: OperationContext) -> Done:
    """Limits, consumption and remainder of the four kinds, as lists of names and amounts."""
    amounts = _amounts(context)
    parts = amounts._asdict().items()
    return Done(
        tuple(
            (Symbol(name), *((Symbol(kind), values[kind]) for kind in OF_TURNS))
            for name, values in parts
        )
    )


async def is_allowed(context: OperationContext, operation: str, ref: str | None = None) -> Done:
    """Whether the policy permits an operation; with a ref, on that file."""
    return Done(_is_allowed(context, operation, ref))


def _is_allowed(context: OperationContext, operation: str, ref: str | None = None) -> bool:
    try:
        context.scopes.policy.check(operation, ref=ref)
    except PolicyRefusalError:
        return False
    return True


async def read_only(context: OperationContext) -> Done:
    """Whether the policy permits no writes at all."""
    return Done(context.scopes.policy.world_rules.read_only)


async def proposal_mode(context: OperationContext) -> Done:
    """Whether writes are proposals that the host commits."""
    return Done(context.session.policy.world_rules.proposal_mode)


async def operations_count(context: OperationContext) -> Done:
    """The number of operations of all turns so far."""
    return Done(context.log.earlier + len(context.log.events))


async def audit_log(context: OperationContext) -> Done:
    """This turn's operations so far: lists of name, decision and error."""
    entries: tuple[Value, ...] = tuple(
        (Symbol(event["operation"]), Symbol(event["decision"] or "none"), event["error"])
        for event in context.log.events
    )
    return Done(entries)


async def proposals(context: OperationContext) -> Done:
    """What is staged, by this turn and earlier ones: lists of type and path."""
    page = await context.services.staged(context.principal, context.session)
    return Done(tuple((Symbol(each.type), each.ref) for each in page.items))


async def commit(context: OperationContext) -> Done:
    """Ends the turn with `needs-approval`, because only the host commits."""
    staged = (await proposals(context)).value
    raise Needed(needs("needs-approval", "the host commits what is staged", staged))


async def roll_back(context: OperationContext) -> Done:
    """Discards what is staged, by this turn and earlier ones; returns how many changes."""
    if context.scopes.policy is not context.session.policy:
        raise OperationFailed("a program within subeval can't discard what is staged")
    # Open terminals would keep the sandbox in use.
    await context.terminals.close()
    counts = await context.services.roll_back(context.principal, context.session, context.number)
    context.staged.clear()
    return Done(counts.write + counts.delete + counts.refused)


def _amounts(context: OperationContext) -> BudgetView:
    return context.session.budget.view(datetime.now(UTC))


def _kind(name: str) -> Kind:
    found = next((kind for kind in OF_TURNS if kind == name), None)
    if found is None:
        raise OperationFailed(f"the budget has {', '.join(OF_TURNS)}, not {name}")
    return found


OPERATIONS = tuple(
    turn_operation(name, perform, query=True)
    for name, perform in (
        ("session/id", session_id),
        ("session/turn-number", turn_number),
        ("session/status", status),
        ("session/budget-remaining", budget_remaining),
        ("session/allowed?", is_allowed),
        ("session/read-only?", read_only),
        ("session/proposal-mode?", proposal_mode),
        ("session/operations-count", operations_count),
        ("session/audit-log", audit_log),
        ("session/output", output),
        ("session/proposals", proposals),
        ("session/commit-proposals!", commit),
        ("session/rollback-proposals!", roll_back),
        ("budget/remaining", budget_remaining),
        ("budget/has-remaining?", has_remaining),
        ("budget/report", report),
    )
)
