"""Rules of the code's structure: directions of imports, and a self-contained agent."""

import ast
import importlib
import inspect
import re
import sys
from collections import Counter
from collections.abc import Iterator
from itertools import filterfalse
from pathlib import Path
from typing import get_args, get_type_hints, is_typeddict

import pytest

from orchestrator.operate.instance import Floor, Instance
from paddock.contract.base import Model
from tests.support.sources import ROOT, circles, examined, graph, modules, source

# The packages of ours that each package may import; host and agent share the pure modules.
PURE_AGENT = "sandbox_agent.decide"
# aiohttp's URLs come from yarl, and its attempts to connect from aiohappyeyeballs;
# typing_extensions serves type checkers.
CLIENT_NEEDS = {"aiohappyeyeballs", "aiohttp", "pydantic", "yarl", "typing_extensions"}
# Modules of frameworks, by the module of ours that may import them.
FRAMEWORKS = {
    "deepagents": {"deepagents"},
    "inspect": {"inspect_ai"},
    "llm_sandbox": {"llm_sandbox"},
    "mini_swe_agent": {"minisweagent"},
    "openai_agents": {"agents"},
    "openai_shell": {"agents"},
    "refusals": set[str](),
}
ALLOWED = {
    "sandbox_agent": {"sandbox_agent"},
    "paddock": {"paddock"},
    "orchestrator": {"orchestrator", "sandbox_agent", "paddock.contract", "paddock.audit"},
    # It can do nothing to a machine: no engine, no sandboxes, no sessions' state.
    "gateway": {
        *("gateway", "paddock.contract", "orchestrator.ground", "orchestrator.cluster"),
        *("orchestrator.rules.access", "orchestrator.settings"),
    },
    "api": {"api", "orchestrator", "sandbox_agent", "paddock.contract", "paddock.audit"},
    # Packages that import nothing else of their parent package.
    "paddock/contract": {"paddock.contract"},
    "paddock/audit": {"paddock.audit"},
}
# The server's part of the command line, which also builds images.
ALLOWED_ALSO = {"api/cli": {"paddock.cli", "paddock.connect", "images", "gateway"}}
# The floors of packages, from the lowest: each imports only itself and what is below it.
API_FLOORS = (
    "shape",
    "views",
    "operations",
    "mcp",
    "catalog",
    "openapi",
    "http",
    "compat",
    "console",
    "previews",
    "log",
    "app",
    "gateway_listener",
    "server",
    "cli",
)
FLOORS = {
    "orchestrator": (
        "ground",
        "settings",
        "host",
        "rules",
        "cluster",
        "state",
        "record",
        "sandbox",
        "work",
        "sessions",
        "programs",
        "operate",
        "control_plane",
    ),
    "api": API_FLOORS,
    "sandbox_agent": (
        "decide",
        "core",
        "enforce",
        "image",
        "run",
        "code",
        "pty",
        "files",
        "net",
        "session",
        "configuring",
        "server",
        "__main__",
    ),
    # A package that is in its own table names what is below it, for those who import it.
    "paddock": (
        "contract",
        "webhooks",
        "audit",
        "connect",
        "client",
        "integrations",
        "app",
        "cli",
        "__main__",
        "__init__",
    ),
    # What every command shares, the folders of commands, and what makes one program of them.
    "paddock/cli": (
        "exits",
        "server",
        "connection",
        "levels",
        "options",
        "errors",
        "egress_rules",
        "mount_options",
        "description",
        "output",
        "listing",
        "device_login",
        "own_session",
        "several",
        "contexts",
        "global_options",
        "terminal",
        "resources",
        "prompt",
        "program",
        "__init__",
    ),
}
# Folders with one file a resource; all others are small.
OF_RESOURCES = {"api/operations", "paddock/contract", "paddock/client", "paddock/cli/resources"}
MOST_MODULES = 26
MOST_LINES = 330
# Modules of one idea that is longer.
LONG = {
    "orchestrator/ground/events.py",
    "sandbox_agent/enforce/reads/opener.py",
    "sandbox_agent/pty/terminal.py",
    "sandbox_agent/run/executor.py",
}
OURS = {
    *("sandbox_agent", "orchestrator", "api", "gateway", "images", "paddock"),
    *("scripts", "tests", "examples"),
}


