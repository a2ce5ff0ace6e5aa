"""The operation that runs a model in a child of the session."""

from typing import cast, get_args

from orchestrator.programs.turns.inheritance import SpawnRequest
from orchestrator.programs.turns.operations.context import OperationContext
from orchestrator.programs.turns.operations.turn_operation import Done, turn_operation
from orchestrator.programs.turns.outcome import Value
from orchestrator.programs.turns.programs import OperationFailed
from orchestrator.programs.turns.turn import AgentRun
from paddock.contract.spawns import MOST_LABEL
from paddock.contract.words import SpawnedWorkspace

_MOST_TASK_BYTES = 64 * 1024
_WORKSPACES = get_args(SpawnedWorkspace)


async def spawn(
    context: OperationContext,
    task: str,
    label: str = "",
    workspace: str = "own",
    permission_level: str = "",
    *,
    call: str | None = None,
    among: int = 1,
) -> Done:
    """Has a model do a task in a child of the session; its text, whether it failed, and why."""
    if not 1 <= len(task.encode(errors="replace")) <= _MOST_TASK_BYTES:
        raise OperationFailed(f"spawn: task must have 1 to {_MOST_TASK_BYTES} bytes")
    if len(label) > MOST_LABEL:
        raise OperationFailed(f"spawn: label may have at most {MOST_LABEL} characters")
    if workspace not in _WORKSPACES:
        raise OperationFailed(f"spawn: workspace must be one of {', '.join(_WORKSPACES)}")
    if context.scopes.nested:
        raise OperationFailed("spawn: a nested program, or a part with a budget, can't spawn")
    conversation = context.conversation
    own = AgentRun() if conversation is None else conversation.run
    spawned = await context.services.spawn(
        context.principal,
        context.session,
        SpawnRequest(
            label=label or None,
            workspace=cast(SpawnedWorkspace, workspace),
            permission_level=permission_level or None,
            among=among,
        ),
        AgentRun(
            (task,),
            own.model,
            max_ticks=own.max_ticks,
            tools=own.tools,
            seconds=own.seconds,
        ),
        None if conversation is None else conversation.feed,
        call,
    )
    result = spawned.result
    value: Value = (
        ("text", result.text or ""),
        ("is-error", result.is_error),
        ("error", result.error or ""),
    )
    recorded = {
        "spawn_id": spawned.spawn_id,
        "child_session_id": spawned.child.id,
        "is_error": result.is_error,
    }
    return Done(value, recorded)


OPERATIONS = (turn_operation("spawn", spawn),)
