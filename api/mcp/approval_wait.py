"""Calls that wait for a person: what the client is told, and how long a call waits."""

from paddock.contract.approvals import Approval

# Clients commonly give up a call after a minute; the same call again continues to wait.
WAIT_SECONDS = 50.0


def said(approval: Approval) -> str:
    """What a call waits for."""
    return f"waits for a person's approval {approval.id} of {approval.tool}: {approval.command}"
