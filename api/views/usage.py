"""Usage as the API shows it."""

from collections import deque
from typing import TypeVar

from api.shape.objects import members
from orchestrator.operate.observe import usage
from orchestrator.operate.observe.usage import UsageHistory
from orchestrator.state.session import Session
from paddock.contract.inspection import DiskUsage
from paddock.contract.usage import HostUsage, SessionUsage

T = TypeVar("T")


def session(shown: Session, used: usage.SessionUsage, new: int) -> SessionUsage:
    """The session's latest samples, at most `new` of them."""
    samples = _latest(used.samples, new)
    last = used.samples[-1] if used.samples else None
    disk = None if used.disk is None else DiskUsage(**members(DiskUsage, used.disk))
    return SessionUsage(
        id=shown.id,
        incarnation=shown.incarnation,
        cpu_percent=[None if each is None else each.cpu_percent for each in samples],
        memory_bytes=[None if each is None else each.memory_bytes for each in samples],
        pids=None if last is None else last.pids,
        disk=disk,
    )


def host(history: UsageHistory, new: int) -> HostUsage | None:
    """The host's latest samples, at most `new` of them; None before the first one."""
    load, samples = history.load, _latest(history.host, new)
    if load is None:
        return None
    return HostUsage(
        cpus=load.cpus,
        memory_bytes=load.memory_bytes,
        disk_bytes=load.disk_bytes,
        cpu_percent=[each.cpu_percent for each in samples],
        memory_used=[each.memory_bytes for each in samples],
        disk_used=[each.disk_bytes for each in samples],
    )


def _latest(samples: deque[T], new: int) -> list[T]:
    return list(samples)[max(0, len(samples) - new) :]
