"""The runner whose loop is in the caller's process, with a sandbox as its hands."""

import asyncio
from collections.abc import Sequence

from paddock.app.agent import AppTool, Runner, SessionRef, SpawnError
from paddock.app.hands import hands
from paddock.client.errors import PaddockError
from paddock.client.paddock import Paddock
from paddock.client.session import Session


class LevelDiffersError(PaddockError):
    """A sandbox with the session's id exists, at another level; it is left alone."""


class LocalRunner(Runner):
    """Each session has a sandbox of its own id, from its first run until it is closed.

    The workspace stays for the session's return, unless nobody can name the session again. A
    child's sandbox is a child of its parent's, or its parent's itself.
    """

    def __init__(self, paddock: Paddock) -> None:
        self._paddock = paddock
        # A creation goes on after an interrupt, so that its sandbox has an owner.
        self._sandboxes: dict[str, asyncio.Task[Session]] = {}
        self._tools = hands()

    async def on_session_init(self, session: SessionRef) -> None:
        """Gives the session its sandbox."""
        starting = self._sandboxes.get(session.id)
        if starting is None:
            starting = self._started(session)
            self._sandboxes[session.id] = starting
        try:
            await asyncio.shield(starting)
        except asyncio.CancelledError:
            raise
        except BaseException:
            self._sandboxes.pop(session.id, None)
            raise

    def _started(self, session: SessionRef) -> asyncio.Task[Session]:
        """The sandbox that is started for the session, or shared with it.

        Raises: SpawnError for a child that needs the sandbox of a parent that has none here.
        """
        parent = self._sandboxes.get(session.parent.id) if session.parent else None
        if parent is None and session.workspace != "own":
            raise SpawnError("the parent has no sandbox of this runner")
        if parent is None:
            return asyncio.create_task(self._create(session))
        if session.workspace == "shared":
            return parent
        return asyncio.create_task(_spawned(parent, session))

    async def _create(self, session: SessionRef) -> Session:
        sessions = self._paddock.sessions
        create = sessions.create if session.ephemeral else sessions.ensure
        sandbox = await create(id=session.id, permission_level=session.level)
        # A session that was there before may have another level, which nobody asked for.
        if (found := sandbox.info.permission_level) != session.level:
            raise LevelDiffersError(f"the sandbox {session.id} is at {found}, not {session.level}")
        return sandbox

    async def on_destroy(self, session: SessionRef) -> None:
        """Closes the sandbox, also one that is being created."""
        starting = self._sandboxes.pop(session.id, None)
        if starting is None or session.workspace == "shared":
            return
        await asyncio.wait({starting})
        if not starting.cancelled() and starting.exception() is None:
            await starting.result().close(purge=session.ephemeral)

    def tools(self) -> Sequence[AppTool]:
        """Commands and files."""
        return self._tools

    def sandbox(self, session: SessionRef) -> Session | None:
        """The session's sandbox, once it runs."""
        starting = self._sandboxes.get(session.id)
        return starting.result() if starting and starting.done() else None


async def _spawned(parent: asyncio.Task[Session], child: SessionRef) -> Session:
    """A sandbox below the parent's."""
    return await (await parent).spawn(
        label=child.label, workspace=child.workspace, permission_level=child.level
    )
