"""The check of a workspace against its session's pack, as a part of a sandbox."""

import hmac
from collections.abc import Iterator, Sequence

from orchestrator.ground.errors import ConflictError, SandboxUnavailableError
from orchestrator.ground.fault_points import FaultPoint
from orchestrator.host.link.agent_link import AgentLink
from orchestrator.rules.policy.levels import Level
from orchestrator.sandbox.packs.baseline import baseline
from orchestrator.sandbox.sandboxes.parts import Part, Plan
from orchestrator.state.pack import Pack, PackFile
from paddock.contract.pack_form import WORKSPACE, ToolClass, json_bytes
from sandbox_agent.decide.protocol import Message

# Of the paths in one request to the agent, and the time of its answer: it reads one file at least.
# An answer has a digest for each path, and an agent's usual answers are short.
_BATCH_BYTES, _BATCH_FILES = 256 * 1024, 1_000
_SECONDS = 35.0
_MOST_TOLD = 100


class PackPart(Part):
    """The files of the pack are there, as the pack has them. Nothing runs in the sandbox yet.

    The agent reads them as the session's user, without following links.
    """

    name = "context pack"

    async def open(self, plan: Plan) -> None:
        """Raises: ConflictError with the `paths` that differ; SandboxUnavailableError."""
        pack = plan.session.pack
        if pack is None:
            return
        differing = [
            file.path
            for batch in _batches(list(pack.files.values()))
            for file in await _differing(plan.link, batch)
        ]
        FaultPoint.REFINE_COMPARED.reached()
        if differing:
            shown = differing[:_MOST_TOLD]
            raise ConflictError(
                f"{len(differing)} files of the context pack are missing in the workspace, or have "
                f"another content: {', '.join(shown[:3])}{', …' if len(differing) > 3 else ''}",
                paths=shown,
            )


def _batches(files: Sequence[PackFile]) -> Iterator[list[PackFile]]:
    batch: list[PackFile] = []
    size = 0
    for file in files:
        size += json_bytes(file.path)
        if batch and (size > _BATCH_BYTES or len(batch) >= _BATCH_FILES):
            yield batch
            batch, size = [], json_bytes(file.path)
        batch.append(file)
    if batch:
        yield batch


async def _differing(link: AgentLink, files: list[PackFile]) -> list[PackFile]:
    found: list[PackFile] = []
    while files:
        params = {"paths": [relative(file.path) for file in files]}
        digests = (await link.request("file.digest", params, _SECONDS)).get("digests")
        if not isinstance(digests, list) or not 0 < len(digests) <= len(files):
            raise SandboxUnavailableError("the sandbox agent sent a malformed answer")
        found += [file for file, told in zip(files, digests, strict=False) if not _is(file, told)]
        files = files[len(digests) :]
    return found


def _is(file: PackFile, digest: object) -> bool:
    if not isinstance(digest, str):
        return False
    wanted = file.content_hash
    return wanted is None or hmac.compare_digest(wanted.encode(), f"sha256:{digest}".encode())


def consume_of(pack: Pack | None, level: Level) -> Message | None:
    """The member `consume` of the agent's configuration."""
    if pack is None:
        return None
    reads, lists = ToolClass.READ in pack.tools, bool(pack.tools)
    writes = pack.writes if ToolClass.WRITE in pack.tools else ()
    return {
        "manifest_id": pack.manifest_id,
        "entries": [relative(path) for path in pack.files] if reads else [],
        "directories": sorted(map(relative, pack.directories)) if lists else [],
        "writes": [relative(path) for path in writes],
        "baseline": list(baseline(level)),
        "firewall_mode": pack.mode,
        "digests": [_digest(file) for file in pack.files.values()] if reads else [],
    }


def _digest(file: PackFile) -> str:
    """The digits of its hash; empty: any content."""
    return (file.content_hash or "").removeprefix("sha256:")


def relative(path: str) -> str:
    """An absolute path in the workspace, relative to it."""
    return path.removeprefix(WORKSPACE).lstrip("/") or "."
