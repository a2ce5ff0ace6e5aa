"""Finds out, from inside a container, which kernel features a sandbox sees."""

import secrets
from pathlib import Path
from typing import Any

import docker

from orchestrator.ground.errors import EngineUnavailableError
from orchestrator.host.engine.base import LABEL_INSTANCE, SandboxKernel
from orchestrator.host.engine.docker_spec import log_config, unknown_runtime

SECONDS = 20
_IPV6 = Path("/proc/sys/net/ipv6")
# Landlock's numbers are the same on every architecture; seccomp's are those of the two we know.
_SCRIPT = """
import ctypes, os
libc = ctypes.CDLL(None, use_errno=True)
libc.syscall.restype = ctypes.c_long
number = {"x86_64": 317, "aarch64": 277}.get(os.uname().machine)
notify = ctypes.c_uint32(0x7FC00000)
found = number is not None and libc.syscall(number, 2, 0, ctypes.byref(notify)) == 0
print(max(0, libc.syscall(444, None, ctypes.c_size_t(0), 1)), int(found))
"""


def has_ipv6() -> bool:
    """Whether the kernel, which is the engine's too, has IPv6."""
    return _IPV6.is_dir()


def look(client: docker.APIClient, instance: str, image: str, runtime: str | None) -> SandboxKernel:
    """Runs a container to find out, and removes it.

    Raises: EngineUnavailableError; docker's errors.
    """
    name = f"paddock-kernel-{secrets.token_hex(4)}"
    try:
        client.create_container_from_config(  # type: ignore[no-untyped-call]
            config(image, instance, runtime), name
        )
    except docker.errors.APIError as error:
        raise unknown_runtime(runtime, error.explanation) or error from None
    try:
        client.start(name)
        client.wait(name, timeout=SECONDS)
        said = client.logs(name, tail=5).decode(errors="replace").strip()
    finally:
        client.remove_container(name, force=True)
    return parse(said)


def parse(said: str) -> SandboxKernel:
    """Parses the container's output. Raises: EngineUnavailableError."""
    words = said.split()
    if len(words) != 2 or not all(word.isascii() and word.isdigit() for word in words):
        raise EngineUnavailableError(f"a container could not examine its kernel: {said[-500:]}")
    return SandboxKernel(int(words[0]), words[1] == "1")


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
