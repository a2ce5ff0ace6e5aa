"""Context packs: made from local files, shown, and refined after a miss."""

import contextlib
import json
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from paddock.cli.connection import Connection, perhaps_remote, remote
from paddock.cli.exits import Failure, Status
from paddock.cli.options import AsJson, OptionalLevel, SessionId, example
from paddock.cli.output import age, note, print_fields, print_json, print_table, size, working

if TYPE_CHECKING:
    from paddock.client import ContextPack, PackInfo, Paddock

_WORKSPACE = "/workspace/"
_ANYTHING = ["Read", "ListFiles", "Search", "Write", "Execute"]
_Root = Annotated[
    Path, typer.Option("--from", metavar="DIR", help="The local directory that has the files.")
]


def add_to(app: typer.Typer) -> None:
    """Adds the commands."""
    app.command(epilog=example("paddock pack src --shell 'grep *' > pack.json"))(pack)
    app.command(epilog=example("paddock misses web-1"))(misses)
    app.command(epilog=example("paddock refine web-1 --add src/users.py"))(refine)


@perhaps_remote
async def pack(
    connection: Connection,
    paths: Annotated[
        list[str],
        typer.Argument(metavar="PATH...", help="Files, and directories with all files."),
    ],
    observe: Annotated[
        bool,
        typer.Option(
            "--observe",
            help="Pack the files that a command reads: it is given after --, instead of PATH, and "
            "runs in a session that has the files of DIR.",
        ),
    ] = False,
    tools: Annotated[
        list[str] | None,
        typer.Option("--tools", metavar="CLASS", help="Read, ListFiles, Execute, Write, …"),
    ] = None,
    write: Annotated[
        list[str] | None, typer.Option("--write", metavar="PATH", help="What it may write.")
    ] = None,
    shell: Annotated[
        list[str] | None,
        typer.Option("--shell", metavar="COMMAND", help="A command that may run; * is any text."),
    ] = None,
    mode: Annotated[
        str, typer.Option("--mode", metavar="MODE", help="hard_fail, soft_fail or warn.")
    ] = "hard_fail",
    manifest_id: Annotated[
        str | None, typer.Option("--id", metavar="ID", help="Default: made from the content.")
    ] = None,
    root: Annotated[
        Path | None,
        typer.Option("--root", metavar="DIR", help="The local directory that is the workspace."),
    ] = None,
    level: OptionalLevel = None,
) -> None:
    """Make a context pack of local files, with their hashes, and print it as JSON.

    What it holds is shown on standard error. With one directory, the directory is the workspace.
    """
    from paddock.client import packs

    if observe:
        async with connection.open() as paddock:
            found = await observed(paddock, paths, root or Path(), level)
        root, shell = root or Path(), [*(shell or ()), shlex.join(paths)]
        paths = [str(root / name) for name in found]
    _check_there(paths)
    with _only_packs():
        made = packs.pack(
            *paths,
            tools=tools,
            write=write or (),
            shell=shell or (),
            mode=cast("Any", mode),  # which is checked
            manifest_id=manifest_id,
            root=root,
        )
    top = packs.root_of(paths, root) if paths else root or Path()
    with contextlib.redirect_stdout(sys.stderr):
        _show(made, top)
    print_json(packs.pack_body(made))


async def observed(
    paddock: "Paddock", words: list[str], root: Path, level: str | None
) -> list[str]:
    """The files below `root` that a command reads, when it runs with all of them.

    It runs in a session of its own, which is purged. Notes name what else it reads.
    """
    told = {
        "mode": "warn",
        "write_allowlist": ["/workspace"],
        "shell_allowlist": [shlex.join(words)],
    }
    with working("running the command"):
        session_id = await stage(paddock, None, root)
        session = await paddock.sessions.create(
            id=session_id, permission_level=level, consume={**told, "tool_allowlist": _ANYTHING}
        )
        try:
            result = await session.exec(argv=words)
            events = session.audit.events(operation="read", decision="allow")
            seen = {str(event.args.get("path")) async for event in events}
        finally:
            await session.close(purge=True)
    note(f"the command ended with status {result.exit_code}")
    inside = {path.removeprefix(_WORKSPACE) for path in seen if path.startswith(_WORKSPACE)}
    for path in sorted(path for path in seen if not path.startswith("/workspace")):
        note(f"of the image: {path}")
    return sorted(name for name in inside if (root / name).is_file())


@remote
async def misses(paddock: "Paddock", session: SessionId, as_json: AsJson = False) -> None:
    """List the reads that a session was denied, and how often its pack was refined."""
    state = await paddock.sessions.consume(session).get()
    if as_json:
        print_json(state.raw)
        return
    rows = [(miss.seq, age(miss.time), miss.rule, miss.program, miss.path) for miss in state.misses]
    print_table((">seq", ">age", "rule", "program", "path"), rows, nothing="nothing was missed")
    note(f"refined {state.refinement_count} of {state.max_refinements} times")


