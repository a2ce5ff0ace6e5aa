"""Finds out, from inside a container, what of the kernel a sandbox sees and can use."""

import secrets
from pathlib import Path
from typing import Any

import docker

from orchestrator.ground.errors import EngineUnavailableError
from orchestrator.host.engine.base import LABEL_INSTANCE, MountedAgent
from orchestrator.host.engine.docker_spec import (
    agent_mounts,
    log_config,
    overridden,
    security_options,
    unknown_runtime,
)
from sandbox_agent.decide.facilities import Kernel
from sandbox_agent.decide.mounted_agent import PYTHON, ROOT_INSIDE, script

SECONDS = 20
_IPV6 = Path("/proc/sys/net/ipv6")


def has_ipv6() -> bool:
    """Whether the kernel, which is the engine's too, has IPv6."""
    return _IPV6.is_dir()


def look(
    client: docker.APIClient, instance: str, image: str, agent: MountedAgent, runtime: str | None
) -> Kernel:
    """Runs a container to find out, and removes it.

    Raises: EngineUnavailableError; docker's errors.
    """
    return parse(_said(client, config(image, instance, agent, runtime), runtime))


def root_inside(
    client: docker.APIClient, instance: str, image: str, agent: MountedAgent, runtime: str | None
) -> str | None:
    """Why commands in such a container can't be root inside; None if they can.

    Raises: EngineUnavailableError; docker's errors.
    """
    wanted = config(image, instance, agent, runtime)
    wanted["Entrypoint"] = [*PYTHON, *script("sandbox_agent.enforce.root_inside.namespace")]
    wanted["HostConfig"] |= {
        "CapAdd": ["SETUID", "SETGID"],
        "SecurityOpt": security_options(namespaces=True, engines_profile=False),
    }
    said = _said(client, wanted, runtime)
    return None if said == ROOT_INSIDE else said or "its container said nothing"


def _said(client: docker.APIClient, config: dict[str, Any], runtime: str | None) -> str:
    name = f"paddock-kernel-{secrets.token_hex(4)}"
    try:
        client.create_container_from_config(  # type: ignore[no-untyped-call]
            config, name
        )
    except docker.errors.APIError as error:
        raise unknown_runtime(runtime, error.explanation) or error from None
    try:
        client.start(name)
        client.wait(name, timeout=SECONDS)
        said: str = client.logs(name, tail=5).decode(errors="replace").strip()
    finally:
        client.remove_container(name, force=True)
    return said


def parse(said: str) -> Kernel:
    """Parses the container's output. Raises: EngineUnavailableError."""
    words = said.split()
    numbers = [int(word) for word in words if word.isascii() and word.isdigit()]
    if not len(numbers) == len(words) == len(Kernel._fields):
        raise EngineUnavailableError(f"a container could not examine its kernel: {said[-500:]}")
    landlock, *others = numbers
    return Kernel(landlock, *map(bool, others))


def config(image: str, instance: str, agent: MountedAgent, runtime: str | None) -> dict[str, Any]:
    """The container's configuration: confined like a sandbox."""
    return {
        **overridden(agent),
        "Image": image,
        "Entrypoint": [*PYTHON, *script("sandbox_agent.enforce.kernel")],
        "Labels": {LABEL_INSTANCE: instance},
        "HostConfig": {
            "NetworkMode": "none",
            "CapDrop": ["ALL"],
            "SecurityOpt": ["no-new-privileges"],
            "ReadonlyRootfs": True,
            "Mounts": agent_mounts(agent),
            "Memory": 128 * 2**20,
            "PidsLimit": 32,
            "RestartPolicy": {"Name": "no"},
            "LogConfig": log_config(),
            **({"Runtime": runtime} if runtime else {}),
        },
    }
