"""Sends a command's output to a client: followed to its end, or page by page."""

import asyncio
import base64
import codecs
from collections.abc import AsyncGenerator
from contextlib import aclosing
from datetime import UTC, datetime
from typing import Any, NamedTuple

from api.shape.answers import HEARTBEAT_SECONDS, Event
from api.shape.context import Context
from api.views.commands import exit_members
from orchestrator.ground.errors import SandboxUnavailableError
from orchestrator.ground.events import time_text
from orchestrator.state.command import Command
from orchestrator.state.session import Session
from orchestrator.work.commands import running_command
from orchestrator.work.commands.execution import Executions
from orchestrator.work.commands.running_command import OutputPage
from paddock.contract.commands import CommandResult, ExitData, Output, OutputData
from sandbox_agent.decide.protocol import CHUNK_BYTES, MOST_CHUNKS

STREAMS = ("stdout", "stderr")
# The sandbox agent redials after a lost connection; more failures in a row are not an accident.
_MOST_FAILURES = 3
# In addition to the command's time-out: its end must be recorded and its output fetched.
_GRACE_SECONDS = 30.0
_LONGEST_CHARACTER = 4
# What stands for bytes that are no UTF-8.
_REPLACED = "\N{REPLACEMENT CHARACTER}"
# The position after the gap is marked: there is only one, and an agent's further gaps are ignored.
_MARKED = -1


async def pages(
    context: Context, session: Session, command: Command, after: int, *, whole: bool
) -> AsyncGenerator[OutputPage]:
    """The command's output from `after` to its end; an empty page if nothing arrived for a while.

    `whole`: includes the stored part of long output. It ends at output that is no longer available.
    """
    failures = 0
    while failures < _MOST_FAILURES:
        try:
            page = await running_command.read_output(
                *(session, command, after, HEARTBEAT_SECONDS), looks=context.looks, whole=whole
            )
        except SandboxUnavailableError:
            failures += 1
            continue
        yield page
        if page.lost or _is_last(page, command):
            return
        after, failures = page.next, 0
    yield OutputPage([], after, command.ended, lost=True)


def _is_last(page: OutputPage, command: Command) -> bool:
    """Whether this is the last page; after a full page of an ended command there may be more."""
    size = sum(len(data) for _, _, data in page.chunks)
    full = size >= CHUNK_BYTES or len(page.chunks) >= MOST_CHUNKS
    return not full if page.ended else command.ended and not size


async def collect(
    context: Context, executions: Executions, session: Session, command: Command
) -> CommandResult:
    """A foreground command's result with its `stdout` and `stderr`, once it has ended."""
    kept = {name: bytearray() for name in STREAMS}
    lost, position = False, 0
    try:
        async with asyncio.timeout(session.level.timeout_max + _GRACE_SECONDS):
            await command.wait()
            async for page in _printed(context, session, command):
                lost = lost or page.lost
                for name, offset, data in page.chunks:
                    if offset > position >= 0:
                        _mark_cut(kept, offset - position)
                        position = _MARKED
                    if name in kept and len(kept[name]) <= session.level.output_bytes:
                        kept[name] += data
                    position = position if position < 0 else offset + len(data)
    except TimeoutError:
        raise SandboxUnavailableError(
            "the command's output does not end", command_id=command.id
        ) from None
    result = await executions.wait(session, command)
    truncated = result.truncated or (lost and result.output_bytes > 0)
    texts: dict[str, str] = {}
    for name, whole in kept.items():
        texts |= _members(_piece(whole), name, f"{name}_base64")
        if len(whole) > CHUNK_BYTES:
            await asyncio.sleep(0)  # others run now: megabytes take tens of milliseconds
    return CommandResult(
        **exit_members(result) | texts | {"command_id": command.id, "truncated": truncated}
    )


async def printed(
    context: Context,
    executions: Executions,
    session: Session,
    command: Command,
    after: int,
    stream: str | None,
) -> AsyncGenerator[bytes]:
    """The bytes that a command prints, from `after` to its end; of one stream, or of both in order.

    Raises: SandboxUnavailableError after what precedes bytes that are not kept.
    """
    position = after
    async with aclosing(pages(context, session, command, after, whole=not context.looks)) as found:
        async for page in found:
            for name, offset, data in page.chunks:
                _check_no_gap(position, offset)
                position = offset + len(data)
                if stream in (None, name):
                    yield data
    result = await executions.wait(session, command)
    _check_no_gap(position, result.output_bytes)


async def first(chunks: AsyncGenerator[bytes], count: int) -> AsyncGenerator[bytes]:
    """So many bytes; what follows is not read."""
    async with aclosing(chunks) as found:
        async for data in found:
            yield data[:count]
            count -= len(data)
            if count <= 0:
                return


def _check_no_gap(position: int, offset: int) -> None:
    if offset > position:
        raise SandboxUnavailableError(f"the output from byte {position} to {offset} is not kept")


async def _printed(
    context: Context, session: Session, command: Command
) -> AsyncGenerator[OutputPage]:
    """The kept output of an ended command: delivered with its end, or requested."""
    delivered, command.output = command.output, None
    total = command.output_bytes
    if delivered is not None:
        yield OutputPage(delivered, total, ended=True, lost=False)
    elif total:
        async for page in pages(context, session, command, 0, whole=False):
            yield page


