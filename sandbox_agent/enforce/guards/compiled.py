"""The compiled guard, in `guard/`: which commands it runs, its plans, and how a process becomes it.

It starts a process without a copy of its own memory. A runtime without it uses the guard in Python
for every command; both do the same.
"""

import os
import socket
import struct
from typing import NoReturn

from sandbox_agent.core.limits import FULL_BYTES
from sandbox_agent.enforce.command_process import Plan
from sandbox_agent.enforce.guards.availability import PROGRAM
from sandbox_agent.enforce.privileges import OomPreference
from sandbox_agent.enforce.profile import Profile

# A path with the links on its way has twice the room.
_MOST_PATH = 4096
# The counts of arguments, variables and operands, and whether the streams are a terminal.
_HEAD = struct.Struct("<IIII")


def serves(profile: Profile) -> bool:
    """Whether it can have that profile: it reports executions, and scopes limit its signals."""
    return (
        profile.cookie is not None
        and profile.reads is None
        and profile.root is None
        and profile.scoped
        and profile.ruleset is not None
        and profile.listened
        and profile.mark is None
    )


def runs(plan: Plan) -> bool:
    """Whether it runs that command: one whose process has no further step to take."""
    return (
        plan.output_file is None
        and "/" in plan.program
        and not (plan.inside and (plan.writable or plan.volumes))
        and all(len(path) < _MOST_PATH for path in (plan.cwd, *(path for path, _ in plan.inside)))
    )


def document(plan: Plan) -> bytes:
    """The plan as the program reads it; empty, which it refuses, for words with a NUL."""
    try:
        variables = [os.fsencode(f"{name}={value}") for name, value in plan.env.items()]
        words = [os.fsencode(word) for word in (plan.workspace, plan.cwd, plan.program, *plan.argv)]
        inside = [(b"f" if follow else b"n") + os.fsencode(path) for path, follow in plan.inside]
    except ValueError:
        return b""
    words += variables + inside
    if any(b"\0" in word for word in words):
        return b""
    head = _HEAD.pack(len(plan.argv), len(variables), len(inside), plan.terminal)
    return head + b"\0".join(words) + b"\0"


def execute(
    uid: int,
    profile: Profile,
    workspace: str,
    agent: socket.socket,
    starter: socket.socket,
    preference: OomPreference,
) -> NoReturn:
    """Becomes the compiled guard, which then confines itself: its file is out of its reach later.

    Raises: OSError.
    """
    if profile.ruleset is None:
        raise ValueError("the compiled guard needs a ruleset")
    code = os.memfd_create("filter", 0)
    os.write(code, profile.code)
    descriptors = (agent.fileno(), starter.fileno(), preference.descriptor, profile.ruleset, code)
    for descriptor in descriptors:
        os.set_inheritable(descriptor, True)
    words = (*descriptors, uid, int(profile.mdwe), FULL_BYTES, workspace)
    os.execve(PROGRAM, ["guard", *map(str, words)], {})  # noqa: S606
