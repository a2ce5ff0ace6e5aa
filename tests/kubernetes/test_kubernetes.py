"""`deploy/kubernetes` on a real Kubernetes: `make test-kubernetes` builds it and runs this."""

import json
import subprocess
import time
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest

from images.builder import build
from images.recipes import CONTROL_PLANE
from scripts.cluster.building import Cluster
from scripts.cluster.kubernetes import PROGRAMS, Kubernetes, missing
from tests.support.deployed import (
    check_no_rights,
    client_of,
    containers,
    counting,
    derive,
    said,
)
from tests.support.limits import PROGRAM_SECONDS
from tests.support.machines import NAMES, place

NODE = "daemonset/paddock-node"


@pytest.fixture(scope="module")
def kubernetes(sandbox_image: str) -> Iterator[Kubernetes]:
    """Two machines with the manifests applied, all of whose pods have become ready."""
    if (reason := missing()) is not None:
        pytest.skip(reason)
    image = build(recipe=CONTROL_PLANE, report=lambda _line: None).name
    with place() as layout:
        yield Cluster(layout).kubernetes(len(NAMES), sandbox_image, image, lambda _line: None)


def sandboxes(kubernetes: Kubernetes) -> list[set[str]]:
    return [
        {id for name, id in containers(machine).items() if not name.startswith("k8s_")}
        for machine in kubernetes.machines.values()
    ]


def pods(kubernetes: Kubernetes, app: str) -> dict[str, str]:
    """The image that runs in each machine's pod, by the machine; of those that are ready."""
    items = json.loads(kubernetes.kubectl("get", "pods", f"--selector=app={app}", "-o", "json"))
    return {
        pod["spec"]["nodeName"]: pod["status"]["containerStatuses"][0]["image"]
        for pod in items["items"]
        if all(each["ready"] for each in pod["status"].get("containerStatuses", [{"ready": False}]))
    }


def wait_for_a_restart(kubernetes: Kubernetes) -> None:
    """Returns when a node's pod has failed and was started again."""
    shown = "jsonpath={.status.containerStatuses[*].restartCount}{'\\n'}"
    command = [
        *(str(PROGRAMS / "kubectl"), "--namespace=paddock", "get", "pods", "--watch"),
        *(f"--kubeconfig={kubernetes.admin}", "--selector=app=paddock-node", "-o", shown),
    ]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert any(line.strip() not in ("", "0") for line in process.stdout)
        process.kill()


def test_a_node_and_a_gateway_are_ready_on_each_machine(kubernetes: Kubernetes) -> None:
    assert set(pods(kubernetes, "paddock-node")) == set(NAMES)
    assert set(pods(kubernetes, "paddock-gateway")) == set(NAMES)


def test_sessions_on_every_machine_work_through_every_gateway(kubernetes: Kubernetes) -> None:
    for gateway in range(len(NAMES)):
        with client_of(kubernetes, gateway) as paddock, counting(paddock) as sessions:
            for name, session in zip(NAMES, sessions, strict=True):
                assert paddock.sessions.inspect(session.id).node == name
                assert session.exec("hostname").exit_code == 0


def test_no_pod_has_a_token_and_gateways_have_no_right(kubernetes: Kubernetes) -> None:
    for machine in kubernetes.machines.values():
        with closing(machine.engine()) as engine:
            for name in ("k8s_control-plane", "k8s_gateway"):
                (found,) = engine.containers.list(filters={"name": name})
                assert not any(
                    "serviceaccount" in each["Destination"] for each in found.attrs["Mounts"]
                )
                assert "No such file" in said(found, "ls", "/var/run/secrets/kubernetes.io")
            check_no_rights(found)
    everything = "roles,rolebindings,clusterrolebindings"
    names = kubernetes.kubectl("get", everything, "--all-namespaces", "-o", "name")
    assert "paddock" not in names


def test_a_secret_of_one_node_can_be_opened_by_the_other(kubernetes: Kubernetes) -> None:
    """Both have the key that seals secrets, which is in the Secret of the nodes."""
    with client_of(kubernetes, 0) as paddock:
        paddock.secrets.set("openai", "sk-canary-7d1e", hosts=["api.example"])
        for name in NAMES:
            deadline = time.monotonic() + PROGRAM_SECONDS
            while (found := secrets_of(kubernetes, name)) == []:
                assert time.monotonic() < deadline, name
            assert [(each["name"], each["lost"]) for each in found] == [("openai", False)]
        paddock.secrets.remove("openai")


def secrets_of(kubernetes: Kubernetes, name: str) -> list[dict[str, Any]]:
    """What one node's own control plane lists."""
    key = kubernetes.layout.admin_key.read_text().strip()
    words = ["env", f"PADDOCK_KEY={key}", "PADDOCK_URL=http://127.0.0.1:8700"]
    with closing(kubernetes.machines[name].engine()) as engine:
        (node,) = engine.containers.list(filters={"name": "k8s_control-plane"})
        shown = said(node, *words, "python3", "-P", "-m", "paddock", "secrets", "list", "--json")
    found: list[dict[str, Any]] = json.loads(shown)
    return found


def test_an_update_that_does_not_start_stops_at_the_first_machine(kubernetes: Kubernetes) -> None:
    broken = derive(kubernetes, "paddock/control-plane:broken", 'ENTRYPOINT ["/bin/false"]')
    with client_of(kubernetes, 0) as paddock, counting(paddock):
        before = sandboxes(kubernetes)
        kubernetes.kubectl("set", "image", NODE, f"control-plane={broken}")
        wait_for_a_restart(kubernetes)
        (still,) = pods(kubernetes, "paddock-node").values()
        assert still == CONTROL_PLANE.image
        assert sandboxes(kubernetes) == before
        kubernetes.kubectl("rollout", "undo", NODE)
        kubernetes.wait()
        assert sandboxes(kubernetes) == before


def test_an_update_keeps_sandboxes_and_all_output_of_running_commands(
    kubernetes: Kubernetes,
) -> None:
    following = derive(kubernetes, "paddock/control-plane:next", "LABEL version=next")
    with client_of(kubernetes, 1) as paddock, counting(paddock):
        before = sandboxes(kubernetes)
        kubernetes.kubectl("set", "image", NODE, f"control-plane={following}")
        kubernetes.kubectl("set", "image", "deployment/paddock-gateway", f"gateway={following}")
        kubernetes.wait()
        assert set(pods(kubernetes, "paddock-node").values()) == {following}
        assert sandboxes(kubernetes) == before
