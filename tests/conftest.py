"""Fixtures: the sandbox image, and a control plane with the real engine per module."""

import functools
import gc
import secrets
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import docker
import pytest
import pytest_asyncio
from hypothesis import HealthCheck, settings
from xdist.remote import Producer
from xdist.scheduler import Scheduling

from api.console import routes
from images.builder import build
from orchestrator.control_plane import ControlPlane
from orchestrator.ground.store import database, database_file
from orchestrator.host.engine.docker import DockerEngine
from orchestrator.host.node.mounts import check_mounts
from orchestrator.rules.policy.levels import load_levels
from orchestrator.rules.tools.session_loader import load_manifest
from orchestrator.sandbox.images import mounted_agents
from paddock.cli import program
from paddock.contract.build import this_build
from scripts import npm_package
from tests.support import migrated, pythons
from tests.support.box import Box
from tests.support.made_agents import linking
from tests.support.older_kernels import older_host, older_image
from tests.support.plane import opened
from tests.support.together import TogetherScheduling

BoxFactory = Callable[..., Awaitable[Box]]

# On a busy machine an example may take any time, which says nothing about the tested code.
settings.register_profile(
    "busy", deadline=None, max_examples=40, suppress_health_check=[HealthCheck.too_slow]
)
# For `make check`, which is run often: half of the examples.
settings.register_profile("quick", settings.get_profile("busy"), max_examples=20)
settings.load_profile("busy")


# The files that take longest begin first, in this order, so that no worker is left alone with one
# at the end. Each of these takes more than twice as long as a usual one.
LONGEST = (
    *("test_recovery.py", "test_docs.py", "test_chaos.py", "test_schemathesis.py"),
    "test_gateway_programs.py",
    *("test_cli_any_words.py", "test_linear_reading.py", "test_compose.py", "test_budgets.py"),
    *("test_rules_fuzz.py", "test_reading.py", "test_warm.py", "test_file_escapes.py"),
    *("test_console_run.py", "test_apps.py", "test_wheels.py", "test_lisp_costs.py"),
    *("test_lifecycle.py", "test_machines.py", "test_terminals.py", "test_client.py"),
    *("test_compiled_guard.py", "test_signals_without_scopes.py", "test_quota.py"),
    *("test_rules_of_paths.py", "test_losses.py", "test_rates.py", "test_store_faults.py"),
    *("test_restarts.py", "test_cli.py", "test_javascript.py", "test_workspace_paths.py"),
    *("test_purge.py", "test_resources.py", "test_rules.py", "test_foreign_images.py"),
    *("test_kept_shells.py", "test_soak.py", "test_output.py", "test_level_change.py"),
    *("test_option_tables.py", "test_older_kernels.py"),
)


# How many objects come before a collection of garbage, and how many collections of each generation
# before one of the next. Python's 700 take a twentieth of the time of the tests of the API.
USUAL_COLLECTIONS, RARE_COLLECTIONS = gc.get_threshold(), (20_000, 20, 50)


def pytest_addoption(parser: pytest.Parser) -> None:
    """`--without mdwe,truncation`: tests with real sandboxes use these facilities' substitutes.

    `--short` leaves out the tests that are marked `whole`.
    """
    parser.addoption("--short", action="store_true", help="without the tests marked whole")
    parser.addoption("--without", default="", help="facilities that the kernel is said to lack")


