"""The form of errors."""

from typing import Literal

from pydantic import Field

from paddock.contract.base import Model, example
from paddock.contract.file_trees import PatchReject
from paddock.contract.proposals import ProposalConflict, RefusedProposal


class Problem(Model):
    """An RFC 9457 problem document: `code` is stable, `detail` says what to do about it.

    The members after `request_id` are present if they apply.
    """

    SPARSE = True

    model_config = example(
        {
            "type": "about:blank",
            "title": "Forbidden",
            "status": 403,
            "code": "permission_denied",
            "detail": "shell operators are not allowed: |; this level runs no shell: pass words "
            "with such characters in argv",
            "rule": "shell-operators",
            "remedy": "Pass the words in argv, one command at a time: this level runs no shell.",
            "request_id": "5f0c2b6a9d3e4178",
        }
    )

    type: Literal["about:blank"]
    title: str
    status: int = Field(ge=400, le=599)
    code: str
    detail: str
    request_id: str = Field(description="The same as the response's `X-Request-Id`.")
    rule: str | None = Field(default=None, description="The policy's rule that refused.")
    remedy: str | None = Field(
        default=None, description="What to do instead, where that depends on the session."
    )
    path: str | None = Field(default=None, description="The path that was refused.")
    paths: list[str] | None = Field(
        default=None, description="The first files that differ from the context pack."
    )
    field: str | None = Field(default=None, description="The invalid part of the request.")
    scope: str | None = Field(default=None, description="The scope that the key lacks.")
    retry_after: float | None = Field(default=None, description="Seconds; also `Retry-After`.")
    limit: str | int | float | None = Field(
        default=None,
        description="The key's limit that was reached; for a budget, its amount.",
    )
    kind: str | None = Field(default=None, description="The kind of the exceeded budget.")
    consumed: int | float | None = Field(default=None, description="The amount consumed.")
    allow: list[str] | None = Field(default=None, description="The methods of this path.")
    session_status: str | None = Field(default=None, description="How the session ended.")
    rationale: str | None = Field(default=None, description="Why the session ended.")
    command_id: str | None = Field(default=None, description="The command concerned.")
    node: str | None = Field(default=None, description="The node that does not answer.")
    pty: str | None = Field(default=None, description="The terminal concerned.")
    archive: str | None = Field(
        default=None, description="The file in the archive directory that contains the chain."
    )
    conflicts: list[ProposalConflict] | None = Field(
        default=None, description="Proposals that are not what they were; the first 100."
    )
    refused: list[RefusedProposal] | None = Field(
        default=None, description="Proposals that can't be committed; the first 100."
    )
    rejects: list[PatchReject] | None = Field(
        default=None, description="Why a patch does not apply; the first 100."
    )
    reason: str | None = Field(default=None, description="Why that terminal ended, if it did.")
