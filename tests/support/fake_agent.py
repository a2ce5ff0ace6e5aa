"""A sandbox agent in this process, for tests: it speaks the protocol and follows a script."""

import asyncio
import base64
import hashlib
import os
import secrets
import tarfile
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from orchestrator.host.engine.base import SandboxSpec
from sandbox_agent.decide.files import hunks, patches, ranges
from sandbox_agent.decide.frames import FrameDecoder, encode, failure, notification, request, result
from sandbox_agent.decide.protocol import (
    MOST_EVENT_OUTPUT_BYTES,
    MOST_EVENT_OUTPUT_CHUNKS,
    PROTOCOL_VERSION,
    RUN_DIR,
    SOCKET_NAME,
    Message,
)
from tests.support.archives import Entry
from tests.support.fake_archives import packed, summary, unpacked
from tests.support.fake_ports import FakePorts
from tests.support.fake_terminals import FakeTerminals
from tests.support.limits import WAIT_SECONDS

# Prints something to a stream of a command.
Print = Callable[[str, bytes], None]


@dataclass
class Play:
    """A command's script: output and end. With `holds` it runs until it is ended.

    `fed` and `signalled` react to its standard input and to signals, which else end it.
    """

    stdout: bytes = b""
    stderr: bytes = b""
    exit_code: int = 0
    holds: bool = False
    chunks: list[tuple[str, bytes]] = field(default_factory=list)
    fed: Callable[[Print, bytes], None] | None = None
    signalled: Callable[[Print, int], None] | None = None


@dataclass
class _Running:
    params: Message
    play: Play
    chunks: list[tuple[str, int, bytes]] = field(default_factory=list)
    total: int = 0
    result: Message | None = None
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    started: float = field(default_factory=time.time)

    def print(self, stream: str, data: bytes) -> None:
        if data:
            self.chunks.append((stream, self.total, data))
            self.total += len(data)
            self.wake()

    def wake(self) -> None:
        self.changed.set()
        self.changed = asyncio.Event()


class AgentRefusalError(Exception):
    """An error answer."""

    def __init__(self, code: str, message: str, rule: str | None = None) -> None:
        super().__init__(message)
        self.code, self.rule = code, rule


