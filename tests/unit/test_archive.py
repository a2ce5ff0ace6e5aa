"""Archives of whole chains: written, sealed and verified without loss."""

import asyncio
import gzip
import hashlib
import io
import json
import sqlite3
import tarfile
import threading
from collections.abc import AsyncIterator, Callable
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import pytest

from orchestrator.ground.check import CheckStatus
from orchestrator.ground.errors import NotFoundError
from orchestrator.ground.events import EventDraft
from orchestrator.ground.limits import KeyLimits
from orchestrator.ground.store.database import Database
from orchestrator.ground.tasks import Tasks
from orchestrator.record.audit import archive_rows, query
from orchestrator.record.audit import archiving as archiving_module
from orchestrator.record.audit.archiving import ArchiveDisk, Archiving
from orchestrator.record.audit.ledger import Ledger
from orchestrator.record.audit.query import Selection
from orchestrator.record.audit.record_room import RecordRoom
from orchestrator.record.audit.verification import verify
from orchestrator.record.search_index.search import Search, search
from orchestrator.rules.access.keys import KeyRing
from orchestrator.work.terminals.asciicast import Recording
from orchestrator.work.terminals.evidence import Evidence
from paddock.audit import archive_file
from paddock.audit.archive_file import ArchiveError
from paddock.audit.chain import Anchor, Chain
from tests.support.limits import WAIT_SECONDS
from tests.support.until import until
from tests.unit.ledger_support import following

T = TypeVar("T")

KEY, ID = "4f1c0a9be27d3586", "web-1"
LONG_AGO = "2020-01-01T00:00:00.000000Z"


@pytest.fixture
def freed() -> list[tuple[str, int]]:
    return []


@pytest.fixture
def archiving(
    database: Database, ledger: Ledger, tmp_path: Path, freed: list[tuple[str, int]]
) -> Archiving:
    return Archiving(
        database,
        ledger,
        tmp_path / "archive",
        tmp_path / "evidence",
        lambda owner, size: freed.append((owner, size)),
    )


def draft(operation: str = "command.start", key: str = KEY, **members: Any) -> EventDraft:
    return EventDraft(
        session_key=key,
        session_id=ID,
        source="control-plane",
        actor="ci",
        operation=operation,
        **members,
    )


async def ended(
    database: Database,
    ledger: Ledger,
    tmp_path: Path,
    key: str = KEY,
    events: int = 1200,
    incarnation: int = 1,
) -> None:
    """A session that has ended, with a chain, an approval and a terminal's evidence."""
    await database.write(
        lambda connection: connection.execute(
            "INSERT INTO sessions (key, id, owner, status, permission_level, level,"
            " created_at, terminated_at, incarnation)"
            " VALUES (?, ?, 'ci', 'completed', 'low', '{}', ?, ?, ?)",
            (key, ID, LONG_AGO, LONG_AGO, incarnation),
        )
    )
    recording = Recording(80, 24, "dumb")
    evidence = Evidence(tmp_path / "evidence" / key / "pty-1", recording=recording)
    evidence.begin()
    evidence.raw(b"appdb=> ")
    evidence.note("CLOSED", ["reason=closed"], last=True)
    digests = await evidence.finish()
    await asyncio.gather(*(ledger.append(draft(key=key)) for _ in range(events)))
    await ledger.append(
        draft("pty.close", key, args={"terminal_id": "pty-1"}, result=digests._asdict())
    )
    await database.write(lambda connection: _rows(connection, key))


def _rows(connection: Any, key: str) -> None:
    connection.execute(
        "INSERT INTO approvals (id, session_key, session_id, owner, terminal_id, tool, text,"
        " risk_tier, status, requested_by, requested_at)"
        " VALUES (?, ?, ?, 'ci', 'pty-1', 'psql.drop', 'DROP TABLE users', 'high', 'denied',"
        " 'h', '')",
        (f"apr-{key}", key, ID),
    )
    connection.execute(
        "INSERT INTO terminals (id, session_key, opened_at, ended_at, record)"
        " VALUES (?, ?, '', '', '{}')",
        (f"pty-{key}", key),
    )


