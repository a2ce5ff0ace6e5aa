"""`deploy/swarm` on a real Swarm: what runs where, updates, and the loss of the manager."""

import io
import json
from collections.abc import Iterator
from contextlib import closing, contextmanager

import pytest
from docker.models.containers import Container

from deploy.launcher import CONTAINER
from images.builder import build
from images.recipes import CONTROL_PLANE
from paddock import PaddockSync
from paddock.client.faces import Sync
from paddock.client.session import Session
from scripts.cluster import removal
from scripts.cluster.building import Cluster
from scripts.cluster.machines import Machine
from scripts.cluster.swarm import DEPLOY, Swarm
from tests.support.machines import NAMES, place

pytestmark = pytest.mark.whole

# Writes numbers until it is told to stop, and then how many they were.
COUNTS = "n=0; until [ -e stop ]; do n=$((n + 1)); echo $n; sleep 0.05; done; echo $n in all"


@pytest.fixture(scope="module")
def swarm(sandbox_image: str) -> Iterator[Swarm]:
    """Two machines with the stack; tests use it in their order, and the last one ends a machine."""
    image = build(recipe=CONTROL_PLANE, report=lambda _line: None).name
    with place() as layout:
        yield Cluster(layout).swarm(len(NAMES), sandbox_image, image, lambda _line: None)


def client(swarm: Swarm, gateway: int) -> PaddockSync:
    return PaddockSync(swarm.gateways[gateway], swarm.layout.admin_key.read_text().strip())


@contextmanager
def counting(paddock: PaddockSync, names: tuple[str, ...] = NAMES) -> Iterator[list[Session[Sync]]]:
    """A session on each machine with a command that runs meanwhile; nothing of it may be lost."""
    sessions = [
        paddock.sessions.create(permission_level="high", placement={"labels": {"machine": name}})
        for name in names
    ]
    commands = [each.processes.start(shell=COUNTS).command_id for each in sessions]
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


def sandboxes(swarm: Swarm) -> list[set[str]]:
    return [
        {id for name, id in containers(machine).items() if not name.startswith(CONTAINER[:7])}
        for machine in swarm.machines.values()
    ]


def _said(container: Container, *argv: str) -> str:
    output = container.exec_run(list(argv)).output
    assert isinstance(output, bytes)
    return output.decode()


def derive(swarm: Swarm, name: str, line: str) -> str:
    """Gives all machines an image that differs from the one that runs by one line."""
    recipe = f"FROM {CONTROL_PLANE.image}\n{line}\n".encode()
    for machine in swarm.machines.values():
        with closing(machine.engine()) as engine:
            engine.images.build(fileobj=io.BytesIO(recipe), tag=name)
    return name


def test_each_machine_runs_a_node_with_the_options_of_compose(swarm: Swarm) -> None:
    wanted = json.loads((DEPLOY / "node.json").read_text())["Body"]["HostConfig"]
    for machine in swarm.machines.values():
        with closing(machine.engine()) as engine:
            found = engine.containers.get(CONTAINER).attrs["HostConfig"]
        for option in ("PidMode", "ReadonlyRootfs", "CapDrop", "DeviceCgroupRules"):
            assert found[option] == wanted[option]
        # The engine adds what follows from the host's process namespace.
        assert set(wanted["SecurityOpt"]) <= set(found["SecurityOpt"])
        assert {each.removeprefix("CAP_") for each in found["CapAdd"]} == set(wanted["CapAdd"])
        assert not found["Privileged"]


def test_sessions_on_every_machine_work_through_every_gateway(swarm: Swarm) -> None:
    for gateway in range(len(NAMES)):
        with client(swarm, gateway) as paddock, counting(paddock) as sessions:
            for name, session in zip(NAMES, sessions, strict=True):
                assert paddock.sessions.inspect(session.id).node == name
                assert session.exec("hostname").exit_code == 0


def test_gateways_have_no_right(swarm: Swarm) -> None:
    for machine in swarm.machines.values():
        with closing(machine.engine()) as engine:
            (found,) = engine.containers.list(filters={"name": "paddock_gateway"})
            status = _said(found, "cat", "/proc/1/status")
            made = found.attrs
        held = [line.split()[1] for line in status.splitlines() if line.startswith("Cap")]
        assert {int(each, 16) for each in held} == {0}
        assert "\nUid:\t65532\t65532\t65532\t65532\n" in status
        assert not any("sock" in str(mount.get("Source")) for mount in made["Mounts"])
        assert made["HostConfig"]["ReadonlyRootfs"]


def test_an_update_that_does_not_start_is_rolled_back_and_commands_go_on(swarm: Swarm) -> None:
    broken = derive(swarm, "paddock/control-plane:broken", 'ENTRYPOINT ["/bin/false"]')
    with client(swarm, 0) as paddock, counting(paddock):
        before, nodes = sandboxes(swarm), [containers(each) for each in swarm.machines.values()]
        swarm.deploy(broken)
        swarm.wait()
        assert set(swarm.update_states()) == {"node", "gateway"}
        assert all(state.startswith("rollback") for state in swarm.update_states().values())
        assert sandboxes(swarm) == before
        # It stopped at the first machine.
        after = [containers(each) for each in swarm.machines.values()]
        kept = [one[CONTAINER] == two[CONTAINER] for one, two in zip(nodes, after, strict=True)]
        assert sorted(kept) == [False, True]


def test_an_update_keeps_sandboxes_and_all_output_of_running_commands(swarm: Swarm) -> None:
    following = derive(swarm, "paddock/control-plane:next", "LABEL version=next")
    with client(swarm, 1) as paddock, counting(paddock):
        before = sandboxes(swarm)
        swarm.deploy(following)
        swarm.wait()
        assert sandboxes(swarm) == before
        for machine in swarm.machines.values():
            with closing(machine.engine()) as engine:
                running = engine.containers.get(CONTAINER).attrs["Config"]
            assert running["Image"] == following


def test_a_lost_manager_stops_nothing_on_other_machines(swarm: Swarm) -> None:
    other = swarm.machines["node2"]
    with client(swarm, 1) as paddock, counting(paddock, ("node2",)) as (session,):
        before = containers(other)
        removal.end_machines(swarm.layout, swarm.manager.directory)
        assert session.exec("hostname").exit_code == 0
        assert containers(other) == before
