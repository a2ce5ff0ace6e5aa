"""What a check of this installation says. Pure."""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum


class CheckStatus(StrEnum):
    """Ok; works, but not all of it or not for long; does not work."""

    OK = "ok"
    WARNING = "warning"
    FAILURE = "failure"


@dataclass(frozen=True, slots=True)
class Check:
    """One check: what was found, and (unless it is ok) how to mend it."""

    name: str
    status: CheckStatus
    detail: str
    remedy: str | None = None

    @property
    def ok(self) -> bool:
        """Whether nothing is lost by it."""
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
    """A check that found nothing wrong."""
    return Check(name, CheckStatus.OK, detail)


def warning(name: str, detail: str, remedy: str) -> Check:
    """A check that found something to be mended some time."""
    return Check(name, CheckStatus.WARNING, detail, remedy)


def failure(name: str, detail: str, remedy: str) -> Check:
    """A check that found something without which sessions can't run."""
    return Check(name, CheckStatus.FAILURE, detail, remedy)


def healthy(checks: Iterable[Check]) -> bool:
    """Whether there is no failure among them."""
    return all(check.ok for check in checks)
