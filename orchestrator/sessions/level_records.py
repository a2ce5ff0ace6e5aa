"""Records changes of a session's level, and those that did not happen."""

import logging
from typing import Any

from orchestrator.ground.errors import PaddockError
from orchestrator.ground.events import EventDraft
from orchestrator.ground.store.effect import together
from orchestrator.record.audit.recorder import Recorder
from orchestrator.rules.access.keys import Principal
from orchestrator.rules.egress.rules import NO_RULES
from orchestrator.rules.policy.levels import Level
from orchestrator.sessions.in_cluster.session_places import SessionPlaces
from orchestrator.state import session_rows
from orchestrator.state.session import Session

log = logging.getLogger(__name__)


class LevelRecords:
    """Writes a session's level together with its event."""

    def __init__(self, recorder: Recorder, places: SessionPlaces) -> None:
        self._recorder = recorder
        self._places = places

    async def record(
        self,
        session: Session,
        principal: Principal,
        level: Level,
        args: dict[str, Any],
        *,
        stop: bool = False,
    ) -> None:
        """Records the level with which the session continues. Raises: AuditUnavailableError."""
        # A start that finds the lowered level must not adopt the previous sandbox, which may have
        # the same name.
        gone = {"sandbox": None, "container_id": None} if stop else {}
        if session.own_rules.also != NO_RULES:
            args = {**args, "egress_dropped": session.own_rules.recorded()["also"]}
        await self._recorder.record(
            session,
            EventDraft(
                "session.settings", actor=principal.name, decision="allow", args=args, stop=stop
            ),
            effect=together(
                session_rows.with_level(session, level, **gone),
                self._places.changed(session, level=level.name),
            ),
        )

    async def record_failure(
        self, session: Session, principal: Principal, args: dict[str, Any], why: PaddockError
    ) -> None:
        """Records a change that did not happen; nothing else follows if that can't be recorded."""
        draft = EventDraft(
            "session.settings", actor=principal.name, args=args, error=why.detail, stop=True
        )
        try:
            await self._recorder.record(session, draft)
        except PaddockError as error:
            log.warning("a level change that failed is not on record: %s", error.detail)
