"""Finds out, from inside a container, what the engine can do with a directory."""

import socket
from contextlib import closing

import docker
from docker.errors import APIError, DockerException, NotFound

from orchestrator.ground.errors import EngineUnavailableError
from orchestrator.host.engine.docker_spec import log_config

ENGINE_SECONDS = 30


def refusal_to_share(host: str | None, path: str) -> str | None:
    """Why mounts made in a container below `path` can't reach the host; None if they can.

    Starts and removes a container, because only the engine knows the host's own mounts. `host` is
    as in DOCKER_HOST. Blocks. Raises: EngineUnavailableError.
    """
    try:
        with closing(
            docker.APIClient(base_url=host, version="auto", timeout=ENGINE_SECONDS)
        ) as client:
            return _ask(client, path)
    except (DockerException, OSError) as error:  # requests' errors are OSErrors
        raise EngineUnavailableError(f"the container engine does not answer: {error}") from error


def _ask(client: docker.APIClient, path: str) -> str | None:
    try:
        own = client.inspect_container(socket.gethostname())
    except NotFound:
        return "this does not run in a container of that engine"
    if (path, path) not in [(mount["Source"], mount["Destination"]) for mount in own["Mounts"]]:
        return f"{path} is not bound at the host's own path"
    try:
        _show(client, own["Image"], path)
    except APIError as error:
        return str(error.explanation)
    return None


def _show(client: docker.APIClient, image: str, path: str) -> None:
    """A container that sees the directory in the same way as the control plane."""
    config = {
        "Image": image,
        "Entrypoint": ["/bin/true"],
        "Cmd": [],
        "HostConfig": {
            "Binds": [f"{path}:{path}:rshared"],
            "NetworkMode": "none",
            "ReadonlyRootfs": True,
            "CapDrop": ["ALL"],
            "LogConfig": log_config(),
        },
    }
    made = client.create_container_from_config(config)  # type: ignore[no-untyped-call]
    try:
        client.start(made["Id"])
        client.wait(made["Id"], timeout=ENGINE_SECONDS)
    finally:
        client.remove_container(made["Id"], force=True)
