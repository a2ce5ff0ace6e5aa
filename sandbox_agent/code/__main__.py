"""The command of a code context: `python3 /opt/paddock/sandbox_agent/code LANGUAGE`."""

import sys
from pathlib import Path

# The first place for imports is this directory; cells import from their own directory instead.
sys.path[0] = str(Path(__file__).resolve().parents[2])
from sandbox_agent.code.runner import main  # noqa: E402 - it is found from here on

sys.path[0] = ""
sys.exit(main(sys.argv[1:]))
