"""Opens the host's floor: the engine, the users of workspaces, and this host."""

import re
import secrets
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path

from orchestrator.ground.config_error import ConfigError
from orchestrator.ground.open import GroundFloor
from orchestrator.ground.store import directories
from orchestrator.host.engine.base import Engine
from orchestrator.host.engine.docker import DockerEngine
from orchestrator.host.engine.measured import measured
from orchestrator.host.engine.runtimes import Runtimes
from orchestrator.host.node.base import Node
from orchestrator.host.node.local_node import LocalNode
from orchestrator.host.workspace import slots
from orchestrator.host.workspace.uid_range import UidRange
from orchestrator.host.workspace.uid_range import claim as claim_uids
from orchestrator.settings.settings import Settings

_INSTANCE = re.compile(r"[0-9a-f]{8}")


@dataclass(frozen=True, slots=True)
class HostFloor:
    """The host's parts. `instance` is this state directory's own id, which marks its containers."""

    instance: str
    uids: UidRange
    engine: Engine
    runtimes: Runtimes
    node: Node


async def open_host(
    settings: Settings, ground: GroundFloor, engine: Engine | None, closers: AsyncExitStack
) -> HostFloor:
    """Opens the engine and this host; `engine` None: that of the settings.

    Raises: ConfigError, StorageError, EngineUnavailableError.
    """
    instance = _instance(settings.state_dir / "instance")
    uids = claim_uids(
        settings.uid_base,
        settings.uid_count,
        instance,
        await ground.database.read(slots.uids),
    )
    closers.callback(uids.close)
    engine = engine or DockerEngine(
        instance,
        host=settings.docker_host,
        timeout=settings.engine_timeout,
        threads=settings.engine_threads,
        resolvers=settings.resolvers,
    )
    engine = measured(engine, ground.metrics)
    closers.push_async_callback(engine.close)
    node = await LocalNode.open(settings, engine)
    closers.push_async_callback(node.close)
    return HostFloor(instance, uids, engine, await _runtimes(settings, engine), node)


async def _runtimes(settings: Settings, engine: Engine) -> Runtimes:
    """Those of the engine, unless it does not answer. Raises: ConfigError."""
    runtimes = Runtimes(settings.runtime, engine)
    await runtimes.ask()  # if it does not answer, sessions and checks give the reason
    refused = runtimes.refused(settings.runtime)
    if refused is not None:
        raise ConfigError(f"PADDOCK_RUNTIME: {refused}")
    return runtimes


def _instance(path: Path) -> str:
    """This state directory's own id, created at first use: it marks our containers."""
    try:
        text = path.read_text(encoding="ascii").strip()
    except FileNotFoundError:
        text = secrets.token_hex(4)
        directories.write_file(path, f"{text}\n".encode())
    if not _INSTANCE.fullmatch(text):
        raise ConfigError(f"{path}: must hold 8 hex digits")
    return text
