"""The copies of the agent that are mounted in containers of images that have none."""

import asyncio
import shutil
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TypeVar

from orchestrator.ground.errors import EngineUnavailableError
from orchestrator.ground.store.directories import sync_names
from orchestrator.ground.threads import Threads
from orchestrator.host.engine.base import Engine, Image, missing_image
from orchestrator.settings.settings import ensure_state_dir

_DIRECTORY = "agents"
_DRAFT = ".draft-"
_DRAFT_SECONDS = 3600
_SECONDS = 60.0
T = TypeVar("T")
# The container of a sandbox with such a copy has its name, so that it is kept.
LABEL_AGENT = "paddock.agent"


class MountedAgents:
    """Copies of the default image's agent, by that image's id; one is made when first needed."""

    def __init__(self, engine: Engine, state_dir: Path, image: str) -> None:
        """`image` is the default one, which has an agent of ours."""
        self._engine = engine
        self._directory = state_dir / _DIRECTORY
        self._image = image
        self._making = asyncio.Lock()
        self._threads = Threads("copies of the agent", 1)

    async def directory(self) -> Path:
        """The copy that belongs to the default image as the engine has it now.

        Raises: EngineUnavailableError.
        """
        image = await self._engine.image(self._image)
        if image is None:
            raise missing_image(self._image)
        path = self._place(image)
        async with self._making:
            if not await self._call(path.exists):
                await self._make(image.id, path)
        return path

    async def remove_unused(self) -> None:
        """Removes copies that neither a container nor the default image has any more.

        Raises: EngineUnavailableError.
        """
        found = await self._call(partial(_entries, self._directory))
        if not found:
            return
        image = await self._engine.image(self._image)
        kept = {each.labels.get(LABEL_AGENT) for each in await self._engine.list()}
        if image is not None:
            kept.add(self._place(image).name)
        for path in found:
            if path.name not in kept:
                await self._call(partial(shutil.rmtree, path, ignore_errors=True))

    def _place(self, image: Image) -> Path:
        return self._directory / image.id.removeprefix("sha256:")[:16]

    async def _call(self, work: Callable[[], T]) -> T:
        """Raises: EngineUnavailableError if the disk does not answer, and the errors of `work`."""
        try:
            return await self._threads.call(work, _SECONDS)
        except TimeoutError:
            raise EngineUnavailableError(
                f"the disk of {self._directory} did not answer within {_SECONDS:g} s"
            ) from None

    async def _make(self, image_id: str, path: Path) -> None:
        """Fills another directory and renames it; a process may do the same at the same time."""
        try:
            draft = await self._call(partial(_draft, self._directory))
            try:
                await self._engine.copy_agent(image_id, str(draft))
                await self._call(partial(_name, draft, path))
            finally:
                await self._call(partial(shutil.rmtree, draft, ignore_errors=True))
        except OSError as error:
            raise EngineUnavailableError(
                f"the agent could not be copied to {self._directory}: {error.strerror}"
            ) from error


def _draft(directory: Path) -> Path:
    ensure_state_dir(directory.parent)
    directory.mkdir(mode=0o700, exist_ok=True)
    return Path(tempfile.mkdtemp(prefix=_DRAFT, dir=directory))


def _name(draft: Path, path: Path) -> None:
    """Another process may have made the same. Raises: OSError."""
    try:
        draft.rename(path)
    except OSError:
        if not path.exists():
            raise
    sync_names(path.parent)


def _entries(directory: Path) -> list[Path]:
    """The copies, and drafts that no command is just filling."""
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
