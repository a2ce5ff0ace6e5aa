"""Decisions by the rules that a session has at that moment."""

from orchestrator.rules.egress.outgoing_request import Outgoing
from orchestrator.rules.egress.rules import Decision
from orchestrator.sandbox.egress.key_bytes import KeyBytes
from orchestrator.settings.hosts import Address, Host
from orchestrator.state.session import Session


class LiveRules:
    """A change of the session's rules holds from its next decision on.

    Nothing is allowed if the session's key has no bytes left.
    """

    def __init__(self, session: Session, key_bytes: KeyBytes) -> None:
        self._session = session
        self._key_bytes = key_bytes

    def decide(self, outgoing: Outgoing) -> Decision:
        """See `Rules.decide`."""
        decision = self._session.egress_rules.decide(outgoing)
        return self._key_bytes.decided(self._session.owner, decision)

    def decide_address(self, address: Address, port: int) -> Decision:
        """See `Rules.decide_address`."""
        return self._session.egress_rules.decide_address(address, port)

    def upgraded(self, host: Host, port: int) -> int | None:
        """See `Rules.upgraded`."""
        return self._session.egress_rules.upgraded(host, port)