class FakeAgent:
    """One sandbox's agent. `plays` are found by the command's first word."""

    def __init__(
        self, plays: dict[str, Play], files: dict[str, bytes], said: Message | None = None
    ) -> None:
        """`said` overrides members of its hello."""
        self.said = said or {}
        self.boot_id = secrets.token_hex(8)
        self.plays = plays
        self.files = files
        self.requests: list[tuple[str, Message]] = []
        self._asked = asyncio.Event()
        # What it was configured with; None until it was.
        self.configuration: Message | None = None
        # In the form of the request with that name.
        self.secrets: Message = {"variables": {}, "given": []}
        self.stdin: dict[str, bytes] = {}
        self.acknowledged = 0
        # Whether the ends of commands include their output.
        self.tells_output = True
        # While this is not set, it is frozen: it answers nothing.
        self.thawed = asyncio.Event()
        self.thawed.set()
        # What the present request says of its caller.
        self._asker: str | None = None
        # Called instead of the method's own answer.
        self.overrides: dict[str, Callable[[Message], Message]] = {}
        self._running: dict[str, _Running] = {}
        self.terminals = FakeTerminals(self.emit)
        # Commands that wait for their word; `requests` has them once it was `go`.
        self._held: dict[str, Message] = {}
        self._streams: dict[int, tuple[str, str, bytearray]] = {}
        # By path: permissions of files that have some, and link targets.
        self.permissions: dict[str, int] = {}
        self.links: dict[str, str] = {}
        # By path: the times that were given.
        self.modified: dict[str, int] = {}
        # Those that are known: an archive named them.
        self.directories: set[str] = set()
        self.ports = FakePorts()
        # By path: the attributes of files that have some.
        self.attributes: dict[str, dict[str, str]] = {}
        # What watches tell next, and whether that is all.
        self.changes: list[Message] = []
        self.changed = asyncio.Event()
        self.watch_ends = False
        self._opened = 0
        self._seq = 0
        self._writer: asyncio.StreamWriter | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    async def dial(self, run_dir: Path) -> None:
        self.ports.directory = run_dir.parent / "ports"
        directory = os.open(run_dir, os.O_PATH | os.O_DIRECTORY)
        try:
            # By descriptor, because a temporary directory's path may be too long for a socket.
            path = f"/proc/self/fd/{directory}/{SOCKET_NAME}"
            reader, self._writer = await asyncio.open_unix_connection(path)
        finally:
            os.close(directory)
        hello = {
            "protocol": PROTOCOL_VERSION,
            "boot_id": self.boot_id,
            "configured": self.configuration is not None,
            "running": list(self._running),
            "finished": [],
            "terminals": self.terminals.running,
            "landlock_abi": 7,
            "seccomp": True,
            "undisturbed": True,
            "mdwe": True,
            "compiled_guard": True,
            "secrets": self.secrets,
            **self.said,
        }
        self._send(request(0, "hello", hello))
        self._spawn(self._serve(reader))

    async def close(self) -> None:
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._writer is not None:
            self._writer.close()
            with suppress(OSError):
                await self._writer.wait_closed()

    async def asked(self, method: str) -> Message:
        """Waits for the first request of that method; returns its parameters."""
        async with asyncio.timeout(WAIT_SECONDS):
            while True:
                for name, params in self.requests:
                    if name == method:
                        return params
                await self._asked.wait()

    def emit(self, operation: str, **members: Any) -> None:
        self._seq += 1
        if operation.startswith("file.") and self._asker is not None:
            members["args"] = {**members["args"], "asker": self._asker}
        event = {
            "boot_id": self.boot_id,
            "seq": self._seq,
            "operation": operation,
            "time": time.time(),
            "decision": "allow",
            "rule": None,
            "command_id": None,
            "args": {},
            "result": None,
            "error": None,
            "duration_ms": 1,
            **members,
        }
        self._send(notification("event", event))

    def print(self, command_id: str, stream: str, data: bytes) -> None:
        """Makes the command print something."""
        self._running[command_id].print(stream, data)

    def end(self, command_id: str, exit_code: int = 0, **members: Any) -> None:
        """Makes the command end."""
        running = self._running[command_id]
        if running.result is not None:
            return
        running.result = {
            "exit_code": exit_code,
            "signal": None,
            "timed_out": False,
            "reason": None,
            "truncated": False,
            "cut_bytes": 0,
            "stored_bytes": 0,
            "output_bytes": running.total,
            "leftover_killed": 0,
            "duration_us": 1000,
            **members,
        }
        told: Message = {}
        short = (
            running.total <= MOST_EVENT_OUTPUT_BYTES
            and len(running.chunks) <= MOST_EVENT_OUTPUT_CHUNKS
        )
        if running.params.get("collect") and short and self.tells_output:
            told["output"] = [
                [stream, offset, base64.b64encode(data).decode()]
                for stream, offset, data in running.chunks
            ]
        members = {"command_id": command_id, "decision": None, "result": running.result, **told}
        self.emit("command.exit", **members)
        running.wake()

    def _spawn(self, work: Any) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _send(self, message: Message) -> None:
        if self._writer is not None:
            self._writer.write(encode(message))

    async def _serve(self, reader: asyncio.StreamReader) -> None:
        decoder = FrameDecoder()
        while data := await reader.read(1024 * 1024):
            for message in decoder.feed(data):
                if message.get("method") == "ack":
                    self.acknowledged = message["params"]["seq"]
                elif message.get("method") in ("go", "drop"):
                    self._take_word(message["method"], message["params"]["command_id"])
                elif message.get("params", {}).get("held"):
                    self._held[message["params"]["command_id"]] = message
                elif "method" in message:
                    self._spawn(self._answer(message))

    def _take_word(self, word: str, command_id: str) -> None:
        message = self._held.pop(command_id)
        if word == "go":
            self._spawn(self._answer(message))

    async def _answer(self, message: Message) -> None:
        await self.thawed.wait()
        method, params = message["method"], message["params"]
        self._asker = params.get("asker", self._asker)
        if method != "configure":  # what it was told is in `configuration`
            self.requests.append((method, params))
        self._asked.set()
        self._asked = asyncio.Event()
        try:
            if method in self.overrides:
                value = self.overrides[method](params)
            elif method.startswith("pty."):
                value = await self.terminals.answer(method, params)
            else:
                value = await getattr(self, "_on_" + method.replace(".", "_"))(params)
        except AgentRefusalError as error:
            self._send(failure(message["id"], error.code, str(error), error.rule))
        else:
            self._send(result(message["id"], value))

    async def _on_prepare(self, params: Message) -> Message:
        return {}

    async def _on_configure(self, params: Message) -> Message:
        if self.configuration is not None:
            raise AgentRefusalError("conflict", "the sandbox is already configured")
        self.configuration = params
        return {}

    async def _on_vouch(self, params: Message) -> Message:
        return {"now_ms": int(time.clock_gettime(time.CLOCK_BOOTTIME) * 1000)}

    async def _on_secrets(self, params: Message) -> Message:
        self.secrets = params
        return {}

    # Commands

    async def _on_exec(self, params: Message) -> Message:
        command_id, argv = params["command_id"], params["argv"]
        play = self.plays.get(argv[0], Play())
        self.secrets["given"] += params["secrets"].values()
        running = self._running[command_id] = _Running(params, play)
        running.print("stdout", play.stdout)
        running.print("stderr", play.stderr)
        for stream, data in play.chunks:
            running.print(stream, data)
        if not play.holds:
            self.end(command_id, play.exit_code)
        return {}

    async def _on_output(self, params: Message) -> Message:
        running = self._running.get(params["command_id"])
        if running is None:
            raise AgentRefusalError("not_found", "the output is no longer kept")
        after, deadline = params["after"], params["wait_ms"] / 1000
        with suppress(TimeoutError):
            async with asyncio.timeout(deadline):
                while running.total <= after and running.result is None and deadline:
                    await running.changed.wait()
        chunks: list[list[Any]] = [
            [stream, max(offset, after), base64.b64encode(data[max(0, after - offset) :]).decode()]
            for stream, offset, data in running.chunks
            if offset + len(data) > after
        ]
        if params.get("times"):
            for chunk in chunks:
                chunk.append(running.started)
        following = max(after, running.total)
        return {"chunks": chunks, "next": following, "ended": running.result is not None}

    async def _on_stdin(self, params: Message) -> Message:
        command_id = params["command_id"]
        if command_id not in self._running:
            raise AgentRefusalError("conflict", "the command's standard input is closed or full")
        data = base64.b64decode(params["data"])
        self.stdin[command_id] = self.stdin.get(command_id, b"") + data
        running = self._running[command_id]
        if running.play.fed is not None:
            running.play.fed(running.print, data)
        if params["close"]:
            self.end(command_id)
        return {}

    async def _on_signal(self, params: Message) -> Message:
        if params["command_id"] not in self._running:
            raise AgentRefusalError("not_found", f"command {params['command_id']} does not run")
        running = self._running[params["command_id"]]
        if running.play.signalled is not None:
            running.play.signalled(running.print, params["signal"])
            return {}
        self.end(params["command_id"], 128 + params["signal"], signal=str(params["signal"]))
        return {}

    async def _on_cancel(self, params: Message) -> Message:
        if params["command_id"] in self._running:
            self.end(params["command_id"], 143, signal="SIGTERM", reason=params["reason"])
        return {}

    async def _on_programs(self, _params: Message) -> Message:
        return {"absent": []}

    async def _on_ports(self, _params: Message) -> Message:
        self.ports.start()
        return {}

    async def _on_stats(self, _params: Message) -> Message:
        running = [key for key, command in self._running.items() if command.result is None]
        return {"running": running, "finished": [], "buffered_events": 0, "uptime_ms": 1}

    async def _on_shutdown(self, params: Message) -> Message:
        for command_id in self._running:
            self.end(command_id, 143, signal="SIGTERM", reason=params["reason"])
        for terminal_id in self.terminals.running:
            self.terminals.end(terminal_id, 143, params["reason"])
        return {}

    # Files

    async def _on_file_open(self, params: Message) -> Message:
        path, mode = params["path"], params["op"]
        if mode == "read" and any(name.startswith(f"{path}/") for name in self.files):
            raise AgentRefusalError("conflict", f"is a directory, not a file: {path}")
        if mode == "read" and path not in self.files:
            self.emit("file.read", args={"path": path}, error="not found")
            raise AgentRefusalError("not_found", f"No such file or directory: {path}")
        content = bytearray(self.files[path] if mode == "read" else b"")
        told: Message = {}
        if mode == "pack":
            content[:], told["summary"] = packed(path, params["format"], self._entries())
            self.emit("file.pack", args={"path": path}, result={"files": len(self.files)})
        if mode == "write":
            self.attributes[path] = params.get("attributes") or {}
        if params.get("permissions") is not None:
            self.permissions[path] = params["permissions"]
        if params.get("modified") is not None:
            self.modified[path] = params["modified"]
        self._check_version(params)
        self._opened += 1
        number = self._opened
        self._streams[number] = (path, mode, content)
        if mode == "watch":
            self.emit("file.watch", args={"path": path})
        if mode == "read":
            self.emit("file.read", args={"path": path}, result={"bytes": len(content)})
        answer = {"stream": number, "size": len(content), **told}
        if params.get("links") is False:
            answer["links"] = False
        if mode == "read":
            answer["permissions"] = self.permissions.get(path, 0o644)
            answer["modified"] = self.modified.get(path)
            answer["version"] = version_of(self.files[path])
            if "range" in params:
                start, length = ranges.part(len(content), *params["range"]) or (0, 0)
                if not length:
                    raise AgentRefusalError("range_not_satisfiable", f"{len(content)} bytes")
                content[:] = content[start : start + length]
                answer |= {"start": start, "length": length}
        return answer

    async def _on_file_pull(self, params: Message) -> Message:
        content = self._streams[params["stream"]][2]
        data = bytes(content[: params["limit"]])
        del content[: params["limit"]]
        return {"data": data}

    async def _on_file_push(self, params: Message) -> Message:
        content = self._streams[params["stream"]][2]
        content += params["data"]
        return {}

    async def _on_file_close(self, params: Message) -> Message:
        stream = self._streams.pop(params["stream"], None)
        if stream is None or not params["commit"]:
            return {"bytes": 0}
        path, mode, content = stream
        if mode == "unpack":
            try:
                return self._unpack(unpacked(path, bytes(content)))
            except tarfile.TarError as error:
                self.emit("file.unpack", args={"path": path}, error="damaged")
                raise AgentRefusalError("validation_error", f"damaged: {error}") from None
        before = self.files.get(path, b"") if mode == "append" else b""
        self.files[path] = before + bytes(content)
        self.emit("file.write", args={"path": path}, result={"bytes": len(content)})
        return {"bytes": len(content), "version": version_of(self.files[path])}

    def _entries(self) -> list[Entry]:
        """Everything in the workspace; directories are known only by what is in them."""
        files = [
            Entry(path, data, mode=self.permissions.get(path, 0o644))
            for path, data in sorted(self.files.items())
        ]
        return files + [Entry(path, b"", "symlink", 0o777, to) for path, to in self.links.items()]

    def _unpack(self, entries: list[Entry]) -> Message:
        for entry in entries:
            if entry.kind == "symlink":
                self.links[entry.name] = entry.target
            elif entry.kind == "directory":
                self.directories.add(entry.name)
            else:
                self.files[entry.name] = entry.content
                self.permissions[entry.name] = entry.mode
        told = summary(entries)
        self.emit("file.unpack", args={}, result=told)
        return {"bytes": 0, "more": False, "summary": told}

    async def _on_file_digest(self, params: Message) -> Message:
        known = [self.files.get(path) for path in params["paths"]]
        return {"digests": [d and hashlib.sha256(d).hexdigest() for d in known]}

    async def _on_file_list(self, params: Message) -> Message:
        self.emit("file.list", args={"path": params["path"]})
        modes = dict.fromkeys(self.files, 0o644) | self.permissions
        entries: list[Message] = [
            {"path": path, "type": "file", "size": len(data), "mode": modes[path], "modified": 1.5}
            for path, data in sorted(self.files.items())
        ]
        entries += [
            {"path": path, "type": "symlink", "size": 1, "mode": 0o777, "modified": 1.5}
            | {"target": target}
            for path, target in sorted(self.links.items())
        ]
        return {"entries": entries, "truncated": False}

    async def _on_file_symlink(self, params: Message) -> Message:
        self.links[params["path"]] = params["target"]
        self.emit("file.symlink", args=params)
        return {}

    async def _on_file_mkdir(self, params: Message) -> Message:
        self.emit("file.mkdir", args={"path": params["path"]})
        return {}

    def _check_version(self, params: Message) -> None:
        content = self.files.get(params["path"])
        found = None if content is None else version_of(content)
        if not ranges.meets(found, params.get("match"), params.get("none_match")):
            raise AgentRefusalError("precondition_failed", f"another version: {params['path']}")

    async def _on_file_stat(self, params: Message) -> Message:
        path = params["path"]
        known = self.files.get(path)
        if path in self.directories:
            self.emit("file.stat", args={"path": path})
            return {
                **{"path": path, "type": "directory", "size": 0, "mode": 0o755},
                **{"modified": 1.5, "version": version_of(b"")},
            }
        self.emit("file.stat", args={"path": path}, error=None if known else "not found")
        if known is None:
            raise AgentRefusalError("not_found", f"No such file or directory: {path}")
        facts: Message = {"mode": self.permissions.get(path, 0o644), "modified": 1.5}
        prefix = params.get("attributes")
        if prefix is not None:
            named = self.attributes.get(path, {}).items()
            facts["attributes"] = {name.removeprefix(prefix): value for name, value in named}
        return {"path": path, "type": "file", "size": len(known), **facts} | {
            "version": version_of(known)
        }

    async def _on_file_search(self, params: Message) -> Message:
        self.emit("file.search", args={"path": params["path"], "text": params["text"]})
        matches = [
            {"path": path, "line": number, "text": line}
            for path, data in sorted(self.files.items())
            for number, line in enumerate(data.decode(errors="replace").splitlines(), 1)
            if params["text"] in line
        ]
        found = matches[: params["limit"]]
        counts = {"files": len(self.files), "skipped": 0, "truncated": len(found) < len(matches)}
        return {"matches": found, **counts}

    async def _on_file_patch(self, params: Message) -> Message:
        names = params["names"]
        self.emit("file.patch", args={"paths": sorted(names.values())})
        done, rejects = dict(self.files), []
        patched = []
        for each in patches.parse(params["patch"]):
            path = names[each.path]
            before = done.get(names.get(each.old or "", ""), b"")
            content, refused, _ = hunks.applied(before, each.hunks, path)
            rejects += [reject._asdict() for reject in refused]
            done[path] = content
            action = "create" if each.old is None else "write"
            patched.append({"path": path, "action": action, "hunks": len(each.hunks)})
        if rejects:
            return {"patched": [], "rejects": rejects}
        if not params["dry_run"]:
            self.files.update(done)
        return {"patched": patched, "rejects": []}

    async def _on_file_copy(self, params: Message) -> Message:
        source, destination = params["source"], params["destination"]
        known = self.files.get(source)
        error = None if known is not None else "not found"
        self.emit("file.copy", args={"source": source, "destination": destination}, error=error)
        if known is None:
            raise AgentRefusalError("not_found", f"No such file or directory: {source}")
        self.files[destination] = known
        counts = {"directories": 0, "links": 0, "bytes": len(known), "skipped": 0}
        return {"copied": {"files": 1, **counts}}

    async def _on_file_chmod(self, params: Message) -> Message:
        self.emit("file.chmod", args={"path": params["path"]})
        self.permissions[params["path"]] = params["permissions"]
        return {}

    async def _on_file_changes(self, params: Message) -> Message:
        if params["stream"] not in self._streams:
            raise AgentRefusalError("conflict", f"file stream {params['stream']} is closed")
        if not self.changes and params["wait_ms"]:
            await self.changed.wait()
            self.changed.clear()
        told, self.changes = self.changes, []
        return {"changes": told, "ended": self.watch_ends}

    def change(self, *changes: Message, ends: bool = False) -> None:
        """Tells the watches of changes."""
        self.changes += [{"directory": False, "source": None, **each} for each in changes]
        self.watch_ends = ends
        self.changed.set()

    async def _on_file_delete(self, params: Message) -> Message:
        self._check_version(params)
        path = params["path"]
        known = self.files.pop(path, None)
        self.emit("file.delete", args={"path": path}, error=None if known else "not found")
        if known is None:
            raise AgentRefusalError("not_found", f"No such file or directory: {path}")
        return {}

    async def _on_file_move(self, params: Message) -> Message:
        source = params["source"]
        known = source in self.files
        self.emit("file.move", args=params, error=None if known else "not found")
        if not known:
            raise AgentRefusalError("not_found", f"No such file or directory: {source}")
        self.files[params["destination"]] = self.files.pop(source)
        return {}


