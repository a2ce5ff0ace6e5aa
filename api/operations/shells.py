"""A session's shells that keep their state: create them, run commands, feed them, end them."""

from api.shape import stops
from api.shape.access import Access
from api.shape.answers import Created
from api.shape.context import Context
from api.shape.operation import SESSION, WORK_ERRORS, operation
from api.views.shells import shell, shell_answer, shell_until
from orchestrator.ground.errors import ValidationError
from orchestrator.work.shells.kept_shell import ShellSettings
from orchestrator.work.shells.kept_shells import KeptShells
from paddock.contract.requests import NoBody
from paddock.contract.shells import (
    Shell,
    ShellAnswer,
    ShellBody,
    ShellInputBody,
    ShellRunBody,
    Shells,
)
from sandbox_agent.decide.command_words import CommandError
from sandbox_agent.decide.commands import normalize_cwd

_TAG = "Shells"
_SHELLS = SESSION + "/shells"
_SHELL = _SHELLS + "/{name}"


@operation(
    "POST",
    _SHELLS,
    Access.WORK,
    tag=_TAG,
    summary="Create a shell",
    answers={200: "The shell, which existed with these settings.", 201: "The new shell."},
    errors=WORK_ERRORS,
    examples={"default": {}, "named": {"name": "build", "cwd": "src", "env": {"CC": "clang"}}},
    restores=True,
)
async def create_shell(
    context: Context, kept_shells: KeptShells, body: ShellBody
) -> Shell | Created[Shell]:
    """Starts a shell that keeps its directory, variables, functions and jobs between commands.

    The session's level must permit any command. A shell of that name with another `cwd` or `env`
    is a conflict. It ends with its session or sandbox, when the level changes, or after 24 hours.
    Where the image has no bash, it is the image's `sh`.
    """
    session = context.session()
    try:
        cwd = normalize_cwd(body.cwd or ".", session.workspace_path, anywhere=True)
    except CommandError as error:
        raise ValidationError(str(error), field="cwd") from None
    settings = ShellSettings(body.name, cwd, body.env)
    made, new = await context.work.complete(
        kept_shells.create(context.principal, session, settings)
    )
    shown = shell(made)
    return (
        Created(shown, f"/api/sessions/{context.session_id}/shells/{made.name}") if new else shown
    )


@operation(
    "GET",
    _SHELLS,
    Access.READ,
    tag=_TAG,
    summary="List shells",
    answers="The shells.",
)
async def list_shells(context: Context, kept_shells: KeptShells) -> Shells:
    """The session's shells that have not ended, oldest first. `ptys` lists ended ones, too."""
    found = kept_shells.list(context.session())
    return Shells(items=[shell(each) for each in found], next=None)


@operation(
    "GET",
    _SHELL,
    Access.READ,
    tag=_TAG,
    summary="Inspect a shell",
    answers="The shell.",
    errors=("conflict",),
)
async def read_shell(context: Context, kept_shells: KeptShells, name: str) -> Shell:
    """One shell. After its end it is a conflict that says why it has ended."""
    return shell(await kept_shells.get(context.session(), name))


@operation(
    "POST",
    _SHELL + "/run",
    Access.WORK,
    tag=_TAG,
    summary="Run a command in a shell",
    answers="What has come of the command.",
    errors=WORK_ERRORS,
    examples={
        "lines": {"command": "cd src\nmake 2>&1 | tail", "timeout": 120},
        "expect": {"command": "python3 -q -i", "expect": ">>> "},
    },
)
async def run_in_shell(
    context: Context, kept_shells: KeptShells, name: str, body: ShellRunBody
) -> ShellAnswer:
    """Runs a command; what it changes in the shell stays for the next one.

    The syntax is checked first: if it is wrong, nothing runs. The answer comes when the command has
    finished, when its output has a text of `expect`, when a program waits for input, or when the
    time is over. Then `running` says whether the command goes on. One command runs at a time: while
    one does, another is refused with 409 (`busy`). If the client leaves, the command is stopped as
    at the end of its time.
    """
    answer = await kept_shells.run(
        *(context.principal, context.session(), name, body.command, shell_until(body))
    )
    return shell_answer(answer)


@operation(
    "POST",
    _SHELL + "/input",
    Access.WORK,
    tag=_TAG,
    summary="Give input to a shell's program",
    answers="What has come of the command since.",
    errors=WORK_ERRORS,
    examples={"line": {"text": "6 * 7\n", "expect": ">>> "}, "wait": {"text": "", "timeout": 30}},
)
async def give_shell_input(
    context: Context, kept_shells: KeptShells, name: str, body: ShellInputBody
) -> ShellAnswer:
    """Types a text into the program that runs, and answers as `run` does.

    Without a command that runs it is a conflict, so no input becomes a command.
    """
    answer = await kept_shells.input(
        *(context.principal, context.session(), name, body.text, shell_until(body))
    )
    return shell_answer(answer)


@operation(
    "POST",
    _SHELL + "/interrupt",
    Access.WORK,
    tag=_TAG,
    summary="Interrupt a shell's command",
    answers="The shell.",
    errors=WORK_ERRORS,
    stops=stops.interrupts_shell,
)
async def interrupt_shell(
    context: Context, kept_shells: KeptShells, name: str, body: NoBody
) -> Shell:
    """Sends SIGINT to the programs in the foreground, as Ctrl-C does; the shell stays.

    Whoever waits for the command gets its answer. If no command runs, nothing happens.
    """
    interrupting = kept_shells.interrupt(context.session(), name)
    return shell(await context.work.complete(interrupting))


@operation(
    "DELETE",
    _SHELL,
    Access.WORK,
    tag=_TAG,
    summary="End a shell",
    answers="The shell as it was.",
    errors=WORK_ERRORS,
    stops=stops.closes_shell,
)
async def close_shell(context: Context, kept_shells: KeptShells, name: str) -> Shell:
    """Ends a shell and everything that it has started."""
    return shell(await context.work.complete(kept_shells.close(context.session(), name)))
