"""What a kernel offers to confine commands, and what takes its place where it is missing. Pure.

Agent, control plane and documentation use this one table. A substitute keeps the same promise.
Without facility and substitute, sessions that need the facility are refused, unless their level
goes without it.
"""

from collections.abc import Collection, Iterable
from typing import NamedTuple

# For tests only: the kernel counts as lacking these facilities; names with commas between them.
WITHOUT = "PADDOCK_TEST_WITHOUT"


class Kernel(NamedTuple):
    """The facilities that a kernel has; the names of `FACILITIES` are attributes.

    `landlock` is its interface version, 0 if it is missing.
    """

    landlock: int
    notification: bool
    undisturbed: bool
    mdwe: bool

    @property
    def paths(self) -> bool:
        """Whether Landlock can restrict files."""
        return self.landlock >= 1

    @property
    def moves(self) -> bool:
        """Whether Landlock can permit moves and links between directories."""
        return self.landlock >= 2

    @property
    def truncation(self) -> bool:
        """Whether Landlock's rules cover truncating a file by its path."""
        return self.landlock >= 3

    @property
    def scopes(self) -> bool:
        """Whether Landlock keeps signals and abstract sockets inside a domain."""
        return self.landlock >= 6

    def has(self, facility: str) -> bool:
        """Whether it has that facility, by its name in the table."""
        return bool(getattr(self, facility))

    def within(self, other: "Kernel") -> "Kernel":
        """The facilities that both have: a runtime may offer fewer than its host."""
        return Kernel._make(map(min, self, other))


# The facilities that are certain for a kernel that can't be examined: none.
UNKNOWN_KERNEL = Kernel(landlock=0, notification=False, undisturbed=False, mdwe=False)


class Facility(NamedTuple):
    """One facility: what it decides, by what means, and since which kernel release.

    `substitute` takes its place before that release, by means of the facility `substitute_needs`
    if that is set. Without one, the sessions of `needed_by` are refused.
    """

    name: str
    decides: str
    means: str
    since: str
    substitute: str | None
    needed_by: str
    substitute_needs: str | None = None


class Means(NamedTuple):
    """How one facility is provided: as preferred, by its substitute, or not at all.

    `lack` says why it is not preferred. `waived`: the level goes without it.
    """

    facility: Facility
    preferred: bool
    substituted: bool
    lack: str
    waived: bool

    @property
    def provided(self) -> bool:
        """Whether what the facility decides is decided."""
        return self.preferred or self.substituted

    @property
    def detail(self) -> str:
        """What provides it, or what becomes of sessions without it."""
        facility = self.facility
        if self.preferred:
            return facility.means
        if self.substituted:
            return f"{facility.substitute} ({self.lack})"
        if self.waived:
            return f"nothing ({self.lack}): the level goes without it"
        return f"nothing ({self.lack}): {facility.needed_by} are refused"


FACILITIES = (
    Facility(
        name="notification",
        decides="recorded executions",
        means="notification by the system call filter",
        since="5.5",
        substitute=None,
        needed_by="all sessions",
    ),
    Facility(
        name="paths",
        decides="files that commands use",
        means="Landlock",
        since="5.13",
        substitute=None,
        needed_by="sessions with confinement.paths, a pack or a manifest",
    ),
    Facility(
        name="moves",
        decides="moves between directories",
        means="Landlock",
        since="5.19",
        substitute="copies instead, as between file systems",
        needed_by="no sessions",
    ),
    Facility(
        name="undisturbed",
        decides="reads of a pack or a manifest",
        means="notification that no signal interrupts",
        since="5.19",
        substitute=None,
        needed_by="sessions with a pack or a manifest",
    ),
    Facility(
        name="truncation",
        decides="truncated files",
        means="Landlock",
        since="6.2",
        substitute="the system call filter",
        needed_by="sessions with confinement.paths",
    ),
    Facility(
        name="mdwe",
        decides="writable code",
        means="the kernel's memory protection (PR_SET_MDWE)",
        since="6.3",
        substitute="the system call filter",
        needed_by="sessions without writable_code",
    ),
    Facility(
        name="scopes",
        decides="signals between commands",
        means="Landlock scopes",
        since="6.12",
        substitute="the agent, which sends them; abstract sockets are not kept apart",
        needed_by="all sessions",
        substitute_needs="notification",
    ),
)
# Not of the kernel: `noexec`, `nosuid` and `nodev` of mounts, which a runtime may lose.
FLAGS = "flags"
# Not of the kernel: the compiled guard of the mounted agent.
GUARD = "guard"
# What an operator's level may go without.
WAIVABLE = ("notification", "paths", "scopes", FLAGS)
_LANDLOCK_BEFORE = {"paths": 0, "moves": 1, "truncation": 2, "scopes": 5}


def in_force(
    kernel: Kernel,
    host: Kernel | None = None,
    runtime: str | None = None,
    waived: Collection[str] = (),
) -> list[Means]:
    """By which means each facility is provided on this kernel, in the table's order.

    `kernel` is what a sandbox under `runtime` finds, if `host` has the facilities of its host: what
    the host has and the sandbox lacks is the runtime's doing. `waived` names facilities that the
    level goes without.
    """
    return [
        Means(
            each,
            preferred=kernel.has(each.name),
            substituted=_substituted(each, kernel),
            lack=_lack(each, host, runtime),
            waived=each.name in waived,
        )
        for each in FACILITIES
    ]


def _substituted(facility: Facility, kernel: Kernel) -> bool:
    needs = facility.substitute_needs
    return facility.substitute is not None and (needs is None or kernel.has(needs))


def _lack(facility: Facility, host: Kernel | None, runtime: str | None) -> str:
    if host is None or not host.has(facility.name):
        return f"kernel before {facility.since}"
    return "missing in its sandbox" if runtime is None else f"missing under the runtime {runtime}"


def without(kernel: Kernel, names: Iterable[str]) -> Kernel:
    """The kernel as if it lacked the named facilities. Raises: ValueError for an unknown name."""
    for name in names:
        if name in _LANDLOCK_BEFORE:
            version = min(kernel.landlock, _LANDLOCK_BEFORE[name])
            kernel = kernel._replace(landlock=version)
        elif name in kernel._fields and name != "landlock":
            kernel = kernel._replace(**{name: False})
        elif name != GUARD:
            raise ValueError(f"{name:.64} is not a facility")
    return kernel
