"""The files that a line names, by their content: an approval of the line is an approval of them."""

import hashlib
from collections.abc import AsyncIterator

from orchestrator.errors import (
    ConflictError,
    NotFoundError,
    PermissionDeniedError,
    ValidationError,
)
from orchestrator.keys import Principal
from orchestrator.sessions.files import Files
from orchestrator.sessions.session import Session

# A person has to read it, and it is read twice for each line.
MAX_BYTES = 1024 * 1024


class UnboundFileError(Exception):
    """A file whose content can't be told; the message says why."""


async def digests(
    files: Files, principal: Principal, session: Session, paths: tuple[str, ...]
) -> dict[str, str]:
    """`sha256:<hex>` of each file of the workspace, by its path as the line has it.

    Raises: UnboundFileError, SandboxUnavailableError, AuditUnavailableError.
    """
    return {path: await _digest(files, principal, session, path) for path in paths}


async def _digest(files: Files, principal: Principal, session: Session, path: str) -> str:
    try:
        download = await files.read(principal, session, path)
        try:
            return await _of(download.chunks(), path)
        finally:
            await download.close()
    except (ConflictError, NotFoundError, PermissionDeniedError, ValidationError) as error:
        raise UnboundFileError(f"{path}: {error.detail}") from None


async def _of(chunks: AsyncIterator[bytes], path: str) -> str:
    whole, size = hashlib.sha256(), 0
    async for chunk in chunks:
        size += len(chunk)
        if size > MAX_BYTES:
            raise UnboundFileError(f"{path}: has more than {MAX_BYTES} bytes")
        whole.update(chunk)
    return f"sha256:{whole.hexdigest()}"
