"""A session's context pack, as the control plane keeps it. No I/O."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from functools import cached_property
from typing import Any, Self

from paddock.contract.pack_form import WORKSPACE, ToolClass, directories
from sandbox_agent.decide.manifest import HARD_FAIL


@dataclass(frozen=True, slots=True)
class PackFile:
    """A file that may be read; `zoom`: only if the reader states its hash. `path` is absolute."""

    path: str
    content_hash: str | None = None
    zoom: bool = False
    stable_id: str | None = None


@dataclass(frozen=True)
class Pack:
    """What a session may read and do. Paths are absolute and normalised."""

    manifest_id: str
    manifest_hash: str
    mode: str = HARD_FAIL
    profile_id: str | None = None
    files: Mapping[str, PackFile] = field(default_factory=dict)
    tools: frozenset[ToolClass] = frozenset()
    writes: tuple[str, ...] = ()
    commands: tuple[str, ...] = ()

    @cached_property
    def directories(self) -> set[str]:
        """The directories that may be listed: those above its files, and the workspace."""
        return {WORKSPACE, *directories(self.files)}

    @cached_property
    def constant(self) -> bool:
        """Whether the session can change none of its files, so that they stay as the pack says."""
        places = {*self.files, *self.directories}
        return ToolClass.WRITE not in self.tools or places.isdisjoint(self.writes)

    def writable(self, path: str) -> bool:
        """Whether the path is in the write allowlist, or in a directory of it."""
        return any(path == top or path.startswith(top + "/") for top in self.writes)

    def recorded(self) -> dict[str, str]:
        """The members that the session's row and its first event have of it."""
        return {
            "manifest_id": self.manifest_id,
            "manifest_hash": self.manifest_hash,
            "mode": self.mode,
        }

    def stored(self) -> dict[str, Any]:
        """What the store keeps."""
        return {
            **self.recorded(),
            "profile_id": self.profile_id,
            "files": [asdict(file) for file in self.files.values()],
            "tools": sorted(self.tools),
            "writes": list(self.writes),
            "commands": list(self.commands),
        }

    @classmethod
    def restored(cls, stored: Mapping[str, Any]) -> Self:
        """The pack that was stored."""
        files = [PackFile(**file) for file in stored["files"]]
        return cls(
            **{name: stored[name] for name in ("manifest_id", "manifest_hash", "mode")},
            profile_id=stored["profile_id"],
            files={file.path: file for file in files},
            tools=frozenset(map(ToolClass, stored["tools"])),
            writes=tuple(stored["writes"]),
            commands=tuple(stored["commands"]),
        )
