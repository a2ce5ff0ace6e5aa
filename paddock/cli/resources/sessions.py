"""Sessions: list, show, create, pause, resume and end them."""

from typing import TYPE_CHECKING, Annotated

import typer

from paddock.cli.connection import remote
from paddock.cli.egress_rules import Reached, narrowing
from paddock.cli.options import (
    AsJson,
    Image,
    OptionalLevel,
    SecretNames,
    SessionId,
    Variables,
    example,
    group,
    pairs,
    secret_values,
)
from paddock.cli.output import age, note, print_items, print_json, working
from paddock.cli.resources import inspection
from paddock.cli.resources.budgets import Amounts, amounts
from paddock.cli.resources.session_policies import Policy, policy_of

if TYPE_CHECKING:
    from paddock.client import Paddock

app = group("Sessions: sandboxes and their workspaces.")

_Purge = Annotated[bool, typer.Option("--purge", help="Remove its files as well.")]


@app.command("list", epilog=example("paddock sessions list --status active"))
@remote
async def list_all(
    paddock: "Paddock",
    status: Annotated[
        str | None,
        typer.Option(
            metavar="STATUS",
            help="active, paused, ended, or a final status; includes old sessions.",
        ),
    ] = None,
    label: Annotated[
        str | None, typer.Option(metavar="KEY:VALUE", help="Only sessions with this label.")
    ] = None,
    work: Annotated[
        str | None, typer.Option("--work", metavar="ID", help="Only sessions of this work.")
    ] = None,
    parent: Annotated[
        str | None,
        typer.Option("--parent", metavar="ID", help="The children of this session instead."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """List the sessions that the key may see, newest first."""
    wanted = pairs([label], "--label", ":") if label else {}
    sessions = await paddock.sessions.list(
        status=status, label=next(iter(wanted.items()), None), work_id=work, parent=parent
    )
    found = [session.info for session in sessions]
    print_items(
        found,
        as_json,
        ("session", "status", "activity", "level", "owner", ">age", ">last used"),
        lambda info: (
            info.id,
            info.status,
            info.activity,
            info.permission_level,
            info.owner,
            age(info.created_at),
            age(info.last_activity_at),
        ),
        nothing="no sessions: `paddock sessions create` makes one",
    )


@app.command(epilog=example("paddock sessions show web-1"))
@remote
async def show(paddock: "Paddock", session: SessionId, as_json: AsJson = False) -> None:
    """Show a session: limits and usage, processes, commands, denials."""
    info = await paddock.sessions.inspect(session)
    if as_json:
        print_json(info.raw)
    else:
        inspection.show(info)


@app.command(epilog=example("paddock sessions create --id web-1 --level low"))
@remote
async def create(
    paddock: "Paddock",
    session_id: Annotated[
        str | None,
        typer.Option("--id", metavar="ID", help="The id of the session and its workspace."),
    ] = None,
    level: OptionalLevel = None,
    image: Image = None,
    label: Annotated[
        list[str] | None, typer.Option(metavar="KEY=VALUE", help="A label to filter by.")
    ] = None,
    env: Variables = None,
    secret: SecretNames = None,
    idle_timeout: Annotated[
        int | None, typer.Option(min=1, metavar="SECONDS", help="Maximum idle time.")
    ] = None,
    idle_action: Annotated[
        str | None,
        typer.Option(metavar="end|suspend", help="What happens then: by default its level's."),
    ] = None,
    wall_timeout: Annotated[
        int | None, typer.Option(min=1, metavar="SECONDS", help="Maximum lifetime.")
    ] = None,
    budget: Amounts = None,
    mount: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="A mount from the operator's list.")
    ] = None,
    role: Annotated[
        str | None, typer.Option(metavar="ROLE", help="The agent's role in Cedar policies.")
    ] = None,
    tool: Annotated[
        list[str] | None,
        typer.Option(metavar="TOOL", help="A tool that it may open; by default any."),
    ] = None,
    policy: Policy = None,
    reach: Reached = None,
    work: Annotated[
        str | None, typer.Option("--work", metavar="ID", help="Your name for its work.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Create a session; its handle, with which an agent uses it, is shown only once."""
    labels, variables = pairs(label, "--label"), pairs(env, "--env")
    secrets = secret_values(secret)
    limits, egress, rules = amounts(budget), narrowing(reach), policy_of(policy)
    with working("starting a sandbox"):
        session = await paddock.sessions.create(
            id=session_id,
            permission_level=level,
            image=image,
            labels=labels,
            env=variables,
            secrets=secrets or None,
            idle_timeout=idle_timeout,
            idle_action=idle_action,
            wall_timeout=wall_timeout,
            budget=limits,
            mounts=mount,
            role=role,
            tools=tool,
            policy=rules,
            egress=egress,
            work_id=work,
        )
    inspection.print_new(session, as_json)


@app.command(epilog=example("paddock sessions close web-1 --purge"))
@remote
async def close(paddock: "Paddock", session: SessionId, purge: _Purge = False) -> None:
    """End a session and everything that runs in it; its files stay unless --purge is given."""
    await paddock.sessions.close(session, purge=purge)
    note(f"{session} is closed{' and its files are removed' if purge else ''}")


@app.command(epilog=example("paddock sessions pause web-1"))
@remote
async def pause(paddock: "Paddock", session: SessionId) -> None:
    """Freeze every process of a session."""
    await paddock.sessions.pause(session)
    note(f"{session} is paused; `paddock sessions resume {session}` resumes it")


@app.command(epilog=example("paddock sessions resume web-1"))
@remote
async def resume(paddock: "Paddock", session: SessionId) -> None:
    """Resume a paused session."""
    await (await paddock.sessions.get(session)).resume()
    note(f"{session} is active again")


@app.command(epilog=example("paddock sessions abort web-1"))
@remote
async def abort(paddock: "Paddock", session: SessionId) -> None:
    """End a session as a failure; its files stay."""
    await paddock.sessions.abort(session)
    note(f"{session} is aborted")
