"""Terminals of `process.Process`: shells of the session, whose viewers the callers are."""

import base64

from api.compat.e2b.inside.access import Inside
from api.compat.e2b.inside.messages import Size as AskedSize
from api.compat.e2b.inside.messages import Start
from api.compat.e2b.inside.numbers import number_of
from api.compat.e2b.inside.rpc import Answer, Answers
from api.compat.e2b.inside.started import Started
from orchestrator.ground.errors import SandboxUnavailableError
from orchestrator.work.terminals.open_terminal import OpenTerminal
from orchestrator.work.terminals.viewers import EndShown, Size

_USUAL = Size(80, 24)
_PIECE = 64 * 1024


async def start(inside: Inside, given: Start, size: AskedSize) -> Answers:
    """Opens a shell and shows it. If the caller leaves, it stays. Raises: as `Shells.open`."""
    process, context = given.process, inside.context
    with context.streaming("terminals", inside.session):
        async with inside.kept():
            live = await context.work.complete(
                inside.plane.shells.open(
                    context.principal,
                    inside.session,
                    _size(size),
                    env=process.envs,
                    cwd=None if process.cwd is None else inside.path(process.cwd),
                )
            )
        context.kept.of(Started).note(inside.session, live.id, given)
        async for each in _shown(inside, live, held=True):
            yield each


async def connect(inside: Inside, live: OpenTerminal) -> Answers:
    """Shows a terminal from now on."""
    with inside.context.streaming("terminals", inside.session):
        async for each in _shown(inside, live, held=False):
            yield each


async def _shown(inside: Inside, live: OpenTerminal, *, held: bool) -> Answers:
    with inside.plane.shells.watching(live, types=True, held=held) as watched:
        yield {"event": {"start": {"pid": number_of(live.id)}}}
        while True:
            match await watched.viewer.next():
                case bytes() as data:
                    yield {"event": {"data": {"pty": base64.b64encode(data).decode()}}}
                case EndShown() as ended:
                    yield {"event": {"end": _ending(ended)}}
                    return
                case _:
                    continue


def _ending(shown: EndShown) -> Answer:
    ended = shown.exit
    if ended is None:
        raise SandboxUnavailableError(f"the terminal has ended: {shown.reason}")
    if ended.signal is not None or ended.exit_code is None:
        status = f"signal: {ended.signal or shown.reason}"
        return {"exitCode": -1, "exited": False, "status": status, "error": status}
    status = f"exit status {ended.exit_code}"
    end: Answer = {"exitCode": ended.exit_code, "exited": True, "status": status}
    return end if ended.exit_code == 0 else {**end, "error": status}


async def type_into(inside: Inside, live: OpenTerminal, data: bytes) -> None:
    """Types bytes. Raises: as `Watched.type`."""
    with inside.plane.shells.watching(live, types=True, held=False) as watched:
        for at in range(0, len(data), _PIECE):
            await inside.context.work.complete(watched.type(data[at : at + _PIECE]))


async def resize(inside: Inside, live: OpenTerminal, size: AskedSize) -> None:
    """Gives the terminal another size. Raises: as `Watched.resize`."""
    with inside.plane.shells.watching(live, types=True, held=False) as watched:
        await inside.context.work.complete(watched.resize(_size(size)))


async def end(inside: Inside, live: OpenTerminal) -> None:
    """Ends the terminal and what runs in it. Raises: as `Terminals.close`."""
    closing = inside.plane.terminals.close(inside.session, live.id)
    await inside.context.work.complete(closing)


def _size(asked: AskedSize) -> Size:
    return Size(asked.cols or _USUAL.columns, asked.rows or _USUAL.rows)
