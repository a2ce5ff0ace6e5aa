"""Ends what users have: at once on this node, on record, and then on all nodes of a cluster."""

import re
from dataclasses import dataclass
from datetime import UTC, datetime

from orchestrator.cluster import messages
from orchestrator.cluster.messages import Kind
from orchestrator.cluster.outbox import Outbox
from orchestrator.ground.errors import (
    AuditUnavailableError,
    ClusterUnavailableError,
    ValidationError,
)
from orchestrator.ground.events import EventDraft
from orchestrator.ground.store.effect import Effect, both
from orchestrator.record.audit.recorder import Recorder
from orchestrator.rules.access.user_ends import UserEnd, UserEndKind
from orchestrator.rules.oidc import user_rows
from orchestrator.rules.oidc.sign_in import SignIn

# A user's name, or the mark and the name of an issuer.
_NAME = re.compile(r"[a-z0-9_]?[a-z0-9._+@-]{0,63}@[a-z0-9][a-z0-9-]{0,31}")


@dataclass(frozen=True, slots=True)
class UserEnding:
    """Refuses what users have from before a moment. `outbox` None: there are no other nodes."""

    sign_in: SignIn
    recorder: Recorder
    outbox: Outbox | None

    async def revoke(self, actor: str, name: str) -> None:
        """Ends tokens, streams and terminals of a user, and their handles, for good.

        It needs no user of that name, so that it tells nobody who exists. Raises: ValidationError;
        AuditUnavailableError if it is neither stored nor on record, though it is in force here;
        ClusterUnavailableError if other nodes have not heard of it: they will.
        """
        if _NAME.fullmatch(name) is None:
            raise ValidationError(
                "name must be that of a user, such as alice@corp, or @corp for all of an issuer",
                field="name",
            )
        end = UserEnd(name, UserEndKind.LEFT, datetime.now(UTC))
        draft = EventDraft("user.revoke", actor, decision="allow", args={"name": name}, stop=True)
        await self._end(end, draft)

    async def sign_out(self, token: str) -> None:
        """Ends tokens that were issued until then, streams and terminals; handles hold.

        Raises: as `revoke`; NotFoundError if no issuer tells of it; SignInUnavailableError.
        """
        found = await self.sign_in.signed_out(token)
        name, moment = found.name, datetime.fromtimestamp(found.moment, UTC)
        draft = EventDraft(
            "user.sign_out", name, decision="allow", args={"name": name, "by": "issuer"}, stop=True
        )
        await self._end(UserEnd(name, UserEndKind.SIGNED_OUT, moment), draft)
        self.sign_in.take_logout(found)

    async def _end(self, end: UserEnd, draft: EventDraft) -> None:
        self.sign_in.end_user(end)
        try:
            await self.recorder.record_system(draft, self._stored(end))
        except AuditUnavailableError as error:
            raise AuditUnavailableError(
                f"{end.name} is refused until a restart, but that can't be stored: {error.detail}"
            ) from None
        if self.outbox is None:
            return
        try:
            await self.outbox.delivered()
        except ClusterUnavailableError as error:
            raise ClusterUnavailableError(
                f"{end.name} is refused by this node, and by the others as soon as the"
                f" cluster's database answers: {error.detail}",
                retry_after=1.0,
            ) from None

    def _stored(self, end: UserEnd) -> Effect:
        """Commits with the event: this node keeps it, and the others are told."""
        kept = user_rows.leaving(end)
        if self.outbox is None:
            return kept
        return both(kept, self.outbox.putting(Kind.USER_END, messages.user_end(end)))
