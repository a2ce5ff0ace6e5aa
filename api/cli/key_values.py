"""Values of the options of `paddock keys`."""

import re
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import typer

from paddock.contract.scopes import SCOPES, check_scopes

if TYPE_CHECKING:
    from orchestrator.rules.access.key_scopes import Scopes

_SPAN = re.compile(r"([1-9][0-9]{0,5})([mhd])")
_UNITS = {"m": "minutes", "h": "hours", "d": "days"}


def known_scopes(incomplete: str) -> list[str]:
    """The scopes that begin so, for the shell's completion."""
    return [name for name in SCOPES if name.startswith(incomplete)]


def scopes_of(scopes: list[str] | None) -> "Scopes":
    """The scopes of the options. Raises: typer.BadParameter."""
    try:
        check_scopes(scopes or ())
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--scope") from None
    return frozenset(scopes) if scopes else None


def span(text: str) -> timedelta:
    """An overlap. Raises: typer.BadParameter."""
    from orchestrator.rules.access.key_rotation import MOST_OVERLAP

    if text == "0":
        return timedelta()
    length = _SPAN.fullmatch(text)
    found = None if length is None else timedelta(**{_UNITS[length[2]]: int(length[1])})
    if found is None or found > MOST_OVERLAP:
        raise typer.BadParameter(
            f"{text!r} is not like 24h, 30m, 7d or 0, at most {MOST_OVERLAP.days}d",
            param_hint="--overlap",
        )
    return found


def moment(text: str) -> datetime:
    """The time in UTC, to the second. Raises: typer.BadParameter."""
    length = _SPAN.fullmatch(text)
    try:
        if length is not None:
            found = datetime.now(UTC) + timedelta(**{_UNITS[length[2]]: int(length[1])})
        else:
            found = datetime.fromisoformat(text)
            found = found.replace(tzinfo=found.tzinfo or UTC)
        found = found.astimezone(UTC).replace(microsecond=0)
    except (ValueError, OverflowError):
        raise typer.BadParameter(
            f"{text!r} is not like 30d, 12h, 90m, 2030-01-31 or 2030-01-31T12:00:00Z",
            param_hint="--expires",
        ) from None
    if found <= datetime.now(UTC):
        raise typer.BadParameter(f"{text!r} is in the past", param_hint="--expires")
    return found
