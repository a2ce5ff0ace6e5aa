"""Evidence of commands is charged while it is written, and removed if it can't be kept."""

import asyncio
import hashlib
import os
import threading
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from orchestrator.ground.errors import (
    BusyError,
    ConflictError,
    NotFoundError,
    SandboxUnavailableError,
    SessionTerminatedError,
)
from orchestrator.ground.events import EventDraft, Made, now
from orchestrator.ground.limits import KeyLimits
from orchestrator.ground.metrics import Metrics
from orchestrator.ground.store.database import Database
from orchestrator.ground.threads import Threads
from orchestrator.host.link.ask_tokens import AskTokens
from orchestrator.record.audit import query
from orchestrator.record.audit.gaps import Gaps
from orchestrator.record.audit.ledger import Ledger
from orchestrator.record.audit.record_room import RecordRoom
from orchestrator.record.audit.recorder import Recorder
from orchestrator.record.audit.stop_records import StopRecords
from orchestrator.rules.access.keys import KeyRing, Principal, Role
from orchestrator.rules.policy.levels import load_levels
from orchestrator.sandbox.packs.firewall import ContextFirewall
from orchestrator.state import session_rows
from orchestrator.state.budget import Budget
from orchestrator.state.command import Command, CommandExit
from orchestrator.state.command_history import CommandHistory
from orchestrator.state.requests import Kept
from orchestrator.state.session import MAX_RUNNING, Session
from orchestrator.state.session_secrets import SessionSecrets, StoredSecrets
from orchestrator.work.commands import captures as captures_module
from orchestrator.work.commands.captures import Captures
from orchestrator.work.commands.evidence_file import EvidenceFile
from orchestrator.work.commands.left_evidence import remove_left
from orchestrator.work.files.file_requests import FileRequests
from orchestrator.work.files.files import Files
from orchestrator.work.terminals.evidence import Evidence
from orchestrator.work.terminals.terminal_ends import TerminalEnds
from orchestrator.work.terminals.terminal_record import TerminalRecord, TerminalRow
from paddock.audit.archive_file import _evidence_of
from paddock.contract.words import Kind, Status
from tests.support.limits import WAIT_SECONDS
from tests.support.tool import spec
from tests.support.until import until

AGENT = Principal("ci", Role.OPERATOR)
PIECE = bytes(64 * 1024)
MIB = 2**20


class Workspace:
    """A workspace whose files have `pieces` pieces; `before` is called before each piece."""

    def __init__(self, pieces: int, before: Callable[[], None] = lambda: None) -> None:
        self.pieces, self.before = pieces, before
        self.size = 0  # the size that it reports when a file is opened
        self.reading = self.highest = 0
        self.deleted: list[str] = []

    async def read(self, *_: object, **__: object) -> Any:
        """A download of that many pieces."""
        self.reading += 1
        self.highest = max(self.highest, self.reading)
        return SimpleNamespace(size=self.size, chunks=self._chunks, close=self._closed)

    async def _chunks(self) -> AsyncIterator[bytes]:
        for _ in range(self.pieces):
            self.before()
            yield PIECE

    async def _closed(self) -> None:
        self.reading -= 1

    async def mkdir(self, *_: object) -> None:
        """Succeeds."""

    async def delete(self, _principal: object, _session: object, path: str) -> None:
        """Succeeds."""
        self.deleted.append(path)


class Bench:
    """One session whose commands have ended, with the captures that keep their evidence."""

    def __init__(self, directory: Path, ledger: Ledger, workspace: Workspace) -> None:
        self.directory, self.workspace = directory, workspace
        self.free = MIB
        clock = iter(range(10**9)).__next__
        self.room = RecordRoom(KeyRing({}), KeyLimits(), 1, lambda: self.free, clock)
        self.recorder = Recorder(ledger, Metrics(), self.room)
        self.captures = Captures(cast(Any, workspace), self.recorder, directory)
        members: dict[str, Any] = dict.fromkeys(Session.__dataclass_fields__)
        members |= {"key": "k", "id": "s", "owner": "ci", "root_dir": "/w", "last_activity_at": ""}
        members |= {"level": load_levels()["high"], "status": Status.ACTIVE, "terminals": set()}
        members |= {"commands": CommandHistory(), "capturing": asyncio.Lock()}
        members |= {"over": asyncio.get_running_loop().create_future()}
        members |= {"budget": Budget(datetime.now(UTC), {Kind.AUDIT_BYTES: MIB})}
        self.session = Session(**members | {"secrets": SessionSecrets(StoredSecrets(), {})})

    def end(self, name: str) -> Command:
        """A command that has ended, and whose evidence is now being kept."""
        done = asyncio.get_running_loop().create_future()
        command = Command(name, [], False, "", done)
        self.session.commands[command.id] = command
        command.finish(CommandExit())
        kept = Kept(name, f".paddock-{name}/output.txt", True, None)
        self.captures._follow(AGENT, self.session, command, kept)
        return command

    async def kept(self, *commands: Command) -> list[dict[str, Any]]:
        """The final result for each command's evidence."""
        await asyncio.wait([each.keeping for each in commands if each.keeping is not None])
        ends = [each.result.evidence for each in commands if each.result is not None]
        return [end._asdict() for end in ends if end is not None]

    @property
    def on_disk(self) -> int:
        """Bytes of all evidence files."""
        return sum(path.stat().st_size for path in self.directory.rglob("*") if path.is_file())

    @property
    def paid(self) -> int:
        """Bytes charged to the session."""
        return self.session.budget.used(Kind.AUDIT_BYTES)


