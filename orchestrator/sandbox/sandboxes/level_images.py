"""Which default images of levels are there. A session of a level whose image is not gets another.

The first session that should have such an image begins its build, also if the engine has it: then
the build ends at once, or makes a current one of an image that an older version built.
"""

import logging
import time
from collections.abc import Callable, Mapping, Sequence

from orchestrator.ground.errors import ValidationError
from orchestrator.host.engine.base import Engine
from orchestrator.sandbox.images.checked_images import CheckedImages
from orchestrator.sandbox.sandboxes.allowed_images import usable
from orchestrator.sandbox.sandboxes.image_builds import ImageBuilds

log = logging.getLogger(__name__)

# An image that was there is taken to be there for this long: creations need not ask each time.
TRUSTED_SECONDS = 10.0


class LevelImages:
    """The default images of levels that have another one than the instance."""

    def __init__(
        self,
        engine: Engine,
        of_levels: Mapping[str, str],
        builds: ImageBuilds,
        checked: CheckedImages | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`of_levels` are the images by level; `checked` are those that are not ours."""
        self._engine = engine
        self._of_levels = of_levels
        self._builds = builds
        self._checked = checked
        self._clock = clock
        self._seen: dict[str, float] = {}

    async def chosen(self, level: str, permitted: Sequence[str]) -> tuple[str, str | None]:
        """The first of the permitted images, and None.

        If that is the level's own default, which is not there, and another one is permitted: the
        other one, and the missing one. Raises: EngineUnavailableError.
        """
        first = permitted[0]
        if len(permitted) == 1 or first != self._of_levels.get(level) or await self._usable(first):
            return first, None
        return permitted[1], first

    async def _usable(self, image: str) -> bool:
        self._builds.begin(image)
        now = self._clock()
        if image in self._seen and now - self._seen[image] < TRUSTED_SECONDS:
            return True
        try:
            usable(image, await self._engine.image(image), self._checked)
        except ValidationError as error:
            self._seen.pop(image, None)
            log.info("sessions get another image for now: %s", error.detail)
            return False
        self._seen[image] = now
        return True
