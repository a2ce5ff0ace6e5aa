"""Calls of the Docker API about one container, defined by their end state. They block."""

from collections.abc import Callable
from contextlib import suppress

import docker
import requests
from docker.errors import APIError, NotFound

from orchestrator.host.engine import docker_records
from orchestrator.host.engine.base import Container, ContainerState


def inspect(client: docker.APIClient, container_id: str) -> Container | None:
    """The container with its limits; None if it is gone."""
    try:
        return docker_records.inspected(client.inspect_container(container_id))
    except NotFound:
        return None


def unless_already(
    client: docker.APIClient,
    change: Callable[[str], None],
    container_id: str,
    state: ContainerState,
) -> None:
    """Changes a container's state; ignores Docker's refusal if it already has that state."""
    try:
        change(container_id)
    except APIError:
        found = inspect(client, container_id)
        if found is None or found.state is not state:
            raise


def wait_for_end(client: docker.APIClient, container_id: str, seconds: int) -> None:
    """Waits for its first process to end, for that long at most. Raises: NotFound."""
    with suppress(requests.Timeout, requests.ConnectionError):
        client.wait(container_id, timeout=seconds)


def remove(client: docker.APIClient, name: str) -> None:
    """Kills and removes the container with its volumes; waits for a removal that is under way."""
    try:
        client.remove_container(name, v=True, force=True)
    except NotFound:
        return
    except APIError as error:
        if error.status_code != 409:
            raise
        try:
            # Without a limit of its own, this call would wait for ever.
            client.wait(name, timeout=client.timeout, condition="removed")
        except NotFound:
            return
