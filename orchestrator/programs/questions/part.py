"""The way by which commands ask about their session, as a part of the sandbox."""

from orchestrator.host.engine.base import Container
from orchestrator.host.node.base import Node
from orchestrator.programs.questions.door import QuestionDoor
from orchestrator.programs.questions.questions import Questions
from orchestrator.sandbox.sandboxes.parts import Part, Plan


class QuestionsPart(Part):
    """The socket of the `session` program, from the session's configuration on."""

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

    async def leave(self, plan: Plan) -> None:
        """Questions are answered again once the sandbox is adopted."""
        await self.close(plan)

    async def close(self, plan: Plan) -> None:
        """Ends all connections."""
        if (door := self._doors.pop(plan.name, None)) is not None:
            await door.close()
