"""Counts the bytes of one connection: for its own limit, its session's budget and its key."""

from orchestrator.ground.limits import EGRESS_BYTES
from orchestrator.rules.egress.usage import EgressUsage
from orchestrator.sandbox.egress.key_bytes import KeyBytes
from orchestrator.state.budget import Budget
from paddock.contract.words import Kind


class SpentError(Exception):
    """No further byte may pass; `budget`: in the whole session."""

    def __init__(self, text: str, *, budget: bool = False) -> None:
        super().__init__(text)
        self.budget = budget


class Meter:
    """One connection's bytes, to and from its upstream."""

    def __init__(
        self, budget: Budget, key_bytes: KeyBytes, owner: str, usage: EgressUsage, most: int
    ) -> None:
        self._budget = budget
        self._key_bytes = key_bytes
        self._owner = owner
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

    @property
    def spent(self) -> SpentError | None:
        """Why nothing more may pass in one of the directions."""
        if self._budget.left(Kind.EGRESS_BYTES) == 0:
            return SpentError("the session's budget is used up", budget=True)
        if self._key_bytes.left(self._owner) == 0:
            return SpentError(f"{EGRESS_BYTES} of the key is used up")
        if self._most in (self.sent, self.received):
            return SpentError("the connection's limit is reached")
        return None

    def check(self) -> None:
        """Raises: SpentError if nothing more may pass in one of the directions."""
        spent = self.spent
        if spent is not None:
            raise spent

    def _take(self, size: int, so_far: int) -> int:
        lefts = (self._budget.left(Kind.EGRESS_BYTES), self._key_bytes.left(self._owner))
        taken = min(size, self._most - so_far, *(left for left in lefts if left is not None))
        self._budget.consume(Kind.EGRESS_BYTES, taken)
        self._key_bytes.add(self._owner, taken)
        return taken
