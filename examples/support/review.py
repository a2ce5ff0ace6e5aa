"""A person's review of what a session staged; without a person, a rule decides."""

import sys

from paddock import Proposal, Proposals
from support.terminal import Terminal

_MOST_LINES = 10


def review(out: Terminal, staged: Proposals, *, yes: bool = False) -> bool:
    """Shows the changes; returns whether `yes`, a person or the rule approves them."""
    for item in staged.items:
        out.step(f"proposed: {item.type} {item.ref}")
        out.diff(item.diff or f"({item.kind} of {item.size} bytes)")
    if yes:
        out.step("approved by --yes")
        return True
    if sys.stdin.isatty():
        return input("   Commit this? [y/N] ").strip().lower() in ("y", "yes")
    small = not staged.refused and not staged.truncated and all(map(_is_small, staged.items))
    out.step(
        f"{'approved' if small else 'rejected'} by a rule, because there is no terminal to ask at: "
        f"files that exist, and {_MOST_LINES} changed lines in each"
    )
    return small


def _is_small(item: Proposal) -> bool:
    """Whether it changes a few lines of a file, and not its mode."""
    if item.type != "write" or item.old_mode != item.mode or item.diff is None:
        return False
    changed = [line for line in item.diff.splitlines()[2:] if line.startswith(("+", "-"))]
    return not item.diff_truncated and len(changed) <= _MOST_LINES
