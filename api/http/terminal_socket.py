"""Serves a terminal's WebSocket: sends what it shows, and types what its viewer sends."""

import asyncio
from typing import Any

from aiohttp import WSCloseCode, WSMsgType, web

from api.http.frames import Frames
from api.http.sockets import TERMINAL, begin, close, cut_off, send, socket_for
from api.operations.terminal_frames import frame, opened, wanted_size
from api.shape.answers import Attached
from orchestrator.ground.errors import BusyError, ConflictError, PaddockError
from orchestrator.ground.task_scope import TaskScope
from orchestrator.work.terminals.shells import Watched
from orchestrator.work.terminals.viewers import EndShown, Viewer

# One frame of a client; the next one is read when its bytes are typed.
MOST_FRAME_BYTES = 64 * 1024


async def serve(request: web.Request, answer: Attached[Any]) -> web.StreamResponse:
    """Returns when the terminal has ended, or its viewer is gone."""
    watched = answer.watched
    socket = socket_for(TERMINAL, MOST_FRAME_BYTES)
    scope = TaskScope("the viewer of a terminal")
    with answer.held:
        await begin(request, socket)
        try:
            writable = watched.shell is not None
            await socket.send_str(opened(watched.live, writable=writable).encode().decode())
            scope.spawn(_show(request, socket, watched.viewer))
            await _take(request, socket, watched)
        except ConnectionError:
            return socket
        except asyncio.CancelledError:
            # The control plane stops, or the credential is not valid any more.
            await close(socket, WSCloseCode.GOING_AWAY, "the connection is ended")
            raise
        finally:
            await scope.close()
    return socket


async def _show(request: web.Request, socket: web.WebSocketResponse, viewer: Viewer) -> None:
    """Sends what the terminal shows, until it has ended or the client is gone."""
    while True:
        shown = await viewer.next()
        data = frame(shown)
        try:
            await send(request, socket, data if isinstance(data, bytes) else data.encode().decode())
        except ConnectionError:
            return
        if isinstance(shown, EndShown):
            await close(socket, WSCloseCode.OK, "the terminal has ended")
            return


async def _take(request: web.Request, socket: web.WebSocketResponse, watched: Watched) -> None:
    """Types what the client sends, frame by frame, until the socket is closed.

    Raises: ConnectionError if the client is cut off or has gone.
    """
    frames = Frames(request, socket)
    while True:
        message = await frames.next()
        try:
            if message.type is WSMsgType.BINARY:
                await watched.type(message.data)
            elif message.type is WSMsgType.TEXT:
                await watched.resize(wanted_size(message.data))
            else:
                return
        except ConflictError as error:
            if not isinstance(error, BusyError):
                continue  # it has ended, and the viewer gets that as a frame
            await cut_off(request, socket, WSCloseCode.TRY_AGAIN_LATER, error.detail)
            return
        except PaddockError as error:
            code = _CODES.get(error.code, WSCloseCode.INTERNAL_ERROR)
            await cut_off(request, socket, code, error.detail)
            return


_CODES = {
    "validation_error": WSCloseCode.POLICY_VIOLATION,
    "permission_denied": WSCloseCode.POLICY_VIOLATION,
}
