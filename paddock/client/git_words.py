"""The words of git's commands. Pure.

They work at every level that permits git: there is no shell, and everything is an option, as levels
may limit the variables of commands.
"""

import base64
import re
from collections.abc import Sequence
from urllib.parse import urlsplit

from paddock.client.errors import ArgumentError
from paddock.contract.words import OUTSIDE_NAME

# A command has no terminal, and with an empty program git asks nobody else for a password.
_NO_PROMPTS = ("-c", "core.askPass=", "-c", "credential.helper=")
_AUTHOR = re.compile(r"([^<>\n\0]{1,200}) <([^<>\s\0]{1,200})>")
# Git hosts take a token as the password of this name; with most of them any name does.
TOKEN_USER = "x-access-token"  # noqa: S105 - it is no password


def clone_words(
    url: str,
    path: str,
    *,
    branch: str | None = None,
    depth: int | None = None,
    secret: str | None = None,
    user: str = TOKEN_USER,
) -> list[str]:
    """Clones the repository to the path. Raises: ArgumentError."""
    _check_url(url)
    if depth is not None and depth < 1:
        raise ArgumentError("depth must be at least 1")
    options = [] if branch is None else [f"--branch={_name('branch', branch)}"]
    options += [] if depth is None else [f"--depth={depth}"]
    return [*_git(secret, user), "clone", "--quiet", *options, "--", url, path]


def push_words(
    remote: str,
    branch: str | None = None,
    *,
    force: bool = False,
    secret: str | None = None,
    user: str = TOKEN_USER,
) -> list[str]:
    """Pushes the current commit to the branch, by default that of the same name.

    Raises: ArgumentError.
    """
    target = "HEAD" if branch is None else f"HEAD:refs/heads/{_name('branch', branch)}"
    options = ["--force-with-lease"] if force else []
    words = ["push", "--porcelain", "--set-upstream", *options, "--"]
    return [*_git(secret, user), *words, _name("remote", remote), target]


def status_words() -> list[str]:
    """Prints what `parse_status` reads. The index stays as it is, so that others may use it."""
    words = ["status", "--porcelain=v2", "--branch", "--untracked-files=all", "-z"]
    return [*_git(), "--no-optional-locks", *words]


def diff_words(
    paths: Sequence[str] | None = None, *, base: str | None = None, staged: bool = False
) -> list[str]:
    """Prints what differs from the index, with `staged` from the last commit, or from `base`.

    Raises: ArgumentError.
    """
    options = ["--cached"] if staged else []
    against = [] if base is None else [_name("base", base)]
    words = ["diff", "--no-color", "--no-ext-diff", *options, *against, "--"]
    return [*_git(), *words, *_paths(paths)]


def add_words(paths: Sequence[str] | None) -> list[str]:
    """Stages what was changed, created and removed there; by default everywhere."""
    return [*_git(), "add", "--all", "--", *(_paths(paths) or [":/"])]


def commit_words(message: str, author: str | None, paths: Sequence[str] | None = None) -> list[str]:
    """Commits what is staged, or with paths what is there. Raises: ArgumentError."""
    if not message.strip():
        raise ArgumentError("a commit needs a message")
    named: list[str] = []
    if author is not None:
        found = _AUTHOR.fullmatch(author)
        if found is None:
            raise ArgumentError(f"the author {author!r} is not `Name <address>`")
        named = ["-c", f"user.name={found[1]}", "-c", f"user.email={found[2]}"]
    words = ["commit", "--quiet", f"--message={message}", "--"]
    return [*_git(), *named, *words, *_paths(paths)]


def last_commit_words() -> list[str]:
    """Prints the id of the last commit."""
    return [*_git(), "rev-parse", "--verify", "HEAD"]


def directory_of(url: str) -> str:
    """The directory that a clone makes by default. Raises: ArgumentError."""
    name = urlsplit(url).path.rstrip("/").rpartition("/")[2].removesuffix(".git")
    if not name.strip("."):
        raise ArgumentError("the URL has no name for the directory: give a path")
    return name


def _git(secret: str | None = None, user: str = TOKEN_USER) -> list[str]:
    if secret is None:
        return ["git", *_NO_PROMPTS]
    return ["git", *_NO_PROMPTS, "-c", f"http.extraHeader={_authorization(secret, user)}"]


def _authorization(secret: str, user: str) -> str:
    """The header field with the placeholder for which the proxy puts in the secret."""
    if re.fullmatch(OUTSIDE_NAME, secret) is None:
        raise ArgumentError("`secret` is a secret's name, not its value")
    if not user.isprintable() or ":" in user:
        raise ArgumentError("a user's name has no colon and no control character")
    pair = base64.b64encode(f"{user}:paddock:{secret}".encode()).decode()
    return f"Authorization: Basic {pair}"


def _check_url(url: str) -> None:
    try:
        parts = urlsplit(url)
        host = parts.hostname
    except ValueError as error:
        raise ArgumentError(f"this is not a URL: {error}") from None
    if parts.scheme not in ("https", "http") or not host:
        raise ArgumentError("a clone needs an https:// or http:// URL: others pass no proxy")
    if parts.username is not None or parts.password is not None:
        # The text is not repeated, because it may have a password.
        raise ArgumentError("a URL with a user would take it into the sandbox: set a secret")


def _name(what: str, value: str) -> str:
    """Not an option, and not a pattern of several. Raises: ArgumentError."""
    if not value or value.startswith(("-", "+")) or ":" in value or "\0" in value:
        raise ArgumentError(f"{what} is not a name of git's: {value!r}")
    return value


def _paths(paths: Sequence[str] | None) -> list[str]:
    if isinstance(paths, str):
        raise TypeError("paths must be a sequence of paths, not a string")
    return list(paths or ())
