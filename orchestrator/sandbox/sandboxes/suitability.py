"""Whether this host, its engine, an image and a sandbox can enforce a level."""

from orchestrator.ground.errors import (
    EngineUnavailableError,
    SandboxUnavailableError,
    ValidationError,
)
from orchestrator.host.engine.base import Engine
from orchestrator.host.engine.fitness import unfit
from orchestrator.host.engine.runtimes import Runtimes
from orchestrator.host.link.messages import Hello
from orchestrator.host.node.host import Host
from orchestrator.host.node.requirements import check
from orchestrator.rules.policy.levels import ROOT, Level
from orchestrator.sandbox.images.checked_images import CheckedImages
from orchestrator.sandbox.sandboxes.allowed_images import usable

_REMEDY = (
    "Use another `runtime`, in the level's file or in PADDOCK_RUNTIME, or a level whose `requires` "
    "goes `without` it"
)


class Suitability:
    """Refuses what can't be enforced, instead of weakening it."""

    def __init__(
        self, engine: Engine, host: Host, checked: CheckedImages, runtimes: Runtimes
    ) -> None:
        self._engine = engine
        self._checked = checked
        self._host = host
        self._runtimes = runtimes
        self._engine_checked = False

    async def check_level(self, level: Level, *, packed: bool = False) -> None:
        """Raises UnmetError if this host can't enforce the level, before anything begins.

        `packed`: the session's reads are limited to a pack. Raises: ValidationError if the level
        can have none.
        """
        if packed and level.user == ROOT:
            raise ValidationError(
                f"level {level.name} can have no context pack: its commands are root inside",
                field="permission_level",
            )
        facts = await self._host.facts()
        root = level.user == ROOT
        needed = level.name, level.requires
        check(*needed, facts, "on this host", level.rates, packed=packed, root=root)

    async def image_id(self, image: str) -> str:
        """The id of the image that has that name now.

        Raises: EngineUnavailableError if this engine can't confine sandboxes; ValidationError if it
        lacks the image, or if that is not a sandbox image.
        """
        await self._check_engine()
        return usable(image, await self._engine.image(image), self._checked).id

    def check_image(self, image: str, level: Level) -> None:
        """Raises ValidationError if an image that is not ours lacks what the level needs."""
        for facts in self._checked.named(image):
            problem = facts.problem(level)
            if problem is not None:
                raise ValidationError(f"image {image}: {problem}", field="image")

    async def _check_engine(self) -> None:
        """Raises: EngineUnavailableError if this engine can't confine sandboxes."""
        if not self._engine_checked:
            info = await self._engine.info()
            self._runtimes.take(info)
            refused = unfit(info)
            if refused is not None:
                raise EngineUnavailableError(f"{refused.reason}; {refused.remedy}")
            self._engine_checked = True

    async def check_sandbox(
        self, level: Level, hello: Hello | None, *, packed: bool = False
    ) -> None:
        """Raises UnmetError if the sandbox lacks a feature: a runtime may offer less."""
        if hello is None:
            raise SandboxUnavailableError("the sandbox agent did not report its features")
        host = await self._host.facts()
        runtime = self._runtimes.of(level.runtime)
        where = "in a sandbox of this engine"
        if runtime is not None:
            where += f" under its runtime {runtime}"
        check(
            *(level.name, level.requires, host.within(hello.kernel), where),
            packed=packed,
            root=level.user == ROOT,
            remedy=_REMEDY,
        )

    def note_root(self, level: Level, refused: str | None) -> None:
        """Takes why the level's sandbox could not start, None if it did; for root inside only."""
        if level.user == ROOT:
            self._runtimes.note_root(level.name, refused)

    def note(self, runtime: str, hello: Hello) -> None:
        """Takes what an agent under that runtime found."""
        self._runtimes.note(runtime, hello.kernel)
