"""Errors as a client of OpenHands shows them.

Its client tells no more of an answer than its status line. So the line has the refusal, its rule
and what to do instead, besides `detail`.
"""

from aiohttp import web

from api.compat.replies import explained, json_reply, retry_headers, sentence
from orchestrator.ground.errors import PaddockError

_MOST_REASON = 400


def failure(error: PaddockError, request_id: str) -> web.Response:
    """The response to an error."""
    problem = explained(error, request_id)
    text = sentence(problem)
    response = json_reply({**problem, "detail": text}, problem["status"], retry_headers(error))
    response.set_status(problem["status"], reason_of(text))
    return response


def reason_of(text: str) -> str:
    """The text as a status line may have it."""
    printable = text.encode("ascii", "replace").decode()
    return "".join(letter if letter.isprintable() else " " for letter in printable)[:_MOST_REASON]
