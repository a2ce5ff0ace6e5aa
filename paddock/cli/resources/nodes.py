"""Nodes of a cluster: listed, drained, given up."""

from typing import TYPE_CHECKING, Annotated

import typer

from paddock.cli.connection import remote
from paddock.cli.listing import TABLE, Listing, lists, print_items
from paddock.cli.options import AsJson, example, group
from paddock.cli.output import print_done, size

if TYPE_CHECKING:
    from paddock.client import Node, Paddock

app = group("Machines of a cluster. An admin's key can change them.")

_Name = Annotated[str, typer.Argument(metavar="NODE", help="The node's name.")]


@app.command("list", epilog=example("paddock nodes list"))
@remote
@lists
async def list_all(paddock: "Paddock", listing: Listing = TABLE) -> None:
    """List the nodes: what they are, what they have, and how much of it is used."""
    print_items(
        await paddock.nodes.list(),
        listing,
        ("name", "state", ">silent", ">sandboxes", ">cpus", ">memory", "labels", "version"),
        _row,
        nothing="there are no nodes: it is one machine, or the key does not see all sessions",
    )


@app.command(epilog=example("paddock nodes report"))
@remote
async def report(paddock: "Paddock", as_json: AsJson = False) -> None:
    """Show what the machine that answers has, and what of it is used."""
    found = await paddock.nodes.report()
    used, capacity = found.used, found.capacity
    print_done(
        found,
        as_json,
        f"{found.name}: {found.state}, {used.sandboxes}/{capacity.sandboxes} sandboxes, "
        f"{used.cpus:g}/{capacity.cpus:g} cores, "
        f"{size(used.memory_bytes)}/{size(capacity.memory_bytes)}",
    )


@app.command(epilog=example("paddock nodes drain node-1"))
@remote
async def drain(paddock: "Paddock", node: _Name, as_json: AsJson = False) -> None:
    """Give a node no new sessions; those that it has stay."""
    changed = await paddock.nodes.drain(node)
    print_done(changed, as_json, f"{node} gets no new sessions")


@app.command(epilog=example("paddock nodes undrain node-1"))
@remote
async def undrain(paddock: "Paddock", node: _Name, as_json: AsJson = False) -> None:
    """Give a node new sessions again."""
    changed = await paddock.nodes.undrain(node)
    print_done(changed, as_json, f"{node} gets new sessions")


@app.command(epilog=example("paddock nodes forget node-1"))
@remote
async def forget(paddock: "Paddock", node: _Name, as_json: AsJson = False) -> None:
    """Give up a node that is lost: its sessions are lost with it."""
    changed = await paddock.nodes.forget(node)
    print_done(changed, as_json, f"{node} is given up")


def _row(node: "Node") -> tuple[str, ...]:
    used, capacity = node.used, node.capacity
    return (
        node.name,
        node.state if node.alive or node.state == "gone" else f"{node.state}, silent",
        f"{node.silent_seconds:.0f} s",
        f"{used.sandboxes}/{capacity.sandboxes}",
        f"{used.cpus:g}/{capacity.cpus:g}",
        f"{size(used.memory_bytes)}/{size(capacity.memory_bytes)}",
        ",".join(f"{name}={value}" for name, value in sorted(node.labels.items())) or "-",
        node.version,
    )
