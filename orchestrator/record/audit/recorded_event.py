"""An event in the ledger: one value that all its readers share. No I/O."""

import json
import re
from dataclasses import dataclass, field
from functools import cached_property

from paddock.audit.chain import DIGEST, Event

# The columns of `Recorded`.
RECORDED = "session_key, id, seq, time, operation, body, prev_hash, hash"
SELECT_RECORDED = f"SELECT {RECORDED} FROM events"  # noqa: S608 - ours
# Readers need not know that an event was erased.
ERASED: Event = {"args": {}, "result": None, "error": None}
# What says that somebody has had access to a session is no content of it.
_ACCESS = "access."
_ESCAPED = re.compile(r"[^ -~]+")


@dataclass(frozen=True)
class Recorded:
    """A durable event. All its readers share this object and must not change it.

    `text` is the canonical text. `bytes` is the event's size in the ledger, 0 if it
    was recorded before. `body` is the text's object if the event was just written, which saves
    parsing it.
    """

    session_key: str
    id: int
    seq: int
    time: str
    operation: str
    text: str
    prev_hash: str
    hash: str
    bytes: int = 0
    body: Event | None = field(default=None, repr=False, compare=False)

    @cached_property
    def event(self) -> Event:
        """The event in the form of the API. Raises: ValueError if the text is corrupted."""
        if self.body is None:
            return full_event(self.text, self.prev_hash, self.hash)
        return self.body | {"prev_hash": self.prev_hash, "hash": self.hash}

    @cached_property
    def line(self) -> str:
        """The event in the form of the API: JSON in ASCII on one line.

        Some readers treat other characters than a line feed as the end of a line.
        """
        text = self.text
        if not text.isascii() or "\n" in text or "\r" in text:
            text = _ESCAPED.sub(lambda found: json.dumps(found[0])[1:-1], text)
        return f'{text[:-1]},"prev_hash":"{self.prev_hash}","hash":"{self.hash}"}}'

    @cached_property
    def veiled_line(self) -> str:
        """The same without what the session contains."""
        return json.dumps(veiled(self.event), separators=(",", ":"))


def veiled(event: Event) -> Event:
    """The event without what its session contains: what happened, when, and by whom.

    Without the salt, nobody finds the content by trying.
    """
    if event["operation"].startswith(_ACCESS):
        return event
    return {name: value for name, value in event.items() if name not in ("salt", DIGEST)} | ERASED


def full_event(text: str, prev_hash: str, event_hash: str) -> Event:
    """The event of that canonical text, with its hashes; erased content is empty."""
    event = exported_event(text, prev_hash, event_hash)
    return ERASED | event if DIGEST in event else event


def exported_event(text: str, prev_hash: str, event_hash: str) -> Event:
    """The event of that canonical text exactly as it is, with its hashes."""
    event: Event = json.loads(text)
    return event | {"prev_hash": prev_hash, "hash": event_hash}
