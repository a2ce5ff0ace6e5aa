"""Children of sessions: spawn one, or run a model in one."""

from collections.abc import AsyncGenerator
from contextlib import ExitStack, aclosing

from api.operations.runs import check_model
from api.operations.sessions import CREATING
from api.shape.access import Access, Glass
from api.shape.answers import HEARTBEAT_SECONDS, Created, Event, EventStream
from api.shape.context import Context
from api.shape.operation import SESSION, SESSIONS, Events, operation
from api.views import spawns as views
from api.views.runs import run_event
from api.views.sessions import created
from orchestrator.programs.spawning.spawned_runs import SpawnedRun, SpawnedRuns
from orchestrator.programs.spawning.spawning import Spawning
from orchestrator.sessions.sessions import Sessions
from orchestrator.work.models.models import Models
from paddock.contract.sessions import CreatedSession
from paddock.contract.spawns import SPAWN_EVENTS, SpawnBody
from paddock.contract.spawns import SpawnedRun as SpawnedRunView


@operation(
    "POST",
    SESSION + "/spawn",
    Access.MANAGE,
    tag="Sessions",
    summary="Spawn a child of a session",
    answers={
        200: "The run in the child as it ended, or its events as they happen.",
        201: "The child, with its handle.",
    },
    errors=(*CREATING, "session_terminated", "invalid_transition", "busy", "permission_denied"),
    examples={
        "child": {"label": "reader", "workspace": "read-only", "permission_level": "low"},
        "run": {"label": "reader", "messages": [{"content": "What does the README say?"}]},
    },
    events=Events(SPAWN_EVENTS, "the events so far"),
    glass=Glass.LASTING,
)
async def spawn_session(
    context: Context,
    sessions: Sessions,
    spawning: Spawning,
    spawned_runs: SpawnedRuns,
    models: Models,
    body: SpawnBody,
) -> SpawnedRunView | EventStream | Created[CreatedSession]:
    """Creates a child: a session with a sandbox of its own, and at most what its parent has.

    It ends with its parent. With `messages`, a model runs in it; then it is closed, and a workspace
    of its own is removed. Such a run continues if its client goes away. What fails in it is its
    result, not an error.
    """
    if body.messages is not None:
        return await _run(context, spawned_runs, models, body)
    parent, principal, work = context.session(), context.principal, context.work
    registered = await work.complete(
        spawning.spawn(principal, parent, views.spawn_request(body)),
        lambda made: work.detach(sessions.close(principal, made.session, purge=True)),
    )
    return Created(created(registered, principal), f"{SESSIONS}/{registered.session.id}")


async def _run(
    context: Context, spawned_runs: SpawnedRuns, models: Models, body: SpawnBody
) -> SpawnedRunView | EventStream:
    check_model(models, body.model)
    parent = context.session()
    with ExitStack() as held:
        if context.wants_events:
            held.enter_context(context.streaming("output", parent))
        spawned = await context.work.complete(
            spawned_runs.begin(
                context.principal, parent, views.spawn_request(body), views.agent_run(body)
            )
        )
        if context.wants_events:
            return EventStream(_watch(spawned), held.pop_all())
    await spawned_runs.wait(spawned)
    return views.spawned_run(spawned)


async def _watch(spawned: SpawnedRun) -> AsyncGenerator[Event | None]:
    """Yields what happens, up to `spawn_end`; None after a while without anything."""
    async with aclosing(spawned.feed.follow(HEARTBEAT_SECONDS)) as events:
        async for each in events:
            yield None if each is None else run_event(SPAWN_EVENTS, *each)
