"""A control plane that is killed when it reaches a fault point.

`python -m tests.chaos.dying serve`. The file that DIES_AT names has the point and the visit, from
1. It may change while the control plane runs, which removes it before it dies.
"""

import os
import signal
import sys
from pathlib import Path

from orchestrator.ground.fault_points import FaultPoint
from paddock.cli import main

VARIABLE = "DIES_AT"


def die_at(order: Path) -> None:
    """Has the process killed, without a chance to react, where the file says.

    A third word is another signal's: STOP lets a test say when it goes on.
    """
    seen, visits = "", 0

    def reached(point: FaultPoint) -> None:
        nonlocal seen, visits
        try:
            text = order.read_text()
        except FileNotFoundError:
            return
        if text != seen:
            seen, visits = text, 0
        wanted, visit, *names = text.split()
        if point != wanted:
            return
        visits += 1
        if visits == int(visit):
            order.unlink()
            os.kill(os.getpid(), signal.Signals[f"SIG{names[0] if names else 'KILL'}"])

    setattr(FaultPoint, "reached", reached)  # noqa: B010 - type checkers allow no assignment


if __name__ == "__main__":
    die_at(Path(os.environ[VARIABLE]))
    sys.exit(main())
