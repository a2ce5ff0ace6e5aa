"""The credentials that an operation accepts: API keys and session handles."""

from collections.abc import Mapping
from enum import Enum, auto

from orchestrator.rules.access.keys import Role


class Access(Enum):
    """What an operation does, which decides who may call it. A handle is limited to its session."""

    OPEN = auto()  # returns public information
    SELF = auto()  # shows callers who they are, whatever their scopes
    READ = auto()  # shows a session
    READ_ALL = auto()  # shows something that belongs to no single session
    WORK = auto()  # does work in a session, or looks into its sandbox
    MANAGE = auto()  # creates, changes or ends a session, or decides for a person
    ADMIN = auto()  # concerns the whole instance: its keys, its archives
    METRICS = auto()  # shows the instance's numbers


class Glass(Enum):
    """What of a session an operation touches, where admins need break-glass access."""

    INSIDE = auto()  # its content: an admin needs an access to it
    OUTSIDE = auto()  # what stops it, or shows no content
    LASTING = auto()  # hands out what would outlive an access: not for admins


ROLES: Mapping[Access, frozenset[Role]] = {
    Access.OPEN: frozenset(Role),
    Access.SELF: frozenset({Role.ADMIN, Role.OPERATOR, Role.VIEWER, Role.METRICS}),
    Access.READ: frozenset({Role.ADMIN, Role.OPERATOR, Role.VIEWER, Role.HANDLE}),
    Access.READ_ALL: frozenset({Role.ADMIN, Role.OPERATOR, Role.VIEWER}),
    Access.WORK: frozenset({Role.ADMIN, Role.OPERATOR, Role.HANDLE}),
    Access.MANAGE: frozenset({Role.ADMIN, Role.OPERATOR}),
    Access.ADMIN: frozenset({Role.ADMIN}),
    Access.METRICS: frozenset({Role.ADMIN, Role.OPERATOR, Role.VIEWER, Role.METRICS}),
}
