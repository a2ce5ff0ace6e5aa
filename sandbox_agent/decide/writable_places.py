"""Where commands may write besides the workspace, at levels that allow any command. Pure."""

from collections.abc import Collection, Iterable

from sandbox_agent.decide.outside_paths import TMP

# Only devices and shared memory are writable in it.
_DEVICES = "/dev"
# What the writable layer of root inside covers, where the image has such a directory.
LAYER = (
    *("/bin", "/etc", "/home", "/lib", "/lib32", "/lib64", "/libx32", "/opt", "/root", "/run"),
    *("/sbin", "/srv", "/usr", "/var"),
)


def places(commands: Collection[str] | None, mounts: Iterable[str] = ()) -> tuple[str, ...]:
    """The directories besides the workspace that a command's words may name for writing.

    `commands` are those of the level, None for any; `mounts` are the targets of the session's
    writable mounts. At levels that list their commands, there are none.
    """
    return (TMP, _DEVICES, *mounts) if commands is None else ()
