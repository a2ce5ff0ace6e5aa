"""A chain of audit events: its canonical text, its hashes, and its verification. No I/O.

The hash of an event covers its content (`args`, `result`, `error`) by a digest with a random salt.
So the content can be erased: the digest takes its place, the chain stays intact, and who lacks the
salt can't try out what the content was. Events of earlier versions have no salt, and are hashed as
they are.
"""

import hashlib
import json
from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

Event = dict[str, Any]

GENESIS_HASH = "0" * 64
_HASHES = ("prev_hash", "hash")
_CONTENT = ("args", "result", "error")
# What stands for erased content in answers of the API.
_NOTHING: tuple[Any, ...] = ({}, None)
SALT = "salt"
# In the place of salt and content, once they are erased, and wherever an event is hashed.
DIGEST = "content"
_ENCODER = json.JSONEncoder(
    sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False
)


def canonical(value: Any) -> str:
    """The text of a JSON value that is hashed: sorted keys, no white space, unescaped UTF-8."""
    return _ENCODER.encode(value)


def chain_hash(prev_hash: str, text: str) -> str:
    """The hash of an event with that `hashed_text` that follows `prev_hash`."""
    return hashlib.sha256((prev_hash + text).encode()).hexdigest()


def hashed_text(event: Event) -> str:
    """The text of an event that is hashed; `event` has no hashes. It is that of `erased`, too.

    Members that an answer of the API has instead of missing ones change nothing. Raises: ValueError
    for an event with a salt and the digest of a content.
    """
    if SALT in event and event[SALT] is not None:
        return canonical(erased(event))
    left_out = [name for name in (SALT, DIGEST) if event.get(name, 0) is None]
    if event.get(DIGEST) is not None:
        left_out += [name for name in _CONTENT if event.get(name, 0) in _NOTHING]
    return canonical({name: value for name, value in event.items() if name not in left_out})


def erased(event: Event) -> Event:
    """The event without its content and salt, with the digest of both. Raises: ValueError."""
    if event.get(DIGEST) is not None:
        raise ValueError(f"{DIGEST} and {SALT} exclude each other")
    content = {name: event[name] for name in (SALT, *_CONTENT) if name in event}
    kept = {name: value for name, value in event.items() if name not in content}
    kept.pop(DIGEST, None)
    kept[DIGEST] = hashlib.sha256(canonical(content).encode()).hexdigest()
    return kept


class Anchor(NamedTuple):
    """A noted position in the chain, which reveals that the end was cut off."""

    seq: int
    hash: str


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether a chain is intact.

    `index` (from 0) and `reason` describe the first event that differs from the record; `seq` and
    `hash` are those of the last event before it, which is the head if all are intact.
    """

    ok: bool
    index: int | None
    reason: str | None
    seq: int
    hash: str


class BrokenError(Exception):
    """The event differs from the one that was recorded."""


class Chain:
    """Follows a chain event by event, and stops at the first wrong one."""

    def __init__(self, anchor: Anchor | None = None, wanted: Container[int] = ()) -> None:
        """`wanted`: the seqs of the events whose hashes `seen` gets."""
        self._anchor = anchor
        self._wanted = wanted
        self.seen: dict[int, str] = {}
        self._last_id = 0
        self._seq = 0
        self._hash = GENESIS_HASH
        self._reason: str | None = None

    @property
    def broken(self) -> bool:
        """Whether a wrong event has been found."""
        return self._reason is not None

    def follow(self, event: str | Mapping[str, Any], text: str | None = None) -> None:
        """Takes the next event: a line of an export, or an event as an object.

        `text` is the object's canonical text without its hashes, as `parse` has found it.
        """
        if self.broken:
            return
        try:
            self._check(parse(event) if isinstance(event, str) else dict(event), text)
        except BrokenError as error:
            self._reason = str(error)

    def refuse(self, reason: str) -> None:
        """Rejects the next event for a reason that only the caller can know."""
        self._reason = self._reason or reason

    def verdict(self) -> Verdict:
        """The verdict, after the last event."""
        anchor = self._anchor
        if not self.broken and anchor is not None and anchor.seq > self._seq:
            self._reason = f"the chain ends before seq {anchor.seq}"
        index = self._seq if self.broken else None
        return Verdict(not self.broken, index, self._reason, self._seq, self._hash)

    def _check(self, event: Event, text: str | None) -> None:
        prev_hash, event_hash = (event.get(name) for name in _HASHES)
        if event.get("seq") != self._seq + 1:
            raise BrokenError(f"seq is not {self._seq + 1}")
        if prev_hash != self._hash:
            raise BrokenError("prev_hash is not the hash of the event before")
        try:
            if text is None or SALT in event or DIGEST in event:
                text = hashed_text(
                    {name: value for name, value in event.items() if name not in _HASHES}
                )
            expected = chain_hash(self._hash, text)
        except (TypeError, ValueError, RecursionError) as error:
            raise BrokenError(f"has no canonical text: {error}") from None
        if event_hash != expected:
            raise BrokenError("hash does not match the event")
        event_id = event.get("id")
        if not isinstance(event_id, int) or event_id <= self._last_id:
            raise BrokenError("id is not higher than that of the event before")
        anchor = self._anchor
        if anchor is not None and anchor.seq == event["seq"] and anchor.hash != event_hash:
            raise BrokenError("hash is not the one that was noted")
        self._last_id, self._seq, self._hash = event_id, self._seq + 1, expected
        if self._seq in self._wanted:
            self.seen[self._seq] = expected


def verify_chain(
    events: Iterable[str | Mapping[str, Any]], anchor: tuple[int, str] | None = None
) -> Verdict:
    """Recomputes a whole chain from its lines or events, first to last.

    Lines must be exactly as exported. Without an anchor, a chain whose end was cut off looks like
    one that never had it.
    """
    chain = Chain(None if anchor is None else Anchor(*anchor))
    for event in events:
        chain.follow(event)
        if chain.broken:
            break
    return chain.verdict()


def parse(text: str) -> Event:
    """Parses a canonical text; refuses any other spelling of it.

    Raises: BrokenError.
    """
    try:
        event = json.loads(text)
        if isinstance(event, dict) and canonical(event) == text.removesuffix("\n"):
            return event
    except (ValueError, RecursionError) as error:
        raise BrokenError(f"is not JSON: {error}") from None
    raise BrokenError("is not in canonical form")
