"""A Swarm of the machines' engines, which runs `deploy/swarm/stack.yaml` there.

The stack is the one that operators deploy; a second file has what differs on one host. Each machine
has its own state directory and engine's socket, so their paths have the machine's name in them.
"""

import hashlib
import json
import shutil
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import docker
from docker.errors import DockerException
from requests.exceptions import RequestException

from scripts.cluster import joining
from scripts.cluster.database import Database
from scripts.cluster.layout import GATEWAY_PORT, ClusterError, Layout, Record
from scripts.cluster.machines import ROOT, Machine
from scripts.cluster.nodes import without_settings

DEPLOY = ROOT / "deploy"
STACK = "paddock"
# A global service runs where this label is.
_LABELS = {"paddock": "node"}
_HOSTNAME = "{{.Node.Hostname}}"
# A health check that has begun, on a busy host.
_SECONDS = 300


@dataclass(frozen=True, slots=True)
class Swarm:
    """The Swarm of a cluster; its manager is the first machine."""

    layout: Layout
    record: Record
    database: Database
    machines: Mapping[str, Machine]

    @property
    def manager(self) -> Machine:
        """The machine that the others have joined."""
        return next(iter(self.machines.values()))

    @property
    def gateways(self) -> list[str]:
        """Where clients reach them: one on each machine."""
        return [f"http://{machine.address}:{GATEWAY_PORT}" for machine in self.machines.values()]

    def join(self) -> None:
        """Makes the Swarm, and machines that are not in it join. Raises: ClusterError."""
        with _engine_errors(), closing(self.manager.engine()) as manager:
            if not _in_a_swarm(manager):
                at = self.manager.address
                manager.swarm.init(advertise_addr=at, listen_addr=at)
            manager.swarm.reload()
            token = manager.swarm.attrs["JoinTokens"]["Worker"]
            for machine in self.machines.values():
                with closing(machine.engine()) as engine:
                    if not _in_a_swarm(engine):
                        engine.swarm.join(
                            [f"{self.manager.address}:2377"],
                            token,
                            listen_addr=machine.address,
                            advertise_addr=machine.address,
                        )
            for node in manager.nodes.list():
                node.update(node.attrs["Spec"] | {"Labels": _LABELS})

    def deploy(self, image: str) -> None:
        """Deploys the stack with this image of the control plane, or updates it.

        All machines have the image. Raises: ClusterError.
        """
        if shutil.which("docker") is None:
            raise ClusterError("missing here: Docker's command, which deploys stacks")
        for name in self.machines:
            # A Swarm makes no directory that it binds.
            (self.layout.node_directory(name) / "state").mkdir(mode=0o700, exist_ok=True)
        self._place_secrets()
        more = self.layout.directory / "swarm.json"
        more.write_text(json.dumps(self._differences(), indent=2) + "\n")
        files = [f"--compose-file={path}" for path in (DEPLOY / "swarm" / "stack.yaml", more)]
        done = subprocess.run(
            ["docker", "stack", "deploy", "--resolve-image=never", *files, STACK],
            env=without_settings() | self._environment(image),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_SECONDS,
            check=False,
        )
        if done.returncode:
            said = done.stderr.strip() or f"status {done.returncode}"
            raise ClusterError(f"the stack is refused: {said}")

    def wait(self) -> None:
        """Returns when what is wanted runs everywhere, and is healthy. Raises: ClusterError.

        After a rollback this is what ran before.
        """
        deadline = time.monotonic() + _SECONDS
        with _engine_errors(), closing(self.manager.engine()) as manager:
            while lacking := [each for each in self._services(manager) if not self._runs(each)]:
                if time.monotonic() > deadline:
                    names = ", ".join(each.name for each in lacking)
                    raise ClusterError(f"not ready after {_SECONDS} s: {names}")
                time.sleep(0.2)  # a Swarm does not announce it

    def update_states(self) -> dict[str, str]:
        """What became of the last update of each service, such as `rollback_completed`."""
        with _engine_errors(), closing(self.manager.engine()) as manager:
            return {
                each.name.removeprefix(f"{STACK}_"): each.attrs["UpdateStatus"]["State"]
                for each in self._services(manager)
                if each.attrs.get("UpdateStatus")
            }

    def _services(self, manager: docker.DockerClient) -> list[Any]:
        label = f"com.docker.stack.namespace={STACK}"
        return list(manager.services.list(filters={"label": label}))

    def _runs(self, service: Any) -> bool:
        """Whether a task of what is wanted now runs on each machine."""
        wanted = service.attrs["Spec"]["TaskTemplate"]["ContainerSpec"]
        tasks = service.tasks(filters={"desired-state": "running"})
        running = [
            task
            for task in tasks
            if task["Status"]["State"] == "running" and task["Spec"]["ContainerSpec"] == wanted
        ]
        return len(running) == len(self.machines)

    def _place_secrets(self) -> None:
        """Gives the Swarm those that it does not have: it replaces none that is used."""
        folder, nodes = (
            self.layout.certificates,
            joining.shared_certificate(self.layout, self.database),
        )
        files = {
            "database-password": self.database.password_file,
            "secrets-key": self.layout.secrets_key,
            "ca.crt": folder / "ca.pem",
            "node.crt": folder / f"{nodes}.pem",
            "node.key": folder / f"{nodes}.key",
            "gateway.crt": folder / "gateway.pem",
            "gateway.key": folder / "gateway.key",
        }
        with _engine_errors(), closing(self.manager.engine()) as manager:
            known = {secret.name for secret in manager.secrets.list()}
            for name, path in files.items():
                if f"paddock-{name}" not in known:
                    manager.secrets.create(name=f"paddock-{name}", data=path.read_bytes())

    def _environment(self, image: str) -> dict[str, str]:
        given = joining.access(self.database, self.database.password_file)
        own = self.layout.node_directory(_HOSTNAME)
        return {
            "DOCKER_HOST": f"unix://{self.layout.socket(self.manager.name)}",
            "PADDOCK_CLUSTER": given["PADDOCK_CLUSTER"],
            "PADDOCK_CLUSTER_DATABASE": given["PADDOCK_CLUSTER_DATABASE"],
            "PADDOCK_CONTROL_PLANE_IMAGE": image,
            "PADDOCK_STATE_DIR": str(own / "state"),
            "PADDOCK_DOCKER_SOCKET": str(own / self.layout.socket("").name),
            "PADDOCK_ALLOWED_HOSTS": ",".join(each.address for each in self.machines.values()),
            "PADDOCK_GATEWAYS": str(len(self.machines)),
            "PADDOCK_DEPLOYMENT": _digest(
                *(DEPLOY / name for name in ("launcher.py", "health.py", "node.json"))
            ),
        }

    def _differences(self) -> dict[str, Any]:
        """What nodes have beside the stack, and health checks whose first answer is not awaited."""
        soon = {
            "healthcheck": {"interval": "2s"},
            "deploy": {"update_config": {"monitor": "5s"}, "restart_policy": {"delay": "1s"}},
        }
        settings = {
            "PADDOCK_IMAGE": self.record.image,
            "PADDOCK_LEVEL_IMAGES": "{}",
            "PADDOCK_NODE_LABELS": json.dumps({"machine": _HOSTNAME}),
        }
        services = {"node": soon | {"environment": settings}, "gateway": soon}
        return {"version": "3.8", "services": services}


def _in_a_swarm(engine: docker.DockerClient) -> bool:
    return bool(engine.info()["Swarm"]["LocalNodeState"] != "inactive")


def _digest(*files: Path) -> str:
    """Names a version of these files: a Swarm replaces no configuration that is used."""
    content = b"\0".join(path.read_bytes() for path in files)
    return hashlib.sha256(content).hexdigest()[:12]


@contextmanager
def _engine_errors() -> Iterator[None]:
    try:
        yield
    except (DockerException, RequestException) as error:
        raise ClusterError(f"the Swarm refuses: {error}") from None
