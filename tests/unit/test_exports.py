"""Exports of the record: at least once, in order of each chain, whatever fails."""

import asyncio
import gzip
import json
import ssl
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import SecretStr

from orchestrator.ground.store.database import Database
from orchestrator.operate.exports import export_rows
from orchestrator.operate.exports.destination import Destination, ExportedEvent, ExportError
from orchestrator.operate.exports.export import Export, ExportPlan
from orchestrator.operate.exports.file_destination import FileDestination, append
from orchestrator.operate.exports.http_destination import HttpDestination, HttpForm
from orchestrator.operate.exports.ocsf import OcsfSource
from orchestrator.operate.exports.syslog_destination import SyslogDestination
from orchestrator.operate.exports.syslog_message import frame
from orchestrator.record.audit.ledger import Ledger
from tests.support.certificates import Authority
from tests.support.receiver import ERROR, HANGS, OK, receiving
from tests.support.syslog_collector import CollectorFault, SyslogCollector, collecting
from tests.support.until import until
from tests.unit.ledger_support import draft, fill

SOURCE = OcsfSource("instance-1", "0.1.0")
SHORT = 0.3  # seconds for a batch, where a collector never answers


def exporting(
    database: Database, ledger: Ledger, destination: Destination, plan: ExportPlan | None = None
) -> Export:
    plan = plan or ExportPlan("one")
    return Export(plan, destination, database, ledger, SOURCE, 0.0, pause=lambda _: 0.0)


@asynccontextmanager
async def running(export: Export) -> AsyncIterator[Export]:
    task = asyncio.create_task(export.run())
    try:
        yield export
    finally:
        task.cancel()
        await asyncio.wait([task])
        assert task.cancelled(), task.exception()


def check_order(events: Iterable[dict[str, Any]], wanted: dict[str, int]) -> None:
    """Each chain is whole and in order; a part of it may come again, from anywhere."""
    reached: dict[str, int] = defaultdict(int)
    for event in events:
        chain, seq = event["metadata"]["log_name"], event["metadata"]["sequence"]
        assert 1 <= seq <= reached[chain] + 1, f"{chain}: {seq} came after {reached[chain]}"
        reached[chain] = max(reached[chain], seq)
    assert dict(reached) == wanted


def trusting(collector: SyslogCollector) -> Callable[[], ssl.SSLContext]:
    return lambda: ssl.create_default_context(cafile=collector.authority.file)


def syslog(collector: SyslogCollector, seconds: float = 30.0) -> SyslogDestination:
    return SyslogDestination(collector.address, trusting(collector), "node-1", seconds)


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("record"), st.sampled_from("abc"), st.integers(1, 9)),
        st.tuples(
            st.just("fault"),
            st.sampled_from([each for each in CollectorFault if each != CollectorFault.HANGS]),
            st.integers(0, 5000),
        ),
        st.tuples(st.just("heal"), st.just(""), st.just(0)),
        st.tuples(st.just("kill"), st.just(""), st.integers(0, 3)),
    ),
    min_size=2,
    max_size=12,
)


@given(STEPS)
@settings(max_examples=25)
def test_nothing_is_missing_or_out_of_order_whatever_breaks(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[str, Any, int]]
) -> None:
    """Connections break at any byte, and the control plane is killed at any step."""
    asyncio.run(_any_faults(tmp_path_factory.mktemp("any"), steps))


async def _any_faults(directory: Path, steps: list[tuple[str, Any, int]]) -> None:
    database = await Database.open(directory / "paddock.db")
    ledger = Ledger(database)
    wanted: dict[str, int] = defaultdict(int)
    with collecting(directory) as collector:
        task = asyncio.create_task(exporting(database, ledger, syslog(collector)).run())
        for kind, what, number in steps:
            if kind == "record":
                await fill(ledger, number, what)
                wanted[what] += number
            elif kind == "fault":
                collector.fail(what, number)
            elif kind == "heal":
                collector.heal()
            else:
                for _ in range(number):
                    await asyncio.sleep(0)
                task.cancel()
                await asyncio.wait([task])
                task = asyncio.create_task(exporting(database, ledger, syslog(collector)).run())
        collector.heal()
        last = sum(wanted.values())
        await until(lambda: len({e["metadata"]["uid"] for e in collector.events}) == last)
        task.cancel()
        await asyncio.wait([task])
        check_order(collector.events, dict(wanted))
    await ledger.close()
    await database.close()


