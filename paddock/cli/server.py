"""The server's additions to the command line: paddock-server's, or what stands in for them."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.metadata import entry_points
from pathlib import Path
from typing import NoReturn

import typer

from paddock.cli.exits import Failure, Status
from paddock.connect.address import GROUP
from paddock.connect.errors import NoAddressError

_ANY_ARGUMENTS = {"ignore_unknown_options": True, "allow_extra_args": True}
_MACHINE = {
    "serve": "Run the control plane here.",
    "gateway": "Run a gateway of a cluster here.",
    "doctor": "Check whether this machine can run sandboxes.",
    "backup": "Write a backup of the state directory to a file.",
    "restore": "Restore a backup of the state directory.",
    "openapi": "Print the OpenAPI document of the HTTP API.",
    "keys": "API keys of the control plane on this machine.",
    "images": "Images on this machine's container engine.",
    "cluster": "A cluster of several machines.",
}
_TOOLS = {
    "check": "Check manifests.",
    "list": "List the tools of the tools folder and the packaged ones.",
}
_REMEDY = "install paddock-server, or run it in the server's image"


@dataclass(frozen=True, slots=True)
class Server:
    """The commands that act on this machine, and the settings that other commands use.

    `find_url` and `find_key` (the key, or its file) are those of the state directory's control
    plane; they raise NoAddressError. `check_announced` raises it if that control plane has not told
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
    return _absent()


def _absent() -> Server:
    """A placeholder for the missing server."""
    return Server(
        machine=_commands("paddock", _MACHINE),
        tools=_commands("paddock tools", _TOOLS),
        explain=lambda _error: None,
        find_url=_no_url,
        find_key=_no_key,
        check_announced=_no_url,
        tool_names=list,
    )


def _commands(above: str, commands: Mapping[str, str]) -> typer.Typer:
    """Commands that accept any arguments and only report what they need."""
    app = typer.Typer()
    for name, help_text in commands.items():
        app.command(
            name,
            help=f"{help_text} Needs paddock-server.",
            context_settings=_ANY_ARGUMENTS,
        )(_refusal(f"{above} {name}"))
    return app


def _refusal(command: str) -> Callable[[], None]:
    def refuse() -> NoReturn:
        what = f"`{command}` needs the server, which is not installed here"
        raise Failure(what, _REMEDY, Status.NOT_INSTALLED)

    return refuse


def _no_url() -> NoReturn:
    raise NoAddressError(
        "no control plane is named", "set PADDOCK_URL, give --url URL, or `paddock login URL`"
    )


def _no_key() -> NoReturn:
    raise NoAddressError("no key", "set PADDOCK_KEY, give --key-file FILE, or `paddock login URL`")
