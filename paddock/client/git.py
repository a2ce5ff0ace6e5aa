"""Repositories of a session: cloned, looked at, committed and pushed by its own git."""

from collections.abc import Sequence
from contextlib import suppress

from paddock.client.answers import read
from paddock.client.commands import run_to_end
from paddock.client.errors import GitError, LimitError, PaddockAPIError
from paddock.client.faces import F, Face, Link, method
from paddock.client.git_failures import denied_host, explained
from paddock.client.git_status import GitStatus, parse_status
from paddock.client.git_words import (
    TOKEN_USER,
    add_words,
    clone_words,
    commit_words,
    diff_words,
    directory_of,
    last_commit_words,
    push_words,
    status_words,
)
from paddock.client.requests import given
from paddock.contract.commands import CommandResult
from paddock.contract.egress import EgressDrafts


class Git(Face[F]):
    """The repositories of a session.

    Each call is one or a few commands in the sandbox, decided, counted and recorded like every
    command. A credential never enters the sandbox: `secret` names a secret that the proxy puts into
    inspected requests to its hosts.

    `path` is the directory of a repository, relative to the workspace, by default the workspace
    itself. `timeout` is in seconds; None: the level's default.

    All methods raise GitError with a remedy if git fails or the image lacks it,
    PermissionDeniedError if the level does not permit git, ArgumentError for what git would take
    for something else, `PaddockAPIError` in the class of its code, and the other errors of
    `paddock.client.errors`.
    """

    def __init__(self, link: Link, path: str) -> None:
        super().__init__(link)
        self._path = path

    @method
    async def clone(
        self,
        url: str,
        *,
        branch: str | None = None,
        depth: int | None = None,
        path: str | None = None,
        secret: str | None = None,
        user: str = TOKEN_USER,
        timeout: float | None = None,
    ) -> str:
        """Clones a repository, and returns its directory.

        Args:
            url: `https://…`; `http://…` to a host whose rule has `upgrade`.
            branch: a branch or a tag; None: the repository's own.
            depth: only so many commits; None: all.
            path: the directory to make; None: the last word of the URL.
            secret: the name of the secret that is the password.
            user: the name that belongs to it.
        """
        place = directory_of(url) if path is None else path
        words = clone_words(url, place, branch=branch, depth=depth, secret=secret, user=user)
        await self._run("clone", words, None, timeout)
        return place

    @method
    async def status(self, path: str | None = None, *, timeout: float | None = None) -> GitStatus:
        """The branch, and what differs from the last commit.

        Raises: LimitError if there is more than the level keeps of an output.
        """
        result = await self._run("status", status_words(), path, timeout)
        printed = _whole("status", result)
        try:
            return parse_status(printed)
        except ValueError as error:
            raise GitError(f"git's status can't be read: it has {error}", None, result) from None

    @method
    async def diff(
        self,
        path: str | None = None,
        *,
        files: Sequence[str] | None = None,
        base: str | None = None,
        staged: bool = False,
        timeout: float | None = None,
    ) -> str:
        """What was changed and is not staged, as a unified diff; invalid UTF-8 is replaced.

        Args:
            files: only these, and what is below them, relative to `path`.
            base: what differs from this commit or branch.
            staged: what is staged instead.

        Raises: LimitError if there is more than the level keeps of an output.
        """
        words = diff_words(files, base=base, staged=staged)
        return _whole("diff", await self._run("diff", words, path, timeout)).decode(
            errors="replace"
        )

    @method
    async def commit(
        self,
        message: str,
        *,
        path: str | None = None,
        author: str | None = None,
        files: Sequence[str] | None = None,
        timeout: float | None = None,
    ) -> str:
        """Commits everything that differs, new files included, and returns the commit's id.

        Args:
            author: `Name <address>`, also as the committer; None: what the repository configures.
            files: only these, and what is below them, relative to `path`.

        Raises: GitError also if nothing differs.
        """
        words = commit_words(message, author, files)
        await self._run("add", add_words(files), path, timeout)
        await self._run("commit", words, path, timeout)
        result = await self._run("rev-parse", last_commit_words(), path, timeout)
        return result.stdout.strip()

    @method
    async def push(
        self,
        path: str | None = None,
        *,
        remote: str = "origin",
        branch: str | None = None,
        force: bool = False,
        secret: str | None = None,
        user: str = TOKEN_USER,
        timeout: float | None = None,
    ) -> CommandResult:
        """Pushes the current commit, and makes the branch there the one that is followed.

        Args:
            branch: None: the branch of the same name.
            force: also if the branch's commits are lost by it, but only those that were seen.
            secret: the name of the secret that is the password.
            user: the name that belongs to it.
        """
        words = push_words(remote, branch, force=force, secret=secret, user=user)
        return await self._run("push", words, path, timeout)

    async def _run(
        self, operation: str, words: list[str], path: str | None, timeout: float | None
    ) -> CommandResult:
        """Raises: GitError unless it succeeds."""
        body = given(argv=words, cwd=path, timeout=timeout)
        result = await run_to_end(self._api, self._path, body)
        if result.ok:
            return result
        drafts = await self._denied() if denied_host(result) is not None else None
        items = () if drafts is None else drafts.items
        session = self._path.rpartition("/")[2]
        what, remedy = explained(operation, result, items, session)
        raise GitError(what, remedy, result)

    async def _denied(self) -> EgressDrafts | None:
        """What the way out denied, if the caller may know it."""
        with suppress(PaddockAPIError):
            answer = await self._api.json("GET", f"{self._path}/egress/drafts")
            return read(EgressDrafts, answer)
        return None


def _whole(operation: str, result: CommandResult) -> bytes:
    if result.cut_bytes:
        raise LimitError(
            f"git {operation} printed {result.output_bytes} bytes, and the level keeps fewer: name "
            "fewer files"
        )
    return result.stdout_bytes
