"""What a turn runs: a list of operations, a program in Lisp, or a model."""

from collections.abc import Callable, Generator, Mapping
from typing import Any, NamedTuple

from orchestrator.ground.errors import ValidationError
from orchestrator.programs.turns.lisp.program import LispProgram
from orchestrator.programs.turns.notes import Notes
from orchestrator.programs.turns.operations.registry import NAMES, OPERATIONS, QUERIES
from orchestrator.programs.turns.outcome import Value
from orchestrator.programs.turns.programs import Operation, OperationFailed, Program, Request
from orchestrator.programs.turns.runs.conversation import Conversation
from orchestrator.programs.turns.runs.program import run_program
from orchestrator.programs.turns.turn import AgentRun, LispCode, OperationCall, Script


class PreparedScript(NamedTuple):
    """A program that can be driven. `finish` keeps in the notes what it has defined."""

    program: Program
    printed: Callable[[], str]
    finish: Callable[[], None]


def prepared(
    script: Script, notes: Notes, conversation: Conversation | None = None
) -> PreparedScript:
    """The program of a script; a run needs its conversation.

    Raises: ValidationError for a list that names an unknown operation or argument.
    """
    if conversation is not None:
        return PreparedScript(run_program(conversation), lambda: "", lambda: None)
    if isinstance(script, AgentRun):
        raise ValueError("a run needs a conversation")
    if not isinstance(script, LispCode):
        return PreparedScript(_list_program(script), lambda: "", lambda: None)
    lisp = LispProgram(
        script.text, operations=NAMES, session_api=QUERIES, environment=notes.environment
    )

    def finish() -> None:
        notes.environment = lisp.definitions().text

    return PreparedScript(lisp.run(), lambda: lisp.output, finish)


def _list_program(calls: tuple[OperationCall, ...]) -> Program:
    """A program of operations one after the other; its value is the list of their values.

    Raises: ValidationError that names the operation which does not exist, or its arguments.
    """
    operations = tuple(_operation(number, call) for number, call in enumerate(calls))

    def run() -> Generator[Request, Value, Value]:
        values: list[Value] = []
        for operation in operations:
            value = yield operation
            values.append(value)
        return tuple(values)

    return run()


def _operation(number: int, call: OperationCall) -> Operation:
    field = f"operations[{number}]"
    known = OPERATIONS.get(call.operation)
    if known is None:
        raise ValidationError(
            f"{field}.operation: there is no operation {call.operation[:100]}",
            field=f"{field}.operation",
        )
    if known.form:
        raise ValidationError(
            f"{field}.operation: {known.name} is a form of the Lisp: use code",
            field=f"{field}.operation",
        )
    try:
        args = known.place(call.args)
        known.bind(args)
    except OperationFailed as error:
        raise ValidationError(f"{field}.args: {error}", field=f"{field}.args") from None
    return Operation(known.name, args)


def described(script: Script) -> dict[str, Any]:
    """What is recorded of a script."""
    if isinstance(script, AgentRun):
        return {
            "messages": list(script.messages),
            "model": script.model or None,
            "system": script.system,
            "max_ticks": script.max_ticks,
            "max_timeline_entries": script.max_timeline_entries,
            "tools": {each.name: each.url for each in script.tools},
        }
    if not isinstance(script, LispCode):
        return {"operations": len(script)}
    return {"code": script.text}


def describes_run(recorded: Mapping[str, Any]) -> bool:
    """Whether what is recorded of a program says that it is a model."""
    return "max_ticks" in recorded
