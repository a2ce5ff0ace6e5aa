"""Names that a key gives to its volumes and snapshots: each is one thing in the whole cluster.

A node takes a name before it makes what has it, and frees it with the event that removes it. What a
node makes for itself, such as the snapshots of the operator's templates, each node has.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from orchestrator.ground.store.effect import Effect

# How the names of such owners begin, as no key's does.
_OF_EACH_NODE = "system:"


class NamedKind(StrEnum):
    """What has a name."""

    VOLUME = "volume"
    SNAPSHOT = "snapshot"


@dataclass(frozen=True, slots=True)
class TakenName:
    """A name of that owner; `id` is that of what has it, which is like no other."""

    kind: NamedKind
    owner: str
    name: str
    id: str

    @property
    def is_of_key(self) -> bool:
        """Whether a key has it; else each node may have one of that name."""
        return not self.owner.startswith(_OF_EACH_NODE)


class NameClaims(Protocol):
    """Who has which name. As for `Places`, an `Effect` reaches the cluster after its commit."""

    async def take(self, name: TakenName) -> None:
        """Takes the name for this node; again for the same thing, it is its own already.

        Raises: ConflictError with the node that has it; ClusterUnavailableError if the cluster
        can't be asked, or has given this node up. Then it may have been taken all the same.
        """

    def freed(self, thing_id: str) -> Effect | None:
        """Frees the name of what is removed, or was never made; it may not have been taken."""

    async def mine(self) -> frozenset[str] | None:
        """The ids of what has a name on this node; None: there is no cluster.

        Raises: ClusterUnavailableError.
        """


class OwnNames:
    """One machine: the tables of its own database keep names apart."""

    async def take(self, name: TakenName) -> None:
        """Nobody else has it."""

    def freed(self, thing_id: str) -> Effect | None:
        """Nobody is told."""
        return None

    async def mine(self) -> None:
        """None: there is no cluster."""
