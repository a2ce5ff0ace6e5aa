"""Runs a node's control plane on one machine of a Swarm, as Compose would.

A service of Swarm can't be in the host's pid namespace and has neither device rules nor security
options, so the service is this launcher. It starts the control plane's container with the options
of `node.json`, watches it, and stops it when it is stopped itself. Sandboxes keep running.
It needs the engine's socket and the state directory, and no capability.
"""

import contextlib
import hashlib
import json
import os
import signal
import sys
from collections.abc import Mapping
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn

from docker import APIClient
from docker.errors import DockerException, NotFound

CONTAINER = "paddock-node"
# What the container was made from: with another one, it is replaced.
MADE_FROM = "paddock.made-from"
OPTIONS = Path("/node.json")
SECRETS = Path("/run/secrets")
_CALL_SECONDS = 30
# Compose's `stop_grace_period`.
_STOP_SECONDS = 20


def wanted(
    options: Mapping[str, Any], environment: Mapping[str, str], address: str
) -> dict[str, Any]:
    """The engine's order for the container.

    The settings of the service are those of the node, above the ones that the options name;
    `$ADDRESS` in them stands for the machine's address in the Swarm. `LAUNCHER_IMAGE` is the
    control plane's image, `LAUNCHER_SOCKET` the engine's on the host.
    """
    state, socket = environment["PADDOCK_STATE_DIR"], environment["LAUNCHER_SOCKET"]
    shown = f"[{address}]" if ":" in address else address
    settings = {
        **options["Env"],
        **{
            name: value.replace("$ADDRESS", shown)
            for name, value in environment.items()
            if name.startswith("PADDOCK_")
        },
    }
    filled = json.dumps(options["Body"]).replace("$STATE", state).replace("$SOCKET", socket)
    body = json.loads(filled)
    body |= {
        "Image": environment["LAUNCHER_IMAGE"],
        "Env": sorted(f"{name}={value}" for name, value in settings.items()),
    }
    made_from = hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()
    return {**body, "Labels": {MADE_FROM: made_from}}


def place_secrets(source: Path, target: Path) -> None:
    """Copies the service's secrets to where the node can read them: owner only, replaced whole."""
    target.mkdir(mode=0o700, parents=True, exist_ok=True)
    for secret in source.iterdir() if source.is_dir() else ():
        draft = target / f".{secret.name}"
        draft.unlink(missing_ok=True)
        descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with open(descriptor, "wb") as file:
            file.write(secret.read_bytes())
        draft.rename(target / secret.name)


class Launcher:
    """Owns the container of the control plane on this machine."""

    def __init__(self, engine: APIClient) -> None:
        self._engine = engine

    def address(self) -> str:
        """Where the Swarm's other machines reach this one. Raises: DockerException."""
        return str(self._engine.info()["Swarm"]["NodeAddr"])

    def start(self, body: dict[str, Any]) -> str:
        """Starts the container, or takes over the one that runs with the same options.

        Returns its id. Raises: DockerException.
        """
        with contextlib.suppress(NotFound):
            found = self._engine.inspect_container(CONTAINER)
            same = found["Config"]["Labels"].get(MADE_FROM) == body["Labels"][MADE_FROM]
            if same and found["State"]["Running"]:
                return str(found["Id"])
            self.stop(found["Id"])
        made = self._engine.create_container_from_config(  # type: ignore[no-untyped-call]
            body, CONTAINER
        )
        self._engine.start(made["Id"])
        return str(made["Id"])

    def stop(self, container: str) -> None:
        """Stops the control plane cleanly, and removes its container."""
        with contextlib.suppress(NotFound):
            self._engine.stop(container, timeout=_STOP_SECONDS)
            self._engine.remove_container(container, force=True)

    def wait(self, container: str) -> int:
        """The code with which the control plane ends by itself."""
        # Without a limit, because it runs as long as it can.
        return int(self._engine.wait(container, timeout=None)["StatusCode"])


def _stopped(signal_number: int, frame: FrameType | None) -> NoReturn:
    sys.exit(0)


def main() -> int:
    """Runs the control plane until it or this launcher is stopped; its exit code."""
    signal.signal(signal.SIGTERM, _stopped)
    environment = dict(os.environ)
    place_secrets(SECRETS, Path(environment["PADDOCK_STATE_DIR"], "cluster"))
    launcher = Launcher(APIClient(timeout=_CALL_SECONDS))
    try:
        options = json.loads(OPTIONS.read_text(encoding="utf-8"))
        container = launcher.start(wanted(options, environment, launcher.address()))
        try:
            return launcher.wait(container)
        finally:
            launcher.stop(container)
    except DockerException as error:
        print(f"error: the engine refused the control plane's container: {error}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
