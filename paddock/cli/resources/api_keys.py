"""API keys of a control plane, over the HTTP API; `paddock keys` edits them on its machine."""

from typing import TYPE_CHECKING, Annotated

import typer

from paddock.cli.connection import remote
from paddock.cli.listing import TABLE, Listing, lists, print_items
from paddock.cli.options import AsJson, example, group, pairs
from paddock.cli.output import note, print_json

if TYPE_CHECKING:
    from datetime import datetime

    from paddock.client import Paddock

app = group("API keys of a control plane, over its API, with an admin's key.")

_Name = Annotated[str, typer.Argument(metavar="NAME", help="The key's name.")]
_NUMBERS = ("max_cpus", "requests_per_second", "handle_requests_per_second")


@app.command("list", epilog=example("paddock api-keys list"))
@remote
@lists
async def list_all(paddock: "Paddock", listing: Listing = TABLE) -> None:
    """List the keys in force, and what their sessions use."""
    print_items(
        await paddock.keys.list(),
        listing,
        ("name", "role", "highest level", "expires", "last used", ">sessions", ">most"),
        lambda key: (
            key.name,
            key.role,
            key.max_level,
            _moment(key.expires_at),
            _moment(key.last_used_at),
            key.used.sessions,
            key.max_sessions,
        ),
        nothing="no keys",
    )


@app.command(epilog=example("paddock api-keys create ci --set max_sessions=8 --set max_level=low"))
@remote
async def create(
    paddock: "Paddock",
    name: _Name,
    role: Annotated[
        str, typer.Option(metavar="ROLE", help="admin, operator, viewer or metrics.")
    ] = "operator",
    terms: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="MEMBER=VALUE",
            help="A bound: max_sessions, max_cpus, max_level, expires_at, owner, …; names of "
            "images, tools and scopes are separated by commas.",
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Create a key and print it; it is not shown again."""
    members = {member: _value(member, text) for member, text in pairs(terms, "--set").items()}
    body = {**members, "name": name, "role": role}
    made = await paddock.request("POST", "/api/keys", body=body)
    if as_json:
        print_json(made)
        return
    print(made["key"])
    note(f"{name} is in force at once; the key is not shown again")


@app.command(epilog=example("paddock api-keys rotate ci --overlap 3600"))
@remote
async def rotate(
    paddock: "Paddock",
    name: _Name,
    overlap: Annotated[
        int, typer.Option(min=0, help="How many seconds the old secret stays valid.")
    ] = 86_400,
) -> None:
    """Give a key another secret and print it; the old one ends after the overlap."""
    made = await paddock.keys.rotate(name, overlap=overlap)
    print(made.key)
    note(f"the new secret is not shown again; the old one is valid for another {overlap} s")


@app.command(epilog=example("paddock api-keys revoke ci"))
@remote
async def revoke(paddock: "Paddock", name: _Name) -> None:
    """Refuse a key from now on; its sessions continue until they end."""
    await paddock.keys.revoke(name)
    note(f"{name} is revoked")


def _value(member: str, text: str) -> int | float | str | list[str]:
    """The member in its JSON form; the server says what is wrong with others."""
    if member in ("images", "tools", "scopes"):
        return text.split(",")
    if member in _NUMBERS or (member.startswith("max_") and member != "max_level"):
        for kind in (int, float):
            try:
                return kind(text)
            except ValueError:
                continue
    return text


def _moment(moment: "datetime | None") -> str | None:
    return None if moment is None else f"{moment:%Y-%m-%d %H:%M}"
