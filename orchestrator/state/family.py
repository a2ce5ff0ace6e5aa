"""A session's place in the tree, how a child came to be, and how a spawn ended."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from typing import Any, Generic, NamedTuple, Protocol, Self, TypeVar

from orchestrator.ground.errors import BusyError, ConflictError
from orchestrator.state.budget import Budget
from paddock.contract.words import SpawnedWorkspace

# A session that a client has created has depth 0.
MAX_DEPTH = 10
# Children of one session that live, or are being created.
MAX_CHILDREN = 32


@dataclass(frozen=True, slots=True)
class Origin:
    """How a child came to be; it never changes.

    `workspace` is `own`, or `read-only` for its parent's. `runs`: it was spawned for one run, and
    ends with it; its own workspace is removed then.
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
    """How a spawn ended. `text` is the last text of a run's model; `error` says what failed."""

    text: str | None = None
    is_error: bool = False
    error: str | None = None


class Relative(Protocol):
    """What a family knows of a session."""

    key: str
    budget: Budget

    @property
    def family(self) -> "Family[Any]":
        """Its place in the tree."""


R = TypeVar("R", bound=Relative)


@dataclass(slots=True, eq=False)
class Family(Generic[R]):
    """One session's place in the tree.

    `parent` is None for a root, and for a child whose parent is not known any more. `children` are
    those that live, by their keys. `births` has a future for each child that is being created; it
    is done once the child lives or could not be created. `unended` are its spawns whose end is not
    on record, by their ids. `result` says how the run ended for which the session was spawned.
    """

    origin: Origin | None = None
    parent: R | None = None
    children: dict[str, R] = field(default_factory=dict)
    births: set[asyncio.Future[None]] = field(default_factory=set)
    unended: dict[str, OpenSpawn] = field(default_factory=dict)
    result: SpawnResult | None = None

    @property
    def depth(self) -> int:
        """How many sessions are above it."""
        return 0 if self.origin is None else self.origin.depth

    @property
    def parent_key(self) -> str | None:
        """The key of its parent, which may have ended long ago; None for a root."""
        return None if self.origin is None else self.origin.parent_key

    @property
    def shares(self) -> bool:
        """Whether it has no workspace of its own, but reads its parent's."""
        return self.origin is not None and self.origin.workspace != "own"

    @property
    def descendants(self) -> Iterator[R]:
        """The live sessions below it, parents before their children."""
        for child in list(self.children.values()):
            yield child
            yield from child.family.descendants

    def check_room(self) -> None:
        """Raises: ConflictError at the maximum depth; BusyError with the most children."""
        if self.depth >= MAX_DEPTH:
            raise ConflictError(f"Maximum spawn depth ({MAX_DEPTH}) exceeded")
        if len(self.children) + len(self.births) >= MAX_CHILDREN:
            raise BusyError(
                f"{MAX_CHILDREN} children of this session live already: wait for one of them to "
                "end, or close one"
            )

    @contextmanager
    def bearing(self) -> Iterator[None]:
        """Counts a child that is being created."""
        birth = asyncio.get_running_loop().create_future()
        self.births.add(birth)
        try:
            yield
        finally:
            self.births.discard(birth)
            birth.set_result(None)


def join(parent: R, child: R) -> None:
    """Makes the live session a child of the other one, which pays for it."""
    child.family.parent = parent
    parent.family.children[child.key] = child
    if not any(each is child.budget for each in parent.budget.children):
        parent.budget.children.append(child.budget)  # after a restart


def leave(child: Relative) -> None:
    """Takes a child that has ended from its parent; what it has not used is free again."""
    parent, child.family.parent = child.family.parent, None
    if parent is not None and parent.family.children.pop(child.key, None) is not None:
        parent.budget.settle(child.budget)
