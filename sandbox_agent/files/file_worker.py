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
from collections.abc import Mapping

from sandbox_agent.decide.errors import AgentError
from sandbox_agent.enforce import privileges
from sandbox_agent.files.file_methods import Cut, FileMethods, error_members
from sandbox_agent.files.places import Places
from sandbox_agent.files.refusals import refusal

HEADER = struct.Struct(">cI")


def run(
    agent: socket.socket,
    lock: int,
    uid: int,
    workspace: str,
    anywhere: bool,
    links: bool,
    volumes: Mapping[str, bool],
    cut: Cut,
) -> None:
    """Runs the worker; never returns. `cut` removes secrets from what is recorded.

    `lock` is a file that is locked while a file is replaced.
    """
    try:
        low, high = sorted((agent.fileno(), lock))
        os.closerange(3, low)
        os.closerange(low + 1, high)
        os.closerange(high + 1, os.sysconf("SC_OPEN_MAX"))
        privileges.default_signals()
        privileges.prefer_for_oom_kill()
        privileges.drop_to(uid)
        places = Places(workspace, anywhere=anywhere, links=links, volumes=volumes)
        _Worker(agent, FileMethods(places, lock, agent.fileno(), cut)).serve()
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

    def __init__(self, agent: socket.socket, methods: FileMethods) -> None:
        self._agent = agent
        self._methods = methods

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
                    self._answer_members(self._methods.push(payload))
                    continue
                request = json.loads(payload)
                path = str(request.get("path", request.get("source", "")))
                if request["method"] == "pull":
                    self._answer(b"D", self._methods.pull(request["limit"]))
                else:
                    self._answer_members(self._methods.perform(request))
            except OSError as error:
                self._fail(refusal(error, path))
            except AgentError as error:
                self._fail(error)
            except MemoryError:
                self._fail(AgentError("too_large", "the directory needs too much memory"))
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

    def _answer_members(self, members: dict[str, object]) -> None:
        self._answer(b"J", json.dumps(members).encode())

    def _fail(self, error: AgentError) -> None:
        self._answer_members({"error": error_members(error)})
