"""The cluster of this machine: its database, its nodes, certificates for both."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from api.cli import cluster_record
from api.cli.cluster_database import (
    ask,
    cluster_access,
    run_now,
    without_driver,
)
from api.cli.cluster_import import import_
from api.cli.cluster_moves import NodeName, drain, move
from paddock.cli.listing import TABLE, Listing, lists, print_items
from paddock.cli.options import AsJson, example, group
from paddock.cli.output import Cell, note, print_fields, print_json, size, working
from paddock.cli.several import confirm

if TYPE_CHECKING:
    from orchestrator.cluster.directory import Node
    from orchestrator.cluster.postgres.pool import ClusterDatabase

app = group("A cluster of several machines: its database, its nodes and their certificates.")
app.command(epilog=example("paddock cluster record web-1"))(cluster_record.record)


@app.command(epilog=example("paddock cluster init"))
def init(as_json: AsJson = False) -> None:
    """Make the tables of a new cluster in its database, and an admin key for all of its machines.

    PADDOCK_CLUSTER and PADDOCK_CLUSTER_DATABASE name both. The database must be there, empty, and
    its user may make tables. What is there already stays as it is.
    """
    applied = _migrate(new=True)
    secret = ask(_admin_key, "keys")
    access = cluster_access()
    if as_json:
        print_json({"cluster": access.cluster, "migrations": applied, "admin_key": secret})
        return
    rows = (("cluster", access.cluster), ("tables", _made(applied)), ("admin key", secret))
    print_fields(rows)
    if secret is not None:
        note("The key is not shown again; the database has only its hash.")
    note("Set on each node, besides what it has already:")
    for name, value in _node_settings(access.cluster):
        note(f"  {name}={value}")
    note(
        "`paddock cluster certificates` makes certificates; gateways need PADDOCK_CLUSTER,"
        " PADDOCK_CLUSTER_DATABASE and PADDOCK_GATEWAY_CERT, _KEY and _CA."
    )


def _node_settings(cluster: str) -> tuple[tuple[str, str], ...]:
    return (
        ("PADDOCK_CLUSTER", cluster),
        ("PADDOCK_CLUSTER_DATABASE", "as here"),
        ("PADDOCK_NODE", "a name that no other node has"),
        ("PADDOCK_NODE_LISTEN", "0.0.0.0:8790"),
        ("PADDOCK_NODE_URL", "https://this-node.internal:8790"),
        ("PADDOCK_NODE_CERT", "its certificate"),
        ("PADDOCK_NODE_KEY", "its certificate's key"),
        ("PADDOCK_NODE_CA", "ca.pem"),
    )


def _made(applied: list[int]) -> str:
    if not applied:
        return "there already, and current"
    return f"made, by the migrations {', '.join(map(str, applied))}"


@app.command(epilog=example("paddock cluster migrate"))
def migrate(as_json: AsJson = False) -> None:
    """Bring the tables to this version's schema, before the cluster's machines are upgraded.

    Machines of the version before go on working with it. All changes are made, or none.
    """
    applied = _migrate(new=False)
    if as_json:
        print_json({"migrations": applied})
        return
    note(f"applied: {', '.join(map(str, applied))}" if applied else "the tables are current")


def _migrate(*, new: bool) -> list[int]:
    try:
        from orchestrator.cluster.postgres import schema
        from orchestrator.cluster.postgres.pool import administering
    except ModuleNotFoundError as error:
        raise without_driver(error) from None

    async def run() -> list[int]:
        access = cluster_access()
        async with administering(access) as connection:
            return await schema.migrate(connection, access.cluster, new=new)

    with working("making the tables" if new else "changing the tables"):
        return run_now(run())


async def _admin_key(database: "ClusterDatabase") -> str | None:
    """A new admin key, if there is none."""
    from orchestrator.cluster.postgres.key_table import KeyTable
    from orchestrator.rules.access.keys import ADMIN_NAME, Principal, Role

    table = KeyTable(database)
    if any(key.role is Role.ADMIN for key in await table.list()):
        return None
    return await table.add(Principal(ADMIN_NAME, Role.ADMIN))


@app.command(epilog=example("paddock cluster status"))
def status(as_json: AsJson = False) -> None:
    """Show whether the database answers, its schema, and how many nodes and sessions there are."""
    from dataclasses import asdict

    from orchestrator.cluster.postgres import status as reading

    found = ask(reading.read, "asking the database")
    if as_json:
        print_json(asdict(found))
        return
    nodes = f"{found.nodes} ({found.alive} alive, {found.draining} draining)"
    print_fields(
        (
            ("cluster", found.cluster),
            ("schema", found.schema),
            ("nodes", nodes),
            ("sessions", found.sessions),
            ("workspaces", found.workspaces),
            ("keys", found.keys),
        )
    )


@app.command(epilog=example("paddock cluster nodes"))
@lists
def nodes(listing: Listing = TABLE) -> None:
    """List the nodes of the cluster, those that do not answer included."""
    from orchestrator.cluster.postgres.directory import PostgresDirectory

    found = ask(lambda database: PostgresDirectory(database).nodes(), "asking the database")
    columns = ("name", "state", ">sessions", ">cpus", ">memory", "seen", "version", "url")
    print_items(
        map(_shown, found), listing, columns, _row, nothing="no node has joined the cluster yet"
    )


def _shown(node: "Node") -> dict[str, Any]:
    from orchestrator.cluster import reports

    members = reports.stored(node.report)
    return {
        **members,
        "state": node.report.state if node.alive else "lost",
        "alive": node.alive,
        "silent_seconds": round(node.silent_seconds, 1),
    }


def _row(item: dict[str, Any]) -> tuple[Cell, ...]:
    used, capacity = item["used"], item["capacity"]
    return (
        item["name"],
        item["state"],
        f"{used['sandboxes']}/{capacity['sandboxes']}",
        f"{used['cpus']:g}/{capacity['cpus']:g}",
        f"{size(used['memory_bytes'])}/{size(capacity['memory_bytes'])}",
        f"{item['silent_seconds']:.0f} s ago",
        item["version"],
        item["url"],
    )


app.command("import", epilog=example("paddock cluster import"))(import_)
app.command(epilog=example("paddock cluster drain node-1 --move --wait 600"))(drain)
app.command(epilog=example("paddock cluster move sess-1f0c node-2"))(move)


@app.command(epilog=example("paddock cluster undrain node-1"))
def undrain(node: NodeName) -> None:
    """Put new sessions on a drained node again."""
    from orchestrator.cluster.postgres.nodes import NodeAdmin

    ask(lambda database: NodeAdmin(database).undrain(node), f"undraining {node}")
    note(f"{node} takes new sessions")


@app.command(epilog=example("paddock cluster forget node-1"))
def forget(
    node: NodeName,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask first.")] = False,
    as_json: AsJson = False,
) -> None:
    """Give up a node that does not come back: its sessions are over, and their ids are free.

    Only for a machine that is switched off or lost: one that is merely cut off goes on with its
    sessions, and these would then be there twice. Its workspaces are given up too, and its keys'
    quotas no longer count them. If it returns, it ends the sessions that it still has.
    """
    from orchestrator.cluster.postgres.nodes import NodeAdmin

    if not yes:
        held = ask(lambda database: NodeAdmin(database).holds(node), "asking the database")
        confirm(
            f"give up {held.sessions} sessions and {held.workspaces} workspaces on {node}, which"
            " must be switched off"
        )
    gone = ask(lambda database: NodeAdmin(database).forget(node), f"forgetting {node}")
    if as_json:
        print_json({"node": node, **gone._asdict()})
        return
    note(f"{node} is given up, with {gone.sessions} sessions and {gone.workspaces} workspaces")


@app.command(epilog=example("paddock cluster certificates --node node-1 --host node-1.internal"))
def certificates(
    node: Annotated[
        str | None, typer.Option("--node", metavar="NAME", help="For the node with that name.")
    ] = None,
    gateway: Annotated[bool, typer.Option("--gateway", help="For the gateways.")] = False,
    host: Annotated[
        list[str] | None,
        typer.Option(
            "--host",
            metavar="HOST",
            help="A name or an address in the node's URL, by default its name; may be repeated.",
        ),
    ] = None,
    directory: Annotated[
        Path, typer.Option("--directory", metavar="DIR", help="Where the files are.")
    ] = Path("cluster-certificates"),
    replace: Annotated[bool, typer.Option("--replace", help="Replace one that is there.")] = False,
    as_json: AsJson = False,
) -> None:
    """Make certificates for the connections between gateways and nodes, by an authority of its own.

    The first call makes the authority. Keep its key, ca.key, on no node and no gateway.
    """
    from orchestrator.cluster.certificates import GATEWAY, issue
    from orchestrator.settings.groups.cluster import checked_name

    if (node is None) is not gateway:
        raise typer.BadParameter("give one of them", param_hint="--node, --gateway")
    name = node or GATEWAY
    try:
        checked_name(name)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--node") from None
    if node in (GATEWAY, "ca") or (gateway and host):
        hint = "--host" if gateway else "--node"
        raise typer.BadParameter("is for nodes only" if gateway else "is taken", param_hint=hint)
    if GATEWAY in (host or ()):
        # Whoever has that name in a certificate is heard as a gateway.
        raise typer.BadParameter("gateway is the name of gateways only", param_hint="--host")
    files = issue(directory, name, host or [name], replace=replace)
    if as_json:
        print_json({label: str(path) for label, path in files._asdict().items()})
        return
    kind = "PADDOCK_GATEWAY" if gateway else "PADDOCK_NODE"
    labels = (f"{kind}_CERT", f"{kind}_KEY", f"{kind}_CA")
    print_fields(zip(labels, map(str, files), strict=True))
