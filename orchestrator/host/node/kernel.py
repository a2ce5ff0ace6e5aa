"""The kernel's features for confining sandboxes."""

import ctypes
import errno
import os
import platform
from dataclasses import dataclass
from pathlib import Path

from orchestrator.ground.check import Check, failure, ok, warning
from sandbox_agent.decide.facilities import Kernel, in_force

LANDLOCK = "landlock"
SECCOMP = "seccomp"
FACILITIES = "kernel facilities"
PROMPTS = "prompts of tools"
# From this value of Yama on, only administrators may inspect what processes do.
_ADMIN_ONLY = 2
_ASLEEP = "a tool that shows its prompt and only sleeps counts as waiting for input"
_LOWER = "set kernel.yama.ptrace_scope to 0 or 1 where tools are not trusted; 3 needs a reboot"
_NEEDS_TRACEHOOK = "use a kernel with CONFIG_HAVE_ARCH_TRACEHOOK where tools are not trusted"
# These numbers are the same on every architecture, except seccomp's.
_LANDLOCK_CREATE_RULESET = 444
_LANDLOCK_CREATE_RULESET_VERSION = 1
_SECCOMP = {"x86_64": 317, "aarch64": 277}
_SECCOMP_SET_MODE_FILTER = 1
_SECCOMP_GET_ACTION_AVAIL = 2
# A new listener, whose calls no signal interrupts.
_UNDISTURBED_LISTENER = 0x28
_PRCTL = {"x86_64": 157, "aarch64": 167}
_PR_GET_MDWE = 66
_SECCOMP_RET_USER_NOTIF = 0x7FC00000


@dataclass(frozen=True, slots=True)
class KernelFacts:
    """The kernel's facilities, and why Landlock and filters are missing, as error numbers."""

    release: str
    kernel: Kernel
    landlock_error: int
    seccomp_error: int


def kernel_facts() -> KernelFacts:
    """Probes this machine's kernel without changing anything."""
    abi, landlock_error = _call(
        _LANDLOCK_CREATE_RULESET, None, ctypes.c_size_t(0), _LANDLOCK_CREATE_RULESET_VERSION
    )
    action = ctypes.c_uint32(_SECCOMP_RET_USER_NOTIF)
    number = _SECCOMP.get(platform.machine())
    seccomp_error = undisturbed_error = errno.ENOSYS
    if number is not None:
        _, seccomp_error = _call(number, _SECCOMP_GET_ACTION_AVAIL, 0, ctypes.byref(action))
        # With a filter that can't be read, the kernel checks the flags first.
        _, undisturbed_error = _call(number, _SECCOMP_SET_MODE_FILTER, _UNDISTURBED_LISTENER, None)
    mdwe, _ = _call(_PRCTL[platform.machine()], _PR_GET_MDWE, 0, 0, 0, 0) if number else (-1, 0)
    kernel = Kernel(
        landlock=max(0, abi),
        notification=seccomp_error == 0,
        undisturbed=undisturbed_error == errno.EFAULT,
        mdwe=mdwe >= 0,
    )
    return KernelFacts(platform.release(), kernel, landlock_error, seccomp_error)


def landlock_check(facts: KernelFacts) -> Check:
    """Judges Landlock: without scopes, weaker means separate commands."""
    detail = f"Landlock {facts.kernel.landlock}, kernel {facts.release}"
    if facts.kernel.scopes:
        return ok(LANDLOCK, detail)
    if facts.kernel.landlock > 0:
        return warning(LANDLOCK, f"{detail} has no scopes", "use a kernel of 6.12 or later")
    if facts.landlock_error == errno.EOPNOTSUPP:
        return failure(
            LANDLOCK,
            f"kernel {facts.release} has Landlock disabled",
            "add landlock to the kernel's `lsm=` option",
        )
    return failure(
        LANDLOCK,
        f"kernel {facts.release} has no Landlock: {os.strerror(facts.landlock_error)}",
        "use a kernel of 5.13 or later with CONFIG_SECURITY_LANDLOCK",
    )


def facilities_check(kernel: Kernel) -> Check:
    """By which means what commands do is decided, where it isn't the newest kernels' own."""
    others = [each for each in in_force(kernel) if not each.preferred]
    if not others:
        return ok(FACILITIES, "everything is decided by the kernel's own means")
    detail = "; ".join(f"{each.facility.decides}: {each.detail}" for each in others)
    if all(each.provided for each in others):
        return ok(FACILITIES, detail)
    newest = next(each for each in reversed(others) if not each.provided).facility.since
    return warning(FACILITIES, detail, f"use a kernel of {newest} or later for what is refused")


def seccomp_check(facts: KernelFacts) -> Check:
    """Judges seccomp's user notification."""
    if facts.seccomp_error == 0:
        return ok(SECCOMP, "user notification is available")
    return failure(
        SECCOMP,
        f"no user notification: {os.strerror(facts.seccomp_error)}",
        "use a kernel of 5.5 or later with CONFIG_SECCOMP_FILTER",
    )


def check_prompts(proc: Path = Path("/proc")) -> Check:
    """Whether sandboxes can tell a tool that waits for input from one that only sleeps."""
    if not (proc / "self/syscall").exists():
        return warning(
            PROMPTS, f"the kernel does not report what calls wait for: {_ASLEEP}", _NEEDS_TRACEHOOK
        )
    try:
        scope = int((proc / "sys/kernel/yama/ptrace_scope").read_text())
    except FileNotFoundError:
        scope = 0  # a kernel without Yama
    except (OSError, ValueError):
        return warning(PROMPTS, f"kernel.yama.ptrace_scope can't be read: {_ASLEEP}", _LOWER)
    if scope >= _ADMIN_ONLY:
        return warning(PROMPTS, f"kernel.yama.ptrace_scope is {scope}: {_ASLEEP}", _LOWER)
    return ok(PROMPTS, "tools at their prompt are recognized by waiting for input")


def _call(number: int, *arguments: object) -> tuple[int, int]:
    """The result of a system call, and its error number or 0."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.syscall.restype = ctypes.c_long
    result = int(libc.syscall(ctypes.c_long(number), *arguments))
    return result, ctypes.get_errno() if result < 0 else 0
