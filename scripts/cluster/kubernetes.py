"""A Kubernetes of the machines, which runs `deploy/kubernetes` there.

Its programs are those that `scripts/kubernetes.sh` builds. The first machine has the database, the
API server, the scheduler and the controllers; each machine has a kubelet, whose runtime is the
machine's engine. There is no network of pods: they are reached by ports of their machines.
"""

import base64
import json
import secrets
import shutil
import subprocess
import time
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any

import psutil
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from orchestrator.cluster.certificates import issue
from scripts.cluster import joining, pod_engines
from scripts.cluster.database import Database
from scripts.cluster.kubernetes_flags import API_PORT, PAUSE, control_plane, kubelet
from scripts.cluster.layout import GATEWAY_PORT, ClusterError, Layout, Record
from scripts.cluster.machines import ROOT, Machine
from scripts.cluster.nodes import without_settings

PROGRAMS = Path("/var/cache/paddock-kubernetes/bin")
MANIFESTS = ROOT / "deploy" / "kubernetes"
_NAMES = (
    "etcd",
    "kube-apiserver",
    "kube-controller-manager",
    "kube-scheduler",
    "kubelet",
    "kubectl",
)
PREPARE = Path(__file__).with_name("kubelet.sh")
_SECONDS = 300
# As much of a process's name as the kernel keeps.
_NAME_BYTES = 15
# What differs here from what operators apply: a path that all machines have, a reservation that
# fits beside others, the name that Kubernetes 1.20 has for what is `policy/v1` since 1.21, a label,
# and ports of machines, because there is no network of pods.
DIFFERENCES = {
    "/var/lib/paddock": "/run/state",
    'requests: {cpu: "2", memory: 4Gi}': "requests: {cpu: 100m, memory: 256Mi}",
    "requests: {cpu: 250m,": "requests: {cpu: 100m,",
    "apiVersion: policy/v1\n": "apiVersion: policy/v1beta1\n",
    "- {name: PADDOCK_NODE_LISTEN": (
        '- {name: PADDOCK_NODE_LABELS, value: \'{"machine": "$(PADDOCK_NODE)"}\'}\n'
        "            - {name: PADDOCK_NODE_LISTEN"
    ),
    "containerPort: 8760}": f"containerPort: 8760, hostPort: {GATEWAY_PORT}}}",
}


def missing() -> str | None:
    """Why there can be no Kubernetes here; None if there can."""
    lacking = [name for name in _NAMES if not (PROGRAMS / name).exists()]
    if not lacking:
        return None
    return f"no {', '.join(lacking)} in {PROGRAMS}: `make test-kubernetes` builds them"


