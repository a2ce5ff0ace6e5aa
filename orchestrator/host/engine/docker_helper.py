"""Short-lived containers that do what the control plane has no privilege for."""

from typing import Any

import docker
from docker.errors import ImageNotFound, NotFound

from orchestrator.ground.errors import EngineUnavailableError
from orchestrator.host.engine.base import LABEL_INSTANCE, missing_image
from orchestrator.host.engine.docker_spec import log_config


def run_helper(client: docker.APIClient, name: str, config: dict[str, Any], failed: str) -> str:
    """Runs a helper container, removes it and returns its output.

    First removes a container that a killed control plane left. The container has the client's
    time-out. Raises: EngineUnavailableError whose message begins with `failed` if the exit status
    is not 0; docker's errors.
    """
    remove_helper(client, name)
    try:
        try:
            made = client.create_container_from_config(config, name)  # type: ignore[no-untyped-call]
        except ImageNotFound as error:
            raise missing_image(config["Image"]) from error
        client.start(made["Id"])
        code = client.wait(made["Id"], timeout=client.timeout)["StatusCode"]
        output: str = client.logs(made["Id"], tail=20).decode(errors="replace").strip()
    finally:
        remove_helper(client, name)
    if code != 0:
        raise EngineUnavailableError(f"{failed}: {output[-500:]}")
    return output


def remove_helper(client: docker.APIClient, name: str) -> None:
    """Removes the container if it exists, running or not."""
    try:
        client.remove_container(name, force=True)
    except NotFound:
        return


def network_helper(
    image: str,
    instance: str,
    network: str,
    script: str,
    *arguments: str,
    capabilities: tuple[str, ...] = ("NET_ADMIN", "NET_RAW"),
) -> dict[str, Any]:
    """A container that runs a shell script in `network`, with privileges over that network only."""
    return {
        "Image": image,
        "User": "0",
        "Entrypoint": ["/bin/sh", "-c", script, "sh", *arguments],
        "Labels": {LABEL_INSTANCE: instance},
        "HostConfig": {
            "NetworkMode": network,
            "CapDrop": ["ALL"],
            "CapAdd": list(capabilities),
            "SecurityOpt": ["no-new-privileges"],
            "ReadonlyRootfs": True,
            "Tmpfs": {"/run": "size=65536,mode=700"},  # for the lock of iptables
            "Memory": 64 * 2**20,
            "PidsLimit": 32,
            "RestartPolicy": {"Name": "no"},
            "LogConfig": log_config(),
        },
    }
