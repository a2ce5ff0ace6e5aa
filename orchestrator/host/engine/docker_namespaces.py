"""The host's own programs in a container's network namespace, where this process may enter it.

That takes root with CAP_SYS_ADMIN and CAP_NET_ADMIN, and the engine's directory of namespaces: a
control plane that runs on the host has them, one in a container has not. A helper container, which
needs neither, takes a quarter of a second longer.
"""

import logging
import os
import subprocess
from pathlib import Path
from typing import Any

_OWN = Path("/proc/self/ns/net")
_PATH = "/usr/sbin:/usr/bin:/sbin:/bin"
_SECONDS = 5.0

_log = logging.getLogger(__name__)


def ran_inside(container: dict[str, Any], script: str, *arguments: str) -> bool:
    """Whether the script ran in the namespace of a running container, and succeeded.

    `container` is the engine's description of it. After False, part of the script may have run.
    """
    key = container["NetworkSettings"].get("SandboxKey")
    if not key:
        return False
    try:
        # Opened once, so that all steps are about the same namespace.
        namespace = os.open(key, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return False  # as in a container
    try:
        return _ran(namespace, script, arguments)
    except (OSError, subprocess.TimeoutExpired) as error:
        _log.info("%s could not be entered: %s", key, error)
        return False
    finally:
        os.close(namespace)


def _ran(namespace: int, script: str, arguments: tuple[str, ...]) -> bool:
    """Raises: OSError, TimeoutExpired."""
    found, own = os.fstat(namespace), _OWN.stat()
    if (found.st_dev, found.st_ino) == (own.st_dev, own.st_ino):
        return False  # the host's
    done = subprocess.run(
        ["nsenter", f"--net=/proc/self/fd/{namespace}", "sh", "-c", script, "sh", *arguments],
        pass_fds=(namespace,),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=_SECONDS,
        env={"PATH": _PATH},
        cwd="/",
        check=False,
    )
    return done.returncode == 0
