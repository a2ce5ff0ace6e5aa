"""The wire between the control plane and a sandbox agent.

JSON-RPC 2.0 in frames: a 4-byte big-endian length, then that many bytes of
UTF-8 JSON. The control plane listens on a UNIX socket in the sandbox's run
directory, the agent dials. Bytes travel as base64.

Host → agent, requests
    exec      {command_id, argv, cwd, env, secrets, stdin, stdin_open, timeout_ms, background,
              collect} → {}
              answered when the command has started; it ends with a `command.exit` event.
              `collect`: which has the output, too, where that is short
    output    {command_id, after, limit, wait_ms, looks, whole} → {chunks: [[stream, offset, data]],
              next, ended}  `looks`: somebody else than the command's caller, for whom it is kept;
              `whole`: also what is stored of long output
    output.restore {command_id, total, chunks: [[stream, data]]} → {stored}
              more of what a command of an earlier sandbox printed, of `total` bytes in all
    stdin     {command_id, data, close} → {}         answered when there is room for it
    signal    {command_id, signal} → {}
    cancel    {command_id, reason} → {}              TERM, then KILL after 2 s
    pty.open  {terminal_id, argv, env, needs: {execute, read, write, writable_code, ptrace}, rows,
               cols, terminator, sanitize, commands, max_line_bytes, lifetime_ms, idle_ms} → {}
              a program with a terminal of its own, confined as commands are but for what it
              needs; it ends with a `pty.exit` event. `commands`: the names that lines are sent
              under; null: anything
    pty.send  {terminal_id, command, text, files: {path: data}} → {mark}  one line, checked and
              terminated; `mark`: how many bytes the program had said before. `files`: copies that
              are there, and that nothing in the sandbox can change, until the next line or the end
    pty.read  {terminal_id, after, limit, wait_ms} → {data, next, waits, line_bytes, ended: null |
              {exit_code, signal, reason}}  lossless: what is before `after` was received; when so
              much is held that the terminal is not read, the program waits. `waits`: nothing is
              left to read and the program waits for input; `line_bytes`: how long a line may be
    pty.signal {terminal_id, signal} → {}
    pty.close {terminal_id, reason} → {}             HUP and TERM, then KILL after 2 s
    file.open {op: read|write|append, path, permissions, parents, links} → {stream, size,
              permissions, links}
              `permissions`: the nine bits that a written file gets; null: as the file that is
              there, else 0644; in the answer, those of a file that is read. `parents`:
              directories that are missing are made at the end. `links` false: what a link leads to
              is not read, and the answer says so, too. Paths of files are relative to
              the workspace; absolute ones are outside of it, which only levels that allow any
              command have
    file.pull {stream, limit} → {data, eof}
    file.push {stream, data} → {}
    file.close {stream, commit} → {bytes}
    file.list {path, depth, limit} → {entries: [Entry as object], truncated}
    file.stat {path} → Entry as object
    file.mkdir {path} → {}    file.delete {path} → {}    file.move {source, destination} → {}
    file.symlink {path, target} → {}
    secrets   {variables: {NAME: [value, seal]}, given: [[value, seal]]} → {}
              replaces what the session's commands get as variables, and what else was ever given
              to one: all of it is cut out of events and errors
    stats     {} → {running, terminals, finished, buffered_events, uptime_ms}
    shutdown  {reason, at_once} → {}    ends every command and terminal (with `at_once` by KILL
                                        alone), waits for the acknowledgement of their events

Host → agent, notifications
    ack       {seq}            every event up to and including seq is durable

Agent → host
    hello (request)  {protocol, boot_id, running, finished, terminals, landlock_abi, seccomp,
                      session_cpu_us, session_output_bytes, secrets} → {committed_seq}
    event (notification)  {boot_id, seq, operation, time, decision, rule, command_id, args, result,
                           error, duration_ms, output}

`secrets` of hello are those that the agent holds, in the form of the request; those of exec are
{NAME: [value, seal]}. A seal is the control plane's, and means nothing to the agent.

`output`, of a `command.exit`: [[stream, offset, data]], all that is kept. It is sent once: in an
event that is repeated it is missing, and asked for as it is of longer output.

`session_cpu_us` and `session_output_bytes`, also in the results of `command.exit` and `pty.exit`,
are what the whole session has used so far, earlier sandboxes included. `budget.exceeded` has the
args {kind, limit, consumed}, and comes before the ends of what it stopped.
"""

import json
import math
import struct
from typing import Any, NamedTuple

PROTOCOL_VERSION = 3
# One frame never needs more: bulk data travels in chunks of CHUNK_BYTES.
MAX_FRAME_BYTES = 4 * 1024 * 1024
CHUNK_BYTES = 256 * 1024
# Where copies of files are that a line of a terminal names: this, 16 hex digits, / and a name.
KEPT_PREFIX = "/tmp/.kept-"  # noqa: S108 - the directories are the agent's own
# Of output, in one answer: no message of very many values is read.
MOST_CHUNKS = 4096
# Of output that is told with a command's end.
MOST_TOLD_BYTES = 64 * 1024
MOST_TOLD_CHUNKS = 256
# Commands of one sandbox whose long output is stored.
MOST_STORED = 64
SOCKET_NAME = "control.sock"
BOOT_NAME = "boot.json"
RUN_DIR = "/run/paddock"
WORKSPACE_DIR = "/workspace"

# What an agent may report; the control plane refuses anything else from it.
AGENT_OPERATIONS = frozenset(
    {
        "command.exec",
        "command.exit",
        "budget.exceeded",
        "file.read",
        "file.write",
        "file.list",
        "file.delete",
        "file.mkdir",
        "file.move",
        "file.symlink",
        "pty.exit",
    }
)

