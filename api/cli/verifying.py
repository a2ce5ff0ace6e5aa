"""Chains that are verified here, without asking the control plane: exports and archives."""

from collections.abc import AsyncIterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from api.cli.exits import Failure

if TYPE_CHECKING:
    from orchestrator.audit.anchors import Anchors


class Noted:
    """What is known of a chain from elsewhere: one event of it, and anchors."""

    def __init__(
        self, seq: int | None, hash: str | None, anchors: Path | None, public_key: str | None
    ) -> None:
        """Raises: Failure where the anchors are not whole, or not of that key."""
        from orchestrator.audit.verify import Anchor, Chain

        self.anchors = None if anchors is None else _anchors(anchors, public_key)
        wanted = {head.seq for head in self.anchors.heads} if self.anchors else ()
        noted = None if seq is None or hash is None else Anchor(seq, hash)
        self.chain: Chain = Chain(noted, wanted)

    def verdict(self, chains: dict[str, dict[int, str]]) -> dict[str, Any]:
        """What following the chain came to; it must be one of those, where there are anchors."""
        from orchestrator.audit.anchors import judged

        verdict = self.chain.verdict()
        if self.anchors is not None:
            verdict = judged(verdict, self.chain.seen, chains)
        return asdict(verdict)

    def of_session(self, session_id: str) -> dict[str, dict[int, str]]:
        """What was anchored of the session's chains."""
        return self.anchors.of_session(session_id) if self.anchors else {}

    def of_chain(self, key: str) -> dict[str, dict[int, str]]:
        """What was anchored of that chain."""
        found = self.anchors.of_chain(key) if self.anchors else {}
        return {key: found} if found else {}


def verify_file(file: Path, noted: Noted) -> dict[str, Any]:
    """The verdict on an exported chain. Raises: OSError, Failure where it is empty."""
    session_id = ""
    # Bytes that are not UTF-8 are found as what they are: a changed event.
    with file.open(encoding="utf-8", errors="surrogateescape", newline="\n") as lines:
        for line in lines:
            session_id = session_id or _session_of(line)
            noted.chain.follow(line)
            if noted.chain.broken:
                break
    verdict = noted.verdict(noted.of_session(session_id))
    if verdict["ok"] and not verdict["seq"]:
        raise Failure(f"{file} has no events")
    return verdict


async def verify_lines(lines: AsyncIterator[str], session_id: str, noted: Noted) -> dict[str, Any]:
    """The verdict on a chain as it is exported now."""
    async for line in lines:
        noted.chain.follow(line)
        if noted.chain.broken:
            break
    return noted.verdict(noted.of_session(session_id))


def verify_archive(file: Path, noted: Noted) -> dict[str, Any]:
    """The verdict on an archive: chain, evidence, approvals. Raises: Failure."""
    from orchestrator.audit.anchors import judged
    from orchestrator.audit.archive_file import ArchiveError, verify

    try:
        verified = verify(file, noted.chain)
    except ArchiveError as error:
        raise Failure(str(error)) from None
    verdict = verified.verdict
    if noted.anchors is not None:
        key = str(verified.manifest["session"]["key"])
        verdict = judged(verdict, noted.chain.seen, noted.of_chain(key))
    return asdict(verdict)


def _anchors(path: Path, public_key: str | None) -> "Anchors":
    from orchestrator.audit import anchors

    try:
        with path.open(encoding="utf-8", newline="\n") as lines:
            return anchors.read(lines, public_key)
    except (anchors.AnchorError, UnicodeDecodeError) as error:
        raise Failure(f"{path}: {error}") from None


def _session_of(line: str) -> str:
    """The session of an event's line; empty where it can't be told."""
    import json

    try:
        return str(json.loads(line)["session_id"])
    except (ValueError, LookupError, TypeError, RecursionError):
        return ""
