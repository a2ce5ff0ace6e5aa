"""Converts Docker's answers to the engine's records: pure functions."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from orchestrator.host.engine.base import (
    Container,
    ContainerState,
    EngineEvent,
    EngineInfo,
    Image,
)
from orchestrator.host.engine.image_names import familiar

# Attributes that Docker adds to the labels in a container's event.
_NOT_LABELS = frozenset({"image", "name", "exitCode", "execDuration", "signal"})

# The members of `GET /info` for each limit that sandboxes need.
_CAN_LIMIT = {
    "cpus": "CpuCfsQuota",
    "memory": "MemoryLimit",
    "swap": "SwapLimit",
    "pids": "PidsLimit",
}

_EXITED = re.compile(r"Exited \((\d+)\)")


def engine_info(raw: dict[str, Any], version: dict[str, Any]) -> EngineInfo:
    """Converts `GET /info` and `GET /version`."""
    options = _security_options(raw.get("SecurityOptions") or [])
    status = dict(pair for pair in raw.get("DriverStatus") or [] if len(pair) == 2)
    return EngineInfo(
        version=str(raw.get("ServerVersion", "")),
        cgroup_version=str(raw.get("CgroupVersion", "1")),
        rootless="rootless" in options,
        userns_remap="userns" in options,
        unlimited=tuple(name for name, key in _CAN_LIMIT.items() if raw.get(key) is False),
        runtimes=tuple(sorted(raw.get("Runtimes") or {})),
        default_runtime=raw.get("DefaultRuntime") or None,
        apparmor="apparmor" in options,
        selinux="selinux" in options,
        podman=any(
            str(each.get("Name", "")).startswith("Podman")
            for each in version.get("Components") or []
        ),
        seccomp=options.get("seccomp") not in (None, "unconfined"),
        containerd_images=str(status.get("driver-type", "")).startswith("io.containerd."),
        firewall=(raw.get("FirewallBackend") or {}).get("Driver"),
    )


def has_set_profile(info: Mapping[str, Any]) -> bool:
    """Whether the engine's profile of system calls is not the one that it comes with."""
    profile = _security_options(info.get("SecurityOptions") or []).get("seccomp")
    return profile not in ("default", "builtin")


def _security_options(options: Sequence[str]) -> dict[str, str]:
    """The profile of each security option by its name, as in `name=seccomp,profile=builtin`."""
    found = {}
    for option in options:
        members = dict(part.split("=", 1) for part in option.split(",") if "=" in part)
        if "name" in members:
            found[members["name"]] = members.get("profile", "")
    return found


def image(raw: dict[str, Any]) -> Image:
    """Converts `GET /images/…/json`."""
    config = raw.get("Config") or {}
    return Image(
        id=raw["Id"],
        labels=dict(config.get("Labels") or {}),
        architecture=raw.get("Architecture") or "",
        size=raw.get("Size") or 0,
        environment=tuple(config.get("Env") or ()),
        volumes=tuple(config.get("Volumes") or ()),
        layers=_layers(raw.get("GraphDriver") or {}),
    )


def _layers(driver: dict[str, Any]) -> tuple[str, ...]:
    if driver.get("Name") != "overlay2":
        return ()
    data = driver.get("Data") or {}
    lower = (data.get("LowerDir") or "").split(":")
    return tuple(filter(None, (data.get("UpperDir") or "", *lower)))


def named_images(raw: Sequence[dict[str, Any]], names: Sequence[str]) -> dict[str, Image]:
    """Converts `GET /images/json`: the images that have these names, by them."""
    found: dict[str, Image] = {}
    for each in raw:
        listed = Image(id=each["Id"], labels=dict(each.get("Labels") or {}))
        for name in (each["Id"], *(each.get("RepoTags") or ()), *(each.get("RepoDigests") or ())):
            found[name] = listed
    return {name: found[familiar(name)] for name in names if familiar(name) in found}


def inspected(raw: dict[str, Any]) -> Container:
    """Converts `GET /containers/…/json`."""
    state = raw["State"]
    ended = _state(state["Status"]) is ContainerState.EXITED
    return Container(
        id=raw["Id"],
        name=raw["Name"].removeprefix("/"),
        labels=dict(raw["Config"].get("Labels") or {}),
        state=_state(state["Status"]),
        exit_code=state["ExitCode"] if ended else None,
        oom_killed=bool(state.get("OOMKilled")),
        limits=_limits(raw["HostConfig"]),
        pid=state.get("Pid") or None,
        runtime=raw["HostConfig"].get("Runtime") or None,
    )


def listed(raw: dict[str, Any]) -> Container:
    """Converts an entry of `GET /containers/json`, which has no limits."""
    ended = _EXITED.match(raw.get("Status", ""))
    return Container(
        id=raw["Id"],
        name=raw["Names"][0].removeprefix("/") if raw.get("Names") else "",
        labels=dict(raw.get("Labels") or {}),
        state=_state(raw["State"]),
        exit_code=int(ended[1]) if ended else None,
    )


def event(raw: dict[str, Any]) -> EngineEvent:
    """Converts a line of `GET /events`."""
    actor = raw["Actor"]
    attributes: dict[str, str] = actor.get("Attributes") or {}
    exit_code = attributes.get("exitCode")
    return EngineEvent(
        action=raw["Action"],
        container_id=actor["ID"],
        labels={key: text for key, text in attributes.items() if key not in _NOT_LABELS},
        exit_code=int(exit_code) if exit_code is not None else None,
    )


def _limits(host: dict[str, Any]) -> dict[str, float]:
    quota, period = host.get("CpuQuota") or 0, host.get("CpuPeriod") or 0
    return {
        "cpus": quota / period if period else (host.get("NanoCpus") or 0) / 1e9,
        "memory_bytes": host.get("Memory") or 0,
        "pids": host.get("PidsLimit") or 0,
    }


def _state(status: str) -> ContainerState:
    """Docker's `dead` and `removing` count as ended, too."""
    return {
        "created": ContainerState.CREATED,
        "running": ContainerState.RUNNING,
        "paused": ContainerState.PAUSED,
    }.get(status, ContainerState.EXITED)