@pytest.mark.parametrize("package", sorted(ALLOWED))
def test_imports_go_one_way(package: str) -> None:
    for path in modules(package):
        also = ALLOWED_ALSO.get(path.parent.relative_to(ROOT).as_posix(), set())
        for name in source(path).imports:
            if name.partition(".")[0] not in OURS or name == "paddock":
                continue
            known = any(f"{name}.".startswith(f"{each}.") for each in ALLOWED[package] | also)
            assert known, f"{path} imports {name}"


# It runs as a process of its own with the rights of a workspace's user, as the agent's worker does.
HELPER = ROOT / "orchestrator/operate/snapshots/helper.py"


def test_the_host_uses_only_pure_modules_of_the_agent() -> None:
    for package in ("orchestrator", "api", "gateway"):
        for path in {*modules(package)} - {HELPER}:
            for name in source(path).imports:
                if name.startswith("sandbox_agent."):
                    assert f"{name}.".startswith(f"{PURE_AGENT}."), f"{path} imports {name}"


def test_the_agent_needs_the_standard_library_only() -> None:
    for path in modules("sandbox_agent"):
        for name in source(path).imports:
            top = name.partition(".")[0]
            known = top in sys.stdlib_module_names or top == "sandbox_agent"
            assert known, f"{path} imports {name}"


def test_the_domain_knows_no_http() -> None:
    """The exceptions send messages, calls of models and issuers, and sessions, or serve servers."""
    posting = {
        *("ground/http_post.py", "ground/http_connector.py", "work/models/transport.py"),
        *("operate/moves/way.py", "rules/oidc/issuer_fetch.py"),
    }
    for path in modules("orchestrator"):
        name = path.relative_to(ROOT / "orchestrator").as_posix()
        if name not in posting and not name.startswith("ground/serving/"):
            assert not any(name.partition(".")[0] == "aiohttp" for name in source(path).imports), (
                path
            )


def test_operations_know_no_http() -> None:
    """Their floors are below HTTP's, so that only aiohttp is left to be looked for."""
    for floor in API_FLOORS[: API_FLOORS.index("http")]:
        paths = modules(f"api/{floor}") or [ROOT / "api" / f"{floor}.py"]
        for path in paths:
            assert not any(name.partition(".")[0] == "aiohttp" for name in source(path).imports), (
                path
            )


