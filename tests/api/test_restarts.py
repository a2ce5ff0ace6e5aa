"""Whatever happens to sessions, a restart changes nothing that callers were told before."""

import asyncio
import shutil
import tempfile
import threading
from collections.abc import Awaitable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

import pytest
from hypothesis import HealthCheck
from hypothesis import settings as how
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from pydantic import SecretStr

from orchestrator.control_plane import ControlPlane
from orchestrator.ground.errors import ConflictError, EngineUnavailableError, PaddockError
from orchestrator.ground.store.database_file import StoreError
from orchestrator.host.engine.base import LABEL_IMAGE, ContainerState, Image
from orchestrator.host.engine.fake import FakeEngine
from orchestrator.host.workspace import mounts
from orchestrator.rules.access.keys import Principal, Role, digest
from orchestrator.rules.egress.rule import Rule
from orchestrator.rules.egress.rules import Rules
from orchestrator.rules.egress.session_rules import NO_OWN_RULES, Narrowing, OwnRules
from orchestrator.sessions import recovery
from orchestrator.settings.settings import Settings
from orchestrator.state import session_rows
from orchestrator.state.directory import SandboxDirectory
from orchestrator.state.requests import ExecRequest, NewSession
from orchestrator.state.session import Session
from paddock.contract.words import Kind, Status
from tests.api.conftest import IMAGE
from tests.support.egress import Names, NamesResolver, level_with
from tests.support.fake_agent import Agents
from tests.support.limits import WAIT_SECONDS
from tests.support.restart import reopened
from tests.support.until import until

pytestmark = pytest.mark.slow

ADMIN = Principal("admin", Role.ADMIN)
IDS = ("a", "b", "other")
LEVELS = ("low", "medium", "out", "high")
# The level `out` allows the first and denies the second; the third is left to sessions' own rules.
HOSTS = ("a.example", "b.example", "c.example")
OUT = """
[[egress.allow]]
host = "a.example"
[[egress.deny]]
host = "b.example"
"""

T = TypeVar("T")


@dataclass
class Known:
    """What a caller was told about a session."""

    key: str
    handle: str
    level: str
    status: Status = Status.ACTIVE
    # Whether its sandbox is lost, so that the session waits for its level to be set again.
    closed: bool = False
    rules: OwnRules = NO_OWN_RULES
    suspended: bool = False


class MortalEngine(FakeEngine):
    """An engine that is unreachable for a control plane that is about to die."""

    dead = False

    async def _enter(self, method: str) -> None:
        if self.dead:
            raise EngineUnavailableError("it is out of reach")
        await super()._enter(method)


