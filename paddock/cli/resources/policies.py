"""Permission levels: what they allow, and why something is refused."""

import shlex
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Annotated, Any

import typer

from paddock.cli.connection import remote
from paddock.cli.egress_rules import rules_text
from paddock.cli.exits import Failure, Status
from paddock.cli.levels import complete_level, complete_session
from paddock.cli.listing import TABLE, Listing, lists, print_items
from paddock.cli.options import (
    TAKES_COMMAND,
    AsJson,
    OptionalLevel,
    WorkingDirectory,
    example,
    group,
)
from paddock.cli.output import (
    STYLES,
    note,
    print_fields,
    print_json,
    print_line,
    seconds,
    size,
)
from paddock.cli.resources.session_policies import policy_of, print_policies, print_policy

if TYPE_CHECKING:
    from paddock.client import LevelConfinement, LevelRates, LevelRequirements, Paddock

# The default of sessions.
_DEFAULT_LEVEL = "medium"
_DEFAULT_POLICY = "SAFE_ANALYSIS"

app = group("Permission levels, and explanations of their rules.")


@app.command("list", epilog=example("paddock policies list"))
@remote
@lists
async def list_all(paddock: "Paddock", listing: Listing = TABLE) -> None:
    """List the permission levels, lowest first, and the policies that sessions may have.

    -q, --format and --json are about the levels alone.
    """
    levels, policies = await paddock.policies.list(), await paddock.policies.sessions()
    print_items(
        levels,
        listing,
        ("level", ">commands", "network", ">cpus", ">memory", ">processes", "time-out / most"),
        lambda level: (
            level.name,
            "any" if level.commands is None else len(level.commands),
            level.network,
            level.limits.cpus,
            size(level.limits.memory_bytes),
            level.limits.pids,
            f"{seconds(level.timeout_default)} / {seconds(level.timeout_max)}",
        ),
        nothing="no levels",
    )
    if listing == TABLE:
        print_line()
        print_policies(policies)


@app.command(epilog=example("paddock policies show low"))
@remote
async def show(
    paddock: "Paddock",
    level: Annotated[
        str,
        typer.Argument(
            metavar="LEVEL|POLICY",
            help="low, medium, high, …, SAFE_ANALYSIS, SAFE_EDIT, SAFE_WORK, …",
            autocompletion=complete_level,
        ),
    ],
    as_json: AsJson = False,
) -> None:
    """Show all details of one permission level or session policy."""
    levels = {each.name: each for each in await paddock.policies.list()}
    found = levels.get(level)
    if found is None:
        await _show_policy(paddock, level, levels, as_json)
        return
    if as_json:
        print_json(found.raw)
        return
    print_fields(
        (
            ("level", found.name),
            ("commands", _names(found.commands)),
            ("rank", found.rank),
            ("highest risk tier", found.risk_tier),
            ("network", found.network),
            ("may reach", rules_text(found.egress.allow)),
            ("may not reach", rules_text(found.egress.deny)),
            ("needs", _needs(found.requires)),
            ("goes without", ", ".join(found.requires.without) or None),
            ("runtime", found.runtime or "the usual one"),
            ("confined to", _confinement(found.confinement)),
            ("also readable", " ".join(found.confinement.read) or None),
            ("also executable", " ".join(found.confinement.execute) or None),
            ("writable code", "yes" if found.confinement.writable_code else "no"),
            ("executes own files", "no" if found.noexec else "yes"),
            ("environment", _names(found.environment)),
            *((f"${name}", value) for name, value in found.variables.items()),
            ("home", found.home),
            ("cpus", found.limits.cpus),
            ("memory", size(found.limits.memory_bytes)),
            ("processes", found.limits.pids),
            ("/tmp", size(found.limits.tmp_bytes)),  # noqa: S108 - the sandbox's
            ("/dev/shm", size(found.limits.shm_bytes)),  # noqa: S108
            ("workspace", size(found.limits.workspace_bytes)),
            *_rates(found.rates),
            ("time-out", f"{found.timeout_default} s, at most {found.timeout_max} s"),
            ("output kept", size(found.output_bytes)),
            ("on record", size(found.audit_bytes)),
            ("sha256", found.sha256),
        )
    )


async def _show_policy(paddock: "Paddock", name: str, levels: Iterable[str], as_json: bool) -> None:
    policies = {each.name: each for each in await paddock.policies.sessions() if each.name}
    found = policies.get(name)
    if found is None:
        named = ", ".join((*levels, *policies))
        raise Failure(f"no level or session policy {name}", f"there are {named}", Status.USAGE)
    if as_json:
        print_json(found.raw)
    else:
        print_policy(found)


