"""What tests of `deploy/` share: nodes and gateways that something else runs on machines."""

import io
from collections.abc import Iterator
from contextlib import closing, contextmanager

from docker.models.containers import Container

from images.recipes import CONTROL_PLANE
from paddock import PaddockSync
from paddock.client.faces import Sync
from paddock.client.session import Session
from scripts.cluster.composed import Composed
from scripts.cluster.kubernetes import Kubernetes
from scripts.cluster.machines import Machine
from scripts.cluster.swarm import Swarm
from tests.support.machines import NAMES

Deployed = Composed | Swarm | Kubernetes
# Writes numbers until it is told to stop, and then how many they were.
_COUNTS = "n=0; until [ -e stop ]; do n=$((n + 1)); echo $n; sleep 0.05; done; echo $n in all"


def client_of(deployed: Deployed, gateway: int) -> PaddockSync:
    """A client of one gateway with the admin key; the caller closes it."""
    key = deployed.layout.admin_key.read_text().strip()
    return PaddockSync(deployed.gateways[gateway], key)


@contextmanager
def counting(paddock: PaddockSync, names: tuple[str, ...] = NAMES) -> Iterator[list[Session[Sync]]]:
    """A session on each machine with a command that runs meanwhile; nothing of it may be lost."""
    sessions = [
        paddock.sessions.create(permission_level="high", placement={"labels": {"machine": name}})
        for name in names
    ]
    commands = [each.processes.start(shell=_COUNTS).command_id for each in sessions]
    yield sessions
    for session, command in zip(sessions, commands, strict=True):
        session.files.write("stop", "")
        *numbers, said = b"".join(session.processes.output(command)).decode().splitlines()
        assert numbers == [str(each + 1) for each in range(len(numbers))]
        assert said == f"{len(numbers)} in all"
        session.close(purge=True)


def containers(machine: Machine) -> dict[str, str]:
    """The ids of what runs there, by name."""
    with closing(machine.engine()) as engine:
        return {str(each.name): str(each.id) for each in engine.containers.list()}


def derive(deployed: Deployed, name: str, line: str) -> str:
    """Gives all machines an image that differs from the one that runs by one line."""
    recipe = f"FROM {CONTROL_PLANE.image}\n{line}\n".encode()
    for machine in deployed.machines.values():
        with closing(machine.engine()) as engine:
            engine.images.build(fileobj=io.BytesIO(recipe), tag=name, rm=True)
    return name


def said(container: Container, *argv: str) -> str:
    """What a command in a container prints."""
    output = container.exec_run(list(argv)).output
    assert isinstance(output, bytes)
    return output.decode()


def check_no_rights(gateway: Container) -> None:
    """Its process is nobody's, holds no capability and has no engine."""
    status = said(gateway, "cat", "/proc/1/status")
    held = [line.split()[1] for line in status.splitlines() if line.startswith("Cap")]
    assert {int(each, 16) for each in held} == {0}
    assert "\nUid:\t65532\t65532\t65532\t65532\n" in status
    assert not any("sock" in str(mount.get("Source")) for mount in gateway.attrs["Mounts"])
    assert gateway.attrs["HostConfig"]["ReadonlyRootfs"]
