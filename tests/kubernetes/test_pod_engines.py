"""`deploy/kubernetes/engine.yaml`: sandboxes in an engine that is a pod itself."""

from contextlib import closing

import pytest

from images.builder import build
from images.recipes import CONTROL_PLANE
from scripts.cluster import pod_engines
from scripts.cluster.building import Cluster
from scripts.cluster.kubernetes import missing
from tests.support.deployed import client_of, containers, counting
from tests.support.machines import NAMES, place


def test_a_machine_without_an_engine_of_its_own_has_sandboxes(sandbox_image: str) -> None:
    """They outlive the node's pod there, too; the kubelet's runtime has only pods."""
    if (reason := missing()) is not None:
        pytest.skip(reason)
    image = build(recipe=CONTROL_PLANE, report=lambda _line: None).name
    with place() as layout:
        made = Cluster(layout).kubernetes(1, sandbox_image, image, lambda _line: None, engines=True)
        (machine,) = made.machines.values()
        with client_of(made, 0) as paddock, counting(paddock, NAMES[:1]) as (session,):
            assert session.exec("hostname").exit_code == 0
            with closing(pod_engines.inner(machine)) as engine:
                (sandbox,) = engine.containers.list()
                made.kubectl("delete", "pods", "--selector=app=paddock-node")
                made.wait()
                assert [each.id for each in engine.containers.list()] == [sandbox.id]
            assert session.exec("hostname").exit_code == 0
            assert all(name.startswith("k8s_") for name in containers(machine))