@pytest.mark.parametrize("fault", list(CollectorFault))
async def test_no_faulty_end_counts(
    database: Database, ledger: Ledger, tmp_path: Path, fault: CollectorFault
) -> None:
    await fill(ledger, 5)
    with collecting(tmp_path) as collector:
        collector.fail(fault)
        export = exporting(database, ledger, syslog(collector, SHORT))
        async with running(export):
            await until(lambda: export.failures >= 2)
            assert export.position == 0
            assert export.behind == 5
            collector.heal()
            await until(lambda: export.position == 5)
        check_order(collector.events, {"k1": 5})
        assert export.error is None


async def test_messages_are_of_rfc_5424(database: Database, ledger: Ledger, tmp_path: Path) -> None:
    await ledger.append(draft(time="2026-03-04T09:30:12.482113Z", decision="deny"))
    with collecting(tmp_path) as collector:
        async with running(exporting(database, ledger, syslog(collector))):
            await until(lambda: bool(collector.messages))
        (message,) = collector.messages
    # Facility 13, "log audit"; severity 4, "warning", of a denial.
    head = b"<108>1 2026-03-04T09:30:12.482113Z node-1 paddock - command.start - {"
    assert message.startswith(head)


def test_fields_of_messages_have_no_other_characters() -> None:
    event = ExportedEvent(b"{}", "2026-03-04T09:30:12.482113Z", "o" * 50, 1)
    assert frame(event, "a b\n") == b"87 <110>1 2026-03-04T09:30:12.482113Z a_b_ paddock - " + (
        b"o" * 32 + b" - {}"
    )


async def test_the_collector_must_be_who_it_says(
    database: Database, ledger: Ledger, tmp_path: Path
) -> None:
    await fill(ledger, 1)
    with collecting(tmp_path, name="other.example") as collector:
        export = exporting(database, ledger, syslog(collector))
        async with running(export):
            await until(lambda: export.failures > 0)
        assert "localhost" in str(export.error)
        assert not collector.messages


async def test_a_client_certificate_is_shown(
    database: Database, ledger: Ledger, tmp_path: Path
) -> None:
    await fill(ledger, 1)
    clients = Authority(tmp_path, "clients")
    pair = clients.sign("paddock")
    with collecting(tmp_path, client_authority=clients) as collector:

        def context() -> ssl.SSLContext:
            made = trusting(collector)()
            made.load_cert_chain(pair.cert, pair.key)
            return made

        destination = SyslogDestination(collector.address, context, "node-1")
        async with running(exporting(database, ledger, destination)):
            await until(lambda: bool(collector.messages))


async def test_a_batch_by_http(database: Database, ledger: Ledger) -> None:
    await fill(ledger, 3)
    async with receiving() as receiver:
        receiver.answer = lambda got: OK if len(receiver.requests) > 2 else ERROR
        destination = HttpDestination(
            receiver.url, HttpForm("array", gzip=True), lambda: SecretStr("token-1"), lambda: None
        )
        export = exporting(database, ledger, destination)
        async with running(export):
            await until(lambda: export.position == 3)
    assert export.failures == 2
    first, *_, got = receiver.requests
    assert first.body == got.body
    assert got.headers["authorization"] == "Bearer token-1"
    assert got.headers["content-type"] == "application/json"
    check_order(json.loads(gzip.decompress(got.body)), {"k1": 3})


async def test_lines_of_the_record_by_http(database: Database, ledger: Ledger) -> None:
    await fill(ledger, 2)
    async with receiving() as receiver:
        destination = HttpDestination(
            receiver.url, HttpForm("lines", gzip=False), lambda: None, lambda: None
        )
        plan = ExportPlan("one", form="record")
        async with running(exporting(database, ledger, destination, plan)):
            await until(lambda: bool(receiver.requests))
    (got,) = receiver.requests
    assert [json.loads(line)["seq"] for line in got.body.splitlines()] == [1, 2]
    assert "authorization" not in got.headers
    assert got.headers["content-type"] == "application/x-ndjson"


