"""The stage of a sandbox image's build in which the guard is compiled.

It takes the program from the usual sandbox image, if that has the one of these very sources, and
nothing is left of it: the engine would keep an image without a name for each version.
"""

import hashlib
import secrets
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import PurePath

import docker
from docker.errors import APIError

from images import base

# Of an image: the digest of the sources of its guard. Of a stage: which build it belongs to.
LABEL_GUARD = "paddock.guard"
LABEL_BUILD = "paddock.build"
# The sources, relative to the repository, and how they are compiled.
SOURCES = "sandbox_agent/enforce/guards/guard"
PATTERNS = tuple(f"{SOURCES}/{name}" for name in ("*.c", "*.h", "compile.sh"))


def digest(files: Mapping[str, bytes]) -> str:
    """SHA-256 in hex of the guard's sources, which the name of its program has."""
    of_guard = sorted(path for path in files if str(PurePath(path).parent) == SOURCES)
    return hashlib.sha256(b"".join(files[path] for path in of_guard)).hexdigest()


@contextmanager
def arguments(
    client: docker.APIClient, usual: str, guard: str, base_name: str, *, anew: bool
) -> Iterator[dict[str, str]]:
    """The stage's arguments of one build, at whose end it is removed.

    `usual` is the image that may have the program, `guard` the digest of its sources. `anew`: it is
    compiled in any case.
    """
    found = None if anew else base.inspect(client, usual)
    labels = {} if found is None else (found.get("Config") or {}).get("Labels") or {}
    build = secrets.token_hex(8)
    try:
        image = usual if labels.get(LABEL_GUARD) == guard else base_name
        yield {"GUARD_IMAGE": image, "BUILD": build}
    finally:
        for stage in client.images(filters={"label": f"{LABEL_BUILD}={build}"}):
            discard(client, str(stage["Id"]))


def discard(client: docker.APIClient, image_id: str) -> None:
    """Removes an image that is not needed any more, unless it is in use."""
    try:
        client.remove_image(image_id)
    except APIError as error:
        if error.status_code not in (404, 409):
            raise