@pytest.fixture
async def bench(tmp_path: Path, ledger: Ledger) -> AsyncIterator[Bench]:
    bench = Bench(tmp_path / "evidence", ledger, Workspace(4))
    yield bench
    await bench.captures.close()


async def test_all_commands_together_keep_what_the_budget_has(bench: Bench) -> None:
    commands = [bench.end(f"c{number}") for number in range(40)]
    told = await bench.kept(*commands)
    assert 0 < bench.on_disk < MIB
    assert bench.on_disk == sum(each["bytes"] for each in told)
    assert sum(each["sha256"] is None for each in told) >= 36
    assert bench.workspace.highest == 1
    assert bench.room.used("ci") == bench.paid < MIB + 40 * 2048


async def test_each_piece_is_counted_before_the_next(bench: Bench) -> None:
    counted = []
    bench.workspace.before = lambda: counted.append(bench.paid)
    (told,) = await bench.kept(bench.end("c"))
    assert told["bytes"] == 4 * len(PIECE)
    assert counted[0] == 0 < counted[2] < counted[3]


async def test_a_disk_that_gets_full_meanwhile_ends_it(bench: Bench) -> None:
    def fill() -> None:
        if bench.paid:
            bench.free = 0

    bench.workspace.pieces, bench.workspace.before = 12, fill
    (told,) = await bench.kept(bench.end("c"))
    assert "short of disk space" in told["reason"]
    assert (bench.on_disk, told["bytes"]) == (0, 0)
    assert list((bench.directory / "k").iterdir()) == []
    assert bench.paid < 4096  # only its event


async def test_what_is_still_kept_counts_as_running(bench: Bench) -> None:
    await bench.session.capturing.acquire()
    commands = [bench.end(f"c{number}") for number in range(MAX_RUNNING)]
    with pytest.raises(BusyError):
        bench.session.check_room()
    # Commands that end later do not push the others out.
    for number in range(100):
        done = asyncio.get_running_loop().create_future()
        other = Command(f"d{number}", [], False, "", done, result=CommandExit())
        bench.session.commands[other.id] = other
    with pytest.raises(BusyError):
        bench.session.check_room()
    bench.session.capturing.release()
    await bench.kept(*commands)
    bench.session.check_room()


