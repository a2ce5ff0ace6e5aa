"""Fixtures: a control plane, the client as users install it, and where results of suites go."""

from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
import pytest_asyncio

from scripts import compat
from scripts.docs import COMPAT
from tests.foreign.environments import install_client
from tests.support.server import Server, leaving_nothing

Keep = Callable[[compat.Result], None]


def pytest_addoption(parser: pytest.Parser) -> None:
    """`--keep-results`: what came of the suites goes into `docs/compat.json`."""
    parser.addoption("--keep-results", action="store_true", help="write docs/compat.json")


@pytest.fixture(scope="session")
def keep(pytestconfig: pytest.Config) -> Keep:
    """Stores the result of a suite, if this run is to store results."""
    keeping = pytestconfig.getoption("--keep-results", default=False)

    def kept(result: compat.Result) -> None:
        if keeping:
            compat.keep(COMPAT, result)

    return kept


@pytest.fixture(scope="session")
def client(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with the installed client."""
    return install_client(tmp_path_factory.mktemp("client"))


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def plane(sandbox_image: str) -> AsyncIterator[Server]:
    """A control plane; at its end, clients must have left no session and nothing of one."""
    # Nobody reads its log meanwhile.
    settings = {"PADDOCK_IMAGE": sandbox_image, "PADDOCK_LOG_LEVEL": "warning"}
    async with leaving_nothing(**settings) as running:
        yield running
