"""Generates `deploy/node.json`, the options of compose.yaml in the engine's words.

Launchers of other engines than Compose start a node's container with them.
"""

import json
import re
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "compose.yaml"
TARGET = ROOT / "deploy" / "node.json"
# Where gateways reach the node; compose.yaml has no such port, because it has one machine.
CLUSTER_PORT = 8790
_STATE = "${PADDOCK_STATE_DIR:-/var/lib/paddock}"
_SOCKET = "${PADDOCK_DOCKER_SOCKET:-/var/run/docker.sock}"
_NANOSECONDS = 1_000_000_000


def options(service: dict[str, Any]) -> dict[str, Any]:
    """`Body` is the engine's order for the container, `Env` has the settings that are fixed.

    `$STATE` in it stands for the state directory, `$SOCKET` for the engine's socket.

    Raises: ValueError for what this doesn't know.
    """
    known = _FIELDS | {"image", "pull_policy", "depends_on", "restart", "environment", "ports"}
    if unknown := set(service) - known:
        raise ValueError(f"compose.yaml: say here what {sorted(unknown)} means to an engine")
    ports = [*map(_port, service["ports"]), (f"0.0.0.0:{CLUSTER_PORT}", f"{CLUSTER_PORT}/tcp")]
    host = {
        "Binds": [_state(volume) for volume in service["volumes"]],
        "DeviceCgroupRules": service["device_cgroup_rules"],
        "PidMode": service["pid"],
        "Init": service["init"],
        "ReadonlyRootfs": service["read_only"],
        "Tmpfs": dict(entry.split(":", 1) for entry in service["tmpfs"]),
        "CapDrop": service["cap_drop"],
        "CapAdd": service["cap_add"],
        "SecurityOpt": service["security_opt"],
        "PortBindings": {inside: [_binding(outside)] for outside, inside in ports},
        "LogConfig": {
            "Type": service["logging"]["driver"],
            "Config": service["logging"]["options"],
        },
    }
    body = {
        "Cmd": ["serve"],
        "ExposedPorts": {inside: {} for _, inside in ports},
        "Healthcheck": _health(service["healthcheck"]),
        "StopTimeout": _seconds(service["stop_grace_period"]),
        "HostConfig": host,
    }
    return {"Body": body, "Env": _settings(service["environment"])}


_FIELDS = {
    *("volumes", "device_cgroup_rules", "pid", "init", "read_only", "tmpfs", "cap_drop"),
    *("cap_add", "security_opt", "logging", "healthcheck", "stop_grace_period"),
}


def _state(text: str) -> str:
    return text.replace(_STATE, "$STATE").replace(_SOCKET, "$SOCKET")


def _port(text: str) -> tuple[str, str]:
    """The address outside and the port inside, with the defaults of the variables."""
    outside, inside = re.sub(r"\$\{\w+:-(\w+)\}", r"\1", text).rsplit(":", 1)
    return outside, f"{inside}/tcp"


def _binding(outside: str) -> dict[str, str]:
    address, port = outside.rsplit(":", 1)
    return {"HostIp": address, "HostPort": port}


def _health(check: dict[str, Any]) -> dict[str, Any]:
    times = {"interval": "Interval", "timeout": "Timeout", "start_period": "StartPeriod"}
    return {
        "Test": check["test"],
        "Retries": check["retries"],
        **{theirs: _seconds(check[name]) * _NANOSECONDS for name, theirs in times.items()},
    }


def _seconds(text: str) -> int:
    return int(text.removesuffix("s"))


def _settings(environment: dict[str, Any]) -> dict[str, str]:
    """Those that have one value; what the launcher's own environment has comes above them."""
    fixed = {name: str(value) for name, value in environment.items() if value is not None}
    return {name: value for name, value in fixed.items() if "$" not in value}


def text() -> str:
    """The content of the file."""
    services = yaml.safe_load(SOURCE.read_text(encoding="utf-8"))["services"]
    return json.dumps(options(services["control-plane"]), indent=2) + "\n"


if __name__ == "__main__":
    TARGET.write_text(text(), encoding="utf-8")
