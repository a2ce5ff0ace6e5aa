"""The ids of the images of which sandboxes wait, as far as they are known."""

import logging
import math
from collections.abc import Awaitable, Callable

from orchestrator.ground.errors import PaddockError
from orchestrator.settings.settings import Settings
from orchestrator.state.shapes import Shape

log = logging.getLogger(__name__)

_LOOK_SECONDS = 60.0


class WarmImages(dict[str, str]):
    """The latest known ids of images by their names."""

    def __init__(self, settings: Settings, find: Callable[[str], Awaitable[str]]) -> None:
        """`find` finds the id of an image's name."""
        super().__init__()
        self._settings = settings
        self._find = find
        self._next_look = -math.inf

    def default(self, level: str) -> str:
        """What sessions of that level get without a request, as far as it is known to be there."""
        own = self._settings.default_images.get(level)
        return self._settings.image if own is None or own not in self else own

    async def changed(self, shape: Shape) -> bool:
        """Whether the name of the shape's image has another id by now.

        Raises: the errors of finding it.
        """
        present = await self._find(shape.image)
        self[shape.image] = present
        return present != shape.image_id

    async def look(self, now: float) -> None:
        """Finds the default images of the levels that should have waiting sandboxes.

        Starts look at an image, too; the engine has more to do while sessions are created.
        """
        if not self._settings.warm_least or now < self._next_look:
            return
        usual, own = self._settings.image, self._settings.default_images
        wanted = [usual, *(own[name] for name in self._settings.warm_least if name in own)]
        for image in dict.fromkeys(wanted):
            try:
                self[image] = await self._find(image)
                self._next_look = now + _LOOK_SECONDS
            except (PaddockError, OSError) as error:
                told = log.warning if image == usual else log.info
                told("image %s is not found for sandboxes ahead: %s", image, error)
                if image != usual:
                    self.pop(image, None)
