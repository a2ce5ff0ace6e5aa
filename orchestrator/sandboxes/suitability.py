"""Whether this host, its engine, an image and a sandbox can enforce a level."""

from orchestrator.engine.base import Engine
from orchestrator.errors import (
    EngineUnavailableError,
    SandboxUnavailableError,
)
from orchestrator.link.messages import Hello
from orchestrator.node.host import Host
from orchestrator.policy.levels import Level
from orchestrator.policy.requirements import check
from orchestrator.sandboxes.allowed_images import usable


class Suitability:
    """Refuses what can't be enforced, instead of weakening it."""

    def __init__(self, engine: Engine, host: Host) -> None:
        self._engine = engine
        self._host = host
        self._checked_images: set[str] = set()
        self._engine_checked = False

    async def check_level(self, level: Level) -> None:
        """Raises UnmetError if this host can't enforce the level, before anything begins."""
        facts = await self._host.facts()
        check(level.name, level.requires, facts, "on this host", level.rates)

    async def check_image(self, image: str) -> None:
        """Checks the engine and the image, once, before anything is created.

        Raises: EngineUnavailableError if this engine can't confine sandboxes or lacks the image;
        ValidationError if the image is not a sandbox image.
        """
        await self._check_engine()
        if image not in self._checked_images:
            await self.image_id(image)
            self._checked_images.add(image)

    async def image_id(self, image: str) -> str:
        """The id of the image that has that name now. Raises: as `check_image`."""
        await self._check_engine()
        return usable(image, await self._engine.image(image)).id

    async def _check_engine(self) -> None:
        """Raises: EngineUnavailableError if this engine can't confine sandboxes."""
        if not self._engine_checked:
            info = await self._engine.info()
            if info.rootless or info.userns_remap:
                raise EngineUnavailableError(
                    "rootless engines and userns-remap are not supported: use a rootful engine"
                )
            self._engine_checked = True

    async def check_sandbox(self, level: Level, hello: Hello | None) -> None:
        """Raises UnmetError if the sandbox lacks a feature: a runtime may offer less."""
        if hello is None:
            raise SandboxUnavailableError("the sandbox agent did not report its features")
        host = await self._host.facts()
        facts = host.within(hello.landlock_abi, hello.seccomp)
        check(level.name, level.requires, facts, "in a sandbox of this engine")
