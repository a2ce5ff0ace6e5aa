"""Machines: namespaces on this host, each with a container engine, files, and a place in a network.

A machine lives as long as its first process (`machine.sh`): the kernel ends everything in its
namespaces with it, and removes its mounts and its network.
"""

import os
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

import docker
import psutil
from docker.errors import DockerException, ImageNotFound
from requests.exceptions import RequestException

from scripts.cluster.layout import ClusterError, Layout

ROOT = Path(__file__).parents[2]
SCRIPT = Path(__file__).with_name("machine.sh")
_NAMESPACES = ("--pid", "--mount", "--net", "--uts", "--ipc")
# The engine of a busy machine took 20 s to start.
_SECONDS = 300
_ANSWER_SECONDS = 5


@dataclass(frozen=True, slots=True)
class Machine:
    """A machine of the cluster, whether it runs or not."""

    layout: Layout
    name: str
    address: str

    @property
    def directory(self) -> Path:
        """What outlives it: its engine's containers and images, the control plane's state."""
        return self.layout.node_directory(self.name)

    def first_process(self) -> psutil.Process | None:
        """The process that everything on it depends on; None if it does not run."""
        return next(iter(first_processes(self.directory)), None)

    def start(self) -> None:
        """Starts it and returns when its engine answers; does nothing if it runs.

        Raises: ClusterError.
        """
        if self.first_process() is None:
            self.directory.mkdir(parents=True, exist_ok=True, mode=0o755)
            # The host's own configuration names its own directories.
            (self.directory / "engine.json").write_text("{}\n")
            self.layout.socket(self.name).unlink(missing_ok=True)
            group = f"/{self.layout.control_group}/{self.name}"
            arguments = (str(self.directory), group, self.layout.switch, self.address)
            # It outlives this process, and is nobody's child.
            subprocess.run(
                [
                    *("setsid", "--fork", "unshare", "--fork", *_NAMESPACES),
                    *("--propagation", "private", "bash", str(SCRIPT), *arguments),
                ],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                cwd="/",
                timeout=_SECONDS,
                check=True,
            )
        self._wait()

    def has(self, image_id: str) -> bool:
        """Whether its engine has this image. Raises: ClusterError."""
        with self._engine_errors(), closing(self.engine()) as client:
            try:
                client.images.get(image_id)
            except ImageNotFound:
                return False
            return True

    def unused(self) -> bool:
        """Whether its engine has no container yet. Raises: ClusterError."""
        with self._engine_errors(), closing(self.engine()) as client:
            return not client.containers.list(all=True)

    def tag(self, image_id: str, image: str) -> None:
        """Gives an image of its engine a name. Raises: ClusterError."""
        with self._engine_errors(), closing(self.engine()) as client:
            client.images.get(image_id).tag(image)

    def load(self, archive: Path) -> None:
        """Gives its engine the images of an archive. Raises: ClusterError."""
        with self._engine_errors(), closing(self.engine()) as client, archive.open("rb") as content:
            client.images.load(content)

    def engine(self, seconds: int = _SECONDS) -> docker.DockerClient:
        """A client of its engine, for a program of the host."""
        url = f"unix://{self.layout.socket(self.name)}"
        return docker.DockerClient(url, version="auto", timeout=seconds)

    def run(
        self, command: Sequence[str], environment: Mapping[str, str], seconds: float
    ) -> subprocess.CompletedProcess[str]:
        """Runs a command on it, in the folder of this checkout; returns what it said.

        Raises: ClusterError if the machine does not run, or the command does not end in time.
        """
        first = self.first_process()
        if first is None:
            raise ClusterError(
                f"{self.name} does not run: `python -m scripts.cluster up` starts it"
            )
        try:
            return subprocess.run(
                [*within(first.pid), *command],
                env=dict(environment),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                timeout=seconds,
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise ClusterError(f"{self.name}: {command} has not ended in {seconds:g} s") from None

    @contextmanager
    def _engine_errors(self) -> Iterator[None]:
        try:
            yield
        except (DockerException, RequestException) as error:
            raise ClusterError(f"the engine of {self.name} refuses: {error}") from None

    def _wait(self) -> None:
        deadline = time.monotonic() + _SECONDS
        while time.monotonic() < deadline:
            if answers(self.layout.socket(self.name)):
                return
            # An engine does not announce when it is ready.
            time.sleep(0.1)
            if not starting(self.directory):
                raise ClusterError(f"{self.name} ended: {self._said()}")
        raise ClusterError(f"{self.name}: its engine does not answer: {self._said()}")

    def _said(self) -> str:
        log = self.directory / "engine.log"
        lines = log.read_text(errors="replace").splitlines() if log.exists() else []
        return f"{lines[-1] if lines else 'it said nothing'} (its log is {log})"


def within(first_pid: int) -> list[str]:
    """The start of a command that runs on the machine with that first process."""
    kinds = ("--mount", "--net", "--pid", "--uts", "--ipc")
    return ["nsenter", f"--target={first_pid}", *kinds, "env", "-C", str(ROOT)]


def first_processes(directory: Path) -> list[psutil.Process]:
    """The first processes of machines in this directory or below it."""
    return _found(directory, "bash")


def starting(directory: Path) -> list[psutil.Process]:
    """Like `first_processes`, with those that have yet to make them."""
    return _found(directory, "bash", "unshare", "setsid")


def _found(directory: Path, *programs: str) -> list[psutil.Process]:
    found = []
    for process in psutil.process_iter():
        try:
            words = process.cmdline()
        except (psutil.NoSuchProcess, psutil.AccessDenied):
            continue
        if words and os.path.basename(words[0]) in programs and str(SCRIPT) in words:
            place = Path(words[words.index(str(SCRIPT)) + 1])
            if place.is_relative_to(directory):
                found.append(process)
    return found


def answers(path: Path) -> bool:
    """Whether an engine listens on this socket, and is ready."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(_ANSWER_SECONDS)
        try:
            connection.connect(str(path))
            connection.sendall(b"GET /_ping HTTP/1.0\r\n\r\n")
            return b" 200 " in connection.recv(64)
        except OSError:
            return False
