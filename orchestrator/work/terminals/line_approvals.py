"""A person's approval of one line: of exactly its text and the contents of the files that it names.

The tool reads exactly what was approved: in the line that is sent, paths of copies replace the
files' paths, and nothing in the sandbox can change the copies.
"""

import hashlib
import posixpath
import re
import secrets
from collections.abc import AsyncIterator, Mapping, Sequence
from functools import partial
from itertools import pairwise

from orchestrator.ground.errors import (
    ConflictError,
    NotFoundError,
    PermissionDeniedError,
    ValidationError,
)
from orchestrator.rules.access.keys import Principal
from orchestrator.rules.tools.gates import NamedFile, Verdict
from orchestrator.rules.tools.manifest import Manifest
from orchestrator.state.session import Session
from orchestrator.work.approvals.approval_rows import Approval
from orchestrator.work.approvals.approvals import Approvals, Line
from orchestrator.work.files.files import Files
from orchestrator.work.terminals.spec import (
    Copies,
    LineApproval,
    NotApprovedError,
    SentLine,
)
from sandbox_agent.decide.protocol import KEPT_PREFIX

# For all files of a line: a person must read them, and they are sent in one frame.
MAX_BYTES = 1024 * 1024
_SUFFIX = re.compile(r"\.[A-Za-z0-9]{1,8}")


class LineApprovals:
    """Requests approvals without holding the terminal meanwhile."""

    def __init__(self, approvals: Approvals, files: Files) -> None:
        self._approvals = approvals
        self._files = files

    async def ask(
        self, sent: SentLine, manifest: Manifest, wait: float, verdict: Verdict
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

    async def _contents(self, sent: SentLine, verdict: Verdict) -> dict[str, bytes]:
        """The contents of the files that are approved with the line."""
        try:
            return await contents(self._files, sent.principal, sent.session, verdict.files)
        except UnboundFileError as error:
            message = f"nobody can approve what is in the file: {error}"
            raise NotApprovedError(message) from None


class UnboundFileError(Exception):
    """A file whose content can't be determined; the message says why."""


async def contents(
    files: Files, principal: Principal, session: Session, named: Sequence[NamedFile]
) -> dict[str, bytes]:
    """The content of each workspace file, by its path in the line."""
    if any(file.end > following.start for file, following in pairwise(named)):
        raise UnboundFileError("the line can be read in ways that name different files")
    found: dict[str, bytes] = {}
    left = MAX_BYTES
    for path in sorted({file.path for file in named}):
        found[path] = await _content(files, principal, session, path, left)
        left -= len(found[path])
    return found


def digests(found: Mapping[str, bytes]) -> dict[str, str]:
    """`sha256:<hex>` of each file, by its path."""
    return {path: f"sha256:{hashlib.sha256(data).hexdigest()}" for path, data in found.items()}


def copies(text: str, named: Sequence[NamedFile], found: Mapping[str, bytes]) -> Copies:
    """The line with the paths of copies, and their contents by path."""
    directory = KEPT_PREFIX + secrets.token_hex(8)
    parts, files, after = [], {}, 0
    for number, file in enumerate(named):
        suffix = posixpath.splitext(file.path)[1]
        path = f"{directory}/{number}{suffix if _SUFFIX.fullmatch(suffix) else ''}"
        files[path] = found[file.path]
        parts += [text[after : file.start], path]
        after = file.end
    return Copies("".join([*parts, text[after:]]), files)


async def _content(
    files: Files, principal: Principal, session: Session, path: str, most: int
) -> bytes:
    try:
        download = await files.read(principal, session, path)
        try:
            return await _whole(download.chunks(), path, most)
        finally:
            await download.close()
    except (ConflictError, NotFoundError, PermissionDeniedError, ValidationError) as error:
        raise UnboundFileError(f"{path}: {error.detail}") from None


async def _whole(chunks: AsyncIterator[bytes], path: str, most: int) -> bytes:
    whole = bytearray()
    async for chunk in chunks:
        whole += chunk
        if len(whole) > most:
            raise UnboundFileError(f"{path}: the line's files have more than {MAX_BYTES} bytes")
    return bytes(whole)
