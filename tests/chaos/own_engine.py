"""An engine of the run's own, which can be killed without harm to anything else on the host."""

import asyncio
import os
import shutil
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing, suppress
from pathlib import Path

import docker
import psutil

from orchestrator.host.workspace.mounts import mounts_under, unmount
from tests.support.host_processes import host_processes
from tests.support.until import until

_START_SECONDS = 60


class OwnEngine:
    """A Docker engine with data, sockets and containers in one directory, and its own networks."""

    def __init__(self, directory: Path, *, live_restore: bool = True) -> None:
        """With `live_restore`, containers go on while it is not there."""
        self._directory = directory
        self._live_restore = live_restore
        self._containerd: asyncio.subprocess.Process | None = None
        self._process: asyncio.subprocess.Process | None = None

    @property
    def url(self) -> str:
        """Where clients reach it."""
        return f"unix://{self._directory / 'docker.sock'}"

    async def start(self) -> None:
        """Starts it, and returns when it answers."""
        directory, name = self._directory, self._namespace
        if self._containerd is None:
            config = directory / "containerd.toml"
            config.write_text('version = 2\ndisabled_plugins = ["io.containerd.grpc.v1.cri"]\n')
            # In a network namespace of its own, because two engines would change the same bridge
            # and the same rules. Its containers and later engines have the same one.
            self._containerd = await self._run(
                *(
                    "unshare",
                    "--net",
                    "--",
                    "containerd",
                    "--config",
                    str(config),
                    "--address",
                    self._socket,
                ),
                *("--root", str(directory / "root"), "--state", str(directory / "state")),
            )
            await until(Path(self._socket).exists)
        self._process = await self._run(
            *("nsenter", f"--net=/proc/{self._containerd.pid}/ns/net"),
            *("--", "dockerd", "--host", self.url),
            *(["--live-restore"] if self._live_restore else []),
            *("--containerd", self._socket),
            *("--data-root", str(directory / "data"), "--exec-root", str(directory / "exec")),
            *("--pidfile", str(directory / "pid")),
            *("--containerd-namespace", name, "--containerd-plugins-namespace", f"{name}-p"),
        )
        async with asyncio.timeout(_START_SECONDS):
            while not await asyncio.to_thread(self._answers):  # noqa: ASYNC110 - it tells nobody
                await asyncio.sleep(0.1)

    @property
    def _namespace(self) -> str:
        """Its containers' in its containerd: letters and digits, unlike a directory's name."""
        return self._directory.parent.name.encode().hex()

    @property
    def _socket(self) -> str:
        return str(self._directory / "containerd.sock")

    async def _run(self, *words: str) -> asyncio.subprocess.Process:
        with (self._directory / "log").open("ab") as log:
            return await asyncio.create_subprocess_exec(*words, stdout=log, stderr=log)

    def _answers(self) -> bool:
        try:
            with closing(docker.APIClient(self.url, version="auto")) as client:
                return bool(client.ping())
        except docker.errors.DockerException:
            return False

    async def kill(self) -> None:
        """Without a chance to react."""
        await self._end(signal.SIGKILL)

    async def stop(self) -> None:
        """As an upgrade stops it."""
        await self._end(signal.SIGTERM)

    async def _end(self, number: int) -> None:
        assert self._process is not None
        self._process.send_signal(number)
        await self._process.wait()
        (self._directory / "pid").unlink(missing_ok=True)

    async def close(self) -> None:
        """Ends it with all its containers and its containerd, and removes the directory."""
        with closing(docker.APIClient(self.url, version="auto")) as client:
            for container in client.containers(all=True):
                await asyncio.to_thread(client.remove_container, container["Id"], force=True)
        await self._end(signal.SIGTERM)
        assert self._containerd is not None
        self._containerd.terminate()
        await self._containerd.wait()
        self._kill_left_over()
        for point in reversed(mounts_under(str(self._directory))):
            unmount(point)
        shutil.rmtree(self._directory)

    def _kill_left_over(self) -> None:
        """An engine that is killed while it starts a container forgets it, and it runs on."""
        for shim in host_processes():
            with suppress(psutil.NoSuchProcess):
                words = shim.cmdline()
                if "-namespace" in words and self._namespace in words:
                    for process in (*shim.children(recursive=True), shim):
                        process.kill()

    async def load(self, image: str) -> None:
        """Copies an image from the host's engine."""
        await asyncio.to_thread(self._load, image)

    def _load(self, image: str) -> None:
        with (
            closing(docker.APIClient(version="auto")) as host,
            closing(docker.APIClient(self.url, version="auto")) as own,
        ):
            own.load_image(host.get_image(image))  # type: ignore[no-untyped-call]


@asynccontextmanager
async def own_engine(
    directory: Path, image: str, *, live_restore: bool = True
) -> AsyncIterator[OwnEngine]:
    """A running engine with that image; clients of this process use it by default."""
    directory.mkdir()
    engine = OwnEngine(directory, live_restore=live_restore)
    before = os.environ.get("DOCKER_HOST")
    await engine.start()
    try:
        await engine.load(image)
        os.environ["DOCKER_HOST"] = engine.url
        yield engine
    finally:
        if before is None:
            os.environ.pop("DOCKER_HOST", None)
        else:
            os.environ["DOCKER_HOST"] = before
        await engine.close()
