"""Reads in the kernel's tables which connections to a loopback port still belong to a process.

A client that has sent everything may still read, or its program may have ended. The other side sees
no difference until it writes.
"""

import os

from sandbox_agent.net.connection_owner import live_ports

_TABLES = ("tcp", "tcp6")
_READ_BYTES = 1 << 16


class ConnectionTables:
    """Opens the tables once, so that a process without access to files can read them."""

    def __init__(self, server: int, proc: str = "/proc") -> None:
        """`server` is the port. `proc` is for tests. A table that does not exist has no rows."""
        self._server = server
        self.descriptors: list[int] = []
        for name in _TABLES:
            try:
                path = f"{proc}/self/net/{name}"
                self.descriptors.append(os.open(path, os.O_RDONLY | os.O_CLOEXEC))
            except OSError:  # the sandbox has no IPv6
                continue

    def ports(self) -> set[int]:
        """The ports of clients that a process still has. Raises: OSError, ValueError."""
        if not self.descriptors:
            raise FileNotFoundError("there is no table of connections")
        found: set[int] = set()
        for descriptor in self.descriptors:
            os.lseek(descriptor, 0, os.SEEK_SET)
            parts = iter(lambda: os.read(descriptor, _READ_BYTES), b"")  # noqa: B023 - used at once
            found.update(live_ports(b"".join(parts).decode("ascii"), self._server))
        return found

    def close(self) -> None:
        """Closes the tables."""
        while self.descriptors:
            os.close(self.descriptors.pop())
