"""The agent answers every request of a control plane or closes the connection, and survives."""

import contextlib
import json
import os
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from orchestrator.host.link.messages import parse_event
from sandbox_agent.core.audit import EventBuffer
from sandbox_agent.core.connection import Connection
from sandbox_agent.core.loop import READ, Loop
from sandbox_agent.decide.errors import AgentError
from sandbox_agent.decide.frames import (
    FrameDecoder,
    FrameError,
    encode,
    notification,
    request,
    result,
)
from sandbox_agent.decide.protocol import SOCKET_NAME, Configuration, Confinement, Message
from sandbox_agent.enforce import signalling
from sandbox_agent.enforce.command_process import Plan
from sandbox_agent.enforce.guards.guards import Guards
from sandbox_agent.enforce.profile import ConfinementError, Tool
from sandbox_agent.files.file_helper import FileHelper, parse_answer
from sandbox_agent.files.transfers import Transfers
from sandbox_agent.server import Agent
from sandbox_agent.session import Session

METHODS = [
    "exec",
    "output",
    "stdin",
    "signal",
    "cancel",
    "pty.open",
    "pty.send",
    "pty.write",
    "pty.resize",
    "pty.read",
    "pty.signal",
    "pty.close",
    "file.open",
    "file.pull",
    "file.push",
    "file.close",
    "file.list",
    "file.stat",
    "file.mkdir",
    "file.delete",
    "file.move",
    "file.symlink",
    "file.changes",
    "file.search",
    "file.patch",
    "file.copy",
    "file.chmod",
    "secrets",
    "stats",
]
MEMBERS = {
    "command_id": "c1",
    "argv": ["ls"],
    "cwd": "/workspace",
    "env": {},
    "secrets": {},
    "stdin": None,
    "stdin_open": False,
    "timeout_ms": 1000,
    "background": False,
    "held": False,
    "after": 0,
    "limit": 100,
    "wait_ms": 0,
    "data": "",
    "close": False,
    "commit": True,
    "signal": 15,
    "reason": "",
    "terminal_id": "t1",
    "needs": {"execute": [], "read": [], "write": [], "writable_code": False, "ptrace": False},
    "rows": 24,
    "cols": 80,
    "terminator": "\n",
    "sanitize": [],
    "commands": None,
    "max_line_bytes": 100,
    "lifetime_ms": 1000,
    "idle_ms": 1000,
    "command": "x",
    "text": "x",
    "op": "read",
    "path": "x",
    "permissions": None,
    "target": "x",
    "stream": 1,
    "depth": 1,
    "source": "a",
    "destination": "b",
    "regex": True,
    "ignore_case": False,
    "globs": [],
    "patch": "x",
    "names": {},
    "dry_run": False,
    "most_bytes": 1,
    "parents": False,
    "recursive": True,
    "match": None,
    "range": [0, 1],
    "variables": {},
    "given": [],
}
WILD = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.sampled_from([-1, 2**31, 2**63, 2**64, 10**300])
    | st.floats()
    | st.text(max_size=20)
    | st.sampled_from(["\ud800", "\0", "é" * 5000, "../..", "/etc", "=", "AAA", "x" * 70_000]),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=6,
)
# Mostly valid parameters, so that invalid ones are also met deep inside.
PARAMS = st.builds(
    lambda changed, dropped: {
        name: value for name, value in {**MEMBERS, **changed}.items() if name not in dropped
    },
    st.dictionaries(st.sampled_from(sorted(MEMBERS)), WILD, max_size=4),
    st.sets(st.sampled_from(sorted(MEMBERS)), max_size=2),
)
CONFIGURATION = Configuration(
    level="low",
    uid=54321,
    commands=["ls", "cat", "which", "neofetch"],
    environment=["LANG"],
    confinement=Confinement(True, [], [], False, False, True),
    home="/workspace",
    cpus=1.0,
    memory_bytes=2**28,
    processes=64,
    output_bytes=2**20,
    max_running=16,
)


class Told:
    """The agent's messages, as the control plane would receive them."""

    def __init__(self) -> None:
        self.messages: list[Message] = []
        self._decoder = FrameDecoder()

    def send(self, message: Message) -> None:
        self.messages += self._decoder.feed(encode(message))

    def take(self) -> list[Message]:
        taken, self.messages = self.messages, []
        return taken


@pytest.fixture(scope="module")
def agent() -> Agent:
    """Everything but the confinement, so that no process is started."""
    agent = Agent("/nonexistent")
    agent.load()
    agent._serve(Session(agent._loop, CONFIGURATION, agent._kernel, agent._events, agent.secrets))
    return agent


