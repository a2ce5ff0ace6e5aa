"""Ports for programs of tests that are told their port, and get it back when they start again."""

import random
import socket
from pathlib import Path

_RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")
# Below are the ports that services of the machine have.
_FIRST = 10_000


def free_port() -> int:
    """A TCP port that nothing has, and that the kernel gives to nobody.

    It gives those of its range to whoever asks for any, and to each connection; tests beside this
    one do that all the time. So the port is below that range.
    """
    end = int(_RANGE.read_text().split()[0])
    while True:
        port = random.randrange(_FIRST, end)
        with socket.socket() as probe:
            try:
                probe.bind(("", port))
            except OSError:
                continue
        return port
