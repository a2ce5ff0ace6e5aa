"""Ends sign-ins of users while the control plane runs, on record."""

import re
from dataclasses import dataclass

from orchestrator.ground.errors import AuditUnavailableError, ValidationError
from orchestrator.ground.events import EventDraft
from orchestrator.ground.store.database_file import StoreError
from orchestrator.record.audit.recorder import Recorder
from orchestrator.rules.oidc.sign_in import SignIn

# A user's name, or the mark and the name of an issuer.
_NAME = re.compile(r"[a-z0-9_]?[a-z0-9._+@-]{0,63}@[a-z0-9][a-z0-9-]{0,31}")


@dataclass(frozen=True, slots=True)
class UserRevocations:
    """Refuses what users have from before now."""

    sign_in: SignIn
    recorder: Recorder

    async def revoke(self, actor: str, name: str) -> None:
        """Ends tokens, streams and terminals of a user, and their handles, for good.

        It needs no user of that name, so that it tells nobody who exists. Raises: ValidationError;
        AuditUnavailableError if it is not stored, or not on record, though it is in force.
        """
        if _NAME.fullmatch(name) is None:
            raise ValidationError(
                "name must be that of a user, such as alice@corp, or @corp for all of an issuer",
                field="name",
            )
        try:
            await self.sign_in.leave(name)
        except StoreError as error:
            raise AuditUnavailableError(
                f"{name} is refused until a restart, but that can't be stored: {error}"
            ) from None
        await self.recorder.record_system(
            EventDraft("user.revoke", actor, decision="allow", args={"name": name}, stop=True)
        )