async def counts(database: Database, key: str = KEY) -> list[int]:
    """The number of a session's remaining events, approvals, terminals and bytes."""

    def read(connection: Any) -> list[int]:
        return [
            connection.execute(statement, (key,)).fetchone()[0]
            for statement in (
                "SELECT count(*) FROM events WHERE session_key = ?",
                "SELECT count(*) FROM approvals WHERE session_key = ?",
                "SELECT count(*) FROM terminals WHERE session_key = ?",
                "SELECT audit_bytes FROM sessions WHERE key = ?",
            )
        ]

    return await database.read(read)


def members(path: Path) -> dict[str, bytes]:
    with tarfile.open(path, "r:gz") as archive:
        files = ((member.name, archive.extractfile(member)) for member in archive)
        return {name: file.read() for name, file in files if file is not None}


def repack(path: Path, files: dict[str, bytes]) -> None:
    with tarfile.open(path, "w:gz") as archive:
        for name, data in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))


async def test_a_disk_that_is_short_of_space_gets_no_archives(
    database: Database, ledger: Ledger, tmp_path: Path
) -> None:
    """Each session is reported separately, also two sessions of one id."""
    for incarnation in (1, 2):
        await ended(database, ledger, tmp_path, f"k{incarnation}", 3, incarnation)
    room = RecordRoom(KeyRing({}), KeyLimits(), 2**62, lambda: 0)
    evidence, directory = tmp_path / "evidence", tmp_path / "new" / "archive"
    archiving = Archiving(database, ledger, directory, evidence, lambda *_: None, room.check_disk)
    run = await archiving.run(timedelta(0), "admin")
    assert (run.archived, run.more) == ([], False)
    assert sorted(run.refused) == [f"{ID}/1", f"{ID}/2"]
    assert "short of disk space" in run.refused[f"{ID}/1"]
    assert not directory.parent.exists()
    assert (await counts(database, "k1"))[0] > 0


@pytest.mark.slow
async def test_a_chain_goes_whole_and_its_head_stays(
    database: Database,
    ledger: Ledger,
    archiving: Archiving,
    tmp_path: Path,
    freed: list[tuple[str, int]],
) -> None:
    await ended(database, ledger, tmp_path)
    head = await verify(database, KEY)
    taken = (await counts(database))[3]
    lines = [line async for line in query.export(database, KEY)]
    run = await archiving.run(timedelta(0), "admin")
    assert (run.refused, run.more) == ({}, False)
    (archived,) = run.archived
    path = tmp_path / "archive" / archived.file
    assert (archived.seq, archived.hash) == (head.seq, head.hash) == (1201, head.hash)
    verified = archive_file.verify(path)
    assert verified.verdict == head
    assert verified.seal.sha256 == archived.sha256
    files = members(path)
    assert files["events.jsonl"].decode() == "".join(lines)
    assert b"DROP TABLE users" in files["approvals.jsonl"]
    assert files["evidence/pty-1/raw"] == b"appdb=> "
    told = verified.manifest["session"]
    assert (told["id"], told["incarnation"], told["owner"]) == (ID, 1, "ci")
    assert await counts(database) == [0, 0, 0, 0]
    assert not (tmp_path / "evidence" / KEY).exists()
    assert freed == [("ci", -taken)]
    (sealed,) = [found.event for found in (await query.recorded(database, Selection())).items]
    assert sealed["operation"] == "audit.archived"
    assert sealed["result"] == {"head_seq": head.seq, "head_hash": head.hash}
    assert sealed["args"]["sha256"] == archived.sha256
    assert sealed["id"] > head.seq
    with pytest.raises(NotFoundError, match=archived.file):
        await archiving.check_here(KEY)
    assert [path.name for path in (tmp_path / "archive").iterdir()] == [archived.file]
    assert path.stat().st_mode & 0o777 == 0o600
    # The ids of archived events are not used again, and nothing is archived twice.
    later = await ledger.append(draft(key="other"))
    assert later.id > sealed["id"]
    assert (await archiving.run(timedelta(0), "admin")).archived == []


