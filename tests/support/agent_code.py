"""The agent's code in containers that tests start themselves, without a control plane."""

from pathlib import Path

import sandbox_agent
from sandbox_agent.decide.mounted_agent import PLACE

_CODE = Path(sandbox_agent.__file__).parent
# A bind, as Docker's client takes it. The image's own Python runs the code.
AGENT_CODE = f"{_CODE}:{PLACE}/{_CODE.name}:ro"
