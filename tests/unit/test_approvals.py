"""Approvals: durable, for one text, decided once, expiring with their terminal."""

import asyncio
import hashlib
from datetime import UTC, datetime
from typing import Any

import pytest

from orchestrator.ground.errors import (
    AuditUnavailableError,
    BusyError,
    CapacityExhaustedError,
    ConflictError,
    NotFoundError,
)
from orchestrator.ground.limits import KeyLimits
from orchestrator.ground.metrics import Metrics
from orchestrator.ground.store.database import Database
from orchestrator.record.audit import query
from orchestrator.record.audit.ledger import Ledger
from orchestrator.record.audit.record_room import RecordRoom
from orchestrator.record.audit.recorder import Recorder
from orchestrator.rules.access.keys import KeyRing, Principal, Role
from orchestrator.rules.policy.levels import load_levels
from orchestrator.rules.policy.session_policy import SAFE_ANALYSIS
from orchestrator.state.budget import Budget
from orchestrator.state.session import Session
from orchestrator.state.session_secrets import SessionSecrets, StoredSecrets
from orchestrator.work.approvals.approval_rows import Approval
from orchestrator.work.approvals.approvals import MAX_PENDING, Approvals, Line
from paddock.contract.words import Status

ADMIN = Principal("admin", Role.ADMIN)
OWNER = Principal("ci", Role.OPERATOR)
OTHER = Principal("other", Role.OPERATOR)
DROP = Line("pty-1", "psql.drop_table", "DROP TABLE users", "high")
AGENT = "handle:s-1"
# Only a test that hangs reaches this limit.
LONG = 20.0


def make_session(key: str = "k1", owner: str = "ci") -> Session:
    members: dict[str, Any] = dict.fromkeys(Session.__dataclass_fields__)
    level = load_levels()["high"]
    members |= {"key": key, "id": f"s-{key}", "owner": owner, "level": level, "root_dir": "/w"}
    members |= {
        "over": asyncio.get_running_loop().create_future(),
        "status": Status.ACTIVE,
        "last_activity_at": "",
        "budget": Budget(datetime.now(UTC)),
        "secrets": SessionSecrets(StoredSecrets(), {}),
        "policy": SAFE_ANALYSIS,
    }
    return Session(**members)


@pytest.fixture
def approvals(database: Database, ledger: Ledger) -> Approvals:
    return Approvals(database, ledger, Recorder(ledger, Metrics()))


@pytest.fixture
async def session() -> Session:
    return make_session()


async def ask(approvals: Approvals, session: Session, line: Line = DROP) -> Approval:
    return await approvals.obtain(session, line, AGENT, 0)


async def stored(approvals: Approvals, **filters: Any) -> list[Approval]:
    return (await approvals.list(ADMIN, **filters))[0]


async def test_a_request_is_durable_and_recorded(
    approvals: Approvals, session: Session, database: Database
) -> None:
    asked = await ask(approvals, session)
    assert (asked.status, asked.text, asked.session_id) == ("pending", DROP.text, "s-k1")
    assert await stored(approvals) == [asked]
    (event,) = await query.events(database, "k1")
    assert (event["operation"], event["decision"]) == ("approval.request", "pending")
    assert event["rule"] == "human-approval"
    assert event["args"]["command"] == DROP.text
    assert event["args"]["approval_id"] == asked.id


async def test_secrets_like_ids_leave_which_approval_it_was(
    approvals: Approvals, session: Session, database: Database
) -> None:
    digest = hashlib.sha256(DROP.text.encode()).hexdigest()
    values = ["pty-1", "apr-", digest, "approval_id", "drop_table"]
    session.secrets.give({f"S{number}": value for number, value in enumerate(values)})
    asked = await ask(approvals, session)
    await approvals.decide(OWNER, asked.id, "approve", None)
    events = await query.events(database, "k1")
    assert [event["operation"] for event in events] == ["approval.request", "approval.decision"]
    for event in events:
        args = event["args"]
        assert (args["approval_id"], args["terminal_id"]) == (asked.id, "pty-1")
        assert args["command_sha256"] == digest
        assert "drop_table" not in args["tool"]


