"""Decisions about approvals: made on the node that has the approval, which nobody else knows."""

from http import HTTPStatus

from gateway.errors import RETRY_SECONDS
from gateway.faces.asking import (
    Answer,
    Asking,
    Headers,
    NoAnswerError,
    RefusedError,
    asked_of,
    read_answer,
)
from gateway.members import Member, Members
from orchestrator.ground.errors import NodeUnavailableError

_PATH = "/api/approvals/"


class Decisions:
    """Passes a decision to all nodes: one has the approval, the others know nothing of it.

    A decision is made once, so that it may be sent again.
    """

    def __init__(self, members: Members, asking: Asking) -> None:
        self._members = members
        self._asking = asking

    async def decide(self, approval_id: str, body: bytes, headers: Headers) -> Answer:
        """The approval after the decision; `approval_id` is as in the request's path, encoded.

        Raises: RefusedError, NodeUnavailableError if it may be on a node that does not answer.
        """
        to = [*headers, ("Content-Type", "application/json")]

        async def asked(member: Member) -> Answer:
            path = _PATH + approval_id
            async with asked_of(member, "POST", path, to, body) as answer:
                return await read_answer(answer)
            raise NoAnswerError

        found = await self._asking.each(list(self._members.all), asked)
        for answer in found.answers.values():
            return answer
        known = [each for each in found.refusals if each.status != HTTPStatus.NOT_FOUND]
        if known:
            raise RefusedError(known[0])
        if found.missing or not found.refusals:
            raise NodeUnavailableError(
                "a node does not answer, and no other has this approval: try again",
                retry_after=RETRY_SECONDS,
            )
        raise RefusedError(found.refusals[0])
