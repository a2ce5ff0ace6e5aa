"""Lists which images are on the engine, and whether they are current."""

import os
from contextlib import closing
from dataclasses import dataclass

from docker.errors import DockerException
from requests.exceptions import RequestException

from images import base
from images.builder import input_hash
from images.errors import BuildError
from images.recipes import BASE_PACKAGES, BASE_UNUSED, RECIPES, ROOT, SANDBOX, context_files

_SILENCE_SECONDS = 10


@dataclass(frozen=True, slots=True)
class Presence:
    """One image: its purpose and, if it is on the engine, its id, size and age.

    `size` is in bytes, `created` is an RFC 3339 time.
    """

    recipe: str
    image: str
    id: str | None = None
    size: int | None = None
    created: str | None = None


def inventory() -> list[Presence]:
    """All images that can be built, present or not. Raises: BuildError without an engine."""
    try:
        with closing(base.connect(_SILENCE_SECONDS)) as client:
            found = {name: base.inspect(client, recipe.image) for name, recipe in RECIPES.items()}
    except (DockerException, RequestException) as error:
        raise BuildError(f"the engine refused or did not answer: {error}") from error
    return [
        Presence(name, RECIPES[name].image)
        if image is None
        else Presence(
            name, RECIPES[name].image, str(image["Id"]), int(image["Size"]), str(image["Created"])
        )
        for name, image in found.items()
    ]


def current_inputs() -> str | None:
    """The input hash that a sandbox image would have if it were built now.

    None if it can't be determined, because the sources, the engine or a base is missing.
    """
    try:
        packages, unused = ((ROOT / path).read_bytes() for path in (BASE_PACKAGES, BASE_UNUSED))
        wanted = os.environ.get("PADDOCK_BASE_IMAGE")
        names = [wanted] if wanted else [base.local_name(packages, unused), base.REGISTRY_BASE]
        with closing(base.connect(_SILENCE_SECONDS)) as client:
            found = next(filter(None, (base.inspect(client, name) for name in names)), None)
        return (
            None if found is None else input_hash(context_files(recipe=SANDBOX), str(found["Id"]))
        )
    except (OSError, DockerException, RequestException):
        return None
