"""`deploy/compose.yaml` on two machines: a node and a gateway on each, and an update."""

from collections.abc import Iterator
from contextlib import closing

import pytest

from images.builder import build
from images.recipes import CONTROL_PLANE
from scripts.cluster.building import Cluster
from scripts.cluster.composed import Composed
from tests.support.deployed import check_no_rights, client_of, containers, counting, derive
from tests.support.machines import NAMES, place

pytestmark = pytest.mark.whole


@pytest.fixture(scope="module")
def composed(sandbox_image: str) -> Iterator[Composed]:
    """Two machines with both services, which tests use in their order."""
    image = build(recipe=CONTROL_PLANE, report=lambda _line: None).name
    with place() as layout:
        yield Cluster(layout).compose(len(NAMES), sandbox_image, image, lambda _line: None)


def ids(composed: Composed, service: str) -> list[str]:
    """The service's container on each machine."""
    found = []
    for machine in composed.machines.values():
        with closing(machine.engine()) as engine:
            (container,) = composed.containers(engine, service)
            found.append(str(container.id))
    return found


def test_sessions_on_every_machine_work_through_every_gateway(composed: Composed) -> None:
    for gateway in range(len(NAMES)):
        with client_of(composed, gateway) as paddock, counting(paddock) as sessions:
            for name, session in zip(NAMES, sessions, strict=True):
                assert paddock.sessions.inspect(session.id).node == name
                assert session.exec("hostname").exit_code == 0


def test_gateways_have_no_right(composed: Composed) -> None:
    for machine in composed.machines.values():
        with closing(machine.engine()) as engine:
            (found,) = composed.containers(engine, "gateway")
            check_no_rights(found)


def test_an_update_keeps_sandboxes_and_all_output_of_running_commands(composed: Composed) -> None:
    with client_of(composed, 1) as paddock, counting(paddock):
        before = [set(containers(each).values()) for each in composed.machines.values()]
        parts = {name: ids(composed, name) for name in ("control-plane", "gateway")}
        derive(composed, CONTROL_PLANE.image, "LABEL version=next")
        composed.deploy()
        after = [set(containers(each).values()) for each in composed.machines.values()]
        for name, old in parts.items():
            assert set(ids(composed, name)).isdisjoint(old)
        ours = {each for old in parts.values() for each in old}
        for one, two in zip(before, after, strict=True):
            assert one - ours <= two
