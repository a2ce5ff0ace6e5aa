"""Counts the bytes of one connection, for its own limit and its session's budget."""

from orchestrator.egress.usage import EgressUsage
from orchestrator.sessions.budget import Budget, Kind


class SpentError(Exception):
    """No further byte may pass; `budget`: in the whole session."""

    def __init__(self, *, budget: bool) -> None:
        super().__init__(
            "the session's budget is used up" if budget else "the connection's limit is reached"
        )
        self.budget = budget


class Meter:
    """One connection's bytes, to and from its upstream."""

    def __init__(self, budget: Budget, usage: EgressUsage, most: int) -> None:
        self._budget = budget
        self._usage = usage
        self._most = most
        self.sent = 0
        self.received = 0

    def send(self, size: int) -> int:
        """Counts bytes to the upstream; returns how many of them may pass."""
        taken = self._take(size, self.sent)
        self.sent += taken
        self._usage.sent += taken
        return taken

    def receive(self, size: int) -> int:
        """Counts bytes from the upstream; returns how many of them may pass."""
        taken = self._take(size, self.received)
        self.received += taken
        self._usage.received += taken
        return taken

    def check(self) -> None:
        """Raises: SpentError if nothing more may pass in one of the directions."""
        if self._budget.left(Kind.EGRESS_BYTES) == 0:
            raise SpentError(budget=True)
        if self._most in (self.sent, self.received):
            raise SpentError(budget=False)

    def _take(self, size: int, so_far: int) -> int:
        left = self._budget.left(Kind.EGRESS_BYTES)
        taken = min(size, self._most - so_far, size if left is None else left)
        self._budget.consume(Kind.EGRESS_BYTES, taken)
        return taken
