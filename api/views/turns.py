"""Views of turns, and requests to run them."""

from collections.abc import Sequence
from typing import Any

from api.shape.objects import members
from orchestrator.ground.errors import ValidationError
from orchestrator.programs.turns import turn as domain
from orchestrator.programs.turns.json_values import from_json
from orchestrator.programs.turns.outcome import Value
from paddock.audit.chain import Event
from paddock.contract.turns import Turn, TurnBody, TurnOperation, TurnSummary


def script(body: TurnBody) -> domain.Script:
    """What the turn is to run. Raises: ValidationError for arguments that are nested too deep."""
    if body.code is not None:
        return domain.LispCode(body.code)
    return tuple(
        domain.OperationCall(
            call.operation,
            {name: _value(f"operations[{n}].args", value) for name, value in call.args.items()},
        )
        for n, call in enumerate(body.operations or ())
    )


def _value(field: str, form: Any) -> Value:
    try:
        return from_json(form)
    except ValueError as error:
        raise ValidationError(f"{field} {error}", field=field) from None


def operation(event: Event) -> TurnOperation:
    """An operation from its event."""
    return TurnOperation.model_validate({name: event[name] for name in TurnOperation.model_fields})


def summary(shown: domain.TurnRecord) -> TurnSummary:
    """A turn without its operations."""
    return TurnSummary.model_validate(_members(shown))


def turn(shown: domain.TurnRecord, operations: Sequence[Event]) -> Turn:
    """A turn with its operations so far."""
    count = max(shown.operations, len(operations))
    with_operations = {
        "operations": [operation(event) for event in operations],
        "operations_count": count,
    }
    return Turn.model_validate(_members(shown) | with_operations)


def _members(shown: domain.TurnRecord) -> dict[str, Any]:
    return members(
        TurnSummary,
        shown,
        turn_number=shown.number or None,
        status="ended" if shown.ended else "running",
        operations_count=shown.operations,
        proposals=list(shown.proposals),
    )
