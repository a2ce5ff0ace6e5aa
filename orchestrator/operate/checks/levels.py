"""Whether this host can enforce each permission level's guarantees. Pure functions."""

from collections.abc import Iterable, Mapping

from orchestrator.ground.check import Check, failure, ok, warning
from orchestrator.host.node.mounts import MOUNTS, PROPAGATION
from orchestrator.host.node.requirements import Facts, unmet
from orchestrator.operate.checks.engine import ENGINE, IMAGE
from orchestrator.operate.checks.root_inside import LAYER, root_check
from orchestrator.operate.checks.runtimes import RuntimeFound
from orchestrator.operate.checks.state import STATE
from orchestrator.rules.policy.levels import ROOT, Level

# Without any of these, no sandbox keeps its level's guarantees, whatever the level requires.
_NEEDED = (ENGINE, IMAGE, MOUNTS, PROPAGATION, STATE)
_REMEDY = "`paddock doctor` shows how to get it"


def enforceable(levels: Mapping[str, Level], facts: Facts) -> list[Check]:
    """One check per level: whether the host offers what the level requires.

    A level that can't be enforced leaves the others usable, so its check is a warning unless all
    levels fail. A sandbox's runtime may offer less than the host, which only a container shows.
    """
    missing = {level.name: _unmet(level, facts) for level in levels.values()}
    refuse = failure if all(missing.values()) else warning
    return [
        refuse(_name(name), _cannot(reasons), _REMEDY)
        if reasons
        else ok(_name(name), "can be enforced")
        for name, reasons in missing.items()
    ]


def level_checks(
    levels: Mapping[str, Level],
    checks: Iterable[Check],
    facts: Facts,
    network: Check | None,
    cores: int,
    runtimes: Mapping[str, RuntimeFound] | None = None,
    root: Iterable[Check] = (),
) -> list[Check]:
    """One check per level, based on the other checks; `root` are those of root inside.

    `facts` are those of levels that name no runtime, and `runtimes` has what the others named.
    `network` says why sandboxes with a network can't be kept from the host; None if they can.
    """
    failed = [check for check in checks if check.name in _NEEDED and not check.ok]
    missing = {check.name: check for check in root if not check.ok}
    found = []
    for level in levels.values():
        own = (runtimes or {}).get(level.runtime or "")
        lacks = [missing[name] for name in _of_root(level) if name in missing]
        if own is None:
            found.append(_level_check(level, [*failed, *lacks], facts, network, cores))
        else:
            needed = [*failed, *lacks, *([] if own.check.ok else [own.check])]
            found.append(_level_check(level, needed, own.facts, network, cores))
    return found


def _unmet(level: Level, facts: Facts) -> list[str]:
    return unmet(level.requires, facts, level.rates, root=level.user == ROOT)


def _of_root(level: Level) -> list[str]:
    """The names of the checks of root inside that the level needs."""
    if level.user != ROOT:
        return []
    return [root_check(level), *([] if level.root_bytes is None else [LAYER])]


def _name(level: str) -> str:
    return f"level {level}"


def _cannot(reasons: Iterable[str]) -> str:
    return f"can't be enforced: {'; '.join(reasons)}"


def _level_check(
    level: Level, failed: list[Check], facts: Facts, network: Check | None, cores: int
) -> Check:
    name = _name(level.name)
    if failed:
        names = ", ".join(check.name for check in failed)
        return failure(name, f"can't be enforced: {names}", f"fix {names}")
    if reasons := _unmet(level, facts):
        remedy = "fix what the other checks report, or change `requires` in the level's file"
        return failure(name, _cannot(reasons), remedy)
    if level.network == "open" and network is not None:
        return failure(
            name,
            f"can't be enforced: the open network can't be kept from the host: {network.detail}",
            network.remedy or f"fix {network.name}",
        )
    if level.limits.cpus > cores:
        detail = f"can be enforced; it gives {level.limits.cpus:g} cores and this host has {cores}"
        return warning(name, detail, f"lower limits.cpus of {level.name}")
    return ok(name, "can be enforced")
