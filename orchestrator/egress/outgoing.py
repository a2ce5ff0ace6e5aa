"""What asks to go out, as the rules see it. Pure."""

from typing import NamedTuple

from orchestrator.egress.hosts import Host
from orchestrator.egress.program import UNKNOWN
from orchestrator.egress.requested import Requested


class Outgoing(NamedTuple):
    """A request to a host; `requested` None: for a tunnel. `program` has the connection."""

    host: Host
    port: int
    requested: Requested | None = None
    program: str = UNKNOWN
