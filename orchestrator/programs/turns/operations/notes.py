"""Operations on what a session's programs remember: facts, and results by their digest."""

from orchestrator.programs.turns.operations.context import OperationContext
from orchestrator.programs.turns.operations.turn_operation import Done, turn_operation
from orchestrator.programs.turns.outcome import Value
from orchestrator.programs.turns.stored_values import from_text


class Unset:
    """Stands for an argument that is not given, because nil may be given."""


_UNSET = Unset()


async def assert_(context: OperationContext, fact: Value) -> Done:
    """Notes a fact for this and later turns; false if it was known."""
    return Done(context.notes.assert_fact(fact), {"facts": len(context.notes.facts)})


async def is_fact(context: OperationContext, fact: Value) -> Done:
    """Whether a fact was asserted."""
    known = context.notes.knows(fact)
    return Done(known, {"known": known})


async def facts(context: OperationContext) -> Done:
    """The facts, oldest first."""
    known = tuple(from_text(text) for text in context.notes.facts)
    return Done(known, {"facts": len(known)})


async def memo(context: OperationContext, digest: str, value: Value | Unset = _UNSET) -> Done:
    """The result with that digest in a list, or nothing; with a value, keeps it."""
    if not isinstance(value, Unset):
        context.notes.keep(digest, value)
        return Done(None, {"kept": True})
    text = context.notes.memos.get(digest)
    known = None if text is None else (from_text(text),)
    return Done(known, {"known": known is not None})


async def permitted(context: OperationContext) -> Done:
    """Asks only whether the policy permits it; the evaluator does the rest."""
    return Done(None)


async def permitted_form(context: OperationContext, form: Value) -> Done:
    """Evaluates a form that the program has made."""
    return Done(None)


async def permitted_program(context: OperationContext, options: Value) -> Done:
    """Evaluates a nested program, within a narrower policy and budget."""
    return Done(None)


OPERATIONS = (
    turn_operation("assert", assert_),
    turn_operation("fact?", is_fact),
    turn_operation("facts", facts),
    turn_operation("memo", memo, form=True),
    turn_operation("eval", permitted_form, form=True),
    turn_operation("subeval", permitted_program, form=True),
    turn_operation("fixpoint", permitted, form=True),
)
