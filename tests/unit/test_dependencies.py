"""Imports are declared, declared dependencies are used, and the lock files match both."""

import json
import re
import sys
import tomllib
from collections.abc import Iterable
from importlib.metadata import PackageNotFoundError, packages_distributions, requires

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from images.releases import DEBIAN_12, DEBIAN_13
from scripts import wheels
from tests.support.sources import ROOT, modules, source

pytestmark = pytest.mark.slow

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
OURS = {path.parent.name for path in ROOT.glob("*/__init__.py")}
SERVER = OURS - {"tests", "scripts"}
# Programs that are run and never imported: a file that runs each one, and how.
PROGRAMS = {
    "basedpyright": ("tests/unit/test_typed_client.py", '"basedpyright"'),
    "mypy": ("Makefile", "-m mypy"),
    "ruff": ("Makefile", "-m ruff"),
    "schemathesis": ("tests/api/test_schemathesis.py", '"schemathesis"'),
    "uv": ("scripts/lock.sh", "-m uv"),
}

# What is imported in an environment of its own, which a file makes.
ALONE = {"spdx-tools": ("scripts/packaging/release.py", '"spdx-tools==')}


def declared(texts: Iterable[str]) -> dict[str, Requirement]:
    """Requirements by their canonical names."""
    found = map(Requirement, texts)
    return {canonicalize_name(requirement.name): requirement for requirement in found}


# What the benchmark's peers need, in an environment of their own; modules by distribution.
PEERS = {"llm-sandbox": "llm_sandbox", "swe-rex": "swerex"}
# What only users of a framework install: its extra and its distribution; its modules.
FRAMEWORKS = {
    "inspect": ("inspect-ai", {"inspect_ai"}),
    "deepagents": ("deepagents", {"deepagents"}),
    "mini-swe-agent": ("mini-swe-agent", {"minisweagent"}),
    "openai-agents": ("openai-agents", {"agents"}),
    "llm-sandbox": ("llm-sandbox", {"llm_sandbox"}),
}
# Programs and suites of tests that run where a framework is installed, and nowhere else.
FOREIGN = ROOT / "tests" / "foreign"
RUN = declared(PROJECT["dependencies"])
# What only nodes and gateways of a cluster import.
# What only nodes and gateways of a cluster import, and servers with users or telemetry.
EXTRAS = {
    name: version
    for extra in ("cluster", "oidc", "otel")
    for name, version in declared(PROJECT["optional-dependencies"][extra]).items()
}
DEV = declared(PROJECT["optional-dependencies"]["dev"])


def imported(folders: Iterable[str]) -> set[str]:
    """The installed third-party distributions that the folders' modules import."""
    foreign = set().union(*(names for _, names in FRAMEWORKS.values()))
    providers = packages_distributions()
    tops = {
        name.partition(".")[0]
        for folder in folders
        for path in modules(folder)
        if not path.is_relative_to(FOREIGN / "programs")
        for name in source(path).imports
    }
    others = tops - OURS - sys.stdlib_module_names - foreign
    found = {canonicalize_name(name) for top in others for name in providers.get(top, [top])}
    # Many distributions share the package `opentelemetry`; those that are declared count.
    return {name for name in found if not name.startswith("opentelemetry-") or name in EXTRAS}


def test_running_needs_what_is_declared_and_nothing_else() -> None:
    assert imported(SERVER) == RUN.keys() | EXTRAS.keys()


def test_the_client_alone_needs_what_it_declares_and_nothing_else() -> None:
    client, server = (wheels.project(name)["project"] for name in (wheels.CLIENT, wheels.SERVER))
    assert imported(["paddock"]) == declared(client["dependencies"]).keys()
    assert declared(server["dependencies"]).keys() == RUN.keys() | {"paddock"}
    assert client["version"] == server["version"] == PROJECT["version"]
    assert f"paddock=={client['version']}" in server["dependencies"]


def test_each_framework_is_an_extra_of_the_client_alone() -> None:
    client, server = (wheels.project(name)["project"] for name in (wheels.CLIENT, wheels.SERVER))
    extras = {
        name: list(declared(wants)) for name, wants in client["optional-dependencies"].items()
    }
    assert extras == {name: [wanted] for name, (wanted, _) in FRAMEWORKS.items()}
    assert client["entry-points"] == {"inspect_ai": {"paddock": "paddock.integrations.inspect"}}
    assert server["optional-dependencies"] == {
        name: PROJECT["optional-dependencies"][name] for name in ("cluster", "oidc", "otel")
    }
    assert server["entry-points"].keys() == {"paddock.server"}


