"""The way by which commands ask about their session, as a part of the sandbox."""

import asyncio
import contextlib
import logging
import socket

from orchestrator.ground.accepted_connections import accepted_connections
from orchestrator.ground.fair_share import Pace
from orchestrator.ground.task_scope import TaskScope
from orchestrator.host.engine.base import Container
from orchestrator.host.node.base import Node
from orchestrator.programs.questions.questions import MOST_QUESTION_BYTES, Questions
from orchestrator.sandbox.sandboxes.parts import HeldPart, Plan
from orchestrator.state.session import Session

log = logging.getLogger(__name__)

# Questions of one session: at the same time, and after a burst one in so many seconds.
_CONNECTIONS = 4
_PACE_SECONDS = 0.25
_BURST = 20
# From the connection to its end.
_SECONDS = 10.0


class QuestionDoor:
    """Answers one session: only its sandbox has the socket."""

    def __init__(self, session: Session, questions: Questions) -> None:
        self._session = session
        self._questions = questions
        self._accepting = TaskScope("the questions of a sandbox")
        self._asked = TaskScope("a question of a sandbox")
        self._pace = Pace(_PACE_SECONDS, _BURST)

    def open(self, listener: socket.socket) -> None:
        """Answers connections to the socket, which it closes in the end."""
        self._accepting.spawn(self._accept(listener))

    async def close(self) -> None:
        """Closes the socket and all connections."""
        await self._accepting.close()
        await self._asked.close()

    async def _accept(self, listener: socket.socket) -> None:
        async with contextlib.aclosing(
            accepted_connections(listener, self._pace, self._asked, _CONNECTIONS)
        ) as connections:
            async for connection, _ in connections:
                self._asked.spawn(self._serve(connection))

    async def _serve(self, connection: socket.socket) -> None:
        """Answers one question. A sandbox that sends or reads too slowly gets no answer."""
        with connection, contextlib.suppress(TimeoutError, OSError):
            loop = asyncio.get_running_loop()
            async with asyncio.timeout(_SECONDS):
                line = b""
                while not line.endswith(b"\n"):
                    data = await loop.sock_recv(connection, MOST_QUESTION_BYTES + 1 - len(line))
                    line += data
                    if not data or len(line) > MOST_QUESTION_BYTES:
                        return
                answer = await self._questions.answer(self._session, line)
                await loop.sock_sendall(connection, answer.encode())


class QuestionsPart(HeldPart):
    """The socket of the `session` program; it is open once the session is configured."""

    name = "socket for questions"

    def __init__(self, node: Node, questions: Questions) -> None:
        self._node = node
        self._questions = questions
        # By the sandboxes' names.
        self._doors: dict[str, QuestionDoor] = {}

    async def open(self, plan: Plan) -> None:
        """Raises: OSError."""
        uid = plan.session.workspace.uid
        listener = self._node.listen_for_questions(plan.directory.questions, uid)
        door = self._doors[plan.name] = QuestionDoor(plan.session, self._questions)
        door.open(listener)

    async def adopt(self, plan: Plan, container: Container) -> None:
        """Raises: OSError."""
        if plan.directory.questions.is_dir():  # an earlier version's sandbox has none
            await self.open(plan)

    async def close(self, plan: Plan) -> None:
        """Ends all connections."""
        if (door := self._doors.pop(plan.name, None)) is not None:
            await door.close()
