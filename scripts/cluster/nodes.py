"""Nodes: the control plane of each machine, as `scripts.service` starts and stops it there."""

import os
import secrets
import signal
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field

import psutil

from scripts import service
from scripts.cluster.layout import NODE_PORT, ClusterError
from scripts.cluster.machines import Machine


@dataclass(frozen=True, slots=True)
class Node:
    """A machine's control plane; `settings` are added to those that every node needs."""

    machine: Machine
    settings: Mapping[str, str] = field(default_factory=dict)

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

    def signal(self, number: signal.Signals) -> None:
        """Sends it a signal; SIGKILL leaves its sandboxes running. Raises: ClusterError."""
        process = self.process()
        if process is None:
            raise ClusterError(f"no control plane runs on {self.machine.name}")
        process.send_signal(number)
        if number is signal.SIGKILL:
            process.wait(service.STOP_SECONDS)

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
        kept = {name: each for name, each in os.environ.items() if not _is_setting(name)}
        layout, name = self.machine.layout, self.machine.name
        return {
            **kept,
            "PADDOCK_STATE_DIR": str(self.machine.directory / "state"),
            "PADDOCK_LISTEN": f"{self.machine.address}:{NODE_PORT}",
            "PADDOCK_DOCKER_HOST": f"unix://{layout.socket(name)}",
            "PADDOCK_ADMIN_KEY": layout.admin_key.read_text().strip(),
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


def make_admin_key(machine: Machine) -> None:
    """Makes the file with the cluster's admin key, unless it is there. Raises: OSError."""
    path = machine.layout.admin_key
    if not path.exists():
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with open(descriptor, "w", encoding="ascii") as file:
            file.write(f"{secrets.token_urlsafe(32)}\n")


def _is_setting(name: str) -> bool:
    return name.startswith("PADDOCK_") or name == "DOCKER_HOST"
