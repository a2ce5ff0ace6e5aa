"""What cells and their child processes print: the descriptors 1 and 2, passed on as frames."""

import io
import os
import select
import sys
import threading
from collections.abc import Callable

_READ_BYTES = 64 * 1024

Send = Callable[[str, bytes], None]


class Streams:
    """Takes the process's standard streams; their bytes go to `send`."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self._lock = threading.Lock()
        self._kinds: dict[int, str] = {}
        for stream in (sys.stdout, sys.stderr):
            if isinstance(stream, io.TextIOWrapper):
                stream.reconfigure(line_buffering=True)
        for descriptor, kind in ((1, "out"), (2, "err")):
            reads, writes = os.pipe()
            os.dup2(writes, descriptor, inheritable=True)
            os.close(writes)
            os.set_blocking(reads, False)
            self._kinds[reads] = kind
        threading.Thread(target=self._pump, daemon=True).start()

    def drain(self) -> None:
        """Sends what was printed so far."""
        for stream in (sys.stdout, sys.stderr):
            try:
                stream.flush()
            except (OSError, ValueError):  # a cell has closed it
                continue
        for descriptor in self._kinds:
            while self._pass_on(descriptor):
                pass

    def _pump(self) -> None:
        while True:
            readable, _, _ = select.select(list(self._kinds), [], [])
            for descriptor in readable:
                self._pass_on(descriptor)

    def _pass_on(self, descriptor: int) -> bool:
        """Whether there was something."""
        with self._lock:
            try:
                data = os.read(descriptor, _READ_BYTES)
            except BlockingIOError:
                return False
            if data:
                self._send(self._kinds[descriptor], data)
            return bool(data)