@pytest.fixture
def told(agent: Agent, monkeypatch: pytest.MonkeyPatch) -> Told:
    told = Told()
    monkeypatch.setattr(agent._connection, "send", told.send)
    monkeypatch.setattr(agent._connection, "send_soon", told.send)

    def no_helper(_self: Transfers) -> None:
        raise AgentError("busy", "no room for another process")

    def no_guard(_self: Guards, _tool: Tool, _plan: Plan) -> None:
        raise ConfinementError("not here")

    monkeypatch.setattr(Transfers, "_helper", no_helper)
    monkeypatch.setattr(Guards, "take_for", no_guard)
    return told


LASTING = settings(
    max_examples=settings().max_examples * 3,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
    deadline=None,
)


@LASTING
@given(st.sampled_from(METHODS), PARAMS | WILD)
def test_every_request_has_one_answer(agent: Agent, told: Told, method: str, params: Any) -> None:
    """A request has no effect on the next one, which is answered correctly."""
    message = request(7, method, params)
    try:
        agent._on_message(message)
    except FrameError:
        assert not isinstance(params, dict)
    else:
        (answer,) = [sent for sent in told.take() if "method" not in sent]
        assert answer["id"] == 7
        assert ("result" in answer) != ("error" in answer)
    agent._events.acknowledge(2**53)
    agent._on_message(request(8, "stats", {}))
    (stats,) = told.take()
    assert stats["result"]["running"] == []


@LASTING
@given(st.sampled_from(["go", "drop"]), st.just({"command_id": "c1"}) | PARAMS | WILD)
def test_a_word_without_a_command_changes_nothing(
    agent: Agent, told: Told, word: str, params: Any
) -> None:
    try:
        agent._on_message(notification(word, params))
    except FrameError:
        assert not isinstance(params, dict) or not isinstance(params.get("command_id"), str)
    assert told.take() == []


@LASTING
@given(st.dictionaries(st.sampled_from(["id", "method", "params", "result", "error"]), WILD))
def test_a_message_without_sense_ends_the_connection_at_most(
    agent: Agent, told: Told, message: Message
) -> None:
    with contextlib.suppress(FrameError):
        agent._on_message({"jsonrpc": "2.0", **message})
    told.take()


LONG = st.sampled_from(["x" * 100_000, "\ud800" * 20_000, "é" * 1025])


@settings(deadline=None)
@given(st.dictionaries(st.text(max_size=5), st.text() | LONG, max_size=5), st.text() | LONG)
def test_an_event_is_never_longer_than_it_is_taken(args: Message, error: str) -> None:
    sent: list[bytes] = []
    buffer = EventBuffer("0" * 16, lambda message: sent.append(encode(message)))
    buffer.emit(
        "file.read",
        decision="deny",
        rule=None,
        command_id=None,
        args={**args, "argv": ["x" * 5000] * 100},
        result=None,
        error=error,
        duration_ms=0,
    )
    (message,) = FrameDecoder().feed(sent[0])
    event = parse_event(message["params"])
    assert len(event.args["argv"]) <= 64
    if len(error) < 100:
        assert event.error == error


@given(st.binary() | WILD.map(lambda value: json.dumps(value).encode()))
def test_a_file_worker_that_talks_nonsense_is_not_believed(payload: bytes) -> None:
    try:
        said = parse_answer(payload)
    except ValueError:
        return
    assert isinstance(said.get("error", {}), dict)
    assert isinstance(said.get("entries", []), list)


def test_a_file_worker_that_was_not_asked_is_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    killed: list[int] = []
    monkeypatch.setattr(os, "fork", lambda: 999_999)
    monkeypatch.setattr(FileHelper, "_flush", lambda _self: None)
    monkeypatch.setattr(signalling, "kill_as", lambda _uid, pid, _number: killed.append(pid))
    ended: list[FileHelper] = []
    helper = FileHelper(
        *(Loop(), 54321, str(tmp_path)),
        anywhere=False,
        links=True,
        volumes={},
        cut=str,
        on_end=ended.append,
        lock=0,
    )
    answers: list[Any] = []
    helper.ask({"method": "stat"}, lambda said, _data: answers.append(said))
    helper._take(b"J", b'{"size":1}')
    assert (answers, ended) == ([{"size": 1}], [])
    helper._take(b"J", b'{"size":2}')
    assert (answers, ended, killed) == ([{"size": 1}], [helper], [999_999])


# The connection