# The kinds of a session's budget that its agent watches: CPU time in microseconds, and bytes.
CPU_BUDGET = "cpu_seconds"
OUTPUT_BUDGET = "output_bytes"
# Why a command was ended, where the session's budget was used up.
BUDGET_REASON = "budget_exceeded"

# So many programs of one command, or terminal, may run whose events are not acknowledged yet;
# and so often what is on record already may run again, where repeats are counted.
MOST_UNACKNOWLEDGED_EXECS = 8
MOST_UNACKNOWLEDGED_REPEATS = 128

_LENGTH = struct.Struct(">I")

Message = dict[str, Any]


class FrameError(ValueError):
    """The peer sent bytes that are not a frame of this protocol."""


class Confinement(NamedTuple):
    """What the kernel holds commands to, besides the sandbox's own mounts and limits."""

    # Landlock: only the commands' programs can be executed, and only what they need, the
    # workspace and /tmp read. Without it the read-only root is the boundary.
    paths: bool
    # More of the image that may be read, and executed: absolute paths of files or directories.
    read: list[str]
    execute: list[str]
    # Memory may be writable and executable at once, as just-in-time compilers want it.
    writable_code: bool
    # A command may trace its own children.
    ptrace: bool
    # Every program that a command executes in turn becomes an audit event.
    record_execs: bool


class Boot(NamedTuple):
    """What the control plane tells an agent before it starts (`boot.json` in the run directory)."""

    level: str
    uid: int
    # None: any command (high). Otherwise the names that may run.
    commands: list[str] | None
    # Names, or prefixes ending in `*`, of variables that a caller may set; None: any.
    environment: list[str] | None
    confinement: Confinement
    home: str
    cpus: float
    memory_bytes: int
    # Most processes of the session's uid, below the container's pids limit.
    processes: int
    output_bytes: int
    max_running: int
    # What the session used in earlier sandboxes, and its budget in all; None: unlimited.
    cpu_used_us: int = 0
    cpu_budget_us: int | None = None
    output_used_bytes: int = 0
    output_budget_bytes: int | None = None
    # Mounts that may be written to, besides the workspace.
    writable: tuple[str, ...] = ()
    # Where any command runs: words of those known to write are held to the workspace.
    guard_writes: bool = True


class Entry(NamedTuple):
    """One file as `file.list` and `file.stat` report it.

    `path` is workspace-relative with bytes that are not UTF-8 backslash-escaped;
    `type` is file, directory, symlink or other; `modified` is in seconds since the epoch.
    `target` is a symbolic link's text, None for all else and where it is not UTF-8.
    """

    path: str
    type: str
    size: int
    mode: int
    modified: float
    target: str | None = None


def encode(message: Message) -> bytes:
    """One frame. Raises: FrameError when the message is over MAX_FRAME_BYTES."""
    text = json.dumps(message, separators=(",", ":"), ensure_ascii=False)
    # Half a character can't be UTF-8; its backslash escape is the one that JSON has for it.
    body = text.encode("utf-8", "backslashreplace")
    if len(body) > MAX_FRAME_BYTES:
        raise FrameError(f"frame of {len(body)} bytes is over {MAX_FRAME_BYTES}")
    return _LENGTH.pack(len(body)) + body


class FrameDecoder:
    """Turns a stream of bytes, however it is cut, into messages."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> list[Message]:
        """The messages completed by `data`. Raises: FrameError; the connection is then useless."""
        self.add(data)
        messages: list[Message] = []
        while (body := self.take()) is not None:
            messages.append(parse(body))
        return messages

    def add(self, data: bytes) -> None:
        """Keeps what has arrived, for `take`."""
        self._buffer += data

    def take(self, most: int = MAX_FRAME_BYTES) -> bytes | None:
        """The next frame's body, once all of it is there.

        Raises: FrameError where it has over `most` bytes, as soon as that is known.
        """
        if len(self._buffer) < _LENGTH.size:
            return None
        (length,) = _LENGTH.unpack_from(self._buffer)
        if length > most:
            raise FrameError(f"frame of {length} bytes is over {most}")
        end = _LENGTH.size + length
        if len(self._buffer) < end:
            return None
        body = bytes(self._buffer[_LENGTH.size : end])
        del self._buffer[:end]
        return body


def parse(body: bytes) -> Message:
    """The message of one frame: JSON, whose numbers are finite. Raises: FrameError."""
    try:
        message = json.loads(body, parse_float=_finite, parse_constant=_finite)
    except (ValueError, RecursionError) as error:
        raise FrameError(f"frame is not JSON: {error}") from None
    if not isinstance(message, dict) or message.get("jsonrpc") != "2.0":
        raise FrameError("frame is not a JSON-RPC 2.0 object")
    return message


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"{text[:32]} is no number of JSON's")
    return number


def request(request_id: int, method: str, params: Message) -> Message:
    """A request, to be answered with `result` or `failure` of the same id."""
    return {"jsonrpc": "2.0", "id": request_id, "method": method, "params": params}


def notification(method: str, params: Message) -> Message:
    """A message that is not answered."""
    return {"jsonrpc": "2.0", "method": method, "params": params}


def result(request_id: Any, value: Message) -> Message:
    """The answer to a request that succeeded."""
    return {"jsonrpc": "2.0", "id": request_id, "result": value}


def failure(request_id: Any, code: str, message: str, rule: str | None = None) -> Message:
    """The answer to a request that failed; `code` is one of the API's error codes."""
    data = {"code": code, "rule": rule}
    return {
        "jsonrpc": "2.0",
        "id": request_id,
        "error": {"code": -32000, "message": message, "data": data},
    }
