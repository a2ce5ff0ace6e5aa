"""What the mounted interpreter runs at `/opt/paddock`: connects to the control plane and serves."""

import sys

from sandbox_agent.server import main

if __name__ == "__main__":
    sys.exit(main())