class Served:
    """A control plane and an agent's connection to it, both in this process."""

    def __init__(self, directory: Path) -> None:
        self.loop = Loop()
        self.received: list[Message] = []
        path = str(directory / SOCKET_NAME)
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(path)
        self._listener.listen()
        self._connection = Connection(self.loop, path, lambda: None, self._on_message, lambda: None)
        self._connection.dial()
        self.peer, _ = self._listener.accept()

    def _on_message(self, message: Message) -> None:
        if "method" not in message:
            raise FrameError("not what was expected")
        self.received.append(message)

    def say(self, data: bytes) -> None:
        """Sends the data, and lets the connection process it."""
        self.peer.sendall(data)
        assert self._connection._socket is not None
        self._connection._on_ready(1)

    def close(self) -> None:
        self._connection.close("over")
        self.peer.close()
        self._listener.close()


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    served = Served(tmp_path)
    yield served
    served.close()


def test_a_frame_without_sense_ends_the_connection_and_nothing_after_it_counts(
    served: Served,
) -> None:
    good = encode(request(1, "stats", {}))
    served.say(good + encode(result(5, {})) + good)
    assert len(served.received) == 1
    assert served.peer.recv(1) == b""


@pytest.mark.parametrize(
    "garbage", [b"\0\0\0\2[]", b"\xff" * 8, b"\0\0\0\1{", os.urandom(4096)], ids=range(4)
)
def test_garbage_ends_the_connection(served: Served, garbage: bytes) -> None:
    served.say(garbage.ljust(4096, b"\xff"))
    assert served.received == []
    assert served.peer.recv(1) == b""


def test_a_control_plane_that_accepts_nothing_is_not_waited_for(tmp_path: Path) -> None:
    path = str(tmp_path / SOCKET_NAME)
    with contextlib.ExitStack() as stack:
        listener = stack.enter_context(socket.socket(socket.AF_UNIX))
        listener.bind(path)
        listener.listen(0)
        with contextlib.suppress(BlockingIOError):
            while True:  # as many as the kernel accepts
                other = stack.enter_context(socket.socket(socket.AF_UNIX))
                other.setblocking(False)
                other.connect(path)
        loop = Loop()
        connection = Connection(loop, path, lambda: None, lambda _: None, lambda: None)
        connection.dial()
        assert connection._socket is None
        assert [timer.pending for timer in loop._timers] == [True]


@pytest.mark.parametrize("number", ["1e3", "-0.0", "0.5", "1e300"])
@pytest.mark.parametrize(
    ("method", "member"),
    [
        ("exec", "timeout_ms"),
        ("output", "after"),
        ("output", "wait_ms"),
        ("signal", "signal"),
        ("pty.open", "lifetime_ms"),
        ("pty.open", "rows"),
        ("file.list", "depth"),
        ("file.pull", "stream"),
    ],
)
def test_what_is_no_whole_number_on_the_wire_is_refused(
    agent: Agent, told: Told, method: str, member: str, number: str
) -> None:
    params = {**MEMBERS, "command_id": f"{member} {number}", member: "HERE"}
    frame = encode(request(9, method, params)).replace(b'"HERE"', number.encode())
    frame = (len(frame) - 4).to_bytes(4, "big") + frame[4:]
    (message,) = FrameDecoder().feed(frame)
    agent._on_message(message)
    (answer,) = [sent for sent in told.take() if "method" not in sent]
    assert answer["error"]["data"]["code"] == "validation_error"
    assert member in answer["error"]["message"]


@pytest.mark.parametrize("number", ["1e300", "1.5", "-1", "true"])
@pytest.mark.parametrize(
    "text",
    [
        '{"jsonrpc":"2.0","id":HERE,"method":"stats","params":{}}',
        '{"jsonrpc":"2.0","method":"ack","params":{"seq":HERE}}',
        '{"jsonrpc":"2.0","id":0,"result":{"committed_seq":HERE}}',
    ],
)
def test_a_message_with_a_number_that_is_none_ends_the_connection(
    agent: Agent, text: str, number: str
) -> None:
    body = text.replace("HERE", number).encode()
    (message,) = FrameDecoder().feed(len(body).to_bytes(4, "big") + body)
    with pytest.raises(FrameError, match="is not a number"):
        agent._on_message(message)


def test_a_timer_may_be_years_ahead() -> None:
    loop = Loop()
    reader, writer = os.pipe()
    try:
        os.write(writer, b"x")
        loop.watch(reader, READ, lambda _: loop.stop())
        loop.after(1e9, lambda: None)
        loop.run()
    finally:
        os.close(reader)
        os.close(writer)
