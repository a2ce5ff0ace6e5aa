"""The sandbox agent: connection, dispatch, and the life of the sandbox."""

import functools
import gc
import json
import os
import resource
import sys
import time
from collections.abc import Callable
from types import TracebackType

from sandbox_agent import params as given
from sandbox_agent.audit import EventBuffer
from sandbox_agent.budget import BudgetError
from sandbox_agent.commands import CommandError
from sandbox_agent.confine import privileges, seccomp, syscalls
from sandbox_agent.confine.profile import ConfinementError
from sandbox_agent.connection import Connection
from sandbox_agent.errors import AgentError
from sandbox_agent.executor import Executor
from sandbox_agent.guard import Guards
from sandbox_agent.loop import Loop
from sandbox_agent.outputs import Reply
from sandbox_agent.protocol import (
    BOOT_NAME,
    PROTOCOL_VERSION,
    RUN_DIR,
    SOCKET_NAME,
    Boot,
    Confinement,
    FrameError,
    Message,
    failure,
    request,
    result,
)
from sandbox_agent.pty.terminals import Terminals
from sandbox_agent.session_secrets import SessionSecrets
from sandbox_agent.transfers import Transfers
from sandbox_agent.work import Work

_HELLO_ID = 0
_OPEN_FILES = 4096
# Answers that wait for the last events to become durable are given up after this.
_DRAIN_SECONDS = 10.0
_EXIT_REFUSED = 3


class Agent:
    """One sandbox's agent; `run` returns the exit code."""

    def __init__(self, boot: Boot, socket_path: str) -> None:
        self._loop = Loop()
        self._started = time.monotonic()
        self._boot_id = os.urandom(8).hex()
        self._abi = syscalls.landlock_abi()
        self._connection = Connection(
            self._loop, socket_path, self._say_hello, self._on_message, self._on_close
        )
        # Before the control plane has answered hello, events only collect.
        self._greeted = False
        self.secrets = SessionSecrets()
        self._events = EventBuffer(self._boot_id, self._send_event, self.secrets.cut)
        self._guards = Guards(self._loop, boot, self._abi, self._events)
        self._work = Work(self._loop, boot, self._events)
        self._executor = Executor(
            self._loop, boot, self._events, self._work, self._guards, self.secrets
        )
        self._terminals = Terminals(
            self._loop, boot, self._abi, self._events, self._work, self._guards
        )
        self._transfers = Transfers(self._loop, boot, self._events)
        self._exit_code = 0
        self._methods: dict[str, Callable[[Message, Reply], None]] = {
            "exec": self._executor.execute,
            "output": self._executor.outputs.read,
            "output.restore": self._executor.restore,
            "stdin": self._executor.stdin,
            "signal": self._executor.signal,
            "cancel": self._executor.cancel,
            "pty.open": self._terminals.open,
            "pty.send": self._terminals.send,
            "pty.read": self._terminals.read,
            "pty.signal": self._terminals.signal,
            "pty.close": self._terminals.close,
            "file.open": self._transfers.open,
            "file.pull": self._transfers.pull,
            "file.push": self._transfers.push,
            "file.close": self._transfers.close,
            "secrets": self._take_secrets,
            "stats": self._stats,
            "shutdown": self._shut_down,
        }
        for name in ("list", "stat", "mkdir", "delete", "move", "symlink"):
            self._methods[f"file.{name}"] = functools.partial(self._transfers.operate, name)

    def run(self) -> int:
        """Serves until the control plane says shutdown or refuses this agent.

        Raises: ConfinementError where commands can't be confined.
        """
        self._connection.dial()
        # The control plane has its own work to do with the hello: this takes no time of anybody's.
        self._guards.confine()
        # What exists now lives for ever; leaving it out of collections keeps it shared with forks.
        gc.collect()
        gc.freeze()
        self._guards.prepare()
        self._loop.run()
        return self._exit_code

    def _send_event(self, message: Message) -> None:
        if self._greeted:
            self._connection.send(message)

    def _say_hello(self) -> None:
        hello = {
            "protocol": PROTOCOL_VERSION,
            "boot_id": self._boot_id,
            "running": self._executor.running,
            "finished": self._executor.outputs.ended,
            "terminals": self._terminals.running,
            "landlock_abi": self._abi,
            "seccomp": seccomp.available(os.uname().machine),
            "secrets": self.secrets.message(),
            **self._work.totals(),
        }
        self._connection.send(request(_HELLO_ID, "hello", hello))

    def _on_close(self) -> None:
        self._greeted = False
        self._executor.forget_callers()
        self._terminals.forget_callers()
        self._transfers.close_all()

    def _on_message(self, message: Message) -> None:
        """Raises: FrameError where it is nothing that a control plane says."""
        if message.get("method") == "ack":
            self._events.acknowledge(_number(message.get("params"), "seq"))
        elif "method" in message:
            self._dispatch(message)
        elif message.get("id") == _HELLO_ID:
            self._on_greeting(message)

    def _on_greeting(self, message: Message) -> None:
        if self._greeted:
            raise FrameError("the hello was answered before")
        error = message.get("error")
        if isinstance(error, dict):
            print(f"refused by the control plane: {error.get('message')!s:.1000}", flush=True)
            self._exit_code = _EXIT_REFUSED
            self._loop.stop()
            return
        committed = _number(message.get("result"), "committed_seq")
        self._connection.accepted()
        self._greeted = True
        self._events.replay(committed)

    def _dispatch(self, message: Message) -> None:
        method, request_id = message["method"], _number(message, "id")
        params = message.get("params", {})
        if not isinstance(method, str) or not isinstance(params, dict):
            raise FrameError("a request is not one of JSON-RPC 2.0")
        # A command's start is news for few: most end before anybody could use it.
        soon = method == "exec"
        send = self._connection.send_soon if soon else self._connection.send
        reply = functools.partial(self._reply, send, request_id)
        handler = self._methods.get(method)
        if handler is None:
            reply(AgentError("validation_error", f"unknown method: {method:.100}"))
            return
        try:
            handler(params, reply)
        except AgentError as error:
            reply(error)
        except CommandError as error:
            reply(AgentError("validation_error", f"bad parameters: {error}"))
        except Exception as error:  # noqa: BLE001 - whatever it is, it is this request's alone
            # Not the error itself: it may have words of a command, and secrets in them.
            print(f"{method} failed: {type(error).__name__}", file=sys.stderr, flush=True)
            reply(AgentError("validation_error", f"bad parameters: {type(error).__name__}"))

    def _reply(
        self, send: Callable[[Message], None], request_id: object, answer: Message | AgentError
    ) -> None:
        if isinstance(answer, AgentError):
            answer = self.secrets.cut_error(answer)
            answer = failure(request_id, answer.code, answer.message, answer.rule)
        else:
            answer = result(request_id, answer)
        try:
            send(answer)
        except (FrameError, RecursionError) as error:
            send(failure(request_id, "too_large", str(error)))

    def _take_secrets(self, params: Message, reply: Reply) -> None:
        self.secrets.replace(params)
        reply({})

    def _stats(self, _params: Message, reply: Reply) -> None:
        reply(
            {
                "running": self._executor.running,
                "terminals": self._terminals.running,
                "finished": self._executor.outputs.ended,
                "buffered_events": len(self._events),
                "uptime_ms": int((time.monotonic() - self._started) * 1000),
            }
        )

    def _shut_down(self, params: Message, reply: Reply) -> None:
        def drained() -> None:
            reply({})
            # The control plane removes the container; this only bounds a stray agent's life.
            self._loop.after(_DRAIN_SECONDS, self._loop.stop)

        self._work.stop(
            given.text(params, "reason"),
            params.get("at_once") is True,
            lambda: self._events.when_empty(drained),
        )


