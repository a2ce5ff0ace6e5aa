"""Control planes by name: `paddock login` stores one with its key, `paddock context` shows them."""

import sys
from pathlib import Path
from typing import Annotated
from urllib.parse import urlsplit

import typer

from paddock.cli.connection import Connection, complete_context
from paddock.cli.device_login import device_login
from paddock.cli.exits import Failure, Status
from paddock.cli.listing import TABLE, Listing, lists, print_items
from paddock.cli.options import example, group
from paddock.cli.output import note
from paddock.connect.address import key_in
from paddock.connect.contexts import Context, Contexts, contexts_path, load_contexts, save_contexts
from paddock.connect.errors import NoAddressError

app = group("Control planes that `paddock login` has stored, each with its key.")

_Name = Annotated[
    str,
    typer.Argument(metavar="NAME", help="A context.", autocompletion=complete_context),
]


def add_to(parent: typer.Typer) -> None:
    """Adds the commands."""
    parent.command(epilog=example("paddock login https://paddock.example.org --name work"))(login)
    parent.add_typer(app, name="context")


def login(
    url: Annotated[str, typer.Argument(metavar="URL", help="The control plane.")],
    name: Annotated[
        str | None,
        typer.Option("--name", metavar="NAME", help="The context; by default the URL's host."),
    ] = None,
    key_file: Annotated[
        Path | None,
        typer.Option("--key-file", metavar="FILE", help="A file with the key; else it is asked."),
    ] = None,
    sso: Annotated[
        bool, typer.Option("--sso", help="Sign in in a browser, by the operator's issuer.")
    ] = False,
    issuer: Annotated[
        str | None,
        typer.Option("--issuer", metavar="NAME", help="Which issuer, if there are several."),
    ] = None,
) -> None:
    """Store a control plane and an API key for it, and use them from now on.

    The key is asked for, or read from the input. With --sso, the issuer's token is used instead,
    and renewed when it is about to expire. Both are tried first, and kept in a file that only you
    may read.
    """
    try:
        if sso or issuer is not None:
            context = device_login(url, issuer)
        else:
            context = Context(url, _asked_key() if key_file is None else key_in(key_file))
        name = name or urlsplit(url).hostname or ""
        contexts = load_contexts().with_one(name, context)
    except (NoAddressError, ValueError) as error:
        raise _usage(error) from None
    _try(url, context.key)
    save_contexts(contexts)
    note(f"{name} is the current context, stored in {contexts_path()}")


@app.command("list", epilog=example("paddock context list"))
@lists
def list_all(listing: Listing = TABLE) -> None:
    """List the contexts; the current one is marked."""
    contexts = _contexts()
    items = [
        {"name": name, "url": each.url, "current": name == contexts.current}
        for name, each in contexts.by_name.items()
    ]
    print_items(
        items,
        listing,
        ("context", "current", "url"),
        lambda each: (str(each["name"]), "*" if each["current"] else "", str(each["url"])),
        nothing="no contexts: `paddock login URL` adds one",
    )


@app.command(epilog=example("paddock context use work"))
def use(name: _Name) -> None:
    """Use a context from now on."""
    try:
        save_contexts(load_contexts().using(name))
    except NoAddressError as error:
        raise _usage(error) from None
    note(f"{name} is the current context")


@app.command(epilog=example("paddock context rm work"))
def rm(name: _Name) -> None:
    """Forget a context and its key."""
    try:
        save_contexts(load_contexts().without(name))
    except NoAddressError as error:
        raise _usage(error) from None
    note(f"{name} is forgotten")


def _contexts() -> Contexts:
    try:
        return load_contexts()
    except NoAddressError as error:
        raise _usage(error) from None


def _asked_key() -> str:
    """The key that is typed, or the first line of the input. Raises: Failure."""
    if sys.stdin.isatty():
        key: str = typer.prompt("API key", hide_input=True, err=True)
    else:
        key = sys.stdin.readline()
    if not key.strip():
        raise Failure("no key", "type it, pipe it in, or give --key-file FILE", Status.USAGE)
    return key.strip()


def _try(url: str, key: str) -> None:
    """Raises: Failure, PaddockError if the control plane does not take the key."""
    import asyncio

    async def ask() -> None:
        async with Connection(url, key, None).open() as paddock:
            await paddock.policies.list()

    asyncio.run(ask())


def _usage(error: ValueError) -> Failure:
    if isinstance(error, NoAddressError):
        return Failure(error.what, error.remedy, Status.USAGE)
    return Failure(str(error), status=Status.USAGE)
