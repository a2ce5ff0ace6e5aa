"""Approvals: requests that wait for a person, and the decisions."""

from typing import Annotated, Any, Literal

from pydantic import Field

from paddock.contract.base import WORDS, Count, Model, RiskTier, Time, example
from paddock.contract.cluster import MOST_POSITION, Missing
from paddock.contract.fields import PageSize
from paddock.contract.requests import Body, SessionFilter

APPROVAL: dict[str, Any] = {
    "id": "apr-7d2b9e64c1f3a058",
    "session_id": "sess-4f1c0a9be27d3586",
    "incarnation": 1,
    "owner": "ci",
    "terminal_id": "pty-0b6f3c8e92a41d75",
    "tool": "psql.drop_table",
    "command": "DROP TABLE temp_data",
    "risk_tier": "high",
    "status": "pending",
    "requested_by": "handle:sess-4f1c0a9be27d3586",
    "requested_at": "2026-03-04T09:30:12.482113Z",
    "decided_by": None,
    "decided_at": None,
    "reason": None,
    "files": {},
    "approvers": 1,
    "approved_by": [],
}


class Approval(Model):
    """One line of input that needs a person's approval, which applies to exactly this `command`."""

    model_config = example(APPROVAL)

    id: str
    session_id: str
    incarnation: Count | None = Field(description="The incarnation of the session id.")
    owner: str = Field(description="The name of the key that created the session.")
    terminal_id: str = Field(description="Empty for the command of a oneshot tool.")
    tool: str = Field(description="Such as `psql.drop_table`; `<tool>` for a oneshot tool.")
    command: str = Field(description="The complete line, or the words of a oneshot tool's command.")
    risk_tier: RiskTier
    status: Annotated[Literal["pending", "approved", "denied", "expired"], WORDS]
    requested_by: str
    requested_at: Time
    decided_by: str | None
    decided_at: Time | None
    reason: str | None
    files: dict[str, str] = Field(
        description="Files that the line names, and the `sha256:…` of what is in them: if one "
        "changes, the approval no longer holds."
    )

    approvers: Count = Field(
        default=1, description="How many people must approve; with several, nobody who asked."
    )
    approved_by: list[str] = Field(default=[], description="The keys that have approved so far.")


class Approvals(Model):
    """Approvals, newest first; `next` is the `cursor` of the next page."""

    model_config = example({"items": [APPROVAL], "next": None, "missing": []})

    items: list[Approval]
    next: str | None
    missing: Missing = []


class ApprovalBody(Body):
    """A person's decision, and the reason."""

    decision: Literal["approve", "deny"]
    reason: Annotated[str, Field(max_length=1024)] | None = None


class ApprovalsQuery(SessionFilter):
    """`session` without `incarnation` selects the latest with that id.

    `cursor` is the `next` of the previous page.
    """

    status: Literal["pending", "approved", "denied", "expired"] | None = None
    limit: PageSize = 100
    cursor: Annotated[str, Field(pattern=r"^[A-Za-z0-9_-]+$", max_length=MOST_POSITION)] | None = (
        None
    )
