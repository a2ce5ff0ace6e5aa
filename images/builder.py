"""Builds an image if its inputs changed.

The image has a label with a hash of its inputs: the sources in it, and its base. The project's
Python dependencies are looked up only when the image is built; `--force` looks for newer ones.
"""

import hashlib
import io
import os
import tarfile
from collections.abc import Iterable, Mapping
from contextlib import ExitStack, closing
from typing import Any, NamedTuple

import docker
from docker.errors import DockerException
from requests.exceptions import RequestException

from images import base, guard_stage, releases
from images.errors import BuildError
from images.recipes import (
    BASE_PACKAGES,
    BASE_UNUSED,
    NEWER_PACKAGES,
    ROOT,
    SANDBOX,
    Recipe,
    context_files,
)
from orchestrator.host.engine.base import LABEL_INPUTS

# The longest silence of the engine during a build step, in seconds.
SILENCE_SECONDS = 600

# Lines in which the engine reports its intermediate images.
_NOISE = ("--->", "Removing intermediate")


class Result(NamedTuple):
    """The current image: its name, its id, and whether this call built it."""

    name: str
    id: str
    built: bool


def input_hash(files: Mapping[str, bytes], base_id: str) -> str:
    """SHA-256 in hex of everything that determines the image."""
    digest = hashlib.sha256()
    for name, content in [("", base_id.encode()), *sorted(files.items())]:
        for part in (name.encode(), content):
            digest.update(len(part).to_bytes(8, "big") + part)
    return digest.hexdigest()


def context_archive(files: Mapping[str, bytes]) -> io.BytesIO:
    """The tar archive for the engine: files of root, mode 0644, without times."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for name, content in sorted(files.items()):
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    buffer.seek(0)
    return buffer


def build(
    name: str | None = None,
    *,
    recipe: Recipe = SANDBOX,
    force: bool = False,
    report: base.Report = print,
) -> Result:
    """Ensures that the engine has the recipe's current image, and returns it.

    `name` replaces the recipe's name; `force` builds even if no input changed.

    Raises: BuildError if it can't be built or the engine does not answer.
    """
    try:
        with closing(base.connect(SILENCE_SECONDS)) as client:
            return _build(client, name or recipe.image, recipe, force, report)
    except (DockerException, RequestException) as error:
        raise BuildError(f"the engine refused or did not answer: {error}") from error


def _build(
    client: docker.APIClient, name: str, recipe: Recipe, force: bool, report: base.Report
) -> Result:
    if not (ROOT / recipe.dockerfile).exists():
        raise BuildError("images can be built only in a checkout of the repository")
    base_name = _base(client, recipe, report)
    base_image = base.inspect(client, base_name)
    if base_image is None:
        raise BuildError(f"the base image {base_name} was removed meanwhile: try again")
    files = context_files(recipe=recipe)
    inputs = input_hash(files, str(base_image["Id"]))
    previous = base.inspect(client, name)
    if previous and not force and labels_of(previous).get(LABEL_INPUTS) == inputs:
        return Result(name, str(previous["Id"]), built=False)
    arguments = {"BASE_IMAGE": base_name, **proxies()}
    if recipe.prepare is not None:
        release = releases.of_image(client, base_name)
        files |= recipe.prepare(files, str(base_image["Architecture"]), release, report)
        arguments["PYTHON"] = release.python
    files |= recipe.programs.trust()
    report(f"building {name} on {base_name}")
    labels = {**recipe.labels, LABEL_INPUTS: inputs}
    with ExitStack() as stack:
        if recipe.dockerfile == SANDBOX.dockerfile:
            labels[guard_stage.LABEL_GUARD] = guard = guard_stage.digest(files)
            arguments |= stack.enter_context(
                guard_stage.arguments(client, SANDBOX.image, guard, base_name, anew=force)
            )
        events = client.build(
            fileobj=context_archive(files),
            custom_context=True,
            dockerfile=recipe.dockerfile,
            tag=name,
            buildargs=arguments,
            labels=labels,
            nocache=force,
            rm=True,
            forcerm=True,
            decode=True,
        )
        _follow(events, report)
    current = base.inspect(client, name)
    if current is None:
        raise BuildError(f"the engine reported no error, but there is no image {name}")
    if previous and previous["Id"] != current["Id"]:
        guard_stage.discard(client, str(previous["Id"]))
    return Result(name, str(current["Id"]), built=True)


def _follow(events: Iterable[Mapping[str, Any]], report: base.Report) -> None:
    """Reports the steps of a build. Raises: BuildError."""
    for event in events:
        if "error" in event:
            raise BuildError(f"the image can't be built: {str(event['error']).strip()}")
        text = str(event.get("stream", "")).strip()
        if text and not text.startswith(_NOISE):
            report(text)


def base_names(recipe: Recipe) -> list[str]:
    """The bases on which the recipe's image can be, the one that it prefers first."""
    if wanted := os.environ.get("PADDOCK_BASE_IMAGE"):
        return [wanted]
    packages, unused, newer = _lists()
    names = [base.local_name(packages, unused), base.REGISTRY_BASE]
    return (
        names if recipe.suite is None else [*base.newer_names(recipe.suite, newer, unused), *names]
    )


def _base(client: docker.APIClient, recipe: Recipe, report: base.Report) -> str:
    packages, unused, newer = _lists()
    found = None
    if recipe.suite is not None:
        found = base.choose_newer(client, recipe.suite, newer, unused, report)
    return found or base.choose(client, packages, unused, report)


def _lists() -> list[bytes]:
    return [(ROOT / path).read_bytes() for path in (BASE_PACKAGES, BASE_UNUSED, NEWER_PACKAGES)]


def proxies() -> dict[str, str]:
    """This machine's proxies, for what the build fetches. They do not end up in the image."""
    names = ("HTTP_PROXY", "HTTPS_PROXY", "FTP_PROXY", "NO_PROXY")
    either = (*names, *(name.lower() for name in names))
    return {name: os.environ[name] for name in either if name in os.environ}


def labels_of(image: Mapping[str, Any]) -> dict[str, str]:
    """The labels in the engine's description of an image."""
    return dict((image.get("Config") or {}).get("Labels") or {})
