"""Counts over all known sessions, kept with every change of one, so nobody looks at all of them."""

from collections import Counter
from dataclasses import dataclass
from enum import Enum
from fractions import Fraction
from typing import NamedTuple, Self

from orchestrator.ground.limits import KeyUsage
from orchestrator.rules.policy.levels import SessionLimits
from orchestrator.state.session import Session
from paddock.contract.words import Status


class Standing(Enum):
    """Where a session is: being created, created, or ended and still remembered."""

    RESERVED = "reserved"
    LIVE = "live"
    ENDED = "ended"


class _Part(NamedTuple):
    """What one session adds to the counts."""

    standing: Standing
    owner: str
    kind: tuple[Status, str]
    is_suspended: bool
    cpus: Fraction
    memory_bytes: int


@dataclass(slots=True)
class _Held:
    """What the sessions of one owner hold. Fractions, because sums of floats drift."""

    sessions: int = 0
    cpus: Fraction = Fraction()
    memory_bytes: int = 0

    def add(self, part: _Part, sign: int) -> Self:
        self.sessions += sign
        self.cpus += sign * part.cpus
        self.memory_bytes += sign * part.memory_bytes
        return self


class Tally:
    """The counts of a registry, which says where a session is; a session says when it changes."""

    def __init__(self) -> None:
        self._parts: dict[str, _Part] = {}
        self._held: dict[str, _Held] = {}
        # The limits to which sessions are changing, by their keys.
        self._changing: dict[str, SessionLimits] = {}
        # Suspended sessions that live.
        self.suspended = 0
        self._standings: Counter[Standing] = Counter()
        # Those that exist or have ended, by status and level.
        self.kinds: Counter[tuple[Status, str]] = Counter()
        # Those that live and have a sandbox, by key.
        self.sandboxed: dict[str, Session] = {}

    @property
    def with_sandbox(self) -> int:
        """How many live and are not suspended, or are being created."""
        return self._standings[Standing.RESERVED] + self._standings[Standing.LIVE] - self.suspended

    def held(self, owner: str) -> KeyUsage:
        """What the owner's sessions hold that live or are being created."""
        held = self._held.get(owner, _Held())
        return KeyUsage(held.sessions, float(held.cpus), held.memory_bytes)

    def put(self, session: Session, standing: Standing) -> None:
        """Counts the session as one in that standing."""
        self._count(session, standing)
        session.on_change = self._changed

    def remove(self, session: Session) -> None:
        """Counts the session no more."""
        session.on_change = None
        self._discount(session)

    def change(self, session: Session, limits: SessionLimits | None) -> None:
        """Counts the larger ones of these limits and its own; None: its own."""
        if limits is None:
            self._changing.pop(session.key, None)
        else:
            self._changing[session.key] = limits
        self._changed(session)

    def _changed(self, session: Session) -> None:
        part = self._parts.get(session.key)
        if part is not None:
            self._count(session, part.standing)

    def _count(self, session: Session, standing: Standing) -> None:
        self._discount(session)
        part = self._parts[session.key] = self._part(session, standing)
        self._add(part, 1)
        if standing is Standing.LIVE and session.sandbox is not None:
            self.sandboxed[session.key] = session

    def _discount(self, session: Session) -> None:
        self.sandboxed.pop(session.key, None)
        part = self._parts.pop(session.key, None)
        if part is not None:
            self._add(part, -1)

    def _part(self, session: Session, standing: Standing) -> _Part:
        limits = session.limits, self._changing.get(session.key, session.limits)
        return _Part(
            standing,
            session.owner,
            (session.status, session.level.name),
            session.suspended,
            Fraction(max(each.cpus for each in limits)),
            max(each.memory_bytes for each in limits),
        )

    def _add(self, part: _Part, sign: int) -> None:
        self._standings[part.standing] += sign
        if part.standing is not Standing.ENDED:
            held = self._held.setdefault(part.owner, _Held()).add(part, sign)
            if not held.sessions:
                del self._held[part.owner]
        if part.standing is Standing.LIVE:
            self.suspended += sign * part.is_suspended
        if part.standing is not Standing.RESERVED:
            self.kinds[part.kind] += sign
            if not self.kinds[part.kind]:
                del self.kinds[part.kind]
