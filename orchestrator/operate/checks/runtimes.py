"""Checks of the runtimes that levels name: whether the engine has them, and what holds inside."""

from collections.abc import Iterable
from typing import NamedTuple

from orchestrator.ground.check import Check, failure, ok
from orchestrator.ground.errors import PaddockError
from orchestrator.ground.threads import within
from orchestrator.host.node.requirements import Facts
from orchestrator.operate.checks.inside import Look
from orchestrator.rules.policy.levels import Level
from sandbox_agent.decide.facilities import Kernel, in_force


class RuntimeFound(NamedTuple):
    """One runtime's check, and what its sandboxes have; the host's facts if that is not known."""

    check: Check
    facts: Facts


async def check_runtimes(
    look: Look, levels: Iterable[Level], facts: Facts, seconds: float
) -> dict[str, RuntimeFound]:
    """Starts a container under each runtime that a level names, and removes it; by its name.

    Each has `seconds` to answer. `facts` are the host's.
    """
    users: dict[str, list[str]] = {}
    for level in levels:
        if level.runtime is not None:
            users.setdefault(level.runtime, []).append(level.name)
    return {name: await _examined(look, name, users[name], facts, seconds) for name in users}


async def _examined(
    look: Look, runtime: str, levels: list[str], facts: Facts, seconds: float
) -> RuntimeFound:
    try:
        kernel = await within(look(runtime), seconds, None)
    except PaddockError as error:
        return RuntimeFound(_failed(runtime, levels, error.detail), facts)
    if kernel is None:
        return RuntimeFound(_failed(runtime, levels, f"no answer within {seconds:g} s"), facts)
    return RuntimeFound(runtime_check(runtime, levels, kernel, facts.kernel), facts.within(kernel))


def _failed(runtime: str, levels: list[str], why: str) -> Check:
    remedy = f"repair it in the engine, or change `runtime` of {', '.join(levels)}"
    return failure(f"runtime {runtime}", why, remedy)


def runtime_check(runtime: str, levels: list[str], kernel: Kernel, host: Kernel) -> Check:
    """What the sandboxes of these levels have under that runtime."""
    others = [each for each in in_force(kernel, host, runtime) if not each.preferred]
    means = "; ".join(f"{each.facility.decides}: {each.detail}" for each in others)
    detail = means or "everything is decided by the kernel's own means"
    return ok(f"runtime {runtime}", f"of {', '.join(levels)}: {detail}")
