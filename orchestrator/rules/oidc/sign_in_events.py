"""What is told of sign-ins, to whoever puts it on record."""

from typing import Protocol

from orchestrator.rules.access.users import SignedIn


class SignInEvents(Protocol):
    """Is told of each sign-in before it counts, and of each refusal."""

    async def signed_in(self, user: SignedIn) -> None:
        """Raises: AuditUnavailableError; then nobody has signed in."""

    def refused(self, issuer: str, why: str, rule: str) -> None:
        """Somebody was refused. It delays nothing; `why` is for the operator."""


class UntoldEvents:
    """Before the record is open: nobody signs in, and what is verified again is no news."""

    async def signed_in(self, user: SignedIn) -> None:
        """As `SignInEvents.signed_in`."""

    def refused(self, issuer: str, why: str, rule: str) -> None:
        """As `SignInEvents.refused`."""
