"""`python -m scripts.cluster`: a cluster on this machine, for development and tests."""

import argparse
import os
import shutil
import sys
from pathlib import Path

from images.progress import failure, step
from images.recipes import CONTROL_PLANE, SANDBOX
from scripts.cluster import network
from scripts.cluster.building import Cluster
from scripts.cluster.database import DatabaseError
from scripts.cluster.gateways import Gateway
from scripts.cluster.images import CACHE
from scripts.cluster.layout import DATABASE, GATEWAY_PORT, ClusterError, Layout
from scripts.cluster.machines import ROOT, within
from scripts.cluster.nodes import Node
from scripts.cluster.removal import end_machines

_DIRECTORY = ROOT / ".cluster"
_PLUGS = {"cut": network.cut, "heal": network.heal}
# By the kind of part that they are for.
_ANY, _NODE, _PLUGGED = "node1, gateway1, database, …", "node1, …", "node1, database, …"
_MANAGERS = {
    "compose": "run compose.yaml with deploy/compose.yaml on each machine",
    "swarm": "join the machines' engines to a Swarm, which runs deploy/swarm",
    "kubernetes": "start a Kubernetes of the machines, which runs deploy/kubernetes",
}
_COMMANDS = {
    "start": (_ANY, "start it, and wait until it is ready; a node's control plane"),
    "stop": (_ANY, "stop it cleanly; a node's sandboxes keep running"),
    "kill": (_ANY, "end it with SIGKILL; a node's sandboxes keep running"),
    "pause": (_ANY, "stop it where it is, with SIGSTOP"),
    "resume": (_ANY, "let it go on"),
    "cut": (_PLUGGED, "unplug it: nothing that is sent arrives, and nobody is told"),
    "heal": (_PLUGGED, "plug it in again"),
    "lose": (_NODE, "end a node's machine with everything on it; `up` starts it again"),
    "enter": (_NODE, "run a command on a node's machine, or a shell"),
}


def main(arguments: list[str] | None = None) -> int:
    """Runs one command and returns its exit status."""
    options = _parser().parse_args(arguments)
    cluster = Cluster(Layout(options.directory.resolve()))
    try:
        if options.command == "up":
            cluster.up(options.nodes, options.image, step, options.gateways, options.port)
            _print_where(cluster)
        elif options.command in _MANAGERS:
            start = getattr(cluster, options.command)
            start(options.nodes, options.image, options.control_plane, step)
            _print_database(cluster)
        elif options.command == "postgres":
            cluster.postgres(step)
            _print_database(cluster)
        elif options.command == "where":
            _print_where(cluster)
        elif options.command == "down":
            cluster.down()
            if options.images:
                shutil.rmtree(CACHE, ignore_errors=True)
            step(f"nothing is left of the cluster in {_shown(cluster.layout.directory)}")
        elif options.command == "enter":
            return _enter(cluster, options.part, options.words)
        else:
            _change(cluster, options.command, options.part)
    except (ClusterError, DatabaseError) as error:
        failure(str(error))
        return 1
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m scripts.cluster",
        description="A cluster on this machine, for development and tests: each node has a machine "
        "of namespaces with an engine of its own; with a PostgreSQL and gateways. Needs root.",
    )
    parser.add_argument(
        *("--directory", "-C"),
        type=Path,
        default=_DIRECTORY,
        help="where everything of it is (default: .cluster in this checkout)",
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    command = commands.add_parser("up", help="start everything that does not run")
    command.add_argument("nodes", nargs="?", type=int, default=3, help="how many (default: 3)")
    command.add_argument(
        "--image", default=SANDBOX.image, help="of sandboxes (default: %(default)s)"
    )
    command.add_argument("--gateways", type=int, default=2, help="how many (default: 2)")
    port = "of the first gateway; the others have the next ones (default: %(default)s)"
    command.add_argument("--port", type=int, default=GATEWAY_PORT, help=port)
    for name, text in _MANAGERS.items():
        command = commands.add_parser(name, help=text)
        command.add_argument("nodes", nargs="?", type=int, default=2, help="how many (default: 2)")
        command.add_argument(
            "--image", default=SANDBOX.image, help="of sandboxes (default: %(default)s)"
        )
        command.add_argument(
            "--control-plane",
            default=CONTROL_PLANE.image,
            metavar="IMAGE",
            help="of nodes and gateways (default: %(default)s)",
        )
    commands.add_parser("postgres", help="start the database alone")
    commands.add_parser("where", help="print the URLs, and where the keys are")
    command = commands.add_parser("down", help="end and remove all of it, whatever its state")
    command.add_argument("--images", action="store_true", help=f"also the cache in {CACHE}")
    for name, (parts, text) in _COMMANDS.items():
        command = commands.add_parser(name, help=text)
        command.add_argument("part", metavar="PART", help=parts)
        if name == "enter":
            command.add_argument("words", nargs=argparse.REMAINDER, metavar="COMMAND")
    return parser


def _change(cluster: Cluster, command: str, name: str) -> None:
    if command in _PLUGS:
        if name != DATABASE:
            cluster.node(name)
        _PLUGS[command](cluster.layout, name)
    elif command == "lose":
        end_machines(cluster.layout, cluster.node(name).machine.directory)
    else:
        getattr(cluster.part(name), command)()
    step(f"{name}: {command}: done")


def _enter(cluster: Cluster, name: str, words: list[str]) -> int:
    first = cluster.node(name).machine.first_process()
    if first is None:
        raise ClusterError(f"{name} does not run: `python -m scripts.cluster up` starts it")
    command = [*within(first.pid), *(words or ["bash"])]
    os.execvpe(command[0], command, cluster.node(name).environment())  # noqa: S606


def _print_where(cluster: Cluster) -> None:
    parts: list[Node | Gateway] = [*cluster.nodes(), *cluster.gateways()]
    for part in parts:
        state = "" if part.process() is not None else " (does not run)"
        step(f"{part.name} on {part.url}{state}")
    _print_database(cluster)
    step(f"admin key in {_shown(cluster.layout.admin_key)}")
    step("`make cluster-down` removes everything")


def _print_database(cluster: Cluster) -> None:
    database = cluster.database
    state = "" if database.pid() is not None else " (does not run)"
    step(f"database {database.url(password=False)}{state}")
    step(
        f"its password in {_shown(database.password_file)}; `make cluster-down` removes everything"
    )


def _shown(path: Path) -> str:
    here = Path.cwd()
    return str(path.relative_to(here) if path.is_relative_to(here) else path)


if __name__ == "__main__":
    sys.exit(main())
