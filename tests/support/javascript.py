"""The runtimes of JavaScript under which the client is tested, and running them."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from scripts.npm_package import SOURCE
from tests.support.finished import finished
from tests.support.server import ROOT

_INSTALLED = SOURCE / "runtimes" / "node_modules"
# They tell nobody of their use.
_QUIET = {"DENO_NO_UPDATE_CHECK": "1", "DO_NOT_TRACK": "1"}
_NODE_TESTS = ("--test", "--test-reporter=tap")


class Runtime(NamedTuple):
    """How one runs a program, and a file of tests. `program` is a pattern below the installed."""

    name: str
    program: str
    run: tuple[str, ...]
    test: tuple[str, ...]

    def command(self, path: str, *, test: bool = False) -> tuple[str, ...]:
        """The words that run that file."""
        return (self._found(), *(self.test if test else self.run), path)

    def _found(self) -> str:
        if not self.program:
            return self.name
        found = sorted(_INSTALLED.glob(self.program))
        assert found, f"no {self.name}: `make runtimes` installs it"
        return str(found[0])


# The system's, the oldest one, and the others.
NODE = Runtime("node", "", (), _NODE_TESTS)
RUNTIMES = (
    NODE,
    Runtime("node-18", "node-linux-*/bin/node", (), _NODE_TESTS),
    Runtime("bun", "@oven/bun-linux-*/bin/bun", ("run",), ("test",)),
    # Without types, because the tests have none.
    Runtime("deno", "@deno/linux-*/deno", ("run", "-A"), ("test", "-A", "--no-check")),
)


def names(runtimes: tuple[Runtime, ...] = RUNTIMES) -> Iterator[str]:
    """For the ids of tests."""
    return (each.name for each in runtimes)


async def run_program(package: Path, *command: str, **environment: str) -> tuple[int, str]:
    """The exit status of a program in the package's folder, and what it prints."""
    environment = {"OPENAPI": str(ROOT / "docs" / "openapi.json"), **environment}
    return await finished(*command, cwd=package, env={**os.environ, **_QUIET, **environment})
