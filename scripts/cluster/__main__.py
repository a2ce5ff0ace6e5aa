"""`python -m scripts.cluster`: a cluster on this machine, for development and tests."""

import argparse
import os
import shutil
import signal
import sys
from pathlib import Path

from images.progress import failure, step
from images.recipes import SANDBOX
from scripts.cluster import network
from scripts.cluster.building import Cluster
from scripts.cluster.database import DatabaseError
from scripts.cluster.images import CACHE
from scripts.cluster.layout import DATABASE, ClusterError, Layout
from scripts.cluster.machines import ROOT, within
from scripts.cluster.removal import end_machines

_DIRECTORY = ROOT / ".cluster"
_SIGNALS = {"kill": signal.SIGKILL, "pause": signal.SIGSTOP, "resume": signal.SIGCONT}
_PLUGS = {"cut": network.cut, "heal": network.heal}
_OF_ONE = {
    "start": "start its control plane, and wait until it is ready",
    "stop": "stop its control plane; its sandboxes keep running",
    "kill": "end its control plane with SIGKILL",
    "pause": "stop it where it is with SIGSTOP",
    "resume": "let it go on",
    "cut": "unplug it: nothing that is sent arrives, and nobody is told",
    "heal": "plug it in again",
    "lose": "end its machine with everything on it; `up` starts it again",
    "enter": "run a command on its machine: enter NODE COMMAND…",
}


def main(arguments: list[str] | None = None) -> int:
    """Runs one command and returns its exit status."""
    options = _parser().parse_args(arguments)
    cluster = Cluster(Layout(options.directory.resolve()))
    try:
        if options.command == "up":
            cluster.up(options.nodes, options.image, step)
            _print_where(cluster)
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
            return _enter(cluster, options.node, options.words)
        else:
            _change(cluster, options.command, options.node)
    except (ClusterError, DatabaseError) as error:
        failure(str(error))
        return 1
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m scripts.cluster",
        description="A cluster on this machine, for development and tests: each node has a machine "
        "of namespaces with an engine of its own; they share a PostgreSQL. Needs root.",
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
    commands.add_parser("postgres", help="start the database alone")
    commands.add_parser("where", help="print the URLs, and where the keys are")
    command = commands.add_parser("down", help="end and remove all of it, whatever its state")
    command.add_argument("--images", action="store_true", help=f"also the cache in {CACHE}")
    for name, text in _OF_ONE.items():
        command = commands.add_parser(name, help=text)
        command.add_argument(
            "node", help="node1, node2, …, or database" if _both(name) else "node1, …"
        )
        if name == "enter":
            command.add_argument("words", nargs=argparse.REMAINDER, metavar="COMMAND")
    return parser


def _both(command: str) -> bool:
    """Whether the command is for the database, too."""
    return command not in ("lose", "enter")


def _change(cluster: Cluster, command: str, name: str) -> None:
    if command in _PLUGS:
        if name != DATABASE:
            cluster.node(name)
        _PLUGS[command](cluster.layout, name)
    elif name == DATABASE and _both(command):
        getattr(cluster.database, command)()
    elif command in _SIGNALS:
        cluster.node(name).signal(_SIGNALS[command])
    elif command == "lose":
        end_machines(cluster.layout, cluster.node(name).machine.directory)
    elif command == "start":
        cluster.node(name).start()
    else:
        cluster.node(name).stop()
    step(f"{name}: {command}: done")


def _enter(cluster: Cluster, name: str, words: list[str]) -> int:
    first = cluster.node(name).machine.first_process()
    if first is None:
        raise ClusterError(f"{name} does not run: `python -m scripts.cluster up` starts it")
    command = [*within(first.pid), *(words or ["bash"])]
    os.execvpe(command[0], command, cluster.node(name).environment())  # noqa: S606


def _print_where(cluster: Cluster) -> None:
    for node in cluster.nodes():
        state = "" if node.process() is not None else " (does not run)"
        step(f"{node.machine.name} on {node.url}{state}")
    step(f"admin key in {_shown(cluster.layout.admin_key)}")
    _print_database(cluster)


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
