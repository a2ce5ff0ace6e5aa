"""The result of a check of this installation. Pure."""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum


class CheckStatus(StrEnum):
    """What was found: it works; it works only partly, or not for long; it does not work."""

    OK = "ok"
    WARNING = "warning"
    FAILURE = "failure"


@dataclass(frozen=True, slots=True)
class Check:
    """The result of one check: what was found and, unless it is ok, how to fix it."""

    name: str
    status: CheckStatus
    detail: str
    remedy: str | None = None

    @property
    def ok(self) -> bool:
        """Whether the check found nothing wrong."""
        return self.status is not CheckStatus.FAILURE

    def public(self) -> dict[str, str | None]:
        """`{name, status, detail, remedy}` as plain values."""
        return {
            "name": self.name,
            "status": str(self.status),
            "detail": self.detail,
            "remedy": self.remedy,
        }


def ok(name: str, detail: str) -> Check:
    """The result of a check that found nothing wrong."""
    return Check(name, CheckStatus.OK, detail)


def warning(name: str, detail: str, remedy: str) -> Check:
    """The result of a check that found something to fix eventually."""
    return Check(name, CheckStatus.WARNING, detail, remedy)


def failure(name: str, detail: str, remedy: str) -> Check:
    """The result of a check that found a reason why sessions can't run."""
    return Check(name, CheckStatus.FAILURE, detail, remedy)


def healthy(checks: Iterable[Check]) -> bool:
    """Whether no check failed."""
    return all(check.ok for check in checks)
