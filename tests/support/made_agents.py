"""The agent of sandboxes, made once for all control planes of a test process."""

import hashlib
import os
import secrets
import shutil
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from pathlib import Path

from orchestrator.ground.errors import EngineUnavailableError
from orchestrator.host.engine.docker import DockerEngine
from orchestrator.sandbox.images.mounted_agents import MountedAgents

Make = Callable[[DockerEngine, str, str, Mapping[str, bytes]], Awaitable[None]]


def linking(make: Make, kept: Path) -> Make:
    """A `make_agent` that keeps in `kept` what it made, and gives links to the same files later."""

    async def make_agent(
        engine: DockerEngine, image: str, target: str, code: Mapping[str, bytes]
    ) -> None:
        named = hashlib.sha256(repr((image, sorted(code.items()))).encode()).hexdigest()[:16]
        if not (kept / named).exists():
            await make(engine, image, target, code)
            draft = kept / f"{named}-{os.path.basename(target)}"
            shutil.copytree(target, draft, copy_function=_link)
            if not (kept / named).exists():
                draft.rename(kept / named)
        else:
            shutil.copytree(kept / named, target, copy_function=_link, dirs_exist_ok=True)

    return make_agent


async def give(state_dir: Path, image: str) -> None:
    """Gives a control plane of another process the agent that this process has made."""
    engine = DockerEngine(secrets.token_hex(4))
    try:
        with suppress(EngineUnavailableError):  # the control plane says why
            await MountedAgents(engine, state_dir, image).directory()
    finally:
        await engine.close()


def _link(source: str, target: str) -> None:
    """A state directory may be on another file system."""
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)