async def test_the_same_line_is_not_asked_twice(approvals: Approvals, session: Session) -> None:
    assert await ask(approvals, session) == await ask(approvals, session)


@pytest.mark.parametrize(
    "other",
    [
        DROP._replace(text="DROP TABLE users "),
        DROP._replace(text="DROP TABLE Users"),
        DROP._replace(tool="psql.delete"),
        DROP._replace(terminal_id="pty-2"),
    ],
)
async def test_a_decision_is_for_exactly_that_line(
    approvals: Approvals, session: Session, other: Line
) -> None:
    asked = await ask(approvals, session)
    await approvals.decide(OWNER, asked.id, "approve", None)
    assert (await ask(approvals, session, other)).status == "pending"
    assert (await ask(approvals, make_session("k2"), DROP)).status == "pending"
    assert (await ask(approvals, session)).status == "approved"


@pytest.mark.parametrize(("decision", "status"), [("approve", "approved"), ("deny", "denied")])
async def test_a_decision_serves_once(
    approvals: Approvals, session: Session, database: Database, decision: str, status: str
) -> None:
    asked = await ask(approvals, session)
    decided = await approvals.decide(OWNER, asked.id, decision, "because")
    assert (decided.status, decided.decided_by, decided.reason) == (status, "ci", "because")
    assert await ask(approvals, session) == decided
    if decision == "approve":
        approvals.use(asked.id)
        approvals.settle(asked.id, written=True)
    again = await ask(approvals, session)
    assert again.status == "pending"
    assert again.id != asked.id
    event = (await query.events(database, "k1", operation="approval.decision"))[0]
    assert event["decision"] == {"approve": "allow", "deny": "deny"}[decision]
    assert (event["actor"], event["result"]["reason"]) == ("ci", "because")


async def test_it_is_decided_once(approvals: Approvals, session: Session) -> None:
    asked = await ask(approvals, session)
    await approvals.decide(OWNER, asked.id, "deny", None)
    with pytest.raises(ConflictError, match="is already denied"):
        await approvals.decide(ADMIN, asked.id, "approve", None)
    assert (await ask(approvals, session)).status == "denied"
    with pytest.raises(ConflictError, match="is already denied"):
        await approvals.decide(ADMIN, asked.id, "approve", None)


async def test_of_two_at_once_one_decides(approvals: Approvals, session: Session) -> None:
    asked = await ask(approvals, session)
    outcomes = await asyncio.gather(
        approvals.decide(OWNER, asked.id, "approve", None),
        approvals.decide(ADMIN, asked.id, "deny", None),
        return_exceptions=True,
    )
    assert sum(isinstance(outcome, Approval) for outcome in outcomes) == 1
    assert sum(isinstance(outcome, ConflictError) for outcome in outcomes) == 1
    final = next(outcome for outcome in outcomes if isinstance(outcome, Approval))
    assert await stored(approvals) == [final]


async def test_only_hosts_of_the_session_decide(approvals: Approvals, session: Session) -> None:
    asked = await ask(approvals, session)
    for principal in (OTHER, Principal(AGENT, Role.HANDLE, "k1", "ci"),
                      Principal("ci", Role.HANDLE, "k1", "ci")):  # fmt: skip
        with pytest.raises(NotFoundError):
            await approvals.decide(principal, asked.id, "approve", None)
    with pytest.raises(NotFoundError):
        await approvals.decide(ADMIN, "apr-none", "approve", None)
    assert (await approvals.list(OTHER))[0] == []
    assert (await approvals.list(OWNER))[0] == [asked]


async def test_a_call_may_wait(approvals: Approvals, session: Session) -> None:
    waiting = asyncio.create_task(approvals.obtain(session, DROP, AGENT, LONG))
    asked = await ask(approvals, session)
    await approvals.decide(OWNER, asked.id, "approve", None)
    assert (await waiting).status == "approved"


