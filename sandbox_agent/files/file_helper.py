"""The agent's side of a file worker, a separate process that runs as the session's user."""

import json
import os
import signal
import socket
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any

from sandbox_agent.core.loop import READ, WRITE, Loop, Timer
from sandbox_agent.decide.excerpts import LONGEST_PATHS, LONGEST_TEXT, MOST_PATHS, json_size
from sandbox_agent.decide.protocol import CHUNK_BYTES, MAX_FRAME_BYTES
from sandbox_agent.enforce import signalling
from sandbox_agent.files import file_worker
from sandbox_agent.files.file_worker import HEADER

# A helper that has not answered within this time is killed, and the request fails.
ANSWER_SECONDS = 30.0
# The members of an answer that are checked here; the control plane checks the rest.
_FORMS = {
    **{"error": dict, "entries": list, "size": int, "bytes": int},
    **{"summary": dict, "more": bool, "digests": list, "changes": list, "ended": bool},
    **{"matches": list, "files": int, "skipped": int, "truncated": bool, "removed": int},
    **{"patched": list, "rejects": list, "copied": dict},
}
# The members of an archive's summary, by their type.
_COUNTS = ("files", "directories", "links", "bytes", "paths_words", "skipped")
_MOST_COUNT = 2**53
_LISTS = ("paths", "skipped_names")
_TEXTS = ("paths_sha256",)
_Answer = Callable[[dict[str, Any], bytes], None]


class FileHelper:
    """The agent's side of one file worker, which answers requests in their order.

    Raises: OSError from the constructor if no process can be created.
    """

    def __init__(
        self,
        loop: Loop,
        uid: int,
        workspace: str,
        anywhere: bool,
        links: bool,
        volumes: Mapping[str, bool],
        cut: Callable[[str], str],
        on_end: "Callable[[FileHelper], None]",
        lock: int,
    ) -> None:
        """`lock` is a file that all workers lock while they replace a file.

        `volumes` says by path whether the session may write to a volume.
        """
        self._loop = loop
        self._uid = uid
        ours, theirs = socket.socketpair()
        try:
            self._pid = os.fork()
        except OSError:
            ours.close()
            theirs.close()
            raise
        if self._pid == 0:
            file_worker.run(theirs, lock, uid, workspace, anywhere, links, volumes, cut)
        theirs.close()
        ours.setblocking(False)
        self._socket: socket.socket | None = ours
        self._received = bytearray()
        self._unsent = bytearray()
        # The callbacks of the requests that are not answered yet, in their order.
        self._answers: deque[_Answer] = deque()
        self._timer: Timer | None = None
        self._on_end = on_end
        loop.on_exit(self._pid, self._ended)
        loop.watch(ours.fileno(), READ, self._on_ready)

    @property
    def requests(self) -> int:
        """How many requests are under way."""
        return len(self._answers)

    def ask(self, request: Any, answer: _Answer) -> None:
        """Sends a JSON request; `answer` receives (the answer's members, b"") or ({}, bytes)."""
        self._send(b"J", json.dumps(request).encode(), answer)

    def push(self, data: bytes, answer: _Answer) -> None:
        """Sends bytes for the file that is being written."""
        self._send(b"D", data, answer)

    def _send(self, kind: bytes, payload: bytes, answer: _Answer) -> None:
        self._answers.append(answer)
        if self._timer is None:
            self._timer = self._loop.after(ANSWER_SECONDS, self._kill)
        self._unsent += HEADER.pack(kind, len(payload)) + payload
        self._flush()

    def _flush(self) -> None:
        if self._socket is None:
            return
        try:
            while self._unsent:
                del self._unsent[: self._socket.send(self._unsent)]
        except BlockingIOError:
            self._loop.watch(self._socket.fileno(), READ | WRITE, self._on_ready)
            return
        except OSError:
            self._ended()
            return
        self._loop.watch(self._socket.fileno(), READ, self._on_ready)

    def _on_ready(self, events: int) -> None:
        if events & WRITE:
            self._flush()
        if not events & READ or self._socket is None:
            return
        try:
            data = self._socket.recv(CHUNK_BYTES + HEADER.size)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self._ended()
            return
        self._received += data
        while self._socket is not None and len(self._received) >= HEADER.size:
            kind, length = HEADER.unpack_from(self._received)
            end = HEADER.size + length
            if length > MAX_FRAME_BYTES:
                self._kill()
                return
            if len(self._received) < end:
                return
            with memoryview(self._received) as received:
                payload = bytes(received[HEADER.size : end])
            del self._received[:end]
            self._take(kind, payload)

    def _take(self, kind: bytes, payload: bytes) -> None:
        """Handles an answer, which may be anything: commands run as the same user."""
        if not self._answers:
            self._kill()  # there is no request that it could answer
            return
        if kind == b"D":
            self._deliver({}, payload)
            return
        try:
            members = parse_answer(payload)
        except ValueError:
            self._kill()
        else:
            self._deliver(members, b"")

    def _deliver(self, members: dict[str, Any], data: bytes) -> None:
        answer = self._answers.popleft()
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.after(ANSWER_SECONDS, self._kill) if self._answers else None
        answer(members, data)

    def _ended(self) -> None:
        """Fails the unanswered requests, because the process is gone or closing."""
        if self._socket is None:
            return
        self._loop.unwatch(self._socket.fileno())
        self._socket.close()
        self._socket = None
        while self._answers:
            message = "the file operation did not finish"
            self._deliver({"error": {"code": "conflict", "message": message}}, b"")
        self._on_end(self)

    def close(self) -> None:
        """Ends the process, which rolls back what was not committed."""
        self._ended()

    def _kill(self) -> None:
        signalling.kill_as(self._uid, self._pid, signal.SIGKILL)
        self._ended()


def parse_answer(payload: bytes) -> dict[str, Any]:
    """The members of a worker's JSON answer. Raises: ValueError if it is malformed."""
    try:
        members = json.loads(payload)
    except RecursionError:
        raise ValueError("nested too deep") from None
    if not isinstance(members, dict):
        raise ValueError("not an object")
    for name, form in _FORMS.items():
        if not isinstance(members.get(name, form()), form):
            raise ValueError(f"{name} has the wrong type")
    _check_summary(members.get("summary", {}))
    if not all(each is None or isinstance(each, str) for each in members.get("digests", [])):
        raise ValueError("digests has something that is no digest")
    return members


def _check_summary(summary: dict[str, Any]) -> None:
    """Raises: ValueError for a summary that an event can't have."""
    if not {*_COUNTS, *_LISTS, *_TEXTS}.issuperset(summary):
        raise ValueError("the summary has unknown members")
    for name, value in summary.items():
        texts = [value] if name in _TEXTS else value
        if name in _COUNTS:
            if type(value) is not int or not 0 <= value < _MOST_COUNT:
                raise ValueError(f"{name} is no count")
        elif not isinstance(texts, list) or len(texts) > MOST_PATHS:
            raise ValueError(f"{name} is no list")
        elif not all(isinstance(text, str) and len(text) <= LONGEST_TEXT for text in texts):
            raise ValueError(f"{name} has something that is no path")
        elif sum(map(json_size, texts)) > LONGEST_PATHS:
            raise ValueError(f"{name} is too long")
