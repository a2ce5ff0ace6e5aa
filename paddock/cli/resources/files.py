"""Files of a session's workspace: list, show, put, get and remove them."""

import codecs
import stat
import sys
from collections.abc import Callable
from contextlib import aclosing
from datetime import UTC, datetime
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Annotated

import typer

from paddock.cli.connection import remote
from paddock.cli.exits import Failure, Status
from paddock.cli.listing import TABLE, Listing, lists, print_items
from paddock.cli.options import Raw, SessionId, example, group
from paddock.cli.output import note, print_foreign, print_json, size, working

if TYPE_CHECKING:
    from paddock.client import Async, Paddock, Transfer
    from paddock.client.files import Files
    from paddock.client.tar_stream import Progress

app = group("Files of a session's workspace.")

_SUFFIXES = {"directory": "/", "symlink": "@", "other": "?"}
Glob = Annotated[
    str | None,
    typer.Option(metavar="GLOB", help="Only these, such as *.py; with a slash, by paths."),
]
_Path = Annotated[str, typer.Argument(metavar="PATH", help="A path in the workspace.")]


@app.command(epilog=example("paddock files ls web-1 src --depth 3"))
@remote
@lists
async def ls(
    paddock: "Paddock",
    session: SessionId,
    path: Annotated[str, typer.Argument(metavar="PATH", help="A directory.")] = ".",
    depth: Annotated[
        int | None,
        typer.Option(min=1, max=64, help="Number of levels to list; 1, or 64 with --glob."),
    ] = None,
    glob: Glob = None,
    listing: Listing = TABLE,
) -> None:
    """List a directory of the workspace; with -q only paths."""
    found = await (await paddock.sessions.get(session)).files.list(path, depth=depth, glob=glob)
    if listing.json:
        print_json(found.raw)
        return
    print_items(
        found.items,
        listing,
        ("mode", ">size", "modified", "path"),
        lambda entry: (
            entry.mode,
            size(entry.size) if entry.type == "file" else None,
            datetime.fromtimestamp(entry.modified, UTC).astimezone().strftime("%Y-%m-%d %H:%M"),
            entry.path + _SUFFIXES.get(entry.type, ""),
        ),
        nothing=f"{path} is empty",
        name=lambda entry: entry.path,
    )
    if found.truncated:
        note(f"only the first {len(found.items)} entries")


@app.command(epilog=example("paddock files cat web-1 report.txt"))
@remote
async def cat(paddock: "Paddock", session: SessionId, path: _Path, raw: Raw = False) -> None:
    """Write a file's bytes to standard output; on a terminal, as text."""
    found = await paddock.sessions.get(session)
    text = codecs.getincrementaldecoder("utf-8")("replace")
    async with aclosing(found.files.read_stream(path)) as pieces:
        async for piece in pieces:
            if raw or not sys.stdout.isatty():
                sys.stdout.buffer.write(piece)
            else:
                print_foreign(text.decode(piece), sys.stdout)
    sys.stdout.buffer.flush()


@app.command(epilog=example("paddock files put web-1 ./src src"))
@remote
async def put(
    paddock: "Paddock",
    session: SessionId,
    source: Annotated[
        Path,
        typer.Argument(metavar="LOCAL", help="A local file or directory; - is standard input."),
    ],
    path: Annotated[
        str | None,
        typer.Argument(metavar="PATH", help="The destination; by default the same name."),
    ] = None,
) -> None:
    """Copy a file, or a directory with all its files, into the workspace."""
    found = await paddock.sessions.get(session)
    if str(source) == "-":
        if path is None:
            raise Failure("standard input needs a PATH to go to", status=Status.USAGE)
        await found.files.write(path, sys.stdin.buffer, parents=True)
        return
    status = source.stat()  # a missing path raises its own error
    kind, modified = status.st_mode, max(int(status.st_mtime), 0)
    from paddock.client.file_names import listed_name  # only here: it takes time

    target = path or listed_name(source.resolve().name)
    if stat.S_ISDIR(kind):
        with working(f"uploading {source}") as show:
            sent = await found.files.upload_dir(source, target, progress=_shown(show))
        _tell(sent, target)
        return
    if not stat.S_ISREG(kind):
        raise Failure(f"{source} is neither a file nor a directory", status=Status.USAGE)
    if target.endswith("/"):
        target += listed_name(source.name)
    with source.open("rb") as file:
        await found.files.write(
            *(target, file), permissions=stat.S_IMODE(kind), modified=modified, parents=True
        )


@app.command(epilog=example("paddock files get web-1 build ./build"))
@remote
async def get(
    paddock: "Paddock",
    session: SessionId,
    path: _Path,
    target: Annotated[
        Path | None,
        typer.Argument(metavar="LOCAL", help="The destination; by default the same name, here."),
    ] = None,
) -> None:
    """Copy a file, or a directory with all its files, out of the workspace."""
    files = (await paddock.sessions.get(session)).files
    from paddock.client.file_names import local_name  # only here: it takes time

    name = local_name(PurePosixPath(path).name)
    place = target or Path(name or ".")
    if not name or not await _get_file(files, path, place / name if place.is_dir() else place):
        with working(f"downloading {path}") as show:
            received = await files.download_dir(path, place, progress=_shown(show))
        _tell(received, place)


async def _get_file(files: "Files[Async]", path: str, place: Path) -> bool:
    """Copies a file; returns False if it is a directory."""
    from paddock.client import ConflictError

    try:
        await files.download(path, place)
    except ConflictError:
        try:
            await files.list(path)
        except ConflictError:
            is_directory = False
        else:
            is_directory = True
        if not is_directory:
            raise
        return False
    return True


def _shown(show: Callable[[str], None]) -> "Progress":
    return lambda files, count: show(f"{files} files, {size(count)}")


def _tell(done: "Transfer", place: str | Path) -> None:
    links = f", {done.links} links" if done.links else ""
    note(f"{done.files} files{links}, {size(done.bytes)} to {place}")
    if done.skipped:
        more = f" and {done.more_skipped} more" if done.more_skipped else ""
        note(f"skipped, because they can't be transferred: {', '.join(done.skipped)}{more}")


@app.command(epilog=example("paddock files rm web-1 build -r"))
@remote
async def rm(
    paddock: "Paddock",
    session: SessionId,
    path: _Path,
    recursive: Annotated[
        bool, typer.Option("--recursive", "-r", help="A directory with all that is in it.")
    ] = False,
) -> None:
    """Remove a file, a link, or a directory."""
    await (await paddock.sessions.get(session)).files.delete(path, recursive=recursive)
