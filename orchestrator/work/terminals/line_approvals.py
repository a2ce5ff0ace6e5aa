"""Requests a person's approval of one line: of exactly its text and its files' contents."""

from functools import partial

from orchestrator.rules.tools.manifest import Manifest
from orchestrator.work.approvals.approval_rows import Approval
from orchestrator.work.approvals.approvals import Approvals, Line
from orchestrator.work.files.files import Files
from orchestrator.work.terminals.bound_files import UnboundFileError, contents, copies, digests
from orchestrator.work.terminals.spec import LineApproval, LineVerdict, NotApprovedError, SentLine


class LineApprovals:
    """Requests approvals without holding the terminal meanwhile."""

    def __init__(self, approvals: Approvals, files: Files) -> None:
        self._approvals = approvals
        self._files = files

    async def ask(
        self, sent: SentLine, manifest: Manifest, wait: float, verdict: LineVerdict
    ) -> LineApproval:
        """A person's decision about the line; `pending` if there is none within `wait` seconds.

        Raises: NotApprovedError, and the errors of `Approvals.obtain` and `Files.read`.
        """
        bound = digests(await self._contents(sent, verdict))
        tier = manifest.commands[verdict.command].risk_tier
        line = Line(sent.terminal_id, sent.tool, sent.text, tier, bound)
        approval = await self._approvals.obtain(sent.session, line, sent.principal.name, wait)
        if approval.status == "pending":
            return self._answer(approval)
        if approval.status != "approved":
            reason = f": {approval.reason}" if approval.reason else ""
            raise NotApprovedError(f"the approval {approval.id} is {approval.status}{reason}")
        found = await self._contents(sent, verdict)
        if digests(found) != bound:
            names = ", ".join(bound)
            raise NotApprovedError(f"{names} has changed since it was shown to a person: ask again")
        answer = self._answer(approval)
        return answer._replace(copies=copies(sent.text, verdict.files, found)) if found else answer

    def _answer(self, approval: Approval) -> LineApproval:
        use = partial(self._approvals.use, approval.id)
        return LineApproval(approval, use, partial(self._approvals.settle, approval.id))

    async def _contents(self, sent: SentLine, verdict: LineVerdict) -> dict[str, bytes]:
        """The contents of the files that are approved with the line."""
        try:
            return await contents(self._files, sent.principal, sent.session, verdict.files)
        except UnboundFileError as error:
            message = f"nobody can approve what is in the file: {error}"
            raise NotApprovedError(message) from None
