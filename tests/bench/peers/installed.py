"""What each contender needs, and its process."""

import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import NamedTuple

from tests.bench.comparison import OURS
from tests.bench.peers import environment
from tests.bench.peers.contender import Contender, contending
from tests.bench.peers.driver import Options

ENGINE, SWE_REX, LLM_SANDBOX = "Docker", "SWE-ReX", "llm-sandbox"


class Installed(NamedTuple):
    """The driver's name, the interpreter for it, and what the driver is told."""

    driver: str
    python: Path
    options: Options


def install(image: str) -> tuple[dict[str, Installed], dict[str, str]]:
    """The contenders by name, and the reasons for those that are absent."""
    own = Path(sys.executable)
    options = Options(image)
    found = {OURS: Installed("paddock", own, options), ENGINE: Installed("docker", own, options)}
    try:
        python = environment.python()
        theirs = Options(environment.image(image, python))
    except environment.PeersError as error:
        return found, {SWE_REX: str(error), LLM_SANDBOX: str(error)}
    found[SWE_REX] = Installed("swe-rex", python, theirs)
    found[LLM_SANDBOX] = Installed("llm-sandbox", python, theirs)
    return found, {}


@asynccontextmanager
async def running(installed: Mapping[str, Installed]) -> AsyncIterator[list[Contender]]:
    """The contenders' processes, which remove their sandboxes at the end."""
    async with AsyncExitStack() as stack:
        yield [
            await stack.enter_async_context(contending(name, driver, python, options))
            for name, (driver, python, options) in installed.items()
        ]
