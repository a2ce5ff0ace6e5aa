"""The means by which levels are enforced, as the API shows them."""

from collections.abc import Iterable

from orchestrator.host.engine.runtimes import KEEPS_FLAGS, Runtimes
from orchestrator.host.link.messages import Hello
from orchestrator.rules.policy.levels import ROOT, Level
from orchestrator.state.session import Session
from paddock.contract.system import FacilityMeans, Runtime
from sandbox_agent.decide.facilities import FLAGS, GUARD, Kernel, Means, in_force

_NO_FLAGS = FacilityMeans(
    name=FLAGS,
    decides="noexec, nosuid and nodev of mounts",
    preferred=False,
    provided=False,
    detail="nothing, where the runtime has lost them: the level goes without it",
)


def facilities(kernel: Kernel) -> list[FacilityMeans]:
    """All of a kernel."""
    return [_shown(each) for each in in_force(kernel)]


def runtimes(known: Runtimes, levels: Iterable[Level], host: Kernel) -> list[Runtime]:
    """The engine's, the usual one first, and what the latest sandbox under each of them found."""
    used: dict[str, list[str]] = {name: [] for name in known.known or ()}
    for level in levels:
        name = known.of(level.runtime)
        if name is not None:
            used[name] = [*used.get(name, []), level.name]
    return [
        Runtime(
            name=name,
            usual=name == known.usual,
            levels=used[name],
            facilities=None
            if (found := known.found.get(name)) is None
            else [_shown(each) for each in in_force(found, host, name)],
        )
        for name in sorted(used, key=lambda name: (name != known.usual, name))
    ]


def facilities_of(session: Session, host: Kernel) -> list[FacilityMeans] | None:
    """Those that the session's level uses; None if no agent has told what its sandbox has."""
    sandbox = session.sandbox
    hello = None if sandbox is None else sandbox.link.hello
    if sandbox is None or hello is None:
        return None
    confinement, packed = session.level.confinement, session.pack is not None
    unused = {
        "undisturbed": not packed,
        "truncation": not confinement.paths and not packed,
        "mdwe": confinement.writable_code,
    }
    waived = session.level.requires.without
    means = in_force(hello.kernel, host, sandbox.runtime, waived)
    shown = [_shown(each) for each in means if not unused.get(each.facility.name)]
    if session.level.user == ROOT:
        shown.append(_root(session.level))
    shown.append(_guard(hello, session))
    unflagged = FLAGS in waived and sandbox.runtime != KEEPS_FLAGS
    return [*shown, _NO_FLAGS] if unflagged else shown


def _guard(hello: Hello, session: Session) -> FacilityMeans:
    """Who starts the session's commands: both guards keep the same promises."""
    if not hello.compiled_guard:
        why = "the image from which the agent is made was built without a compiler"
    elif session.pack is not None or session.level.user == ROOT or not hello.kernel.scopes:
        why = "the one in C takes no session with a context pack, root inside or no scopes"
    else:
        why = None
    return FacilityMeans(
        name=GUARD,
        decides="the start of commands",
        preferred=why is None,
        provided=True,
        detail="the guard in C" if why is None else f"the guard in Python: {why}",
    )


def _root(level: Level) -> FacilityMeans:
    layer = (
        "the image is read-only"
        if level.root_bytes is None
        else f"over the image is a writable layer of {level.root_bytes} bytes"
    )
    return FacilityMeans(
        name="root",
        decides="root inside",
        preferred=True,
        provided=True,
        detail=f"a user namespace that maps uid 0 to the workspace's; {layer}",
    )


def _shown(each: Means) -> FacilityMeans:
    return FacilityMeans(
        name=each.facility.name,
        decides=each.facility.decides,
        preferred=each.preferred,
        provided=each.provided,
        detail=each.detail,
    )
