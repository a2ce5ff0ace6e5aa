"""Changes of repositories, found by the session's own git. Each is one or a few commands."""

import posixpath
from collections.abc import Iterator, Sequence

from aiohttp import web

from api.compat.call import Call
from api.compat.openhands.bodies import GitQuery
from api.compat.openhands.files import MOST_SHOWN, read_text
from api.compat.replies import long_reply
from api.http.endpoint import read_query
from api.operations.commands import execute
from api.shape.objects import validated
from orchestrator.ground.errors import ConflictError, NotFoundError, TooLargeError
from paddock.contract.command_requests import ExecBody
from paddock.contract.commands import CommandResult

# What a repository without commits is compared with: git knows it everywhere.
_EMPTY_TREE = "4b825dc642cb6eb9a060e54bf8d69288fbee4904"
_STATUSES = {"A": "ADDED", "D": "DELETED"}
_SECONDS = 30.0
# The shortest name with its status is so many times as long in the answer.
_LARGER = 16


async def changes(call: Call) -> web.Response:
    """What differs from the last commit, or from `ref`, below a directory."""
    query = read_query(call.request, GitQuery)
    base = await _base(call, query.path, query.ref)
    differs = ("diff", "--no-ext-diff", "--no-renames", "--name-status", "-z", "--relative")
    changed = await _git(call, query.path, *differs, base, "--")
    untracked = await _git(call, query.path, "ls-files", "--others", "--exclude-standard", "-z")
    aside, size = call.plane.aside, len(changed.stdout) + len(untracked.stdout)

    def found() -> list[dict[str, str]]:
        added = ({"status": "ADDED", "path": name} for name in _words(untracked))
        return [*_changes(_words(changed)), *added]

    # A repository may have very many files with short names.
    return await long_reply(await aside.call(size, found), _LARGER * size, aside)


async def difference(call: Call) -> web.Response:
    """A file as it is, and as the last commit, or `ref`, has it."""
    query = read_query(call.request, GitQuery)
    directory, name = posixpath.split(query.path)
    place = directory or "."
    base = await _base(call, place, query.ref)
    old = await _run(call, place, "show", f"{base}:./{name}")
    modified = await read_text(call, query.path)
    if old.exit_code != 0 and modified is None:
        raise NotFoundError(f"there is no such file, nor was there one: {query.path}")
    if len(old.stdout) > MOST_SHOWN or old.truncated:
        raise TooLargeError(f"the file had more than {MOST_SHOWN} bytes")
    original = old.stdout if old.exit_code == 0 else ""
    aside, size = call.plane.aside, len(modified or "") + len(original)

    def texts() -> dict[str, str]:
        return {"modified": _lines(modified or ""), "original": _lines(original)}

    return await long_reply(await aside.call(size, texts), size, aside)


async def _base(call: Call, directory: str, ref: str | None) -> str:
    """The commit to compare with. Raises: ConflictError if `ref` or the repository is not there."""
    found = await _run(call, directory, "rev-parse", "--verify", "--quiet", ref or "HEAD")
    if found.exit_code == 0:
        return found.stdout.strip()
    if ref in (None, "HEAD"):
        await _git(call, directory, "rev-parse", "--git-dir")
        return _EMPTY_TREE
    raise ConflictError(f"git knows no {ref}")


async def _git(call: Call, directory: str, *words: str) -> CommandResult:
    """Raises: ConflictError with what git says."""
    result = await _run(call, directory, *words)
    if result.exit_code != 0:
        said = result.error or result.stderr.strip() or f"exit code {result.exit_code}"
        raise ConflictError(f"git failed: {said[:500]}")
    if result.truncated:
        raise TooLargeError("git lists more than the level keeps of an output")
    return result


async def _run(call: Call, directory: str, *words: str) -> CommandResult:
    seconds = min(_SECONDS, float(call.context.session().level.timeout_max))
    argv = ["git", "--no-pager", "--no-optional-locks", *words]
    body = validated(ExecBody, {"argv": argv, "cwd": directory, "timeout": seconds})
    result: CommandResult = await call.done(execute, body=body)
    return result


def _words(result: CommandResult) -> list[str]:
    return [word for word in result.stdout.split("\0") if word]


def _changes(words: Sequence[str]) -> Iterator[dict[str, str]]:
    """Of `status NUL path NUL …`."""
    for status, path in zip(words[::2], words[1::2], strict=False):
        yield {"status": _STATUSES.get(status[:1], "UPDATED"), "path": path}


def _lines(text: str) -> str:
    """With line feeds, and without the last one."""
    return "\n".join(text.splitlines())
