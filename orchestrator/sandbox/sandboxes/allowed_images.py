"""Whether the engine has the images on the operator's list, and whether sandboxes can have them."""

import asyncio
import time
from collections.abc import Callable
from typing import NamedTuple

from orchestrator.ground.errors import PaddockError, ValidationError
from orchestrator.ground.task_scope import TaskScope
from orchestrator.host.engine.base import Engine, Image, missing_image
from orchestrator.host.engine.image_names import build_command, short_name
from orchestrator.rules.policy.levels import Level
from orchestrator.sandbox.images.checked_images import CheckedImages
from orchestrator.sandbox.sandboxes.image_builds import ImageBuilds
from orchestrator.sandbox.sandboxes.listed_images import ListedImages

# An answer of the engine serves all who ask within this time.
FRESH_SECONDS = 1.0


class AllowedImage(NamedTuple):
    """`id` is None if the engine does not have it; `problem` says why no session can have it."""

    name: str
    short_name: str
    id: str | None
    problem: str | None


class AllowedImages:
    """The images on the operator's list as the engine has them, from one call for all."""

    def __init__(
        self,
        engine: Engine,
        listed: ListedImages,
        checked: CheckedImages,
        builds: ImageBuilds,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._engine = engine
        self._listed = listed
        self._checked = checked
        self._builds = builds
        self._clock = clock
        self._looks = TaskScope("a look at the images")
        self._look: asyncio.Task[dict[str, Image]] | None = None
        self._names: tuple[str, ...] = ()
        self._began = 0.0

    async def list(self) -> list[AllowedImage]:
        """The images, the default one first. Raises: EngineUnavailableError."""
        names = self._listed.names
        found = await asyncio.shield(self._latest(names))
        return [self._described(name, found.get(name)) for name in names]

    def _described(self, name: str, image: Image | None) -> AllowedImage:
        problem = None
        try:
            usable(name, image, self._checked)
        except PaddockError as error:
            told = self._builds.told(name)
            problem = error.detail if told is None else f"image {name} {told}"
        return AllowedImage(name, short_name(name), None if image is None else image.id, problem)

    def has_level(self, image: AllowedImage, level: Level) -> bool:
        """Whether the image has what the level needs; it always does if it is ours."""
        facts = None if image.id is None else self._checked.of(image.id)
        return facts is None or facts.problem(level) is None

    async def close(self) -> None:
        """Ends a look at the engine that has not ended."""
        await self._looks.close()

    def _latest(self, names: tuple[str, ...]) -> asyncio.Task[dict[str, Image]]:
        """The look that is under way, or that ended just now; otherwise a new one."""
        look = self._look
        if look is not None and names == self._names:
            recent = self._clock() - self._began < FRESH_SECONDS
            if not look.done() or (recent and not look.cancelled() and not look.exception()):
                return look
        self._names, self._began = names, self._clock()
        self._look = self._looks.begin(self._engine.images(names))
        return self._look


def usable(name: str, image: Image | None, checked: CheckedImages | None = None) -> Image:
    """The image that has that name, if sandboxes can have it.

    An image that is not ours is one that was added by that name, and is in `checked`. Raises:
    ValidationError if the engine does not have it, or it is not ours and was not checked.
    """
    if image is None:
        raise ValidationError(missing_image(name).detail, field="image")
    if image.ours:
        return image
    if checked is not None:
        facts = checked.of(image.id)
        if facts is not None and name in facts.names:
            return image
        which = "was not checked" if not checked.named(name) else "is another one than was checked"
        raise ValidationError(
            f"image {name} is not Paddock's, and {which}: `paddock images add {name}` checks it",
            field="image",
        )
    command = build_command(name)
    remedy = f"`{command}`" if command else "`docker build` on a current image of Paddock's"
    raise ValidationError(
        f"image {name} is not a sandbox image: build it with {remedy}", field="image"
    )
