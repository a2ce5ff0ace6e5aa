"""Builds the sandbox image when something in it changed.

The image carries a hash of its inputs as a label. What is sent to the engine is
what is hashed, so nothing can be in the image that the hash does not cover.
"""

import hashlib
import io
import tarfile
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

import docker
from docker.errors import APIError, DockerException
from requests.exceptions import RequestException

from images import base
from images.errors import BuildError
from orchestrator.engine.base import LABEL_INPUTS, LABEL_PROTOCOL
from sandbox_agent.protocol import PROTOCOL_VERSION

IMAGE = "paddock/sandbox:latest"
ROOT = Path(__file__).resolve().parent.parent
# The longest silence of the engine during a build step.
SILENCE_SECONDS = 600

_RECIPE = "images/sandbox"
_DOCKERFILE = f"{_RECIPE}/Dockerfile"
_AGENT = "sandbox_agent"
# The engine's lines about its intermediate images.
_NOISE = ("--->", "Removing intermediate")


class Result(NamedTuple):
    """The image that is there now: its name, id and whether this call built it."""

    name: str
    id: str
    built: bool


def context_files(root: Path = ROOT) -> dict[str, bytes]:
    """What the build sees: paths relative to the repository, with their contents."""
    recipe = [root / _RECIPE / name for name in ("Dockerfile", "packages", "unused")]
    agent = (root / _AGENT).rglob("*.py")
    return {path.relative_to(root).as_posix(): path.read_bytes() for path in [*recipe, *agent]}


def input_hash(files: Mapping[str, bytes], base_id: str) -> str:
    """SHA-256 in hex of everything that decides what the image is."""
    digest = hashlib.sha256()
    for name, content in [("", base_id.encode()), *sorted(files.items())]:
        for part in (name.encode(), content):
            digest.update(len(part).to_bytes(8, "big") + part)
    return digest.hexdigest()


def context_archive(files: Mapping[str, bytes]) -> io.BytesIO:
    """The tar archive sent to the engine: files of root, 0644, without times."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for name, content in sorted(files.items()):
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    buffer.seek(0)
    return buffer


def build(name: str = IMAGE, *, force: bool = False, report: base.Report = print) -> Result:
    """Makes sure that the engine has the current sandbox image, and returns it.

    `force` builds even when no input changed. Raises: BuildError when it can't be
    built or the engine does not answer.
    """
    try:
        with closing(base.connect(SILENCE_SECONDS)) as client:
            return _build(client, name, force, report)
    except (DockerException, RequestException) as error:
        raise BuildError(f"the engine refused or did not answer: {error}") from error


def _build(client: docker.APIClient, name: str, force: bool, report: base.Report) -> Result:
    files = context_files()
    base_name = base.choose(
        client, files[f"{_RECIPE}/packages"], files[f"{_RECIPE}/unused"], report
    )
    base_image = base.inspect(client, base_name)
    if base_image is None:
        raise BuildError(f"the base image {base_name} has just been removed: try again")
    inputs = input_hash(files, str(base_image["Id"]))
    previous = base.inspect(client, name)
    if previous and not force and _labels(previous).get(LABEL_INPUTS) == inputs:
        return Result(name, str(previous["Id"]), built=False)
    report(f"building {name} on {base_name}")
    events = client.build(
        fileobj=context_archive(files),
        custom_context=True,
        dockerfile=_DOCKERFILE,
        tag=name,
        buildargs={"BASE_IMAGE": base_name},
        labels={LABEL_PROTOCOL: str(PROTOCOL_VERSION), LABEL_INPUTS: inputs},
        nocache=force,
        rm=True,
        forcerm=True,
        decode=True,
    )
    for event in events:
        if "error" in event:
            raise BuildError(f"the image can't be built: {str(event['error']).strip()}")
        text = str(event.get("stream", "")).strip()
        if text and not text.startswith(_NOISE):
            report(text)
    current = base.inspect(client, name)
    if current is None:
        raise BuildError(f"the engine reported no error, but there is no image {name}")
    if previous and previous["Id"] != current["Id"]:
        _discard(client, str(previous["Id"]))
    return Result(name, str(current["Id"]), built=True)


def _labels(image: Mapping[str, Any]) -> dict[str, str]:
    return dict(image["Config"].get("Labels") or {})


def _discard(client: docker.APIClient, image_id: str) -> None:
    """Removes the image that the new one replaced, unless something still uses it."""
    try:
        client.remove_image(image_id)
    except APIError as error:
        if error.status_code not in (404, 409):
            raise
