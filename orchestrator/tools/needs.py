"""What a tool needs of its session besides being permitted: mounts, and a level with ptrace."""

from collections.abc import Collection
from typing import NamedTuple

from orchestrator.tools.manifest import Manifest

PTRACE = "allow-ptrace"
MOUNT = "mount"
# By rule: how to be allowed.
REMEDIES = {
    PTRACE: "Use a session at a level whose file sets `confinement.ptrace = true`.",
    MOUNT: "Create the session with the mount; an operator lists it in `PADDOCK_MOUNTS`.",
}


class Lack(NamedTuple):
    """Why a session can't open a tool: the rule, and a sentence."""

    rule: str
    message: str


def lack(manifest: Manifest, *, ptrace: bool, mounts: Collection[str]) -> Lack | None:
    """What a session lacks for a tool; None: nothing.

    `ptrace`: whether its level allows it; `mounts` are the names of those that it has.
    """
    if manifest.allow_ptrace and not ptrace:
        message = f"{manifest.name} needs a level whose file sets confinement.ptrace"
        return Lack(PTRACE, message)
    missing = [name for name in manifest.mounts if name not in mounts]
    if missing:
        return Lack(MOUNT, f"{manifest.name} needs a session with the mount {', '.join(missing)}")
    return None
