"""Files of a workspace."""

from typing import Annotated, Literal

from pydantic import Field, StringConstraints

from paddock.contract.base import Count, Model, example
from paddock.contract.fields import MOST_DEPTH, Depth, Glob, ListedPath, Truth, Whole, WorkspacePath
from paddock.contract.requests import Body, Query

_ENTRY = {
    "path": "src/main.py",
    "type": "file",
    "size": 1204,
    "mode": "0644",
    "modified": 1772616612.48,
    "target": None,
}


_ETAG = "5d0e1f2a3b4c5d6e7f8091a2b3c4d5e6"


class FileEntry(Model):
    """A file, directory or link; `path` is relative to the workspace.

    A byte of a name that is not UTF-8 is `\\x` and two hex digits, as in `\\xff`.
    """

    model_config = example(_ENTRY)

    path: str
    type: str = Field(description="`file`, `directory`, `symlink` or `other`.")
    size: Count = Field(description="Bytes.")
    mode: str = Field(pattern=r"^[0-7]{4,}$", description="Permissions, octal.")
    modified: float = Field(description="Seconds since 1970-01-01.")
    target: str | None = Field(description="The target of a symbolic link; null for other types.")

    @property
    def permissions(self) -> int:
        """The nine permission bits of `mode`."""
        return int(self.mode, 8) & 0o777


class FileStat(FileEntry):
    """A file, directory or link, with the entity tag of its present version."""

    model_config = example(_ENTRY | {"etag": _ETAG})

    etag: str = Field(description="It changes with the content, the name and the mode.")


class FileList(Model):
    """A directory's content; `truncated` if it does not fit into the answer."""

    model_config = example({"items": [_ENTRY], "next": None, "truncated": False})

    items: list[FileEntry]
    next: None
    truncated: bool


class FileWritten(Model):
    """A file that was written, and the bytes that were sent."""

    model_config = example({"path": "notes.txt", "mode": "overwrite", "bytes": 12, "etag": _ETAG})

    path: str
    mode: Literal["overwrite", "append"]
    bytes: Count
    etag: str | None = Field(
        default=None, description="The entity tag of the new version; null after appending."
    )


class ArchiveWritten(Model):
    """What an archive held, all of which is written now."""

    model_config = example(
        {
            "path": "src",
            "format": "tar",
            "files": 12,
            "directories": 3,
            "links": 1,
            "bytes": 48213,
            "paths_sha256": "5994471abb01112afcc18159f6cc74b4f511b99806da59b3caf5a9c173cacfc5",
            "skipped": 1,
            "skipped_names": [".venv/bin/python3"],
        }
    )

    path: str
    format: Literal["tar", "zip"]
    files: Count
    directories: Count
    links: Count = Field(description="Symbolic and hard links.")
    bytes: Count = Field(description="Of all files together.")
    paths_sha256: str = Field(
        description="The digest of all paths in their order, each followed by a NUL, as recorded."
    )
    skipped: Count = Field(default=0, description="Links with absolute targets: left out.")
    skipped_names: list[str] = Field(
        default=[], description="The first of them, escaped where they are not printable."
    )


class FilePath(Model):
    """The path that was created or removed."""

    model_config = example({"path": "src"})

    path: str


class FileRemoved(Model):
    """The path that was removed, and how many files, links and directories that were."""

    model_config = example({"path": "src", "removed": 12})

    path: str
    removed: Count = 1


class FileLink(Model):
    """A symbolic link that was created."""

    model_config = example({"path": "bin/tool", "target": "../lib/tool.py"})

    path: str
    target: str


class FileMoved(Model):
    """The paths of a rename."""

    model_config = example({"source": "draft.txt", "destination": "notes.txt"})

    source: str
    destination: str


class PathBody(Body):
    """A path in the workspace."""

    path: ListedPath


class LinkBody(Body):
    """A path in the workspace, and the target of the link there, relative to the link."""

    path: ListedPath
    target: ListedPath


class MoveBody(Body):
    """Two paths in the workspace."""

    source: ListedPath
    destination: ListedPath


class PathQuery(Query):
    """A path in the workspace."""

    path: WorkspacePath


class DeleteQuery(PathQuery):
    """A path in the workspace; `recursive`: with all that is in it."""

    recursive: Truth = False


class WriteQuery(PathQuery):
    """Whether the body replaces the file or is appended.

    `permissions`, in octal, apply to a replaced or new file; by default a file keeps its own, or
    gets 0644. `modified`: seconds since 1970-01-01, of the file's last change; by default now.
    `parents`: creates missing parent directories.
    """

    mode: Literal["overwrite", "append"] = "overwrite"
    permissions: Annotated[str, StringConstraints(pattern=r"^0?[0-7]{3}$", max_length=4)] | None = (
        None
    )
    modified: Annotated[Whole, Field(le=2**40)] | None = None
    parents: Truth = False


class ArchiveQuery(Query):
    """A directory, and the format of the archive."""

    path: WorkspacePath = "."
    format: Literal["tar", "zip"] = "tar"


class ListQuery(Query):
    """A directory, the number of levels to list, and which names.

    `depth` is 1 by default, and 64 with `glob`. `glob` is matched with the paths below the
    directory, and without a slash with the names: `*`, `?`, `[a-z]`, `{a,b}`, and `**` for any
    directories. Only a literal dot matches a dot at the beginning of a name.
    """

    path: WorkspacePath = "."
    depth: Depth | None = None
    glob: Glob | None = None

    @property
    def levels(self) -> int:
        """The number of levels to list."""
        return self.depth or (1 if self.glob is None else MOST_DEPTH)
