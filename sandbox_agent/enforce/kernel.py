"""Which facilities the kernel offers to this sandbox; a runtime in front of it may offer less."""

import os
from collections.abc import Mapping

from sandbox_agent.decide.facilities import WITHOUT, Kernel, without
from sandbox_agent.enforce import syscalls
from sandbox_agent.enforce.filters import seccomp

__all__ = ["Kernel", "probe"]


def probe(environment: Mapping[str, str] = os.environ) -> Kernel:
    """Examines the kernel and changes nothing.

    Tests take facilities away by a variable of the environment, which can only make it less.
    Raises: ValueError if that names an unknown facility.
    """
    machine = os.uname().machine
    notification = seccomp.available(machine)
    found = Kernel(
        landlock=syscalls.landlock_abi(),
        notification=notification,
        undisturbed=notification and seccomp.waits_undisturbed(machine),
        mdwe=syscalls.can_deny_writable_code(),
    )
    return without(found, filter(None, environment.get(WITHOUT, "").split(",")))


def main() -> None:
    """Prints what the kernel offers, as numbers in the order of `Kernel`."""
    print(*map(int, probe()))
