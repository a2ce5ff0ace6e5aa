"""Commands that act on several things at once."""

import sys
from collections.abc import Awaitable, Callable, Sequence

import typer

from paddock.cli.exits import Failure, Status
from paddock.cli.output import complain


async def each_of(sessions: Sequence[str], act: Callable[[str], Awaitable[object]]) -> None:
    """Acts on each session, also if it fails for others. Raises: the first failure, at the end."""
    failed: Exception | None = None
    for session in sessions:
        try:
            await act(session)
        except Exception as error:  # noqa: BLE001 - raised when the others are done
            if failed is not None:
                complain(str(failed))
            failed = error
    if failed is not None:
        raise failed


def confirm(what: str) -> None:
    """Raises: Failure unless a person agrees."""
    if not sys.stdin.isatty():
        raise Failure(f"it would {what}", "--yes does it without asking", Status.USAGE)
    typer.confirm(f"{what}?", abort=True, err=True)
