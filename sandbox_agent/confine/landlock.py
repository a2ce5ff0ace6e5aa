"""Landlock scopes: what keeps one command's processes away from all others."""

from sandbox_agent.confine import syscalls

# Scopes came with this version: abstract UNIX sockets and signals stay inside the domain.
SCOPES_ABI = 6
_SCOPE_ABSTRACT_UNIX_SOCKET = 1
_SCOPE_SIGNAL = 2


def scope_ruleset(abi: int) -> int | None:
    """A ruleset, built once, that every guard enters as a domain of its own.

    Returns None where the kernel has no scopes. Raises: OSError.
    """
    if abi < SCOPES_ABI:
        return None
    return syscalls.landlock_ruleset(_SCOPE_ABSTRACT_UNIX_SOCKET | _SCOPE_SIGNAL)
