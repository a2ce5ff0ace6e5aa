"""Children of a session in which a model runs; they end with their run."""

from collections.abc import AsyncGenerator, Mapping
from typing import Any, TypedDict, Unpack

from paddock.client.answers import read
from paddock.client.faces import F, Face, method, stream
from paddock.client.requests import check_terms, given
from paddock.client.run_events import SpawnEvent, spawn_event
from paddock.client.run_terms import user_messages
from paddock.client.streams import answered
from paddock.contract.runs import SpawnEnd
from paddock.contract.spawns import SpawnedRun

# As long as its model and its commands take; the budgets of both sessions end it.
_LONGEST_SECONDS = 3600.0


class ChildTerms(TypedDict, total=False):
    """The arguments of a child. None, or none at all, means the default.

    label: your name for it.
    workspace: `own` for a new one, `read-only` for its parent's; None: `own`.
    permission_level: not above its parent's; None: its parent's.
    budget: limits, at most what its parent has left; they are reserved. A kind that only the
        parent limits: half of what is left.
    policy: one that permits no more than its parent's; None: its parent's.
    idle_timeout: seconds; None: its parent's.
    """

    label: str | None
    workspace: str | None
    permission_level: str | None
    budget: Mapping[str, int | float] | None
    policy: str | Mapping[str, Any] | None
    idle_timeout: int | None


class ChildRunTerms(ChildTerms, total=False):
    """The arguments of a child and of its run; `RunTerms` describes the last three."""

    model: str | None
    system: str | None
    max_ticks: int | None


class SessionSpawning(Face[F]):
    """The part of a session that has a model work in a child. It needs a key."""

    _path: str

    @method
    async def spawn_run(self, *messages: str, **terms: Unpack[ChildRunTerms]) -> SpawnedRun:
        """Runs a model with these messages in a child, and returns its result.

        The child has ended then, and a workspace of its own is gone. What fails in it is its
        result, not an error. Arguments and errors are those of `spawn` and `send`.
        """
        body = user_messages(messages) | _members(terms)
        url = f"{self._path}/spawn"
        answer = await self._api.json("POST", url, body=body, timeout=_LONGEST_SECONDS)
        return read(SpawnedRun, answer)

    @stream
    def spawn_stream(
        self, *messages: str, **terms: Unpack[ChildRunTerms]
    ) -> AsyncGenerator[SpawnEvent, None]:
        """Like `spawn_run`, but yields what happens: `SpawnStart` first, and `SpawnEnd` last.

        Between them are events as `send_stream` has them; their `spawn_path` leads to the child.
        """
        body = user_messages(messages) | _members(terms)
        missing = "the stream of the child's run ends too soon"
        return answered(self._api, f"{self._path}/spawn", body, spawn_event, _is_last, missing)


def _is_last(event: SpawnEvent) -> bool:
    return isinstance(event, SpawnEnd) and not event.spawn_path


def _members(terms: ChildRunTerms) -> dict[str, Any]:
    """The members of a request with these terms. Raises: TypeError for an unknown one."""
    check_terms("child", terms, ChildRunTerms)
    return given(**terms)
