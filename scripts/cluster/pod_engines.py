"""Engines in pods (`deploy/kubernetes/engine.yaml`), for machines that have only a kubelet.

Their image is made of this host's own programs, because there is no registry here.
"""

import time
from contextlib import closing
from io import BytesIO
from pathlib import Path

import docker
from docker.errors import DockerException
from requests.exceptions import RequestException

from scripts.cluster.layout import ClusterError, Layout
from scripts.cluster.machines import Machine, answers

IMAGE = "docker:27-dind"
# Where the pod's engine listens, on its machine; `kubelet.sh` makes the directory.
_DIRECTORY = "/run/inner"
_SECONDS = 300
# The directories of the host that its programs are in.
_OF_THE_HOST = {"usr": "/usr", "alternatives": "/etc/alternatives"}


def differences(layout: Layout) -> dict[str, str]:
    """What differs here from the manifests that operators apply, by their text."""
    first = "            - {name: exec, mountPath"
    last = "        - {name: exec, hostPath"
    mounts = "".join(
        f"            - {{name: {name}, mountPath: {path}, readOnly: true}}\n"
        for name, path in _OF_THE_HOST.items()
    )
    volumes = "".join(
        f"        - {{name: {name}, hostPath: {{path: {path}, type: Directory}}}}\n"
        for name, path in _OF_THE_HOST.items()
    )
    group = f"            - --cgroup-parent=/{layout.control_group}/inner\n"
    return {
        "path: /var/run, type: Directory": f"path: {_DIRECTORY}, type: Directory",
        "path: /var/run/docker.sock, type: Socket": f"path: {_DIRECTORY}/docker.sock, type: Socket",
        first: mounts + first,
        # One machine has room for one, because gateways have ports of their machines.
        "replicas: 2": "replicas: 1",
        last: volumes + last,
        "            - --live-restore\n": f"            - --live-restore\n{group}",
    }


def make_image(machine: Machine, image: str) -> None:
    """Gives a machine an image of that name; the programs are mounted. Raises: ClusterError."""
    try:
        with closing(machine.engine()) as engine:
            recipe = f"FROM {image}\nUSER 0\nENTRYPOINT []\n".encode()
            engine.images.build(fileobj=BytesIO(recipe), tag=IMAGE, rm=True)
    except (DockerException, RequestException) as error:
        raise ClusterError(f"{machine.name}: no image of an engine: {error}") from None


def give_image(machine: Machine, image: str) -> None:
    """Gives the pod's engine the image of sandboxes. Raises: ClusterError."""
    deadline = time.monotonic() + _SECONDS
    while not answers(_socket(machine)):
        if time.monotonic() > deadline:
            raise ClusterError(f"{machine.name}: its pod's engine does not answer")
        time.sleep(0.5)  # an engine does not announce when it is ready
    try:
        with closing(machine.engine()) as outer, closing(inner(machine)) as engine:
            engine.images.load(b"".join(outer.images.get(image).save(named=image)))
    except (DockerException, RequestException) as error:
        raise ClusterError(f"{machine.name}: its pod's engine refuses: {error}") from None


def inner(machine: Machine) -> docker.DockerClient:
    """A client of the engine in the machine's pod, for a program of the host."""
    return docker.DockerClient(f"unix://{_socket(machine)}", version="auto", timeout=_SECONDS)


def _socket(machine: Machine) -> Path:
    """Where the host reaches it. Raises: ClusterError if the machine does not run."""
    first = machine.first_process()
    if first is None:
        raise ClusterError(f"{machine.name} does not run")
    return Path(f"/proc/{first.pid}/root{_DIRECTORY}/docker.sock")
