"""Compose on each machine: it runs `compose.yaml` and `deploy/compose.yaml` as they are."""

import json
import os
import shutil
import subprocess
import time
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass

import docker
from docker.models.containers import Container

from gateway.privileges import UID
from scripts.cluster import joining
from scripts.cluster.database import Database
from scripts.cluster.layout import GATEWAY_PORT, NODE_TLS_PORT, ClusterError, Layout, Record
from scripts.cluster.machines import ROOT, Machine
from scripts.cluster.nodes import without_settings

_FILES = [f"--file={ROOT / name}" for name in ("compose.yaml", "deploy/compose.yaml")]
_PROJECT = "paddock"
_SERVICES = ("control-plane", "gateway")
_SECONDS = 300
# Asked within the container, because Compose's health checks begin after 30 s.
_READY = {
    "control-plane": "http://127.0.0.1:8700/readyz",
    "gateway": f"http://127.0.0.1:{GATEWAY_PORT}/healthz",
}


@dataclass(frozen=True, slots=True)
class Composed:
    """A node and a gateway on each machine of a cluster."""

    layout: Layout
    record: Record
    database: Database
    machines: Mapping[str, Machine]

    @property
    def gateways(self) -> list[str]:
        """Where clients reach them: one on each machine."""
        return [f"http://{machine.address}:{GATEWAY_PORT}" for machine in self.machines.values()]

    def deploy(self) -> None:
        """Starts what both files say on each machine, or updates it, one after the other.

        All machines have the image that the files name. Returns when nodes and gateways are
        ready. Raises: ClusterError.
        """
        for machine in self.machines.values():
            (machine.directory / "state").mkdir(mode=0o700, exist_ok=True)
            self._place_files(machine)
            self._compose(machine, "up", "--detach", *_SERVICES)
            for service, url in _READY.items():
                self._wait(machine, service, url)

    def containers(self, engine: docker.DockerClient, service: str) -> list[Container]:
        """Those of a service that run on a machine: one, or none."""
        labels = {"project": _PROJECT, "service": service}
        wanted = [f"com.docker.compose.{key}={value}" for key, value in labels.items()]
        return list(engine.containers.list(filters={"label": wanted}))

    def _place_files(self, machine: Machine) -> None:
        """Gives a machine the files of its node and of its gateway, each readable for one user."""
        certificates, name = self.layout.certificates, machine.name
        for part, certified, uid in (("node", name, 0), ("gateway", "gateway", UID)):
            folder = machine.directory / part
            folder.mkdir(mode=0o700, exist_ok=True)
            files = {
                "password": self.database.password_file,
                "tls.crt": certificates / f"{certified}.pem",
                "tls.key": certificates / f"{certified}.key",
                "ca.crt": certificates / "ca.pem",
            }
            if part == "node":
                files["secrets.key"] = self.layout.secrets_key
            for target, source in files.items():
                shutil.copyfile(source, folder / target)
                (folder / target).chmod(0o400)
                os.chown(folder / target, uid, uid)
            os.chown(folder, uid, uid)

    def _environment(self, machine: Machine) -> dict[str, str]:
        given = joining.access(self.database, self.database.password_file)
        return {
            "COMPOSE_PROJECT_NAME": _PROJECT,
            "DOCKER_HOST": f"unix://{self.layout.socket(machine.name)}",
            "PADDOCK_DOCKER_SOCKET": str(self.layout.socket(machine.name)),
            "PADDOCK_STATE_DIR": str(machine.directory / "state"),
            "PADDOCK_CLUSTER": given["PADDOCK_CLUSTER"],
            "PADDOCK_CLUSTER_DATABASE": given["PADDOCK_CLUSTER_DATABASE"],
            "PADDOCK_ALLOWED_HOSTS": ",".join(each.address for each in self.machines.values()),
            "PADDOCK_NODE": machine.name,
            "PADDOCK_NODE_URL": f"https://{machine.address}:{NODE_TLS_PORT}",
            "PADDOCK_NODE_FILES": str(machine.directory / "node"),
            "PADDOCK_NODE_PORT": str(NODE_TLS_PORT),
            "PADDOCK_NODE_LABELS": json.dumps({"machine": machine.name}),
            "PADDOCK_GATEWAY_FILES": str(machine.directory / "gateway"),
            "PADDOCK_IMAGE": self.record.image,
            "PADDOCK_LEVEL_IMAGES": "{}",
        }

    def _compose(self, machine: Machine, *arguments: str) -> None:
        done = subprocess.run(
            [str(ROOT / "scripts" / "compose.sh"), *_FILES, *arguments],
            env=without_settings() | self._environment(machine),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_SECONDS,
            check=False,
        )
        if done.returncode:
            raise ClusterError(f"{machine.name}: Compose says: {done.stderr.strip()}")

    def _wait(self, machine: Machine, service: str, url: str) -> None:
        """Returns when it answers. Raises: ClusterError."""
        ask = f"from urllib.request import urlopen; urlopen({url!r}, timeout=5)"
        deadline = time.monotonic() + _SECONDS
        with closing(machine.engine()) as engine:
            while True:
                said = "it does not run"
                for found in self.containers(engine, service):
                    if found.exec_run(["python3", "-c", ask]).exit_code == 0:
                        return
                    said = found.logs(tail=1).decode().strip()
                if time.monotonic() > deadline:
                    raise ClusterError(f"{machine.name}: {service} is not ready: {said}")
                time.sleep(0.2)  # Compose does not announce it
