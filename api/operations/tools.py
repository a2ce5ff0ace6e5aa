"""Tools, and the approvals that their commands wait for."""

from api import stops
from api.auth import Access
from api.operations.base import SESSION, Operation, ok
from api.queries import ApprovalsQuery
from api.routes import approvals, tools
from api.tool_schemas import ApprovalBody
from paddock.contract.approvals import Approval, Approvals
from paddock.contract.tools import Tools

_TAG = "Tools"

OPERATIONS = (
    Operation(
        "GET",
        SESSION + "/tools",
        tools.list_all,
        Access.READ,
        id="list_tools",
        tag=_TAG,
        summary="List the tools of a session",
        replies=ok("The commands of all tools.", Tools),
    ),
    Operation(
        "GET",
        "/api/approvals",
        approvals.list_all,
        Access.READ_ALL,
        query=ApprovalsQuery,
        id="list_approvals",
        tag=_TAG,
        summary="List approvals",
        replies=ok("A page of approvals.", Approvals),
        errors=("not_found",),
    ),
    Operation(
        "POST",
        "/api/approvals/{approval_id}",
        approvals.decide,
        Access.MANAGE,
        body=ApprovalBody,
        stops=stops.denies_approval,
        id="decide_approval",
        tag=_TAG,
        summary="Approve or deny a command",
        replies=ok("The approval as it is now.", Approval),
        errors=("not_found", "conflict", "capacity_exhausted"),
        examples={
            "approve": {"decision": "approve"},
            "deny": {"decision": "deny", "reason": "the table is still in use"},
        },
    ),
)
