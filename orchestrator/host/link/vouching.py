"""Tells agents until when their sessions may run, for sessions that another machine may take over.

Such an agent has its session stand still by itself once this control plane is gone or hangs.
"""

import logging
from collections.abc import Callable

from orchestrator.ground.errors import ValidationError
from orchestrator.host.link.agent_link import AgentLink
from orchestrator.host.link.messages import malformed

log = logging.getLogger(__name__)

_SECONDS = 5.0
_EARLIER = "a sandbox's agent is of an earlier version, and needs its control plane"


class Vouching:
    """Gives the word for as long as this node may run such sessions."""

    def __init__(self, left: Callable[[], float]) -> None:
        """`left`: for how many more seconds it may, without another renewal of its lease."""
        self._left = left

    async def vouch(self, link: AgentLink) -> None:
        """Gives the word by the agent's own clock, which its kernel may have for itself.

        That was read before it is added to, so that the time is rather too short. Raises:
        SandboxUnavailableError.
        """
        if not link.knows("vouch"):
            log.warning(_EARLIER)
            return
        try:
            now = (await link.request("vouch", {}, _SECONDS)).get("now_ms")
            if not isinstance(now, int) or isinstance(now, bool) or not 0 <= now < 2**52:
                raise malformed()
            await link.request("vouch", {"until_ms": now + int(self._left() * 1000)}, _SECONDS)
        except ValidationError:
            log.warning(_EARLIER)
