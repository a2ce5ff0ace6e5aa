"""Finds out, from inside a container, what of the kernel a sandbox sees and can use."""

import secrets
from pathlib import Path
from typing import Any

import docker

from orchestrator.ground.errors import EngineUnavailableError
from orchestrator.host.engine.base import LABEL_INSTANCE
from orchestrator.host.engine.docker_spec import log_config, security_options, unknown_runtime
from sandbox_agent.decide.facilities import Kernel

SECONDS = 20
_IPV6 = Path("/proc/sys/net/ipv6")
# The image's own agent examines it.
_SCRIPT = """
import sys
sys.path.insert(0, "/opt/paddock")
from sandbox_agent.enforce import kernel
print(*map(int, kernel.probe()))
"""
# What the agent and a guard do for commands that are root inside; it prints why they can't.
_ROOT_SCRIPT = """
import os, sys
sys.path.insert(0, "/opt/paddock")
from sandbox_agent.enforce.root_inside import namespace
print(namespace.refusal(65534) or "")
"""


def has_ipv6() -> bool:
    """Whether the kernel, which is the engine's too, has IPv6."""
    return _IPV6.is_dir()


def look(client: docker.APIClient, instance: str, image: str, runtime: str | None) -> Kernel:
    """Runs a container to find out, and removes it.

    Raises: EngineUnavailableError; docker's errors.
    """
    return parse(_said(client, config(image, instance, runtime), runtime))


def root_inside(
    client: docker.APIClient, instance: str, image: str, runtime: str | None
) -> str | None:
    """Why commands in such a container can't be root inside; None if they can.

    Raises: EngineUnavailableError; docker's errors.
    """
    wanted = config(image, instance, runtime)
    wanted["Entrypoint"][-1] = _ROOT_SCRIPT
    wanted["HostConfig"] |= {
        "CapAdd": ["SETUID", "SETGID"],
        "SecurityOpt": security_options(namespaces=True),
    }
    return _said(client, wanted, runtime) or None


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


def config(image: str, instance: str, runtime: str | None) -> dict[str, Any]:
    """The container's configuration: confined like a sandbox."""
    return {
        "Image": image,
        "Entrypoint": ["/usr/bin/python3", "-I", "-S", "-c", _SCRIPT],
        "Cmd": [],
        "Labels": {LABEL_INSTANCE: instance},
        "HostConfig": {
            "NetworkMode": "none",
            "CapDrop": ["ALL"],
            "SecurityOpt": ["no-new-privileges"],
            "ReadonlyRootfs": True,
            "Memory": 128 * 2**20,
            "PidsLimit": 32,
            "RestartPolicy": {"Name": "no"},
            "LogConfig": log_config(),
            **({"Runtime": runtime} if runtime else {}),
        },
    }