def test_operations_name_their_services() -> None:
    """They get none through the whole control plane."""
    for floor in API_FLOORS[: API_FLOORS.index("http")]:
        for path in modules(f"api/{floor}"):
            tree = ast.parse(path.read_text())
            names = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
            names |= {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
            names |= {node.arg for node in ast.walk(tree) if isinstance(node, ast.arg)}
            assert not names & {"plane", "ControlPlane"}, path


def test_only_the_engine_talks_to_the_engine() -> None:
    for package in ("orchestrator", "api", "gateway"):
        for path in modules(package):
            if path.is_relative_to(ROOT / "orchestrator" / "host" / "engine"):
                continue
            assert not any(name.partition(".")[0] == "docker" for name in source(path).imports), (
                path
            )


def test_the_client_needs_aiohttp_and_pydantic_only() -> None:
    for path in modules("paddock/client"):
        for name in source(path).imports:
            top = name.partition(".")[0]
            known = top in sys.stdlib_module_names or top in CLIENT_NEEDS
            ours = name.startswith(("paddock.client", "paddock.connect", "paddock.contract"))
            assert known or ours, f"{path} imports {name}"


def test_each_integration_needs_the_client_and_its_framework() -> None:
    """Nothing else imports a framework, so that none has to be installed."""
    folder = ROOT / "paddock" / "integrations"
    assert {path.stem for path in folder.glob("*.py")} == {*FRAMEWORKS, "__init__"}
    all_of_them = set().union(*FRAMEWORKS.values())
    for path in modules("paddock"):
        own = path.is_relative_to(folder)
        for name in source(path).imports:
            top = name.partition(".")[0]
            if top in all_of_them:
                assert own, f"{path} imports {name}"
                assert top in FRAMEWORKS[path.stem], f"{path} imports {name}"
            elif own and path.stem != "__init__":
                ours = name.startswith(
                    ("paddock.client", "paddock.contract", "paddock.integrations")
                )
                known = top in sys.stdlib_module_names or top == "pydantic"
                assert known or ours, f"{path} imports {name}"


def test_the_client_has_the_models_of_the_contract() -> None:
    """No class of the client repeats a model of the contract; typed dictionaries are arguments."""
    models = {
        value.__name__: set(value.model_fields)
        for value in _classes("paddock/contract")
        if issubclass(value, Model) and value.model_fields
    }
    assert len(models) > 40
    for own in filterfalse(is_typeddict, _classes("paddock/client")):
        members = set(inspect.get_annotations(own))
        repeated = [name for name, fields in models.items() if fields <= members]
        assert not repeated, f"{own.__module__}.{own.__name__} repeats {repeated}"


def _classes(package: str) -> Iterator[type]:
    """The classes that the package's modules define."""
    for path in modules(package):
        name = ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
        module = importlib.import_module(name)
        yield from (
            value
            for value in vars(module).values()
            if isinstance(value, type) and value.__module__ == name
        )


def test_sockets_by_descriptor_are_bound_by_hand() -> None:
    """asyncio's servers look at their path again, when the descriptor in it may be another file's.

    Since Python 3.13 they do so at their start and end; with older versions nothing would fail.
    """
    for package in ("sandbox_agent", "paddock", "orchestrator", "api", "gateway"):
        for path in modules(package):
            used = source(path).names
            assert not used & {"create_unix_server", "start_unix_server"}, path


# A call in the caller's own process, on the caller's own disk, delays nobody else.
OFF_LOOP = {"paddock/client/local_directory.py"}


def test_threads_are_bounded() -> None:
    """The loop's own executor is shared by all code, and a call that hangs in it hangs forever.

    Only asyncio and aiohttp use it, to resolve names, so that no other call waits behind those.
    """
    for package in ("orchestrator", "api", "gateway", "paddock"):
        for path in modules(package):
            if path.relative_to(ROOT).as_posix() in OFF_LOOP:
                continue
            assert not source(path).names & {"to_thread", "set_default_executor"}, path
            assert not source(path).loops_executor, path


@pytest.mark.parametrize(
    "text",
    [
        "asyncio.create_task(work())",
        "from asyncio import create_task",
        "from asyncio import create_task as begin",
        "create_task(work())",
    ],
)
def test_uses_are_found_however_they_are_written(text: str) -> None:
    assert "create_task" in examined(ast.parse(text)).names


def test_tasks_have_owners() -> None:
    """A task without a reference may vanish at any time, and its failure goes unnoticed."""
    for package in ("orchestrator", "api", "gateway"):
        for path in modules(package):
            if path == ROOT / "orchestrator" / "ground" / "task_scope.py":
                continue
            used = source(path).names
            assert not used & {"create_task", "ensure_future", "TaskGroup"}, path


# The packages that look at the host: its floor, and the checks of an installation.
# The engine's package is allowed because its paths in /proc belong to sandboxes.
_HOST_ROOMS = ("orchestrator/host", "orchestrator/operate/checks")
_HOST_CALLS = {"statvfs", "disk_usage", "getloadavg", "sysconf", "pidfd_open", "AF_UNIX"}
_HOST_PATHS = re.compile(r"/(proc|sys)/")


def test_only_the_node_looks_at_the_host() -> None:
    for package in ("orchestrator", "api", "gateway"):
        for path in modules(package):
            if path.is_relative_to(ROOT / "orchestrator" / "host" / "node"):
                continue
            assert "psutil" not in source(path).imports, path
            if any(path.is_relative_to(ROOT / room) for room in _HOST_ROOMS):
                continue
            assert not source(path).names & _HOST_CALLS, path
            named = [text for text in source(path).texts if _HOST_PATHS.match(text)]
            assert not named, path


def test_a_word_means_one_thing() -> None:
    """No two classes of the domain have the same name."""
    seen: dict[str, Path] = {}
    for path in modules("orchestrator"):
        for name in source(path).classes:
            if not name.startswith("_"):
                other = seen.setdefault(name, path)
                assert other == path, f"{name} is in {other} and in {path}"


def test_modules_are_on_floors() -> None:
    """The top of the domain holds the floors, and what opens them."""
    domain = ROOT / "orchestrator"
    assert {path.stem for path in domain.glob("*.py")} == {"__init__", "control_plane"}


@pytest.mark.parametrize("package", sorted(FLOORS))
def test_every_module_has_a_floor(package: str) -> None:
    top = ROOT / package
    modules_there = {path.stem for path in top.glob("*.py")}
    folders = {path.parent.name for path in top.glob("*/__init__.py")}
    assert (modules_there | folders) - {"__init__"} == {*FLOORS[package]} - {"__init__"}


@pytest.mark.parametrize("package", sorted(FLOORS))
def test_floors_import_downwards(package: str) -> None:
    """Imports of types and imports within functions count."""
    assert not [
        f"{name} imports {other}"
        for name, others in graph(package).items()
        for other in others
        if _floor(package, other) > _floor(package, name)
    ]


def _floor(package: str, module: str) -> int:
    """The number of a module's floor; a package that is on none is below all of them."""
    below = module.removeprefix(package.replace("/", ".")).removeprefix(".")
    name = below.partition(".")[0] or "__init__"
    return FLOORS[package].index(name) if name in FLOORS[package] else -1


def test_the_control_plane_only_opens_the_floors() -> None:
    """A function made on the spot would look up later what it needs of an upper floor."""
    path = ROOT / "orchestrator" / "control_plane.py"
    text = path.read_text()
    assert len(text.splitlines()) <= 150
    assert not [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Lambda)]


