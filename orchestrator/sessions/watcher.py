"""Follows the engine's events to notice at once when a sandbox ends or runs out of memory."""

from contextlib import aclosing

from orchestrator.ground.events import EventDraft, Made
from orchestrator.ground.tasks import Rounds, Supervised, TaskName, Tasks
from orchestrator.host.engine.base import Container, ContainerState, Engine, EngineEvent
from orchestrator.record.audit.recorder import Recorder
from orchestrator.sandbox.sandboxes.warm_pool import WarmPool
from orchestrator.sessions.sessions import Sessions

# The time limit for one event, or for the check of all containers.
_ROUND_SECONDS = 120.0


class Watcher:
    """Maps engine events to their consequences for sessions, and for sandboxes that wait."""

    def __init__(
        self,
        engine: Engine,
        recorder: Recorder,
        sessions: Sessions,
        pool: WarmPool,
        tasks: Tasks,
    ) -> None:
        self._engine = engine
        self._recorder = recorder
        self._sessions = sessions
        self._pool = pool
        self._tasks = tasks
        self._rounds = Rounds(_ROUND_SECONDS)
        self._task: Supervised | None = None

    def start(self) -> None:
        """Begins to follow."""
        self._task = self._tasks.start(TaskName.ENGINE_EVENTS, self._follow, rounds=self._rounds)

    async def close(self) -> None:
        """Stops following."""
        if self._task is not None:
            await self._task.close()

    async def _follow(self) -> None:
        """Any failure ends it; after a restart, it first checks all containers."""
        async with aclosing(self._engine.events()) as events:
            async for event in events:
                with self._rounds.round():
                    await self._handle(event)

    async def _handle(self, event: EngineEvent) -> None:
        if event.action == "resync":
            await self._look_at_all()
        elif event.action == "die":
            self._pool.ended(event.container_id)
            container = await self._engine.inspect(event.container_id)
            await self._sessions.crashed(container or _gone(event.container_id, event.exit_code))
        elif event.action == "oom":
            # A command was killed; the agent, and with it the sandbox, continues.
            session = self._sessions.finder.by_container(event.container_id)
            if session is not None:
                await self._recorder.record_often(
                    session,
                    EventDraft(
                        "command.oom",
                        actor="system",
                        source="engine",
                        made=Made({"commands": [command.id for command in session.running]}),
                    ),
                )

    async def _look_at_all(self) -> None:
        """Ends the sessions whose containers ended while nobody listened."""
        # A sandbox that starts while the list is made is in neither of the two.
        known = [session.sandbox for session in self._sessions.registry.sandboxed]
        waiting = self._pool.container_ids
        containers = {container.id: container for container in await self._engine.list()}
        for container_id in waiting:
            container = containers.get(container_id)
            if container is None or container.state is ContainerState.EXITED:
                self._pool.ended(container_id)
        failed: Exception | None = None
        for sandbox in known:
            if sandbox is None:
                continue
            container = containers.get(sandbox.container_id) or _gone(sandbox.container_id, None)
            if container.state is ContainerState.EXITED:
                try:
                    await self._sessions.crashed(container)
                except Exception as error:  # noqa: BLE001 - raised when the others have ended, too
                    failed = error
        if failed is not None:
            raise failed


def _gone(container_id: str, exit_code: int | None) -> Container:
    return Container(container_id, "", {}, ContainerState.EXITED, exit_code)
