"""Which class and activity of OCSF each operation of the record is. Pure.

OCSF is the Open Cybersecurity Schema Framework. Names and numbers are those of its version 1.8.0;
tests compare them with the published schema.
"""

from enum import Enum
from typing import NamedTuple

OCSF_VERSION = "1.8.0"


class OcsfClass(Enum):
    """The classes that occur: number of the class, number of its category, the schema's name."""

    FILE = 1001, 1, "file_activity"
    PROCESS = 1007, 1, "process_activity"
    ACCOUNT = 3001, 3, "account_change"
    AUTHENTICATION = 3002, 3, "authentication"
    NETWORK = 4001, 4, "network_activity"
    API = 6003, 6, "api_activity"

    @property
    def uid(self) -> int:
        """The number of the class."""
        return self.value[0]

    @property
    def category_uid(self) -> int:
        """The number of its category."""
        return self.value[1]

    @property
    def schema_name(self) -> str:
        """The name of the class in the schema."""
        return self.value[2]


class Severity:
    """OCSF's `severity_id`."""

    INFORMATIONAL, LOW, MEDIUM, HIGH = 1, 2, 3, 4


class OcsfKind(NamedTuple):
    """What an operation is: its class, and the number and name of its activity.

    `severity` is that of an event without a refusal or an error.
    """

    of: OcsfClass
    activity_id: int
    activity: str
    severity: int = Severity.INFORMATIONAL

    @property
    def type_uid(self) -> int:
        """Class and activity as one number."""
        return self.of.uid * 100 + self.activity_id


OTHER = 99
_LAUNCH = OcsfKind(OcsfClass.PROCESS, 1, "Launch")
_TERMINATE = OcsfKind(OcsfClass.PROCESS, 2, "Terminate")
_IN_PROCESS = OcsfKind(OcsfClass.PROCESS, OTHER, "Other")
_FILE_CREATE = OcsfKind(OcsfClass.FILE, 1, "Create")
_FILE_READ = OcsfKind(OcsfClass.FILE, 2, "Read")
_FILE_UPDATE = OcsfKind(OcsfClass.FILE, 3, "Update")
_CREATE = OcsfKind(OcsfClass.API, 1, "Create")
_READ = OcsfKind(OcsfClass.API, 2, "Read")
_UPDATE = OcsfKind(OcsfClass.API, 3, "Update")
_DELETE = OcsfKind(OcsfClass.API, 4, "Delete")
_API = OcsfKind(OcsfClass.API, OTHER, "Other")

# Of an operation that only a later version records, whose state directory this one has.
UNKNOWN = _API

_OF_KINDS: dict[OcsfKind, tuple[str, ...]] = {
    _LAUNCH: ("command.start", "command.exec", "code.start", "pty.open", "shell.run"),
    _TERMINATE: ("command.exit", "code.exit", "pty.exit", "pty.close"),
    _TERMINATE._replace(severity=Severity.MEDIUM): ("command.oom",),
    _IN_PROCESS: (
        *("command.evidence", "pty.interaction", "pty.result", "pty.output"),
        *("shell.input", "shell.result"),
    ),
    _FILE_CREATE: ("file.mkdir", "file.symlink", "file.unpack", "file.copy"),
    _FILE_READ: ("file.read", "file.list", "file.search", "file.pack", "file.watch"),
    _FILE_UPDATE: ("file.write", "file.patch"),
    OcsfKind(OcsfClass.FILE, 4, "Delete"): ("file.delete",),
    OcsfKind(OcsfClass.FILE, 5, "Rename"): ("file.move",),
    OcsfKind(OcsfClass.FILE, 7, "Set Security"): ("file.chmod",),
    OcsfKind(OcsfClass.FILE, 8, "Get Attributes"): ("file.stat",),
    OcsfKind(OcsfClass.FILE, 14, "Open"): ("read",),
    OcsfKind(OcsfClass.NETWORK, 1, "Open"): ("egress.request",),
    OcsfKind(OcsfClass.NETWORK, 2, "Close"): ("egress.close", "port.close"),
    OcsfKind(OcsfClass.NETWORK, 7, "Listen"): ("port.open",),
    OcsfKind(OcsfClass.ACCOUNT, 1, "Create"): ("key.create",),
    OcsfKind(OcsfClass.ACCOUNT, 6, "Delete"): ("key.revoke",),
    OcsfKind(OcsfClass.ACCOUNT, 3, "Password Change"): ("key.rotate",),
    OcsfKind(OcsfClass.ACCOUNT, 5, "Disable"): ("user.revoke",),
    OcsfKind(OcsfClass.AUTHENTICATION, 1, "Logon"): ("user.sign_in",),
    OcsfKind(OcsfClass.AUTHENTICATION, 2, "Logoff"): ("user.sign_out",),
    _CREATE._replace(severity=Severity.HIGH): ("access.break_glass",),
    _CREATE: (
        *("session.create", "session.spawn", "session.fork", "session.arrived"),
        *("hook.create", "volume.create", "template.start", "snapshot.start", "session.snapshot"),
        *("secret.set", "memory.write", "remember", "turn.start", "spawn", "approval.request"),
    ),
    _READ: (
        *("owner.export", "memory.search", "recall", "facts", "fact?"),
        *("world.read", "world.list", "world.search", "world.fingerprint"),
    ),
    _UPDATE: (
        *("session.settings", "session.episode", "session.pause", "session.resume"),
        *("session.suspended", "session.restored", "session.fenced", "session.unfenced"),
        *("session.moving", "session.moved", "session.stayed", "session.spawn_end"),
        *("session.fork_end", "snapshot.end", "snapshot.change", "template.end"),
        *("proposal.commit", "approval.decision", "policy.reloaded", "turn.queue", "turn.end"),
        *("world.write", "world.patch"),
    ),
    _DELETE: (
        *("session.close", "session.terminated", "hook.remove", "volume.remove"),
        *("access.end", "owner.erase", "owner.erased", "audit.erased"),
        *("snapshot.remove", "secret.remove", "memory.remove", "world.delete"),
        *("proposal.rollback", "proposal.end"),
    ),
    _API: (
        *("world.run", "world.exec", "world.tool", "world.code", "shell", "tool.call"),
        *("llm.complete", "llm.intent", "eval", "subeval", "memo", "fixpoint", "assert"),
        *("tool.request", "coordination.context_refinement_request"),
        *("budget.usage", "recovery", "audit.archived", "state.restored"),
    ),
    _API._replace(severity=Severity.MEDIUM): ("budget.exceeded",),
    _API._replace(severity=Severity.HIGH): ("agent.violation", "audit.gap"),
}

KINDS: dict[str, OcsfKind] = {
    operation: kind for kind, operations in _OF_KINDS.items() for operation in operations
}
