"""Creates containers. One that nobody waits for any more, or that can't start, is removed."""

import logging
from concurrent.futures import Future
from dataclasses import replace
from typing import Any

import docker
from docker.errors import APIError, DockerException, ImageNotFound

from orchestrator.ground.errors import EngineUnavailableError
from orchestrator.ground.fault_points import FaultPoint
from orchestrator.host.engine import docker_containers, docker_kernel, docker_records
from orchestrator.host.engine.base import LABEL_LINK, SandboxSpec, missing_image
from orchestrator.host.engine.docker_calls import EngineCalls
from orchestrator.host.engine.docker_network import Bridge
from orchestrator.host.engine.docker_spec import (
    container_config,
    refuse_dropped_limits,
    unknown_runtime,
)

_log = logging.getLogger(__name__)


class Creations:
    """Creates sandboxes' containers, with the labels of this instance."""

    def __init__(self, calls: EngineCalls, instance: str, network: Bridge) -> None:
        self._calls = calls
        self._instance = instance
        self._network = network
        self._described: dict[str, Any] | None = None

    def forget(self) -> None:
        """Makes the next creation look at the engine again, which may have been restarted."""
        self._described = None

    async def create(self, spec: SandboxSpec) -> str:
        """See `Engine.create`."""
        future = self._calls.submit(lambda client: self._make(client, spec))
        try:
            return await self._calls.answer("start the sandbox", future)
        except BaseException:
            # The thread continues after a time-out. If it still makes a container, nobody owns it.
            future.add_done_callback(self._discard)
            raise

    def _make(self, client: docker.APIClient, spec: SandboxSpec) -> str:
        engine = self._engine(client)
        linked = self._is_linked(spec, engine)
        made = self._made(client, _without_network(spec) if linked else spec, engine)
        container_id: str = made["Id"]
        FaultPoint.CREATE_CONTAINER_MADE.reached()
        try:
            refuse_dropped_limits(made.get("Warnings"))
            client.start(container_id)
            if linked:
                FaultPoint.LINK_STARTED.reached()
                self._network.links.connect(client.inspect_container(container_id))
                FaultPoint.LINK_MADE.reached()
        except BaseException:
            if spec.network:  # it may be gone
                self._network.distrust()
            _remove_left_over(client, container_id)
            raise
        return container_id

    def _made(
        self, client: docker.APIClient, spec: SandboxSpec, engine: dict[str, Any]
    ) -> dict[str, Any]:
        config = container_config(
            spec,
            self._instance,
            ipv6=docker_kernel.has_ipv6(),
            # Somebody may have set it, and it may be stricter than ours.
            engines_profile=docker_records.has_set_profile(engine),
        )
        try:
            made: dict[str, Any] = client.create_container_from_config(  # type: ignore[no-untyped-call]
                config, spec.name
            )
        except ImageNotFound as error:
            raise missing_image(spec.image) from error
        except APIError as error:
            if error.status_code != 409:  # the name belongs to another container
                _remove_left_over(client, spec.name)
            raise unknown_runtime(spec.runtime, error.explanation) or error from None
        except (DockerException, OSError):
            _remove_left_over(client, spec.name)
            raise
        return made

    def _is_linked(self, spec: SandboxSpec, engine: dict[str, Any]) -> bool:
        """Whether its link is made here, and not by the engine."""
        runtime = spec.runtime or engine.get("DefaultRuntime")
        return spec.network is not None and self._network.links.serve(runtime)

    def _engine(self, client: docker.APIClient) -> dict[str, Any]:
        """The engine's description of itself, as it was when it was asked first."""
        if self._described is None:
            self._described = client.info()
        return self._described

    def _discard(self, created: Future[str]) -> None:
        """Removes the container of a `create` call that nobody waits for any more."""
        if created.cancelled() or created.exception() is not None:
            return
        container_id = created.result()
        try:
            self._calls.submit(lambda client: _remove_left_over(client, container_id))
        except EngineUnavailableError:  # closing: this is the last thread
            _remove_left_over(self._calls.connect(), container_id)


def _without_network(spec: SandboxSpec) -> SandboxSpec:
    """The same, for a container that is linked to its network later."""
    return replace(spec, network=None, labels={**spec.labels, LABEL_LINK: "own"})


def _remove_left_over(client: docker.APIClient, name: str) -> None:
    try:
        docker_containers.remove(client, name)
    except (DockerException, OSError) as error:
        # Its label names this instance, so the next start removes it.
        _log.warning("a container could not be removed: %s: %s", name, str(error))
