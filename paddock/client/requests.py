"""Builds requests: paths, and bodies without the members that are not given. No I/O."""

import base64
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import quote

from paddock.client.errors import ArgumentError

EXPLAIN = "/api/policies/explain"
# The longest time that the container engine may need.
ENGINE_SECONDS = 300.0
# The preparation of a template may take half an hour, unless the operator allows more.
TEMPLATE_SECONDS = 1900.0


def segment(name: str) -> str:
    """A name as one segment of a path. Raises: ArgumentError."""
    if not name:
        raise ArgumentError("an id must not be empty")
    try:
        quoted = quote(name, safe="")
    except UnicodeEncodeError:
        raise ArgumentError("an id must be text: it has bytes that are not UTF-8") from None
    # `.` and `..` would count as path steps.
    return quoted if quoted.strip(".") else quoted.replace(".", "%2E")


def session_path(session_id: str) -> str:
    """The path of a session. Raises: ArgumentError."""
    return f"/api/sessions/{segment(session_id)}"


def given(**members: Any) -> dict[str, Any]:
    """The members that are not None; mappings and sequences in their JSON form."""
    return {name: _plain(value) for name, value in members.items() if value is not None}


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return dict(value)
    return list(value) if isinstance(value, Sequence) and not isinstance(value, str) else value


def check_terms(what: str, terms: Mapping[str, Any], known: type) -> None:
    """Raises: TypeError for a term that the typed dictionary lacks."""
    if unknown := terms.keys() - known.__annotations__.keys():
        raise TypeError(f"a {what} has no term {min(unknown)!r}")


def exec_body(
    command: str | None,
    argv: Sequence[str] | None,
    shell: str | None,
    stdin: str | bytes | None,
    *,
    stdin_open: bool = False,
    merge: bool = False,
    **members: Any,
) -> dict[str, Any]:
    """The body of a command request. Raises: TypeError."""
    if sum(each is not None for each in (command, argv, shell)) != 1:
        raise TypeError("give exactly one of command, argv and shell")
    if isinstance(argv, str):
        raise TypeError("argv must be a sequence of words, not a string")
    return given(
        command=command,
        argv=argv,
        shell=shell,
        **input_members("stdin", stdin),
        stdin_open=stdin_open or None,
        merge=merge or None,
        **members,
    )


def input_members(name: str, data: str | bytes | None) -> dict[str, str | None]:
    """Text unchanged, bytes in base64."""
    if isinstance(data, str | None):
        return {name: data}
    return {f"{name}_base64": base64.b64encode(data).decode("ascii")}
