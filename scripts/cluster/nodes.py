"""Nodes: the control plane of each machine, as `scripts.service` starts and stops it there."""

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field

import psutil

from scripts import service
from scripts.cluster.layout import NODE_PORT, ClusterError
from scripts.cluster.machines import Machine
from scripts.cluster.signals import Signalled


@dataclass(frozen=True, slots=True)
class Node(Signalled):
    """A machine's control plane; `settings` are added to those that every node needs."""

    machine: Machine
    settings: Mapping[str, str] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """`node1`, `node2`, …"""
        return self.machine.name

    @property
    def url(self) -> str:
        """Where it listens, for programs of the host and of other machines."""
        return f"http://{self.machine.address}:{NODE_PORT}"

    def start(self) -> None:
        """Starts it and returns when it is ready; restarts it if it runs. Raises: ClusterError."""
        self._service("start", service.READY_SECONDS + service.STOP_SECONDS)

    def stop(self) -> None:
        """Stops it cleanly; its sandboxes keep running. Raises: ClusterError."""
        self._service("stop", service.STOP_SECONDS)

    def process(self) -> psutil.Process | None:
        """The control plane's process; None if there is none."""
        first = self.machine.first_process()
        for process in [] if first is None else first.children():
            try:
                if process.cmdline()[1:] == service.COMMAND[1:]:
                    return process
            except psutil.NoSuchProcess:
                continue
        return None

    def environment(self) -> dict[str, str]:
        """The variables of its process: none of the caller's settings are in force there."""
        return {
            **without_settings(),
            "PADDOCK_STATE_DIR": str(self.machine.directory / "state"),
            "PADDOCK_LISTEN": f"{self.machine.address}:{NODE_PORT}",
            "PADDOCK_DOCKER_HOST": f"unix://{self.machine.layout.socket(self.name)}",
            # Their larger default images are not loaded.
            "PADDOCK_LEVEL_IMAGES": "{}",
            **self.settings,
        }

    def _service(self, command: str, seconds: float) -> None:
        run = [sys.executable, "-m", "scripts.service", command]
        done = self.machine.run(run, self.environment(), seconds)
        if done.returncode:
            last = (done.stdout.strip().splitlines() or ["it said nothing"])[-1]
            raise ClusterError(f"{self.machine.name}: {last.removeprefix('error: ')}")


def without_settings() -> dict[str, str]:
    """The variables of this process that are no settings of Paddock or of an engine."""
    return {name: each for name, each in os.environ.items() if not _is_setting(name)}


def _is_setting(name: str) -> bool:
    return name.startswith("PADDOCK_") or name == "DOCKER_HOST"
