"""The latest denials in groups: which rule refused what in which session, and how often."""

from collections.abc import Iterable
from dataclasses import dataclass

from paddock.audit.chain import Event

# Denials that are looked at, and groups that are shown.
MOST_EXAMINED = 1000
MOST_GROUPS = 50


@dataclass(slots=True)
class Denials:
    """Denials of one operation by one rule in one session; `latest` is the newest of them."""

    latest: Event
    times: int


def grouped(events: Iterable[Event], most: int = MOST_GROUPS) -> list[Denials]:
    """The largest groups of denials; `events` begin with the newest.

    An event that stands for several refusals counts for each of them.
    """
    found: dict[tuple[object, ...], Denials] = {}
    for event in events:
        key = event["session_id"], event["incarnation"], event["operation"], event["rule"]
        group = found.setdefault(key, Denials(event, 0))
        group.times += _times(event)
    return sorted(found.values(), key=lambda group: -group.times)[:most]


def _times(event: Event) -> int:
    repeats = event["args"].get("repeats")
    return repeats if isinstance(repeats, int) and repeats > 0 else 1