async def test_a_collector_that_never_answers(database: Database, ledger: Ledger) -> None:
    await fill(ledger, 1)
    async with receiving() as receiver:
        receiver.answer = lambda _: HANGS
        destination = HttpDestination(
            *(receiver.url, HttpForm("array", gzip=False), lambda: None, lambda: None, SHORT)
        )
        export = exporting(database, ledger, destination)
        async with running(export):
            await until(lambda: export.failures > 0)
    assert export.error == "no answer within 0.3 s"


async def test_a_new_export_may_begin_at_the_end(database: Database, ledger: Ledger) -> None:
    taken = Taken()
    await fill(ledger, 3)
    export = exporting(database, ledger, taken, ExportPlan("one", at_end=True))
    assert await export.find_position() == 3
    async with running(export):
        await fill(ledger, 1)
        await until(lambda: export.position == 4)
    assert [event["metadata"]["sequence"] for event in taken.events] == [4]


class Taken:
    """A destination that takes what it permits, and keeps it."""

    def __init__(self) -> None:
        self.batches: list[list[ExportedEvent]] = []
        self.open = asyncio.Event()
        self.open.set()

    @property
    def events(self) -> list[dict[str, Any]]:
        return [json.loads(event.text) for batch in self.batches for event in batch]

    async def send(self, events: Any) -> None:
        await self.open.wait()
        self.batches.append(list(events))

    async def close(self) -> None:
        pass


async def test_a_batch_is_bounded(
    database: Database, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However far it is behind, one batch is in memory."""
    monkeypatch.setattr(export_rows, "MOST_EVENTS", 4)
    monkeypatch.setattr(export_rows, "MOST_BYTES", 3000)
    taken = Taken()
    await fill(ledger, 6)
    for _ in range(3):
        await ledger.append(draft(args={"text": "x" * 2000}))
    export = exporting(database, ledger, taken)
    async with running(export):
        await until(lambda: export.position == 9)
    assert [len(batch) for batch in taken.batches] == [4, 3, 2]
    check_order(taken.events, {"k1": 9})


async def test_an_export_that_left_the_configuration_is_forgotten(
    database: Database, ledger: Ledger
) -> None:
    await exporting(database, ledger, Taken()).find_position()
    await database.write(partial(export_rows.keep_only, names=["other"]))
    count = "SELECT count(*) FROM export_positions"
    assert await database.read(lambda each: each.execute(count).fetchone()) == (0,)


# Files.


def lines(path: Path) -> list[str]:
    return path.read_text().splitlines()


async def test_a_file_that_was_renamed_is_begun_anew(
    database: Database, ledger: Ledger, tmp_path: Path
) -> None:
    path = tmp_path / "record.jsonl"
    export = exporting(database, ledger, FileDestination(path))
    async with running(export):
        await fill(ledger, 2)
        await until(lambda: export.position == 2)
        path.rename(tmp_path / "record.jsonl.1")
        await fill(ledger, 2)
        await until(lambda: export.position == 4)
    assert path.stat().st_mode & 0o777 == 0o640
    both = [*lines(tmp_path / "record.jsonl.1"), *lines(path)]
    check_order(map(json.loads, both), {"k1": 4})


async def test_a_file_that_can_not_be_written(
    database: Database, ledger: Ledger, tmp_path: Path
) -> None:
    await fill(ledger, 1)
    (tmp_path / "record.jsonl").mkdir()
    with pytest.raises(ExportError, match=r"record\.jsonl: Is a directory"):
        await FileDestination(tmp_path / "record.jsonl").send([ExportedEvent(b"{}", "", "", 1)])


TEXTS = st.lists(st.text("ab", min_size=1, max_size=5), min_size=1, max_size=5)


@given(TEXTS, TEXTS, st.data())
def test_a_line_that_was_cut_is_completed(
    tmp_path_factory: pytest.TempPathFactory, before: list[str], texts: list[str], data: Any
) -> None:
    """The same batch follows, because its position was not stored."""
    path = tmp_path_factory.mktemp("cut") / "record.jsonl"
    batch = [f"{text}\n".encode() for text in texts]
    whole = b"".join(batch)
    kept = "".join(f"{text}\n" for text in before).encode()
    path.write_bytes(kept + whole[: data.draw(st.integers(0, len(whole)))])
    append(path, batch)
    found = lines(path)
    assert found[: len(before)] == before
    assert set(found) <= {*before, *texts}
    assert found[-1] == texts[-1]
