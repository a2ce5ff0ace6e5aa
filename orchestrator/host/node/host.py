"""This host's features for confining sandboxes."""

from pathlib import Path
from typing import Protocol

from orchestrator.ground.threads import Threads
from orchestrator.host.node.kernel import KernelFacts, kernel_facts
from orchestrator.host.node.mounts import check_mounts
from orchestrator.host.node.requirements import Facts
from orchestrator.host.node.throttle import can_throttle
from orchestrator.host.workspace.quota import Choice, Quota
from sandbox_agent.decide.facilities import Kernel

# For a test mount: a hung file system must not hang a creation.
_SECONDS = 10.0


def facts_of(kernel: KernelFacts, *, mounts: bool, quota: bool, throttle: bool = False) -> Facts:
    """The facts that levels need, from the checks' results.

    `quota` says whether workspaces can't exceed their size, `throttle` whether their disks' rates
    can be limited.
    """
    return Facts(kernel.kernel, mounts, quota, throttle)


class Host(Protocol):
    """A host's features for confining sandboxes."""

    async def facts(self) -> Facts:
        """The current features; one that can't be checked in time counts as missing."""


class LocalHost:
    """Checks once, because a running kernel does not change. Failed mounts are retried."""

    def __init__(self, state_dir: Path, quota: Choice) -> None:
        self._state_dir = state_dir
        self._quota = quota.quota is not Quota.NONE
        # A rate applies to a device, which the workspace must not share.
        self._image = quota.quota is Quota.IMAGE
        self._kernel = kernel_facts()
        self._facts: Facts | None = None
        self._threads = Threads("mounts that are tried", 2)

    @property
    def kernel(self) -> Kernel:
        """The facilities of the kernel."""
        return self._kernel.kernel

    async def facts(self) -> Facts:
        """The present facts; if the check does not finish in time, mounts count as missing."""
        if self._facts is None or not self._facts.mounts:
            self._facts = await self._look()
        return self._facts

    async def _look(self) -> Facts:
        try:
            mounts = await self._threads.call(lambda: check_mounts(self._state_dir).ok, _SECONDS)
        except TimeoutError:
            mounts = False
        return facts_of(
            self._kernel,
            mounts=mounts,
            quota=self._quota,
            throttle=self._image and can_throttle(),
        )
