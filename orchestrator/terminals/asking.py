"""Asks a person about one line of a terminal: for exactly its text, and what is in its files."""

from functools import partial

from orchestrator.approvals.approval_rows import Approval
from orchestrator.approvals.service import Approvals, Line
from orchestrator.sessions.files import Files
from orchestrator.terminals.bound_files import UnboundFileError, contents, copies, digests
from orchestrator.terminals.spec import LineApproval, LineVerdict, NotApprovedError, SentLine
from orchestrator.tools.manifest import Manifest


class Asking:
    """Asks people; nothing of a terminal is held meanwhile."""

    def __init__(self, approvals: Approvals, files: Files) -> None:
        self._approvals = approvals
        self._files = files

    async def ask(
        self, sent: SentLine, manifest: Manifest, wait: float, verdict: LineVerdict
    ) -> LineApproval:
        """What a person has said to the line, `pending` where nobody has within `wait` seconds.

        Raises: NotApprovedError, and what `Approvals.obtain` and `Files.read` do.
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
        """The files that are approved with the line."""
        try:
            return await contents(self._files, sent.principal, sent.session, verdict.files)
        except UnboundFileError as error:
            message = f"nobody can approve what is in the file: {error}"
            raise NotApprovedError(message) from None