async def test_every_change_of_an_archive_is_found(
    database: Database, ledger: Ledger, archiving: Archiving, tmp_path: Path
) -> None:
    await ended(database, ledger, tmp_path, events=3)
    (archived,) = (await archiving.run(timedelta(0), "admin")).archived
    path = tmp_path / "archive" / archived.file
    files = members(path)
    other = tmp_path / "other.tar.gz"
    for name, data in files.items():
        if name == "manifest.json":
            continue
        for changed in (data[:-2] + b"x\n", b"", data + b"{}\n"):
            repack(other, {**files, name: changed})
            assert not archive_file.verify(other).verdict.ok, name
        repack(other, {n: d for n, d in files.items() if n != name})
        assert not archive_file.verify(other).verdict.ok, name
    repack(other, {**files, "evidence/pty-1/more": b"x"})
    assert not archive_file.verify(other).verdict.ok
    # Evidence that was replaced together with the manifest does not match the chain.
    manifest = json.loads(files["manifest.json"])
    for name in ("evidence/pty-1/raw", "evidence/pty-1/recording.cast"):
        forged = json.loads(json.dumps(manifest))
        forged["files"][name] = archive_file._summed([b"forged"])
        changes = {name: b"forged", "manifest.json": json.dumps(forged).encode()}
        repack(other, {**files, **changes})
        verdict = archive_file.verify(other).verdict
        assert verdict.reason == f"{name} is not the evidence that the chain tells of"

    # A chain without its end, with a matching manifest, is found by the noted head.
    def noted(seq: int, hash: str) -> bool:
        return archive_file.verify(path, Chain(Anchor(seq, hash))).verdict.ok

    assert noted(archived.seq, archived.hash)
    assert not noted(archived.seq + 1, archived.hash)
    assert not noted(archived.seq, "0" * 64)


@pytest.mark.parametrize("change", ["forged", "removed"])
async def test_evidence_of_commands_is_that_of_the_chain(
    database: Database, ledger: Ledger, archiving: Archiving, tmp_path: Path, change: str
) -> None:
    output = tmp_path / "evidence" / KEY / "8d3c" / "output"
    output.parent.mkdir(parents=True)
    output.write_bytes(b"scanned")
    told = {"output_hash": f"sha256:{hashlib.sha256(b'scanned').hexdigest()}"}
    await ledger.append(draft("command.evidence", args={"command_id": "8d3c"}, result=told))
    await ended(database, ledger, tmp_path, events=1)
    (archived,) = (await archiving.run(timedelta(0), "admin")).archived
    files = members(tmp_path / "archive" / archived.file)
    name = "evidence/8d3c/output"
    assert files.pop(name) == b"scanned"
    manifest = json.loads(files.pop("manifest.json"))
    del manifest["files"][name]
    if change == "forged":
        files[name] = b"forged"
        manifest["files"][name] = archive_file._summed([b"forged"])
    other = tmp_path / "other.tar.gz"
    repack(other, {"manifest.json": json.dumps(manifest).encode(), **files})
    reason = archive_file.verify(other).verdict.reason
    expected = "is not the evidence that the chain tells of" if change == "forged" else "is missing"
    assert reason == f"{name} {expected}"


def test_what_is_no_archive_is_said_to_be_none(tmp_path: Path) -> None:
    path = tmp_path / "file.tar.gz"
    for data in (b"", b"text", gzip.compress(b"text"), b"\x1f\x8b\x08\x00\x00\x00\x00"):
        path.write_bytes(data)
        with pytest.raises(ArchiveError, match="no archive"):
            archive_file.verify(path)


