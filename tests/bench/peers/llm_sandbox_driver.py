"""llm-sandbox on Docker, by its documented session object."""

import asyncio
from pathlib import Path

from llm_sandbox import SandboxSession

from tests.bench.peers.driver import ANSWER, LINE, Options, require

_FILE, _TREE = "/sandbox/file", "/sandbox/tree"


class LlmSandbox:
    """A session without a network, and without the set-up that needs one."""

    def __init__(self, image: str) -> None:
        self._session = SandboxSession(
            lang="python",
            image=image,
            skip_environment_setup=True,
            # Without an init, nothing reacts to the stop, and each removal takes 10 s.
            runtime_configs={"network_mode": "none", "init": True},
        )
        self._session.open()
        self.container: str = self._session.container.id

    async def run(self, program: str) -> None:
        """`execute_command`, which is a `docker exec`."""
        await asyncio.to_thread(self._execute, program)

    async def line(self) -> None:
        """`run`: a new interpreter for each; one that keeps its state needs packages from PyPI."""
        said = await asyncio.to_thread(self._session.run, f"print({LINE})")
        require(said.stdout.strip() == ANSWER, f"the line's answer: {said.stderr}")

    async def send_file(self, local: Path) -> None:
        """`copy_to_runtime`."""
        await asyncio.to_thread(self._session.copy_to_runtime, str(local), _FILE)

    async def fetch_file(self, local: Path) -> None:
        """`copy_from_runtime`."""
        await asyncio.to_thread(self._session.copy_from_runtime, _FILE, str(local))

    async def send_tree(self, local: Path) -> None:
        """`copy_to_runtime`."""
        await asyncio.to_thread(self._session.copy_to_runtime, str(local), _TREE)

    async def fetch_tree(self, local: Path) -> None:
        """`copy_from_runtime`."""
        await asyncio.to_thread(self._session.copy_from_runtime, _TREE, str(local))

    async def close(self) -> None:
        """Ends the session."""
        await asyncio.to_thread(self._session.close)

    def _execute(self, command: str) -> None:
        status = self._session.execute_command(command).exit_code
        require(status == 0, f"{command} ended with {status}")


class LlmSandboxDriver:
    """Sessions of one image."""

    def __init__(self, options: Options) -> None:
        self._image = options.image

    async def create(self) -> LlmSandbox:
        """Opens a session."""
        return await asyncio.to_thread(LlmSandbox, self._image)

    async def close(self) -> None:
        """Nothing is shared between sessions."""
