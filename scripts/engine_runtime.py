"""Registers a runtime with the Docker engine of this host, which keeps running.

Its file `daemon.json` gets the runtime and keeps everything else; then the engine reads it again.
For the tests' set-up only.
"""

import json
import os
import signal
import sys
import tempfile
from contextlib import closing
from pathlib import Path
from typing import Any

import docker

CONFIGURATION = Path("/etc/docker/daemon.json")
PID_FILE = Path("/var/run/docker.pid")
_SECONDS = 30


class RuntimeSetupError(Exception):
    """Why it can't be registered."""


def registered(text: str, name: str, path: str) -> str | None:
    """The configuration with the runtime; None if it has that runtime already.

    Raises: RuntimeSetupError if the text is not a configuration.
    """
    try:
        configuration: Any = json.loads(text or "{}")
    except ValueError as error:
        raise RuntimeSetupError(f"{CONFIGURATION} is not JSON: {error}") from None
    if not isinstance(configuration, dict):
        raise RuntimeSetupError(f"{CONFIGURATION} must hold an object")
    runtimes = configuration.setdefault("runtimes", {})
    if not isinstance(runtimes, dict):
        raise RuntimeSetupError(f"{CONFIGURATION}: runtimes must be an object")
    if name in runtimes:
        return None
    runtimes[name] = {"path": path}
    return json.dumps(configuration, indent=4) + "\n"


def write(file: Path, text: str) -> None:
    """Replaces the file's content at once; its mode stays. Raises: OSError."""
    file.parent.mkdir(exist_ok=True)
    mode = file.stat().st_mode & 0o777 if file.exists() else 0o644
    with tempfile.NamedTemporaryFile("w", dir=file.parent, delete=False) as made:
        made.write(text)
        os.fchmod(made.fileno(), mode)
    os.replace(made.name, file)


def register(client: docker.APIClient, name: str, path: str) -> None:
    """Raises: RuntimeSetupError; OSError; the engine's errors."""
    file = CONFIGURATION
    text = registered(file.read_text() if file.exists() else "", name, path)
    if text is not None:
        write(file, text)
    # What the engine says begins before it is asked to read the file.
    with closing(client.events(filters={"type": "daemon", "event": "reload"}, decode=True)) as said:
        os.kill(int(PID_FILE.read_text()), signal.SIGHUP)
        next(said)
    if name not in client.info()["Runtimes"]:
        raise RuntimeSetupError(f"the engine did not take {name} from {file}: see its log")


def main(arguments: list[str]) -> int:
    """`NAME PATH` registers it, `NAME --registered` says whether the engine has it."""
    name, path = arguments
    try:
        with closing(docker.APIClient(version="auto", timeout=_SECONDS)) as client:
            if name in client.info()["Runtimes"]:
                return 0
            if path == "--registered":
                return 1
            register(client, name, path)
    except (RuntimeSetupError, OSError, docker.errors.DockerException) as error:
        print(f"the runtime {name} can't be registered: {error}", file=sys.stderr)
        return 1
    print(f"==> the engine has the runtime {name} now")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
