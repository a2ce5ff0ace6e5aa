"""An agent is configured once, and before that knows nothing of its session and does nothing."""

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sandbox_agent.core.budget import BudgetError
from sandbox_agent.core.configuration import parse
from sandbox_agent.decide.errors import AgentError
from sandbox_agent.decide.frames import request
from sandbox_agent.decide.manifest import Consume
from sandbox_agent.decide.protocol import Configuration, Confinement, Message
from sandbox_agent.enforce.guards.forked import WaitingGuard
from sandbox_agent.enforce.guards.guards import Guards
from sandbox_agent.enforce.libraries import Libraries
from sandbox_agent.enforce.profile import ConfinementError
from sandbox_agent.server import Agent
from sandbox_agent.session import Session

CONFIGURATION = Configuration(
    level="low",
    uid=54321,
    commands=["ls"],
    environment=None,
    confinement=Confinement(True, [], ["/usr/bin/ls"], False, False, True),
    home="/workspace",
    cpus=0.5,
    memory_bytes=2**28,
    processes=64,
    output_bytes=2**20,
    max_running=16,
    cpu_budget_us=7,
    writable=("/mnt/a",),
    volumes=("/data",),
)
MESSAGE: Message = {**CONFIGURATION._asdict(), "confinement": CONFIGURATION.confinement._asdict()}
for name in ("without", "mounts", "root"):  # they have nothing
    del MESSAGE[name]
MESSAGE["writable"] = list(CONFIGURATION.writable)
MESSAGE["volumes"] = list(CONFIGURATION.volumes)
REFUSED = 3


class Told:
    """An agent, its messages, and whether it has ended."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.agent = Agent("/nonexistent")
        self.agent.load()
        self.sent: list[Message] = []
        self.confined = self.stopped = self.forked = 0
        monkeypatch.setattr(self.agent._connection, "send", self.sent.append)
        monkeypatch.setattr(self.agent._connection, "send_soon", self.sent.append)
        monkeypatch.setattr(self.agent._loop, "stop", self._stop)
        monkeypatch.setattr(Guards, "confine", lambda _guards: self._confine())
        monkeypatch.setattr(Guards, "prepare", lambda _guards: None)
        monkeypatch.setattr(WaitingGuard, "fork", lambda _waiting: self._fork())
        monkeypatch.setattr("gc.freeze", lambda: None)

    def _stop(self) -> None:
        self.stopped += 1

    def _fork(self) -> None:
        self.forked += 1

    def _confine(self) -> None:
        self.confined += 1

    def ask(self, method: str, params: Message) -> Any:
        """The result, or the error's code; None without an answer."""
        before = len(self.sent)
        self.agent._on_message(request(7, method, params))
        answers = self.sent[before:]
        if not answers:
            return None
        (answer,) = answers
        return answer.get("result", answer.get("error", {}).get("data", {}).get("code"))

    def hello(self) -> Message:
        before = len(self.sent)
        self.agent._say_hello()
        hello: Message = self.sent[before]["params"]
        return hello


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> Told:
    return Told(monkeypatch)


METHODS = sorted(
    {
        *("exec", "output", "output.restore", "stdin", "signal", "cancel", "secrets", "stats"),
        *("pty.open", "pty.send", "pty.write", "pty.resize", "pty.read", "pty.signal"),
        *("pty.close", "shutdown", "nonsense"),
        *("file.open", "file.pull", "file.push", "file.close", "file.list", "file.stat"),
        *("file.mkdir", "file.delete", "file.move", "file.symlink"),
    }
)


@pytest.mark.parametrize("method", METHODS)
def test_nothing_is_done_before(told: Told, method: str) -> None:
    assert told.ask(method, {"variables": {"A": ["x", "0" * 64]}, "given": []}) == "conflict"
    assert told.agent.secrets.message() == {"variables": {}, "given": []}
    assert told.confined == told.stopped == 0


def test_it_is_configured_once(told: Told) -> None:
    assert told.hello()["configured"] is False
    assert told.ask("configure", MESSAGE) == {}
    assert told.confined == 1
    hello = told.hello()
    assert hello["configured"] is True
    assert "session_cpu_us" in hello
    assert told.ask("stats", {})["running"] == []
    first = told.agent._session
    assert told.ask("configure", {**MESSAGE, "level": "high", "commands": None}) == "conflict"
    assert told.ask("configure", {}) == "conflict"
    assert told.agent._session is first
    assert told.confined == 1
    assert told.stopped == 0


CONSUME = Consume("pack-1", ("a",), (".",), ("out",), ("/usr/lib",), "hard_fail", ("ab" * 32,))
CONSUMING = {name: list(v) if isinstance(v, tuple) else v for name, v in CONSUME._asdict().items()}


def test_it_knows_what_it_was_told() -> None:
    assert parse(MESSAGE) == CONFIGURATION
    loose = {**MESSAGE, "without": ["notification"], "mounts": {"/tmp": 8}}
    assert parse(loose) == CONFIGURATION._replace(without=("notification",), mounts={"/tmp": 8})
    assert parse({**MESSAGE, "root": True}) == CONFIGURATION._replace(root=True)
    assert parse({**MESSAGE, "consume": CONSUMING}) == CONFIGURATION._replace(consume=CONSUME)
    with pytest.raises(AgentError, match="digests must be as many as entries"):
        parse({**MESSAGE, "consume": {**CONSUMING, "digests": []}})


