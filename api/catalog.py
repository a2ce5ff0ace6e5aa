"""The list of all operations, in the order of the documents."""

from api.mcp import operations as mcp
from api.operations import (
    approvals,
    audit,
    break_glass,
    budgets,
    code,
    commands,
    egress,
    events,
    file_archives,
    file_trees,
    files,
    forks,
    health,
    hooks,
    images,
    keys,
    live_terminals,
    memory,
    models,
    named_snapshots,
    node_reports,
    nodes,
    owners,
    packs,
    policies,
    ports,
    processes,
    proposals,
    run_sockets,
    runs,
    secrets,
    session_changes,
    sessions,
    settings,
    shells,
    sign_in,
    snapshots,
    spawns,
    templates,
    terminals,
    tools,
    turns,
    usage,
    volumes,
)
from api.shape.operation import Operation, operations_of

_MODULES = (
    *(sessions, session_changes, break_glass, budgets, settings, usage, egress, secrets, memory),
    *(images, models, volumes),
    templates,
    *(commands, processes, shells, code, files, file_archives, file_trees, terminals),
    *(live_terminals, tools, turns, runs, run_sockets, spawns, forks),
    *(approvals, proposals, snapshots, named_snapshots, ports, packs, mcp),
    *(events, hooks, audit, owners, health, policies, keys, sign_in, nodes, node_reports),
)
OPERATIONS: tuple[Operation, ...] = tuple(
    operation for module in _MODULES for operation in operations_of(module)
)
