"""Opens the ground floor: the state directory, the database, and what supervises and counts."""

import os
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path

from orchestrator.ground.clock_changes import ClockChanges
from orchestrator.ground.config_error import ConfigError
from orchestrator.ground.loop_lag import LoopLag
from orchestrator.ground.metrics import Metrics
from orchestrator.ground.store import directories
from orchestrator.ground.store.database import Database
from orchestrator.ground.store.scrubber import Scrubber
from orchestrator.ground.tasks import Tasks
from orchestrator.ground.threads import Aside

# In the state directory.
DATABASE_FILE = "paddock.db"


@dataclass(frozen=True, slots=True)
class GroundFloor:
    """What every floor may use. `scrub` removes deleted data from the database's files."""

    clock: ClockChanges
    lag: LoopLag
    metrics: Metrics
    tasks: Tasks
    aside: Aside
    database: Database
    scrub: Callable[[], None]


def lock(state_dir: Path, closers: AsyncExitStack) -> None:
    """Holds the state directory's lock until it is closed. Raises: ConfigError."""
    try:
        closers.callback(os.close, directories.lock(state_dir))
    except BlockingIOError:
        raise ConfigError(f"{state_dir}: another control plane uses this directory") from None
    except OSError as error:
        raise ConfigError(f"{state_dir}: {error.strerror}") from None


async def open_ground(state_dir: Path, lag: LoopLag, closers: AsyncExitStack) -> GroundFloor:
    """Opens the database of a locked state directory. Raises: StoreError."""
    clock = ClockChanges()
    clock.start()
    closers.callback(clock.close)
    metrics = Metrics()
    tasks = Tasks(metrics.task_restarted)
    database = await Database.open(state_dir / DATABASE_FILE)
    closers.push_async_callback(database.close)
    scrubber = Scrubber(database, tasks)
    closers.push_async_callback(scrubber.close)
    scrubber.start()
    return GroundFloor(clock, lag, metrics, tasks, Aside(), database, scrubber.want)
