"""An in-memory engine for tests: it keeps records, runs hooks, and fails on demand."""

import asyncio
from collections import defaultdict
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from orchestrator.ground.errors import EngineUnavailableError
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
from sandbox_agent.decide.facilities import Kernel

Hook = Callable[[SandboxSpec], Awaitable[None]]


class FakeEngine(Engine):
    """Containers that are only records.

    `on_start` is awaited when a container starts (a test's agent connects there) and `on_stop` when
    it ends. `containers` and `specs` are keyed by container id, and `calls` lists the names of the
    called methods in order.
    """

    def __init__(
        self,
        instance: str = "0a1b2c3d",
        *,
        images: dict[str, Image] | None = None,
        on_start: Hook | None = None,
        on_stop: Hook | None = None,
    ) -> None:
        """Without `images`, every image exists and has no labels."""
        self.containers: dict[str, Container] = {}
        self.specs: dict[str, SandboxSpec] = {}
        self.calls: list[str] = []
        self.open_network = False
        self.renewals = 0
        self.sandbox_kernel = Kernel(landlock=7, notification=True, undisturbed=True, mdwe=True)
        self.described = EngineInfo(
            *("fake", "2"),
            rootless=False,
            userns_remap=False,
            runtimes=("runc",),
            default_runtime="runc",
        )
        self.closed = False
        # What it finds when it looks into an image.
        self.found: dict[str, Any] = {}
        self.no_root_inside: str | None = None
        self._instance = instance
        self._images = images
        self._on_start = on_start
        self._on_stop = on_stop
        self._failures: defaultdict[str, list[Exception]] = defaultdict(list)
        self._hangs: defaultdict[str, list[asyncio.Event]] = defaultdict(list)
        self._readers: set[asyncio.Queue[EngineEvent | None]] = set()
        self._made = 0

    def fail_next(self, method: str, error: Exception | None = None) -> None:
        """Makes the next call of `method` raise `error`, or EngineUnavailableError."""
        self._failures[method].append(error or EngineUnavailableError(f"{method} failed"))

    def hang_next(self, method: str) -> asyncio.Event:
        """Makes the next call of `method` wait until the returned event is set."""
        released = asyncio.Event()
        self._hangs[method].append(released)
        return released

    def emit(self, action: str, container_id: str = "", exit_code: int | None = None) -> None:
        """Sends an event to every reader."""
        container = self.containers.get(container_id)
        labels = dict(container.labels) if container else {}
        for reader in self._readers:
            reader.put_nowait(EngineEvent(action, container_id, labels, exit_code))

    async def die(self, container_id: str, exit_code: int = 137, oom_killed: bool = False) -> None:
        """Ends the container's first process."""
        self.containers[container_id] = replace(
            self.containers[container_id],
            state=ContainerState.EXITED,
            exit_code=exit_code,
            oom_killed=oom_killed,
        )
        self.emit("die", container_id, exit_code)
        if self._on_stop:
            await self._on_stop(self.specs[container_id])

    async def info(self) -> EngineInfo:
        """See `Engine.info`."""
        await self._enter("info")
        return self.described

    async def image(self, name: str) -> Image | None:
        """See `Engine.image`."""
        await self._enter("image")
        if self._images is None:
            return Image(id=f"sha256:{name}", labels={})
        by_id = (each for each in self._images.values() if each.id == name)
        return self._images.get(name) or next(by_id, None)

    async def images(self, names: Sequence[str]) -> dict[str, Image]:
        """See `Engine.images`."""
        await self._enter("images")
        if self._images is None:
            return {name: Image(id=f"sha256:{name}", labels={}) for name in names}
        return {name: self._images[name] for name in names if name in self._images}

    async def kernel(self, image: str, agent: MountedAgent, runtime: str | None) -> Kernel:
        """See `Engine.kernel`."""
        await self._enter("kernel")
        return self.sandbox_kernel

    async def root_inside(self, image: str, agent: MountedAgent, runtime: str | None) -> str | None:
        """See `Engine.root_inside`."""
        await self._enter("root_inside")
        return self.no_root_inside

    async def make_agent(self, image: str, target: str, code: Mapping[str, bytes]) -> None:
        """See `Engine.make_agent`."""
        await self._enter("make_agent")
        (Path(target) / "lib").mkdir()

    async def look_into(
        self, image: str, agent: MountedAgent, path: str, commands: Sequence[str]
    ) -> dict[str, Any]:
        """See `Engine.look_into`."""
        await self._enter("look_into")
        return dict(self.found)

    async def refuse_links(
        self,
        image: str,
        directories: Sequence[str],
        files: Sequence[str],
        absent: Sequence[str],
    ) -> None:
        """See `Engine.refuse_links`."""
        await self._enter("refuse_links")

    async def create(self, spec: SandboxSpec) -> str:
        """See `Engine.create`."""
        await self._enter("create")
        if any(container.name == spec.name for container in self.containers.values()):
            raise EngineUnavailableError(f"the name {spec.name} is taken")
        self._made += 1
        container_id = f"{self._made:064x}"
        limits = spec.limits
        self.specs[container_id] = spec
        self.containers[container_id] = Container(
            id=container_id,
            name=spec.name,
            labels={**spec.labels, LABEL_INSTANCE: self._instance},
            state=ContainerState.RUNNING,
            limits={
                "cpus": limits.cpus,
                "memory_bytes": limits.memory_bytes,
                "pids": limits.pids,
            },
            runtime=spec.runtime or self.described.default_runtime,
        )
        try:
            if self._on_start:
                await self._on_start(spec)
        except BaseException:
            del self.containers[container_id], self.specs[container_id]
            raise
        return container_id

    async def inspect(self, container_id: str) -> Container | None:
        """See `Engine.inspect`."""
        await self._enter("inspect")
        return self.containers.get(container_id)

    async def list(self) -> list[Container]:
        """See `Engine.list`."""
        await self._enter("list")
        return [replace(container, limits={}) for container in self.containers.values()]

    async def pause(self, container_id: str) -> None:
        """See `Engine.pause`."""
        await self._enter("pause")
        self._change(container_id, ContainerState.PAUSED, "pause")

    async def resume(self, container_id: str) -> None:
        """See `Engine.resume`."""
        await self._enter("resume")
        self._change(container_id, ContainerState.RUNNING, "unpause")

    async def remove(self, container_id: str) -> None:
        """See `Engine.remove`."""
        await self._enter("remove")
        container = self.containers.get(container_id)
        if container is None:
            return
        if container.state is not ContainerState.EXITED:
            await self.die(container_id)
        self.containers.pop(container_id, None)
        self.specs.pop(container_id, None)

    async def logs(self, container_id: str) -> str:
        """See `Engine.logs`."""
        await self._enter("logs")
        return ""

    async def ensure_open_network(self, image: str, *, renew: bool = False) -> OpenNetwork:
        """See `Engine.ensure_open_network`."""
        await self._enter("ensure_open_network")
        self.renewals += renew
        self.open_network = True
        return OpenNetwork(f"paddock-open-{self._instance}", ("192.0.2.53",))

    async def close_names(self, container_id: str, image: str) -> None:
        """See `Engine.close_names`."""
        await self._enter("close_names")

    async def hold_device(
        self, image: str, device: str, rates: Rates, container_id: str | None = None
    ) -> None:
        """See `Engine.hold_device`."""
        await self._enter("hold_device")

    async def hold_link(self, image: str, container_id: str, rates: Rates) -> None:
        """See `Engine.hold_link`."""
        await self._enter("hold_link")

    async def try_link(self, image: str) -> None:
        """See `Engine.try_link`."""
        await self._enter("try_link")

    async def remove_open_network(self, image: str) -> None:
        """See `Engine.remove_open_network`."""
        await self._enter("remove_open_network")
        self.open_network = False

    async def events(self) -> AsyncGenerator[EngineEvent, None]:
        """See `Engine.events`."""
        reader: asyncio.Queue[EngineEvent | None] = asyncio.Queue()
        self._readers.add(reader)
        reader.put_nowait(EngineEvent("resync", "", {}))
        try:
            while (event := await reader.get()) is not None:
                yield event
        finally:
            self._readers.discard(reader)

    async def close(self) -> None:
        """See `Engine.close`."""
        self.closed = True
        for reader in self._readers:
            reader.put_nowait(None)

    async def _enter(self, method: str) -> None:
        self.calls.append(method)
        if self._hangs[method]:
            await self._hangs[method].pop(0).wait()
        if self._failures[method]:
            raise self._failures[method].pop(0)

    def _change(self, container_id: str, state: ContainerState, action: str) -> None:
        container = self.containers.get(container_id)
        if container is None or container.state is ContainerState.EXITED:
            raise EngineUnavailableError(f"the container does not run: can't {action} it")
        if container.state is not state:
            self.containers[container_id] = replace(container, state=state)
            self.emit(action, container_id)
