"""The agent that is mounted in every container: made once a version, and kept while it is used."""

import asyncio
import hashlib
import shutil
import tempfile
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import TypeVar

import sandbox_agent
from orchestrator.ground.errors import EngineUnavailableError
from orchestrator.ground.store.directories import sync_names
from orchestrator.ground.task_scope import TaskScope
from orchestrator.ground.threads import Threads
from orchestrator.host.engine.base import Engine, Image, MountedAgent, missing_image
from orchestrator.host.node.mounts import starts_programs
from orchestrator.settings.settings import ensure_state_dir
from sandbox_agent.decide.facilities import WITHOUT
from sandbox_agent.decide.mounted_agent import AGENT

_DIRECTORY = "agents"
_DRAFT = ".draft-"
_DRAFT_SECONDS = 3600
_SECONDS = 60.0
_KINDS = (".py", ".toml", ".conf", ".c", ".h", ".sh")
T = TypeVar("T")
# The container of a sandbox has the name of its agent's directory, so that it is kept.
LABEL_AGENT = "paddock.agent"


class MountedAgents:
    """Directories with an agent and an interpreter, below the state directory.

    The agent is the one that belongs to this control plane. The interpreter is that of the default
    image, which therefore is one of Paddock's. A directory is named by the digest of both.
    """

    def __init__(self, engine: Engine, state_dir: Path, image: str) -> None:
        """`image` is the default one."""
        self._engine = engine
        self._directory = state_dir / _DIRECTORY
        self._image = image
        self._current: Path | None = None
        self._making = asyncio.Lock()
        self._threads = Threads("the agents of sandboxes", 1)
        self._ahead = TaskScope("the making of the agent")

    def begin(self) -> None:
        """Makes the agent now, so that the first session need not wait for it."""
        self._ahead.spawn(self.directory())

    async def close(self) -> None:
        """Ends what `begin` began."""
        await self._ahead.close()

    async def directory(self) -> Path:
        """The current agent's directory, which is made if it is not there.

        A new default image counts from the next start on. Raises: EngineUnavailableError.
        """
        async with self._making:
            if self._current is None or not await self._call(self._current.exists):
                self._current = await self._made()
            return self._current

    def is_current(self, name: str) -> bool:
        """Whether the directory of that name is the current agent's."""
        return self._current is not None and self._current.name == name

    async def mounted(self, image: Image, hidden: tuple[str, ...] = ()) -> MountedAgent:
        """The current agent, in a container of an image of ours.

        `hidden` are volumes in whose place the container has something empty. Raises:
        EngineUnavailableError.
        """
        names = (item.partition("=")[0] for item in image.environment)
        unset = tuple(name for name in names if name and name != WITHOUT)
        return MountedAgent(str(await self.directory()), AGENT, unset, hidden)

    async def remove_unused(self) -> None:
        """Removes those that neither this control plane nor a container has any more.

        Raises: EngineUnavailableError.
        """
        found = await self._call(partial(_entries, self._directory))
        if not found:
            return
        kept = {each.labels.get(LABEL_AGENT) for each in await self._engine.list()}
        if self._current is not None:
            kept.add(self._current.name)
        elif (image := await self._engine.image(self._image)) is not None:
            kept.add(_name(image, await self._call(read_code)))
        for path in found:
            if path.name not in kept:
                await self._call(partial(shutil.rmtree, path, ignore_errors=True))

    async def _made(self) -> Path:
        """Raises: EngineUnavailableError."""
        image = await self._engine.image(self._image)
        if image is None:
            raise missing_image(self._image)
        code = await self._call(read_code)
        path = self._directory / _name(image, code)
        if not await self._call(path.exists):
            await self._make(image.id, code, path)
        return path

    async def _call(self, work: Callable[[], T]) -> T:
        """Raises: EngineUnavailableError if the disk does not answer, and the errors of `work`."""
        try:
            return await self._threads.call(work, _SECONDS)
        except TimeoutError:
            raise EngineUnavailableError(
                f"the disk of {self._directory} did not answer within {_SECONDS:g} s"
            ) from None

    async def _make(self, image_id: str, code: Mapping[str, bytes], path: Path) -> None:
        """Fills another directory and renames it; a process may do the same at the same time."""
        try:
            draft = await self._call(partial(_draft, self._directory))
            try:
                await self._engine.make_agent(image_id, str(draft), code)
                await self._call(partial(_rename, draft, path))
            finally:
                await self._call(partial(shutil.rmtree, draft, ignore_errors=True))
        except OSError as error:
            raise EngineUnavailableError(
                f"the agent could not be made in {self._directory}: {error.strerror}"
            ) from error


def read_code() -> dict[str, bytes]:
    """The agent's files by their names, which begin with the package's. Raises: OSError."""
    top = Path(sandbox_agent.__file__).parent
    found = (path for path in sorted(top.rglob("*")) if path.suffix in _KINDS)
    return {path.relative_to(top.parent).as_posix(): path.read_bytes() for path in found}


def _name(image: Image, code: Mapping[str, bytes]) -> str:
    digest = hashlib.sha256(image.id.encode())
    for name, content in sorted(code.items()):
        for part in (name.encode(), content):
            digest.update(len(part).to_bytes(8, "big") + part)
    return digest.hexdigest()[:16]


def _draft(directory: Path) -> Path:
    """Raises: EngineUnavailableError if nothing can be started from there; OSError."""
    ensure_state_dir(directory.parent)
    directory.mkdir(mode=0o700, exist_ok=True)
    if not starts_programs(directory):
        raise EngineUnavailableError(
            f"{directory} is on a file system that is mounted noexec, and sandboxes start their "
            "agent from there: mount it with exec, or set PADDOCK_STATE_DIR"
        )
    return Path(tempfile.mkdtemp(prefix=_DRAFT, dir=directory))


def _rename(draft: Path, path: Path) -> None:
    """Another process may have made the same. Raises: OSError."""
    try:
        draft.rename(path)
    except OSError:
        if not path.exists():
            raise
    sync_names(path.parent)


def _entries(directory: Path) -> list[Path]:
    """The directories, and drafts that no command is just filling."""
    try:
        return [path for path in directory.iterdir() if not _is_recent_draft(path)]
    except FileNotFoundError:
        return []


def _is_recent_draft(path: Path) -> bool:
    try:
        age = time.time() - path.stat().st_mtime
    except OSError:  # it has just been renamed
        return True
    return path.name.startswith(_DRAFT) and age < _DRAFT_SECONDS
