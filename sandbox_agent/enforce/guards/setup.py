"""What a guard needs before its first command, and how one that was forked earlier gets it."""

import marshal
import os
import socket
from typing import Any, NamedTuple

from sandbox_agent.enforce import guard_messages
from sandbox_agent.enforce.profile import Profile

_MOST_DESCRIPTORS = 2


class Setup(NamedTuple):
    """The settings that every guard of this sandbox needs before its command.

    `processes` is the session's most. `compiled`: the guard becomes the one in C.
    """

    uid: int
    processes: int
    profile: Profile
    workspace: str
    compiled: bool = False

    @property
    def descriptors(self) -> set[int]:
        """Those that a guard needs until it is confined, or for each of its commands."""
        root, ruleset = self.profile.root, self.profile.ruleset
        found = ruleset, None if root is None else root.namespace
        return {each for each in found if each is not None}


def can_be_sent(setup: Setup) -> bool:
    """Whether a guard that waits can have it.

    One below a broker is the broker's child, and root inside has a namespace of the session.
    """
    return setup.profile.reads is None and setup.profile.root is None


def send(setup: Setup, guard: socket.socket) -> None:
    """Gives it to a guard that waits. Raises: OSError if the guard is gone."""
    ruleset = setup.profile.ruleset
    # Without a broker and root inside, all of it are plain values.
    values: tuple[Any, ...] = setup.profile._replace(ruleset=None)
    settings = setup.uid, setup.processes, tuple(values), setup.workspace, setup.compiled
    document = os.memfd_create("setup", os.MFD_CLOEXEC)
    try:
        os.write(document, marshal.dumps(settings))
        descriptors = [document] if ruleset is None else [document, ruleset]
        socket.send_fds(guard, [guard_messages.SETUP], descriptors)
    finally:
        os.close(document)


def receive(agent: socket.socket) -> Setup | None:
    """Waits for it, in the guard; None if the guard is not needed.

    Raises: OSError, ValueError if it is not what `send` sends.
    """
    message, descriptors, _, _ = socket.recv_fds(
        agent, guard_messages.MOST_BYTES, _MOST_DESCRIPTORS
    )
    if not message:
        return None
    if message != guard_messages.SETUP or not descriptors:
        raise ValueError("not the settings of a guard")
    for descriptor in descriptors:
        os.set_inheritable(descriptor, False)
    document, *rulesets = descriptors
    with open(document, "rb", buffering=0) as file:
        file.seek(0)
        uid, processes, profile, workspace, compiled = marshal.loads(file.read())  # noqa: S302
    ruleset = rulesets[0] if rulesets else None
    held_to = Profile(*profile)._replace(ruleset=ruleset)
    return Setup(uid, processes, held_to, workspace, compiled)
