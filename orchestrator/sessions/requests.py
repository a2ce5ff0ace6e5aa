"""What a client may ask of a session, already checked for form."""

from dataclasses import dataclass, field
from typing import NamedTuple


@dataclass(frozen=True, slots=True)
class NewSession:
    """A session to be created; None means the default. Time-outs are in seconds.

    `budget` has limits by kind, in the units of the API. `mounts` are names of the operator's
    list, besides the level's. `role` is who policies take
    its agent for, `tools` are those that it may open.
    """

    id: str | None = None
    permission_level: str | None = None
    image: str | None = None
    labels: dict[str, str] = field(default_factory=dict)
    env: dict[str, str] = field(default_factory=dict)
    secrets: dict[str, str] = field(default_factory=dict, repr=False)
    limits: dict[str, int | float] = field(default_factory=dict)
    idle_timeout: int | None = None
    wall_timeout: int | None = None
    budget: dict[str, int | float] = field(default_factory=dict)
    mounts: tuple[str, ...] = ()
    role: str | None = None
    tools: tuple[str, ...] | None = None


class Kept(NamedTuple):
    """What is kept of a oneshot tool's command, whose id is given before it starts.

    `file` is where the command may write, relative to the workspace, in a directory of its own;
    None: there is no such file, and what it prints is kept. Without `capture` nothing is, and
    the file goes. `name`: a further one of what is kept.
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
    """A command: either a `command` line, which knows no shell, or an `argv`.

    `cwd` is relative to the workspace or under /workspace; `timeout` is in seconds, None
    for the level's default (in the background: no time-out). `collect`: its output is wanted with
    its end. `tool` is the oneshot tool that the words are of, `approval` the id of what a person
    has said to them, `kept` what is kept as evidence.
    """

    argv: list[str] | None = None
    command: str | None = None
    cwd: str | None = None
    env: dict[str, str] = field(default_factory=dict)
    secrets: dict[str, str] = field(default_factory=dict, repr=False)
    stdin: bytes | None = None
    stdin_open: bool = False
    timeout: int | None = None
    background: bool = False
    collect: bool = False
    tool: str | None = None
    approval: str | None = None
    kept: Kept | None = None
