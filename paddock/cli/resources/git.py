"""Repositories of a session: clone, look, commit, push."""

import dataclasses
import sys
from typing import TYPE_CHECKING, Annotated

import typer

from paddock.cli.connection import remote
from paddock.cli.options import AsJson, Raw, SessionId, TimeLimit, example, group
from paddock.cli.output import note, print_foreign, print_json, print_line, working

if TYPE_CHECKING:
    from paddock.client import GitChange, GitStatus, Paddock

app = group("Repositories of a session, with credentials that never enter its sandbox.")

_Directory = Annotated[
    str | None,
    typer.Option(
        "--path", metavar="DIR", help="The repository's directory; by default the workspace."
    ),
]
_Files = Annotated[
    list[str] | None,
    typer.Argument(metavar="FILE", help="Only these, and what is below them; by default all."),
]
_Secret = Annotated[
    str | None,
    typer.Option(
        "--secret", metavar="NAME", help="The secret that is the password: `paddock secrets set`."
    ),
]
_User = Annotated[
    str, typer.Option("--user", metavar="NAME", help="The name that belongs to the secret.")
]
# As in paddock.client.git_words, which is loaded later.
_TOKEN_USER = "x-access-token"  # noqa: S105 - it is no password


@app.command(epilog=example("paddock git clone web-1 https://github.com/our-team/greet"))
@remote
async def clone(
    paddock: "Paddock",
    session: SessionId,
    repository: Annotated[str, typer.Argument(metavar="URL", help="Its address, as https://….")],
    path: Annotated[
        str | None,
        typer.Argument(metavar="DIR", help="The directory; by default the URL's last word."),
    ] = None,
    branch: Annotated[
        str | None, typer.Option("--branch", "-b", metavar="NAME", help="A branch or a tag.")
    ] = None,
    depth: Annotated[
        int | None, typer.Option("--depth", min=1, metavar="N", help="Only so many commits.")
    ] = None,
    secret: _Secret = None,
    user: _User = _TOKEN_USER,
    timeout: TimeLimit = None,
    as_json: AsJson = False,
) -> None:
    """Clone a repository into a session, and print its directory."""
    found = await paddock.sessions.get(session)
    with working(f"cloning {repository}"):
        place = await found.git.clone(
            repository,
            path=path,
            branch=branch,
            depth=depth,
            secret=secret,
            user=user,
            timeout=timeout,
        )
    print_json({"path": place}) if as_json else print_line((place, ""))


@app.command(epilog=example("paddock git status web-1 --path greet"))
@remote
async def status(
    paddock: "Paddock",
    session: SessionId,
    path: _Directory = None,
    timeout: TimeLimit = None,
    as_json: AsJson = False,
) -> None:
    """Show the branch, and the files that differ from the last commit."""
    found = await (await paddock.sessions.get(session)).git.status(path, timeout=timeout)
    if as_json:
        print_json({**dataclasses.asdict(found), "clean": found.clean})
        return
    note(_headline(found))
    for change in found.changes:
        print_line((_letters(change), "yellow"), (f" {_place(change)}", ""))


@app.command(epilog=example("paddock git diff web-1 --path greet src"))
@remote
async def diff(
    paddock: "Paddock",
    session: SessionId,
    files: _Files = None,
    path: _Directory = None,
    base: Annotated[
        str | None, typer.Option("--base", metavar="COMMIT", help="A commit or a branch.")
    ] = None,
    staged: Annotated[bool, typer.Option("--staged", help="What is staged instead.")] = False,
    timeout: TimeLimit = None,
    raw: Raw = False,
    as_json: AsJson = False,
) -> None:
    """Show what was changed and is not staged, or what differs from a commit."""
    found = await paddock.sessions.get(session)
    text = await found.git.diff(path, files=files, base=base, staged=staged, timeout=timeout)
    print_json({"diff": text}) if as_json else print_foreign(text, sys.stdout, raw=raw)


@app.command(
    epilog=example(
        "paddock git commit web-1 --path greet -m 'Say hello' --author 'A <a@b.example>'"
    )
)
@remote
async def commit(
    paddock: "Paddock",
    session: SessionId,
    message: Annotated[str, typer.Option("--message", "-m", metavar="TEXT", help="The message.")],
    files: _Files = None,
    path: _Directory = None,
    author: Annotated[
        str | None,
        typer.Option(
            "--author",
            metavar="'NAME <ADDRESS>'",
            help="Also the committer; by default what the repository configures.",
        ),
    ] = None,
    timeout: TimeLimit = None,
    as_json: AsJson = False,
) -> None:
    """Commit everything that differs, new files included, and print the commit's id."""
    found = await paddock.sessions.get(session)
    made = await found.git.commit(message, path=path, author=author, files=files, timeout=timeout)
    print_json({"commit": made}) if as_json else print_line((made, ""))


@app.command(epilog=example("paddock git push web-1 --path greet --secret deploy"))
@remote
async def push(
    paddock: "Paddock",
    session: SessionId,
    path: _Directory = None,
    to: Annotated[
        str, typer.Option("--remote", metavar="NAME", help="The remote repository.")
    ] = "origin",
    branch: Annotated[
        str | None,
        typer.Option(
            "--branch", "-b", metavar="NAME", help="The branch there; by default of the same name."
        ),
    ] = None,
    force: Annotated[
        bool, typer.Option("--force", help="Also if commits are lost that were seen here.")
    ] = False,
    secret: _Secret = None,
    user: _User = _TOKEN_USER,
    timeout: TimeLimit = None,
    as_json: AsJson = False,
) -> None:
    """Push the current commit."""
    found = await paddock.sessions.get(session)
    with working(f"pushing to {to}"):
        done = await found.git.push(
            path,
            remote=to,
            branch=branch,
            force=force,
            secret=secret,
            user=user,
            timeout=timeout,
        )
    print_json(done.raw) if as_json else note(f"pushed to {to}")


def _headline(found: "GitStatus") -> str:
    parts = [found.branch or "no branch", (found.commit or "no commit yet")[:12]]
    if found.upstream is not None:
        parts.append(f"{found.ahead} ahead of {found.upstream}, {found.behind} behind")
    return ", ".join([*parts, "clean"] if found.clean else parts)


def _letters(change: "GitChange") -> str:
    if change.kind == "untracked":
        return "??"
    return (change.staged or ".") + (change.unstaged or ".")


def _place(change: "GitChange") -> str:
    return change.file if change.original is None else f"{change.original} -> {change.file}"
