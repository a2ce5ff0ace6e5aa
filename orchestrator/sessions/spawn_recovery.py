"""After a restart: parents find their children, and what nobody waits for any more ends."""

import asyncio
from collections.abc import Mapping

from orchestrator.ground.store.database import Database
from orchestrator.sessions import spawn_rows
from orchestrator.sessions.sessions import Sessions
from orchestrator.state.family import SpawnResult, join
from orchestrator.state.session import Session

_LOST = "the control plane ended before the end of the spawn was recorded"


class SpawnRecovery:
    """Serves one start: `join` comes before the sessions are taken over, `finish` afterwards."""

    def __init__(self, database: Database, sessions: Sessions) -> None:
        self._database = database
        self._sessions = sessions
        self._live: dict[str, Session] = {}

    async def join(self, known: Mapping[str, Session]) -> None:
        """Gives the sessions, which have their keys, their children and what those have used."""
        self._live = {key: session for key, session in known.items() if session.live}
        spent, unended = await self._database.read(
            lambda connection: (
                {key: spawn_rows.spent(connection, key) for key in self._live},
                spawn_rows.unended(connection),
            )
        )
        for key, session in self._live.items():
            session.budget.spent = spent[key]
            parent = self._live.get(session.family.parent_key or "")
            if parent is not None:
                join(parent, session)
        for spawn in unended:
            parent = self._live.get(spawn.origin.parent_key)
            if parent is None:
                await self._database.write(spawn_rows.closing(spawn.origin.spawn_id))
            else:
                parent.family.unended[spawn.origin.spawn_id] = spawn

    async def finish(self) -> None:
        """Ends the children that must end, and records ends that are missing.

        Those are children without a parent, children of runs, which the restart has interrupted,
        and children whose end is on record already.
        """
        await asyncio.gather(
            *(
                self._sessions.ends.end_child(child, "the control plane was restarted")
                for child in self._live.values()
                if _is_left(child)
            )
        )
        for parent in self._live.values():
            born = [child.family.origin for child in parent.family.children.values()]
            for spawn_id, spawn in list(parent.family.unended.items()):
                if spawn.origin not in born:
                    result = SpawnResult(is_error=True, error=_LOST)
                    self._sessions.spawn_ends.record(parent, spawn_id, result)


def _is_left(child: Session) -> bool:
    """Whether the child must end: nobody waits for it or would end it, or its end had begun."""
    origin, parent = child.family.origin, child.family.parent
    if origin is None or not child.live:
        return False
    if origin.runs or parent is None or not parent.live:
        return True
    return origin.spawn_id not in parent.family.unended
