"""Commands that use a control plane: its URL, the key, and the lifetime of the connection."""

import inspect
import signal
import threading
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Concatenate, ParamSpec

import typer

from paddock.cli.exits import SIGNALLED, Failure, Status
from paddock.cli.server import server
from paddock.connect.address import KEY_VARIABLE, URL_VARIABLE, find_address
from paddock.connect.contexts import load_contexts
from paddock.connect.errors import NoAddressError

if TYPE_CHECKING:
    from paddock.client import Paddock


def complete_context(incomplete: str) -> list[str]:
    """Names of contexts, for shell completion."""
    try:
        names = load_contexts().by_name
    except NoAddressError:
        return []
    return [name for name in names if name.startswith(incomplete)]


_Url = Annotated[
    str | None,
    typer.Option(
        "--url",
        metavar="URL",
        help=f"The control plane; by default that of {URL_VARIABLE}, of the context, or of the "
        "state directory.",
    ),
]
_Key = Annotated[
    str | None,
    typer.Option(
        "--key",
        metavar="KEY",
        help=f"An API key or a session's handle; {KEY_VARIABLE} keeps it out of process lists.",
    ),
]
_KeyFile = Annotated[
    Path | None,
    typer.Option(
        "--key-file",
        metavar="FILE",
        help="A file with the key; by default admin.key in the state directory.",
    ),
]
_Context = Annotated[
    str | None,
    typer.Option(
        "--context",
        metavar="NAME",
        help="A control plane that `paddock login` has stored, with its key.",
        autocompletion=complete_context,
    ),
]

P = ParamSpec("P")


@dataclass(frozen=True, slots=True)
class Connection:
    """The options for the control plane's address and the key."""

    url: str | None
    key: str | None
    key_file: Path | None
    context: str | None = None

    def open(self) -> "Paddock":
        """A client; it sends nothing yet. Raises: Failure."""
        from paddock.client import Paddock

        try:
            found = find_address(
                *(self.url, self.key),
                key_file=self.key_file,
                context=self.context,
                local=server,  # finding it looks through all installed packages
            )
            return Paddock(found.url, found.token or found.key)
        except NoAddressError as error:
            status = Status.USAGE if error.listens else Status.UNREACHABLE
            raise Failure(error.what, error.remedy, status) from None
        except ValueError as error:
            raise Failure(str(error), status=Status.USAGE) from None


def remote(
    action: Callable[Concatenate["Paddock", P], Coroutine[Any, Any, int | None]],
) -> Callable[..., None]:
    """Makes a command of a coroutine function that takes a client first, and may return a status.

    The command also gets the options --url, --key and --key-file.
    """

    async def connected(connection: Connection, **arguments: Any) -> int | None:
        async with connection.open() as paddock:
            return await action(paddock, **arguments)  # type: ignore[call-arg]

    return _command(connected, action)


def perhaps_remote(
    action: Callable[Concatenate[Connection, P], Coroutine[Any, Any, int | None]],
) -> Callable[..., None]:
    """Like `remote`, for a function that takes the connection, and opens it only if it needs to."""
    return _command(action, action)


def _command(
    run: Callable[..., Awaitable[int | None]], like: Callable[..., Any]
) -> Callable[..., None]:
    def command(
        url: str | None,
        key: str | None,
        key_file: Path | None,
        context: str | None,
        **arguments: Any,
    ) -> None:
        # Not loaded if a command only shows its help.
        import asyncio

        work = run(Connection(url, key, key_file, context), **arguments)
        if status := asyncio.run(_interruptible(work)):
            raise typer.Exit(status)

    _describe(command, like)
    return command


async def _interruptible(work: Awaitable[int | None]) -> int | None:
    """Cancels the work on INT, TERM or HUP, so that it cleans up; a second signal stops that."""
    import asyncio

    caught: list[int] = []
    task = asyncio.current_task()

    def stop(number: int) -> None:
        caught.append(number)
        if task is not None:
            task.cancel()

    if threading.current_thread() is threading.main_thread():
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            asyncio.get_running_loop().add_signal_handler(number, stop, number)
    try:
        return await work
    except asyncio.CancelledError:
        if not caught:
            raise
        raise typer.Exit(SIGNALLED + caught[0]) from None


def _describe(command: Callable[..., None], action: Callable[..., Any]) -> None:
    """Gives the command the action's name, text and parameters, and the connection options."""
    _client, *own = inspect.signature(action).parameters.values()
    keyword = inspect.Parameter.KEYWORD_ONLY
    connection = (
        *(("url", _Url, None), ("key", _Key, None), ("key_file", _KeyFile, None)),
        ("context", _Context, None),
    )
    parameters = [parameter.replace(kind=keyword) for parameter in own] + [
        inspect.Parameter(name, keyword, default=default, annotation=annotation)
        for name, annotation, default in connection
    ]
    command.__name__, command.__doc__ = action.__name__, action.__doc__
    command.__module__ = action.__module__
    command.__annotations__ = {each.name: each.annotation for each in parameters}
    command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
