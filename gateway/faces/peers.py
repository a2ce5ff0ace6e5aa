"""The nodes that a gateway asks for its own answers, as seen from here."""

from collections.abc import Callable, Sequence
from typing import Protocol

from aiohttp import ClientSession

from orchestrator.ground.task_scope import InUse


class Peer(Protocol):
    """A node. `exchanges` are cut when its lease has ended."""

    exchanges: InUse

    @property
    def name(self) -> str:
        """Its name."""
        ...

    @property
    def url(self) -> str:
        """Where it is reached, without a slash at the end."""
        ...

    @property
    def alive(self) -> bool:
        """Whether its lease holds, as far as is known."""
        ...

    def http(self) -> ClientSession:
        """The connections to its API. Raises: NodeUnavailableError."""
        ...


# All nodes of the cluster as they are known now.
Peers = Callable[[], Sequence[Peer]]
# A caller's headers as nodes get them.
Headers = Sequence[tuple[str, str]]
