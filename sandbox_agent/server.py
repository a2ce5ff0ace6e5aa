"""The sandbox agent: its connection, its dispatch of requests, and the life of the sandbox."""

import functools
import gc
import os
import resource
import sys
import time
from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING

from sandbox_agent.core import params as given
from sandbox_agent.core.audit import EventBuffer
from sandbox_agent.core.connection import Connection
from sandbox_agent.core.loop import Loop
from sandbox_agent.core.outputs import Reply
from sandbox_agent.decide.command_words import CommandError
from sandbox_agent.decide.errors import AgentError
from sandbox_agent.decide.frames import FrameError, failure, request, result
from sandbox_agent.decide.protocol import PROTOCOL_VERSION, RUN_DIR, SOCKET_NAME, Message
from sandbox_agent.enforce import kernel, privileges, syscalls
from sandbox_agent.enforce.guards import availability
from sandbox_agent.run.session_secrets import SessionSecrets

if TYPE_CHECKING:
    from sandbox_agent.configuring import Configuring
    from sandbox_agent.session import Session

_HELLO_ID = 0
_OPEN_FILES = 4096
# At shutdown, the agent waits at most this long for its last events to become durable.
_DRAIN_SECONDS = 10.0
_EXIT_REFUSED = 3


class Agent:
    """One sandbox's agent; `run` returns the exit code."""

    def __init__(self, socket_path: str) -> None:
        self._loop = Loop()
        self._started = time.monotonic()
        self._boot_id = os.urandom(8).hex()
        self._kernel = kernel.probe()
        self._connection = Connection(
            self._loop, socket_path, self._say_hello, self._on_message, self._on_close
        )
        # Until the control plane has answered hello, events are only collected.
        self._greeted = False
        self.secrets = SessionSecrets()
        self._events = EventBuffer(self._boot_id, self._send_event, self.secrets.cut_reported)
        # Until there is a session, every request but `prepare` and `configure` is refused.
        self._session: Session | None = None
        # Whether `configure` has come: it is taken only once.
        self._configuring = False
        self._exit_code = 0
        self._methods: dict[str, Callable[[Message, Reply], None]] = {}

    def run(self) -> int:
        """Serves until the control plane refuses this agent, or can't configure it."""
        self._connection.dial()
        # The control plane is busy with the hello meanwhile, so this adds no delay.
        self.load()
        gc.collect()
        self._loop.run()
        return self._exit_code

    def load(self) -> None:
        """Loads most of the agent's modules, which only a session needs."""
        from sandbox_agent.configuring import Configuring

        configuring = Configuring(self._loop, self._kernel, self._events, self.secrets)
        self._methods = {
            "prepare": functools.partial(self._prepare, configuring),
            "configure": functools.partial(self._configure, configuring),
        }

    def _prepare(self, configuring: "Configuring", params: Message, reply: Reply) -> None:
        """Finds in advance what the commands of the coming session need, and forks their guard."""
        configuring.prepare(params)
        reply({})

    def _configure(self, configuring: "Configuring", params: Message, reply: Reply) -> None:
        """Takes the session's configuration, once; an agent that can't enforce it ends."""
        if self._configuring:
            raise AgentError("conflict", "the sandbox is already configured")
        self._configuring = True
        try:
            session = configuring.configure(params)
        except Exception as error:  # noqa: BLE001 - whatever it is, nothing may run
            self._refuse(str(error))
            return
        self._serve(session)
        # Only now: a sandbox that can't confine commands must not count as started.
        session.recover(lambda: reply({}))
        # Everything that exists now stays forever. The collector would write to its memory, which
        # forks could then no longer share.
        gc.freeze()
        session.prepare()

    def _refuse(self, reason: str) -> None:
        """Ends the agent, and with it the sandbox."""
        print(reason, file=sys.stderr, flush=True)
        self._exit_code = _EXIT_REFUSED
        self._loop.stop()

    def _serve(self, session: "Session") -> None:
        self._session = session
        del self._methods["prepare"]
        self._methods |= session.methods
        self._methods |= {
            "secrets": self._take_secrets,
            "stats": functools.partial(self._stats, session),
            "shutdown": functools.partial(self._shut_down, session),
        }

    def _send_event(self, message: Message) -> None:
        if self._greeted:
            self._connection.send(message)

    def _say_hello(self) -> None:
        session = self._session
        hello = {
            "protocol": PROTOCOL_VERSION,
            "boot_id": self._boot_id,
            "configured": session is not None,
            "running": session.running if session else [],
            "finished": session.finished if session else [],
            "terminals": session.terminals if session else [],
            "landlock_abi": self._kernel.landlock,
            "seccomp": self._kernel.notification,
            "undisturbed": self._kernel.undisturbed,
            "mdwe": self._kernel.mdwe,
            "compiled_guard": availability.available(),
            "secrets": self.secrets.message(),
            **(session.work.totals() if session else {}),
        }
        self._connection.send(request(_HELLO_ID, "hello", hello))

    def _on_close(self) -> None:
        self._greeted = False
        if self._session is not None:
            self._session.forget_callers()

    def _on_message(self, message: Message) -> None:
        """Raises: FrameError if the message is not valid from a control plane."""
        method = message.get("method")
        if method == "ack":
            self._events.acknowledge(_number(message.get("params"), "seq"))
        elif method in ("go", "drop"):
            self._take_word(method, message.get("params"))
        elif method is not None:
            self._dispatch(message)
        elif message.get("id") == _HELLO_ID:
            self._on_greeting(message)

    def _take_word(self, word: str, params: object) -> None:
        if not isinstance(params, dict) or not isinstance(params.get("command_id"), str):
            raise FrameError(f"{word} names no command")
        if self._session is None:
            return
        try:
            self._session.notices[word](params)
        except Exception as error:  # noqa: BLE001 - any error ends this connection only
            # The lost connection tells the caller that waits for the command's start.
            raise FrameError(f"{word} failed: {type(error).__name__}") from None

    def _on_greeting(self, message: Message) -> None:
        if self._greeted:
            raise FrameError("the hello was already answered")
        error = message.get("error")
        if isinstance(error, dict):
            self._refuse(f"refused by the control plane: {error.get('message')!s:.1000}")
            return
        committed = _number(message.get("result"), "committed_seq")
        self._connection.accepted()
        self._greeted = True
        self._events.replay(committed)

    def _dispatch(self, message: Message) -> None:
        method, request_id = message["method"], _number(message, "id")
        params = message.get("params", {})
        if not isinstance(method, str) or not isinstance(params, dict):
            raise FrameError("not a JSON-RPC 2.0 request")
        # A caller that waits for the command's end does not need to know at once that it is ready.
        soon = method == "exec" and params.get("collect") is True
        send = self._connection.send_soon if soon else self._connection.send
        reply = functools.partial(self._reply, send, request_id)
        handler = self._methods.get(method)
        if handler is None:
            reply(self._unknown(method))
            return
        try:
            handler(params, reply)
        except AgentError as error:
            reply(error)
        except CommandError as error:
            reply(AgentError("validation_error", f"bad parameters: {error}"))
        except Exception as error:  # noqa: BLE001 - any error fails this request only
            # The error itself is not printed: it may contain words of a command, and so secrets.
            print(f"{method} failed: {type(error).__name__}", file=sys.stderr, flush=True)
            reply(AgentError("validation_error", f"bad parameters: {type(error).__name__}"))

    def _unknown(self, method: str) -> AgentError:
        if self._session is None:
            return AgentError("conflict", "the sandbox is not configured yet")
        return AgentError("validation_error", f"unknown method: {method:.100}")

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

    def _stats(self, session: "Session", _params: Message, reply: Reply) -> None:
        reply(
            {
                "running": session.running,
                "terminals": session.terminals,
                "finished": session.finished,
                "buffered_events": len(self._events),
                "uptime_ms": int((time.monotonic() - self._started) * 1000),
            }
        )

    def _shut_down(self, session: "Session", params: Message, reply: Reply) -> None:
        def drained() -> None:
            reply({})
            # The control plane removes the container. This timer only ends a stray agent.
            self._loop.after(_DRAIN_SECONDS, self._loop.stop)

        session.work.stop(
            given.text(params, "reason"),
            params.get("at_once") is True,
            lambda: self._events.when_empty(drained),
        )


def _number(members: object, name: str) -> int:
    """Raises: FrameError if there is no number of that name."""
    value = members.get(name) if isinstance(members, dict) else None
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise FrameError(f"{name} is not a number")
    return value


def main() -> int:
    """Runs the agent in its sandbox; returns the exit code."""
    resource.setrlimit(resource.RLIMIT_NOFILE, (_OPEN_FILES, _OPEN_FILES))
    # The agent's memory holds secrets, so a crash must leave no core file and start no core
    # handler.
    privileges.dump_no_core()
    syscalls.hide_memory()
    agent = Agent(os.path.join(RUN_DIR, SOCKET_NAME))
    sys.excepthook = functools.partial(_report, agent.secrets)
    return agent.run()


def _report(
    secrets: SessionSecrets,
    kind: type[BaseException],
    error: BaseException,
    trace: TracebackType | None,
) -> None:
    """Prints the error that ended the agent, without secrets, for `docker logs`."""
    import traceback  # imported late: it takes memory

    text = "".join(traceback.format_exception(kind, error, trace))
    print(secrets.cut(text), file=sys.stderr, flush=True)
