"""Files of a workspace."""

from typing import Annotated, Literal

from pydantic import Field, StringConstraints

from paddock.contract.base import Count, Model, example
from paddock.contract.fields import Depth, Truth, WorkspacePath
from paddock.contract.requests import Body, Query

_ENTRY = {
    "path": "src/main.py",
    "type": "file",
    "size": 1204,
    "mode": "0644",
    "modified": 1772616612.48,
    "target": None,
}


class FileEntry(Model):
    """A file, directory or link; `path` is relative to the workspace."""

    model_config = example(_ENTRY)

    path: str
    type: str = Field(description="`file`, `directory`, `symlink` or `other`.")
    size: Count = Field(description="Bytes.")
    mode: str = Field(pattern=r"^[0-7]{4,}$", description="Permissions, octal.")
    modified: float = Field(description="Seconds since 1970-01-01.")
    target: str | None = Field(
        description="Where a symbolic link leads; null for all else, and where it is not UTF-8."
    )

    @property
    def permissions(self) -> int:
        """The nine bits of `mode`."""
        return int(self.mode, 8) & 0o777


class FileList(Model):
    """What a directory holds; `truncated` where it is more than fits a reply."""

    model_config = example({"items": [_ENTRY], "next": None, "truncated": False})

    items: list[FileEntry]
    next: None
    truncated: bool


class FileWritten(Model):
    """A file that was written, and the bytes that were sent."""

    model_config = example({"path": "notes.txt", "mode": "overwrite", "bytes": 12})

    path: str
    mode: Literal["overwrite", "append"]
    bytes: Count


class FilePath(Model):
    """The path that was made or removed."""

    model_config = example({"path": "src"})

    path: str


class FileLink(Model):
    """A symbolic link that was made."""

    model_config = example({"path": "bin/tool", "target": "../lib/tool.py"})

    path: str
    target: str


class FileMoved(Model):
    """What was renamed."""

    model_config = example({"source": "draft.txt", "destination": "notes.txt"})

    source: str
    destination: str


class PathBody(Body):
    """A path in the workspace."""

    path: WorkspacePath


class LinkBody(Body):
    """A path in the workspace, and where a link there leads, relative to the link."""

    path: WorkspacePath
    target: WorkspacePath


class MoveBody(Body):
    """Two paths in the workspace."""

    source: WorkspacePath
    destination: WorkspacePath


class PathQuery(Query):
    """A path in the workspace."""

    path: WorkspacePath


class WriteQuery(PathQuery):
    """Whether what is sent replaces the file or goes to its end.

    `permissions`, in octal, are those of a file that is replaced or new; by default it keeps
    its own, or gets 0644. `parents`: directories that are missing above the file are made with it.
    """

    mode: Literal["overwrite", "append"] = "overwrite"
    permissions: Annotated[str, StringConstraints(pattern=r"^0?[0-7]{3}$")] | None = None
    parents: Truth = False


class ListQuery(Query):
    """A directory, and how many levels below it."""

    path: WorkspacePath = "."
    depth: Depth = 1
