"""The Python client with the application: calls, results, errors, and both interfaces."""

import asyncio
import base64
from collections.abc import AsyncIterator, Iterator
from typing import assert_type

import pytest

from orchestrator.rules.access.keys import Principal, Role
from paddock import (
    Async,
    BudgetExceededError,
    CommandResult,
    ExitData,
    InspectedSession,
    NotFoundError,
    Output,
    Paddock,
    PaddockError,
    PaddockSync,
    PermissionDeniedError,
    Session,
    SessionTerminatedError,
    StartData,
    StreamedOutput,
    Sync,
    UnauthorizedError,
    ValidationError,
)
from paddock.audit.chain import verify_chain
from tests.api.conftest import ADMIN_KEY, OPERATOR_KEY, OTHER_KEY, Api
from tests.support.fake_agent import Play


@pytest.fixture
def url(api: Api) -> str:
    return str(api.server.make_url("/"))


@pytest.fixture
async def paddock(url: str) -> AsyncIterator[Paddock]:
    async with Paddock(url, ADMIN_KEY) as client:
        yield client


@pytest.fixture
async def session(paddock: Paddock) -> Session:
    return await paddock.sessions.create(permission_level="high")


async def test_session_from_creation_to_end(paddock: Paddock) -> None:
    session = await paddock.sessions.create(
        id="one", permission_level="low", labels={"team": "a"}, limits={"cpus": 0.25}
    )
    assert_type(session, Session[Async])
    async with session:
        assert session.id == "one"
        assert session.handle is not None
        assert session.info.permission_level == "low"
        assert session.info.limits.cpus == 0.25
        assert session.info.created_at.tzinfo is not None
        assert session.info.raw["owner"] == session.info.owner == "admin"
        assert session.handle not in repr(session.info.raw) + repr(session) + repr(paddock)
        same = await paddock.sessions.ensure("one")
        assert same.handle is None
        assert (await paddock.sessions.get("one")).info.labels == {"team": "a"}
        assert [found.id for found in await paddock.sessions.list(label=("team", "a"))] == ["one"]
        assert await paddock.sessions.list(status="paused") == ()
        assert (await session.pause()).status == "paused"
        assert session.info.status == "paused"
        assert (await session.resume()).live
        assert (await session.interrupt()).activity == "idle"
        assert (await session.refresh()).sandbox is not None
        old = session.handle
        assert await session.rotate_handle() != old
    assert session.info.status == "completed"
    assert session.info.termination is not None
    with pytest.raises(SessionTerminatedError) as caught:
        await session.exec("ls")
    assert (caught.value.status, caught.value.code) == (410, "session_terminated")
    assert caught.value.fields["session_status"] == "completed"
    await session.close(purge=True)


async def test_budgets(paddock: Paddock, api: Api) -> None:
    api.agents.plays["sleep"] = Play(b"up", holds=True)
    session = await paddock.sessions.create(
        permission_level="high", wall_timeout=600, budget={"commands": 1, "time": 99.5}
    )
    assert session.info.deadlines.wall_at is not None
    assert session.info.deadlines.budget_at is not None
    assert session.handle is not None
    agent = await paddock.sessions.attach(session.id, session.handle)
    events = session.exec_stream("sleep 100")
    assert isinstance(await anext(events), StartData)
    assert isinstance(await anext(events), Output)
    budget = await agent.budget()
    assert (budget.limits.time, budget.limits.cost) == (99.5, None)
    assert (budget.consumed.commands, budget.remaining.commands) == (1, 0)
    with pytest.raises(BudgetExceededError) as refusal:
        await agent.exec("true")
    assert refusal.value.status == 429
    assert refusal.value.fields == {"kind": "commands", "limit": 1, "consumed": 1}
    with pytest.raises(BudgetExceededError):
        await anext(events)
    with pytest.raises(BudgetExceededError):
        await session.files.read("a")
    assert (await session.refresh()).status == "budget-exceeded"
    again = await paddock.sessions.ensure("two", budget={"cpu_seconds": 1})
    assert again.info.budget.limits.cpu_seconds == 1
    with pytest.raises(ValidationError, match=r"budget\.sleep is not a known field"):
        await paddock.sessions.create(budget={"sleep": 1})


async def test_leaving_closes_once(paddock: Paddock) -> None:
    async with await paddock.sessions.create() as session:
        await session.close(purge=True)
    closes = [event async for event in session.audit.events(operation="session.close")]
    assert len(closes) == 1


async def test_leaving_hides_no_failure(paddock: Paddock) -> None:
    async def fail(session: Session, *, closed: bool) -> None:
        async with session:
            if closed:
                await paddock.close()
            raise KeyError

    session = await paddock.sessions.create()
    with pytest.raises(KeyError):
        await fail(session, closed=False)
    assert session.info.status == "completed"
    another = await paddock.sessions.create()
    with pytest.raises(KeyError):
        await fail(another, closed=True)


