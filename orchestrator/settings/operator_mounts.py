"""The operator's list of mounts: host directories that sessions may use.

A program in a sandbox reaches a server of the host through the directory of its UNIX socket. The
operator lists the directories; levels and sessions only refer to them by name.
"""

import os
import posixpath
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, StringConstraints

from orchestrator.ground.errors import EngineUnavailableError, ValidationError
from paddock.contract.words import MOUNT_NAME
from sandbox_agent.decide.protocol import RUN_DIR

MountName = Annotated[str, StringConstraints(pattern=MOUNT_NAME)]
# The image has no programs or settings of its own there.
_TARGETS = ("/mnt", "/run")
# The kernel's file systems: access to them would break the sandbox's confinement.
_KERNEL_SOURCES = ("/proc", "/sys", "/dev")
# A program that reaches one of them is root on the host.
_ENGINE_SOCKETS = (
    "/run/docker.sock",
    "/run/containerd/containerd.sock",
    "/run/podman/podman.sock",
    "/run/crio/crio.sock",
)


def _plain(value: str) -> str:
    if not value.startswith("/") or value == "/":
        raise ValueError("must be an absolute path other than /")
    if posixpath.normpath(value) != value or value.startswith("//") or not value.isprintable():
        raise ValueError("must be a path without `.`, `..` and unnecessary slashes")
    return value


def _target(value: str) -> str:
    if not any(_is_below(value, parent) for parent in _TARGETS):
        raise ValueError(f"must be below {' or '.join(_TARGETS)}")
    if _overlap(value, RUN_DIR):
        raise ValueError(f"{RUN_DIR} is reserved for the control plane")
    return value


_Path = Annotated[str, AfterValidator(_plain)]


class OperatorMount(BaseModel):
    """A host directory and its place in a sandbox, mounted nosuid, nodev and noexec."""

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)

    source: _Path = Field(description="A directory of the host, without the mounts below it.")
    target: Annotated[_Path, AfterValidator(_target)] = Field(
        description="Its path in the sandbox, below /mnt or /run."
    )
    read_only: bool = Field(
        default=True, description="Programs can still connect to a UNIX socket in it."
    )


MountList = Mapping[str, OperatorMount]


def check_list(mounts: MountList, own: Iterable[Path], docker_host: str | None) -> None:
    """Raises ValueError if a mount would expose a protected path, or overlaps with another mount.

    `own` are the control plane's directories; `docker_host` is the engine's address.
    """
    targets: dict[str, str] = {}
    for name, mount in mounts.items():
        if not re.fullmatch(MOUNT_NAME, name):
            raise ValueError(f"{name[:64]!r} is not a name of 1 to 64 letters, digits, _ and -")
        reason = source_refusal(mount.source, own, docker_host)
        if reason is not None:
            raise ValueError(f"{name}.source: {reason}")
        for target, other in targets.items():
            if _overlap(mount.target, target):
                raise ValueError(f"{name}.target: overlaps with the target of {other}")
        targets[mount.target] = name


def source_refusal(source: str, own: Iterable[Path], docker_host: str | None) -> str | None:
    """Why a host directory may not be shared, after following its links; None if it may."""
    real = os.path.realpath(source)
    for kernel in _KERNEL_SOURCES:
        if _overlap(real, kernel):
            return f"{source} contains the kernel's {kernel}, or is a part of it"
    for directory in own:
        if _overlap(real, os.path.realpath(directory)):
            return f"{source} overlaps with the control plane's own {directory}"
    for socket in _engine_sockets(docker_host):
        if _overlap(real, socket):
            return f"{source} contains the engine's socket {socket}"
    return None


def chosen(mounts: MountList, names: Iterable[str]) -> dict[str, OperatorMount]:
    """The mounts with those names. Raises: ValidationError for a name that is not on the list."""
    found = {}
    for name in names:
        if name not in mounts:
            raise ValidationError(f"mounts: {name} is not on the operator's list", field="mounts")
        found[name] = mounts[name]
    return found


def writable_targets(mounts: MountList, names: Iterable[str]) -> tuple[str, ...]:
    """The paths in a sandbox of those of the named mounts that it may write to."""
    found = (mounts[name] for name in names if name in mounts)
    return tuple(mount.target for mount in found if not mount.read_only)


def real_source(
    name: str, mount: OperatorMount, own: Iterable[Path], docker_host: str | None
) -> str:
    """The directory of a mount with its links resolved.

    The links may have changed since the list was checked. Raises: EngineUnavailableError.
    """
    reason = source_refusal(mount.source, own, docker_host)
    real = os.path.realpath(mount.source)
    if reason is None and not os.path.isdir(real):
        reason = f"{mount.source} is not a directory of this host"
    if reason is not None:
        raise EngineUnavailableError(f"mount {name}: {reason}")
    return real


def _engine_sockets(docker_host: str | None) -> list[str]:
    address = docker_host or os.environ.get("DOCKER_HOST", "")
    named = [address.removeprefix("unix://")] if address.startswith("unix:///") else []
    return [os.path.realpath(path) for path in (*named, *_ENGINE_SOCKETS)]


def _is_below(path: str, parent: str) -> bool:
    return path.startswith(parent.rstrip("/") + "/")


def _overlap(one: str, other: str) -> bool:
    return one == other or _is_below(one, other) or _is_below(other, one)
