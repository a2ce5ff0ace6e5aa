"""Makes the agent that containers have mounted, and looks into images with it."""

import base64
import json
import secrets
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import docker
import requests
from docker.errors import APIError, ImageNotFound

from orchestrator.ground.errors import EngineUnavailableError, ValidationError
from orchestrator.host.engine.base import LABEL_INSTANCE, MountedAgent, missing_image
from orchestrator.host.engine.docker_spec import agent_mounts, overridden
from sandbox_agent.decide.mounted_agent import COPY, PYTHON, script

_PYTHON = "/usr/bin/python3"
MAKE_SECONDS = 120
LOOK_SECONDS = 30
# How Go's file modes name kinds of files.
_DIRECTORY, _KINDS = 1 << 31, 0x8F280000
# A look prints at most about a megabyte.
_LOG = {"Type": "json-file", "Config": {"max-size": "8m", "max-file": "1"}}


def make_agent(
    client: docker.APIClient, instance: str, image: str, target: str, code: Mapping[str, bytes]
) -> None:
    """Fills an empty directory of the host with the agent's code, and an image's interpreter.

    Raises: EngineUnavailableError; OSError; docker's errors.
    """
    for name, content in code.items():
        path = Path(target, name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    config = _config(image, instance)
    words = script("sandbox_agent.image.runtime", place=COPY)
    config |= {"Entrypoint": [_PYTHON, "-I", "-S", "-B", *words]}
    config["HostConfig"]["Mounts"] = [{"Type": "bind", "Source": target, "Target": COPY}]
    try:
        _run(client, config, MAKE_SECONDS, "the agent could not be made")
    except APIError as error:
        if _PYTHON not in str(error.explanation):
            raise
        raise EngineUnavailableError(
            f"the agent could not be made: image {image} has no {_PYTHON}: set PADDOCK_IMAGE to "
            "one of Paddock's images"
        ) from None


def look_into(
    client: docker.APIClient,
    instance: str,
    image: str,
    agent: MountedAgent,
    path: str,
    commands: Iterable[str],
) -> dict[str, Any]:
    """What the mounted agent finds in an image, without a network; nothing of the image runs.

    Raises: EngineUnavailableError; docker's errors.
    """
    config = _config(image, instance)
    config |= overridden(agent)
    words = script("sandbox_agent.image.facts", path, *commands)
    config["Entrypoint"] = [*PYTHON, *words]
    config["HostConfig"]["Mounts"] = agent_mounts(agent)
    said = _run(client, config, LOOK_SECONDS, "the image could not be examined")
    try:
        return dict(json.loads(said))
    except ValueError:
        raise EngineUnavailableError(
            f"the image could not be examined: its container said {said[-500:]!r}"
        ) from None


def refuse_links(
    client: docker.APIClient,
    instance: str,
    image: str,
    directories: Iterable[str],
    files: Iterable[str],
    absent: Iterable[str],
) -> None:
    """Refuses an image in whose container a mount would lead elsewhere.

    The engine looks, in a container that never starts. Raises: ValidationError that names the path;
    docker's errors.
    """
    name = f"paddock-look-{secrets.token_hex(4)}"
    _create(client, _config(image, instance), name)
    try:
        for path in directories:
            mode = _mode(client, name, path)
            if mode is not None and not mode & _DIRECTORY:
                raise _refused(image, f"{path} is no directory, but a link or a file")
        for path in files:
            mode = _mode(client, name, path)
            if mode is not None and mode & _KINDS:
                raise _refused(image, f"{path} is no plain file, but a link or a directory")
        for path in absent:
            if _mode(client, name, path) is not None:
                raise _refused(image, f"it has {path}, which would change the agent's own process")
    finally:
        client.remove_container(name, v=True, force=True)


def _config(image: str, instance: str) -> dict[str, Any]:
    return {
        "Image": image,
        "Entrypoint": ["/none"],
        "Cmd": [],
        "User": "0:0",
        "WorkingDir": "/",
        "Labels": {LABEL_INSTANCE: instance},
        "HostConfig": {
            "NetworkMode": "none",
            "CapDrop": ["ALL"],
            "SecurityOpt": ["no-new-privileges"],
            "ReadonlyRootfs": True,
            "Memory": 256 * 2**20,
            "PidsLimit": 32,
            "RestartPolicy": {"Name": "no"},
            "LogConfig": _LOG,
        },
    }


def _run(client: docker.APIClient, config: dict[str, Any], seconds: int, failed: str) -> str:
    name = f"paddock-look-{secrets.token_hex(4)}"
    _create(client, config, name)
    try:
        client.start(name)
        code = client.wait(name, timeout=seconds)["StatusCode"]
        said = client.logs(name, stdout=True, stderr=code != 0)
    except (requests.Timeout, requests.ConnectionError):
        raise EngineUnavailableError(f"{failed} within {seconds} s") from None
    finally:
        client.remove_container(name, v=True, force=True)
    output: str = said.decode(errors="replace").strip()
    if code != 0:
        raise EngineUnavailableError(f"{failed}: {output[-500:]}")
    return output


def _create(client: docker.APIClient, config: dict[str, Any], name: str) -> None:
    try:
        client.create_container_from_config(config, name)  # type: ignore[no-untyped-call]
    except ImageNotFound as error:
        raise missing_image(config["Image"]) from error


def _mode(client: docker.APIClient, name: str, path: str) -> int | None:
    """The mode of a file as Go has it; None if there is none. Its last name is not followed."""
    url = f"{client.base_url}/v{client.api_version}/containers/{name}/archive"
    answer = client.head(url, params={"path": path}, timeout=client.timeout)
    if answer.status_code == 404:
        return None
    if answer.status_code != 200:
        raise APIError(f"HTTP {answer.status_code}", answer)
    described = base64.b64decode(answer.headers["X-Docker-Container-Path-Stat"])
    return int(json.loads(described)["mode"])


def _refused(image: str, reason: str) -> ValidationError:
    return ValidationError(
        f"image {image} can't be used: {reason}: change that in its recipe", field="image"
    )
