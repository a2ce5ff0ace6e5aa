"""A turn as a list of operations, one after the other."""

from collections.abc import Generator

from orchestrator.ground.errors import ValidationError
from orchestrator.programs.turns.operations.registry import OPERATIONS
from orchestrator.programs.turns.outcome import Value
from orchestrator.programs.turns.programs import Operation, OperationFailed, Program, Request
from orchestrator.programs.turns.turn import OperationCall


def list_program(calls: tuple[OperationCall, ...]) -> Program:
    """A program whose value is the list of the operations' values.

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
