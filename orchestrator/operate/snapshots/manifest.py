"""`snapshot.json`: a session without its files."""

import hashlib
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from itertools import pairwise
from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field
from pydantic import ValidationError as SchemaError

from orchestrator.ground import strict_json
from orchestrator.ground.errors import TooLargeError
from orchestrator.ground.strict_json import JsonError
from orchestrator.operate.snapshots.archive import (
    MANIFEST,
    MOST_MANIFEST_BYTES,
    PartFacts,
    SnapshotError,
)
from orchestrator.operate.snapshots.conversation import (
    MessageForm,
    StoredConversation,
    TimelineForm,
    Waiting,
    in_order,
)
from orchestrator.programs.turns.lisp.errors import LispError
from orchestrator.programs.turns.notes import Notes
from orchestrator.programs.turns.programs import OperationFailed
from orchestrator.programs.turns.script import prepared
from orchestrator.programs.turns.stored_values import from_text, json_text, to_text
from orchestrator.programs.turns.turn import LispCode, TurnRecord
from orchestrator.rules.egress.session_rules import NO_NARROWING
from orchestrator.rules.policy.session_policy import BUILT_IN
from orchestrator.settings.schema_errors import place, reason
from orchestrator.state.budget import outside
from orchestrator.state.session import Session
from paddock.contract.first_error import StopsEarly
from paddock.contract.words import Kind

VERSION = 1
_MOST = 2**53
# Reading this many takes some tens of milliseconds, in which nothing else can run.
_MOST_VALUES = 250_000
_MOST_TURNS = 100_000
_MOST_SKIPPED = 64
# What is raised for a form that is no value.
_NO_NOTES = (
    *(KeyError, TypeError, ValueError, AttributeError, RecursionError, OperationFailed, LispError),
)
_Time = Annotated[str, Field(pattern=r"^\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}\.\d{6}Z$")]
_Count = Annotated[int, Field(ge=0, le=_MOST)]


class _Form(StopsEarly):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class PartForm(_Form):
    """A part of the archive."""

    name: str
    size: _Count
    sha256: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]


class TurnForm(_Form):
    """A turn that has ended."""

    number: Annotated[int, Field(ge=1)]
    started_at: _Time
    actor: Annotated[str, Field(max_length=256, pattern=r"^[ -~]*$")]
    ended_at: _Time
    outcome: dict[str, Any]
    tokens_used: _Count
    operations: _Count
    printed: str
    proposals: list[dict[str, Any]]
    budget_remaining: Annotated[dict[str, int | float | None], Field(max_length=64)]
    # Where it ran; older snapshots lack both.
    permission_level: Annotated[str, Field(max_length=64)] | None = None
    workspace_root: Annotated[str, Field(max_length=4096)] | None = None


class NotesForm(_Form):
    """What the session's programs remember."""

    environment: str
    facts: list[Any]
    memos: list[Annotated[list[Any], Field(min_length=2, max_length=2)]]


class SnapshotForm(_Form):
    """The whole manifest. `session` is a request to create a session, as the API has it."""

    version: Literal[1]
    taken_at: _Time
    status: Literal["active"]
    created_at: _Time
    last_activity_at: _Time
    episodes: _Count
    session: dict[str, Any]
    consumed: dict[str, _Count]
    turns: Annotated[list[TurnForm], Field(max_length=_MOST_TURNS)]
    notes: NotesForm
    # Older snapshots have neither.
    timeline: TimelineForm = []
    queued: Waiting = []
    skipped: list[str]
    parts: Annotated[list[PartForm], Field(max_length=8)]

    def listed(self) -> list[PartFacts]:
        """The parts that follow it."""
        return [PartFacts(part.name, part.size, part.sha256) for part in self.parts]

    def records(self) -> list[TurnRecord]:
        """The turns as they are stored."""
        return [
            TurnRecord(**turn.model_dump() | {"proposals": tuple(turn.proposals)})
            for turn in self.turns
        ]

    def conversation(self) -> StoredConversation:
        """The timeline and the queue as they are stored."""
        return StoredConversation([each.entry() for each in self.timeline], self.queued)

    def used(self) -> dict[Kind, int]:
        """The consumption by kind, in internal units."""
        return {Kind(name): amount for name, amount in self.consumed.items()}


