"""The requests that a session was denied, grouped by the rule that would allow them."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from orchestrator.ground.events import now
from orchestrator.rules.egress.rule import Rule
from orchestrator.rules.egress.rules import Decision

# A sandbox can cause any number of denials, so few are kept.
MOST_DRAFTS = 100
_MOST_PATH = 256


@dataclass(slots=True)
class Denied:
    """A request that was denied; `path` has no query, and is None for a tunnel."""

    host: str
    port: int
    method: str
    path: str | None
    program: str


@dataclass(slots=True)
class Draft:
    """Denied requests with the same remedy; `last` is the latest of them.

    `rule` is the rule that denied them. `missing` is a rule that would allow them, if one can.
    """

    number: int
    last: Denied
    rule: str
    why: str | None
    missing: Rule | None
    first_seen: str
    last_seen: str
    count: int = 1


class Drafts:
    """The drafts of one session by number. `others` counts the denials that are not kept."""

    def __init__(self) -> None:
        self._drafts: dict[tuple[str, int, str, Rule | None], Draft] = {}
        self._latest = 0
        self.others = 0

    def __iter__(self) -> Iterator[Draft]:
        return iter(list(self._drafts.values()))

    def add(self, denied: Denied, decision: Decision) -> None:
        """Counts a denied request."""
        if denied.path is not None:
            denied.path = denied.path[:_MOST_PATH]
        key = (denied.host, denied.port, decision.rule, decision.missing)
        draft, time = self._drafts.get(key), now()
        if draft is not None:
            draft.last, draft.last_seen, draft.why = denied, time, decision.why
            draft.count += 1
        elif len(self._drafts) < MOST_DRAFTS:
            self._latest += 1
            self._drafts[key] = Draft(
                self._latest, denied, decision.rule, decision.why, decision.missing, time, time
            )
        else:
            self.others += 1

    def forget(self, permitted: Callable[[Rule], bool]) -> None:
        """Removes the drafts whose rules are permitted now."""
        self._drafts = {
            key: draft
            for key, draft in self._drafts.items()
            if draft.missing is None or not permitted(draft.missing)
        }
