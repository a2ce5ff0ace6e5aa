"""Lists which images are on the engine, and whether they are current."""

import os
from contextlib import closing
from typing import Literal, NamedTuple

import docker
from docker.errors import DockerException
from requests.exceptions import RequestException

from images import base
from images.builder import input_hash, labels_of
from images.errors import BuildError
from images.recipes import (
    BASE_PACKAGES,
    BASE_UNUSED,
    ROOT,
    SANDBOX,
    Recipe,
    context_files,
    recipes,
)
from orchestrator.engine.base import LABEL_INPUTS

_SILENCE_SECONDS = 10


class Presence(NamedTuple):
    """One image: its purpose and, if it is on the engine, its id, size and age.

    `state` is `stale` if a build now would have other inputs. `size` is in bytes, `created` is an
    RFC 3339 time.
    """

    recipe: str
    image: str
    description: str
    state: Literal["current", "stale", "missing"]
    id: str | None = None
    size: int | None = None
    created: str | None = None


def inventory() -> list[Presence]:
    """All images that can be built, present or not. Raises: BuildError without an engine."""
    return [look_up(recipe) for recipe in recipes().values()]


def look_up(recipe: Recipe) -> Presence:
    """One image, present or not. Raises: BuildError without an engine."""
    try:
        with closing(base.connect(_SILENCE_SECONDS)) as client:
            image = base.inspect(client, recipe.image)
            if image is None:
                return Presence(recipe.name, recipe.image, recipe.description, "missing")
            built, now = labels_of(image).get(LABEL_INPUTS), _inputs(client, recipe)
    except (DockerException, RequestException) as error:
        raise BuildError(f"the engine refused or did not answer: {error}") from error
    state: Literal["current", "stale"] = "stale" if now not in (None, built) else "current"
    return Presence(
        *(recipe.name, recipe.image, recipe.description, state),
        *(str(image["Id"]), int(image["Size"]), str(image["Created"])),
    )


def current_inputs() -> str | None:
    """The input hash that a sandbox image would have if it were built now.

    None if it can't be determined, because the sources, the engine or a base is missing.
    """
    try:
        with closing(base.connect(_SILENCE_SECONDS)) as client:
            return _inputs(client, SANDBOX)
    except (DockerException, RequestException):
        return None


def _inputs(client: docker.APIClient, recipe: Recipe) -> str | None:
    """The input hash of a build; None without sources or a base."""
    try:
        packages, unused = ((ROOT / path).read_bytes() for path in (BASE_PACKAGES, BASE_UNUSED))
        wanted = os.environ.get("PADDOCK_BASE_IMAGE")
        names = [wanted] if wanted else [base.local_name(packages, unused), base.REGISTRY_BASE]
        found = next(filter(None, (base.inspect(client, name) for name in names)), None)
        return None if found is None else input_hash(context_files(recipe=recipe), str(found["Id"]))
    except OSError:
        return None
