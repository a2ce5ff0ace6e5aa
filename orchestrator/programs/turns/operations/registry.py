"""All operations of turns by their names."""

from collections.abc import Mapping

from orchestrator.programs.turns.operations import (
    code,
    commands,
    memory,
    models,
    notes,
    queries,
    spawns,
    tools,
    world,
)
from orchestrator.programs.turns.operations.turn_operation import TurnOperation

OPERATIONS: Mapping[str, TurnOperation] = {
    each.name: each
    for module in (world, commands, code, tools, models, notes, memory, spawns, queries)
    for each in module.OPERATIONS
}
# The names that programs call as functions.
NAMES = frozenset(each.name for each in OPERATIONS.values() if not (each.query or each.form))
QUERIES = frozenset(each.name for each in OPERATIONS.values() if each.query)
