"""Gateways: on loopback of the host, which has a link to the machines."""

import http.client
import os
import stat
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import psutil

from scripts.cluster.layout import PREVIEWS_FURTHER, ClusterError, Layout
from scripts.cluster.machines import ROOT
from scripts.cluster.nodes import without_settings
from scripts.cluster.signals import STOP_SECONDS, Signalled

_COMMAND = [sys.executable, "-m", "paddock", "gateway"]
_SCRIPT = Path(__file__).with_name("gateway.sh")
_SECONDS = 300
_ANSWER_SECONDS = 5
# Looks, each 0.1 s after the one before, at which a gateway is not there: then it has ended.
_MOST_MISSED = 5


@dataclass(frozen=True, slots=True)
class Gateway(Signalled):
    """A gateway, known by its directory, which it works in."""

    layout: Layout
    label: str
    port: int
    settings: Mapping[str, str]

    @property
    def name(self) -> str:
        """`gateway1`, `gateway2`, …"""
        return self.label

    @property
    def url(self) -> str:
        """Where clients reach the cluster."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def log(self) -> Path:
        """Its log."""
        return self._directory / "log"

    @property
    def _directory(self) -> Path:
        return self.layout.gateways / self.name

    def start(self) -> None:
        """Starts it and returns when it is ready; does nothing if it runs. Raises: ClusterError."""
        if self.process() is None:
            if self._status() is not None:
                raise ClusterError(f"another program listens on port {self.port}: give --port")
            self._directory.mkdir(parents=True, exist_ok=True)
            environment = without_settings() | dict(self.settings)
            with self.log.open("ab") as log:
                # It outlives this process, and is nobody's child.
                subprocess.run(
                    [*("setsid", "--fork", *_start(self.layout, self._directory)), *_COMMAND],
                    cwd="/",
                    env=environment | self._ports(),
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    timeout=_SECONDS,
                    check=True,
                )
        deadline = time.monotonic() + _SECONDS
        missed = 0
        while self._status() != 200:
            # A process has no command line at the moment in which it becomes another program.
            missed = missed + 1 if self.process() is None else 0
            if missed == _MOST_MISSED or time.monotonic() > deadline:
                lines = self.log.read_text(errors="replace").splitlines()
                last = lines[-1] if lines else "it said nothing"
                raise ClusterError(f"{self.name} is not ready: {last} (its log is {self.log})")
            time.sleep(0.1)  # as the readiness of every control plane

    def _ports(self) -> dict[str, str]:
        previews = self.port + PREVIEWS_FURTHER
        return {
            "PADDOCK_GATEWAY_PORT": str(self.port),
            "PADDOCK_GATEWAY_PREVIEW_PORT": str(previews),
        }

    def stop(self) -> None:
        """Stops it cleanly: what is open may end. Does nothing if it does not run."""
        process = self.process()
        if process is not None:
            process.terminate()
            process.wait(STOP_SECONDS)

    def process(self) -> psutil.Process | None:
        """The gateway's process; None if there is none."""
        return next(iter(processes(self._directory)), None)

    def _status(self) -> int | None:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=_ANSWER_SECONDS)
        try:
            connection.request("GET", "/readyz")
            return connection.getresponse().status
        except (OSError, http.client.HTTPException):
            return None
        finally:
            connection.close()


def _start(layout: Layout, directory: Path) -> list[str]:
    """The start of a gateway's command: its user reads what it needs, whosever home that is in."""
    loaded = [Path(sys.base_prefix).resolve(), ROOT.resolve()]
    closed = next((each for each in map(_closed, loaded) if each is not None), None)
    # What root reads before it becomes that user.
    needed = [*loaded, layout.directory]
    inside = [] if closed is None else [str(each) for each in needed if each.is_relative_to(closed)]
    script = [str(_SCRIPT), str(directory), "" if closed is None else str(closed), *inside, "--"]
    return ["unshare", "--mount", "--propagation", "private", "bash", *script]


def _closed(path: Path) -> Path | None:
    """The uppermost directory on the way to a path that other users can't enter."""
    way = [*reversed(path.parents), path]
    return next((each for each in way if not each.stat().st_mode & stat.S_IXOTH), None)


def processes(directory: Path) -> list[psutil.Process]:
    """The processes of gateways in this directory or below it, also those that are starting."""
    found = []
    for process in psutil.process_iter():
        try:
            words = process.cmdline()
            if words[-3:] != _COMMAND[1:]:
                continue
            # The script that starts one is told its directory; the gateway works in it.
            at = words[words.index(str(_SCRIPT)) + 1] if str(_SCRIPT) in words else process.cwd()
            if Path(at.removesuffix(" (deleted)")).is_relative_to(directory):
                found.append(process)
        except (psutil.NoSuchProcess, psutil.AccessDenied):
            continue
    return found


def give_password(layout: Layout, password_file: Path, user: int) -> None:
    """Copies the database's password to a file that only this user can read. Raises: OSError."""
    new = layout.gateway_password.with_suffix(".new")
    descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with open(descriptor, "w", encoding="ascii") as file:
        file.write(password_file.read_text())
        os.fchown(file.fileno(), user, user)
    new.replace(layout.gateway_password)
