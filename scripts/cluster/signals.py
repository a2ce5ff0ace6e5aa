"""What tests and people do to a process of a cluster from outside."""

import signal
from abc import ABC, abstractmethod

import psutil

from scripts.cluster.layout import ClusterError

# A control plane that stops removes sandboxes that wait.
STOP_SECONDS = 300


class Signalled(ABC):
    """One process, which each call finds anew."""

    @property
    @abstractmethod
    def name(self) -> str:
        """How it is called in the cluster."""

    @abstractmethod
    def process(self) -> psutil.Process | None:
        """The process; None if it does not run."""

    def kill(self) -> None:
        """Ends it with SIGKILL, and waits for its end. Raises: ClusterError."""
        self._send(signal.SIGKILL).wait(STOP_SECONDS)

    def pause(self) -> None:
        """Stops it where it is: its connections stay, and it answers nothing. As `kill`."""
        self._send(signal.SIGSTOP)

    def resume(self) -> None:
        """Lets it go on. Raises: ClusterError."""
        self._send(signal.SIGCONT)

    def _send(self, number: signal.Signals) -> psutil.Process:
        process = self.process()
        if process is None:
            raise ClusterError(f"{self.name} does not run")
        process.send_signal(number)
        return process
