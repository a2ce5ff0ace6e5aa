"""Stands in for the server if only the client is installed."""

from collections.abc import Callable, Mapping
from typing import NoReturn

import typer

from paddock.cli.exits import Failure, Status
from paddock.cli.server import Server

_ANY_ARGUMENTS = {"ignore_unknown_options": True, "allow_extra_args": True}
_MACHINE = {
    "serve": "Run the control plane here.",
    "doctor": "Check whether this machine can run sandboxes.",
    "backup": "Write a backup of the state directory to a file.",
    "restore": "Restore a backup of the state directory.",
    "openapi": "Print the OpenAPI document of the HTTP API.",
    "keys": "API keys of the control plane on this machine.",
    "images": "Images on this machine's container engine.",
}
_TOOLS = {
    "check": "Check manifests.",
    "list": "List the tools of the tools folder and the packaged ones.",
}
_REMEDY = "install paddock-server, or run it in the server's image"


def absent() -> Server:
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
    raise Failure("no control plane is named", "set PADDOCK_URL, or give --url URL", Status.USAGE)


def _no_key() -> NoReturn:
    raise Failure("no key", "set PADDOCK_KEY, or give --key-file FILE", Status.USAGE)
