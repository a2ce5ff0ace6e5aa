"""Secrets that only the proxy has: set, listed and removed."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from paddock.cli.connection import remote
from paddock.cli.exits import Failure, Status
from paddock.cli.listing import TABLE, Listing, lists, print_items
from paddock.cli.options import AsJson, example, group
from paddock.cli.output import age, print_done

if TYPE_CHECKING:
    from paddock.client import Paddock, Secret
    from paddock.client.secrets import Secrets

app = group("Secrets that the proxy puts into requests to their hosts.")

_MOST_BYTES = 64 * 1024

_Name = Annotated[
    str, typer.Argument(metavar="NAME", help="The name: requests have paddock:NAME in its place.")
]
_Session = Annotated[
    str | None, typer.Option("--session", metavar="SESSION", help="Of this session alone.")
]
_Owner = Annotated[
    str | None,
    typer.Option("--of", metavar="KEY", help="Of this API key's sessions; for admins."),
]


@app.command(
    "set", epilog=example("paddock secrets set openai --host api.openai.com --file openai.key")
)
@remote
async def set_one(
    paddock: "Paddock",
    name: _Name,
    host: Annotated[
        list[str], typer.Option("--host", metavar="HOST", help="A host that receives it.")
    ],
    file: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="The file with the value; by default standard input, or a prompt.",
        ),
    ] = None,
    session: _Session = None,
    of: _Owner = None,
    level: Annotated[
        list[str] | None,
        typer.Option("--level", metavar="LEVEL", help="Only for sessions at this level."),
    ] = None,
    variable: Annotated[
        str | None,
        typer.Option("--variable", metavar="NAME", help="Commands' variable for paddock:NAME."),
    ] = None,
    header: Annotated[
        list[str] | None,
        typer.Option("--header", metavar="FIELD", help="A header field into which it is put."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Set a secret, or replace its value, from the next request on.

    It belongs to the key; an admin's belongs to all keys, unless --of or --session is given.
    """
    place = await _place(paddock, session, of)
    done = await place.set(
        name, _value(file), hosts=host, levels=level, variable=variable, headers=header, key=of
    )
    _print([done], listing=as_json)


@app.command("list", epilog=example("paddock secrets list"))
@remote
@lists
async def list_all(paddock: "Paddock", session: _Session = None, listing: Listing = TABLE) -> None:
    """List secrets without their values; with --session, those that it may use."""
    place = await _place(paddock, session, None)
    _print(list(await place.list()), listing=listing)


@app.command(epilog=example("paddock secrets remove openai"))
@remote
async def remove(
    paddock: "Paddock",
    name: _Name,
    session: _Session = None,
    of: _Owner = None,
    as_json: AsJson = False,
) -> None:
    """Remove a secret: no later request has it."""
    done = await (await _place(paddock, session, of)).remove(name, key=of)
    print_done(done, as_json, f"the secret {name} is removed")


async def _place(paddock: "Paddock", session: str | None, of: str | None) -> "Secrets":
    """Whose secrets are meant. Raises: Failure."""
    if session is None:
        return paddock.secrets
    if of is not None:
        raise Failure("--session and --of can't be combined", status=Status.USAGE)
    return (await paddock.sessions.get(session)).secrets


def _value(file: Path | None) -> str:
    """From the file, from standard input, or from a person. Raises: typer.BadParameter."""
    if file is None and sys.stdin.isatty():
        return str(typer.prompt("Value", hide_input=True))
    try:
        with sys.stdin.buffer if file is None else file.open("rb") as source:
            return source.read(_MOST_BYTES).decode("ascii").strip()
    except OSError as error:
        raise typer.BadParameter(f"{file}: {error.strerror}", param_hint="--file") from None
    except UnicodeDecodeError:
        raise typer.BadParameter("the value must be ASCII text", param_hint="--file") from None


def _print(found: "list[Secret]", *, listing: "bool | Listing") -> None:
    print_items(
        found,
        listing,
        ("name", "delivery", "scope", "keys", "levels", "hosts", "variable", ">age"),
        lambda each: (
            each.name,
            "lost" if each.lost else each.delivery,
            each.session or each.scope,
            "all" if each.keys is None else ",".join(each.keys),
            "all" if each.levels is None else ",".join(each.levels),
            ",".join(each.hosts) or "-",
            each.variable or "-",
            age(each.set_at),
        ),
        nothing="there are no secrets",
    )