WRONG: dict[str, list[Any]] = {
    "uid": [0, -1, 2**32 - 1, "1", True, None],
    "commands": ["ls", [1], {}],
    "environment": ["A", [None]],
    "cpus": [0, -1.0, "1", True, 1e9],
    "processes": [0, 1.5],
    "max_running": [0],
    "guard_writes": [0, None],
    "writable": [None, "x", [1]],
    "volumes": [None, "x", [1]],
    "cpu_budget_us": ["7", -1, 1.5],
    "confinement": [None, [], {}, {**MESSAGE["confinement"], "paths": 1}],
    "level": [None, 1],
    "surplus": [1],
    "without": [None, "x", [1]],
    "mounts": [None, [], {"/tmp": "8"}, {"/tmp": -1}, {"/tmp": True}],
    "consume": [
        {},
        [],
        {**CONSUMING, "firewall_mode": "off"},
        {**CONSUMING, "entries": [1]},
        {**CONSUMING, "surplus": 1},
        {**CONSUMING, "manifest_id": None},
    ],
}
CASES = [(name, value) for name, values in WRONG.items() for value in values]


@pytest.mark.parametrize(("name", "value"), CASES)
def test_a_wrong_one_ends_the_agent(
    told: Told, capsys: pytest.CaptureFixture[str], name: str, value: object
) -> None:
    assert told.ask("configure", {**MESSAGE, name: value}) is None
    assert (told.stopped, told.agent._exit_code) == (1, REFUSED)
    assert told.agent._session is None
    assert told.confined == 0
    assert "cannot be configured" in capsys.readouterr().err
    assert told.ask("stats", {}) == "conflict"


@pytest.mark.parametrize("name", [*MESSAGE, *Confinement._fields])
def test_a_member_that_is_missing_ends_the_agent(told: Told, name: str) -> None:
    confinement = {key: value for key, value in MESSAGE["confinement"].items() if key != name}
    message = {key: value for key, value in MESSAGE.items() if key != name}
    if name != "confinement":
        message["confinement"] = confinement
    assert told.ask("configure", message) is None
    assert (told.stopped, told.agent._session) == (1, None)


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (ConfinementError("no Landlock"), "cannot confine commands: no Landlock"),
        (BudgetError("no control group"), "cannot be configured: no control group"),
        (OSError("a name"), "cannot be configured: OSError"),
        (RecursionError("deep"), "cannot be configured: RecursionError"),
    ],
)
def test_what_can_not_be_enforced_ends_the_agent(
    told: Told,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    error: Exception,
    said: str,
) -> None:
    def fail(_guards: Guards) -> None:
        raise error

    monkeypatch.setattr(Guards, "confine", fail)
    assert told.ask("configure", MESSAGE) is None
    assert (told.stopped, told.agent._exit_code) == (1, REFUSED)
    assert capsys.readouterr().err == f"{said}\n"
    assert told.hello()["configured"] is False
    # Requests sent along with it are not carried out either, and a second try is refused.
    assert told.ask("configure", MESSAGE) == "conflict"
    assert told.ask("exec", {}) == "conflict"


WILD = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=9),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=5,
)


@settings(
    max_examples=settings().max_examples * 3,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(
    members=st.dictionaries(st.sampled_from(sorted(MESSAGE)), WILD, max_size=3),
    confinement=st.dictionaries(st.sampled_from(Confinement._fields), WILD, max_size=2),
)
def test_nothing_but_a_refusal_comes_of_wild_members(
    members: Message, confinement: Message
) -> None:
    inner = {**MESSAGE["confinement"], **confinement}
    try:
        found = parse({**MESSAGE, "confinement": inner, **members})
    except AgentError:
        return
    assert found.uid > 0
    assert type(found.guard_writes) is type(found.confinement.paths) is bool


@pytest.fixture
def programs(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What services are told of what their commands need."""
    used: list[Any] = []
    real = Session.__init__

    def init(session: Session, *arguments: Any) -> None:
        used.append(arguments[-2])
        real(session, *arguments)

    monkeypatch.setattr(Session, "__init__", init)
    return used


def test_what_was_announced_is_used(told: Told, programs: list[Any]) -> None:
    assert told.ask("prepare", {"commands": 7}) == "validation_error"
    assert told.ask("prepare", {"commands": ["ls"]}) == {}
    assert told.forked == 1
    assert told.ask("exec", {}) == "conflict"
    assert told.ask("configure", {**MESSAGE, "commands": ["ls"]}) == {}
    assert isinstance(programs[0], Libraries)
    assert told.ask("prepare", {"commands": ["ls"]}) == "validation_error"


def test_what_was_announced_is_not_used_for_other_commands(told: Told, programs: list[Any]) -> None:
    assert told.ask("prepare", {"commands": ["ls", "cat"]}) == {}
    assert told.ask("configure", {**MESSAGE, "commands": ["ls"]}) == {}
    assert programs == [None]
