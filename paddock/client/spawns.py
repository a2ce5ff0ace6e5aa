"""Children of a session in which a model runs; they end with their run."""

from collections.abc import AsyncGenerator, Mapping, Sequence
from typing import Any

from paddock.client.answers import read
from paddock.client.errors import ConnectionLostError, api_error
from paddock.client.faces import F, Face, method, stream
from paddock.client.requests import given
from paddock.client.run_events import SpawnEvent, spawn_event
from paddock.contract.runs import SpawnEnd
from paddock.contract.spawns import SPAWN_EVENTS, SpawnedRun

# As long as its model and its commands take; the budgets of both sessions end it.
_LONGEST_SECONDS = 3600.0


class SessionSpawning(Face[F]):
    """The part of a session that has a model work in a child. It needs a key."""

    _path: str

    @method
    async def spawn_run(
        self,
        *messages: str,
        label: str | None = None,
        workspace: str | None = None,
        permission_level: str | None = None,
        budget: Mapping[str, int | float] | None = None,
        policy: str | Mapping[str, Any] | None = None,
        idle_timeout: int | None = None,
        model: str | None = None,
        system: str | None = None,
        max_ticks: int | None = None,
    ) -> SpawnedRun:
        """Runs a model with these messages in a child, and returns its result.

        The child has ended then, and a workspace of its own is gone. What fails in it is its
        result, not an error. Arguments and errors are those of `spawn` and `send`.
        """
        body = spawn_body(label, workspace, permission_level, budget, policy, idle_timeout)
        body |= _run(messages, model, system, max_ticks)
        url = f"{self._path}/spawn"
        answer = await self._api.json("POST", url, body=body, timeout=_LONGEST_SECONDS)
        return read(SpawnedRun, answer)

    @stream
    async def spawn_stream(
        self,
        *messages: str,
        label: str | None = None,
        workspace: str | None = None,
        permission_level: str | None = None,
        budget: Mapping[str, int | float] | None = None,
        policy: str | Mapping[str, Any] | None = None,
        idle_timeout: int | None = None,
        model: str | None = None,
        system: str | None = None,
        max_ticks: int | None = None,
    ) -> AsyncGenerator[SpawnEvent, None]:
        """Like `spawn_run`, but yields what happens: `SpawnStart` first, and `SpawnEnd` last.

        Between them are events as `send_stream` has them; their `spawn_path` leads to the child.
        """
        body = spawn_body(label, workspace, permission_level, budget, policy, idle_timeout)
        body |= _run(messages, model, system, max_ticks)
        ended = False
        async with self._api.events("POST", f"{self._path}/spawn", body=body) as events:
            async for event in events:
                if event.name == "error":
                    raise api_error(event.data.get("status") or 500, event.data)
                kind = SPAWN_EVENTS.get(event.name)
                if kind is not None:
                    told = spawn_event(kind, event.data)
                    ended = isinstance(told, SpawnEnd) and not told.spawn_path
                    yield told
        if not ended:
            raise ConnectionLostError("the stream of the child's run ends too soon")


def spawn_body(
    label: str | None,
    workspace: str | None,
    permission_level: str | None,
    budget: Mapping[str, int | float] | None,
    policy: str | Mapping[str, Any] | None,
    idle_timeout: int | None,
) -> dict[str, Any]:
    """The members of a child that are given."""
    return given(
        label=label,
        workspace=workspace,
        permission_level=permission_level,
        budget=budget,
        policy=policy,
        idle_timeout=idle_timeout,
    )


def _run(
    messages: Sequence[str], model: str | None, system: str | None, max_ticks: int | None
) -> dict[str, Any]:
    texts = [{"role": "user", "content": text} for text in messages]
    return {"messages": texts, **given(model=model, system=system, max_ticks=max_ticks)}
