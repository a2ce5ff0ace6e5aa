"""The proxy's own answers. Pure."""

from http import HTTPStatus

from orchestrator.ground.errors import PaddockError
from orchestrator.rules.egress.rules import Decision

ESTABLISHED = b"HTTP/1.1 200 Connection established\r\n\r\n"


def answer(status: HTTPStatus, text: str) -> bytes:
    """A complete answer; the connection is closed after it."""
    body = f"{text}\n".encode()
    head = (
        f"HTTP/1.1 {status.value} {status.phrase}\r\n"
        "Content-Type: text/plain; charset=utf-8\r\n"
        f"Content-Length: {len(body)}\r\n"
        "Connection: close\r\n\r\n"
    )
    return head.encode() + body


def denied(decision: Decision) -> bytes:
    """Names the rule, and how to have the request allowed."""
    lines = [f"Paddock denied this request: {decision.why}.", f"Rule: {decision.rule}"]
    if decision.remedy is not None:
        lines.append(decision.remedy)
    return answer(HTTPStatus.FORBIDDEN, "\n".join(lines))


class RefusedError(Exception):
    """The request is not carried out; `answer` is for the client."""

    def __init__(self, answer: bytes) -> None:
        super().__init__()
        self.answer = answer

    @classmethod
    def with_text(cls, status: HTTPStatus, text: str) -> "RefusedError":
        """A refusal with an answer of that status and text."""
        return cls(answer(status, text))

    @classmethod
    def unavailable(cls, error: PaddockError) -> "RefusedError":
        """The session may reach nothing now, or nothing can be recorded."""
        return cls.with_text(HTTPStatus.SERVICE_UNAVAILABLE, f"Paddock: {error.detail}.")
