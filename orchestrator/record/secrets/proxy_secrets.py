"""All secrets that only the proxy has: who may use which, and their changes, on record."""

import asyncio
import logging
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import replace
from functools import partial

from pydantic import SecretStr

from orchestrator.ground.errors import (
    AuditUnavailableError,
    ClusterUnavailableError,
    ConflictError,
    NotFoundError,
)
from orchestrator.ground.events import EventDraft, now
from orchestrator.ground.store.database import Database
from orchestrator.ground.store.effect import Effect, together
from orchestrator.record.audit.recorder import Recorder
from orchestrator.record.secrets.configured_secrets import ConfiguredSecrets
from orchestrator.record.secrets.placeholders import filled
from orchestrator.record.secrets.request_head import RequestHead
from orchestrator.record.secrets.sealer import Sealer
from orchestrator.record.secrets.shared_secrets import SharedSecrets, Snapshot
from orchestrator.rules.access.keys import ADMIN_NAME, Principal
from orchestrator.settings.operator_secrets import SecretUse
from orchestrator.state import secret_rows
from orchestrator.state.moving.continued import CarriedSecret
from orchestrator.state.secret import INSTANCE, Holder, Secret, usable
from orchestrator.state.session import Session
from orchestrator.state.session_secrets import check_not_stored
from sandbox_agent.decide.variables import allowed_variable

log = logging.getLogger(__name__)

# The most secrets of one key, including those of its sessions, and of the instance.
MOST_SECRETS = 100

# A key's or the instance's secrets, or those of one session.
Place = Holder | Session


