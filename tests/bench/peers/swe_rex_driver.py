"""SWE-ReX on Docker: its server runs in the container, its client here."""

from pathlib import Path

from swerex.deployment.docker import DockerDeployment
from swerex.runtime.abstract import (
    BashAction,
    Command,
    CreateBashSessionRequest,
    ReadFileRequest,
    UploadRequest,
)

from tests.bench.peers.driver import ANSWER, LINE, Options, UnsupportedError, require

_FILE, _TREE = "/tmp/sent/file", "/tmp/sent/tree"
_PROMPT = ">>> "


class SweRexSandbox:
    """A deployment: a container and the server in it."""

    def __init__(self, deployment: DockerDeployment) -> None:
        self._deployment = deployment
        self._runtime = deployment.runtime
        self._interactive = False
        self.container: str = deployment.container_name

    async def run(self, program: str) -> None:
        """`execute`."""
        status = (await self._runtime.execute(Command(command=[program]))).exit_code
        require(status == 0, f"{program} ended with {status}")

    async def line(self) -> None:
        """Python in a bash session, which waits for its prompt."""
        if not self._interactive:
            await self._runtime.create_session(CreateBashSessionRequest(startup_timeout=10))
            await self._say("python3 -I -S -q")
            self._interactive = True
        require(ANSWER in await self._say(LINE), "the line's answer")

    async def send_file(self, local: Path) -> None:
        """`upload`."""
        await self._upload(local, _FILE)

    async def fetch_file(self, local: Path) -> None:
        """`read_file`, which answers with text only."""
        read = await self._runtime.read_file(ReadFileRequest(path=_FILE, encoding="latin-1"))
        local.write_text(read.content, encoding="latin-1", newline="")

    async def send_tree(self, local: Path) -> None:
        """`upload`, which packs a zip archive."""
        await self._upload(local, _TREE)

    async def fetch_tree(self, local: Path) -> None:
        """There is no such call."""
        raise UnsupportedError

    async def close(self) -> None:
        """Stops the deployment."""
        await self._deployment.stop()

    async def _upload(self, local: Path, target: str) -> None:
        await self._runtime.upload(UploadRequest(source_path=str(local), target_path=target))

    async def _say(self, text: str) -> str:
        action = BashAction(
            command=text, is_interactive_command=True, expect=[_PROMPT], check="ignore", timeout=10
        )
        return str((await self._runtime.run_in_session(action)).output)


class SweRexDriver:
    """Deployments of one image."""

    def __init__(self, options: Options) -> None:
        self._image = options.image

    async def create(self) -> SweRexSandbox:
        """Starts a deployment."""
        deployment = DockerDeployment(image=self._image, pull="never")
        await deployment.start()
        return SweRexSandbox(deployment)

    async def close(self) -> None:
        """Each deployment has its own connections."""
