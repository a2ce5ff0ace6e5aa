"""What starts nodes and gateways on other engines: its schemas, its settings, its rights."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import kubernetes_validate  # type: ignore[import-untyped]
import pytest
import yaml

from gateway.settings import GatewaySettings
from orchestrator.settings.settings import Settings

DEPLOY = Path(__file__).parents[2] / "deploy"
KUBERNETES = DEPLOY / "kubernetes"
STACK = yaml.safe_load((DEPLOY / "swarm" / "stack.yaml").read_text())
# The file of one machine, and the one beside it that makes a cluster.
ALONE, COMPOSE = (
    yaml.safe_load(path.read_text())["services"]
    for path in (DEPLOY.parent / "compose.yaml", DEPLOY / "compose.yaml")
)
# What the program itself reads besides the settings.
ALSO = {"PADDOCK_DOCKER_HOST", "PADDOCK_CONFIG_FILE"}
KNOWN = {
    "node": {f"PADDOCK_{name.upper()}" for name in Settings.model_fields} | ALSO,
    "gateway": {f"PADDOCK_{name.upper()}" for name in GatewaySettings.model_fields},
}
NEEDED = {
    "node": {"STATE_DIR", "NODE", "NODE_URL", "NODE_LISTEN", "NODE_CERT", "NODE_KEY", "NODE_CA"},
    "gateway": {"GATEWAY_HOST", "GATEWAY_PORT", "GATEWAY_CERT", "GATEWAY_KEY", "GATEWAY_CA"},
}
SHARED = {"PADDOCK_CLUSTER", "PADDOCK_CLUSTER_DATABASE"}
MANIFESTS = sorted(set(KUBERNETES.glob("*.yaml")) - {KUBERNETES / "kustomization.yaml"})


def documents(path: Path) -> Iterator[dict[str, Any]]:
    yield from yaml.safe_load_all(path.read_text())


def pod(name: str) -> dict[str, Any]:
    manifest = next(documents(KUBERNETES / f"{name}.yaml"))
    found: dict[str, Any] = manifest["spec"]["template"]["spec"]
    return found


def container(name: str) -> dict[str, Any]:
    (found,) = pod(name)["containers"]
    assert isinstance(found, dict)
    return found


def check_settings(part: str, given: set[str]) -> None:
    names = {name for name in given if name.startswith("PADDOCK_")}
    assert names <= KNOWN[part]
    assert {f"PADDOCK_{name}" for name in NEEDED[part]} <= names
    assert names >= SHARED


@pytest.mark.parametrize("path", MANIFESTS, ids=lambda path: path.stem)
def test_manifests_are_what_kubernetes_knows(path: Path) -> None:
    """A field that the published schemas don't have is an error."""
    for document in documents(path):
        kubernetes_validate.validate(document, "1.30", strict=True)


def test_each_manifest_is_applied_or_said_to_be_optional() -> None:
    text = (KUBERNETES / "kustomization.yaml").read_text()
    named = {*yaml.safe_load(text)["resources"], *re.findall(r"`(\w+\.yaml)`", text)}
    assert named == {path.name for path in MANIFESTS}


@pytest.mark.parametrize("part", ["node", "gateway"])
def test_pods_have_settings_that_exist(part: str) -> None:
    shared = next(documents(KUBERNETES / "settings.yaml"))["data"]
    check_settings(part, {each["name"] for each in container(part)["env"]} | set(shared))


@pytest.mark.parametrize("part", ["node", "gateway"])
def test_services_have_settings_that_exist(part: str) -> None:
    check_settings(part, set(STACK["services"][part]["environment"]))


def test_services_of_compose_have_settings_that_exist() -> None:
    """What checks the host beforehand has those of the control plane, and the same files."""
    alone, node = ALONE["control-plane"], COMPOSE["control-plane"]
    check_settings("node", {*alone["environment"], *node["environment"]} - {"PADDOCK_URL"})
    assert {key: COMPOSE["host-check"][key] for key in ("environment", "volumes")} == {
        key: node[key] for key in ("environment", "volumes")
    }
    check_settings("gateway", set(COMPOSE["gateway"]["environment"]))


@pytest.mark.parametrize("part", ["node", "gateway", "engine"])
def test_no_pod_may_ask_the_api_server(part: str) -> None:
    assert pod(part)["automountServiceAccountToken"] is False
    kinds = {document["kind"] for path in MANIFESTS for document in documents(path)}
    assert not any(kind.endswith(("Role", "RoleBinding", "ServiceAccount")) for kind in kinds)


def test_a_gateway_has_no_right() -> None:
    whole, alone = pod("gateway"), container("gateway")
    assert whole["securityContext"]["runAsUser"] == 65532
    assert whole["securityContext"]["runAsNonRoot"]
    assert alone["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert all("secret" in volume for volume in whole["volumes"])
    for service in (STACK["services"]["gateway"], COMPOSE["gateway"]):
        assert service["user"] == "65532:65532"
        assert service["cap_drop"] == ["ALL"]
        assert service["read_only"]
    assert "volumes" not in STACK["services"]["gateway"]
    (files,) = COMPOSE["gateway"]["volumes"]
    assert files.endswith(":/run/paddock:ro")


def test_updates_begin_with_one_machine_and_engines_are_never_replaced_unasked() -> None:
    node, engine = (next(documents(KUBERNETES / f"{name}.yaml")) for name in ("node", "engine"))
    assert node["spec"]["updateStrategy"]["rollingUpdate"] == {"maxUnavailable": 1}
    assert engine["spec"]["updateStrategy"] == {"type": "OnDelete"}
    update = STACK["services"]["node"]["deploy"]["update_config"]
    assert (update["parallelism"], update["failure_action"]) == (1, "rollback")
    assert update["delay"] == "5s"


def test_the_launcher_and_its_options_are_in_the_stack() -> None:
    for config in STACK["configs"].values():
        assert (DEPLOY / "swarm" / config["file"]).resolve().is_file()