@app.command(
    epilog=example("paddock policies explain --level low -- find . -delete"),
    context_settings=TAKES_COMMAND,
)
@remote
async def explain(
    paddock: "Paddock",
    words: Annotated[
        list[str] | None,
        typer.Argument(metavar="COMMAND", help="The words of a command, after --."),
    ] = None,
    level: OptionalLevel = None,
    session: Annotated[
        str | None,
        typer.Option(
            "--session",
            help="Use the rules of this session.",
            autocompletion=complete_session,
        ),
    ] = None,
    line: Annotated[
        str | None, typer.Option("--command", "-c", metavar="LINE", help="A command as one line.")
    ] = None,
    shell: Annotated[
        str | None,
        typer.Option("--shell", "-s", metavar="LINE", help="A line for bash, as of `exec -s`."),
    ] = None,
    path: Annotated[
        str | None, typer.Option("--path", metavar="PATH", help="A path of the file operations.")
    ] = None,
    operation: Annotated[
        str | None,
        typer.Option(
            "--operation", metavar="NAME", help="An operation of a turn; its path in --ref."
        ),
    ] = None,
    ref: Annotated[
        str | None, typer.Option("--ref", metavar="PATH", help="The path of the operation.")
    ] = None,
    policy: Annotated[
        str | None,
        typer.Option("--policy", metavar="NAME|FILE", help="Use this session policy for it."),
    ] = None,
    cwd: WorkingDirectory = None,
    as_json: AsJson = False,
) -> None:
    """Show whether something would be allowed, what stops it, and what to do instead.

    It may be a command, a line for bash, a path, or an operation of a turn. Nothing is run or
    recorded. By default, the rules of level medium apply, and SAFE_ANALYSIS for operations. The
    exit status is 4 if it would be refused.
    """
    if sum(thing is not None for thing in (words or None, line, shell, path, operation)) != 1:
        raise Failure(
            "give one of -- COMMAND, --command, --shell, --path and --operation",
            "see `paddock policies explain --help`",
            Status.USAGE,
        )
    if sum(whose is not None for whose in (level, session, policy)) > 1:
        raise Failure("give one of --level, --session and --policy", status=Status.USAGE)
    asked: dict[str, Any] = {
        "command": line,
        "argv": words or None,
        "shell": shell,
        "path": path,
        "cwd": cwd,
    }
    whose: dict[str, Any] = {"session": session} if session else {"level": level or _DEFAULT_LEVEL}
    if operation is not None:
        asked = {"operation": operation, "args": {"ref": ref} if ref is not None else None}
        if session is None and level is None:
            whose = {"policy": policy_of(policy or _DEFAULT_POLICY)}
    found = await paddock.explain(**whose, **asked)
    if as_json:
        print_json(found.raw)
    else:
        what = operation or path or line or shell or shlex.join(words or [])
        mark = "✓ allowed" if found.allow else "✗ refused"
        print_line((mark, f"bold {STYLES[found.verdict]}"), ("  ", ""), (what, "bold"))
        print_fields((("rule", found.rule), ("because", found.message), ("instead", found.remedy)))
        below = [stop for stop in found.layers if stop.layer not in ("parser", "policy")]
        if below:
            what = "it would be stopped" if found.allow else "without that rule it would be stopped"
            note(f"{what} all the same by")
        print_fields((stop.layer, f"{stop.message}. {stop.remedy}") for stop in below)
    if not found.allow:
        raise typer.Exit(Status.REFUSED)


def _names(names: list[str] | None) -> str:
    return "any" if names is None else " ".join(names) or "none"


def _needs(requires: "LevelRequirements") -> str:
    needs = [f"Landlock {requires.landlock}"] if requires.landlock else []
    needs += [name for name in ("seccomp", "mounts", "quota") if getattr(requires, name)]
    return ", ".join(needs) or "nothing"


def _rates(rates: "LevelRates") -> Iterator[tuple[str, str]]:
    for name in ("disk_read", "disk_write", "network_receive", "network_send"):
        rate = getattr(rates, name)
        if rate is not None:
            yield name.replace("_", " "), f"{size(rate)} a second"


def _confinement(confinement: "LevelConfinement") -> str:
    if confinement.paths:
        return "its commands' programs, what they need, the workspace and /tmp"
    return "the read-only image, the workspace and /tmp"
