"""Archiving the record: each node moves old chains of its own into files of its own."""

from collections.abc import Mapping
from functools import partial
from typing import Any

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

_PATH = "/api/audit/archives"
# A node archives a part of what there is in one request, one chain after the other.
_SECONDS = 600.0


class Archiving:
    """Has all nodes archive at once."""

    def __init__(self, members: Members, asking: Asking | None = None) -> None:
        self._members = members
        self._asking = asking or Asking(_SECONDS)

    async def run(self, body: bytes, headers: Headers) -> Answer:
        """What all nodes have archived, by the conditions of the body, in one answer.

        Raises: RefusedError, NodeUnavailableError if no node answers.
        """
        to = [*headers, ("Content-Type", "application/json")]
        asked = partial(_archived, body, to)
        found = await self._asking.each(list(self._members.all), asked)
        if found.refusals:
            raise RefusedError(found.refusals[0])
        if not found.answers:
            raise NodeUnavailableError("no node answers: try again", retry_after=RETRY_SECONDS)
        return {**all_runs(found.answers), "missing": found.missing}


async def _archived(body: bytes, headers: Headers, member: Member) -> Answer:
    async with asked_of(member, "POST", _PATH, headers, body) as answer:
        found = await read_answer(answer)
        if is_run(found):
            return found
    raise NoAnswerError


def is_run(answer: Answer) -> bool:
    """Whether it is an answer to `POST /api/audit/archives`."""
    refused = answer.get("refused")
    return (
        isinstance(answer.get("items"), list)
        and isinstance(refused, dict)
        and all(isinstance(reason, str) for reason in refused.values())
        and isinstance(answer.get("more"), bool)
    )


def all_runs(answers: Mapping[str, Answer]) -> dict[str, Any]:
    """The runs of all nodes as one. A session's chain is on its node only."""
    runs = [answer for _, answer in sorted(answers.items())]
    return {
        "items": [item for run in runs for item in run["items"]],
        "refused": {name: why for run in runs for name, why in run["refused"].items()},
        "more": any(run["more"] for run in runs),
    }
