"""What a kernel offers to confine commands, and what takes its place where it is missing. Pure.

Agent, control plane and documentation use this one table. A substitute keeps the same promise; a
facility without one is missing, and what needs it is refused.
"""

from collections.abc import Iterable
from typing import NamedTuple

# For tests only: names of facilities that the kernel is said to lack, with commas between them.
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
        """The facilities that both have: those of a host that a runtime may offer less of."""
        return Kernel._make(map(min, self, other))


# What is certain of a kernel that can't be examined.
UNKNOWN_KERNEL = Kernel(landlock=0, notification=False, undisturbed=False, mdwe=False)


class Facility(NamedTuple):
    """One facility: what it is for, by what means, and since which kernel release.

    Without a `substitute`, what needs the facility is refused.
    """

    name: str
    purpose: str
    means: str
    substitute: str | None
    since: str


class Means(NamedTuple):
    """How one facility is provided; `means` is None if it is missing."""

    facility: Facility
    means: str | None
    preferred: bool


FACILITIES = (
    Facility(
        name="notification",
        purpose="recorded executions",
        means="notification of the system call filter",
        substitute=None,
        since="5.5",
    ),
    Facility(
        name="undisturbed",
        purpose="reads of manifests",
        means="notification that no signal interrupts",
        substitute=None,
        since="5.19",
    ),
    Facility(
        name="paths",
        purpose="files that commands use",
        means="Landlock",
        substitute=None,
        since="5.13",
    ),
    Facility(
        name="moves",
        purpose="moves between directories",
        means="Landlock",
        substitute="copies, as between file systems",
        since="5.19",
    ),
    Facility(
        name="truncation",
        purpose="truncated files",
        means="Landlock",
        substitute="the system call filter",
        since="6.2",
    ),
    Facility(
        name="mdwe",
        purpose="writable code",
        means="the kernel's rule for memory",
        substitute="the system call filter",
        since="6.3",
    ),
    Facility(
        name="scopes",
        purpose="signals between commands",
        means="Landlock scopes",
        substitute=None,
        since="6.12",
    ),
)
_LANDLOCK_BEFORE = {"paths": 0, "moves": 1, "truncation": 2, "scopes": 5}


def in_force(kernel: Kernel) -> list[Means]:
    """By which means each facility is provided on this kernel, in the table's order."""
    return [
        Means(each, each.means if has else each.substitute, has)
        for each, has in ((each, kernel.has(each.name)) for each in FACILITIES)
    ]


def without(kernel: Kernel, names: Iterable[str]) -> Kernel:
    """The kernel as if it lacked the named facilities. Raises: ValueError for an unknown name."""
    for name in names:
        if name in _LANDLOCK_BEFORE:
            version = min(kernel.landlock, _LANDLOCK_BEFORE[name])
            kernel = kernel._replace(landlock=version)
        elif name in kernel._fields and name != "landlock":
            kernel = kernel._replace(**{name: False})
        else:
            raise ValueError(f"{name:.64} is not a facility")
    return kernel
