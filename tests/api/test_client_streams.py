"""The client's streams over broken connections: no loss and no duplicates."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing

import pytest

from paddock import (
    AuditEvent,
    ConnectionLostError,
    ExecEvent,
    Exit,
    ExitData,
    NoAnswerError,
    Output,
    Paddock,
    PaddockError,
    PermissionDeniedError,
    Session,
    StartData,
    UnauthorizedError,
    UnreachableError,
)
from paddock.client.retry import Patience
from tests.api.conftest import ADMIN_KEY, OPERATOR_KEY, Api
from tests.support.cutter import Cutter, cutting
from tests.support.fake_agent import Play
from tests.support.limits import WAIT_SECONDS

pytestmark = pytest.mark.slow


@pytest.fixture
async def cutter(api: Api) -> AsyncIterator[Cutter]:
    assert api.server.port is not None
    async with cutting(api.server.port) as cutter:
        yield cutter


@pytest.fixture
async def paddock(cutter: Cutter) -> AsyncIterator[Paddock]:
    async with asyncio.timeout(WAIT_SECONDS), Paddock(cutter.url, ADMIN_KEY) as client:
        yield client


@pytest.fixture
async def session(api: Api, paddock: Paddock) -> Session:
    api.agents.plays["build"] = Play(b"one\n", holds=True)
    return await paddock.sessions.create(permission_level="high")


async def started(events: AsyncIterator[ExecEvent]) -> str:
    """The id of a command whose first line of output has come."""
    first = await anext(events)
    assert isinstance(first, StartData)
    assert text(await anext(events)) == "one\n"
    return first.command_id


def text(event: ExecEvent) -> str:
    assert isinstance(event, Output), event
    return event.text


async def test_a_command_goes_on_over_cut_connections(
    api: Api, cutter: Cutter, session: Session
) -> None:
    async with aclosing(session.exec_stream("build")) as events:
        command_id = await started(events)
        ran = await api.agent.asked("exec")
        # The command may run without its client, but only for a limited time.
        assert (ran["background"], ran["timeout_ms"]) == (True, 120_000)
        for number in range(5):
            cutter.cut()
            # Printed without a connection; the cut also splits a character.
            api.agent.print(command_id, "stdout", f"{number}é".encode() + b"\xc3")
            assert text(await anext(events)) == f"{number}é"
            cutter.cut()
            api.agent.print(command_id, "stdout", b"\xa9")
            assert text(await anext(events)) == "é"
        cutter.cut()
        api.agent.end(command_id, 3)
        rest = [event async for event in events]
    assert [type(event) for event in rest] == [ExitData]
    assert isinstance(rest[0], Exit)
    assert (rest[0].exit_code, rest[0].output_bytes) == (3, 4 + 5 * 5)
    assert cutter.accepted > 5
    assert not any(method == "signal" for method, _ in api.agent.requests)


async def test_every_byte_once_wherever_it_is_cut(
    api: Api, cutter: Cutter, session: Session
) -> None:
    said = ""
    async with aclosing(session.exec_stream("build")) as events:
        command_id = await started(events)

        async def talk() -> None:
            for number in range(200):
                api.agent.print(command_id, "stdout", f"{number},".encode())
                if number % 20 == 0:
                    cutter.cut()
                await asyncio.sleep(0)
            api.agent.end(command_id)

        talking = asyncio.create_task(talk())
        async for event in events:
            said += event.text if isinstance(event, Output) else ""
        await talking
    assert said == "".join(f"{number}," for number in range(200))


async def test_leaving_early_kills(api: Api, session: Session) -> None:
    async with aclosing(session.exec_stream("build", timeout=7)) as events:
        command_id = await started(events)
    assert (await api.agent.asked("exec"))["timeout_ms"] == 7000
    assert (await api.agent.asked("signal")) == {"command_id": command_id, "signal": 9}
    assert (await session.processes.wait(command_id)).exit_code == 137


async def test_a_cancelled_reader_kills(api: Api, session: Session) -> None:
    begun = asyncio.Event()

    async def read() -> None:
        async for event in session.exec_stream("build"):
            if isinstance(event, Output):
                begun.set()

    reading = asyncio.create_task(read())
    await begun.wait()
    reading.cancel()
    await asyncio.gather(reading, return_exceptions=True)
    assert (await api.agent.asked("signal"))["signal"] == 9


async def test_without_resume_the_connection_is_the_command(
    api: Api, cutter: Cutter, session: Session
) -> None:
    async with aclosing(session.exec_stream("build", resume=False)) as events:
        await started(events)
        cutter.cut()
        with pytest.raises(ConnectionLostError):
            await anext(events)
    assert (await api.agent.asked("cancel"))["reason"] == "client_gone"
    ran = await api.agent.asked("exec")
    assert (ran["background"], ran["timeout_ms"]) == (False, 600_000)


async def test_refusals_end_a_stream(session: Session, paddock: Paddock) -> None:
    low = await paddock.sessions.create(permission_level="low")
    with pytest.raises(PermissionDeniedError) as caught:
        await anext(low.exec_stream("curl x"))
    assert caught.value.rule == "command-allowlist"


async def test_a_break_before_the_start_is_told(api: Api, cutter: Cutter, session: Session) -> None:
    asking = asyncio.Event()
    release = asyncio.Event()
    own = api.agent._on_exec

    async def late(params: dict[str, object]) -> dict[str, object]:
        asking.set()
        await release.wait()
        return await own(params)

    api.agent._on_exec = late  # type: ignore[method-assign]
    reading = asyncio.create_task(anext(session.exec_stream("build")))
    await asking.wait()
    cutter.cut()
    with pytest.raises(ConnectionLostError):
        await reading
    release.set()


async def test_following_a_background_command(api: Api, cutter: Cutter, session: Session) -> None:
    command = await session.processes.start("build")
    async with aclosing(session.processes.follow(command.command_id)) as events:
        await started(events)
        cutter.cut()
        api.agent.print(command.command_id, "stderr", b"two")
        event = await anext(events)
        assert isinstance(event, Output)
        assert (event.stream, event.offset, event.text) == ("stderr", 4, "two")
    assert (await session.processes.get(command.command_id)).status == "running"


async def test_a_server_that_is_away_for_a_while(
    api: Api, cutter: Cutter, session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    missed = asyncio.Event()

    def delay(_self: Patience, error: PaddockError) -> float:
        if isinstance(error, UnreachableError):
            missed.set()
        return 0.01

    monkeypatch.setattr(Patience, "delay", delay)
    async with aclosing(session.exec_stream("build")) as events:
        command_id = await started(events)
        await cutter.refuse()
        following = asyncio.ensure_future(anext(events))
        await missed.wait()
        await cutter.listen()
        api.agent.print(command_id, "stdout", b"back")
        assert text(await following) == "back"


async def test_a_server_that_stays_away(api: Api, cutter: Cutter) -> None:
    api.agents.plays["build"] = Play(b"one\n", holds=True)
    async with Paddock(cutter.url, ADMIN_KEY, reconnect=0.3) as paddock:
        session = await paddock.sessions.create(permission_level="high")
        async with aclosing(session.exec_stream("build")) as events:
            await started(events)
            await cutter.refuse()
            with pytest.raises(UnreachableError):
                await anext(events)


async def test_silence_is_a_broken_connection(
    api: Api, cutter: Cutter, session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("paddock.client.transport._SILENCE_SECONDS", 0.2)
    monkeypatch.setattr("paddock.client.commands._KILL_SECONDS", 0.1)
    async with Paddock(cutter.url, ADMIN_KEY, reconnect=0) as hasty:
        same = await hasty.sessions.get(session.id)
        async with aclosing(same.exec_stream("build")) as events:
            await started(events)
            cutter.stall()
            with pytest.raises(NoAnswerError):
                await anext(events)
            cutter.flow()


async def test_events_each_once_to_the_end(
    cutter: Cutter, session: Session, paddock: Paddock
) -> None:
    seen: list[AuditEvent] = []
    async for event in session.events():
        seen.append(event)
        if event.seq < 6:
            await cutter.cut_off()
            await session.files.mkdir(f"d{event.seq}")
        elif event.seq == 6:
            await session.close()
    assert [event.seq for event in seen] == list(range(1, len(seen) + 1))
    assert seen[-1].operation == "session.terminated"
    assert [event async for event in session.events(after=len(seen))] == []
    assert [event.seq async for event in session.events(after=6)] == list(range(7, len(seen) + 1))


async def test_events_by_handle_whose_end_is_lost(
    api: Api, cutter: Cutter, session: Session, paddock: Paddock
) -> None:
    assert session.handle is not None
    own = await paddock.sessions.attach(session.id, session.handle)
    async with aclosing(own.events()) as events:
        assert (await anext(events)).operation == "session.create"
        cutter.stall()
        await api.json("DELETE", f"/api/sessions/{session.id}")
        cutter.cut()
        cutter.flow()
        with pytest.raises(UnauthorizedError):
            # The handle is void now, and incomplete output must not look complete.
            [event async for event in events]


async def test_events_of_all_sessions(api: Api, cutter: Cutter, paddock: Paddock) -> None:
    async with Paddock(cutter.url, OPERATOR_KEY) as own:
        mine = await own.sessions.create()
        await paddock.sessions.create()
        async with aclosing(own.events(after=0)) as events:
            first = await anext(events)
            assert first.session_id == mine.id
            await cutter.cut_off()
            await mine.settings.set(permission_level="low")
            following = await anext(events)
            assert following.id > first.id
            assert following.session_id == mine.id
