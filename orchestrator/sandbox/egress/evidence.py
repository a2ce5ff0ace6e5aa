"""What is recorded about a session's connections."""

import secrets
from dataclasses import replace
from typing import Any, NamedTuple

from orchestrator.ground.events import EventDraft, Made
from orchestrator.ground.fair_share import Pace
from orchestrator.ground.store.effect import both
from orchestrator.record.audit.recorder import Recorder
from orchestrator.record.secrets.request_head import RequestHead
from orchestrator.rules.egress.drafts import Denied
from orchestrator.rules.egress.rules import Decision
from orchestrator.sandbox.egress import connections
from orchestrator.sandbox.egress.key_bytes import KeyBytes
from orchestrator.settings.hosts import Address
from orchestrator.state.session import Session

_ACTOR = "sandbox"
# Denials that are recorded with what they concern: per second, and in a burst.
_DENIALS_PER_SECOND, _BURST = 5, 50


class ConnectionEnd(NamedTuple):
    """The end of a connection: bytes to and from the upstream, and why it ended, unless usual."""

    sent: int
    received: int
    milliseconds: int
    address: Address | None = None
    error: str | None = None


class ConnectionEvidence:
    """The records of one session's connections."""

    def __init__(self, recorder: Recorder, session: Session, key_bytes: KeyBytes) -> None:
        self._recorder = recorder
        self._session = session
        self._key_bytes = key_bytes
        self._pace = Pace(1 / _DENIALS_PER_SECOND, _BURST)

    async def allowed(
        self, head: RequestHead, decision: Decision, addresses: tuple[Address, ...]
    ) -> str:
        """Records a request before a connection is made for it; returns its id.

        Raises: AuditUnavailableError, the errors of `Recorder.check_room` and
        `Session.check_live`.
        """
        self._recorder.check_room(self._session)
        connection_id = secrets.token_hex(8)
        addressed = {**_args(head), "addresses": [str(address) for address in addresses]}
        draft = EventDraft(
            "egress.request",
            actor=_ACTOR,
            decision="allow",
            rule=decision.rule,
            args=addressed,
            made=Made(args={"connection_id": connection_id}),
        )
        opened = connections.opened(self._session, connection_id)
        await self._recorder.record(self._session, draft, opened)
        self._session.egress_usage.allowed += 1
        self._session.egress_usage.connections += 1
        return connection_id

    async def denied(self, head: RequestHead, decision: Decision) -> None:
        """Records a denial. Above a rate, denials by one rule are only counted.

        Raises: the errors of `Recorder.refuse`.
        """
        alone = self._pace.wait() == 0
        if alone:
            self._pace.count()
        draft = EventDraft(
            "egress.request",
            actor=_ACTOR,
            decision="deny",
            rule=decision.rule,
            args=_args(head) if alone else {},
            error=decision.why if alone else None,
        )
        await self._recorder.refuse(self._session, draft, alone=alone)
        self._session.egress_usage.denied += 1
        self._session.egress_drafts.add(*_without_secrets(self._session, head, decision))

    async def closed(self, head: RequestHead, connection_id: str, ended: ConnectionEnd) -> None:
        """Records the end of a connection, and stores what the session has used by then.

        Raises: AuditUnavailableError.
        """
        self._session.egress_usage.connections -= 1
        result: dict[str, Any] = {"sent_bytes": ended.sent, "received_bytes": ended.received}
        if ended.address is not None:
            result["address"] = str(ended.address)
        draft = EventDraft(
            "egress.close",
            actor=_ACTOR,
            args=_args(head),
            result=result,
            made=Made(args={"connection_id": connection_id}),
            error=ended.error,
            duration_ms=ended.milliseconds,
            stop=True,
        )
        effect = connections.closed(self._session, connection_id)
        used = self._key_bytes.storing(self._session.owner)
        await self._recorder.record(self._session, draft, both(effect, used))


def _without_secrets(
    session: Session, head: RequestHead, decision: Decision
) -> tuple[Denied, Decision]:
    """A denied request without secrets; a rule that has a secret in it can't be proposed."""
    members = {"path": None, **_args(head), "why": decision.why}
    cut = session.secrets.cut_value(members)
    denied = Denied(cut["host"], cut["port"], cut["method"], cut["path"], cut["program"])
    missing = decision.missing if cut == members else None
    return denied, replace(decision, why=cut["why"], missing=missing)


def _args(head: RequestHead) -> dict[str, Any]:
    """The query is left out: it often has credentials."""
    args: dict[str, Any] = {
        **{"host": str(head.host), "port": head.port},
        **{"method": head.method, "program": head.program},
    }
    if not head.connect:
        args["path"] = head.path.partition("?")[0]
    if head.secure:
        args["upgraded" if head.upgraded else "inspected"] = True
    if head.secrets:
        args["secrets"] = list(head.secrets)
    return args