def test_an_instance_offers_what_its_floors_have() -> None:
    """Each part has one name, which one floor gives it, with its type."""
    given: dict[str, object] = {}
    for floor in get_args(Floor):
        hints = get_type_hints(floor)
        assert not given.keys() & hints.keys()
        given |= hints
    offered = get_type_hints(Instance)
    assert offered
    assert offered == {name: given[name] for name in offered}


@pytest.mark.parametrize("package", ["orchestrator", "api", "gateway", "sandbox_agent", "paddock"])
def test_folders_are_small(package: str) -> None:
    """A reader finds a module by its name, in a list that fits one look."""
    sizes = Counter(
        path.parent.relative_to(ROOT).as_posix()
        for path in modules(package)
        if path.stem != "__init__"
    )
    large = {folder for folder, size in sizes.items() if size > MOST_MODULES}
    assert large <= OF_RESOURCES, {folder: sizes[folder] for folder in large - OF_RESOURCES}


@pytest.mark.parametrize("package", ["orchestrator", "api", "gateway", "sandbox_agent", "paddock"])
def test_modules_are_short(package: str) -> None:
    sizes = {
        path.relative_to(ROOT).as_posix(): len(path.read_text().splitlines())
        for path in modules(package)
    }
    assert not {
        name: size for name, size in sizes.items() if size > MOST_LINES and name not in LONG
    }


@pytest.mark.parametrize("package", ["orchestrator", "api", "gateway", "sandbox_agent", "paddock"])
def test_no_imports_go_in_circles(package: str) -> None:
    assert not circles(graph(package))