async def test_pages_of_sessions(paddock: Paddock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("paddock.client.sessions._PAGE", 2)
    made = [(await paddock.sessions.create()).id for _ in range(5)]
    assert [session.id for session in await paddock.sessions.list()] == made[::-1]


async def test_input_may_be_bytes(api: Api, session: Session) -> None:
    await session.exec("cat", stdin=b"\x00\xff")
    params = await api.agent.asked("exec")
    assert base64.b64decode(params["stdin"]) == b"\x00\xff"


async def test_large_requests_are_sent_as_they_are(api: Api, session: Session) -> None:
    """The HTTP library's warning would be an error here."""
    words = ["echo", *["é" * 65_000] * 15]
    await session.exec(argv=words, stdin=b"\xff" * 1024 * 1024)
    ran = await api.agent.asked("exec")
    assert ran["argv"] == words
    assert len(base64.b64decode(ran["stdin"])) == 1024 * 1024
    assert [type(e) async for e in session.exec_stream(argv=words)] == [StartData, ExitData]
    await session.files.write("large", "é" * 1_000_000)
    assert api.agents.files["large"] == "é".encode() * 1_000_000
    with pytest.raises(ValidationError, match="surrogates"):
        await session.exec(argv=["echo", "\udcff"])


async def test_exec(api: Api, session: Session) -> None:
    api.agents.plays["make"] = Play(b"out \xff\n", b"err\n", exit_code=2)
    result = await session.exec(
        argv=["make", "it"], cwd="src", env={"A": "1"}, stdin="in", timeout=5
    )
    assert_type(result, CommandResult)
    assert (result.exit_code, result.ok) == (2, False)
    assert (result.stdout, result.stderr) == ("out \ufffd\n", "err\n")
    ran = await api.agent.asked("exec")
    assert (ran["argv"], ran["cwd"], ran["timeout_ms"]) == (["make", "it"], "/workspace/src", 5000)
    recorded = [event async for event in session.audit.events(operation="command.exit")]
    assert [(event.seq, event.hash) for event in recorded] == [
        (result.audit.seq, result.audit.hash)
    ]
    assert (await session.exec("make again")).ok is False
    for wrong in ({}, {"command": "ls", "argv": ["ls"]}, {"argv": "ls -la"}):
        with pytest.raises(TypeError):
            await session.exec(**wrong)


async def test_refusals_have_classes(url: str, paddock: Paddock, session: Session) -> None:
    low = await paddock.sessions.create(permission_level="low")
    with pytest.raises(PermissionDeniedError, match="curl") as denied:
        await low.exec("curl x")
    assert (denied.value.rule, denied.value.status) == ("command-allowlist", 403)
    assert denied.value.request_id
    assert (await low.settings.set(permission_level="medium")).permission_level == "medium"
    assert (await low.settings.get()).workspace.mode == "session"
    with pytest.raises(ValidationError) as malformed:
        await low.settings.set(permission_level="root")
    assert malformed.value.status == 400
    with pytest.raises(ValidationError) as malformed:
        await session.exec("ls", env={"1": "x"})
    assert malformed.value.fields["field"] == "env.1"
    with pytest.raises(NotFoundError):
        await paddock.sessions.get("nobody")
    for odd in ("..", "a/b", "a?b", "ä"):
        with pytest.raises(NotFoundError):
            await paddock.sessions.get(odd)
    async with Paddock(url, OTHER_KEY) as other:
        with pytest.raises(NotFoundError):
            await other.sessions.get(session.id)
    async with Paddock(url, "pdk_unknown") as unknown:
        with pytest.raises(UnauthorizedError):
            await unknown.sessions.list()


async def test_by_handle(paddock: Paddock, session: Session) -> None:
    assert session.handle is not None
    own = await paddock.sessions.attach(session.id, session.handle)
    assert (await own.exec("true")).ok
    with pytest.raises(PermissionDeniedError):
        await own.close()
    first = await anext(own.audit.events())
    assert first.operation == "session.create"
    await session.rotate_handle()
    with pytest.raises(UnauthorizedError):
        await own.refresh()


async def test_background_commands(api: Api, session: Session) -> None:
    api.agents.plays["serve"] = Play("ready é".encode(), holds=True)
    command = await session.processes.start("serve", stdin_open=True)
    assert (command.status, command.argv, command.exit) == ("running", ["serve"], None)
    page = await session.processes.get(command.command_id)
    assert [piece.text for piece in page.output] == ["ready é"]
    assert (await session.processes.get(command.command_id, after=page.next)).output == []
    await session.processes.stdin(command.command_id, "hello")
    await session.processes.stdin(command.command_id, b" \xff")
    assert api.agent.stdin == {command.command_id: b"hello \xff"}
    waiting = asyncio.create_task(session.processes.wait(command.command_id))
    await session.processes.signal(command.command_id, "SIGINT")
    assert (await waiting).exit_code == 130
    (listed,) = await session.processes.list()
    assert listed.exit is not None
    assert listed.command_id == command.command_id
    followed = [event async for event in session.processes.follow(command.command_id, after=6)]
    assert [type(event) for event in followed] == [StartData, StreamedOutput, ExitData]
    with pytest.raises(NotFoundError):
        await session.processes.get("0" * 16)


async def test_audit(paddock: Paddock, session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    result = await session.exec("ls")
    monkeypatch.setattr("paddock.client.audit._PAGE", 1)
    events = [event async for event in session.audit.events()]
    assert [event.seq for event in events] == [1, 2, 3]
    assert events[1].args["argv"] == ["ls"]
    assert [event.seq async for event in session.audit.events(after=2)] == [3]
    assert (await session.audit.stats()).operation_counts["command.exit"] == 1
    verdict = await session.audit.verify(seq=result.audit.seq, hash=result.audit.hash)
    assert (verdict.ok, verdict.seq) == (True, 3)
    assert not (await session.audit.verify(seq=2, hash="0" * 64)).ok
    lines = [line async for line in session.audit.export()]
    assert verify_chain(lines, (verdict.seq, verdict.hash)).ok
    again = [event async for event in paddock.sessions.audit(session.id).events()]
    assert again == events


async def test_what_the_control_plane_says_of_itself(paddock: Paddock, session: Session) -> None:
    assert [level.name for level in await paddock.policies.list()] == ["low", "medium", "high"]
    ready = await paddock.ready()
    assert set(ready.checks) >= {"engine", "image", "audit"}
    told = await paddock.explain(level="low", command="curl x")
    assert (told.allow, told.rule) == (False, "command-allowlist")
    assert told.remedy
    assert (await paddock.explain(session=session.id, path="a")).allow
    assert (await session.explain(argv=["curl", "x"])).verdict == "allow"


async def test_a_server_that_is_not_ready_is_an_answer(api: Api, paddock: Paddock) -> None:
    api.engine._images = {}
    assert not (await paddock.ready()).ready


def test_arguments_that_can_not_be() -> None:
    for url in ("localhost:8700", "ftp://host", "http://", "http://u:p@host", "http://h/?a=b", ""):
        with pytest.raises(ValueError, match="URL"):
            Paddock(url, "key")
    for key in ("", "a b\n", "schlüssel"):
        with pytest.raises(ValueError, match="key") as caught:
            PaddockSync("http://host", key)
        assert not key or key not in str(caught.value)


async def test_a_closed_client_says_so(paddock: Paddock) -> None:
    await paddock.close()
    with pytest.raises(RuntimeError, match="closed"):
        await paddock.ready()


class TestSync:
    """The same methods, blocking; each test runs in a thread separate from the server's loop."""

    async def test_whole_session(self, api: Api, url: str) -> None:
        api.agents.plays["make"] = Play(chunks=[("stdout", b"a"), ("stderr", b"b")])
        await asyncio.to_thread(_whole_session, url)
        (record,) = api.plane.sessions.registry.all
        assert record.status == "completed"

    async def test_leaving_a_stream_early(self, api: Api, url: str) -> None:
        api.agents.plays["build"] = Play(b"one\n", holds=True)
        await asyncio.to_thread(_leave_early, url)
        assert (await api.agent.asked("signal"))["signal"] == 9

    async def test_from_many_threads(self, url: str) -> None:
        with PaddockSync(url, ADMIN_KEY) as paddock:
            made = await asyncio.gather(
                *(asyncio.to_thread(paddock.sessions.create) for _ in range(5))
            )
        assert len({session.id for session in made}) == 5

    def test_closed(self) -> None:
        paddock = PaddockSync("http://127.0.0.1:9", "key")
        with paddock, pytest.raises(PaddockError):
            paddock.sessions.create()
        paddock.close()
        with pytest.raises(RuntimeError, match="closed"):
            paddock.ready()


def _whole_session(url: str) -> None:
    with PaddockSync(url, OPERATOR_KEY) as paddock:
        session = paddock.sessions.create(permission_level="high")
        assert_type(session, Session[Sync])
        with session:
            result = session.exec("make")
            assert_type(result, CommandResult)
            assert (result.stdout, result.stderr) == ("a", "b")
            events = session.exec_stream("make")
            assert_type(next(events), StartData | StreamedOutput | ExitData)
            assert [type(event) for event in events] == [StreamedOutput, StreamedOutput, ExitData]
            assert session.files.write("a/b", "text") == 4
            assert session.files.read("a/b") == b"text"
            assert session.audit.verify().ok
            assert_type(session.refresh(), InspectedSession)
            with pytest.raises(NotFoundError):
                session.files.read("nothing")


def _leave_early(url: str) -> None:
    with PaddockSync(url, ADMIN_KEY) as paddock:
        session = paddock.sessions.create(permission_level="high")
        events: Iterator[StartData | StreamedOutput | ExitData] = session.exec_stream("build")
        for event in events:
            if isinstance(event, Output):
                break
        del events


def _operator() -> Principal:
    return Principal("operator", Role.OPERATOR)
