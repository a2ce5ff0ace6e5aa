"""Sessions: list, show, create, pause, resume and end them."""

from typing import TYPE_CHECKING, Annotated

import typer

from paddock.cli.connection import remote
from paddock.cli.egress_rules import Reached, narrowing
from paddock.cli.exits import Failure, Status
from paddock.cli.levels import complete_session
from paddock.cli.listing import TABLE, Listing, lists, print_items
from paddock.cli.mount_options import FromSnapshot, Mounts, VolumeUses, WorkspacePath, volume_uses
from paddock.cli.options import (
    AsJson,
    FromTemplate,
    Image,
    LabelPairs,
    LimitAmounts,
    NewId,
    OptionalLevel,
    SecretNames,
    SessionId,
    SessionIds,
    Variables,
    example,
    group,
    limit_amounts,
    pairs,
    secret_values,
)
from paddock.cli.output import age, note, print_json, working
from paddock.cli.own_session import note_image
from paddock.cli.resources import inspection
from paddock.cli.resources.budgets import Amounts, amounts
from paddock.cli.resources.session_policies import Policy, policy_of
from paddock.cli.several import confirm, each_of

if TYPE_CHECKING:
    from paddock.client import Paddock

app = group("Sessions: sandboxes and their workspaces.")

_Purge = Annotated[bool, typer.Option("--purge", help="Remove its files as well.")]


@app.command("list", epilog=example("paddock sessions list --status active"))
@remote
@lists
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
    metadata: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=TEXT", help="Only sessions with this text by that name."),
    ] = None,
    work: Annotated[
        str | None, typer.Option("--work", metavar="ID", help="Only sessions of this work.")
    ] = None,
    parent: Annotated[
        str | None,
        typer.Option("--parent", metavar="ID", help="The children of this session instead."),
    ] = None,
    listing: Listing = TABLE,
) -> None:
    """List the sessions that the key may see, newest first."""
    wanted = pairs([label], "--label", ":") if label else {}
    sessions = await paddock.sessions.list(
        status=status,
        label=next(iter(wanted.items()), None),
        metadata=pairs(metadata, "--metadata"),
        work_id=work,
        parent=parent,
    )
    found = [session.info for session in sessions]
    print_items(
        found,
        listing,
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
    session_id: NewId = None,
    level: OptionalLevel = None,
    image: Image = None,
    template: FromTemplate = None,
    label: LabelPairs = None,
    metadata: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=TEXT", help="A text to keep with the session."),
    ] = None,
    limits: LimitAmounts = None,
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
    mount: Mounts = None,
    volume: VolumeUses = None,
    from_snapshot: FromSnapshot = None,
    workspace_path: WorkspacePath = None,
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
    ensure: Annotated[
        bool, typer.Option("--ensure", help="If the one of --id lives, only show it.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Create a session; its handle, with which an agent uses it, is shown only once."""
    from paddock.client.session_terms import SessionTerms

    if ensure and session_id is None:
        raise Failure("--ensure goes with --id", status=Status.USAGE)
    labels, variables = pairs(label, "--label"), pairs(env, "--env")
    texts = pairs(metadata, "--metadata")
    total, egress, rules = amounts(budget), narrowing(reach), policy_of(policy)
    secrets, lower = secret_values(secret), limit_amounts(limits)
    terms = SessionTerms(
        permission_level=level,
        image=image,
        template=template,
        labels=labels,
        metadata=texts or None,
        env=variables,
        secrets=secrets or None,
        idle_timeout=idle_timeout,
        idle_action=idle_action,
        wall_timeout=wall_timeout,
        budget=total,
        limits=lower,
        mounts=mount,
        volumes=volume_uses(volume),
        from_snapshot=from_snapshot,
        workspace_path=workspace_path,
        role=role,
        tools=tool,
        policy=rules,
        egress=egress,
        work_id=work,
    )
    with working("starting a sandbox"):
        if ensure and session_id is not None:
            session = await paddock.sessions.ensure(session_id, **terms)
        else:
            session = await paddock.sessions.create(id=session_id, **terms)
    note_image(session)
    inspection.print_new(session, as_json)


@app.command(epilog=example("paddock sessions close web-1 --purge"))
@remote
async def close(
    paddock: "Paddock",
    sessions: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[SESSION]...", help="The sessions' ids.", autocompletion=complete_session
        ),
    ] = None,
    label: Annotated[
        str | None, typer.Option(metavar="KEY:VALUE", help="All live ones with this label.")
    ] = None,
    everything: Annotated[
        bool, typer.Option("--all", help="All live ones that the key may see.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask first.")] = False,
    purge: _Purge = False,
) -> None:
    """End sessions and everything that runs in them; their files stay unless --purge is given.

    Before those of a label, or all, are ended, it asks; --yes is the answer for programs.
    """
    if sum(map(bool, (sessions, label, everything))) != 1:
        raise Failure("give one of SESSION..., --label and --all", status=Status.USAGE)
    chosen = sessions or await _live(paddock, label)
    if not sessions and chosen and not yes:
        confirm(f"end {len(chosen)} sessions ({', '.join(chosen)})")
    await each_of(chosen, lambda one: paddock.sessions.close(one, purge=purge))
    done = f"{'is' if len(chosen) == 1 else 'are'} closed{' with all files' if purge else ''}"
    note(f"{' '.join(chosen)} {done}" if chosen else "there are no such sessions")