def pytest_configure() -> None:
    """Has garbage collected less often: nothing that is collected here is large."""
    gc.set_threshold(*RARE_COLLECTIONS)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> Scheduling | None:
    """With `--dist loadfile`, one worker runs all files that use the real cluster."""
    return TogetherScheduling(config, log) if config.getoption("dist") == "loadfile" else None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Puts the longest files first, and leaves out what only `make test-cluster` runs."""
    if config.getoption("--short"):
        items[:] = [item for item in items if item.get_closest_marker("whole") is None]
    place = {name: number for number, name in enumerate(LONGEST)}
    items.sort(key=lambda item: place.get(item.path.name, len(place)))


def pytest_collection_finish() -> None:
    """Leaves modules and collected tests out of every later collection of garbage."""
    gc.collect()
    gc.freeze()


def pytest_report_header() -> str:
    """The header of every run that is not quiet."""
    return pythons.header()


@pytest.fixture(scope="session", autouse=True)
def quick_starts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Makes control planes start and stop faster, and the command line start faster.

    What no test changes is made once: the packaged levels and manifests, the newest schema, the
    tree of commands, the console's files, the agent of sandboxes, and the check whether this host
    can mount. Policy files are checked more often, because a stop waits for the next check.
    """
    migrate = migrated.copying(database_file.migrate, database_file.MIGRATIONS)
    packaged = functools.cache(load_levels)
    pages = functools.cache(routes._found)
    mounts = functools.cache(lambda: check_mounts(Path(tempfile.gettempdir())))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            "orchestrator.operate.operator.reload.load_levels",
            lambda directory, runtimes=None, **cluster: (
                packaged() if directory is None else load_levels(directory, runtimes, **cluster)
            ),
        )
        patch.setattr("orchestrator.operate.operator.reload.STEP_MS", 20)
        patch.setattr(
            "orchestrator.rules.tools.catalog.load_manifest", functools.cache(load_manifest)
        )
        patch.setattr("orchestrator.host.node.host.check_mounts", lambda _state_dir: mounts())
        # A level's own default image is not built for tests, but for those that set it.
        patch.setenv("PADDOCK_LEVEL_IMAGES", "{}")
        patch.setattr(database, "migrate", migrate)
        patch.setattr(database_file, "migrate", migrate)
        patch.setattr(routes, "_found", pages)
        patch.setattr("orchestrator.ground.metrics.this_build", functools.cache(this_build))
        patch.setattr(program, "build", functools.cache(program.build))
        patch.setattr(mounted_agents, "read_code", functools.cache(mounted_agents.read_code))
        making = linking(DockerEngine.make_agent, tmp_path_factory.mktemp("agents"))
        patch.setattr(DockerEngine, "make_agent", making)
        yield


@pytest.fixture(scope="session")
def sandbox_image(pytestconfig: pytest.Config) -> Iterator[str]:
    """The sandbox image of this checkout, independent of other builds on this host.

    With the option `--without`, its agents do without those facilities, and so does the host.
    """
    name = f"paddock/sandbox:test-{secrets.token_hex(4)}"
    build(name, report=lambda _line: None)
    without = tuple(filter(None, pytestconfig.getoption("--without").split(",")))
    with ExitStack() as stack:
        if without:
            stack.enter_context(older_host(without))
        yield stack.enter_context(older_image(name, without)) if without else name
    with closing(docker.APIClient(version="auto")) as client:
        client.remove_image(name)


@pytest.fixture(scope="session")
def javascript_package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The JavaScript client with its tests, compiled outside of the checkout."""
    target = tmp_path_factory.mktemp("javascript") / "package"
    npm_package.build(target)
    return target


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def control_plane(sandbox_image: str) -> AsyncIterator[ControlPlane]:
    """Checks that nothing of the module is left at its end."""
    async with opened(image=sandbox_image) as plane:
        yield plane


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def new_box(control_plane: ControlPlane) -> BoxFactory:
    """Creates sessions: `await new_box("low", …)`; they are closed at the end of the module."""

    async def create(level: str, **members: object) -> Box:
        return await Box.create(control_plane, level, **members)

    return create


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def low(new_box: BoxFactory) -> Box:
    """A session at low, shared by the module."""
    return await new_box("low")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def medium(new_box: BoxFactory) -> Box:
    """A session at medium, shared by the module."""
    return await new_box("medium")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def high(new_box: BoxFactory) -> Box:
    """A session at high, shared by the module."""
    return await new_box("high")
