"""Where the kernel lets commands write besides the workspace, where any command may run. Pure."""

from collections.abc import Collection, Iterable

from sandbox_agent.decide.outside_paths import TMP

# Only devices and shared memory are writable in it.
_DEVICES = "/dev"


def places(commands: Collection[str] | None, mounts: Iterable[str] = ()) -> tuple[str, ...]:
    """The directories that words of a command may name to be written, besides the workspace.

    `commands` are the level's, None for any; `mounts` are the targets of its session's writable
    mounts. Where commands are listed, their words stay in the workspace.
    """
    return (TMP, _DEVICES, *mounts) if commands is None else ()
