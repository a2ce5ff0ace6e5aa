"""The Docker engine. Only this family of modules talks to its socket."""

from collections.abc import AsyncGenerator, Mapping, Sequence
from functools import partial
from typing import Any

import docker
from docker.errors import NotFound

from orchestrator.host.engine import (
    docker_agent,
    docker_containers,
    docker_kernel,
    docker_rates,
    docker_records,
)
from orchestrator.host.engine.base import (
    LABEL_INSTANCE,
    Container,
    ContainerState,
    Engine,
    EngineEvent,
    EngineInfo,
    Image,
    MountedAgent,
    OpenNetwork,
    Rates,
    SandboxSpec,
)
from orchestrator.host.engine.docker_calls import EngineCalls
from orchestrator.host.engine.docker_creations import Creations
from orchestrator.host.engine.docker_events import EventStream
from orchestrator.host.engine.docker_network import Bridge
from orchestrator.host.engine.docker_removals import Removals
from orchestrator.host.engine.docker_resolvers import close_engines_own
from sandbox_agent.decide.facilities import Kernel

LOG_LINES = 100
# Making the agent, or a look into an image, takes as long as so many other calls.
_LONG_STEPS = 5
# An agent that has hung up is about to end; one that hangs is not.
_ENDING_SECONDS = 2


