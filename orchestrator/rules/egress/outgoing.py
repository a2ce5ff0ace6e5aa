"""What asks to go out, as the rules see it. Pure."""

from typing import NamedTuple

from orchestrator.rules.egress.program import UNKNOWN
from orchestrator.rules.egress.requested import Requested
from orchestrator.settings.hosts import Host


class Outgoing(NamedTuple):
    """A request to a host; `requested` None: for a tunnel. `program` has the connection."""

    host: Host
    port: int
    requested: Requested | None = None
    program: str = UNKNOWN
