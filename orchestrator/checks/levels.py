"""Whether what each permission level promises can be enforced here. Pure."""

from collections.abc import Iterable, Mapping

from orchestrator.checks.base import Check, failure, ok, warning
from orchestrator.checks.engine import ENGINE, IMAGE
from orchestrator.checks.kernel import LANDLOCK
from orchestrator.checks.mounts import MOUNTS, PROPAGATION
from orchestrator.checks.state import STATE
from orchestrator.policy.levels import Level

# Without any of these no sandbox keeps its level's promises.
_NEEDED = (ENGINE, IMAGE, LANDLOCK, MOUNTS, PROPAGATION, STATE)


def level_checks(
    levels: Mapping[str, Level], checks: Iterable[Check], network: str | None, cores: int
) -> list[Check]:
    """One check for each level, from the others.

    `network` is why sandboxes with a network can't be kept from the host, None where they can.
    """
    failed = [check for check in checks if check.name in _NEEDED and not check.ok]
    return [_level_check(level, failed, network, cores) for level in levels.values()]


def _level_check(level: Level, failed: list[Check], network: str | None, cores: int) -> Check:
    name = f"level {level.name}"
    if failed:
        reasons = ", ".join(check.name for check in failed)
        return failure(name, f"can't be enforced: {reasons}", f"mend {reasons}")
    if level.network == "open" and network is not None:
        return failure(
            name,
            f"can't be enforced: the open network can't be kept from the host: {network}",
            "the engine's host needs iptables (legacy or nft) for its bridges",
        )
    if level.limits.cpus > cores:
        detail = f"can be enforced; it gives {level.limits.cpus:g} cores and this host has {cores}"
        return warning(name, detail, f"lower limits.cpus of {level.name}")
    return ok(name, "can be enforced")
