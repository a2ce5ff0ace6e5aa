"""Whether commands can have the compiled guard here; the hello says so."""

import os
from collections.abc import Mapping

from sandbox_agent.decide.facilities import GUARD, WITHOUT
from sandbox_agent.decide.mounted_agent import GUARD_PROGRAM, PLACE

# Where the runtime has it.
PROGRAM = f"{PLACE}/{GUARD_PROGRAM}"


def available(environment: Mapping[str, str] = os.environ) -> bool:
    """Whether the runtime has the program, and no test takes it away by the environment."""
    taken_away = GUARD in environment.get(WITHOUT, "").split(",")
    return not taken_away and os.access(PROGRAM, os.X_OK)
