"""A command of a session, once it was started: its output, its standard input, its signals."""

import base64
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import zip_longest

from orchestrator.ground.errors import NotFoundError, PaddockError
from orchestrator.host.link.chunks import Chunk, parse_page
from orchestrator.host.link.messages import malformed
from orchestrator.state.command import Command
from orchestrator.state.session import Session
from sandbox_agent.decide.protocol import CHUNK_BYTES

# The agent answers once it has waited for output, and has this much longer to do so.
_GRACE_SECONDS = 20.0


@dataclass(frozen=True, slots=True)
class OutputPage:
    """Part of a command's output.

    `chunks` are (stream, offset, bytes); `next` is where to continue; `lost` says that the session
    no longer keeps this command's output. `times` are the chunks' in seconds since the epoch, None
    if unknown; there may be none at all.
    """

    chunks: Sequence[Chunk]
    next: int
    ended: bool
    lost: bool
    times: Sequence[float | None] = ()

    def timed(self) -> Iterable[tuple[Chunk, float | None]]:
        """Each chunk with its time."""
        return zip_longest(self.chunks, self.times)


async def read_output(
    session: Session,
    command: Command,
    after: int,
    wait: float,
    *,
    looks: bool = False,
    whole: bool = False,
) -> OutputPage:
    """Output from offset `after` on; waits up to `wait` seconds for some.

    `looks`: the output stays available to the command's caller and for its evidence; `whole`:
    includes stored long output. Raises: SandboxUnavailableError.
    """
    if session.sandbox is None or not command.dispatched:
        return OutputPage([], after, command.ended, lost=True)
    params = {
        "command_id": command.id,
        "after": after,
        "limit": CHUNK_BYTES,
        "wait_ms": int(wait * 1000),
        "looks": looks or _waits_for_evidence(command),
        "whole": whole,
        "times": True,
    }
    try:
        answer = await session.sandbox.link.request("output", params, wait + _GRACE_SECONDS)
        chunks, times, following = parse_page(answer)
        return OutputPage(chunks, following, answer["ended"] is True, lost=False, times=times)
    except NotFoundError:
        return OutputPage([], after, command.ended, lost=True)
    except (KeyError, TypeError, ValueError):
        raise malformed() from None


async def feed(session: Session, command: Command, data: bytes, close: bool) -> None:
    """Writes to a command's standard input, as soon as there is room.

    Raises: ConflictError if it is closed, BusyError if the command does not read.
    """
    sandbox = session.check_open()
    params = {"command_id": command.id, "data": encoded(data), "close": close}
    await sandbox.link.request("stdin", params)


async def signal(session: Session, command: Command, number: int) -> None:
    """Signals a command's process group. Raises: NotFoundError if it has ended."""
    sandbox = session.check_open()
    command.signals.add(number)
    try:
        await sandbox.link.request("signal", {"command_id": command.id, "signal": number})
    except PaddockError:
        command.signals.discard(number)
        raise


def find(session: Session, command_id: str) -> Command:
    """A command of the session. Raises: NotFoundError."""
    command = session.commands.get(command_id)
    if command is None:
        raise NotFoundError(f"this session has no command {command_id}")
    return command


def encoded(data: bytes) -> str:
    """Bytes as they are in messages to the agent."""
    return base64.b64encode(data).decode()


def _waits_for_evidence(command: Command) -> bool:
    """Whether its output is still needed, whoever else reads it."""
    if command.keeping is None:  # its evidence is begun after its start was answered
        return command.captured
    return not command.keeping.done()
