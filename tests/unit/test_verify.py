import json
import sqlite3
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.ground.errors import ValidationError
from orchestrator.ground.events import EventDraft, members
from orchestrator.ground.store.database import Database
from orchestrator.record.audit.ledger import Ledger
from orchestrator.record.audit.verification import verify
from paddock.audit.chain import (
    GENESIS_HASH,
    canonical,
    chain_hash,
    erased,
    hashed_text,
    verify_chain,
)
from tests.unit.ledger_support import draft, fill


def chain(drafts: list[EventDraft], *, salted: bool = True) -> list[dict[str, Any]]:
    events, prev_hash = [], GENESIS_HASH
    for seq, one in enumerate(drafts, 1):
        body = {"id": seq * 3, "seq": seq, **members(one)}
        if salted:
            body["salt"] = f"{seq:032x}"
        event_hash = chain_hash(prev_hash, hashed_text(body))
        events.append(body | {"prev_hash": prev_hash, "hash": event_hash})
        prev_hash = event_hash
    return events


EVENTS = chain([draft(args={"text": f'é "{n}"'}, agent=("boot", n)) for n in range(1, 6)])
OLD = chain([draft(args={"text": "old"}) for _ in range(5)], salted=False)
LINES = [canonical(event) + "\n" for event in EVENTS]
HEAD = EVENTS[-1]["hash"]


def test_a_whole_chain() -> None:
    for form in (EVENTS, LINES, [line.rstrip("\n") for line in LINES]):
        verdict = verify_chain(form)
        assert (verdict.ok, verdict.index, verdict.reason) == (True, None, None)
        assert (verdict.seq, verdict.hash) == (5, HEAD)
    empty = verify_chain([])
    assert (empty.ok, empty.seq, empty.hash) == (True, 0, GENESIS_HASH)


@given(st.integers(0, len(LINES) - 1), st.data())
def test_any_byte_of_any_line(index: int, data: st.DataObject) -> None:
    original = LINES[index].rstrip("\n").encode()
    place = data.draw(st.integers(0, len(original) - 1))
    byte = data.draw(st.integers(0, 255).filter(lambda value: value != original[place]))
    changed = original[:place] + bytes([byte]) + original[place + 1 :]
    lines = [line.encode() for line in LINES]
    lines[index] = changed
    verdict = verify_chain(line.decode("utf-8", "surrogateescape") for line in lines)
    assert not verdict.ok
    assert verdict.index in {index, index + 1}
    assert verdict.index == verdict.seq


def without_content(event: dict[str, Any]) -> dict[str, Any]:
    hashes = {name: event[name] for name in ("prev_hash", "hash")}
    return erased({name: value for name, value in event.items() if name not in hashes}) | hashes


ERASED = [without_content(event) for event in EVENTS]


@pytest.mark.parametrize("events", [EVENTS, OLD, ERASED], ids=["salted", "old", "erased"])
@given(data=st.data())
def test_any_member_of_any_event(events: list[dict[str, Any]], data: st.DataObject) -> None:
    index = data.draw(st.integers(0, 4))
    name = data.draw(st.sampled_from([*sorted(events[0]), "content"]))
    changed = events[index] | {name: "changed"}
    assert verify_chain([*events[:index], changed, *events[index + 1 :]]).index == index
    if name in events[index]:
        missing = {key: value for key, value in events[index].items() if key != name}
        assert verify_chain([*events[:index], missing, *events[index + 1 :]]).index == index


@given(st.sets(st.integers(0, 4)))
def test_content_can_be_erased_from_any_event(places: set[int]) -> None:
    mixed = [ERASED[n] if n in places else EVENTS[n] for n in range(5)]
    for form in (mixed, [canonical(event) for event in mixed]):
        verdict = verify_chain(form)
        assert (verdict.ok, verdict.seq, verdict.hash) == (True, 5, HEAD)
    assert not any("é" in canonical(event) or event.get("salt") for event in ERASED)


def test_the_same_content_has_another_digest_each_time() -> None:
    body = {"seq": 1, **members(draft(args={"text": "guess"}))}
    first, second = (erased(body | {"salt": salt})["content"] for salt in ("00", "01"))
    assert first != second


def test_a_chain_may_begin_without_salts() -> None:
    assert verify_chain(OLD).ok


def test_removed_repeated_and_moved_events() -> None:
    assert verify_chain(EVENTS[1:]).index == 0
    assert verify_chain([*EVENTS[:2], *EVENTS[3:]]).index == 2
    assert verify_chain([*EVENTS[:2], EVENTS[1], *EVENTS[2:]]).index == 2
    assert verify_chain([EVENTS[1], EVENTS[0], *EVENTS[2:]]).index == 0


def test_an_anchor_tells_of_a_cut_end() -> None:
    assert verify_chain(EVENTS[:3]).ok
    assert verify_chain(EVENTS, (5, HEAD)).ok
    assert verify_chain(EVENTS, (2, EVENTS[1]["hash"])).ok
    cut = verify_chain(EVENTS[:3], (5, HEAD))
    assert (cut.ok, cut.index, cut.seq) == (False, 3, 3)
    assert cut.reason == "the chain ends before seq 5"
    other = verify_chain(EVENTS, (2, HEAD))
    assert (other.ok, other.index) == (False, 1)


