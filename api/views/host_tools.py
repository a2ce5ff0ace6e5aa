"""Tools of hosts, from requests into the domain."""

from collections.abc import Collection, Sequence

from orchestrator.ground.errors import ValidationError
from orchestrator.programs.turns import host_tools as domain
from orchestrator.rules.tools.schemas import UnusableSchemaError, check_input_schema
from paddock.contract.host_tools import HostTool


def host_tools(given: Sequence[HostTool], taken: Collection[str]) -> tuple[domain.HostTool, ...]:
    """The tools; `taken` are names of others. Raises: ValidationError."""
    known = set(taken)
    for number, tool in enumerate(given):
        place = f"tools.{number}"
        if tool.name in known:
            raise ValidationError(
                f"{place}.name must not be the name of another tool", field=f"{place}.name"
            )
        known.add(tool.name)
        try:
            check_input_schema(tool.input_schema)
        except UnusableSchemaError as error:
            field = f"{place}.input_schema"
            raise ValidationError(f"{field}: {str(error)[:300]}", field=field) from None
    return tuple(domain.HostTool(**dict(tool)) for tool in given)