def test_the_environments_of_other_projects_fit_their_extras() -> None:
    """They have what the client needs, and a version of the framework that its extra allows."""
    client = wheels.project(wheels.CLIENT)["project"]
    needs = (FOREIGN / "pins" / "client.txt").read_text().splitlines()
    assert declared(each for each in needs if not each.startswith("#")) == declared(
        client["dependencies"]
    )
    for extra, (framework, _) in FRAMEWORKS.items():
        version = locked(f"tests/foreign/pins/{extra}.lock")[framework]
        (wanted,) = declared(client["optional-dependencies"][extra]).values()
        assert wanted.specifier.contains(version), extra


def test_tests_need_what_is_declared_and_nothing_else() -> None:
    stubs = {name for name in DEV if name.startswith("types-")}
    assert {name.removeprefix("types-") for name in stubs} <= RUN.keys() | DEV.keys()
    for name, (user, call) in PROGRAMS.items():
        assert call in (ROOT / user).read_text(), name
    for name, (user, pinned) in ALONE.items():
        assert pinned in (ROOT / user).read_text(), name
    peers_modules = {canonicalize_name(module) for module in PEERS.values()}
    others = RUN.keys() | EXTRAS.keys() | ALONE.keys() | peers_modules
    assert imported(["tests", "scripts"]) - others == DEV.keys() - stubs - PROGRAMS.keys()
    peers = (ROOT / "tests/bench/peers/requirements.txt").read_text().splitlines()[1:]
    assert declared(peers).keys() == PEERS.keys() | {"aiohttp", "docker"}


def locked(name: str) -> dict[str, str]:
    """The versions in a lock file by canonical name; each must have the digests of its files."""
    text = (ROOT / name).read_text()
    assert "://" not in text, f"{name} names a host"
    entries = re.findall(r"^(\S+)==(\S+)(?: ; [^\\\n]+)? \\\n +--hash=sha256:", text, re.M)
    assert len(entries) == len(re.findall(r"^[^\s#]", text, re.M)), f"{name} has other lines"
    return {canonicalize_name(entry): version for entry, version in entries}


def needed(roots: dict[str, Requirement]) -> set[str]:
    """The roots and all their dependencies, according to the installed packages."""
    found: set[str] = set()
    waiting = [(name, requirement.extras) for name, requirement in roots.items()]
    while waiting:
        name, extras = waiting.pop()
        if name in found:
            continue
        found.add(name)
        try:
            wants = map(Requirement, requires(name) or [])
        except PackageNotFoundError:
            continue
        waiting += [
            (canonicalize_name(want.name), want.extras)
            for want in wants
            if want.marker is None
            or any(want.marker.evaluate({"extra": extra}) for extra in ("", *extras))
        ]
    return found


def test_the_lock_files_fit_what_is_declared() -> None:
    run, dev = locked("requirements.lock"), locked("requirements-dev.lock")
    assert run.items() <= dev.items(), "`make lock` writes both"
    for lock, roots in ((run, RUN | EXTRAS), (dev, RUN | EXTRAS | DEV)):
        unfit = {
            str(requirement)
            for name, requirement in roots.items()
            if name not in lock or not requirement.specifier.contains(lock[name])
        }
        assert not unfit, "run `make lock`"
        assert needed(roots) <= lock.keys(), "run `make lock`"


def test_supported_pythons_are_the_same_everywhere() -> None:
    prefix = "Programming Language :: Python :: "
    supported = [
        each.removeprefix(prefix) for each in PROJECT["classifiers"] if each.startswith(prefix)
    ]
    assert f">={supported[0]}" == PROJECT["requires-python"]
    assert {DEBIAN_12.python, DEBIAN_13.python} <= set(supported)
    assert f"python: {json.dumps(supported)}" in (ROOT / ".github/workflows/ci.yml").read_text()
    for name in (wheels.CLIENT, wheels.SERVER):
        published = wheels.project(name)["project"]["classifiers"]
        assert published == [f"{prefix}{version}" for version in supported]
    *others, last = supported
    for document in ("README.md", "CONTRIBUTING.md", "docs/hosts.md", "docs/deployment.md"):
        assert f"{', '.join(others)} or {last}" in (ROOT / document).read_text()
