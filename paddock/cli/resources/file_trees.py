"""Files of a workspace beside their bytes: described, searched, patched, copied and watched."""

import sys
from contextlib import aclosing
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from paddock.cli.connection import remote
from paddock.cli.exits import Failure, Status
from paddock.cli.options import AsJson, SessionId, example
from paddock.cli.output import (
    note,
    print_fields,
    print_json,
    print_json_line,
    print_line,
    print_table,
    size,
)
from paddock.cli.resources.files import Glob

if TYPE_CHECKING:
    from paddock.client import Paddock
    from paddock.contract.file_trees import FileChange

_Path = Annotated[str, typer.Argument(metavar="PATH", help="A path in the workspace.")]
_Directory = Annotated[str, typer.Argument(metavar="PATH", help="A directory.")]


@remote
async def stat(
    paddock: "Paddock", session: SessionId, path: _Path, as_json: AsJson = False
) -> None:
    """Describe a file, directory or link."""
    found = await (await paddock.sessions.get(session)).files.stat(path)
    if as_json:
        print_json(found.raw)
        return
    moment = datetime.fromtimestamp(found.modified, UTC).astimezone()
    rows = [
        ("path", found.path + (f" -> {found.target}" if found.target is not None else "")),
        ("type", found.type),
        ("size", f"{found.size} bytes ({size(found.size)})"),
        ("mode", found.mode),
        ("modified", moment.strftime("%Y-%m-%d %H:%M:%S")),
        ("etag", found.etag),
    ]
    print_fields(rows)


@remote
async def search(
    paddock: "Paddock",
    session: SessionId,
    text: Annotated[str, typer.Argument(metavar="TEXT", help="What the lines have.")],
    path: _Directory = ".",
    regex: Annotated[
        bool, typer.Option("--regex", "-e", help="TEXT is a regular expression.")
    ] = False,
    ignore_case: Annotated[
        bool, typer.Option("--ignore-case", "-i", help="Capital and small letters are equal.")
    ] = False,
    glob: Glob = None,
    limit: Annotated[int, typer.Option(min=1, max=1000, help="Number of lines.")] = 200,
    as_json: AsJson = False,
) -> None:
    """Search the lines of files."""
    found = await (await paddock.sessions.get(session)).files.search(
        text, path, regex=regex, ignore_case=ignore_case, glob=glob, limit=limit
    )
    if as_json:
        print_json(found.raw)
    else:
        for each in found.items:
            print_line((each.path, "cyan"), (f":{each.line}:", "dim"), (each.text, ""))
        if not found.items:
            note(f"no line has {text}")
        if found.truncated:
            note("there may be more")


@remote
async def patch(
    paddock: "Paddock",
    session: SessionId,
    file: Annotated[
        str, typer.Argument(metavar="PATCH", help="A local file; - is standard input.")
    ],
    path: _Directory = ".",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Change nothing.")] = False,
    as_json: AsJson = False,
) -> None:
    """Apply a unified diff to files, all or nothing."""
    from paddock.client import ConflictError

    text = _patch_text(file)
    files = (await paddock.sessions.get(session)).files
    try:
        done = await files.patch(text, path, dry_run=dry_run)
    except ConflictError as error:
        for each in error.fields.get("rejects", []):
            note(f"{each['path']}: {each['header']} {each['reason']}")
        raise
    if as_json:
        print_json(done.raw)
        return
    rows = [
        (each.action, each.path + (f" (from {each.source})" if each.source else ""))
        for each in done.files
    ]
    print_table(("action", "path"), rows, nothing="nothing to do")


@remote
async def cp(
    paddock: "Paddock",
    session: SessionId,
    source: Annotated[str, typer.Argument(metavar="SOURCE", help="A path in the workspace.")],
    destination: Annotated[
        str, typer.Argument(metavar="DESTINATION", help="The copy; its parents are made.")
    ],
    as_json: AsJson = False,
) -> None:
    """Copy a file, or a directory with all that is in it, within the workspace."""
    files = (await paddock.sessions.get(session)).files
    done = await files.copy(source, destination, parents=True)
    if as_json:
        print_json(done.raw)
        return
    note(f"{done.files} files, {size(done.bytes)} to {destination}")
    if done.skipped:
        note(f"{done.skipped} skipped: FIFOs, sockets or devices")


@remote
async def mkdir(paddock: "Paddock", session: SessionId, path: _Directory) -> None:
    """Make a directory and its missing parents."""
    await (await paddock.sessions.get(session)).files.mkdir(path)


@remote
async def mv(
    paddock: "Paddock",
    session: SessionId,
    source: Annotated[str, typer.Argument(metavar="SOURCE", help="A path in the workspace.")],
    destination: Annotated[str, typer.Argument(metavar="DESTINATION", help="Its new path.")],
) -> None:
    """Move or rename a file, a link or a directory within the workspace."""
    await (await paddock.sessions.get(session)).files.move(source, destination)


@remote
async def ln(
    paddock: "Paddock",
    session: SessionId,
    target: Annotated[str, typer.Argument(metavar="TARGET", help="What the link contains.")],
    path: _Path,
) -> None:
    """Make a symbolic link in the workspace."""
    await (await paddock.sessions.get(session)).files.symlink(path, target)


@remote
async def chmod(
    paddock: "Paddock",
    session: SessionId,
    mode: Annotated[str, typer.Argument(metavar="MODE", help="Nine bits, octal: 644, 0755.")],
    path: _Path,
) -> None:
    """Change the permissions of a file or directory."""
    if not mode.isascii() or not mode.isdigit() or not set(mode) <= set("01234567"):
        raise Failure(f"{mode} is not octal", status=Status.USAGE)
    if int(mode, 8) > 0o777:
        raise Failure("only the nine permission bits can be set", status=Status.USAGE)
    await (await paddock.sessions.get(session)).files.chmod(path, int(mode, 8))


@remote
async def watch(
    paddock: "Paddock",
    session: SessionId,
    path: _Directory = ".",
    recursive: Annotated[bool, typer.Option(help="Also directories below it.")] = True,
    as_json: AsJson = False,
) -> None:
    """Print the changes below a directory as they happen."""
    files = (await paddock.sessions.get(session)).files

    def ready() -> None:
        note(f"watching {path}")

    changes = files.watch(path, recursive=recursive, on_ready=None if as_json else ready)
    async with aclosing(changes) as arriving:
        async for change in arriving:
            if as_json:
                print_json_line(change.raw)
            else:
                print_line((f"{change.kind:10} ", "bold"), (_paths(change), ""))


def _patch_text(file: str) -> str:
    data = sys.stdin.buffer.read() if file == "-" else Path(file).read_bytes()
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise Failure("the patch is not UTF-8", status=Status.USAGE) from None


def _paths(change: "FileChange") -> str:
    name = change.path + "/" * change.directory
    return name if change.source is None else f"{change.source} -> {name}"


def add_to(app: typer.Typer) -> None:
    """Adds the commands."""
    for command, usage in (
        (stat, "paddock files stat web-1 report.txt"),
        (search, "paddock files search web-1 TODO src --glob '*.py'"),
        (patch, "paddock files patch web-1 fix.diff --dry-run"),
        (cp, "paddock files cp web-1 src backup/src"),
        (mkdir, "paddock files mkdir web-1 build/logs"),
        (mv, "paddock files mv web-1 notes.txt build/notes.txt"),
        (ln, "paddock files ln web-1 report.txt latest"),
        (chmod, "paddock files chmod web-1 640 report.txt"),
        (watch, "paddock files watch web-1 src"),
    ):
        app.command(epilog=example(usage))(command)