def test_a_rewritten_chain_needs_an_anchor() -> None:
    rewritten = chain([draft(args={"text": "clean"}) for _ in EVENTS])
    assert verify_chain(rewritten).ok
    assert verify_chain(rewritten, (3, EVENTS[2]["hash"])).index == 2


@pytest.mark.parametrize(
    "line", ["", "null", "[]", "{}", "[" * 100_000, '{"seq":1', '{"seq":NaN}', LINES[0][:-1] + " "]
)
def test_garbage(line: str) -> None:
    assert verify_chain([line]).index == 0


def test_the_same_content_spelt_differently() -> None:
    pretty = json.dumps(EVENTS[0])
    assert verify_chain([pretty]).reason == "is not in canonical form"
    twice = LINES[0].rstrip("\n")[:-1] + ',"seq":1}'
    assert not verify_chain([twice]).ok
    assert not verify_chain([EVENTS[0] | {"seq": 1.0}]).ok
    assert not verify_chain([EVENTS[0] | {"actor": "\udc80"}]).ok


@pytest.fixture
async def database(tmp_path: Path) -> AsyncIterator[Database]:
    database = await Database.open(tmp_path / "paddock.db")
    ledger = Ledger(database)
    await fill(ledger, 3)
    await fill(ledger, 3, "k2")
    await fill(ledger, 3)
    await ledger.close()
    yield database
    await database.close()


async def execute(database: Database, statement: str) -> None:
    def run(connection: sqlite3.Connection) -> None:
        assert connection.execute(statement).rowcount == 1

    await database.write(run)


@pytest.mark.parametrize("page", [1, 2, 500])
async def test_a_chain_in_the_database(
    database: Database, monkeypatch: pytest.MonkeyPatch, page: int
) -> None:
    monkeypatch.setattr("orchestrator.record.audit.verification.PAGE", page)
    verdict = await verify(database, "k1")
    assert (verdict.ok, verdict.index, verdict.seq) == (True, None, 6)
    assert (await verify(database, "k1", 6, verdict.hash)).ok
    assert (await verify(database, "k1", 7, verdict.hash)).index == 6
    assert (await verify(database, "k1", 2, verdict.hash)).index == 1
    assert (await verify(database, "none")).ok
    assert not (await verify(database, "none", 1, verdict.hash)).ok


async def test_it_ends_where_the_chain_ended_and_others_read_in_between(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("orchestrator.record.audit.verification.PAGE", 2)
    browse, pages = database.browse, 0

    async def browsed(read: Any) -> Any:
        nonlocal pages
        pages += 1
        ledger = Ledger(database)
        await fill(ledger, 1)  # without an end, it would follow these for ever
        await ledger.close()
        return await browse(read)

    monkeypatch.setattr(database, "browse", browsed)
    verdict = await verify(database, "k1")
    assert verdict.ok
    assert (verdict.seq, pages) == (8, 5)


@pytest.mark.parametrize(
    "change",
    [
        "SET body = replace(body, 'admin', 'nimda')",
        "SET body = body || ' '",
        "SET body = '{}'",
        "SET body = '[]'",
        "SET body = 'x'",
        "SET body = x'00'",
        "SET body = replace(body, '\"agent\":null', '\"agent\":5')",
        "SET body = replace(body, '\"args\":{', '\"args\":[{')",
        "SET hash = replace(hash, substr(hash, 1, 1), 'x')",
        "SET prev_hash = hash",
        "SET id = 100",
        "SET session_id = 'x'",
        "SET time = 'x'",
        "SET operation = 'file.read'",
        "SET decision = 'allow'",
        "SET turn = 1",
        "SET command_id = 'x'",
        "SET agent_boot_id = 'x'",
        "SET agent_seq = 1",
    ],
)
async def test_tampering_in_the_database(database: Database, change: str) -> None:
    await execute(database, f"UPDATE events {change} WHERE session_key = 'k1' AND seq = 3")
    verdict = await verify(database, "k1")
    assert (verdict.ok, verdict.index, verdict.seq) == (False, 2, 2)
    assert verdict.reason
    assert (await verify(database, "k2")).ok


async def test_deletions_in_the_database(database: Database) -> None:
    head = await verify(database, "k1")
    await execute(database, "DELETE FROM events WHERE session_key = 'k1' AND seq = 6")
    assert (await verify(database, "k1")).ok
    assert (await verify(database, "k1", head.seq, head.hash)).index == 5
    await execute(database, "DELETE FROM events WHERE session_key = 'k1' AND seq = 4")
    assert (await verify(database, "k1")).index == 3


@pytest.mark.parametrize(
    ("seq", "value", "field"), [(1, None, "hash"), (None, "x", "seq"), (0, "x", "seq")]
)
async def test_half_an_anchor_is_refused(
    database: Database, seq: int | None, value: str | None, field: str
) -> None:
    with pytest.raises(ValidationError) as caught:
        await verify(database, "k1", seq, value)
    assert caught.value.fields["field"] == field
