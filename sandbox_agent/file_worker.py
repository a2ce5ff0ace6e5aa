"""Runs file operations in a separate process as the session's user.

The agent and the worker talk over a stream socket in frames: one byte of kind, four of length.

    J  JSON: a request, an answer, or {"error": {code, message, rule}}
    D  bytes of a file
"""

import json
import os
import socket
import struct
import sys
from typing import Any

from sandbox_agent import files
from sandbox_agent.confine import privileges
from sandbox_agent.errors import AgentError
from sandbox_agent.places import Place, Places
from sandbox_agent.protocol import Entry

HEADER = struct.Struct(">cI")

_File = files.Reader | files.Writer | files.Appender


def run(agent: socket.socket, uid: int, workspace: str, anywhere: bool) -> None:
    """Runs the worker; never returns."""
    try:
        os.closerange(3, agent.fileno())
        os.closerange(agent.fileno() + 1, os.sysconf("SC_OPEN_MAX"))
        privileges.default_signals()
        privileges.prefer_for_oom_kill()
        privileges.drop_to(uid)
        _Worker(agent, Places(workspace, anywhere=anywhere)).serve()
    except ConnectionError:
        pass  # the agent no longer wants the answer
    except BaseException as error:  # noqa: BLE001 - a child must never reach its parent's loop
        # The error itself is not printed: it may contain a path, and a path may contain a secret.
        number = getattr(error, "errno", None)
        print(f"file worker failed: {type(error).__name__} {number}", file=sys.stderr, flush=True)
    finally:
        os._exit(0)


class _Worker:
    """Answers requests until the agent closes the socket."""

    def __init__(self, agent: socket.socket, places: Places) -> None:
        self._agent = agent
        self._places = places
        self._open: _File | None = None

    def serve(self) -> None:
        while True:
            header = self._receive(HEADER.size)
            if not header:
                break
            kind, length = HEADER.unpack(header)
            payload = self._receive(length)
            path = ""
            try:
                if kind == b"D":
                    self._pushing().push(payload)
                    self._answer(b"J", b"{}")
                    continue
                request = json.loads(payload)
                path = request.get("path", request.get("source", ""))
                self._handle(request)
            except OSError as error:
                self._fail(files.refusal(error, path))
            except AgentError as error:
                self._fail(error)
            except (LookupError, TypeError, ValueError):
                self._fail(AgentError("validation_error", "not a file operation"))

    def _receive(self, count: int) -> bytes:
        data = bytearray()
        while len(data) < count:
            part = self._agent.recv(count - len(data))
            if not part:
                return b""
            data += part
        return bytes(data)

    def _answer(self, kind: bytes, payload: bytes) -> None:
        self._agent.sendall(HEADER.pack(kind, len(payload)) + payload)

    def _fail(self, error: AgentError) -> None:
        body = {"code": error.code, "message": error.message, "rule": error.rule}
        self._answer(b"J", json.dumps({"error": body}).encode())

    def _pushing(self) -> "files.Writer | files.Appender":
        if not isinstance(self._open, files.Writer | files.Appender):
            raise AgentError("conflict", "no file is open for writing")
        return self._open

    def _handle(self, request: dict[str, Any]) -> None:
        method = request["method"]
        if method == "pull":
            if not isinstance(self._open, files.Reader):
                raise AgentError("conflict", "no file is open for reading")
            self._answer(b"D", self._open.pull(request["limit"]))
            return
        self._answer(b"J", json.dumps(self._perform(method, request)).encode())

    def _perform(self, method: str, request: dict[str, Any]) -> dict[str, Any]:
        if method == "commit":
            writer = self._pushing()
            writer.commit()
            self._open = None
            return {"bytes": writer.size}
        if method == "move":
            names = request["source"], request["destination"]
            files.move(*(self._places.find(name, writes=True) for name in names))
            return {}
        reads = method in ("read", "list", "stat")
        place, path = self._places.find(request.get("path", ""), writes=not reads)
        if method == "read":
            self._open = files.Reader(place, path, links=request.get("links") is not False)
            return {"size": self._open.size, "permissions": self._open.permissions}
        parents = bool(request.get("parents"))
        if method == "write":
            self._open = files.Writer(place, path, request.get("permissions"), parents=parents)
            return {"size": 0}
        if method == "append":
            self._open = files.Appender(place, path, parents=parents)
            return {"size": 0}
        if method == "list":
            entries, cut = files.list_entries(place, path, request["depth"], request["limit"])
            return {"entries": [_shown(place, entry) for entry in entries], "truncated": cut}
        if method == "stat":
            return _shown(place, files.stat_entry(place, path))
        if method == "mkdir":
            files.make_directory(place, path)
        elif method == "delete":
            files.delete(place, path)
        elif method == "symlink":
            files.make_link(place, path, request["target"])
        else:
            raise AgentError("validation_error", f"unknown file operation: {method}")
        return {}


def _shown(place: Place, entry: Entry) -> dict[str, Any]:
    """An entry with its path relative to the workspace, or absolute."""
    members = entry._asdict()
    if place.image:
        members["path"] = "/" + ("" if entry.path == "." else entry.path.lstrip("/"))
    return members