async def test_an_archive_without_an_event_is_none(tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.mkdir()
    for name in (archive_file.EVENTS, archive_file.APPROVALS, archive_file.TERMINALS):
        (source / name).touch()
    about = {"session": {"key": KEY, "id": ID, "incarnation": 1}}
    with pytest.raises(ArchiveError, match="no event"):
        archive_file.write(tmp_path / "x.tar.gz", about, (0, "0" * 64), source, tmp_path / "none")


async def test_a_broken_chain_stays_where_it_is(
    database: Database, ledger: Ledger, archiving: Archiving, tmp_path: Path
) -> None:
    await ended(database, ledger, tmp_path, events=3)
    await database.write(
        lambda connection: connection.execute(
            "UPDATE events SET hash = ? WHERE session_key = ? AND seq = 2", ("0" * 64, KEY)
        )
    )
    run = await archiving.run(timedelta(0), "admin")
    assert run.archived == []
    assert "not whole" in run.refused[f"{ID}/1"]
    assert (await counts(database))[0] == 4
    assert list((tmp_path / "archive").iterdir()) == []


async def test_what_is_recorded_meanwhile_is_not_lost(
    database: Database,
    ledger: Ledger,
    archiving: Archiving,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    await ended(database, ledger, tmp_path, events=3)
    write, loop = archive_file.write, asyncio.get_running_loop()

    def late(*args: Any) -> archive_file.Seal:
        seal = write(*args)
        recorded = ledger.append(draft("command.exit"))
        asyncio.run_coroutine_threadsafe(recorded, loop).result()
        return seal

    monkeypatch.setattr(archive_file, "write", late)
    run = await archiving.run(timedelta(0), "admin")
    assert "meanwhile" in run.refused[f"{ID}/1"]
    assert (await counts(database))[0] == 5
    monkeypatch.undo()
    (archived,) = (await archiving.run(timedelta(0), "admin")).archived
    assert archived.seq == 5


async def test_what_was_recorded_lately_waits(
    database: Database, ledger: Ledger, archiving: Archiving, tmp_path: Path
) -> None:
    """More events may follow when the session's end was recorded late."""
    await ended(database, ledger, tmp_path, events=3)
    assert await archiving.run(timedelta(days=1), "admin") == ([], {}, False)


async def test_an_event_that_is_no_json_stops_nobody_else(
    database: Database, ledger: Ledger, archiving: Archiving, tmp_path: Path
) -> None:
    await ended(database, ledger, tmp_path, events=3)
    await ended(database, ledger, tmp_path, key="other", events=3)
    await database.write(
        lambda connection: connection.execute(
            "UPDATE events SET body = 'no json' WHERE session_key = ? AND seq = 2", (KEY,)
        )
    )
    run = await archiving.run(timedelta(0), "admin")
    assert [one.session_key for one in run.archived] == ["other"]
    assert list(run.refused) == [f"{ID}/1"]
    async with following(tmp_path, ledger) as index:
        found = await search(index, Search(session=ID))
    assert [event["seq"] for event in found.items] == [4, 3, 1]


async def test_a_directory_that_can_not_be_written_changes_nothing(
    database: Database, ledger: Ledger, archiving: Archiving, tmp_path: Path
) -> None:
    await ended(database, ledger, tmp_path, events=3)
    (tmp_path / "archive").write_text("in the way")
    run = await archiving.run(timedelta(0), "admin")
    assert list(run.refused) == [f"{ID}/1"]
    assert (await counts(database))[0] == 4


async def test_a_start_finishes_what_a_kill_left(
    database: Database,
    ledger: Ledger,
    archiving: Archiving,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    await ended(database, ledger, tmp_path)

    async def killed() -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(archiving, "_empty", _once_then(killed))
        with pytest.raises(KeyboardInterrupt):
            await archiving.run(timedelta(0), "admin")
    assert (await counts(database))[:3] == [1201, 1, 1]
    archiving.start(None, Tasks())
    assert archiving._task is not None
    await archiving._task._task
    assert await counts(database) == [0, 0, 0, 0]
    assert not (tmp_path / "evidence" / KEY).exists()


def _once_then(then: Any) -> Any:
    """Does nothing the first time, then calls `then`."""
    calls: list[None] = []

    async def call() -> None:
        calls.append(None)
        if len(calls) > 1:
            await then()

    return call


async def test_a_retention_archives_by_itself(
    database: Database, ledger: Ledger, archiving: Archiving, tmp_path: Path
) -> None:
    await ended(database, ledger, tmp_path, events=2)
    archiving.start(0, Tasks())
    async with asyncio.timeout(WAIT_SECONDS):
        await ledger.wait("system", 0)
    await archiving.close()
    assert len(list((tmp_path / "archive").glob("*.tar.gz"))) == 1


async def test_there_is_more_than_one_call_archives(
    database: Database,
    ledger: Ledger,
    archiving: Archiving,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("orchestrator.record.audit.archiving.MOST_AT_ONCE", 2)
    for number in range(3):
        await ended(database, ledger, tmp_path, f"{number:016}", 1)
    first = await archiving.run(timedelta(0), "admin")
    assert (len(first.archived), first.more) == (2, True)
    second = await archiving.run(timedelta(0), "admin")
    assert (len(second.archived), second.more) == (1, False)
    page = await archiving.page("", 2)
    assert [item.session_key for item in page] == [f"{0:016}", f"{1:016}"]
    assert len(await archiving.page(page[-1].session_key, 2)) == 1


@pytest.mark.slow
async def test_damage_is_told_in_a_sentence(
    database: Database, ledger: Ledger, archiving: Archiving, tmp_path: Path
) -> None:
    await ended(database, ledger, tmp_path, events=20)
    (archived,) = (await archiving.run(timedelta(0), "admin")).archived
    path = tmp_path / "archive" / archived.file
    whole = path.read_bytes()
    damaged = tmp_path / "damaged.tar.gz"
    told = 0
    for position in range(20, len(whole), max(1, len(whole) // 150)):
        for data in (
            whole[:position],
            whole[:position] + bytes([whole[position] ^ 0xFF]) + whole[position + 1 :],
            whole[:position] + b"\0" * 64 + whole[position + 64 :],
        ):
            if data.startswith(whole):  # zeros may follow
                continue
            damaged.write_bytes(data)
            try:
                assert not archive_file.verify(damaged).verdict.ok
            except ArchiveError as error:
                told += "damaged.tar.gz: is no archive that can be read: " in str(error)
    assert told > 100


@pytest.mark.parametrize(
    "session",
    [None, [], {}, {"key": KEY, "id": ID}, {"key": KEY, "id": ID, "incarnation": "1"}],
)
async def test_an_archive_that_does_not_say_whose_it_is(
    database: Database, ledger: Ledger, archiving: Archiving, tmp_path: Path, session: Any
) -> None:
    await ended(database, ledger, tmp_path, events=1)
    (archived,) = (await archiving.run(timedelta(0), "admin")).archived
    files = members(tmp_path / "archive" / archived.file)
    manifest = json.loads(files["manifest.json"]) | {"session": session}
    other = tmp_path / "other.tar.gz"
    repack(other, {**files, "manifest.json": json.dumps(manifest).encode()})
    with pytest.raises(ArchiveError, match="no archive"):
        archive_file.verify(other)


# A disk that hangs


class Hanging:
    """A call of the disk that hangs until the test releases it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, where: Any, name: str) -> None:
        self._original = getattr(where, name)
        self.goes_on = threading.Event()
        self.asked = 0
        monkeypatch.setattr(where, name, self)

    def __call__(self, *args: Any, **options: Any) -> Any:
        self.asked += 1
        self.goes_on.wait()
        return self._original(*args, **options)


STEPS = [(archiving_module, "_make"), (archiving_module, "_append"), (archive_file, "write")]


class Impatient(ArchiveDisk):
    """A disk that soon gives up on calls that hang, and waits long for all others."""

    async def call(self, key: str, function: Callable[[], T], *, long: bool = False) -> T:
        assert isinstance(function, partial)
        with pytest.MonkeyPatch.context() as patch:
            if isinstance(function.func, Hanging):
                patch.setattr(archiving_module, "_CALL_SECONDS", 0.05)
                patch.setattr(archiving_module, "_LONG_CALL_SECONDS", 0.05)
            return await super().call(key, function, long=long)


@pytest.fixture
async def tasks(archiving: Archiving) -> AsyncIterator[Tasks]:
    """The tasks of an archiving that soon gives up on its disk."""
    archiving._disk = Impatient()
    tasks = Tasks()
    archiving.start(None, tasks)
    yield tasks
    await archiving.close()


@pytest.mark.parametrize(("where", "name"), STEPS)
async def test_a_disk_that_hangs_keeps_its_chain_and_no_lock(
    database: Database,
    ledger: Ledger,
    archiving: Archiving,
    tasks: Tasks,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    where: Any,
    name: str,
) -> None:
    await ended(database, ledger, tmp_path, events=3)
    disk = Hanging(monkeypatch, where, name)
    try:
        run = await archiving.run(timedelta(0), "admin")
        assert "no answer within" in run.refused[f"{ID}/1"]
        check = tasks.check()
        assert check.status is CheckStatus.WARNING
        assert "archiving failed, since 2" in check.detail
        # The thread may still write there, so no other thread does.
        run = await archiving.run(timedelta(0), "admin")
        assert "still at work" in run.refused[f"{ID}/1"]
        assert disk.asked == 1
        # Other sessions are not held up.
        monkeypatch.undo()
        await ended(database, ledger, tmp_path, key="other", events=3)
        run = await archiving.run(timedelta(0), "admin")
        assert [one.session_key for one in run.archived] == ["other"]
    finally:
        disk.goes_on.set()
    await until(lambda: not archiving._disk._threads._left)
    (archived,) = (await archiving.run(timedelta(0), "admin")).archived
    assert archived.session_key == KEY
    names = [path.name for path in (tmp_path / "archive").iterdir()]
    assert sorted(names) == sorted([archived.file, "other.tar.gz"])
    assert archive_file.verify(tmp_path / "archive" / archived.file).verdict.ok
    assert tasks.check().status is CheckStatus.OK


async def test_evidence_that_can_not_be_removed_keeps_no_lock(
    database: Database,
    ledger: Ledger,
    archiving: Archiving,
    tasks: Tasks,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    await ended(database, ledger, tmp_path, events=3)
    disk = Hanging(monkeypatch, archiving_module, "_remove")
    try:
        run = await archiving.run(timedelta(0), "admin")
        assert ([one.session_key for one in run.archived], run.refused) == ([KEY], {})
        assert "archiving failed" in tasks.check().detail
    finally:
        disk.goes_on.set()
    await until(lambda: not archiving._disk._threads._left)
    monkeypatch.undo()
    await archiving.run(timedelta(0), "admin")
    assert await counts(database) == [0, 0, 0, 0]
    assert not (tmp_path / "evidence" / KEY).exists()
    assert tasks.check().status is CheckStatus.OK


async def test_sessions_wait_for_exports_until_there_are_too_many(
    database: Database, ledger: Ledger, tmp_path: Path
) -> None:
    """The oldest are archived first, and what has been sent is archived in any case."""
    for key in ("a", "b", "c"):
        await ended(database, ledger, tmp_path, key=key, events=2)
    await database.write(
        lambda connection: connection.execute(
            "UPDATE sessions SET audit_bytes = 100,"
            " terminated_at = substr(terminated_at, 1, 3) || (unicode(key) - 97)"
            " || substr(terminated_at, 5)"
        )
    )

    def due(hold: int, position: int | None) -> Callable[[sqlite3.Connection], list[str]]:
        def read(connection: sqlite3.Connection) -> list[str]:
            connection.execute("DELETE FROM export_positions")
            if position is not None:
                connection.execute("INSERT INTO export_positions VALUES ('siem', ?)", (position,))
            found = archive_rows.due(connection, "2030-01-01T00:00:00.000000Z", 10, hold)
            return [session.key for session in found]

        return read

    last = "SELECT max(id) FROM events WHERE session_key = 'a'"
    (of_a,) = await database.read(lambda each: each.execute(last).fetchone())
    for hold, position, wanted in (
        (0, None, ["a", "b", "c"]),
        (1000, 0, []),
        (200, 0, ["a"]),
        (199, 0, ["a", "b"]),
        (0, 0, ["a", "b", "c"]),
        (1000, of_a, ["a"]),
        (100, of_a, ["a", "b"]),
        (1000, 3 * of_a, ["a", "b", "c"]),
    ):
        assert await database.write(due(hold, position)) == wanted, (hold, position)
