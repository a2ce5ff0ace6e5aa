"""Parses the control plane's request for a new terminal, strictly. Pure."""

from typing import Literal, NamedTuple

from sandbox_agent.core import params as given
from sandbox_agent.decide.commands import normalize_cwd
from sandbox_agent.decide.errors import AgentError
from sandbox_agent.decide.protocol import Message
from sandbox_agent.enforce.command_process import Plan
from sandbox_agent.enforce.profile import Tool
from sandbox_agent.enforce.programs import PATH, find_program
from sandbox_agent.pty import posix_driver, shell_driver
from sandbox_agent.pty.environment import environment
from sandbox_agent.pty.gate import SANITIZERS

LARGEST_SIDE = 65535
Kept = Literal["bash", "sh"]
_KEPT: dict[object, Kept] = {True: "bash", "sh": "sh"}
_VARIABLES = {"bash": shell_driver.VARIABLES, "sh": posix_driver.VARIABLES}


class Request(NamedTuple):
    """A request to open a terminal.

    `tool` is what the program may do in addition to commands. `commands` are the names under which
    lines may be sent; None means that any bytes may be written, as to a shell. `lifetime_ms` and
    `idle_ms` are limits in milliseconds. `kept`: it is a shell that runs commands one by one, with
    bash's own means or, for `sh`, those of any POSIX shell.
    """

    terminal_id: str
    tool: Tool
    plan: Plan
    rows: int
    columns: int
    terminator: bytes
    sanitize: list[str]
    commands: frozenset[str] | None
    max_line_bytes: int
    lifetime_ms: int
    idle_ms: int
    kept: Kept | None = None


def parse(params: Message, sandbox: dict[str, str], workspace: str) -> Request:
    """Parses the parameters. A terminal's own variables replace those of the `sandbox`.

    Raises: AgentError if they are malformed.
    """
    argv, sanitize = given.texts(params, "argv"), given.texts(params, "sanitize")
    if not argv or not set(sanitize) <= set(SANITIZERS):
        message = "argv must not be empty, and sanitize must have known names only"
        raise AgentError("validation_error", message)
    kept = _KEPT.get(params.get("kept") or "") if params.get("commands") is None else None
    own = {**given.mapping(params, "env"), **(_VARIABLES[kept] if kept else {})}
    env = environment({**sandbox, **own})
    plan = Plan(
        program=_program(argv[0], env),
        argv=argv,
        env=env,
        cwd=_directory(params, workspace) if kept else ".",
        inside=[],
        workspace=workspace,
        terminal=True,
    )
    needs = given.group(params, "needs")
    tool = Tool(
        programs=[argv[0], *given.texts(needs, "execute")],
        read=given.texts(needs, "read"),
        write=given.texts(needs, "write"),
        writable_code=given.flag(needs, "writable_code"),
        ptrace=given.flag(needs, "ptrace"),
    )
    commands = None if params.get("commands") is None else given.texts(params, "commands")
    return Request(
        terminal_id=given.text(params, "terminal_id"),
        tool=tool,
        plan=plan,
        rows=given.number(params, "rows", 1, LARGEST_SIDE),
        columns=given.number(params, "cols", 1, LARGEST_SIDE),
        terminator=given.text(params, "terminator").encode(),
        sanitize=sanitize,
        commands=None if commands is None else frozenset(commands),
        max_line_bytes=given.number(params, "max_line_bytes", 1, 1024 * 1024),
        lifetime_ms=given.number(params, "lifetime_ms", 1, given.MOST_MS),
        idle_ms=given.number(params, "idle_ms", 1, given.MOST_MS),
        kept=kept,
    )


def _program(name: str, env: dict[str, str]) -> str:
    """The file behind a bare name along the usual path: the compiled guard looks up none."""
    if "/" in name or env["PATH"] != PATH:
        return name
    return find_program(name) or name


def _directory(params: Message, workspace: str) -> str:
    """Where a kept shell begins: any absolute path, or one relative to the workspace."""
    return normalize_cwd(given.text(params, "cwd"), workspace, anywhere=True)
