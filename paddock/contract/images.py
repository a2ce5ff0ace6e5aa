"""Images: what the root file system of a session's sandbox has."""

from typing import Any

from pydantic import Field

from paddock.contract.base import LevelName, Model, example

_IMAGE: dict[str, Any] = {
    "name": "paddock/dev:latest",
    "short_name": "dev",
    "default": False,
    "default_levels": ["high"],
    "allowed": True,
    "levels": ["low", "medium", "high"],
    "available": True,
    "problem": None,
    "id": "sha256:9f2d1ea1f4a1d6f0b4b6b1e5d1a7c0e2f3948d7c6b5a49382716f5e4d3c2b1a0",
}


class Image(Model):
    """An image on the operator's list."""

    model_config = example(_IMAGE)

    name: str
    short_name: str = Field(
        description="Sessions may request it by this name, unless several images have it."
    )
    default: bool = Field(description="Sessions that request no image get it.")
    default_levels: list[LevelName] = Field(
        description="The levels whose sessions get it instead, as soon as it is available."
    )
    allowed: bool = Field(description="Sessions of this key may have it.")
    levels: list[LevelName] = Field(description="The levels whose sessions may have it.")
    available: bool = Field(description="The engine has it, and its agent is current.")
    problem: str | None = Field(
        description="Why it is not available, and what to do; or how its build goes."
    )
    id: str | None = Field(description="The engine's id; null if the engine does not have it.")


class Images(Model):
    """The operator's images, the default one first."""

    model_config = example({"items": [_IMAGE], "next": None})

    items: list[Image]
    next: None
