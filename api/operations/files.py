"""Files of a session's workspace."""

from http import HTTPStatus

from api.auth import Access
from api.operations.base import BYTES, SESSION, Operation, Reply, ok
from api.queries import ListQuery, PathQuery, WriteQuery
from api.routes import files
from api.schemas import LinkBody, MoveBody, PathBody
from paddock.contract.files import FileLink, FileList, FileMoved, FilePath, FileWritten

_TAG = "Files"
_FILES = SESSION + "/files"
_ERRORS = (
    "session_terminated",
    "invalid_transition",
    "conflict",
    "busy",
    "permission_denied",
    "sandbox_unavailable",
)

OPERATIONS = (
    Operation(
        "GET",
        _FILES,
        files.read,
        Access.WORK,
        query=PathQuery,
        id="read_file",
        tag=_TAG,
        summary="Read a file",
        replies=ok("The file's bytes.", media_type=BYTES, headers=(files.PERMISSIONS_HEADER,)),
        errors=_ERRORS,
    ),
    Operation(
        "PUT",
        _FILES,
        files.write,
        Access.WORK,
        query=WriteQuery,
        upload=True,
        id="write_file",
        tag=_TAG,
        summary="Write a file",
        replies=ok("What was written.", FileWritten),
        errors=(*_ERRORS, "too_large"),
    ),
    Operation(
        "DELETE",
        _FILES,
        files.delete,
        Access.WORK,
        query=PathQuery,
        id="delete_file",
        tag=_TAG,
        summary="Remove a file or an empty directory",
        replies=ok("What was removed.", FilePath),
        errors=_ERRORS,
    ),
    Operation(
        "GET",
        _FILES + "/list",
        files.list_directory,
        Access.WORK,
        query=ListQuery,
        id="list_files",
        tag=_TAG,
        summary="List a directory",
        replies=ok("What it holds.", FileList),
        errors=_ERRORS,
    ),
    Operation(
        "POST",
        _FILES + "/mkdir",
        files.make_directory,
        Access.WORK,
        body=PathBody,
        id="make_directory",
        tag=_TAG,
        summary="Make a directory",
        replies={HTTPStatus.CREATED: Reply("The directory is there.", FilePath)},
        errors=_ERRORS,
        examples={"nested": {"path": "src/lib"}},
    ),
    Operation(
        "POST",
        _FILES + "/symlink",
        files.make_link,
        Access.WORK,
        body=LinkBody,
        id="make_link",
        tag=_TAG,
        summary="Make a symbolic link",
        replies={HTTPStatus.CREATED: Reply("The link is there.", FileLink)},
        errors=_ERRORS,
        examples={"relative": {"path": "bin/tool", "target": "../lib/tool.py"}},
    ),
    Operation(
        "POST",
        _FILES + "/move",
        files.move,
        Access.WORK,
        body=MoveBody,
        id="move_file",
        tag=_TAG,
        summary="Rename a file or directory",
        replies=ok("What was renamed.", FileMoved),
        errors=_ERRORS,
        examples={"rename": {"source": "draft.txt", "destination": "notes.txt"}},
    ),
)
