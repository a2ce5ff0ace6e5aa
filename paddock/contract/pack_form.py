"""The canonical form of context packs: paths, tool classes, hash. No I/O."""

import hashlib
import json
from collections.abc import Iterable
from enum import StrEnum

WORKSPACE = "/workspace"
# Limits of one pack: numbers, bytes of a path, its components, and bytes in JSON of all paths and
# of the directories above them.
MOST_ENTRIES = 10_000
MOST_TOOLS, MOST_WRITES, MOST_COMMANDS = 100, 1_000, 500
MAX_PATH_BYTES = 4_095  # the longest that the kernel opens, relative or not
MAX_COMPONENTS = 256
MAX_PATHS_BYTES = 1024 * 1024
MAX_ID = 4_096
MAX_COMMAND = 1_024
HASH_PATTERN = r"^sha256:[0-9a-f]{64}$"
# How often the pack of a work item may be refined.
MAX_REFINEMENTS = 10


class ToolClass(StrEnum):
    """A class of what a session may do; without it, the session may do nothing of that class."""

    READ = "Read"
    WRITE = "Write"
    EXECUTE = "Execute"
    NETWORK = "Network"
    GIT = "Git"
    INFERENCE = "Inference"
    ARTIFACT = "Artifact"
    LIST_FILES = "ListFiles"
    SEARCH = "Search"


_ALIASES = {
    "exec": ToolClass.EXECUTE,
    "net": ToolClass.NETWORK,
    "llm": ToolClass.INFERENCE,
    "cas": ToolClass.ARTIFACT,
    "ls": ToolClass.LIST_FILES,
    "grep": ToolClass.SEARCH,
}
_CLASSES = {name.value.lower(): name for name in ToolClass} | _ALIASES


def tool_class(name: str) -> ToolClass:
    """The class of that name or alias, in any case. Raises: ValueError."""
    found = _CLASSES.get(name.lower())
    if found is None:
        raise ValueError(f"must be one of {', '.join(ToolClass)}")
    return found


def normalised(path: str) -> str:
    """The absolute form of a path in the workspace. Raises: ValueError for any other path."""
    found = absolute(path)
    if found != WORKSPACE and not found.startswith(WORKSPACE + "/"):
        raise ValueError(f"must be in {WORKSPACE}")
    return found


def absolute(path: str) -> str:
    """The absolute form of a path, from its text alone; a relative path is in the workspace.

    Repeated slashes, `.` and `..` are resolved; letters keep their case and their encoding. Raises:
    ValueError if it is empty, has a NUL, is too long, or leads above the root.
    """
    if not path:
        raise ValueError("must not be empty")
    if "\0" in path:
        raise ValueError("must not contain NUL")
    _check_length(path)
    parts = [] if path.startswith("/") else [WORKSPACE[1:]]
    for part in path.split("/"):
        if part == "..":
            if not parts:
                raise ValueError("must not lead above the root")
            parts.pop()
        elif part not in ("", "."):
            parts.append(part)
    if len(parts) > MAX_COMPONENTS:
        raise ValueError(f"must have at most {MAX_COMPONENTS} components")
    found = "/" + "/".join(parts)
    _check_length(found)
    return found


def _check_length(path: str) -> None:
    if len(path.encode("utf-8", "surrogatepass")) > MAX_PATH_BYTES:
        raise ValueError(f"must have at most {MAX_PATH_BYTES} bytes, {WORKSPACE} included")


def directories(paths: Iterable[str], most_bytes: int = MAX_PATHS_BYTES) -> set[str]:
    """The directories above normalised paths, up to the workspace.

    Raises: ValueError if they and the paths have more than `most_bytes` in JSON.
    """
    found: set[str] = set()
    size = 0
    for path in paths:
        size += json_bytes(path)
        above = path
        while above != WORKSPACE:
            above = above.rpartition("/")[0]
            if above in found:
                break
            found.add(above)
            size += json_bytes(above)
            if size > most_bytes:
                break
        if size > most_bytes:
            raise ValueError(f"paths and their directories may have {most_bytes} bytes together")
    return found


def json_bytes(text: str) -> int:
    """The size of a text in JSON."""
    return len(json.dumps(text, ensure_ascii=False).encode("utf-8", "backslashreplace"))


def manifest_hash(
    manifest_id: str | None,
    profile_id: str | None,
    entries: Iterable[tuple[str, str | None, str, str | None]],
    tools: Iterable[str],
    writes: Iterable[str],
    commands: Iterable[str],
) -> str:
    """The hash of a pack in canonical form, which does not depend on the order of its lists.

    An entry is (path, content_hash, access_level, stable_id).
    """
    canonical = {
        "manifest_id": manifest_id,
        "profile_id": profile_id,
        "entries": sorted(entries, key=lambda entry: entry[0]),
        "tool_allowlist": sorted(set(tools)),
        "write_allowlist": sorted(set(writes)),
        "shell_allowlist": sorted(set(commands)),
    }
    text = json.dumps(canonical, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return "sha256:" + hashlib.sha256(text.encode()).hexdigest()
