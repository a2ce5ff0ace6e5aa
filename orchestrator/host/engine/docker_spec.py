"""Docker API requests for one sandbox, built by pure functions."""

import re
from typing import Any

from orchestrator.ground.errors import EngineUnavailableError
from orchestrator.host.engine.base import (
    LABEL_INSTANCE,
    Bind,
    Limits,
    MountedAgent,
    Rates,
    SandboxSpec,
)
from orchestrator.host.engine.docker_kernel_views import HIDDEN, kernel_objects, terminals
from orchestrator.host.engine.docker_seccomp import usual, with_namespaces
from sandbox_agent.decide.mounted_agent import ENVIRONMENT, PLACE
from sandbox_agent.decide.protocol import HOST_NAME

# The kernel's default scheduling period, in microseconds.
CPU_PERIOD = 100_000
# The engine switches IPv6 off where it gives no address of it, but programs listen on ::1.
_IPV6_LOOPBACK = {"net.ipv6.conf.lo.disable_ipv6": "0"}
# The wording of several Docker versions.
_UNKNOWN_RUNTIME = re.compile(r"(unknown|invalid)\b.*\bruntime", re.IGNORECASE)


def container_config(
    spec: SandboxSpec, instance: str, *, ipv6: bool = False, engines_profile: bool = False
) -> dict[str, Any]:
    """The body of `POST /containers/create`; the entry point is the mounted agent.

    `ipv6`: the kernel has it, and the sandbox's loopback gets the address ::1. `engines_profile`:
    the engine's profile of system calls stays, unless the sandbox needs namespaces.
    """
    return {
        **overridden(spec.agent),
        "Image": spec.image,
        "Hostname": HOST_NAME,
        "Labels": {**spec.labels, LABEL_INSTANCE: instance},
        "HostConfig": host_config(spec, ipv6=ipv6, engines_profile=engines_profile),
    }


def host_config(
    spec: SandboxSpec, *, ipv6: bool = False, engines_profile: bool = False
) -> dict[str, Any]:
    """Confinement, limits and mounts of the container."""
    return {
        # The agent switches to each command's uid, and needs no other root privilege.
        "CapDrop": ["ALL"],
        "CapAdd": ["SETUID", "SETGID"],
        "SecurityOpt": security_options(
            namespaces=spec.namespaces, engines_profile=engines_profile
        ),
        "ReadonlyRootfs": True,
        "Init": False,  # the agent is PID 1 and reaps
        "RestartPolicy": {"Name": "no"},
        "NetworkMode": spec.network or "none",
        # On a network, the engine gives the name an address.
        "ExtraHosts": [] if spec.network else [f"{HOST_NAME}:127.0.0.1"],
        "Mounts": [
            terminals(),
            *(_mount(bind) for bind in spec.binds),
            *agent_mounts(spec.agent),
        ],
        "MaskedPaths": list(HIDDEN),
        "Sysctls": {**kernel_objects(spec.limits), **(_IPV6_LOOPBACK if ipv6 else {})},
        "Tmpfs": _tmpfs(spec),
        "LogConfig": log_config(),
        **({"Runtime": spec.runtime} if spec.runtime else {}),
        **_limits(spec.limits),
        **_throttles(spec.rates, spec.disk),
    }


def security_options(*, namespaces: bool, engines_profile: bool) -> list[str]:
    """With our profile of system calls: the one for user `namespaces`, or the usual one.

    `engines_profile`: the engine's stays in place of the usual one.
    """
    if namespaces:
        return ["no-new-privileges", f"seccomp={with_namespaces()}"]
    return ["no-new-privileges", *([] if engines_profile else [f"seccomp={usual()}"])]


def overridden(agent: MountedAgent) -> dict[str, Any]:
    """What replaces the image's own entry point, user, directory, environment and health check."""
    unset = (name for name in agent.unset if name not in ENVIRONMENT)
    return {
        "Entrypoint": list(agent.command),
        "Cmd": [],
        "User": "0:0",
        "WorkingDir": "/",
        # A name without a value is taken away.
        "Env": [*(f"{name}={value}" for name, value in ENVIRONMENT.items()), *unset],
        "Healthcheck": {"Test": ["NONE"]},
    }


def agent_mounts(agent: MountedAgent) -> list[dict[str, Any]]:
    """The agent's directory, and empty ones in place of the image's own volumes.

    Those would be writable, and have no limit.
    """
    return [
        _mount(Bind(agent.directory, PLACE, read_only=True)),
        *(
            {
                "Type": "tmpfs",
                "Target": path,
                "ReadOnly": True,
                "TmpfsOptions": {"SizeBytes": 4096, "Mode": 0o555},
            }
            for path in agent.hidden
        ),
    ]


def log_config() -> dict[str, Any]:
    """Small, but large enough to show why a container ended."""
    return {
        "Type": "local",
        "Config": {"max-size": "64k", "max-file": "1", "compress": "false"},
    }


def refuse_dropped_limits(warnings: list[str] | None) -> None:
    """Raises EngineUnavailableError if the engine says that it ignores a limit."""
    dropped = [text for text in warnings or [] if "discarded" in text.lower()]
    if dropped:
        raise EngineUnavailableError(
            f"the container engine can't set every limit: {'; '.join(dropped)}"
        )


def unknown_runtime(runtime: str | None, explanation: str | None) -> EngineUnavailableError | None:
    """The message if an unknown runtime is why the engine refused the container."""
    if runtime is None or not _UNKNOWN_RUNTIME.search(explanation or ""):
        return None
    return EngineUnavailableError(
        f"the container engine has no runtime {runtime}: configure it there, or name another in "
        "the level's file or in PADDOCK_RUNTIME"
    )


def _limits(limits: Limits) -> dict[str, Any]:
    shared = limits.shm_bytes > 0
    return {
        # Quota and period instead of NanoCpus, because the engine refuses to update a mixture.
        "CpuPeriod": CPU_PERIOD,
        "CpuQuota": round(limits.cpus * CPU_PERIOD),
        "Memory": limits.memory_bytes,
        "MemorySwap": limits.memory_bytes,  # memory and swap together, so no swap
        "PidsLimit": limits.pids,
        # /dev/shm is writable even under a read-only root.
        "IpcMode": "private" if shared else "none",
        **({"ShmSize": limits.shm_bytes} if shared else {}),
    }


def _throttles(rates: Rates, disk: str | None) -> dict[str, Any]:
    """Rates of the workspace's device.

    With control groups of version 1, docker_rates adds the rest.
    """
    if disk is None:
        return {}
    wanted = {"BlkioDeviceReadBps": rates.disk_read, "BlkioDeviceWriteBps": rates.disk_write}
    return {
        name: [{"Path": disk, "Rate": rate}] for name, rate in wanted.items() if rate is not None
    }


def _mount(bind: Bind) -> dict[str, Any]:
    return {
        "Type": "bind",
        "Source": bind.source,
        "Target": bind.target,
        "ReadOnly": bind.read_only,
        "BindOptions": {"Propagation": "rslave" if bind.follows else "rprivate"},
    }


def _tmpfs(spec: SandboxSpec) -> dict[str, str]:
    execute = "exec" if spec.tmp_exec else "noexec"
    options = f"size={spec.limits.tmp_bytes},mode=1777,nosuid,nodev,{execute}"
    mounts = {"/tmp": options}  # noqa: S108 - a path inside the sandbox
    if spec.limits.shm_bytes == 0:
        # Some engines mount message queues even without shared memory, so an empty directory takes
        # their place.
        mounts["/dev/mqueue"] = "ro,size=4096,mode=555,nosuid,nodev,noexec"
    return mounts
