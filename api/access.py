"""Which credentials an operation takes: API keys and sessions' handles."""

from collections.abc import Mapping
from enum import Enum, auto

from orchestrator.access.keys import Role


class Access(Enum):
    """What an operation does, which decides who may call it. Handles: in their session only."""

    OPEN = auto()  # tells what anybody may know
    READ = auto()  # shows a session
    READ_ALL = auto()  # shows what is not of one session
    WORK = auto()  # has something done in a session, or looks into its sandbox
    MANAGE = auto()  # makes, changes or ends a session, or decides for a person
    METRICS = auto()  # shows the instance's numbers


ROLES: Mapping[Access, frozenset[Role]] = {
    Access.OPEN: frozenset(Role),
    Access.READ: frozenset({Role.ADMIN, Role.OPERATOR, Role.VIEWER, Role.HANDLE}),
    Access.READ_ALL: frozenset({Role.ADMIN, Role.OPERATOR, Role.VIEWER}),
    Access.WORK: frozenset({Role.ADMIN, Role.OPERATOR, Role.HANDLE}),
    Access.MANAGE: frozenset({Role.ADMIN, Role.OPERATOR}),
    Access.METRICS: frozenset({Role.ADMIN, Role.OPERATOR, Role.VIEWER, Role.METRICS}),
}
