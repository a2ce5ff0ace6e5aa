"""What the server adds to the command line: its own distribution, paddock-server, has it."""

from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import entry_points
from pathlib import Path

import typer

from paddock.cli.exits import Failure

# The entry point group in which an installed server says where its `Server` is.
GROUP = "paddock.server"
PANEL = "This machine"


@dataclass(frozen=True, slots=True)
class Server:
    """The commands that act on this machine, and what its settings say to the others.

    `find_url` and `find_key` (the key, or the file that holds it) are those of the control plane
    whose state directory it is; they raise Failure. `tool_names` are of this machine's oneshot
    tools. `explain` knows the server's exceptions: None for any other.
    """

    machine: typer.Typer
    tools: typer.Typer
    explain: Callable[[BaseException], Failure | None]
    find_url: Callable[[], str]
    find_key: Callable[[], str | Path]
    tool_names: Callable[[], list[str]]


def server() -> Server:
    """The installed one, or what stands in its place and says that it is not installed.

    Raises: Failure where the installed one can't be loaded.
    """
    for point in entry_points(group=GROUP):
        try:
            found: Server = point.load()
        except ImportError as error:
            what = f"the server that is installed can't be loaded: {error}"
            raise Failure(what, "is a package of the same name in this directory?") from None
        return found
    from paddock.cli.absent import absent

    return absent()
