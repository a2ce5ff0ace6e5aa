"""Sandboxes on a kernel that is said to lack facilities, so that their substitutes are used.

An image with the agent's variable for tests makes agents use what an older kernel would have. The
control plane in this process is told the same of its host.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import pytest

from orchestrator.host.node import host
from orchestrator.host.node.kernel import KernelFacts, kernel_facts
from sandbox_agent.decide.facilities import WITHOUT, without
from tests.support.arsenal import build_image, remove_image

# What has a substitute, and what kernels of 5.15 and 6.1 lack.
LEAST = ("moves", "truncation", "mdwe", "scopes")


@contextmanager
def older_host(names: tuple[str, ...]) -> Iterator[None]:
    """Control planes that are opened meanwhile find a host without these facilities."""

    def facts() -> KernelFacts:
        found = kernel_facts()
        return replace(found, kernel=without(found.kernel, names))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(host, "kernel_facts", facts)
        yield


@contextmanager
def older_image(base: str, names: tuple[str, ...]) -> Iterator[str]:
    """An image whose agents do without these facilities, like `base` otherwise."""
    made = build_image("older", f"FROM {base}\nENV {WITHOUT}={','.join(names)}\n")
    try:
        yield made
    finally:
        remove_image(made)
