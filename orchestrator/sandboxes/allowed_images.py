"""The images that sessions may have: those on the operator's list."""

import asyncio
from collections.abc import Sequence
from typing import NamedTuple

from orchestrator.engine.base import LABEL_PROTOCOL, Engine, Image, missing_image
from orchestrator.errors import PaddockError, ValidationError
from sandbox_agent.protocol import PROTOCOL_VERSION


class AllowedImage(NamedTuple):
    """`id` is None if the engine does not have it; `problem` says why no session can have it."""

    name: str
    short_name: str
    id: str | None
    problem: str | None


class AllowedImages:
    """The operator's list, the default image first."""

    def __init__(self, engine: Engine, names: Sequence[str]) -> None:
        self._engine = engine
        self._names = tuple(dict.fromkeys(names))

    async def list(self) -> list[AllowedImage]:
        """The images, and whether they are usable. Raises: EngineUnavailableError."""
        found = await asyncio.gather(*(self._engine.image(name) for name in self._names))
        return [
            AllowedImage(
                name, short_name(name), None if image is None else image.id, _problem(name, image)
            )
            for name, image in zip(self._names, found, strict=True)
        ]


def short_name(image: str) -> str:
    """An image's name without registry, folders, tag and digest: `dev` for `paddock/dev:latest`."""
    return image.partition("@")[0].rpartition("/")[2].partition(":")[0]


def full_name(asked: str, allowed: Sequence[str]) -> str:
    """The image on the operator's list that has that name or short name.

    Raises: ValidationError if none or several have it.
    """
    if asked in allowed:
        return asked
    found = sorted({image for image in allowed if short_name(image) == asked})
    if not found:
        names = ", ".join(dict.fromkeys(short_name(image) for image in allowed))
        raise ValidationError(
            f"image {asked} is not on the operator's list (PADDOCK_IMAGES), which has {names}",
            field="image",
        )
    if len(found) > 1:
        raise ValidationError(f"image {asked} may be {' or '.join(found)}", field="image")
    return found[0]


def usable(name: str, image: Image | None) -> Image:
    """The image that has that name, if sandboxes can have it.

    Raises: EngineUnavailableError if the engine does not have it; ValidationError if its agent is
    not this control plane's, or it has none.
    """
    if image is None:
        raise missing_image(name)
    protocol = image.labels.get(LABEL_PROTOCOL)
    if protocol != str(PROTOCOL_VERSION):
        raise ValidationError(
            f"image {name} has sandbox protocol {protocol}, but this control plane needs "
            f"{PROTOCOL_VERSION}: rebuild it with `paddock images build`",
            field="image",
        )
    return image


def _problem(name: str, image: Image | None) -> str | None:
    try:
        usable(name, image)
    except PaddockError as error:
        return str(error)
    return None
