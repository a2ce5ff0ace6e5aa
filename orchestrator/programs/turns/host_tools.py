"""Tools that a host registers with a run: each call is a signed POST to the host."""

import hashlib
import json
import secrets
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from orchestrator.ground.errors import PermissionDeniedError
from orchestrator.ground.events import EventDraft, Made
from orchestrator.ground.http_post import FAILURES, NameLookups, Posted, signed_post
from orchestrator.ground.permitted_urls import is_permitted
from orchestrator.record.audit.recorder import Recorder
from orchestrator.rules.access.keys import Principal
from orchestrator.state.session import Session

TOOL_URL = "tool-url"
# The longest text that answers a call.
_MOST_ANSWER_BYTES = 256 * 1024


@dataclass(frozen=True, slots=True)
class HostTool:
    """One tool. `input_schema` is a JSON schema of objects; `timeout` is in seconds."""

    name: str
    description: str
    input_schema: dict[str, Any]
    url: str
    secret: str = field(repr=False)
    timeout: int


class HostCall(NamedTuple):
    """A call of a run; `id` is the model's."""

    turn: int
    id: str
    arguments: dict[str, Any]


class HostAnswer(NamedTuple):
    """The text that the host has answered with, and the size and digest of its bytes."""

    text: str
    bytes: int
    sha256: str


class HostToolError(Exception):
    """The host did not answer as it should; the message is for the model."""


class HostTools:
    """Calls tools at URLs that the operator permits."""

    def __init__(self, recorder: Recorder, permitted: Sequence[str]) -> None:
        self._recorder = recorder
        self._permitted = permitted
        self._lookups = NameLookups()

    def check_url(self, url: str, place: str) -> None:
        """`place` names the field. Raises: PermissionDeniedError."""
        if not is_permitted(url, self._permitted):
            raise PermissionDeniedError(
                f"{place} must be below a URL of PADDOCK_TOOL_URLS, which the operator sets",
                rule=TOOL_URL,
                field=place,
            )

    async def call(
        self, principal: Principal, session: Session, tool: HostTool, call: HostCall
    ) -> HostAnswer:
        """Records the call, and then makes it. The caller records its outcome.

        Raises: HostToolError, AuditUnavailableError.
        """
        body = json.dumps(
            {
                "session_id": session.id,
                "turn": call.turn,
                "call_id": call.id,
                "tool": tool.name,
                "arguments": call.arguments,
            },
            ensure_ascii=False,
        ).encode()
        digest = hashlib.sha256(body).hexdigest()
        await self._recorder.record(
            session,
            EventDraft(
                "tool.request",
                actor=principal.name,
                decision="allow",
                args={"tool": tool.name, "url": tool.url, "call_id": call.id},
                made=Made({"bytes": len(body), "sha256": digest}),
                turn=call.turn,
            ),
        )
        return _answer(await self._posted(tool, body))

    async def _posted(self, tool: HostTool, body: bytes) -> Posted:
        """Raises: HostToolError, whose message has no words of the host, which are no result."""
        try:
            return await signed_post(
                tool.url,
                tool.secret.encode(),
                body,
                {"Paddock-Delivery": secrets.token_hex(8)},
                seconds=tool.timeout,
                most_bytes=_MOST_ANSWER_BYTES,
                lookups=self._lookups,
            )
        except TimeoutError:
            raise HostToolError(f"the host did not answer within {tool.timeout} s") from None
        except FAILURES:
            raise HostToolError("the host can't be reached, or its answer breaks off") from None


def _answer(posted: Posted) -> HostAnswer:
    """Raises: HostToolError."""
    if not 200 <= posted.status < 300:
        raise HostToolError(f"the host answered with status {posted.status}")
    if not posted.plain:
        raise HostToolError("the host's answer can't be used: it is compressed")
    if posted.cut:
        raise HostToolError(
            f"the host's answer can't be used: it has more than {_MOST_ANSWER_BYTES} bytes"
        )
    text = posted.body.decode("utf-8", "replace")
    return HostAnswer(text, len(posted.body), hashlib.sha256(posted.body).hexdigest())
