"""Kernels with all facilities and with fewer."""

from sandbox_agent.decide.facilities import Kernel, without

FULL_KERNEL = Kernel(landlock=7, notification=True, undisturbed=True, mdwe=True)
# Those of Ubuntu 22.04, Debian 12 and Ubuntu 24.04.
KERNEL_5_15 = without(FULL_KERNEL, ["moves", "undisturbed", "mdwe"])
KERNEL_6_1 = without(FULL_KERNEL, ["truncation", "mdwe"])
KERNEL_6_8 = FULL_KERNEL._replace(landlock=4)
