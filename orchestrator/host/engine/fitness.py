"""Engines that can't confine sandboxes, by their description of themselves. Pure."""

from dataclasses import dataclass

from orchestrator.host.engine.base import EngineInfo


@dataclass(frozen=True, slots=True)
class Unfit:
    """Why an engine can't be used, and what to do instead."""

    reason: str
    remedy: str


_ROOTFUL = "use a rootful engine without userns-remap"
_ROOTLESS = Unfit(
    "rootless engines are not supported: they can't mount workspaces with flags and sizes, give "
    "each session a uid of its own, or keep an open network from the host",
    _ROOTFUL,
)
_REMAPPED = Unfit(
    "engines with userns-remap are not supported: a session's uid would own no workspace",
    _ROOTFUL,
)
_PODMAN = Unfit(
    "Podman is not supported: it refuses the log driver `local`, which bounds what a sandbox's "
    "first process prints, and has no DOCKER-USER chain for the open network's rules",
    "install Docker's engine beside it, and name its socket in PADDOCK_DOCKER_HOST",
)
_UNFILTERED = Unfit(
    "engines without a system call filter of their own are not supported: it is the one that "
    "confines a sandbox's agent",
    'take `"seccomp-profile": "unconfined"` out of /etc/docker/daemon.json and the unit, and '
    "restart the engine; its kernel and its build need seccomp",
)
_SELINUX = Unfit(
    "engines with SELinux labels are not supported: workspaces and sockets carry no label, and no "
    "label lets a sandbox's agent connect to the control plane, so no sandbox would work",
    "start the engine without `--selinux-enabled`: take it out of /etc/sysconfig/docker or the "
    'unit, set `"selinux-enabled": false` in /etc/docker/daemon.json, and '
    "`systemctl restart docker`; SELinux itself may stay enforcing",
)


def unfit(info: EngineInfo) -> Unfit | None:
    """Why this engine can't confine sandboxes; None if it can."""
    found = (
        (info.podman, _PODMAN),
        (info.rootless, _ROOTLESS),
        (info.userns_remap, _REMAPPED),
        (info.selinux, _SELINUX),
        (not info.seccomp, _UNFILTERED),
    )
    return next((reason for applies, reason in found if applies), None)
