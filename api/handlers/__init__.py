"""The API's operations: typed functions, one module per resource, and the list of all."""

from api.handlers import (
    approvals,
    audit,
    commands,
    egress,
    events,
    file_archives,
    files,
    health,
    images,
    mcp,
    packs,
    policies,
    ports,
    processes,
    secrets,
    sessions,
    settings,
    terminals,
    tools,
)
from api.operation import Operation, operations_of

_MODULES = (
    *(sessions, settings, egress, secrets, images, commands, processes, files, file_archives),
    *(terminals, tools, approvals, ports, packs, mcp),
    *(events, audit, health, policies),
)
OPERATIONS: tuple[Operation, ...] = tuple(
    operation for module in _MODULES for operation in operations_of(module)
)
