"""Packages of npm for clients of other projects: exact versions, kept between runs."""

import asyncio
import hashlib
import os
import shutil
from collections.abc import Mapping
from pathlib import Path

from tests.foreign.outcomes import of_junit
from tests.support.limits import PROGRAM_SECONDS

_SECONDS = 10 * PROGRAM_SECONDS


async def installed(packages: Mapping[str, str]) -> Path:
    """The folder in which these packages are installed, by their versions.

    Raises: AssertionError with what the installer said.
    """
    wanted = [f"{name}@{version}" for name, version in packages.items()]
    digest = hashlib.sha256(" ".join(sorted(wanted)).encode()).hexdigest()[:16]
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", "paddock", "foreign")
    directory = cache / f"npm-{digest}"
    complete = directory / "complete"
    if not complete.exists():
        shutil.rmtree(directory, ignore_errors=True)
        directory.mkdir(parents=True)
        (directory / "package.json").write_text('{"private": true}')
        arguments = ("npm", "install", "--no-audit", "--no-fund", "--save-exact", *wanted)
        status, said = await _run(directory, {}, *arguments)
        assert status == 0, said
        complete.touch()
    return directory


async def trials(
    program: Path, packages: Path, variables: Mapping[str, str], directory: Path
) -> dict[str, str]:
    """The outcome of each trial of a program of `node:test`, by its name.

    Raises: AssertionError if the program can't be run.
    """
    report = directory / f"{program.stem}.xml"
    options = ("--test", "--test-reporter=junit", f"--test-reporter-destination={report}")
    _, said = await _run(packages, variables, "node", *options, str(program))
    assert report.exists(), said
    print(said[-20_000:])
    return of_junit(report)


async def _run(
    directory: Path, variables: Mapping[str, str], *arguments: str
) -> tuple[int | None, str]:
    process = await asyncio.create_subprocess_exec(
        *arguments,
        cwd=directory,
        env=os.environ | variables,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    try:
        async with asyncio.timeout(_SECONDS):
            said, _ = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    return process.returncode, said.decode(errors="replace")