def _mark_cut(kept: dict[str, bytearray], count: int) -> None:
    """Inserts the number of missing bytes between the first and the last part of the output."""
    for data in kept.values():
        if data:
            data += f"\n[{count} bytes of output were cut here]\n".encode()


async def follow(
    context: Context, executions: Executions, session: Session, command: Command, after: int
) -> AsyncGenerator[Event | None]:
    """The output as it arrives, then the end of the command."""
    text = TextDecoder()
    position, cut, seconds = after, 0, None
    async with aclosing(pages(context, session, command, after, whole=not context.looks)) as found:
        async for page in found:
            for (name, offset, data), when in page.timed():
                cut += max(0, offset - position)
                position = offset + len(data)
                seconds = when if when is not None else seconds
                if (piece := text.feed(name, data)).text:
                    members: dict[str, Any] = {"cut": cut} if cut else {}
                    # A client that resumes here receives the split character as a whole.
                    event_id = position - text.pending(name)
                    members |= _members(piece, "text", "data_base64") | _time(when)
                    yield Event(name, OutputData(offset=offset, **members), event_id)
                    cut = 0
            after = page.next
            if not page.chunks and not page.ended:
                yield None
    for name, piece in text.finish():
        members = _members(piece, "text", "data_base64") | _time(seconds)
        yield Event(name, OutputData(offset=after, **members), after)
    result = await executions.wait(session, command)
    total = result.output_bytes
    if (cut := cut + total - position) > 0:
        yield Event("stdout", OutputData(offset=total, text="", cut=cut), total)
    told = {"time": result.time} if result.time else {}
    members = {"command_id": command.id, **exit_members(result), **told}
    yield Event("exit", ExitData.model_validate(members))


def page_text(page: OutputPage, *, final: bool) -> tuple[list[Output], int]:
    """A page as `{stream, offset, text}`, and the position to continue at.

    A character that is split at the end is left for the next page, unless the page is `final`.
    """
    chunks = [(*chunk, when) for chunk, when in page.timed() if chunk[0] in STREAMS]
    position = page.next
    if chunks and not final:
        name, offset, data, when = chunks[-1]
        cut = _incomplete(data)
        chunks[-1] = (name, offset, data[: len(data) - cut], when)
        position -= cut
    text = TextDecoder()
    pieces = [(name, offset, text.feed(name, data), when) for name, offset, data, when in chunks]
    last = chunks[-1][3] if chunks else None
    pieces += [(name, position, rest, last) for name, rest in text.finish()]
    outputs = [
        Output.model_validate(
            {"stream": name, "offset": offset, **_members(piece, "text", "data_base64")}
            | _time(when)
        )
        for name, offset, piece, when in pieces
        if piece.text
    ]
    return outputs, position


def _incomplete(data: bytes) -> int:
    """The number of bytes at the end that begin an incomplete UTF-8 character."""
    for count in range(1, min(_LONGEST_CHARACTER, len(data) + 1)):
        byte = data[-count]
        if byte >= 0xC0:
            length = 2 if byte < 0xE0 else 3 if byte < 0xF0 else 4
            return count if count < length else 0
        if byte < 0x80:
            return 0
    return 0


class Piece(NamedTuple):
    """A part of a stream: its text, and its bytes if these are not the text's UTF-8."""

    text: str
    data: bytes | None = None


class TextDecoder:
    """Decodes a command's streams, however they are split; invalid UTF-8 is replaced."""

    def __init__(self) -> None:
        make = codecs.getincrementaldecoder("utf-8")
        self._decoders = {name: make("replace") for name in STREAMS}

    def feed(self, name: str, data: bytes) -> Piece:
        """The characters that are complete now; empty for an unknown stream."""
        decoder = self._decoders.get(name)
        if decoder is None:
            return Piece("")
        before = decoder.getstate()[0]
        text = decoder.decode(data)
        if _REPLACED not in text:
            return Piece(text)
        whole = before + data
        # Whether bytes were replaced, or the command has printed the character itself.
        return _piece(whole[: len(whole) - self.pending(name)])

    def pending(self, name: str) -> int:
        """The number of bytes at the end of a stream that begin an incomplete character."""
        return len(self._decoders[name].getstate()[0])

    def finish(self) -> list[tuple[str, Piece]]:
        """The incomplete characters at the end, by stream."""
        found = []
        for name, decoder in self._decoders.items():
            rest = decoder.getstate()[0]
            if text := decoder.decode(b"", final=True):
                found.append((name, Piece(text, rest)))
        return found


def _piece(data: bytes | bytearray) -> Piece:
    try:
        return Piece(data.decode())
    except UnicodeDecodeError:
        return Piece(data.decode("utf-8", "replace"), bytes(data))


def _time(seconds: float | None) -> dict[str, str]:
    """When a piece was printed, as a member of an answer."""
    if seconds is None:
        return {}
    return {"time": time_text(datetime.fromtimestamp(seconds, UTC))}


def _members(piece: Piece, text: str, encoded: str) -> dict[str, Any]:
    """The members of a piece in an answer."""
    members: dict[str, Any] = {text: piece.text}
    if piece.data is not None:
        members[encoded] = base64.b64encode(piece.data).decode()
    return members
