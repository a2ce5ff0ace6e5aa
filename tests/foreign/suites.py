"""Runs another project's suite in its environment, against a control plane."""

import asyncio
from collections.abc import Mapping
from pathlib import Path

from tests.foreign.environments import Environment
from tests.foreign.outcomes import of_junit
from tests.support.server import Server

PROGRAMS = Path(__file__).with_name("programs")
_SECONDS = 1800


async def outcomes(
    environment: Environment,
    program: str,
    plane: Server,
    directory: Path,
    *options: str,
    variables: Mapping[str, str] | None = None,
) -> dict[str, str]:
    """The outcome of each test of a suite in `programs/`, by its name.

    It has these `variables` besides the control plane's address and key. The report is kept in the
    directory. Raises: AssertionError if the suite can't be run.
    """
    report = directory / f"{program}.xml"
    done = await asyncio.to_thread(
        environment.run,
        *("-m", "pytest", f"--config-file={PROGRAMS / 'pytest.ini'}", "--noconftest"),
        *("--import-mode=importlib", f"--junit-xml={report}", *options),
        PROGRAMS / f"{program}.py",
        cwd=directory,
        seconds=_SECONDS,
        variables={"PADDOCK_URL": plane.url, "PADDOCK_KEY": plane.key, **(variables or {})},
    )
    # 1: some tests have failed.
    assert done.returncode in (0, 1), done.stdout[-4000:] + done.stderr[-4000:]
    print(done.stdout[-20_000:])
    return of_junit(report)
