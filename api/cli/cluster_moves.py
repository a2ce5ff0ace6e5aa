"""Commands that empty a node of a cluster, and move single sessions."""

from contextlib import suppress
from typing import TYPE_CHECKING, Annotated

import typer

from api.cli.cluster_database import run_now, with_database
from paddock.cli.connection import Connection, perhaps_remote
from paddock.cli.exits import Failure, Status
from paddock.cli.options import AsJson
from paddock.cli.output import note, print_done, print_json, working

if TYPE_CHECKING:
    from orchestrator.cluster.postgres.pool import ClusterDatabase

# Somebody waits for the names in a shell.
_COMPLETION_SECONDS = 2.0


def complete_node(incomplete: str) -> list[str]:
    """Matching names of nodes; none if the database does not answer at once."""

    async def names(database: "ClusterDatabase") -> list[str]:
        from orchestrator.cluster.postgres.directory import PostgresDirectory

        return [node.name for node in await PostgresDirectory(database).nodes()]

    # Whatever is wrong: a shell that completes words shows no errors.
    with suppress(Exception):
        known = run_now(with_database(names), _COMPLETION_SECONDS)
        return [name for name in known if name.startswith(incomplete)]
    return []


NodeName = Annotated[
    str, typer.Argument(metavar="NODE", help="The node's name.", autocompletion=complete_node)
]


@perhaps_remote
async def drain(
    connection: Connection,
    node: NodeName,
    move: Annotated[bool, typer.Option("--move", help="Move its sessions to other nodes.")] = False,
    wait: Annotated[
        int,
        typer.Option(metavar="SECONDS", min=0, max=86_400, help="How long busy ones may take."),
    ] = 0,
    end: Annotated[bool, typer.Option("--end", help="End what has not moved by then.")] = False,
    as_json: AsJson = False,
) -> int | None:
    """Put no new sessions on a node; those that it has go on, or move to other nodes.

    Without --move only the database is asked. To move sessions, a gateway is asked, with an admin's
    key. The command may be repeated; its status is 1 if sessions stay that were to move.
    """
    if not move:
        if wait or end:
            raise typer.BadParameter("needs --move", param_hint="--wait, --end")
        await _drain(node, as_json=as_json)
        return None
    async with connection.open() as paddock:
        with working(f"moving the sessions of {node}"):
            changed = await paddock.nodes.drain(
                node, move=True, wait=wait, busy="end" if end else "stay"
            )
    drained = changed.drained
    if drained is None:
        raise Failure("the server did not move sessions", "ask a gateway of the cluster")
    if as_json:
        print_json(drained.model_dump())
    else:
        for each in drained.stayed:
            note(f"{each.id} stays: {each.reason}")
        note(f"{node}: {drained.moved} moved, {drained.ended} ended, {len(drained.stayed)} stay")
    return Status.FAILED if drained.stayed else None


async def _drain(node: str, *, as_json: bool) -> None:
    from orchestrator.cluster.postgres.nodes import NodeAdmin

    with working(f"draining {node}"):
        await with_database(lambda database: NodeAdmin(database).drain(node))
    if as_json:
        print_json({"node": node, "state": "draining"})
        return
    note(f"{node} takes no new sessions; `paddock cluster undrain {node}` changes that")


@perhaps_remote
async def move(
    connection: Connection,
    session: Annotated[str, typer.Argument(metavar="SESSION", help="The session's id.")],
    node: NodeName,
    as_json: AsJson = False,
) -> None:
    """Move an idle session to another node, with all that it has; it keeps its id and its handle.

    Over the API, with an admin's key: a gateway finds the session's node. If anything fails, the
    session stays where it is.
    """
    async with connection.open() as paddock:
        with working(f"moving {session} to {node}"):
            moved = await paddock.nodes.move(session, node)
    print_done(moved, as_json, f"{session} is on {node}")
