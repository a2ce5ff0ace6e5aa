"""What a sandbox's agent is told of its session's pack. Pure."""

from orchestrator.rules.policy.levels import Level
from orchestrator.sandbox.packs.baseline import baseline
from orchestrator.state.pack import Pack, PackFile
from paddock.contract.pack_form import WORKSPACE, ToolClass
from sandbox_agent.decide.protocol import Message


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
