"""The children of one session: started, interrupted, and waited for."""

import asyncio
from typing import TYPE_CHECKING, NamedTuple

from paddock.app.execution import Execution
from paddock.app.messages import ToolCall
from paddock.app.origin import Origin
from paddock.app.spawning import SpawnError, SpawnRequest, check_spawn

if TYPE_CHECKING:
    from paddock.app.session import AppSession


class _Child(NamedTuple):
    session: "AppSession"
    run: Execution | None
    call: ToolCall | None


class Children:
    """Holds children from their start until their run and their sandbox have ended."""

    def __init__(self, parent: "AppSession") -> None:
        self._parent = parent
        self._live: dict[str, _Child] = {}
        self._removed = asyncio.Event()

    @property
    def live(self) -> tuple["AppSession", ...]:
        """In the order of their start."""
        return tuple(each.session for each in self._live.values())

    def start(self, request: SpawnRequest) -> Execution:
        """Starts a child. Raises: as `Spawn`."""
        self._parent.touch()
        run = self._parent.current_run
        if run is not None and self._parent.is_aborted:
            raise SpawnError("the run is interrupted")
        check_spawn(self._parent.depth, run.top.spawned if run else 0)
        origin = Origin(self._parent, run, request)
        child = self._parent.child(origin)
        child.queue(request.input)
        if not child.queued_messages:
            raise ValueError("a child needs a message")
        if run is not None:
            run.top.spawned += 1
        self._live[child.id] = _Child(child, run, request.call)
        started = child.render()
        origin.begun(child)
        return started

    def remove(self, child: "AppSession") -> None:
        """A child has ended; its parent was used until now."""
        self._live.pop(child.id, None)
        self._removed.set()
        self._removed = asyncio.Event()
        if self._parent.status != "closed":
            self._parent.touch()

    def stop(self, reason: str) -> None:
        """Interrupts all of them."""
        for child in self.live:
            child.stop(reason)

    def stop_those_of(self, call: ToolCall) -> None:
        """Interrupts what a call has spawned whose time is over."""
        for child in tuple(self._live.values()):
            if child.call is call:  # models repeat the ids of calls
                child.session.stop("The call ran out of time")

    async def ended(self, run: Execution | None = None) -> None:
        """Waits until there is none, or none that this run has spawned."""
        while any(run in (None, child.run) for child in self._live.values()):
            await self._removed.wait()
