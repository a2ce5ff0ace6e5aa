"""The children of one session: started, interrupted, and waited for."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from secrets import token_hex
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

from paddock.app.agent import MOST_DEPTH, SpawnDepthError, SpawnError, SpawnRequest
from paddock.app.execution import AppEvent, AppResult, Execution, Kind
from paddock.app.messages import Input, TokenUsage, ToolCall
from paddock.app.state import Conversation

_MOST_SPAWNS = 100


class _Child(Protocol):
    """What a parent does with a session that it spawned."""

    @property
    def id(self) -> str: ...
    @property
    def queued_messages(self) -> tuple[str, ...]: ...
    def queue(self, messages: Input) -> None: ...
    def render(self) -> Execution: ...
    def stop(self, reason: str) -> None: ...


C = TypeVar("C", bound=_Child)


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a child comes from, and what the run that spawned it is told.

    `run` is the parent's that was going on; None if none was. `remove` takes the child from its
    parent.
    """

    run: Execution | None
    request: SpawnRequest
    remove: Callable[[str], None]
    spawn_id: str = field(default_factory=lambda: token_hex(8))

    def begun(self, child_id: str) -> None:
        """Tells the parent's run, before all events of the child."""
        self._tell("spawn_start", child_id)

    def forward(self, event: AppEvent) -> None:
        """Adds an event of the child's run to the parent's."""
        if self.run is not None:
            self.run.forward(replace(event, spawn_path=(self.spawn_id, *event.spawn_path)))

    def ended(
        self,
        child_id: str,
        usage: TokenUsage,
        result: AppResult | None,
        error: BaseException | None,
    ) -> None:
        """Removes the child from its parent, and tells the run after all its events."""
        self.remove(child_id)
        wrong = result.reason if result else str(error) or type(error).__name__
        self._tell(
            "spawn_end",
            child_id,
            text=result.text if result else "",
            is_error=result is None or result.status == "aborted",
            error=wrong,
            tokens_used=usage.input_tokens + usage.output_tokens,
        )

    def _tell(self, kind: Kind, child_id: str, **data: Any) -> None:
        if self.run is None:
            return
        call, label = self.request.call, self.request.label
        named = {"spawn_id": self.spawn_id, "child_session_id": child_id, "label": label}
        self.run.tell(AppEvent(kind, {**named, "call_id": call.id if call else None, **data}))


class _Live(NamedTuple, Generic[C]):
    session: C
    run: Execution | None
    call: ToolCall | None


class Children(Generic[C]):
    """Holds children from their start until their run and their sandbox have ended.

    Args:
        conversation, depth: of the parent.
        make: makes a child that has not begun. Raises: ValueError.
        touch: tells that the parent is used. Raises: SessionClosedError.
    """

    def __init__(
        self,
        conversation: Conversation,
        depth: int,
        make: Callable[[Origin], C],
        touch: Callable[[], None],
    ) -> None:
        self._conversation = conversation
        self._depth = depth
        self._make = make
        self._touch = touch
        self._live: dict[str, _Live[C]] = {}
        self._removed = asyncio.Event()

    @property
    def live(self) -> tuple[C, ...]:
        """The children that run, in the order of their start."""
        return tuple(each.session for each in self._live.values())

    def start(self, request: SpawnRequest) -> Execution:
        """Starts a child. Raises: as `Spawn`."""
        self._touch()
        run = self._conversation.run
        if run is not None and self._conversation.is_aborted:
            raise SpawnError("the run is interrupted")
        _check_spawn(self._depth, run.top.spawned if run else 0)
        origin = Origin(run, request, self._remove)
        child = self._make(origin)
        child.queue(request.input)
        if not child.queued_messages:
            raise ValueError("a child needs a message")
        if run is not None:
            run.top.spawned += 1
        self._live[child.id] = _Live(child, run, request.call)
        started = child.render()
        origin.begun(child.id)
        return started

    def _remove(self, child_id: str) -> None:
        """Removes a child that has ended; its parent counts as used until now."""
        self._live.pop(child_id, None)
        self._removed.set()
        self._removed = asyncio.Event()
        if not self._conversation.is_closed:
            self._touch()

    def stop(self, reason: str) -> None:
        """Interrupts all of them."""
        for child in self.live:
            child.stop(reason)

    def stop_those_of(self, call: ToolCall) -> None:
        """Interrupts the children that a call has spawned: its time is over."""
        for child in tuple(self._live.values()):
            if child.call is call:  # models repeat the ids of calls
                child.session.stop("The call ran out of time")

    async def ended(self, run: Execution | None = None) -> None:
        """Waits until no child runs, or none that this run has spawned."""
        while any(run in (None, child.run) for child in self._live.values()):
            await self._removed.wait()


def _check_spawn(depth: int, spawned: int) -> None:
    """Checks whether a session may spawn; `spawned` counts the spawns of its whole tree of runs.

    Raises: SpawnDepthError, SpawnError.
    """
    if depth >= MOST_DEPTH:
        raise SpawnDepthError
    if spawned >= _MOST_SPAWNS:
        raise SpawnError(f"a run and its children may spawn {_MOST_SPAWNS} children in all")
