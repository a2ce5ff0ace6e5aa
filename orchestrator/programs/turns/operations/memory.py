"""Operations on the long-term memory, which outlives the session: see `notes` for the session's."""

from typing import TypeVar

from pydantic import BaseModel
from pydantic import ValidationError as SchemaError

from orchestrator.programs.turns.operations.context import OperationContext
from orchestrator.programs.turns.operations.turn_operation import Done, turn_operation
from orchestrator.programs.turns.programs import OperationFailed
from orchestrator.settings.schema_errors import reason
from orchestrator.work.memory.entries import DEFAULT, Wanted
from paddock.contract.memory import MemorySearchQuery, NoteBody

Form = TypeVar("Form", bound=BaseModel)


async def recall(
    context: OperationContext, query: str = "", namespace: str = DEFAULT, limit: int = 10
) -> Done:
    """Entries of the memory with one of the words, as lists: id, time, writer, text, tags."""
    wanted = _checked(
        "recall", MemorySearchQuery, query=query, namespace=namespace, limit=str(limit)
    )
    found = await context.services.memory.search(
        context.principal, context.session, wanted.query, wanted.namespace, wanted.limit
    )
    value = tuple(
        (each.id, each.changed_at, each.written_by, each.text, each.tags) for each in found
    )
    return Done(value, {"found": len(value)})


async def remember(
    context: OperationContext, text: str, namespace: str = DEFAULT, tags: tuple[str, ...] = ()
) -> Done:
    """Writes an entry to the memory for later sessions of the same key; its id."""
    wanted = _checked("remember", NoteBody, text=text, namespace=namespace, tags=list(tags))
    entry = await context.services.memory.write(
        context.principal,
        context.session,
        Wanted(wanted.text, wanted.namespace, tuple(wanted.tags)),
    )
    return Done(entry.id, {"id": entry.id})


def _checked(operation: str, form: type[Form], **members: str | list[str]) -> Form:
    """The arguments within the bounds that the API has. Raises: OperationFailed."""
    try:
        checked = form.model_validate(members)
    except SchemaError as error:
        first = error.errors(include_url=False, include_input=False, include_context=False)[0]
        problem = reason(first["type"], first["msg"])
        raise OperationFailed(f"{operation}: {first['loc'][0]} {problem}") from None
    for name, text_or_texts in members.items():
        if "\0" in "".join(text_or_texts):
            raise OperationFailed(f"{operation}: {name} has a NUL character")
    return checked


OPERATIONS = (turn_operation("recall", recall), turn_operation("remember", remember))
