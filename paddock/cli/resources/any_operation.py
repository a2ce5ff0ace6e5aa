"""`paddock api`: any operation of the HTTP API, with this command line's address and key."""

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from paddock.cli.connection import remote
from paddock.cli.exits import Failure, Status
from paddock.cli.options import example, pairs
from paddock.cli.output import print_json

if TYPE_CHECKING:
    from paddock.client import Paddock

_METHODS = ("GET", "POST", "PUT", "DELETE")


def add_to(app: typer.Typer) -> None:
    """Adds the command."""
    app.command(epilog=example("paddock api GET /api/usage"))(api)


@remote
async def api(
    paddock: "Paddock",
    method: Annotated[str, typer.Argument(metavar="METHOD", help="GET, POST, PUT or DELETE.")],
    path: Annotated[str, typer.Argument(metavar="PATH", help="The path, from /api on.")],
    body: Annotated[
        str | None,
        typer.Option(
            "--body", "-d", metavar="JSON", help="The body; @FILE is a file, - the input."
        ),
    ] = None,
    query: Annotated[
        list[str] | None,
        typer.Option("--query", metavar="NAME=VALUE", help="A parameter of the query."),
    ] = None,
) -> None:
    """Call an operation of the HTTP API that answers with JSON, and print its answer.

    docs/openapi.json has all operations.
    """
    method = method.upper()
    if method not in _METHODS:
        raise Failure(f"{method} is no method", f"use {', '.join(_METHODS)}", Status.USAGE)
    if not path.startswith("/") or "?" in path or "#" in path or not path.isprintable():
        raise Failure(f"{path!r} is no path", "begin with /, and use --query", Status.USAGE)
    content = None if body is None else _content(body)
    params = pairs(query, "--query")
    answer = await paddock.request(method, path, body=content, params=params)
    if answer:
        print_json(answer)


def _content(text: str) -> Any:
    """The body as JSON. Raises: Failure, OSError."""
    if text == "-":
        text = sys.stdin.read()
    elif text.startswith("@"):
        text = Path(text[1:]).read_text(encoding="utf-8")
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise Failure(f"the body is not JSON: {error}", status=Status.USAGE) from None
