"""Makes context packs from local files."""

import hashlib
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from paddock.client.local_directory import walk
from paddock.contract.pack_form import WORKSPACE
from paddock.contract.packs import ContextPack, PackEntry

_PIECE = 1024 * 1024


def pack(
    *paths: str | Path,
    tools: Sequence[str] | None = None,
    write: Sequence[str] = (),
    shell: Sequence[str] = (),
    mode: Literal["hard_fail", "soft_fail", "warn"] = "hard_fail",
    manifest_id: str | None = None,
    root: str | Path | None = None,
) -> ContextPack:
    """A context pack of these files and of all files in these directories, with their hashes.

    Links, other special files, and directories named `.git` are left out.

    Args:
        tools: classes of what the session may do; None: Read, ListFiles and Search, with `write`
            also Write, and with `shell` also Execute.
        write: what it may write, relative to the workspace.
        shell: the commands that it may run; `*` stands for any text.
        mode: what happens at a read outside the pack.
        manifest_id: None: made from the content.
        root: the local directory that becomes the workspace; None: the one directory in `paths`, or
            else the current directory.

    Raises: OSError; ValueError for a path outside `root`, and for what no pack can hold.
    """
    top = root_of(paths, root)
    if tools is None:
        tools = ["Read", "ListFiles", "Search"]
        tools += (["Write"] if write else []) + (["Execute"] if shell else [])
    return ContextPack(
        manifest_id=manifest_id,
        mode=mode,
        entries=[
            PackEntry(path=name, content_hash=content_hash(top / name))
            for name in _names(top, [Path(path) for path in paths])
        ],
        tool_allowlist=list(tools),
        write_allowlist=[path if path[:1] == "/" else f"{WORKSPACE}/{path}" for path in write],
        shell_allowlist=list(shell),
    )


def root_of(paths: Sequence[str | Path], root: str | Path | None = None) -> Path:
    """The local directory that becomes the workspace."""
    return Path(root or (paths[0] if len(paths) == 1 and Path(paths[0]).is_dir() else "."))


def pack_body(given: ContextPack | Mapping[str, Any] | None) -> dict[str, Any] | None:
    """A pack as requests have it."""
    if isinstance(given, ContextPack):
        return given.model_dump(exclude_none=True)
    return None if given is None else dict(given)


def content_hash(path: Path) -> str:
    """The hash of a local file as packs have it. Raises: OSError."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while piece := file.read(_PIECE):
            digest.update(piece)
    return f"sha256:{digest.hexdigest()}"


def _names(root: Path, paths: list[Path]) -> list[str]:
    """The files, relative to `root`. Raises: ValueError for one outside, OSError."""
    found: set[str] = set()
    for path in paths:
        base = Path(os.path.abspath(path))  # as text: links are not followed
        if not base.is_relative_to(os.path.abspath(root)):
            raise ValueError(f"{path} is not in {root}")
        base = base.relative_to(os.path.abspath(root))
        if not path.is_dir():
            found.add(base.as_posix())
            continue
        names = ((base / name).as_posix() for name in walk(path).files)
        found.update(name for name in names if ".git" not in Path(name).parts)
    return sorted(found)