async def test_an_approval_is_used_up_by_writing_alone(
    approvals: Approvals, session: Session
) -> None:
    asked = await ask(approvals, session)
    await approvals.decide(OWNER, asked.id, "approve", None)
    for _ in range(2):
        assert (await ask(approvals, session)).id == asked.id
        approvals.use(asked.id)
        with pytest.raises(ConflictError, match="used up"):
            approvals.use(asked.id)
        approvals.settle(asked.id, written=False)
    approvals.use(asked.id)
    approvals.settle(asked.id, written=True)
    with pytest.raises(ConflictError, match="used up"):
        approvals.use(asked.id)
    assert (await ask(approvals, session)).id != asked.id


async def test_an_approval_in_use_ends_with_its_terminal(
    approvals: Approvals, session: Session
) -> None:
    asked = await ask(approvals, session)
    await approvals.decide(OWNER, asked.id, "approve", None)
    approvals.use(asked.id)
    await approvals.expire(session, "pty-1", "the terminal has ended")
    approvals.settle(asked.id, written=False)
    with pytest.raises(ConflictError, match="used up"):
        approvals.use(asked.id)


async def test_of_two_that_wait_one_is_told_of_the_denial(
    approvals: Approvals, session: Session
) -> None:
    calls = [approvals.obtain(session, DROP, AGENT, LONG) for _ in range(2)]
    waiting = asyncio.gather(*calls, return_exceptions=True)
    asked = await ask(approvals, session)
    await approvals.decide(OWNER, asked.id, "deny", None)
    outcomes = await waiting
    assert sum(isinstance(outcome, Approval) for outcome in outcomes) == 1
    assert sum(isinstance(outcome, ConflictError) for outcome in outcomes) == 1


async def test_it_expires_with_its_terminal(
    approvals: Approvals, session: Session, database: Database
) -> None:
    waiting = asyncio.create_task(approvals.obtain(session, DROP, AGENT, LONG))
    asked = await ask(approvals, session)
    approved = await ask(approvals, session, DROP._replace(text="DROP TABLE b"))
    await approvals.decide(OWNER, approved.id, "approve", None)
    kept = await ask(approvals, session, DROP._replace(terminal_id="pty-2"))
    await approvals.expire(session, "pty-1", "the terminal has ended")
    assert (await waiting).status == "expired"
    assert [each.id for each in await stored(approvals, status="pending")] == [kept.id]
    for approval_id in (asked.id, approved.id):
        with pytest.raises(ConflictError):
            await approvals.decide(OWNER, approval_id, "approve", None)
    event = (await query.events(database, "k1", operation="approval.decision"))[-1]
    assert (event["decision"], event["result"]["status"]) == ("deny", "expired")
    assert event["error"] == "the terminal has ended"
    # The unused approval was already decided, so its record does not change.
    assert {each.id for each in await stored(approvals, status="approved")} == {approved.id}


async def test_what_a_restart_leaves_is_expired(
    approvals: Approvals, session: Session, database: Database, ledger: Ledger
) -> None:
    asked = await ask(approvals, session)
    recorder = Recorder(ledger, Metrics())
    after = Approvals(database, ledger, recorder)
    assert await after.recover() == 1
    assert await after.recover() == 0
    (expired,) = await stored(after)
    assert (expired.id, expired.status) == (asked.id, "expired")
    assert "restarted" in (expired.reason or "")
    with pytest.raises(ConflictError, match="is already expired"):
        await after.decide(ADMIN, asked.id, "approve", None)
    events = await query.events(database, "k1", operation="approval.decision")
    assert [event["result"]["status"] for event in events] == ["expired"]


async def test_too_many_are_refused(approvals: Approvals, session: Session) -> None:
    for number in range(MAX_PENDING):
        await ask(approvals, session, DROP._replace(text=f"DROP TABLE t{number}"))
    with pytest.raises(BusyError):
        await ask(approvals, session)
    await approvals.expire(session, "pty-1", "over")
    assert (await ask(approvals, session)).status == "pending"


