"""Searches, patches, copies and watches of a workspace's files."""

from typing import Annotated, Literal

from pydantic import Field, StringConstraints

from paddock.contract.base import Count, Model, example
from paddock.contract.fields import MIB, Glob, ListedPath, MaxBytes, Positive, Truth, WorkspacePath
from paddock.contract.requests import LARGE_BODY, Body, Query

MOST_MATCHES = 1000
MOST_PATCH_BYTES = MIB

_MATCH = {"path": "src/main.py", "line": 12, "text": "    # TODO: say who calls"}


class FileMatch(Model):
    """A line that was found."""

    model_config = example(_MATCH)

    path: str
    line: Count = Field(description="Its number, from 1.")
    text: str = Field(description="The first 500 characters of the line.")


class FileMatches(Model):
    """The lines that a search found, in the order of their paths."""

    model_config = example(
        {"items": [_MATCH], "next": None, "files": 31, "skipped": 2, "truncated": False}
    )

    items: list[FileMatch]
    next: None
    files: Count = Field(description="How many files were read.")
    skipped: Count = Field(description="Binary files, unreadable ones, and those over 16 MiB.")
    truncated: bool = Field(description="There may be more: a bound was reached.")


class PatchedFile(Model):
    """What a patch did to one file."""

    model_config = example({"path": "src/main.py", "action": "write", "hunks": 2, "source": None})

    path: str
    action: Literal["create", "write", "delete", "rename", "copy"]
    hunks: Count
    source: str | None = Field(description="The former path of a file that was renamed or copied.")


class FilePatched(Model):
    """What a patch did, or would do."""

    model_config = example(
        {
            "files": [{"path": "src/main.py", "action": "write", "hunks": 2, "source": None}],
            "dry_run": False,
        }
    )

    files: list[PatchedFile]
    dry_run: bool


class PatchReject(Model):
    """Why a patch does not apply to a file."""

    model_config = example(
        {
            "path": "src/main.py",
            "hunk": 1,
            "header": "@@ -10,3 +10,4 @@",
            "reason": "its old lines are not in the file",
        }
    )

    path: str
    hunk: Count = Field(description="The hunk's number in its file, from 1; 0: the whole file.")
    header: str
    reason: str


class FileCopied(Model):
    """What was copied."""

    model_config = example(
        {
            "source": "src",
            "destination": "backup/src",
            "files": 12,
            "directories": 3,
            "links": 1,
            "bytes": 48213,
            "skipped": 0,
        }
    )

    source: str
    destination: str
    files: Count
    directories: Count
    links: Count = Field(description="Symbolic links, copied as links.")
    bytes: Count
    skipped: Count = Field(description="FIFOs, sockets and devices: left out.")


class FileMode(Model):
    """A path, and its permissions."""

    model_config = example({"path": "run.sh", "permissions": "0755"})

    path: str
    permissions: str = Field(pattern=r"^0[0-7]{3}$", description="The nine bits, octal.")


class WatchStarted(Model):
    """From now on, changes are told."""

    model_config = example({"path": "src", "recursive": True})

    path: str
    recursive: bool


class FileChange(Model):
    """What happened to a path.

    `create`: it appeared, also from outside of what is watched. `write`: its content changed.
    `delete`: it is gone, or elsewhere. `move`: it came from `source`. `attributes`: mode, owner or
    times. `overflow`: changes are missing, so read again what you need.
    """

    model_config = example(
        {"kind": "write", "path": "src/main.py", "directory": False, "source": None}
    )

    kind: Literal["create", "write", "delete", "move", "attributes", "overflow"]
    path: str
    directory: bool
    source: str | None


class WatchEnded(Model):
    """There are no further changes."""

    model_config = example({"reason": "src is gone"})

    reason: str


WATCH_EVENTS: dict[str, type[Model]] = {
    "ready": WatchStarted,
    "change": FileChange,
    "end": WatchEnded,
}


class SearchQuery(Query):
    """A text, and where it is looked for: below a directory, or in one file.

    `regex`: it is a regular expression, without what needs backtracking. `glob` chooses files, as
    in a list. `limit` is the number of lines.
    """

    text: Annotated[str, Field(min_length=1), MaxBytes(4096)]
    path: WorkspacePath = "."
    regex: Truth = False
    ignore_case: Truth = False
    glob: Glob | None = None
    limit: Annotated[Positive, Field(le=MOST_MATCHES)] = 200


class PatchBody(Body):
    """A unified diff, as `git diff` or `diff -u` prints it.

    `path`: the directory in which its names are. `dry_run`: nothing is changed.
    """

    MOST_BYTES = LARGE_BODY

    patch: Annotated[str, Field(min_length=1), MaxBytes(MOST_PATCH_BYTES)]
    path: ListedPath = "."
    dry_run: bool = False


class CopyBody(Body):
    """Two paths; `parents`: missing directories above the destination are created."""

    source: ListedPath
    destination: ListedPath
    parents: bool = False


class ModeBody(Body):
    """A path, and the nine permission bits that it gets, octal."""

    path: ListedPath
    permissions: Annotated[str, StringConstraints(pattern=r"^0?[0-7]{3}$", max_length=4)]


class WatchQuery(Query):
    """A directory; `recursive`: and those below it, also new ones."""

    path: WorkspacePath = "."
    recursive: Truth = True
