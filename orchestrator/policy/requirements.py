"""What a level needs of the host to be enforced, and what is missing of it. Pure."""

from dataclasses import dataclass, replace

from orchestrator.engine.base import NO_RATES, Rates
from orchestrator.errors import EngineUnavailableError


@dataclass(frozen=True, slots=True)
class Requirements:
    """Without these a level's sessions are refused."""

    landlock: int  # the lowest version of its interface (ABI); 0: not needed
    seccomp: bool  # filters of system calls, and their notification
    mounts: bool  # workspaces mounted with flags of their own
    quota: bool  # workspaces that can't grow over their size


@dataclass(frozen=True, slots=True)
class Facts:
    """What there is: `landlock` is the version of its interface, 0 where there is none."""

    landlock: int
    seccomp: bool
    mounts: bool
    quota: bool
    throttle: bool = False  # workspaces' disks can be held to a rate

    def within(self, landlock: int, seccomp: bool) -> "Facts":
        """What is left of it in a sandbox whose agent found this: a runtime may offer less."""
        return replace(
            self, landlock=min(self.landlock, landlock), seccomp=self.seccomp and seccomp
        )


class UnmetError(EngineUnavailableError):
    """A level can't be enforced here: a session at it is refused rather than confined less."""


def unmet(needed: Requirements, facts: Facts, rates: Rates = NO_RATES) -> list[str]:
    """Why the level can't be enforced; empty where it can."""
    reasons = []
    if facts.landlock < needed.landlock:
        has = f"version {facts.landlock}" if facts.landlock else "none"
        reasons.append(f"needs Landlock version {needed.landlock}, there is {has}")
    if needed.seccomp and not facts.seccomp:
        reasons.append("needs seccomp filters with notification, there are none")
    if needed.mounts and not facts.mounts:
        reasons.append("needs workspaces mounted with flags, they can't be mounted")
    if needed.quota and not facts.quota:
        reasons.append("needs workspaces of a limited size, there is no such limit")
    if rates.disk and not facts.throttle:
        reasons.append("needs workspaces whose disk is held to a rate, there is no such limit")
    return reasons


def check(
    level: str, needed: Requirements, facts: Facts, where: str, rates: Rates = NO_RATES
) -> None:
    """Raises: UnmetError naming the level and the reasons; `where` is who offers so little."""
    reasons = unmet(needed, facts, rates)
    if reasons:
        raise UnmetError(f"level {level} can't be enforced {where}: {'; '.join(reasons)}")
