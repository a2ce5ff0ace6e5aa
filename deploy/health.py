"""The health of a Swarm's task: it must be ready once, and only be alive from then on.

A Swarm rolls an update back whose tasks never become healthy, and ends a task that is healthy no
more. Readiness alone would end tasks that can't help it: while the database is away, for instance.
"""

import sys
from pathlib import Path
from urllib.request import urlopen

# In the container's own memory: gone with it, and writable in each.
SEEN = Path("/dev/shm/paddock-was-ready")  # noqa: S108
_SECONDS = 5


def check(url: str, seen: Path = SEEN) -> None:
    """Asks the task at `url`. Raises: OSError if it is not healthy."""
    path = "healthz" if seen.exists() else "readyz"
    with urlopen(f"{url}/{path}", timeout=_SECONDS):  # noqa: S310
        seen.touch()


if __name__ == "__main__":
    check(sys.argv[1])