def version_of(content: bytes) -> str:
    """The entity tag of a file."""
    return hashlib.sha256(content).hexdigest()[:32]


class Agents:
    """The agents of a fake engine's containers; pass `start` and `stop` to it as hooks."""

    def __init__(self) -> None:
        self.plays: dict[str, Play] = {}
        self.files: dict[str, bytes] = {}
        # Overrides in the hellos of agents started from now on.
        self.said: Message = {}
        self.by_run_dir: dict[str, FakeAgent] = {}

    @property
    def latest(self) -> FakeAgent:
        """The agent that was started last."""
        return list(self.by_run_dir.values())[-1]

    async def start(self, spec: SandboxSpec) -> None:
        agent = FakeAgent(self.plays, self.files, self.said)
        run_dir = run_dir_of(spec)
        self.by_run_dir[run_dir] = agent
        await agent.dial(Path(run_dir))

    async def stop(self, spec: SandboxSpec) -> None:
        agent = self.by_run_dir.get(run_dir_of(spec))
        if agent is not None:
            await agent.close()

    async def close(self) -> None:
        for agent in self.by_run_dir.values():
            await agent.close()


def run_dir_of(spec: SandboxSpec) -> str:
    """The directory of a sandbox's socket, on the host."""
    return next(bind.source for bind in spec.binds if bind.target == RUN_DIR)