async def test_what_can_not_be_recorded_goes(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    async def refuse(*_: object, **__: object) -> None:
        assert bench.on_disk == 4 * len(PIECE)
        raise SessionTerminatedError("it is over")

    monkeypatch.setattr(bench.recorder, "record", refuse)
    (told,) = await bench.kept(bench.end("c"))
    assert (told["bytes"], told["sha256"]) == (0, None)
    assert "it is over" in told["reason"]
    assert (bench.on_disk, bench.paid, bench.room.used("ci")) == (0, 0, 0)


async def test_what_may_be_on_record_stays(
    bench: Bench, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The commit takes longer than the wait for it, and succeeds nevertheless."""
    goes_on = threading.Event()

    def slow(_connection: object) -> None:
        assert goes_on.wait(WAIT_SECONDS)

    monkeypatch.setattr("orchestrator.ground.store.database._WRITE_SECONDS", 0.05)
    monkeypatch.setattr(session_rows, "counting", lambda *_: slow)
    (told,) = await bench.kept(bench.end("c"))
    assert (told["bytes"], told["sha256"]) == (0, None)
    assert "audit ledger" in told["reason"]
    goes_on.set()
    monkeypatch.undo()
    await database.write(lambda _: None)  # after the slow commit
    (event,) = await query.events(database, "k", operation="command.evidence")
    (path,) = bench.directory.rglob("output")
    digest = f"sha256:{hashlib.sha256(path.read_bytes()).hexdigest()}"
    assert _evidence_of(event) == {"evidence/c/output": digest}
    assert bench.paid >= bench.on_disk == 4 * len(PIECE)


async def test_what_ends_after_its_session_is_no_error(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    bench.session.over.set_result(None)
    bench.session.status = Status.COMPLETED
    await bench.kept(bench.end("c"))
    assert bench.on_disk == bench.paid == 0
    assert {record.levelname for record in caplog.records} <= {"INFO", "DEBUG"}


async def test_evidence_goes_when_its_keeper_is_closed(bench: Bench) -> None:
    started = threading.Event()
    bench.workspace.pieces, bench.workspace.before = 12, started.set
    command = bench.end("c")
    await until(started.is_set)
    await bench.captures.close()
    assert command.keeping is not None
    assert command.keeping.cancelled()
    assert (bench.on_disk, bench.paid) == (0, 0)


async def test_a_failure_that_nobody_thought_of_is_told_at_once(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    def fail() -> None:
        raise RuntimeError("no")

    bench.workspace.before = fail
    command = bench.end("c")  # holds its task, whose failure would otherwise go unnoticed
    assert command.keeping is not None
    await asyncio.wait([command.keeping])
    await until(lambda: "what is kept of a command failed" in caplog.text)


@pytest.mark.parametrize("call", ["_begin", "_write", "_finish"])
async def test_a_call_that_comes_back_late_leaves_nothing(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    """The wait for the call times out; once the call returns, its file is removed."""
    before, back = getattr(EvidenceFile, call), threading.Event()
    files: list[EvidenceFile] = []

    def late(self: EvidenceFile, *given: object) -> None:
        files.append(self)
        assert back.wait(WAIT_SECONDS)
        before(self, *given)

    monkeypatch.setattr(captures_module, "_DISCARD_SECONDS", 0.01)
    monkeypatch.setattr(EvidenceFile, call, late)
    task = bench.end("c").keeping
    assert task is not None
    await until(lambda: bool(files))
    task.cancel()
    await asyncio.wait([task])
    back.set()
    await until(lambda: not bench.captures._tasks._tasks)
    assert list((bench.directory / "k").iterdir()) == []
    assert bench.paid == 0
    assert [each._fd for each in files] == [-1] * len(files)


async def test_secrets_like_digests_leave_what_archives_need(
    bench: Bench, database: Database
) -> None:
    command, session = bench.end("0123456789abcdef"), bench.session
    likely = [
        *(f"sha256:{digit:x}" for digit in range(16)),
        command.id,
        "output_hash",
        "terminal_id",
    ]
    session.secrets.give({f"S{number}": value for number, value in enumerate(likely)})
    (told,) = await bench.kept(command)
    (event,) = await query.events(database, "k", operation="command.evidence")
    path = next(bench.directory.rglob("output"))
    digest = f"sha256:{hashlib.sha256(path.read_bytes()).hexdigest()}"
    assert told["sha256"] == event["result"]["output_hash"] == digest
    assert _evidence_of(event) == {f"evidence/{command.id}/output": digest}
    directory = bench.directory / "k" / "pty-12345678"
    await Evidence(directory).finish()
    nobody = cast(Any, None)
    ends = TerminalEnds(database, bench.recorder, {}, nobody, Threads("tests", 1))
    session.secrets.give({"TERMINAL": directory.name})
    opened = TerminalRecord.opened(directory.name, spec(), now())
    row = TerminalRow("k", opened)
    await ends.record_abandoned(session, row, directory, "killed")
    (event,) = await query.events(database, "k", operation="pty.close")
    assert len(_evidence_of(event)) == 2
    for name, found in _evidence_of(event).items():
        path = bench.directory / "k" / name.removeprefix("evidence/")
        assert found == f"sha256:{hashlib.sha256(path.read_bytes()).hexdigest()}"


async def test_secrets_like_ids_leave_what_recovery_needs(bench: Bench, database: Database) -> None:
    """Recovery reads the events again, to find out which commands have ended."""
    done = asyncio.get_running_loop().create_future()
    command = Command("0123456789abcdef", [], True, "", done, dispatched=True)
    bench.session.commands[command.id] = command
    bench.session.secrets.give({"COMMAND": command.id, "TERMINAL": "pty-1", "KEY": "commands"})
    made = Made({"commands": [command.id]})
    members: dict[str, Any] = {"actor": "system", "source": "engine", "made": made}
    await bench.recorder.record_often(bench.session, EventDraft("command.oom", **members))
    stops = StopRecords()
    await Gaps(bench.recorder, stops).close(bench.session, ["pty-1"])
    await stops.close()
    assert command.ended
    oom, gap = await query.events(database, "k")
    assert oom["args"] == {"commands": [command.id]}
    assert gap["args"] == {"commands": [command.id], "terminals": ["pty-1"]}


@pytest.mark.parametrize("dispatched", [True, False])
async def test_what_may_run_keeps_its_directory(bench: Bench, dispatched: bool) -> None:
    """The start was not answered; if it was dispatched, the command may run."""
    done = asyncio.get_running_loop().create_future()
    command = Command("c", [], False, "", done, dispatched=dispatched)
    kept = Kept("c", ".paddock-c/output.txt", True, None)

    async def start() -> None:
        async with bench.captures.following(AGENT, bench.session, kept):
            bench.session.commands[command.id] = command
            raise SandboxUnavailableError("no answer")

    with pytest.raises(SandboxUnavailableError):
        await start()
    paths = [".paddock-c/output.txt", ".paddock-c"]
    assert bench.workspace.deleted == ([] if dispatched else paths)
    command.finish(CommandExit())
    if dispatched:
        (told,) = await bench.kept(command)
        assert told["bytes"] == bench.on_disk == 4 * len(PIECE)
        assert bench.workspace.deleted == paths
    assert (command.keeping is not None) is dispatched


@pytest.mark.parametrize("cancelled", [True, False])
async def test_a_directory_that_nobody_has_heard_of_goes(bench: Bench, cancelled: bool) -> None:
    """The directory may exist, although its creator was cancelled or got no answer."""
    kept = Kept("c", ".paddock-c/output.txt", True, None)

    async def mkdir(*_: object) -> None:
        raise asyncio.CancelledError if cancelled else SandboxUnavailableError("no answer")

    bench.workspace.mkdir = mkdir  # type: ignore[method-assign]
    with pytest.raises((asyncio.CancelledError, SandboxUnavailableError)):
        async with bench.captures.following(AGENT, bench.session, kept):
            pytest.fail("it is not there")
    assert bench.workspace.deleted == [".paddock-c/output.txt", ".paddock-c"]


async def test_a_start_removes_evidence_that_is_on_no_record(
    bench: Bench, database: Database
) -> None:
    """A control plane that is killed while it writes evidence leaves the files behind."""
    await bench.kept(bench.end("c"))
    bench.workspace.size = captures_module.MOST_BYTES + 1
    (refused,) = await bench.kept(bench.end("large"))
    assert refused["sha256"] is None
    evidence = bench.directory
    # The files of a known terminal and of archived chains stay.
    await Evidence(evidence / "k" / "pty-1").finish()
    row = "INSERT INTO terminals (id, session_key, opened_at, record) VALUES (?, 'k', '', '{}')"
    await database.write(lambda connection: connection.execute(row, ("pty-1",)).rowcount)
    await Evidence(evidence / "archived" / "pty-2").finish()
    stays = sorted(evidence.rglob("*"))
    await Evidence(evidence / "k" / "pty-3", name="{session_id}-psql").finish()
    for name in ("written", "large", "empty"):
        (evidence / "k" / name).mkdir()
    (evidence / "k" / "written" / ".output").write_bytes(b"half of")
    (evidence / "k" / "large" / "output").write_bytes(b"what could not be removed")
    assert await remove_left(database, evidence) == 4
    assert sorted(evidence.rglob("*")) == stays
    assert await remove_left(database, evidence) == 0


async def test_a_start_keeps_the_evidence_of_a_damaged_event(
    bench: Bench, database: Database
) -> None:
    await bench.kept(bench.end("c"))
    damage = "UPDATE events SET body = '{' WHERE operation = 'command.evidence'"
    assert await database.write(lambda connection: connection.execute(damage).rowcount) == 1
    assert await remove_left(database, bench.directory) == 0
    assert (bench.directory / "k" / "c").is_dir()


async def test_a_start_without_evidence_removes_none(tmp_path: Path, database: Database) -> None:
    assert await remove_left(database, tmp_path / "evidence") == 0


async def test_names_of_evidence_are_durable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[tuple[str, str]] = []
    fsync, rename = os.fsync, Path.rename

    def synced(descriptor: int) -> None:
        calls.append(("sync", os.readlink(f"/proc/self/fd/{descriptor}")))
        fsync(descriptor)

    def renamed(path: Path, target: Path) -> Path:
        calls.append(("rename", str(target)))
        return rename(path, target)

    monkeypatch.setattr(os, "fsync", synced)
    monkeypatch.setattr(Path, "rename", renamed)
    above = [("sync", str(tmp_path / name)) for name in ("evidence/k", "evidence", "")]
    above = [(call, path.rstrip("/")) for call, path in above]
    directory = tmp_path / "evidence" / "k" / "c"
    file = EvidenceFile(directory, None, Threads("tests", 1), lambda size: None)
    await file.begin()
    await file.finish()
    named = calls.index(("rename", str(directory / "output")))
    assert calls[named + 1 :] == [("sync", str(directory)), *above]
    calls.clear()
    terminal = directory.with_name("pty-1")
    await Evidence(terminal).finish()
    assert calls[-4:] == [("sync", str(terminal)), *above]


class Opening:
    """An agent that opens a file once it may."""

    def __init__(self, error: Exception | None) -> None:
        self.error = error
        self.asked: list[str] = []
        self.goes_on = asyncio.Event()

    async def request(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        self.asked.append(method)
        if method == "file.close":
            assert (params["stream"], params["commit"]) == (7, False)
            return {}
        await self.goes_on.wait()
        if self.error is not None:
            raise self.error
        return {"stream": 7, "size": 1}

    async def settled(self) -> None:
        """Returns at once, as if everything were recorded."""


@pytest.mark.parametrize("times", [1, 2])
@pytest.mark.parametrize("error", [None, NotFoundError("no such file")])
async def test_a_file_that_is_opened_for_nobody_is_closed(
    times: int, error: Exception | None
) -> None:
    link = Opening(error)
    session = SimpleNamespace(
        check_open=lambda: SimpleNamespace(link=link),
        key="k",
        pack=None,
        workspace_path="/workspace",
    )
    recorder = cast(Any, SimpleNamespace(check_room=lambda _: None, ask_tokens=AskTokens()))
    requests = FileRequests(recorder, ContextFirewall(recorder, cast(Any, None)))
    files = Files(requests)
    reading = asyncio.create_task(files.read(AGENT, cast(Any, session), "output.txt"))
    await until(lambda: link.asked == ["file.open"])
    for _ in range(times):
        reading.cancel()
        await asyncio.sleep(0)
    link.goes_on.set()
    with pytest.raises(asyncio.CancelledError):
        await reading
    await requests._tasks.drain()
    await until(lambda: requests._tasks.idle)
    assert link.asked == ["file.open", *([] if error else ["file.close"])]


@pytest.mark.parametrize("told", [{}, {"links": False}])
async def test_an_agent_that_follows_links_is_not_read(told: dict[str, bool]) -> None:
    """Its agent is too old to be asked not to follow links."""
    asked = []

    async def request(method: str, _params: object) -> dict[str, Any]:
        asked.append(method)
        return {"stream": 1, "size": 9, "permissions": 0o600, **told}

    async def settled() -> None:
        """Returns at once, as if everything were recorded."""

    link = SimpleNamespace(request=request, settled=settled)
    session = SimpleNamespace(
        check_open=lambda: SimpleNamespace(link=link),
        key="k",
        pack=None,
        workspace_path="/workspace",
    )
    recorder = cast(Any, SimpleNamespace(check_room=lambda _: None, ask_tokens=AskTokens()))
    requests = FileRequests(recorder, ContextFirewall(recorder, cast(Any, None)))
    files = Files(requests)
    reading = files.read(AGENT, cast(Any, session), "output.txt", links=False)
    if told:
        assert (await reading).size == 9
        return
    with pytest.raises(ConflictError, match="made before"):
        await reading
    assert asked == ["file.open", "file.close"]


async def test_a_directory_that_is_there_is_not_touched(tmp_path: Path) -> None:
    (tmp_path / "k" / "c").mkdir(parents=True)
    (tmp_path / "k" / "c" / "output").write_bytes(b"of another")
    file = EvidenceFile(tmp_path / "k" / "c", None, Threads("tests", 1), lambda size: None)
    with pytest.raises(FileExistsError):
        await file.begin()
    await file.discard()
    assert (tmp_path / "k" / "c" / "output").read_bytes() == b"of another"
