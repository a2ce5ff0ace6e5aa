"""What a helper of the host tells about itself."""

import os
import resource
import socket
from pathlib import Path
from typing import Any

_LIMITS = ("AS", "CPU", "NOFILE", "NPROC", "CORE", "FSIZE")


def perform(request: dict[str, Any]) -> dict[str, Any]:
    """Its rights, limits, network and environment; with `raise`, a failure that names something."""
    if "raise" in request:
        raise ValueError("a name of the session")
    status = Path("/proc/self/status").read_text(encoding="utf-8")
    fields = dict(line.split(":\t", 1) for line in status.splitlines() if ":\t" in line)
    return {
        "ids": [*os.getresuid(), *os.getresgid(), *os.getgroups()],
        "rights": [fields["CapEff"], fields["CapPrm"], fields["NoNewPrivs"]],
        "limits": {
            name: resource.getrlimit(getattr(resource, f"RLIMIT_{name}")) for name in _LIMITS
        },
        "up": [name for _, name in socket.if_nameindex() if name != "lo"],
        "environment": sorted(set(os.environ) - {"LC_CTYPE"}),
        "listed": os.listdir(request["place"]),
    }