def written(
    session: Session,
    taken_at: str,
    turns: list[TurnRecord],
    notes: Notes,
    conversation: StoredConversation,
    parts: list[PartFacts],
    skipped: list[str],
) -> bytes:
    """The manifest of a session. Raises: TooLargeError."""
    members = {
        "version": VERSION,
        "taken_at": taken_at,
        "status": str(session.status),
        "created_at": session.created_at,
        "last_activity_at": session.last_activity_at,
        "episodes": session.episodes,
        "session": requested(session),
        "consumed": {
            str(kind): session.budget.used(kind) for kind in Kind if kind is not Kind.TIME
        },
        "turns": [_turn(turn) for turn in turns],
        "notes": notes.stored(),
        "timeline": [MessageForm.of(entry).model_dump() for entry in conversation.timeline],
        "queued": conversation.queued,
        "skipped": skipped[:_MOST_SKIPPED],
        "parts": [part._asdict() for part in parts],
    }
    data = _encoded(members)
    if len(data) > MOST_MANIFEST_BYTES:
        raise TooLargeError(f"{MANIFEST} would have more than {MOST_MANIFEST_BYTES} bytes")
    if strict_json.count(data, _MOST_VALUES) > _MOST_VALUES:
        raise TooLargeError(f"{MANIFEST} would have more than {_MOST_VALUES} values")
    return data


def _encoded(manifest: Mapping[str, Any]) -> bytes:
    """The manifest as JSON. Items of lists are encoded one by one, so that others can run."""
    members = []
    for name, value in manifest.items():
        text = f"[{','.join(map(json_text, value))}]" if isinstance(value, list) else None
        members.append(f"{json_text(name)}:{json_text(value) if text is None else text}")
    return f"{{{','.join(members)}}}".encode()


def requested(session: Session) -> dict[str, Any]:
    """The request that creates the session again; secrets are not in it."""
    only = session.own_rules.only
    policy = session.policy
    return {
        "id": session.id,
        "permission_level": session.level.name,
        **session.terms.given(),
        "budget": {str(kind): outside(kind, n) for kind, n in session.budget.limits.items()},
        "policy": policy.name if policy.name in BUILT_IN else policy.rules(),
        **({} if only == NO_NARROWING else {"egress": only.given()}),
    }


def _turn(turn: TurnRecord) -> dict[str, Any]:
    members = {name: getattr(turn, name) for name in TurnForm.model_fields}
    return members | {"proposals": list(turn.proposals)}


def read(data: bytes, check: Callable[[TurnRecord], object]) -> SnapshotForm:
    """The manifest in the archive; `check` raises for a turn that can't be shown.

    Raises: SnapshotError naming the member.
    """
    try:
        value = strict_json.parse(data, MANIFEST, _MOST_VALUES)
    except JsonError as error:
        raise SnapshotError(str(error), field=MANIFEST) from None
    if not isinstance(value, dict) or value.get("version") != VERSION:
        raise SnapshotError(
            f"version must be {VERSION}: other snapshots can't be restored here", field="version"
        )
    try:
        manifest = SnapshotForm.model_validate(value)
        for turn in manifest.records():
            check(turn)
    except SchemaError as error:
        raise _refused(error) from None
    _check(manifest)
    return manifest


def _refused(error: SchemaError) -> SnapshotError:
    first = error.errors(include_url=False, include_input=False)[0]
    field = ".".join(str(part)[:64] for part in place(first["loc"]))
    return SnapshotError(f"{field} {reason(first['type'], first['msg'])}", field=field)


def _check(manifest: SnapshotForm) -> None:
    """Raises: SnapshotError for what no session can have."""
    numbers = [turn.number for turn in manifest.turns]
    if any(later <= earlier for earlier, later in pairwise(numbers)):
        raise SnapshotError("turns must be in order, each number once", field="turns")
    if not in_order(manifest.timeline):
        raise SnapshotError("timeline must be in order, each number once", field="timeline")
    unknown = set(manifest.consumed) - {str(kind) for kind in Kind if kind is not Kind.TIME}
    if unknown:
        raise SnapshotError(f"consumed has an unknown kind: {min(unknown)[:64]}", field="consumed")
    if _moment(manifest.created_at, "created_at") > datetime.now(UTC):
        raise SnapshotError("created_at must not be in the future", field="created_at")
    read_notes(manifest.notes)


def _moment(text: str, field: str) -> datetime:
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        raise SnapshotError(f"{field} is no time", field=field) from None


def read_notes(form: NotesForm) -> Notes:
    """Raises: SnapshotError for notes that no session has left."""
    try:
        notes = Notes.restored(form.model_dump())
        fresh = Notes()
        for text in notes.facts:
            fresh.assert_fact(from_text(text))
        for digest, text in notes.memos.items():
            if not isinstance(digest, str) or to_text(from_text(text)) != text:
                raise ValueError("not a result")
            fresh.keep(digest, from_text(text))
        if list(fresh.facts) != list(notes.facts) or list(fresh.memos) != list(notes.memos):
            raise ValueError("more than a session keeps")
        for _ in prepared(LispCode("nil"), notes).program:
            pass
    except _NO_NOTES as error:
        why = str(error)[:200] or type(error).__name__
        raise SnapshotError(f"notes can't be restored: {why}", field="notes") from None
    return notes


def sha256(manifest: bytes) -> str:
    """The snapshot's digest, which depends on each of its parts."""
    return hashlib.sha256(manifest).hexdigest()
