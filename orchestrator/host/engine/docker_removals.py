"""Removes containers, a few at a time; those that could not be removed are tried again."""

import logging

from orchestrator.ground.errors import EngineUnavailableError
from orchestrator.ground.lane import Lane
from orchestrator.ground.task_scope import TaskScope
from orchestrator.host.engine import docker_containers
from orchestrator.host.engine.docker_calls import EngineCalls

_log = logging.getLogger(__name__)


class Removals:
    """A removal takes long. However many there are, stops and creations find a thread."""

    def __init__(self, calls: EngineCalls, most: int) -> None:
        """At most so many at a time."""
        self._calls = calls
        self._lane = Lane(most, calls.timeout)
        # Containers that the engine could not remove. It is asked again when it is back.
        self._unremoved: set[str] = set()
        self._again = TaskScope("the removal of containers")

    async def remove(self, container_id: str) -> None:
        """See `Engine.remove`."""
        try:
            await self._remove(container_id)
        except EngineUnavailableError:
            self._unremoved.add(container_id)
            raise
        self._unremoved.discard(container_id)

    def try_again(self) -> None:
        """Begins to remove what could not be removed."""
        self._again.spawn(self._remove_again())

    async def close(self) -> None:
        """Ends the background work."""
        await self._again.close()

    async def _remove(self, container_id: str) -> None:
        try:
            removal = await self._lane.begin(
                lambda: self._calls.submit(
                    lambda client: docker_containers.remove(client, container_id)
                )
            )
        except TimeoutError as error:
            raise EngineUnavailableError(
                f"the container engine removed no container within {self._calls.timeout:g} s"
            ) from error
        await self._calls.answer("remove a container", removal)

    async def _remove_again(self) -> None:
        for container_id in list(self._unremoved):
            try:
                await self.remove(container_id)
            except EngineUnavailableError as error:
                _log.error("container %s stays: %s", container_id[:12], error.detail)
