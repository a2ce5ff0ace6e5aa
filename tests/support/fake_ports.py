"""The ports of a fake agent's sandbox: those of this machine's loopback."""

import threading
from pathlib import Path

from sandbox_agent.decide.protocol import PORTS_SOCKET_NAME
from sandbox_agent.net.ports_process import PortRelays


class FakePorts:
    """Runs what the sandbox's process for ports runs, in a thread, while somebody listens to it."""

    def __init__(self) -> None:
        self.directory = Path()
        self.started = 0
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        if self._thread is None or not self._thread.is_alive():
            self.started += 1
            path = str(self.directory / PORTS_SOCKET_NAME)
            self._thread = threading.Thread(target=PortRelays(path).run, daemon=True)
            self._thread.start()
