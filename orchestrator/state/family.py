"""How a child came to be, and how a spawn ended."""

from dataclasses import asdict, dataclass
from typing import Any, NamedTuple, Self

from paddock.contract.words import SpawnedWorkspace


@dataclass(frozen=True, slots=True)
class Origin:
    """How a child came to be; it never changes.

    `workspace` is `own`, or `read-only` for its parent's. `runs`: it was spawned for one run, ends
    with it, and its own workspace goes with it.
    """

    spawn_id: str
    parent_key: str
    parent_id: str
    depth: int
    label: str | None
    workspace: SpawnedWorkspace
    runs: bool

    def stored(self) -> dict[str, Any]:
        """What the store keeps."""
        return asdict(self)

    @classmethod
    def restored(cls, values: dict[str, Any] | None) -> Self | None:
        """The stored origin; None for a session that a client has created."""
        return None if values is None else cls(**values)


class OpenSpawn(NamedTuple):
    """A spawn whose end is not on record, and the id of its child."""

    origin: Origin
    child_id: str


@dataclass(frozen=True, slots=True)
class SpawnResult:
    """How a spawn ended. `text` is the last one of a run's model; `error` says what went wrong."""

    text: str | None = None
    is_error: bool = False
    error: str | None = None