class ProxySecrets:
    """The operator's secrets, those of keys, and those of live sessions."""

    def __init__(
        self,
        database: Database,
        recorder: Recorder,
        configured: ConfiguredSecrets,
        sealer: Sealer,
        shared: SharedSecrets | None = None,
    ) -> None:
        """`shared` has those of keys, if there is a cluster."""
        self._database = database
        self._recorder = recorder
        self._configured = configured
        self._sealer = sealer
        self._shared = shared
        self._version = -1
        self._held: dict[Holder, dict[str, Secret]] = {}
        self._changing = asyncio.Lock()

    async def load(self) -> None:
        """Loads what was set in earlier runs. Raises: StoreError."""
        stored = await self._database.read(secret_rows.stored)
        if self._shared is not None:
            self._adopt(await self._shared.copy())
            with suppress(ClusterUnavailableError):
                self._adopt(await self._shared.read())
            stored = [each for each in stored if each[0].holder.session_key]
        for secret, sealed in stored:
            value = self._sealer.open(sealed, secret_rows.bound(secret))
            if value is None:
                log.error("the value of the secret %s is lost: set it again", secret.name)
            self._put(replace(secret, value=value))

    async def changed(self, snapshot: Snapshot) -> None:
        """The cluster has these instead."""
        async with self._changing:
            self._adopt(snapshot)

    def _adopt(self, snapshot: Snapshot) -> None:
        """Sessions' stay as they are. What is older than what is here changes nothing."""
        if snapshot.version < self._version:
            return
        self._version = snapshot.version
        self._held = {holder: each for holder, each in self._held.items() if holder.session_key}
        for secret in snapshot.secrets:
            self._put(secret)

    async def recover(self, sessions: Iterable[Session]) -> None:
        """Forgets the secrets of sessions that have ended. Raises: StoreError."""
        live = {session.key: session for session in sessions if session.live}
        for holder in [each for each in self._held if each.session_key]:
            if holder.session_key in live:
                self._end_with(live[holder.session_key])
            else:
                await self._database.write(secret_rows.removing_all(holder.session_key))
                del self._held[holder]

    def variables(self, session: Session) -> dict[str, str]:
        """The placeholders for the session's commands, by the variables that its level allows."""
        patterns = session.level.environment
        _, by_variable = self._usable(session)
        return {
            variable: secret.placeholder
            for variable, secret in by_variable.items()
            if allowed_variable(variable, patterns)
        }

    def fill(self, session: Session, head: RequestHead) -> RequestHead:
        """The request with the values of the session's secrets that it names.

        From now on they are removed from the session's record.
        """
        by_name, _ = self._usable(session)
        head = filled(head, by_name)
        for name in head.secrets:
            value = by_name[name].value
            if value is not None:
                session.secrets.went_out(name, value.get_secret_value())
        return head

    def of_session(self, session: Session) -> list[Secret]:
        """The secrets that it may use at present, and all of its own, by name."""
        own = self._held.get(holder_of(session), {})
        found = {**own, **self._usable(session)[0]}
        return [found[name] for name in sorted(found)]

    def visible_to(self, principal: Principal) -> list[Secret]:
        """The secrets of the instance and of keys that concern sessions that the caller sees."""
        widest_first = sorted(holder for holder in self._held if not holder.session_key)
        found = [*self._configured.by_name.values()]
        found += [each for holder in widest_first for each in self._held[holder].values()]
        return [each for each in found if each.may_be_seen(principal.sees_owner)]

    @property
    def holders(self) -> list[Holder]:
        """The holders of secrets that were set over the API."""
        return list(self._held)

    def held_by(self, holder: Holder) -> list[Secret]:
        """Those of a key, or of the instance, that were set over the API."""
        return list(self._held.get(holder, {}).values())

    def own_of(self, session: Session) -> list[Secret]:
        """The session's own."""
        return self.held_by(holder_of(session))

    def get(self, holder: Holder, name: str) -> Secret | None:
        """One that was set over the API."""
        return self._held.get(holder, {}).get(name)

    async def set(
        self, principal: Principal, place: Place, name: str, use: SecretUse, value: SecretStr
    ) -> Secret:
        """Sets a secret, from the next request on.

        Raises: ConflictError if its name or its variable belongs to another one, or if there are
        too many; AuditUnavailableError, in which case nothing has changed; for a session,
        ValidationError if a secret variable's value would be stored, and the errors of
        `Session.check_live`; the errors of `Recorder.check_room`; ClusterUnavailableError.
        """
        if not isinstance(place, Session):
            return await self._set(principal, place, name, use, value)
        async with place.lock:
            place.check_live()
            place.secrets.check_known()
            return await self._set(principal, place, name, use, value)

    async def _set(
        self, principal: Principal, place: Place, name: str, use: SecretUse, value: SecretStr
    ) -> Secret:
        shared = None if isinstance(place, Session) else self._shared
        async with self._changing:
            if shared is not None:
                self._adopt(await shared.read())
            secret = self._new(principal, holder_of(place), name, use, value)
            draft = _draft("secret.set", principal, secret)
            if isinstance(place, Session):
                check_not_stored(draft.args, await self._recorder.cut(place, draft.args))
            write = partial(self._record, place)
            if shared is None:
                sealed = self._sealer.seal(value, secret_rows.bound(secret))
                await write(draft, secret_rows.putting(secret, sealed))
            else:
                self._version = await shared.put(self._version, secret, value, draft, write)
            if isinstance(place, Session) and secret.holder not in self._held:
                self._end_with(place)
            self._put(secret)
        return secret

    def bringing(self, session: Session, carried: Iterable[CarriedSecret]) -> Effect | None:
        """An effect that stores the secrets with which a session comes from another node.

        The session has them from now on, until it ends.
        """
        brought = [each.held_by(holder_of(session)) for each in carried]
        effects = []
        for secret in brought:
            if secret.value is not None:
                sealed = self._sealer.seal(secret.value, secret_rows.bound(secret))
                effects.append(secret_rows.putting(secret, sealed))
            self._put(secret)
        if brought:
            self._end_with(session)
        return together(*effects)

    async def remove(self, principal: Principal, place: Place, name: str) -> Secret:
        """Removes a secret; no later request has it.

        Raises: NotFoundError; AuditUnavailableError if that is not on record;
        ClusterUnavailableError if other nodes may still have it.
        """
        holder = holder_of(place)
        shared = None if isinstance(place, Session) else self._shared
        if shared is not None and self.get(holder, name) is None:
            await self.changed(await shared.read())  # set elsewhere just now
        self._withdraw(holder, name)
        async with self._changing:
            secret = self._withdraw(holder, name)
            draft = _draft("secret.remove", principal, secret)._replace(stop=True)
            if shared is not None:
                self._version = await shared.remove(secret)
            try:
                await self._record(place, draft, secret_rows.removing(secret))
            except AuditUnavailableError:
                raise AuditUnavailableError(
                    "no request has the secret any more, but that is not on record: remove it again"
                ) from None
            self._forget(secret)
        return secret

    async def _record(self, place: Place, draft: EventDraft, effect: Effect) -> None:
        if isinstance(place, Session):
            if not draft.stop:
                self._recorder.check_room(place)
            await self._recorder.record(place, draft, effect)
        else:
            await self._recorder.record_of_key(place.key or ADMIN_NAME, draft, effect)

    def _new(
        self, principal: Principal, holder: Holder, name: str, use: SecretUse, value: SecretStr
    ) -> Secret:
        """Raises: ConflictError."""
        same = self._held.get(holder, {})
        configured = self._configured.by_name if holder == INSTANCE else {}
        if name in configured:
            raise ConflictError(f"{name} is in the operator's configuration")
        for other in (*same.values(), *configured.values()):
            if other.name != name and use.variable is not None and other.variable == use.variable:
                raise ConflictError(f"{use.variable} is the variable of {other.name} already")
        before = same.get(name)
        paid = (held for each, held in self._held.items() if each.key == holder.key)
        if before is None and sum(map(len, paid)) >= MOST_SECRETS:
            raise ConflictError(
                f"there are {MOST_SECRETS} secrets already, which is the maximum of a key: remove "
                "one",
                reason="too_many_secrets",
            )
        time = now()
        return Secret(
            name,
            holder,
            use.hosts,
            use.headers,
            use.levels,
            use.variable,
            time if before is None else before.created_at,
            time,
            value,
            set_by=principal.account,
        )

    def _usable(self, session: Session) -> tuple[dict[str, Secret], dict[str, Secret]]:
        holders = (INSTANCE, Holder(session.owner), holder_of(session))
        instance, *narrower = (self._held.get(holder, {}) for holder in holders)
        return usable(session, ({**instance, **self._configured.by_name}, *narrower))

    def _put(self, secret: Secret) -> None:
        self._held.setdefault(secret.holder, {})[secret.name] = secret

    def _withdraw(self, holder: Holder, name: str) -> Secret:
        """No request has it from now on. Raises: NotFoundError."""
        found = self.get(holder, name)
        if found is None:
            raise NotFoundError(f"there is no secret {name} that was set over the API")
        withdrawn = replace(found, value=None)
        self._put(withdrawn)
        return withdrawn

    def _forget(self, secret: Secret) -> None:
        held = self._held.get(secret.holder, {})
        held.pop(secret.name, None)
        if not held:
            self._held.pop(secret.holder, None)

    def _end_with(self, session: Session) -> None:
        """Forgets the session's own when it ends; its last event removes what is stored."""
        session.over.add_done_callback(lambda _: self._held.pop(holder_of(session), None))


def holder_of(place: Place) -> Holder:
    """Whose secrets they are."""
    return place if isinstance(place, Holder) else Holder(place.owner, place.key)


def _draft(operation: str, principal: Principal, secret: Secret) -> EventDraft:
    args = {"name": secret.name, "scope": secret.holder.scope, **secret_rows.use_of(secret)}
    if secret.holder.key:
        args["key"] = secret.holder.key
    return EventDraft(operation, actor=principal.name, decision="allow", args=args)
