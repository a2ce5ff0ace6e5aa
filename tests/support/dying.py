"""A control plane that is killed at one point of a waiting sandbox's takeover by a session.

`python -m tests.support.dying serve`, with the point in the environment variable DIES_AFTER.
"""

import os
import signal
import sys
from collections.abc import Awaitable, Callable
from typing import Any

from orchestrator.sandbox.sandboxes.agent_parts import AgentPart
from orchestrator.sandbox.sandboxes.host_parts import AttachPart, QuotaPart
from orchestrator.sandbox.sandboxes.parts import Plan
from paddock.cli import main
from paddock.contract.words import Start

# In their order: the workspace exists, it is mounted, the agent knows its session.
POINTS: dict[str, tuple[type[Any], str]] = {
    "prepared": (QuotaPart, "prepare"),
    "attached": (AttachPart, "open"),
    "configured": (AgentPart, "open"),
}


def die_after(owner: type[Any], name: str) -> None:
    """Has the process killed, without a chance to react, when that method has returned."""
    real: Callable[[object, Plan], Awaitable[None]] = getattr(owner, name)

    async def last(self: object, plan: Plan) -> None:
        await real(self, plan)
        if plan.start is Start.WARM:
            os.kill(os.getpid(), signal.SIGKILL)

    setattr(owner, name, last)


if __name__ == "__main__":
    die_after(*POINTS[os.environ["DIES_AFTER"]])
    sys.exit(main())
