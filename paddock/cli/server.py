"""The server's additions to the command line; paddock-server provides them."""

from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import entry_points
from pathlib import Path

import typer

from paddock.cli.exits import Failure

# The entry point group that names an installed server's `Server`.
GROUP = "paddock.server"


@dataclass(frozen=True, slots=True)
class Server:
    """The commands that act on this machine, and the settings that other commands use.

    `find_url` and `find_key` (the key, or its file) are those of the state directory's control
    plane; they raise Failure. `check_announced` raises Failure if that control plane has not told
    where it listens. `tool_names` lists this machine's oneshot tools. `explain` translates
    the server's exceptions; None for any other.
    """

    machine: typer.Typer
    tools: typer.Typer
    explain: Callable[[BaseException], Failure | None]
    find_url: Callable[[], str]
    find_key: Callable[[], str | Path]
    check_announced: Callable[[], None]
    tool_names: Callable[[], list[str]]


def server() -> Server:
    """The installed server, or a placeholder that reports that it is missing.

    Raises: Failure if the installed one can't be loaded.
    """
    for point in entry_points(group=GROUP):
        try:
            found: Server = point.load()
        except ImportError as error:
            what = f"the installed server can't be loaded: {error}"
            raise Failure(what, "is a package of the same name in this directory?") from None
        return found
    from paddock.cli.absent import absent

    return absent()
