"""Fixtures: where results of suites go."""

from collections.abc import Callable

import pytest

from scripts import compat
from scripts.docs import COMPAT

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
