"""The sandbox image, examined from inside."""

import re
import secrets
from collections.abc import Iterator
from contextlib import closing

import docker
import pytest

from images import base, guard_stage
from images.builder import Result, build
from images.errors import BuildError
from images.recipes import BASE_PACKAGES, BASE_UNUSED, ROOT
from orchestrator.host.engine.base import LABEL_IMAGE, LABEL_INPUTS
from tests.bench.confinement import confinement_costs
from tests.bench.reads import manifest_costs
from tests.support.limits import PROGRAM_SECONDS
from tests.support.registry import registry


@pytest.fixture(scope="module")
def image() -> Result:
    return build()


@pytest.fixture(scope="module")
def client() -> Iterator[docker.APIClient]:
    with closing(base.connect(PROGRAM_SECONDS)) as client:
        yield client


def _shell(client: docker.APIClient, image: Result, script: str) -> str:
    """Runs a script in a container of the image, which must succeed. Returns its output."""
    container = client.create_container(
        image.id,
        entrypoint=["/bin/sh", "-euc"],
        command=[script],
        network_disabled=True,
        host_config=client.create_host_config(network_mode="none"),
    )["Id"]
    try:
        client.start(container)
        status = client.wait(container, timeout=PROGRAM_SECONDS)["StatusCode"]
        output: str = client.logs(container).decode()
    finally:
        client.remove_container(container, force=True)
    assert status == 0, output
    return output


def test_labels_say_whose_it_is_and_its_inputs(client: docker.APIClient, image: Result) -> None:
    found = base.inspect(client, image.name)
    assert found is not None
    assert found["Id"] == image.id
    labels = found["Config"]["Labels"]
    assert labels[LABEL_IMAGE] == "sandbox"
    assert len(labels[LABEL_INPUTS]) == 64


def test_it_has_no_agent_and_starts_nothing(client: docker.APIClient, image: Result) -> None:
    found = base.inspect(client, image.name)
    assert found is not None
    assert not found["Config"]["Entrypoint"]
    assert found["Config"]["WorkingDir"] == "/"
    assert found["Config"]["User"] in ("", "0", "root")
    # Below the agent's mount, only the guard in C, from which the agent is completed.
    (guard,) = _shell(client, image, "ls -A /opt/paddock").split()
    assert re.fullmatch("guard-[0-9a-f]{64}", guard)


def test_nothing_is_left_of_the_stage_that_compiles(
    client: docker.APIClient, image: Result, monkeypatch: pytest.MonkeyPatch
) -> None:
    removed = list[str]()

    def discard(client: docker.APIClient, image_id: str) -> None:
        removed.append(image_id)
        client.remove_image(image_id)

    monkeypatch.setattr(guard_stage, "discard", discard)
    name = f"paddock/sandbox:test-{secrets.token_hex(4)}"
    assert build(name, report=_quiet).id == image.id
    client.remove_image(name)
    (stage,) = removed
    assert stage not in [each["Id"] for each in client.images(all=True)]


def test_current_image_is_not_built_again(image: Result) -> None:
    again = build()
    assert again == Result(image.name, image.id, built=False)


def test_a_base_from_a_registry(
    client: docker.APIClient, image: Result, monkeypatch: pytest.MonkeyPatch
) -> None:
    packages, unused = ((ROOT / path).read_bytes() for path in (BASE_PACKAGES, BASE_UNUSED))
    present = base.inspect(client, base.choose(client, packages, unused, _quiet))
    assert present is not None
    made = list[str]()
    monkeypatch.setattr(base, "_make", lambda _client, name, *_: made.append(name))
    monkeypatch.setattr(base, "local_name", lambda *_: "paddock/base:test-none")
    with registry(present) as address:
        name = f"{address}/debian:12"
        monkeypatch.setattr(base, "REGISTRY_BASE", name)
        try:
            assert base.choose(client, packages, unused, _quiet) == name
            pulled = base.inspect(client, name)
            assert pulled is not None
            assert pulled["Id"] == present["Id"]
            # What is on the engine needs no registry any more: the image is made on it.
            assert build(report=_quiet) == image._replace(built=False)
        finally:
            client.remove_image(name, noprune=True)
        # Without the image there, or without a registry at all, the base is made here.
        monkeypatch.setattr(base, "REGISTRY_BASE", f"{address}/absent:12")
        assert base.choose(client, packages, unused, _quiet) == "paddock/base:test-none"
        monkeypatch.setenv("PADDOCK_BASE_IMAGE", f"{address}/absent:12")
        with pytest.raises(BuildError, match="neither on the engine nor in a registry"):
            base.choose(client, packages, unused, _quiet)
        monkeypatch.delenv("PADDOCK_BASE_IMAGE")
    monkeypatch.setattr(base, "REGISTRY_BASE", f"{address}/debian:12")
    assert base.choose(client, packages, unused, _quiet) == "paddock/base:test-none"
    assert made == ["paddock/base:test-none"] * 2


def _quiet(_line: str) -> None:
    """Reports nothing."""


def test_no_file_gives_privileges(client: docker.APIClient, image: Result) -> None:
    assert _shell(client, image, "find / -xdev -type f -perm /6000") == ""


def test_tools_and_mount_points_are_there(client: docker.APIClient, image: Result) -> None:
    script = """
test -d /workspace; test -d /run/paddock; test -s /etc/ssl/certs/ca-certificates.crt
command -v python3 ls find grep curl git rg ps tar iptables ip6tables >/dev/null
git --version; rg --version; curl --version; iptables --version
python3 -c 'import ssl, sqlite3, sys; assert sys.version_info >= (3, 11)'
"""
    assert "git version" in _shell(client, image, script)


def test_nothing_of_the_builders_machine_is_left(client: docker.APIClient, image: Result) -> None:
    script = """
find /tmp /var/lib/apt/lists /var/cache/apt /var/log -type f
grep -rilE 'proxy|verify' /etc/apt/apt.conf.d || true
"""
    assert _shell(client, image, script) == ""


def test_the_cost_of_a_manifest_is_measured(client: docker.APIClient, image: Result) -> None:
    results = manifest_costs(client, image.id, rounds=2)
    assert [len(result.figures) for result in results] == [2, 2, 2]


def test_the_confinement_of_its_agent_is_measured(client: docker.APIClient, image: Result) -> None:
    """The benchmark starts the agent's own parts, which must fit together as it expects."""
    results = confinement_costs(client, image.id, rounds=6)
    assert [result.what for result in results] == [
        "confinement adds to `true`",
        "a record adds to an exec",
        "older kernels' filters add to `true`",
    ]
