"""`python -m tests.simulation`: the placement of 100,000 sessions on 1,000 nodes by 8 gateways."""

import sys
import time

from tests.simulation.placement import Scale, simulate

# Refused, seconds, and an owner's part of one node.
MOST_REFUSED, MOST_WAIT, MOST_OF_OWNER = 0.001, 1.0, 0.01


def main() -> int:
    """Prints what came of it; 1 if a promise of the cluster is broken."""
    scale = Scale()
    begun = time.process_time()
    found = simulate(scale)
    print(
        f"{scale.nodes:,} nodes, {scale.sessions:,} sessions in {scale.seconds:g} s, "
        f"{scale.gateways} gateways, reports {scale.report_age:g} s old, "
        f"and a burst of {scale.burst:,}"
    )
    print(f"refused                   {found.refused:.3%}  (at most {MOST_REFUSED:.1%})")
    print(f"wait, median              {found.wait_p50:.2f} s")
    print(f"wait, 99 of 100           {found.wait_p99:.2f} s  (at most {MOST_WAIT:g} s)")
    print(f"of the burst on one node  {found.owners_most:.2%}  (at most {MOST_OF_OWNER:.0%})")
    print(f"nodes are full by         {found.emptiest:.0%} to {found.fullest:.0%}")
    print(f"CPU of the simulation     {time.process_time() - begun:.0f} s")
    kept = (
        found.refused < MOST_REFUSED
        and found.wait_p99 < MOST_WAIT
        and found.owners_most < MOST_OF_OWNER
    )
    return 0 if kept else 1


if __name__ == "__main__":
    sys.exit(main())