@remote
async def refine(
    paddock: "Paddock",
    session: SessionId,
    add: Annotated[
        list[str], typer.Option("--add", metavar="PATH", help="A file that the pack gets as well.")
    ],
    source: _Root = Path(),
    as_json: AsJson = False,
) -> None:
    """Reissue a session that missed something, with more files in its context pack.

    The files are read here, uploaded into the session's workspace, and added to its pack; then a
    new session for the same work begins.
    """
    state = await paddock.sessions.consume(session).get()
    refined = _with_files(state.pack, add, source)
    with working("uploading files"):
        await stage(paddock, add, source, session_id=session)
    with working("starting a sandbox"):
        found = await paddock.sessions.refine(session, refined)
    shown = found.info.consume
    if as_json:
        print_json({**found.info.raw, "handle": found.handle})
        return
    print_fields(
        (
            ("session", found.id),
            ("handle", found.handle),
            ("pack", None if shown is None else shown.manifest_id),
            ("refined", None if shown is None else shown.refinement_count),
        )
    )


def load_pack(path: Path) -> "ContextPack":
    """The pack in a file. Raises: Failure."""
    from paddock.client import ContextPack

    try:
        told = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError) as error:
        raise Failure(f"{path} can't be read as JSON: {error}", status=Status.USAGE) from None
    with _only_packs(f"{path}: "):
        return ContextPack.model_validate(told)


def files_of(pack: "ContextPack") -> list[str]:
    """The pack's files, relative to the workspace."""
    return [entry.path.removeprefix(_WORKSPACE) for entry in pack.entries]


async def note_misses(paddock: "Paddock", session_id: str) -> bool:
    """Notes what a session missed; returns whether that has ended it."""
    state = await paddock.sessions.consume(session_id).get()
    for miss in state.misses:
        note(f"missed: {miss.path}")
    found = (await paddock.sessions.inspect(session_id)).termination
    return found is not None and found.rationale_code == "CONTEXT_MISS"


async def stage(
    paddock: "Paddock",
    files: list[str] | None,
    source: Path,
    *,
    session_id: str | None = None,
    image: str | None = None,
) -> str:
    """Uploads files into a workspace by an ordinary session, ends it, and returns its id.

    `files` None: all.
    """
    session = await paddock.sessions.create(id=session_id, permission_level="low", image=image)
    try:
        if files != []:
            sent = await session.files.upload_dir(source, only=files)
            if sent.skipped and files is not None:
                raise Failure(f"not regular files in {source}: {', '.join(sent.skipped)}")
    except BaseException:
        await session.close(purge=session_id is None)
        raise
    await session.close()
    return session.id


def _with_files(pack: "PackInfo", paths: list[str], source: Path) -> "ContextPack":
    from paddock.client import ContextPack, packs

    known = {name: value for name, value in pack.raw.items() if name != "manifest_hash"}
    added = {f"{_WORKSPACE}{path}" for path in paths}
    kept = [entry for entry in known["entries"] if entry["path"] not in added]
    more = [{"path": path, "content_hash": packs.content_hash(source / path)} for path in paths]
    with _only_packs():
        return ContextPack.model_validate({**known, "entries": [*kept, *more]})


@contextlib.contextmanager
def _only_packs(prefix: str = "") -> Iterator[None]:
    """Raises a Failure that names the place instead of an error about an invalid pack."""
    from pydantic import ValidationError

    try:
        yield
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        place = ".".join(map(str, first["loc"]))
        what = " ".join(part for part in (place, first["msg"]) if part)
        raise Failure(f"{prefix}{what}", status=Status.USAGE) from None
    except (OSError, ValueError) as error:
        raise Failure(f"{prefix}{error}", status=Status.USAGE) from None


def _check_there(paths: list[str]) -> None:
    """Raises: Failure for a path that does not exist."""
    missing = [path for path in paths if not Path(path).exists()]
    if missing:
        raise Failure(f"{missing[0]} does not exist", status=Status.USAGE)


def _show(pack: "ContextPack", root: Path) -> None:
    sizes = [(root / name).stat().st_size for name in files_of(pack)]
    rows = [
        (size(count), entry.access_level, entry.path)
        for entry, count in zip(pack.entries, sizes, strict=True)
    ]
    print_table((">size", "access", "path"), rows, nothing="no files")
    print_fields(
        (
            ("files", len(rows)),
            ("total", size(sum(sizes))),
            ("tools", ", ".join(pack.tool_allowlist)),
            ("writes", ", ".join(pack.write_allowlist)),
            ("commands", ", ".join(pack.shell_allowlist)),
            ("pack", pack.manifest_id),
        )
    )
