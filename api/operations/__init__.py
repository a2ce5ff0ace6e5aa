"""Every operation of the API, in one table: routes and the OpenAPI document are made from it."""

from api.operations import audit, commands, files, sessions, system, terminals, tools
from api.operations.base import Operation

OPERATIONS: tuple[Operation, ...] = (
    *sessions.OPERATIONS,
    *commands.OPERATIONS,
    *files.OPERATIONS,
    *terminals.OPERATIONS,
    *tools.OPERATIONS,
    *audit.OPERATIONS,
    *system.OPERATIONS,
)