async def test_without_a_ledger_nothing_is_asked_or_decided(
    approvals: Approvals, session: Session, ledger: Ledger
) -> None:
    asked = await ask(approvals, session)
    waiting = asyncio.create_task(approvals.obtain(session, DROP, AGENT, LONG))
    await ledger.close()
    with pytest.raises(AuditUnavailableError):
        await approvals.decide(OWNER, asked.id, "approve", None)
    with pytest.raises(AuditUnavailableError):
        await ask(approvals, session, DROP._replace(text="DROP TABLE x"))
    assert [(each.id, each.status) for each in await stored(approvals)] == [(asked.id, "pending")]
    await approvals.expire(session, "pty-1", "over")  # expiring works even so
    assert (await waiting).status == "expired"


async def test_who_leaves_while_it_is_recorded_leaves_it_to_be_decided(
    approvals: Approvals, session: Session, ledger: Ledger
) -> None:
    asking = asyncio.create_task(ask(approvals, session))
    await asyncio.sleep(0)
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking
    await ledger.wait("k1", 0)
    (pending,) = await stored(approvals)
    await approvals.decide(OWNER, pending.id, "approve", None)
    assert (await ask(approvals, session)).id == pending.id


async def test_pages(approvals: Approvals, session: Session) -> None:
    for number in range(5):
        await ask(approvals, session, DROP._replace(text=f"DROP TABLE t{number}"))
    found: list[str] = []
    before: int | None = None
    while True:
        page, before = await approvals.list(ADMIN, before=before, limit=2)
        found += [each.text for each in page]
        if before is None:
            break
    assert found == [f"DROP TABLE t{number}" for number in (4, 3, 2, 1, 0)]


async def test_a_long_text_is_bound_by_its_digest(
    approvals: Approvals, session: Session, database: Database
) -> None:
    text = "SELECT '" + "\u6f22" * 8000 + "'"
    asked = await ask(approvals, session, DROP._replace(text=text))
    assert [each.text for each in await stored(approvals)] == [text]
    (event,) = await query.events(database, "k1")
    assert len(event["args"]["command"].encode()) < 10_000
    assert len(event["args"]["command_sha256"]) == 64
    assert asked.text == text


async def test_a_reason_waits_until_the_secrets_are_known(
    approvals: Approvals, session: Session, database: Database
) -> None:
    """After a restart the agent sends them again, but not while it is paused."""
    asked = await ask(approvals, session)
    value = "tok-2b1f9c07d4e8"
    session.secrets = SessionSecrets(StoredSecrets.new(["TOKEN"]))
    with pytest.raises(ConflictError, match="leave the text out") as caught:
        await approvals.decide(OWNER, asked.id, "deny", f"it shows {value}")
    assert caught.value.fields["reason"] == "secrets_unknown"
    assert [each.status for each in await stored(approvals)] == ["pending"]
    assert await query.events(database, "k1", operation="approval.decision") == []
    assert (await approvals.decide(OWNER, asked.id, "deny", None)).status == "denied"


async def test_without_room_on_the_disk_only_denials_are_decided(
    database: Database, ledger: Ledger
) -> None:
    """An approved line would have effects that must be recorded."""
    free = [1]
    room = RecordRoom(KeyRing({}), KeyLimits(), 1, lambda: free[0], iter(range(100)).__next__)
    recorder = Recorder(ledger, Metrics(), room)
    approvals, session = Approvals(database, ledger, recorder), make_session()
    asked = [await ask(approvals, session, DROP._replace(text=text)) for text in ("a", "b")]
    free[0] = 0
    with pytest.raises(CapacityExhaustedError):
        await approvals.decide(OWNER, asked[0].id, "approve", None)
    assert {approval.status for approval in await stored(approvals)} == {"pending"}
    assert (await approvals.decide(OWNER, asked[1].id, "deny", None)).status == "denied"
