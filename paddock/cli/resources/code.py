"""Code: cells of a session, and the contexts that keep their names."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from paddock.cli.connection import remote
from paddock.cli.options import AsJson, SessionId, example, finite, group
from paddock.cli.output import print_done, print_items, print_json, print_line

if TYPE_CHECKING:
    from collections.abc import Sequence

    from paddock.client import CodeContext, Paddock

app = group("Run code in a session, in contexts that keep names from cell to cell.")
contexts = group("The code contexts of a session.")
app.add_typer(contexts, name="contexts")

_Name = Annotated[str, typer.Argument(metavar="NAME", help="The name of a context.")]
_Language = Annotated[
    str | None,
    typer.Option("--language", "-l", metavar="LANGUAGE", help="python, javascript, bash, …"),
]


@app.command(epilog=example("paddock code run web-1 'x = 6; x * 7'"))
@remote
async def run(
    paddock: "Paddock",
    session: SessionId,
    code: Annotated[str, typer.Argument(metavar="CODE", help="The cell; - reads a file's text.")],
    language: _Language = None,
    within: Annotated[
        str | None,
        typer.Option("--in", metavar="NAME", help="The context; by default the language's own."),
    ] = None,
    timeout: Annotated[
        float | None,
        typer.Option(callback=finite, metavar="SECONDS", help="Until it is interrupted."),
    ] = None,
    png: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write the last picture there.")
    ] = None,
    as_json: AsJson = False,
) -> int:
    """Run a cell, and print what comes of it; the exit code is 1 unless it ends well."""
    text = sys.stdin.read() if code == "-" else code
    found = await (await paddock.sessions.get(session)).run_code(
        text, language=language, context=within, timeout=timeout
    )
    pictures = [value.png_bytes for value in found.results if value.png is not None]
    if png is not None and pictures:
        png.write_bytes(pictures[-1] or b"")
    if as_json:
        print_json(found.raw)
        return 0 if found.ok else 1
    sys.stdout.write(found.stdout)
    sys.stderr.write(found.stderr)
    for value in found.results:
        print_line((value.text or "", ""))
    if found.error is not None:
        sys.stderr.write(found.error.traceback.rstrip("\n") + "\n")
    return 0 if found.ok else 1


@contexts.command("list", epilog=example("paddock code contexts list web-1"))
@remote
async def list_all(paddock: "Paddock", session: SessionId, as_json: AsJson = False) -> None:
    """List a session's code contexts."""
    _print(await (await paddock.sessions.get(session)).code_contexts.list(), as_json=as_json)


@contexts.command(epilog=example("paddock code contexts create web-1 analysis --cwd src"))
@remote
async def create(
    paddock: "Paddock",
    session: SessionId,
    name: Annotated[
        str | None, typer.Argument(metavar="NAME", help="By default a new name.")
    ] = None,
    language: Annotated[
        str, typer.Option("--language", "-l", metavar="LANGUAGE", help="python, javascript, …")
    ] = "python",
    cwd: Annotated[
        str | None, typer.Option(metavar="DIRECTORY", help="Where its cells begin.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Create a code context."""
    of_session = (await paddock.sessions.get(session)).code_contexts
    _print([await of_session.create(name, language=language, cwd=cwd)], as_json=as_json)


@contexts.command(epilog=example("paddock code contexts restart web-1 analysis"))
@remote
async def restart(
    paddock: "Paddock", session: SessionId, name: _Name, as_json: AsJson = False
) -> None:
    """Begin a code context anew, without its names."""
    begun = await (await paddock.sessions.get(session)).code_contexts.restart(name)
    print_done(begun, as_json, f"the context {name} is begun anew")


@contexts.command(epilog=example("paddock code contexts interrupt web-1 analysis"))
@remote
async def interrupt(
    paddock: "Paddock", session: SessionId, name: _Name, as_json: AsJson = False
) -> None:
    """Interrupt the cell that a code context executes."""
    stopped = await (await paddock.sessions.get(session)).code_contexts.interrupt(name)
    print_done(stopped, as_json, f"the context {name} is interrupted")


@contexts.command("remove", epilog=example("paddock code contexts remove web-1 analysis"))
@remote
async def remove_one(
    paddock: "Paddock", session: SessionId, name: _Name, as_json: AsJson = False
) -> None:
    """End a code context."""
    removed = await (await paddock.sessions.get(session)).code_contexts.remove(name)
    print_done(removed, as_json, f"the context {name} is removed")


def _print(found: "Sequence[CodeContext]", *, as_json: bool) -> None:
    print_items(
        found,
        as_json,
        ("name", "language", "kernel", "status", ">cells", "cwd"),
        lambda each: (
            each.name,
            each.language,
            each.kernel or "-",
            each.status,
            each.execution_count,
            each.cwd or ".",
        ),
        nothing="the session has no code context",
    )