class Restarts(RuleBasedStateMachine):
    """Sessions of a few ids, over several control planes in succession."""

    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        self.directory = Path(tempfile.mkdtemp(prefix="pdk-"))
        self.agents = Agents()
        self.engine = MortalEngine(
            images={IMAGE: Image("sha256:1", {LABEL_IMAGE: "sandbox"})},
            on_start=self.agents.start,
            on_stop=self.agents.stop,
        )
        (levels := self.directory / "levels").mkdir()
        (levels / "out.toml").write_text(level_with(OUT))
        self.settings = Settings(
            state_dir=self.directory / "state",
            levels_dir=levels,
            admin_key=SecretStr("pdk_admin-key-of-the-tests"),
            min_free_memory_bytes=0,
            min_free_disk_bytes=0,
            hello_timeout=WAIT_SECONDS,
            workspace_quota="none",
        )
        # The latest session of each id.
        self.known: dict[str, Known] = {}

    def run(self, work: Awaitable[T]) -> T:
        async def wait() -> T:
            async with asyncio.timeout(WAIT_SECONDS):
                return await work

        return self.runner.run(wait())

    @initialize()
    def start(self) -> None:
        self.plane = self.run(ControlPlane.open(self.settings, self.engine, NamesResolver(Names())))

    def session(self, name: str) -> Session:
        found = self.plane.sessions.registry.get(name)
        assert found is not None
        return found

    def live(self, name: str) -> Known | None:
        known = self.known.get(name)
        return known if known and known.status in (Status.ACTIVE, Status.PAUSED) else None

    @rule(name=st.sampled_from(IDS), level=st.sampled_from(LEVELS))
    def create(self, name: str, level: str) -> None:
        request = NewSession(id=name, permission_level=level)
        if self.live(name):
            with pytest.raises(ConflictError):
                self.run(self.plane.sessions.create(ADMIN, request))
            return
        session, handle, _ = self.run(self.plane.sessions.create(ADMIN, request))
        self.known[name] = Known(session.key, handle, level)

    @rule(name=st.sampled_from(IDS), purge=st.booleans())
    def close(self, name: str, purge: bool) -> None:
        known = self.live(name)
        if known:
            self.run(self.plane.sessions.close(ADMIN, self.session(name), purge=purge))
            known.status = Status.COMPLETED

    @rule(name=st.sampled_from(IDS))
    def abort(self, name: str) -> None:
        known = self.live(name)
        if known:
            self.run(self.plane.sessions.abort(ADMIN, self.session(name)))
            known.status = Status.ABORTED

    @rule(name=st.sampled_from(IDS))
    def pause_or_resume(self, name: str) -> None:
        known = self.live(name)
        if known is None or known.closed:
            return
        session, sessions = self.session(name), self.plane.sessions
        if known.status is Status.PAUSED:
            self.run(sessions.resume(ADMIN, session))
            known.status = Status.ACTIVE
        else:
            self.run(sessions.pause(ADMIN, session))
            known.status = Status.PAUSED

    @rule(name=st.sampled_from(IDS), level=st.sampled_from(LEVELS), fails=st.booleans())
    def change_level(self, name: str, level: str, fails: bool) -> None:
        known = self.live(name)
        if known is None or known.status is Status.PAUSED:
            return
        session, fails = self.session(name), fails and not known.suspended
        changing = self.plane.sessions.changes.set_level(ADMIN, session, level, {})
        if fails and (known.closed or level != known.level):
            self.engine.fail_next("create")
            with pytest.raises(PaddockError):
                self.run(changing)
            # After a raise that fails, it continues at its level.
            known.closed = LEVELS.index(level) <= LEVELS.index(known.level)
            lowest = min(level, known.level, key=LEVELS.index)
            self.at_level(known, lowest)
        else:
            self.run(changing)
            known.closed = False
            self.at_level(known, level)

    def at_level(self, known: Known, level: str) -> None:
        if level != known.level:
            known.level, known.rules = level, known.rules.at_another_level()

    @rule(
        name=st.sampled_from(IDS),
        denied=st.sets(st.sampled_from(HOSTS)),
        allowed=st.none() | st.sets(st.sampled_from(HOSTS)),
    )
    def set_rules(self, name: str, denied: set[str], allowed: set[str] | None) -> None:
        """The owner denies these hosts, and an admin allows those."""
        known = self.live(name)
        if known is None or known.closed or known.level != "out":
            return
        only = Narrowing(deny=tuple(Rule(host) for host in sorted(denied)))
        also = known.rules.also
        if allowed is not None:
            also = Rules(allow=tuple(Rule(host) for host in sorted(allowed)))
        self.run(self.plane.egress.change(ADMIN, self.session(name), only, also))
        known.rules = known.rules.changed(only, also)

    @rule(name=st.sampled_from(IDS), host=st.sampled_from(HOSTS))
    def request(self, name: str, host: str) -> None:
        """A program in the sandbox asks for a page; nothing that is allowed has an address."""
        known = self.live(name)
        usable = known and known.level == "out" and not known.closed and not known.suspended
        if known is None or not usable or known.status is Status.PAUSED:
            return
        denied = {rule.host for rule in known.rules.only.deny} | {"b.example"}
        allowed = {rule.host for rule in known.rules.also.allow} | {"a.example"}
        status = self.run(self.asked(self.session(name), host))
        assert (status == 403) == (host in denied or host not in allowed)

    async def asked(self, session: Session, host: str) -> int:
        assert session.sandbox is not None
        socket = session.sandbox.directory.egress / "egress.sock"
        reader, writer = await asyncio.open_unix_connection(socket)
        writer.write(f"GET http://{host}/ HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
        answer = await reader.read()
        writer.close()
        await writer.wait_closed()
        return int(answer.split()[1])

    @rule(name=st.sampled_from(IDS))
    def rotate_handle(self, name: str) -> None:
        known = self.live(name)
        if known:
            known.handle = self.run(
                self.plane.sessions.changes.rotate_handle(ADMIN, self.session(name))
            )

    @rule(name=st.sampled_from(IDS))
    def suspend(self, name: str) -> None:
        known = self.live(name)
        if known:
            idle = known.status is Status.ACTIVE and not known.closed and not known.suspended
            done = self.run(self.plane.sessions.suspensions.suspend(self.session(name), "room"))
            assert done == idle
            known.suspended = known.suspended or idle

    @rule(name=st.sampled_from(IDS), fails=st.booleans())
    def use(self, name: str, fails: bool) -> None:
        known = self.live(name)
        if known is None:
            return
        restores = known.suspended and known.status is Status.ACTIVE
        if fails and restores:
            self.engine.fail_next("create")
            with pytest.raises(PaddockError):
                self.run(self.used(name))
        else:
            self.run(self.used(name))
            known.suspended = known.suspended and not restores

    async def used(self, name: str) -> None:
        async with self.plane.sessions.suspensions.using(ADMIN, self.session(name)):
            pass

    @rule(name=st.sampled_from(IDS))
    def kill_the_sandbox(self, name: str) -> None:
        known = self.live(name)
        if known is None or known.closed or known.suspended:
            return
        session = self.session(name)

        async def die() -> None:
            assert session.sandbox is not None
            await self.engine.die(session.sandbox.container_id)
            await until(lambda: not session.live)
            async with session.lock:
                pass

        self.run(die())
        known.status = Status.ABORTED

    @rule(kills=st.sets(st.sampled_from(IDS)))
    def restart(self, kills: set[str]) -> None:
        """Some sandboxes die while no control plane runs."""
        containers = {name: self.container(name) for name in kills}
        self.run(self.plane.close())
        for name, container in containers.items():
            if container is not None:
                self.run(self.engine.die(container))
                self.known[name].status = Status.ABORTED
        self.plane = self.run(self.reopened())

    async def reopened(self) -> ControlPlane:
        resolver = NamesResolver(Names())
        return await reopened(self.settings, self.engine, self.agents, resolver)

    def container(self, name: str) -> str | None:
        known = self.live(name)
        sandbox = self.session(name).sandbox if known else None
        return None if sandbox is None else sandbox.container_id

    @precondition(lambda self: self.known)
    @rule(
        name=st.sampled_from(IDS),
        what=st.sampled_from(("create", "close", "level", "suspend", "use")),
        level=st.sampled_from(LEVELS),
        writes=st.integers(0, 6),
    )
    def die_while(self, name: str, what: str, level: str, writes: int) -> None:
        """The control plane is killed after this many writes, before any caller gets an answer."""
        live = self.live(name)
        if (live is None) is not (what == "create"):
            return
        if live and live.status is Status.PAUSED and what == "level":
            return
        sessions = self.plane.sessions
        work: Awaitable[Any]
        if what == "create":
            work = sessions.create(ADMIN, NewSession(id=name, permission_level=level))
        elif what == "close":
            work = sessions.close(ADMIN, self.session(name), purge=False)
        elif what == "suspend":
            work = sessions.suspensions.suspend(self.session(name), "room")
        elif what == "use":
            work = self.used(name)
        else:
            work = sessions.changes.set_level(ADMIN, self.session(name), level, {})
        self.run(self.killed(work, writes))
        self.plane = self.run(self.reopened())
        self.check_after_death(name, what, level)

    async def killed(self, work: Awaitable[Any], writes: int) -> None:
        database, write = self.plane.database, self.plane.database.write

        async def count(function: Any, **how: Any) -> Any:
            nonlocal writes
            if writes == 0:
                self.engine.dead = True
                raise StoreError("killed")
            writes -= 1
            return await write(function, **how)

        database.write = count  # type: ignore[method-assign]
        with suppress(PaddockError, StoreError):
            await work
        writes, self.engine.dead = 0, True
        await self.plane.close()
        self.engine.dead = False

    def check_after_death(self, name: str, what: str, level: str) -> None:
        """The session is as it was before, or as it was to become."""
        before = self.known.get(name)
        found = self.plane.sessions.registry.get(name)
        if what == "create":
            if found is not None and (before is None or found.key != before.key):
                assert found.live
                self.known[name] = Known(found.key, "", level)
            return
        assert before is not None
        assert found is not None
        assert found.key == before.key
        if what == "level":
            assert found.level.name in {level, before.level}
            self.at_level(before, found.level.name)
        if what in ("suspend", "use"):
            assert (found.status, before.closed) == (before.status, found.gate is not None)
        before.status, before.suspended = found.status, found.suspended
        before.closed = found.live and found.sandbox is None and not found.suspended

    @invariant()
    def nobody_is_lost(self) -> None:
        if not hasattr(self, "plane"):
            return
        registry = self.plane.sessions.registry
        live = {name: known for name in IDS if (known := self.live(name))}
        assert {session.key for session in registry.live} == {known.key for known in live.values()}
        for name, known in self.known.items():
            session = self.session(name)
            assert (session.key, session.status) == (known.key, known.status), name
            if known.handle:
                assert registry.by_handle(digest(known.handle)) is (
                    session if name in live else None
                )
        for name, known in live.items():
            session = self.session(name)
            assert session.level.name == known.level
            assert session.own_rules == known.rules
            assert session.suspended == known.suspended
            assert (session.sandbox is None) == (known.closed or known.suspended)
            if known.status is Status.ACTIVE and session.sandbox is not None:
                session.check_open()

    @invariant()
    def nothing_else_runs(self) -> None:
        if not hasattr(self, "plane"):
            return
        used = [self.container(name) for name in IDS if self.live(name)]
        wanted = sorted(container for container in used if container is not None)
        assert sorted(self.engine.containers) == wanted
        for name in IDS:
            container = self.container(name)
            if container is not None:
                paused = self.engine.containers[container].state is ContainerState.PAUSED
                assert paused == (self.session(name).status is Status.PAUSED)

    def teardown(self) -> None:
        if hasattr(self, "plane"):
            self.run(self.plane.close())
        self.run(self.agents.close())
        self.runner.close()
        for point in reversed(mounts.mounts_under(str(self.directory))):
            mounts.unmount(point)
        shutil.rmtree(self.directory)


async def test_a_session_outlives_a_restart_although_its_id_was_used_before(
    settings: Settings, engine: FakeEngine, agents: Agents
) -> None:
    plane = await ControlPlane.open(settings, engine)
    request = NewSession(id="again", permission_level="high")
    first, *_ = await plane.sessions.create(ADMIN, request)
    await plane.sessions.close(ADMIN, first, purge=False)
    second, handle, _ = await plane.sessions.create(ADMIN, request)
    await plane.close()
    plane = await reopened(settings, engine, agents)
    try:
        found = plane.sessions.finder.by_handle(digest(handle))
        assert found is plane.sessions.registry.get("again")
        assert found is not None
        assert found.key == second.key
        with pytest.raises(ConflictError):
            await plane.sessions.create(ADMIN, request)
        command = await plane.executions.start(ADMIN, found, ExecRequest(argv=["true"]))
        assert (await plane.executions.wait(found, command)).exit_code == 0
        await plane.sessions.close(ADMIN, found, purge=False)
        assert engine.containers == {}
    finally:
        await plane.close()


async def test_no_session_begins_to_end_while_the_control_plane_does(
    settings: Settings, engine: FakeEngine, agents: Agents
) -> None:
    """Its sandbox is already out of reach; the next start ends the session."""
    plane = await ControlPlane.open(settings, engine)
    session, *_ = await plane.sessions.create(ADMIN, NewSession(budget={"commands": 1}))
    await plane.sessions.shut_down()
    session.budget.exceed(Kind.COMMANDS, datetime.now(UTC))
    await plane.sessions.expire(session)
    plane.sessions.deadlines.watch(session)
    assert plane.sessions._tasks.idle
    assert plane.sessions.deadlines._timers == {}
    await plane.database.write(session_rows.with_budget(session))
    await plane.close()
    assert len(engine.containers) == 1
    plane = await reopened(settings, engine, agents)
    try:
        assert plane.sessions.registry.live == []
        assert engine.containers == {}
    finally:
        await plane.close()


async def test_a_start_removes_half_written_evidence(
    settings: Settings, engine: FakeEngine, agents: Agents
) -> None:
    plane = await ControlPlane.open(settings, engine)
    session, *_ = await plane.sessions.create(ADMIN, NewSession())
    await plane.close()
    written = settings.state_dir / "evidence" / session.key / "0123456789abcdef"
    written.mkdir(parents=True)
    (written / ".output").write_bytes(b"half of")
    plane = await reopened(settings, engine, agents)
    await plane.close()
    assert list(written.parent.iterdir()) == []


async def test_a_mount_that_hangs_keeps_no_control_plane_from_its_start(
    settings: Settings, engine: FakeEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    plane = await ControlPlane.open(settings, engine)
    await plane.close()
    left = [SandboxDirectory(settings.state_dir / "sandboxes" / name) for name in ("a", "b")]
    for directory in left:
        directory.path.mkdir(parents=True)
    release, goes_on = SandboxDirectory.release, threading.Event()

    def hang(directory: SandboxDirectory) -> None:
        if directory.name == "a":
            assert goes_on.wait(WAIT_SECONDS)
        release(directory)

    monkeypatch.setattr(SandboxDirectory, "release", hang)
    monkeypatch.setattr(recovery, "_RELEASE_SECONDS", 3.0)
    plane = await ControlPlane.open(settings, engine)
    try:
        assert [directory.path.exists() for directory in left] == [True, False]
        assert plane.recovered.directories_removed == 1
    finally:
        goes_on.set()
        await plane.close()
        await until(lambda: not left[0].path.exists())


async def test_a_sandbox_that_was_never_configured_is_removed_and_not_taken_up(
    settings: Settings, engine: FakeEngine, agents: Agents
) -> None:
    plane = await ControlPlane.open(settings, engine)
    session, *_ = await plane.sessions.create(ADMIN, NewSession(id="a"))
    await plane.close()
    agents.latest.configuration = None
    plane = await reopened(settings, engine, agents)
    try:
        found = plane.sessions.registry.get("a")
        assert found is not None
        assert (found.key, found.status) == (session.key, Status.ABORTED)
        assert engine.containers == {}
        # The agent was not configured a second time.
        assert agents.latest.configuration is None
    finally:
        await plane.close()


async def test_an_agent_is_configured_once_however_often_the_control_plane_starts(
    settings: Settings, engine: FakeEngine, agents: Agents
) -> None:
    plane = await ControlPlane.open(settings, engine)
    await plane.sessions.create(ADMIN, NewSession(id="a"))
    told = agents.latest.configuration
    assert told is not None
    for _ in range(2):
        await plane.close()
        plane = await reopened(settings, engine, agents)
    found = plane.sessions.registry.get("a")
    assert found is not None
    assert found.live
    # A second configuration would have been refused, and the session lost.
    assert agents.latest.configuration is told
    await plane.sessions.close(ADMIN, found, purge=False)
    await plane.close()


@pytest.fixture
def restarts(monkeypatch: pytest.MonkeyPatch) -> Iterator[Restarts]:
    _forget_settings(monkeypatch)
    state = Restarts()
    state.start()
    yield state
    state.teardown()


def test_an_interrupted_lowering_outlives_more_than_one_restart(restarts: Restarts) -> None:
    restarts.create(name="a", level="high")
    restarts.die_while(name="a", what="level", level="low", writes=1)
    assert restarts.known["a"].closed
    for _ in range(2):
        restarts.restart(kills=set())
        restarts.nobody_is_lost()
    restarts.change_level(name="a", level="low", fails=False)
    restarts.nobody_is_lost()


@pytest.mark.parametrize("writes", range(5))
def test_no_sandbox_of_a_laxer_version_of_its_level_is_taken_up(
    restarts: Restarts, writes: int
) -> None:
    restarts.create(name="a", level="high")
    high = restarts.plane.levels["high"]
    stricter = replace(high, commands=frozenset({"ls"}), sha256="f" * 64)
    restarts.plane.levels.replace({**restarts.plane.levels, "high": stricter})
    restarts.die_while(name="a", what="level", level="high", writes=writes)
    session = restarts.session("a")
    changed = session.level == stricter
    assert changed is (writes > 0)
    if session.sandbox is not None:
        told = restarts.agents.by_run_dir[str(session.sandbox.directory.run)].configuration
        assert told is not None
        assert told["commands"] == (["ls"] if changed else None)
    restarts.nobody_is_lost()
    restarts.nothing_else_runs()


def _forget_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("PADDOCK_CONFIG_FILE", "PADDOCK_WORKSPACES_DIR", "SESSION_WORKSPACES_DIR"):
        monkeypatch.delenv(name, raising=False)


def test_rules_of_the_way_out_outlive_restarts_and_kills(restarts: Restarts) -> None:
    restarts.create(name="a", level="out")
    restarts.set_rules(name="a", denied={"a.example"}, allowed={"c.example"})
    for event in ("restart", "kill", "repair"):
        if event == "restart":
            restarts.restart(kills=set())
        elif event == "kill":
            restarts.die_while(name="a", what="level", level="high", writes=0)
        else:
            restarts.change_level(name="a", level="out", fails=False)
        restarts.nobody_is_lost()
        for host in HOSTS:
            restarts.request(name="a", host=host)
    restarts.nothing_else_runs()
    assert restarts.known["a"].rules.only.deny


def test_a_restart_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    _forget_settings(monkeypatch)
    run_state_machine_as_test(
        Restarts,
        settings=how(
            max_examples=how().max_examples * 2 // 5,
            stateful_step_count=20,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
