"""Clients' requests to sessions, already validated in form."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from orchestrator.ground.store.effect import Effect
from orchestrator.rules.egress.session_rules import OwnRules
from orchestrator.rules.policy.levels import Level
from orchestrator.rules.policy.session_policy import SessionPolicy
from orchestrator.state.budget import Budget
from orchestrator.state.family import Origin
from orchestrator.state.pack import Pack
from orchestrator.state.restored_session import Carried
from orchestrator.state.session import Session
from orchestrator.state.starting_files import StartingFiles
from orchestrator.state.terms import Terms


@dataclass(frozen=True, slots=True)
class Child:
    """What a session has from its parent. `check` raises if it may not be its child any more."""

    parent: Session
    origin: Origin
    level: Level
    budget: Budget
    own_rules: OwnRules
    check: Callable[[], None]


@dataclass(frozen=True, slots=True)
class NewSession:
    """A session to create; None means the default.

    `budget` has limits by kind, in the units of the API. `egress` narrows its way out, as
    `narrowing_of` reads it. `lease_id` is the host's secret, which is never stored. `consume` is
    the pack to which it is limited. `policy` is the session policy, its name or its members.
    `carried` is what a restored session brings along, `from_snapshot` the id or the name of the
    key's snapshot with whose files it begins, `files` such files that are known already.
    `acknowledging` stores that the session exists, if others must exist with it. `child` is what a
    child has from its parent, whatever the level and the budget here are.
    """

    id: str | None = None
    permission_level: str | None = None
    terms: Terms = field(default_factory=Terms)
    secrets: dict[str, str] = field(default_factory=dict, repr=False)
    budget: dict[str, int | float] = field(default_factory=dict)
    egress: Mapping[str, Any] | None = None
    lease_id: str | None = field(default=None, repr=False)
    consume: Pack | None = None
    policy: str | Mapping[str, Any] | SessionPolicy | None = None
    carried: Carried | None = None
    from_snapshot: str | None = None
    files: StartingFiles | None = None
    acknowledging: Callable[[Effect], Awaitable[None]] | None = field(default=None, repr=False)
    child: Child | None = None


class NewTimeouts(NamedTuple):
    """Other time-outs for a session, in seconds; None: as they are.

    `keep_alive`: neither may end it for that long from now.
    """

    idle: int | None = None
    wall: int | None = None
    keep_alive: int | None = None


class Registered(NamedTuple):
    """A new session, its handle, and the sessions that were suspended to make room for it."""

    session: Session
    handle: str
    gave_way: tuple[Session, ...]


class Kept(NamedTuple):
    """The evidence to keep of a oneshot tool's command, whose id is set before it starts.

    `file` is where the command may write, relative to the workspace, in its own directory; None:
    there is no such file, and its output is kept. Without `capture`, nothing is kept, and the file
    is removed. `name` is an additional name of the evidence.
    """

    command_id: str
    file: str | None
    capture: bool
    name: str | None

    @property
    def printed(self) -> bool:
        """Whether what the command prints is kept."""
        return self.capture and self.file is None


@dataclass(frozen=True, slots=True)
class ExecRequest:
    """A command: a `command` line, which no shell reads, an `argv`, or a `shell` line for bash.

    `cwd` is relative to the workspace or under its path; `timeout` is in seconds, None for the
    level's default (in the background: no time-out). `merge`: both output streams are one.
    `output_file` is a file of the workspace that they go to instead. `collect`: its output is
    returned with its end. `tool` is the oneshot tool of the words, `approval` the id of their
    approval, `kept` the evidence to keep.
    """

    argv: list[str] | None = None
    command: str | None = None
    shell: str | None = None
    cwd: str | None = None
    env: dict[str, str] = field(default_factory=dict)
    secrets: dict[str, str] = field(default_factory=dict, repr=False)
    stdin: bytes | None = None
    stdin_open: bool = False
    merge: bool = False
    output_file: str | None = None
    timeout: float | None = None
    background: bool = False
    collect: bool = False
    tool: str | None = None
    approval: str | None = None
    kept: Kept | None = None