class DockerEngine(Engine):
    """Sandboxes as containers of one Docker engine."""

    def __init__(
        self,
        instance: str,
        *,
        host: str | None = None,
        timeout: float = 30.0,
        threads: int = 8,
        resolvers: tuple[str, ...] = (),
    ) -> None:
        """Contacts nothing before the first call.

        `host` is as in DOCKER_HOST, None for the environment's; `timeout` is in seconds.
        `resolvers` are for sandboxes with a network; if there are none, those of the host are used.
        """
        self.instance = instance
        self._calls = EngineCalls(host, timeout, threads)
        self._removals = Removals(self._calls, max(1, threads // 2))
        self._network = Bridge(instance, resolvers)
        self._creations = Creations(self._calls, instance, self._network)
        self._streams: set[EventStream] = set()

    async def info(self) -> EngineInfo:
        """See `Engine.info`."""
        return await self._calls.call(
            "describe itself", lambda c: docker_records.engine_info(c.info(), c.version())
        )

    async def image(self, name: str) -> Image | None:
        """See `Engine.image`."""

        def look(client: docker.APIClient) -> Image | None:
            try:
                return docker_records.image(
                    client.inspect_image(name)  # type: ignore[no-untyped-call]
                )
            except NotFound:
                return None

        return await self._calls.call("look for an image", look)

    async def images(self, names: Sequence[str]) -> dict[str, Image]:
        """See `Engine.images`."""
        return await self._calls.call(
            "list images", lambda client: docker_records.named_images(client.images(), names)
        )

    async def kernel(self, image: str, agent: MountedAgent, runtime: str | None) -> Kernel:
        """See `Engine.kernel`."""
        return await self._calls.call(
            "look at a sandbox's kernel",
            lambda client: docker_kernel.look(client, self.instance, image, agent, runtime),
        )

    async def root_inside(self, image: str, agent: MountedAgent, runtime: str | None) -> str | None:
        """See `Engine.root_inside`."""
        return await self._calls.call(
            "try root inside",
            lambda client: docker_kernel.root_inside(client, self.instance, image, agent, runtime),
        )

    async def make_agent(self, image: str, target: str, code: Mapping[str, bytes]) -> None:
        """See `Engine.make_agent`."""
        await self._calls.call(
            "make the agent",
            lambda client: docker_agent.make_agent(client, self.instance, image, target, code),
            steps=_LONG_STEPS,
        )

    async def look_into(
        self, image: str, agent: MountedAgent, path: str, commands: Sequence[str]
    ) -> dict[str, Any]:
        """See `Engine.look_into`."""
        look = partial(docker_agent.look_into, path=path, commands=commands)
        return await self._calls.call(
            "look into an image",
            lambda client: look(client, self.instance, image, agent),
            steps=_LONG_STEPS,
        )

    async def refuse_links(
        self,
        image: str,
        directories: Sequence[str],
        files: Sequence[str],
        absent: Sequence[str],
    ) -> None:
        """See `Engine.refuse_links`."""
        refuse = partial(
            docker_agent.refuse_links, directories=directories, files=files, absent=absent
        )
        await self._calls.call(
            "look at an image's paths",
            lambda client: refuse(client, self.instance, image),
            steps=2,
        )

    async def create(self, spec: SandboxSpec) -> str:
        """See `Engine.create`."""
        return await self._creations.create(spec)

    async def inspect(self, container_id: str) -> Container | None:
        """See `Engine.inspect`."""
        return await self._calls.call(
            "inspect a container", lambda c: docker_containers.inspect(c, container_id)
        )

    async def list(self) -> list[Container]:
        """See `Engine.list`."""
        filters = {"label": [f"{LABEL_INSTANCE}={self.instance}"]}

        def look(client: docker.APIClient) -> list[Container]:
            return [docker_records.listed(c) for c in client.containers(all=True, filters=filters)]

        return await self._calls.call("list containers", look)

    async def pause(self, container_id: str) -> None:
        """See `Engine.pause`."""

        def freeze(client: docker.APIClient) -> None:
            docker_containers.unless_already(
                client, client.pause, container_id, ContainerState.PAUSED
            )

        await self._calls.call("pause a container", freeze)

    async def resume(self, container_id: str) -> None:
        """See `Engine.resume`."""

        def thaw(client: docker.APIClient) -> None:
            docker_containers.unless_already(
                client, client.unpause, container_id, ContainerState.RUNNING
            )

        await self._calls.call("resume a container", thaw)

    async def remove(self, container_id: str) -> None:
        """See `Engine.remove`."""
        await self._removals.remove(container_id)

    async def logs(self, container_id: str) -> str:
        """See `Engine.logs`: at most the last 100 lines; a process that is ending says its last."""

        def read(client: docker.APIClient) -> str:
            try:
                docker_containers.wait_for_end(client, container_id, _ENDING_SECONDS)
                output: bytes = client.logs(container_id, tail=LOG_LINES)
            except NotFound:
                return ""
            return output.decode(errors="replace")

        return await self._calls.call("read a container's log", read)

    async def ensure_open_network(self, image: str, *, renew: bool = False) -> OpenNetwork:
        """See `Engine.ensure_open_network`."""
        if renew or not self._network.trusted():
            await self._calls.call(
                "make the open network",
                lambda client: self._network.ensure(client, image, renew=renew),
                steps=Bridge.STEPS,
            )
        network = self._network
        return OpenNetwork(network.name, network.resolvers, network.links.network is not None)

    async def close_names(self, container_id: str, image: str) -> None:
        """See `Engine.close_names`."""
        await self._calls.call(
            "take its name server from a sandbox",
            lambda client: close_engines_own(client, image, self.instance, container_id),
        )

    async def hold_device(
        self, image: str, device: str, rates: Rates, container_id: str | None = None
    ) -> None:
        """See `Engine.hold_device`."""
        hold = partial(docker_rates.hold_device, rates=rates, container_id=container_id)
        await self._calls.call(
            "hold a disk to its rates",
            lambda client: hold(client, image, self.instance, device),
        )

    async def hold_link(self, image: str, container_id: str, rates: Rates) -> None:
        """See `Engine.hold_link`."""
        hold = partial(docker_rates.hold_link, bridge=self._network.bridge, rates=rates)
        await self._calls.call(
            "hold a network to its rates",
            lambda client: hold(client, image, self.instance, container_id),
            steps=2,
        )

    async def try_link(self, image: str) -> None:
        """See `Engine.try_link`."""
        await self._calls.call(
            "try rates of a network",
            lambda client: docker_rates.try_link(client, image, self.instance),
        )

    async def remove_open_network(self, image: str) -> None:
        """See `Engine.remove_open_network`."""
        await self._calls.call(
            "remove the open network",
            lambda client: self._network.remove(client, image),
            steps=2,
        )

    async def events(self) -> AsyncGenerator[EngineEvent, None]:
        """See `Engine.events`; close the generator to end its thread."""
        stream = EventStream(self._calls.connect, self.instance, self._calls.timeout)
        self._streams.add(stream)
        generator = stream.events()
        try:
            async for event in generator:
                if event.action == "resync":  # the engine may have been restarted
                    self._network.distrust()
                    self._creations.forget()
                    self._removals.try_again()
                yield event
        finally:
            self._streams.discard(stream)
            await generator.aclose()

    async def close(self) -> None:
        """See `Engine.close`; waits for running calls, which their time-outs bound."""
        for stream in list(self._streams):
            stream.stop()
        await self._removals.close()
        await self._calls.close()