@app.command(epilog=example("paddock sessions pause web-1"))
@remote
async def pause(paddock: "Paddock", sessions: SessionIds) -> None:
    """Freeze every process of sessions."""
    await each_of(sessions, paddock.sessions.pause)
    for session in sessions:
        note(f"{session} is paused; `paddock sessions resume {session}` resumes it")


@app.command(epilog=example("paddock sessions resume web-1"))
@remote
async def resume(paddock: "Paddock", sessions: SessionIds) -> None:
    """Resume paused sessions."""

    async def one(session: str) -> None:
        await (await paddock.sessions.get(session)).resume()

    await each_of(sessions, one)
    note(f"active again: {' '.join(sessions)}")


@app.command(epilog=example("paddock sessions abort web-1"))
@remote
async def abort(paddock: "Paddock", sessions: SessionIds) -> None:
    """End sessions as failures; their files stay."""
    await each_of(sessions, paddock.sessions.abort)
    note(f"aborted: {' '.join(sessions)}")


@app.command(epilog=example("paddock sessions complete web-1"))
@remote
async def complete(paddock: "Paddock", sessions: SessionIds) -> None:
    """End sessions as successes; their files stay."""

    async def one(session: str) -> None:
        await (await paddock.sessions.get(session)).complete()

    await each_of(sessions, one)
    note(f"completed: {' '.join(sessions)}")


@app.command(epilog=example("paddock sessions interrupt web-1"))
@remote
async def interrupt(
    paddock: "Paddock",
    sessions: SessionIds,
    message: Annotated[
        str | None, typer.Option("--message", metavar="TEXT", help="For their next run.")
    ] = None,
) -> None:
    """End everything that runs in sessions; the sessions continue."""

    async def one(session: str) -> None:
        await (await paddock.sessions.get(session)).interrupt(message)

    await each_of(sessions, one)
    note(f"interrupted: {' '.join(sessions)}")


@app.command(epilog=example("paddock sessions handle web-1"))
@remote
async def handle(paddock: "Paddock", session: SessionId, as_json: AsJson = False) -> None:
    """Make and print a session's new handle, which invalidates the old one."""
    made = await (await paddock.sessions.get(session)).rotate_handle()
    if as_json:
        print_json({"handle": made})
    else:
        print(made)


@app.command(epilog=example("paddock sessions episode web-1 episode-2"))
@remote
async def episode(
    paddock: "Paddock",
    session: SessionId,
    name: Annotated[
        str | None, typer.Argument(metavar="[EPISODE]", help="Your name for it; none: it has none.")
    ] = None,
) -> None:
    """Name the episode of a session's work."""
    await (await paddock.sessions.get(session)).set_episode(name)
    note(f"{session} has {'no episode' if name is None else f'the episode {name}'}")


async def _live(paddock: "Paddock", label: str | None) -> list[str]:
    wanted = pairs([label], "--label", ":") if label else {}
    found = await paddock.sessions.list(label=next(iter(wanted.items()), None))
    return [each.id for each in found if each.info.live]
