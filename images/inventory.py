"""Lists which images are on the engine, and whether they are current."""

from collections.abc import Sequence
from contextlib import closing
from typing import Any, Literal, NamedTuple

import docker
from docker.errors import DockerException
from requests.exceptions import RequestException

from images import base
from images.builder import base_names, input_hash, labels_of
from images.errors import BuildError
from images.recipes import (
    SANDBOX,
    Recipe,
    context_files,
    recipes,
)
from orchestrator.ground.errors import PaddockError
from orchestrator.host.engine.base import LABEL_INPUTS, Image
from orchestrator.sandbox.sandboxes.allowed_images import usable

_SILENCE_SECONDS = 10

State = Literal["current", "stale", "missing", "foreign"]


class Presence(NamedTuple):
    """One image: its purpose and, if it is on the engine, its id, size and age.

    `recipe` is None for an image that Paddock does not build. `state` is `stale` if a build now
    would have other inputs, and `foreign` if it was not made from an image of ours. `size` is in
    bytes, `created` is an RFC 3339 time.
    """

    recipe: str | None
    image: str
    description: str
    state: State
    id: str | None = None
    size: int | None = None
    created: str | None = None


def inventory(listed: Sequence[str] = (), default_image: str = SANDBOX.image) -> list[Presence]:
    """All images that can be built, whether they exist or not, and the other images of `listed`.

    Raises: BuildError without an engine.
    """
    known = recipes(default_image=default_image).values()
    built = {recipe.image for recipe in known}
    others = [look_up_other(name) for name in dict.fromkeys(listed) if name not in built]
    return [*(look_up(recipe) for recipe in known), *others]


def look_up(recipe: Recipe) -> Presence:
    """One image, present or not. Raises: BuildError without an engine."""
    found, now = _inspected(recipe.image, recipe)
    if found is None:
        return Presence(recipe.name, recipe.image, recipe.description, "missing")
    state: State = "stale" if now not in (None, labels_of(found).get(LABEL_INPUTS)) else "current"
    return _presence(recipe.name, recipe.image, recipe.description, state, found)


def look_up_other(name: str) -> Presence:
    """An image that Paddock does not build. Raises: BuildError without an engine."""
    found, _ = _inspected(name)
    if found is None:
        return Presence(None, name, "", "missing")
    ours = Image(str(found["Id"]), labels_of(found)).ours
    return _presence(None, name, "", "current" if ours else "foreign", found)


def why_not_usable(name: str) -> str | None:
    """Why sandboxes can't have that image, and what to do. Raises: BuildError without an engine."""
    found, _ = _inspected(name)
    try:
        usable(name, None if found is None else Image(str(found["Id"]), labels_of(found)))
    except PaddockError as error:
        return error.detail
    return None


def current_inputs(image: str = SANDBOX.image) -> str | None:
    """The input hash that the image would have if it were built now.

    None if it can't be determined, because the image is not Paddock's own, or because the sources,
    the engine or a base is missing.
    """
    known = recipes(default_image=image).values()
    recipe = next((recipe for recipe in known if recipe.image == image), None)
    if recipe is None:
        return None
    try:
        with closing(base.connect(_SILENCE_SECONDS)) as client:
            return _inputs(client, recipe)
    except (DockerException, RequestException):
        return None


def _inspected(name: str, recipe: Recipe | None = None) -> tuple[dict[str, Any] | None, str | None]:
    """The engine's description of the image, and the recipe's present input hash."""
    try:
        with closing(base.connect(_SILENCE_SECONDS)) as client:
            found = base.inspect(client, name)
            return found, None if found is None or recipe is None else _inputs(client, recipe)
    except (DockerException, RequestException) as error:
        raise BuildError(f"the engine refused or did not answer: {error}") from error


def _presence(
    recipe: str | None, image: str, description: str, state: State, found: dict[str, Any]
) -> Presence:
    # An engine leaves out what the image does not say.
    size, created = found.get("Size"), found.get("Created") or None
    return Presence(recipe, image, description, state, str(found["Id"]), size, created)


def _inputs(client: docker.APIClient, recipe: Recipe) -> str | None:
    """The input hash of a build; None without sources or a base."""
    try:
        names = base_names(recipe)
        found = next(filter(None, (base.inspect(client, name) for name in names)), None)
        return None if found is None else input_hash(context_files(recipe=recipe), str(found["Id"]))
    except OSError:
        return None
