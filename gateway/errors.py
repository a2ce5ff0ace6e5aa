"""Errors of a gateway, besides the domain's."""

from http import HTTPStatus

from aiohttp import web

from orchestrator.ground.errors import NodeUnavailableError, PaddockError
from orchestrator.ground.serving.errors import problem

RETRY_SECONDS = 2


class NodeLostError(NodeUnavailableError):
    """The machine went away after the request was sent: its record has the outcome."""


def unavailable(name: str) -> NodeUnavailableError:
    """What is said about a node that can't be reached."""
    return NodeUnavailableError(
        f"the node {name}, where this is, does not answer: try again; what runs there may go on",
        node=name,
        retry_after=RETRY_SECONDS,
    )


def lost(name: str) -> NodeLostError:
    """What is said about a node that was lost before it answered."""
    return NodeLostError(
        f"the node {name} went away after the request was sent: the session's record says whether "
        "it was carried out",
        node=name,
    )


def lost_creation(name: str, session_id: str) -> NodeLostError:
    """What is said about a node that was lost before it said whether it has made a session."""
    return NodeLostError(
        f"the node {name} went away after the request was sent: ask for the session {session_id}; "
        "another request for this id makes no second one",
        node=name,
        session_id=session_id,
    )


def status_of(error: PaddockError) -> HTTPStatus | None:
    """The status of a gateway's own error; None: as the domain's table has it."""
    return HTTPStatus.BAD_GATEWAY if isinstance(error, NodeLostError) else None


def e2b_problem(error: PaddockError, request_id: str) -> web.Response:
    """An error as E2B's SDKs read it: its status and its text, and a time to wait."""
    found = problem(error, request_id, status_of(error))
    headers = {name: found.headers[name] for name in ("Retry-After",) if name in found.headers}
    body = {"code": found.status, "message": error.detail}
    return web.json_response(body, status=found.status, headers=headers)
