"""The means by which levels are enforced, as the API shows them."""

from orchestrator.state.session import Session
from paddock.contract.system import FacilityMeans
from sandbox_agent.decide.facilities import Kernel, Means, in_force


def facilities(kernel: Kernel) -> list[FacilityMeans]:
    """All of a kernel."""
    return [_shown(each) for each in in_force(kernel)]


def facilities_of(session: Session) -> list[FacilityMeans] | None:
    """Those that the session's level uses; None if no agent has told what its sandbox has."""
    hello = None if session.sandbox is None else session.sandbox.link.hello
    if hello is None:
        return None
    confinement, packed = session.level.confinement, session.pack is not None
    unused = {
        "undisturbed": not packed,
        "truncation": not confinement.paths and not packed,
        "mdwe": confinement.writable_code,
    }
    return [_shown(each) for each in in_force(hello.kernel) if not unused.get(each.facility.name)]


def _shown(each: Means) -> FacilityMeans:
    return FacilityMeans(
        name=each.facility.name,
        decides=each.facility.decides,
        preferred=each.preferred,
        provided=each.provided,
        detail=each.detail,
    )
