"""The host features that a level needs to be enforced, and those that are missing.

Pure functions.
"""

from dataclasses import dataclass, replace

from orchestrator.ground.errors import EngineUnavailableError
from orchestrator.host.engine.base import NO_RATES, Rates
from sandbox_agent.decide.facilities import Kernel


@dataclass(frozen=True, slots=True)
class Requirements:
    """A level's requirements; sessions are refused without them."""

    landlock: int  # the lowest version of Landlock's interface (ABI); 0 if it is not needed
    seccomp: bool  # system call filters and their notification
    mounts: bool  # workspaces mounted with their own flags
    quota: bool  # workspaces that can't exceed their size
    # The facilities of `facilities.WAIVABLE` that kernel and runtime may lack.
    without: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Facts:
    """The available features."""

    kernel: Kernel
    mounts: bool
    quota: bool
    throttle: bool = False  # the rates of workspaces' disks can be limited

    def within(self, kernel: Kernel) -> "Facts":
        """The features left in a sandbox whose agent found these: a runtime may offer less."""
        return replace(self, kernel=self.kernel.within(kernel))


class UnmetError(EngineUnavailableError):
    """The host can't enforce a level, so its sessions are refused rather than confined less."""


def unmet(
    needed: Requirements,
    facts: Facts,
    rates: Rates = NO_RATES,
    *,
    packed: bool = False,
    root: bool = False,
) -> list[str]:
    """Why the level can't be enforced; empty if it can.

    `packed`: reads are limited to a pack. `root`: commands are root inside.
    """
    reasons = []
    kernel = facts.kernel
    if root and not kernel.scopes:
        reasons.append("needs Landlock scopes for root inside: a kernel of 6.12 or later")
    if packed and not kernel.undisturbed:
        reasons.append("needs a kernel of 5.19 or later for a pack: no signal disturbs its reads")
    if packed and not kernel.paths:
        reasons.append("needs Landlock for a pack, but found none")
    if kernel.landlock < needed.landlock and "paths" not in needed.without:
        has = f"version {kernel.landlock}" if kernel.landlock else "none"
        reasons.append(f"needs Landlock version {needed.landlock}, but found {has}")
    if needed.seccomp and not kernel.notification:
        if "notification" not in needed.without:
            reasons.append("needs seccomp filters with notification, which are missing")
        elif not kernel.scopes and "scopes" not in needed.without:
            reasons.append("needs Landlock scopes or notification, to keep signals apart")
    if needed.mounts and not facts.mounts:
        reasons.append("needs workspaces mounted with flags, which can't be mounted")
    if needed.quota and not facts.quota:
        reasons.append("needs workspaces of a limited size, but sizes can't be limited")
    if rates.disk and not facts.throttle:
        reasons.append("needs a rate limit for workspaces' disks, but rates can't be limited")
    return reasons


def check(
    level: str,
    needed: Requirements,
    facts: Facts,
    where: str,
    rates: Rates = NO_RATES,
    *,
    packed: bool = False,
    root: bool = False,
    remedy: str = "",
) -> None:
    """Raises UnmetError with the level, the reasons and the remedy.

    `where` is what offers too little.
    """
    reasons = unmet(needed, facts, rates, packed=packed, root=root)
    if reasons:
        then = f". {remedy}" if remedy else ""
        raise UnmetError(f"level {level} can't be enforced {where}: {'; '.join(reasons)}{then}")
