"""Views of spawns, and requests for them."""

from api.views import runs
from api.views.policies import named_or_given
from orchestrator.programs.spawning import spawned_runs as domain
from orchestrator.programs.turns.inheritance import SpawnRequest
from orchestrator.programs.turns.turn import AgentRun
from paddock.contract.spawns import SpawnBody, SpawnedRun

_USUAL = AgentRun()


def spawn_request(body: SpawnBody) -> SpawnRequest:
    """The domain's request."""
    return SpawnRequest(
        label=body.label,
        workspace=body.workspace,
        permission_level=body.permission_level,
        budget=body.budget.model_dump(exclude_none=True),
        policy=named_or_given(body.policy),
        idle_timeout=body.idle_timeout,
    )


def agent_run(body: SpawnBody) -> AgentRun:
    """The run in the child."""
    return AgentRun(
        tuple(message.content for message in body.messages or ()),
        body.model or "",
        body.system,
        body.max_ticks or _USUAL.max_ticks,
    )


def spawned_run(shown: domain.SpawnedRun) -> SpawnedRun:
    """A run in a child, as it ended."""
    named, result = shown.named(), shown.result
    return SpawnedRun(
        spawn_id=named["spawn_id"],
        child_session_id=named["child_session_id"],
        label=named["label"],
        text=result.text,
        is_error=result.is_error,
        error=result.error,
        turn=None if shown.turn is None else runs.run(shown.turn, shown.operations),
    )
