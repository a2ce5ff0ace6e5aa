"""The client's own results; all others are models of the contract."""

from dataclasses import dataclass

from pydantic import Field

from paddock.contract.base import Count
from paddock.contract.commands import ExitData, Output, StartData


class StreamedOutput(Output):
    """A piece of live output."""

    cut: Count = Field(default=0, description="How many bytes right before it are not kept.")


ExecEvent = StartData | StreamedOutput | ExitData


@dataclass(frozen=True, kw_only=True)
class Transfer:
    """The result of a directory transfer.

    `skipped` names what can't be transferred; `more_skipped` counts what it leaves out of many.
    """

    files: int
    bytes: int
    skipped: tuple[str, ...]
    links: int = 0
    more_skipped: int = 0