@dataclass(frozen=True, slots=True)
class Kubernetes:
    """The Kubernetes of a cluster; its control plane is on the first machine."""

    layout: Layout
    record: Record
    database: Database
    machines: Mapping[str, Machine]

    @property
    def first(self) -> Machine:
        """The machine with everything but the other kubelets."""
        return next(iter(self.machines.values()))

    @property
    def gateways(self) -> list[str]:
        """Where clients reach them: one on each machine."""
        return [f"http://{machine.address}:{GATEWAY_PORT}" for machine in self.machines.values()]

    @property
    def admin(self) -> Path:
        """The configuration of a client that may do everything."""
        return self._directory / "admin.json"

    @property
    def _directory(self) -> Path:
        return self.layout.directory / "kubernetes"

    def start(self) -> None:
        """Starts what does not run, and returns when all machines are nodes.

        Raises: ClusterError.
        """
        self._directory.mkdir(mode=0o700, exist_ok=True)
        self._write_credentials()
        for name, flags in control_plane(self._directory, self.first.address).items():
            _start(self.first, name, flags)
        self._until("the API server does not answer", "get", "--raw=/readyz")
        for machine in self.machines.values():
            _make_pause(machine, self.record.image)
            _run(machine, ["bash", str(PREPARE), str(machine.directory)])
            credential = self._directory / f"{machine.name}.json"
            flags = kubelet(machine.name, machine.address, machine.directory, credential)
            _start(machine, "kubelet", flags)
        nodes = [f"node/{name}" for name in self.machines]
        self._until("no kubelet has registered", "get", *nodes)
        self.kubectl("wait", "--for=condition=Ready", f"--timeout={_SECONDS}s", *nodes)

    def deploy(self, *, engines: bool = False) -> None:
        """Applies `deploy/kubernetes` with its secrets. Raises: ClusterError.

        With `engines`, sandboxes are in engines of pods, as on machines that have no other.
        """
        copies = self._directory / "manifests"
        shutil.rmtree(copies, ignore_errors=True)
        shutil.copytree(MANIFESTS, copies)
        here = DIFFERENCES | (pod_engines.differences(self.layout) if engines else {})
        for path in copies.glob("*.yaml"):
            text = path.read_text()
            for ours, other in here.items():
                text = text.replace(ours, other)
            path.write_text(text)
        objects = [_namespace(), *self._secrets()]
        self.kubectl("apply", "-f", "-", document=_list(objects))
        if engines:
            for machine in self.machines.values():
                pod_engines.make_image(machine, self.record.image)
            self.kubectl("apply", "-f", str(copies / "engine.yaml"))
            for machine in self.machines.values():
                pod_engines.give_image(machine, self.record.image)
        self.kubectl("apply", "-k", str(copies))
        self.kubectl("apply", "-f", "-", document=_list([self._settings()]))

    def wait(self) -> None:
        """Returns when nodes and gateways are as they were applied. Raises: ClusterError."""
        for each in ("daemonset/paddock-node", "deployment/paddock-gateway"):
            self.kubectl("rollout", "status", each, f"--timeout={_SECONDS}s")

    def kubectl(self, *arguments: str, document: object = None) -> str:
        """What one command says. Raises: ClusterError."""
        done = self._ask(*arguments, document=document)
        if done.returncode:
            raise ClusterError(f"`kubectl {' '.join(arguments)}`: {done.stderr.strip()}")
        return done.stdout

    def _ask(self, *arguments: str, document: object = None) -> subprocess.CompletedProcess[str]:
        config = f"--kubeconfig={self.admin}"
        return subprocess.run(
            [str(PROGRAMS / "kubectl"), config, "--namespace=paddock", *arguments],
            env=without_settings(),
            input="" if document is None else json.dumps(document),
            capture_output=True,
            text=True,
            timeout=2 * _SECONDS,
            check=False,
        )

    def _until(self, failing: str, *arguments: str) -> None:
        deadline = time.monotonic() + _SECONDS
        while (done := self._ask(*arguments)).returncode:
            if time.monotonic() > deadline:
                raise ClusterError(f"{failing}: {done.stderr.strip()}")
            time.sleep(0.5)  # it does not announce when it is ready

    def _write_credentials(self) -> None:
        """A token for the administrator and for each kubelet, and the API server's certificate."""
        folder = self._directory
        if (folder / "tokens.csv").exists():
            return
        issue(folder, "apiserver", [self.first.address, "kubernetes"], replace=True)
        # It reads keys of accounts in this format only.
        account = ec.generate_private_key(ec.SECP256R1()).private_bytes(
            Encoding.PEM, PrivateFormat.TraditionalOpenSSL, NoEncryption()
        )
        (folder / "accounts.key").write_bytes(account)
        rows = [self._credential("admin", "admin", "system:masters")]
        for name in self.machines:
            rows.append(self._credential(name, f"system:node:{name}", "system:nodes"))
        (folder / "tokens.csv").write_text("".join(rows))

    def _credential(self, file: str, user: str, group: str) -> str:
        """Writes a configuration for a client; returns the API server's line for it."""
        token = secrets.token_hex(16)
        server = f"https://{self.first.address}:{API_PORT}"
        cluster = {"server": server, "certificate-authority": str(self._directory / "ca.pem")}
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "here", "cluster": cluster}],
            "users": [{"name": "me", "user": {"token": token}}],
            "contexts": [{"name": "here", "context": {"cluster": "here", "user": "me"}}],
            "current-context": "here",
        }
        (self._directory / f"{file}.json").write_text(json.dumps(config))
        return f'{token},{user},{user},"{group}"\n'

    def _secrets(self) -> list[dict[str, Any]]:
        """Those that `deploy/kubernetes/settings.yaml` asks for."""
        certificates = self.layout.certificates
        shared = joining.shared_certificate(self.layout, self.database)
        found = [_secret("paddock-database", {"password": self.database.password_file})]
        for part, name in (("node", shared), ("gateway", "gateway")):
            files = {
                "tls.crt": certificates / f"{name}.pem",
                "tls.key": certificates / f"{name}.key",
                "ca.crt": certificates / "ca.pem",
            }
            if part == "node":
                files["secrets.key"] = self.layout.secrets_key
            found.append(_secret(f"paddock-{part}", files))
        return found

    def _settings(self) -> dict[str, Any]:
        given = joining.access(self.database, self.database.password_file)
        data = {
            "PADDOCK_CLUSTER": given["PADDOCK_CLUSTER"],
            "PADDOCK_CLUSTER_DATABASE": given["PADDOCK_CLUSTER_DATABASE"],
            "PADDOCK_ALLOWED_HOSTS": ",".join(each.address for each in self.machines.values()),
            "PADDOCK_IMAGE": self.record.image,
            "PADDOCK_LEVEL_IMAGES": "{}",
        }
        return _object("ConfigMap", "paddock") | {"data": data}


def _object(kind: str, name: str) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": kind, "metadata": {"name": name, "namespace": "paddock"}}


def _namespace() -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "paddock"}}


def _secret(name: str, files: Mapping[str, Path]) -> dict[str, Any]:
    data = {key: base64.b64encode(path.read_bytes()).decode() for key, path in files.items()}
    return _object("Secret", name) | {"data": data}


def _list(items: list[dict[str, Any]]) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "List", "items": items}


def _make_pause(machine: Machine, image: str) -> None:
    recipe = f'FROM {image}\nENTRYPOINT ["/usr/bin/sleep", "infinity"]\n'.encode()
    with closing(machine.engine()) as engine:
        engine.images.build(fileobj=BytesIO(recipe), tag=PAUSE, rm=True)


def _start(machine: Machine, program: str, flags: list[str]) -> None:
    """Starts one of the programs on a machine, whose end is its end, unless it runs there."""
    if _runs(machine, program):
        return
    log = machine.directory / f"{program}.log"
    # It outlives the command that starts it.
    script = 'exec "$@" </dev/null >>"$0" 2>&1'
    words = ["setsid", "--fork", "sh", "-c", script, str(log), str(PROGRAMS / program), *flags]
    _run(machine, words)


def _runs(machine: Machine, program: str) -> bool:
    first = machine.first_process()
    for process in [] if first is None else first.children(recursive=True):
        try:
            if process.name() == program[:_NAME_BYTES]:
                return True
        except psutil.NoSuchProcess:
            continue
    return False


def _run(machine: Machine, words: list[str]) -> None:
    done = machine.run(words, without_settings(), _SECONDS)
    if done.returncode:
        raise ClusterError(f"{machine.name}: {words[0]}: {done.stdout.strip()}")