def _number(members: object, name: str) -> int:
    """Raises: FrameError where there is no number of that name."""
    value = members.get(name) if isinstance(members, dict) else None
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise FrameError(f"{name} is not a number")
    return value


def read_boot(path: str) -> Boot:
    """The boot file. Raises: OSError, ValueError, TypeError where it is not one."""
    with open(path, "rb") as file:
        members = json.load(file)
    return Boot(**{**members, "confinement": Confinement(*members["confinement"])})


def main() -> int:
    """Runs the agent in its sandbox; returns the exit code."""
    resource.setrlimit(resource.RLIMIT_NOFILE, (_OPEN_FILES, _OPEN_FILES))
    # Secrets are in its memory: it leaves no core file, and none of a program that is told of it.
    privileges.dump_no_core()
    syscalls.hide_memory()
    try:
        boot = read_boot(os.path.join(RUN_DIR, BOOT_NAME))
    except (OSError, LookupError, ValueError, TypeError) as error:
        print(f"cannot read the boot file: {error}", file=sys.stderr, flush=True)
        return _EXIT_REFUSED
    try:
        agent = Agent(boot, os.path.join(RUN_DIR, SOCKET_NAME))
        sys.excepthook = functools.partial(_report, agent.secrets)
        return agent.run()
    except ConfinementError as error:
        print(f"cannot confine commands: {error}", file=sys.stderr, flush=True)
    except BudgetError as error:
        print(error, file=sys.stderr, flush=True)
    return _EXIT_REFUSED


def _report(
    secrets: SessionSecrets,
    kind: type[BaseException],
    error: BaseException,
    trace: TracebackType | None,
) -> None:
    """Says what ended the agent, where `docker logs` shows it: without any secret."""
    import traceback  # only now: it takes memory

    text = "".join(traceback.format_exception(kind, error, trace))
    print(secrets.cut(text), file=sys.stderr, flush=True)
