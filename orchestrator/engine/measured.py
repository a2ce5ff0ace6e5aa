"""An engine whose calls are measured."""

from collections.abc import AsyncGenerator

from orchestrator.engine.base import (
    Container,
    Engine,
    EngineEvent,
    EngineInfo,
    Image,
    OpenNetwork,
    Rates,
    SandboxKernel,
    SandboxSpec,
)
from orchestrator.metrics import Metrics


class MeasuredEngine(Engine):
    """Hands every call on, and records how long it took and whether it failed."""

    def __init__(self, engine: Engine, metrics: Metrics) -> None:
        self._engine = engine
        self._measure = metrics.engine_call

    async def info(self) -> EngineInfo:
        """See `Engine.info`."""
        with self._measure("info"):
            return await self._engine.info()

    async def image(self, name: str) -> Image | None:
        """See `Engine.image`."""
        with self._measure("image"):
            return await self._engine.image(name)

    async def kernel(self, image: str, runtime: str | None) -> SandboxKernel:
        """See `Engine.kernel`."""
        with self._measure("kernel"):
            return await self._engine.kernel(image, runtime)

    async def create(self, spec: SandboxSpec) -> str:
        """See `Engine.create`."""
        with self._measure("create"):
            return await self._engine.create(spec)

    async def inspect(self, container_id: str) -> Container | None:
        """See `Engine.inspect`."""
        with self._measure("inspect"):
            return await self._engine.inspect(container_id)

    async def list(self) -> list[Container]:
        """See `Engine.list`."""
        with self._measure("list"):
            return await self._engine.list()

    async def pause(self, container_id: str) -> None:
        """See `Engine.pause`."""
        with self._measure("pause"):
            await self._engine.pause(container_id)

    async def resume(self, container_id: str) -> None:
        """See `Engine.resume`."""
        with self._measure("resume"):
            await self._engine.resume(container_id)

    async def remove(self, container_id: str) -> None:
        """See `Engine.remove`."""
        with self._measure("remove"):
            await self._engine.remove(container_id)

    async def logs(self, container_id: str) -> str:
        """See `Engine.logs`."""
        with self._measure("logs"):
            return await self._engine.logs(container_id)

    async def ensure_open_network(self, image: str) -> OpenNetwork:
        """See `Engine.ensure_open_network`."""
        with self._measure("ensure_open_network"):
            return await self._engine.ensure_open_network(image)

    async def close_names(self, container_id: str, image: str) -> None:
        """See `Engine.close_names`."""
        with self._measure("close_names"):
            await self._engine.close_names(container_id, image)

    async def hold_device(
        self, image: str, device: str, rates: Rates, container_id: str | None = None
    ) -> None:
        """See `Engine.hold_device`."""
        with self._measure("hold_device"):
            await self._engine.hold_device(image, device, rates, container_id)

    async def hold_link(self, image: str, container_id: str, rates: Rates) -> None:
        """See `Engine.hold_link`."""
        with self._measure("hold_link"):
            await self._engine.hold_link(image, container_id, rates)

    async def try_link(self, image: str) -> None:
        """See `Engine.try_link`."""
        with self._measure("try_link"):
            await self._engine.try_link(image)

    async def remove_open_network(self, image: str) -> None:
        """See `Engine.remove_open_network`."""
        with self._measure("remove_open_network"):
            await self._engine.remove_open_network(image)

    def events(self) -> AsyncGenerator[EngineEvent, None]:
        """See `Engine.events`; not measured: it lasts."""
        return self._engine.events()

    async def close(self) -> None:
        """See `Engine.close`."""
        await self._engine.close()
