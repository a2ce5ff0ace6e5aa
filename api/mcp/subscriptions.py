"""What a client wants to be told of when it changes: resources by their URIs."""

import asyncio
from collections.abc import Iterable

from api.mcp.messages import RESOURCE_UPDATED, notice
from orchestrator.ground.errors import BusyError
from paddock.contract.mcp import McpReply

SESSION_URI = "paddock://session"
BUDGET_URI = "paddock://budget"
AUDIT_URI = "paddock://audit"

MOST_SUBSCRIPTIONS = 32


class Subscriptions:
    """The subscriptions of one conversation; those of files have a task that watches the file."""

    def __init__(self) -> None:
        self._found: dict[str, asyncio.Task[None] | None] = {}

    def __contains__(self, uri: str) -> bool:
        """Whether the client has subscribed to it."""
        return uri in self._found

    def check_room(self) -> None:
        """Raises BusyError if there are too many."""
        if len(self._found) >= MOST_SUBSCRIPTIONS:
            raise BusyError(f"a conversation has at most {MOST_SUBSCRIPTIONS} subscriptions")

    def add(self, uri: str, watching: asyncio.Task[None] | None = None) -> None:
        """Adds one. `watching` ends if it is there. Raises: BusyError if there are too many."""
        full = len(self._found) >= MOST_SUBSCRIPTIONS
        if watching is not None:
            if uri in self._found or full:
                watching.cancel()
            else:
                watching.add_done_callback(lambda done: self._over(uri, done))
        if uri not in self._found:
            self.check_room()
            self._found[uri] = watching

    def remove(self, uri: str) -> None:
        """Removes one, if it is there."""
        watching = self._found.pop(uri, None)
        if watching is not None:
            watching.cancel()

    def changed_by(self, operations: Iterable[str]) -> list[str]:
        """The resources that are other ones after these events: each event costs, and is listed."""
        names = list(operations)
        changed = [BUDGET_URI, AUDIT_URI] if names else []
        if any(each.startswith("session.") for each in names):
            changed.append(SESSION_URI)
        return [uri for uri in changed if uri in self._found]

    def _over(self, uri: str, watching: asyncio.Task[None]) -> None:
        """The file is not watched any more: the client may subscribe again."""
        if self._found.get(uri) is watching:
            del self._found[uri]

    def close(self) -> None:
        """Removes all."""
        for uri in list(self._found):
            self.remove(uri)


def updated(uri: str) -> McpReply:
    """The notification that a resource has changed."""
    return notice(RESOURCE_UPDATED, {"uri": uri})
