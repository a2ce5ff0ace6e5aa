"""Changes what a session may reach, while it runs."""

from collections.abc import Callable, Sequence

from orchestrator.ground.errors import AuditUnavailableError, ConflictError, PermissionDeniedError
from orchestrator.ground.events import EventDraft
from orchestrator.record.audit.recorder import Recorder
from orchestrator.record.audit.stop_records import StopRecords
from orchestrator.rules.access.keys import Principal, Role
from orchestrator.rules.egress.rule import Rule
from orchestrator.rules.egress.rules import Rules
from orchestrator.rules.egress.session_egress import check_own_rules, check_rules
from orchestrator.rules.egress.session_rules import Narrowing, OwnRules, SessionRules
from orchestrator.sandbox.egress.rule_changes import denial, narrows, permits, with_rules
from orchestrator.state import session_rows
from orchestrator.state.session import Session
from orchestrator.state.session_secrets import check_not_stored

# The most rules in each list.
MOST_RULES = 100
_RULE = "admin-widens"


class _WideningError(Exception):
    """Only an admin may do this."""


class SessionEgress:
    """The rules of sessions' ways out besides their levels'."""

    def __init__(self, recorder: Recorder, stops: StopRecords) -> None:
        self._recorder = recorder
        self._stops = stops

    async def change(
        self,
        principal: Principal,
        session: Session,
        only: Narrowing | None,
        also: Rules | None,
        revision: int | None = None,
    ) -> None:
        """Sets these rules; None leaves them as they are.

        They hold from the next request on, and connections that they do not allow are ended. What
        only narrows holds before it is on record, and needs no room there.

        Raises: PermissionDeniedError if somebody else than an admin sets `also`; ConflictError if
        the level has no way out, or the rules have another revision; AuditUnavailableError if they
        are not on record, in which case only what narrows holds; ValidationError for rules that the
        level's sandboxes can't have; the errors of `Session.check_live` and `Recorder.check_room`.
        """

        def wanted(present: OwnRules) -> OwnRules:
            if revision not in (None, present.revision):
                raise ConflictError(
                    f"the rules have the revision {present.revision}: read them again"
                )
            return present.changed(
                present.only if only is None else only, present.also if also is None else also
            )

        if also is not None:
            await self._check_admin(principal, session)
        await self._change(principal, session, wanted)

    async def add(
        self,
        principal: Principal,
        session: Session,
        allow: Sequence[Rule],
        deny: Sequence[Rule],
        drafts: Sequence[int] = (),
    ) -> None:
        """Adds rules, and those that the drafts with these numbers propose, where they are needed.

        Raises: PermissionDeniedError if somebody else than an admin would widen; ConflictError if a
        draft does not exist or has no rule, if a denial beats a rule, or if there are too many; the
        errors of `change`.
        """
        _check_way_out(session)
        check_rules(session.level, Rules(tuple(allow), tuple(deny)), "")
        admin = principal.role is Role.ADMIN

        def wanted(present: OwnRules) -> OwnRules:
            more = [*allow, *(_proposed(session, number) for number in drafts)]
            rules = with_rules(session.egress_rules, more, deny, admin=admin)
            if rules.also != present.also and not admin:
                raise _WideningError
            changed = SessionRules(session.id, session.level.egress, rules)
            for rule in more:
                beaten = denial(changed, rule)
                if beaten is not None:
                    raise ConflictError(f"{rule} stays denied by the rule {beaten}")
            return rules

        try:
            await self._change(principal, session, wanted)
        except _WideningError:
            await self._check_admin(principal, session)

    async def _change(
        self, principal: Principal, session: Session, wanted: Callable[[OwnRules], OwnRules]
    ) -> None:
        _check_way_out(session)
        async with session.lock:
            _check_way_out(session)
            rules = wanted(session.own_rules)
            if rules is session.own_rules:
                return
            _check_number(rules)
            check_own_rules(session.level, rules)
            recorded = rules.recorded()
            session.secrets.check_known()
            check_not_stored(recorded, await self._recorder.cut(session, recorded))
            if narrows(session.own_rules, rules):
                await self._narrow(principal, session, rules)
            else:
                await self._widen(principal, session, rules)

    async def _narrow(self, principal: Principal, session: Session, rules: OwnRules) -> None:
        """Stops what is not allowed any more, then records the rules."""
        _apply(session, rules)
        self._stops.add(session, lambda: self._record(principal, session, rules, stop=True))
        if not await self._stops.recorded(session):
            raise AuditUnavailableError("the rules hold, but they are not on record yet")

    async def _widen(self, principal: Principal, session: Session, rules: OwnRules) -> None:
        self._recorder.check_room(session)
        if not await self._stops.recorded(session):
            raise AuditUnavailableError("an earlier stop is not on record yet: try again")
        await self._record(principal, session, rules)
        _apply(session, rules)

    async def _record(
        self, principal: Principal, session: Session, rules: OwnRules, *, stop: bool = False
    ) -> None:
        texts = {f"egress_{layer}": texts for layer, texts in rules.recorded().items()}
        draft = EventDraft(
            "session.settings",
            actor=principal.name,
            decision="allow",
            args={"egress_revision": rules.revision, **texts},
            stop=stop,
        )
        await self._recorder.record(session, draft, session_rows.with_rules(session, rules))

    async def _check_admin(self, principal: Principal, session: Session) -> None:
        """Raises PermissionDeniedError, which is on record then."""
        if principal.role is Role.ADMIN:
            return
        detail = "only an admin may widen what a session may reach: also"
        draft = EventDraft(
            "session.settings", actor=principal.name, rule=_RULE, args={"egress": "also"}
        )
        await self._recorder.refuse(session, draft._replace(error=detail))
        raise PermissionDeniedError(detail, rule=_RULE, field="also")


def _apply(session: Session, rules: OwnRules) -> None:
    """From now on they hold, for open connections, too."""
    session.own_rules = rules
    session.egress_drafts.forget(lambda rule: permits(session.egress_rules, rule))
    if session.sandbox is not None:
        session.sandbox.recheck_connections()


def _check_number(rules: OwnRules) -> None:
    """Raises: ConflictError."""
    lists = (rules.only.allow or (), rules.only.deny, rules.also.allow, rules.also.deny)
    if any(len(each) > MOST_RULES for each in lists):
        raise ConflictError(f"a session has at most {MOST_RULES} rules of a kind of its own")


def _proposed(session: Session, number: int) -> Rule:
    """Raises: ConflictError."""
    for draft in session.egress_drafts:
        if draft.number == number:
            if draft.missing is None:
                raise ConflictError(f"no rule can be proposed for the draft {number}: {draft.why}")
            return draft.missing
    raise ConflictError(f"there is no draft {number}: list the drafts again")


def _check_way_out(session: Session) -> None:
    """Raises: ConflictError, the errors of `Session.check_live`."""
    session.check_live()
    if session.level.network != "egress":
        raise ConflictError(
            f"the session's level {session.level.name} has no way out: its network is "
            f"{session.level.network}"
        )
