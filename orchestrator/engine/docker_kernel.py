"""Looks, from inside a container, what of the kernel a sandbox gets to see."""

import secrets
from typing import Any

import docker

from orchestrator.engine.base import LABEL_INSTANCE, SandboxKernel
from orchestrator.engine.docker_spec import log_config, unknown_runtime
from orchestrator.errors import EngineUnavailableError

SECONDS = 20
# The numbers are Landlock's on every architecture, and seccomp's on the two that we know.
_SCRIPT = """
import ctypes, os
libc = ctypes.CDLL(None, use_errno=True)
libc.syscall.restype = ctypes.c_long
number = {"x86_64": 317, "aarch64": 277}.get(os.uname().machine)
notify = ctypes.c_uint32(0x7FC00000)
found = number is not None and libc.syscall(number, 2, 0, ctypes.byref(notify)) == 0
print(max(0, libc.syscall(444, None, ctypes.c_size_t(0), 1)), int(found))
"""


def look(client: docker.APIClient, instance: str, image: str, runtime: str | None) -> SandboxKernel:
    """Runs a container for it, and removes it. Raises: EngineUnavailableError; the client's."""
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
    """From what it printed. Raises: EngineUnavailableError."""
    words = said.split()
    if len(words) != 2 or not all(word.isascii() and word.isdigit() for word in words):
        raise EngineUnavailableError(f"a container could not look at its kernel: {said[-500:]}")
    return SandboxKernel(int(words[0]), words[1] == "1")


def config(image: str, instance: str, runtime: str | None) -> dict[str, Any]:
    """The container: confined as a sandbox is."""
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
