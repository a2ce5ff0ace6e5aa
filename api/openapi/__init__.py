"""The OpenAPI document of the HTTP API, generated from the operations."""

from typing import Any

from api.catalog import OPERATIONS
from api.openapi.paths import paths
from api.openapi.problems import component_responses, problem_examples
from api.shape.schemas import component_schemas
from api.shape.version import VERSION
from paddock.contract.code import CONTEXT_NAME
from paddock.contract.problem import Problem
from paddock.contract.shells import SHELL_NAME
from paddock.contract.words import (
    ID_PATTERN,
    OUTSIDE_NAME,
    SNAPSHOT_NAME,
    TEMPLATE_NAME,
    VOLUME_NAME,
)

# Servers take lines of 8,190 bytes in the head of a request.
_MOST_HEADER = 8000

_DESCRIPTION = """\
Paddock runs the commands of AI agents in sandboxes that it governs: one container per session, \
a permission level that defines what may run, and a tamper-evident record.

**Credentials.** A bearer token: an API key, or a session's own *handle*, which is limited to \
that session. A key sees its own sessions, an admin's key all sessions. A viewer's key reads and \
changes nothing; a metrics key reads the metrics. `x-roles` has the roles of each operation.

**Errors** are problem documents (RFC 9457) with a stable `code` and, if a policy refused, \
its `rule`. A command's non-zero exit is not an error.

**Input** is strict: unknown members and parameters are refused, and so are NUL and lone \
surrogates in strings, and bodies over the limit that their operation states. A body must arrive \
with at least 8 KiB a second, and what one caller may have unfinished is limited. **Output** may \
get further members in later versions: ignore unknown ones.

**Times** are RFC 3339 in UTC; durations are in seconds, or in milliseconds if a name ends \
in `_ms`. Lists are `{items, next}`.

**Events.** With `Accept: text/event-stream`, commands and audit events are sent as Server-Sent \
Events. An idle stream sends a comment every 15 s.\
"""

_TAGS = {
    "Sessions": "A session has a permission level, a workspace and a sandbox.",
    "Commands": "Commands of a session. No shell reads a command; it is run as it is.",
    "Shells": "Shells that keep their directory, variables and jobs between commands.",
    "Code": "Cells of Python and other languages, in contexts that keep names from cell to cell.",
    "Terminals": "Interactive tools of a session, and their transcripts.",
    "Files": "A workspace's files. Paths are relative to the workspace, or under its path.",
    "Context packs": "Sessions that read the files of a pack and nothing else.",
    "MCP": "The session's operations as tools of an agent, by the Model Context Protocol.",
    "Turns": "Programs of governed operations, run by the host one at a time.",
    "Runs": "A model that works in a session by calling tools, and the timeline of what was said.",
    "Tools": "Interactive programs: each line is declared, decided, and approved if required.",
    "Snapshots": "A session as one archive, which another control plane restores.",
    "Proposals": "What a session in proposal mode staged, until its host commits or discards it.",
    "Ports": "Programs in a sandbox that clients may reach, on an origin of their own.",
    "Secrets": "Values that only the proxy has, for requests that name them.",
    "Volumes": "Files of a key that its sessions mount, and that outlive all of them.",
    "Templates": "Prepared workspaces, from which sessions are created.",
    "Memory": "What sessions of a key remember for later ones.",
    "Hooks": "URLs that receive a signed POST for each event of sessions.",
    "Owners": "What is kept of the owners of sessions, exported and erased; for admins' keys.",
    "Audit": "One hash chain of events per session, recorded before a caller learns of them.",
    "Policies": "What the permission levels allow.",
    "Keys": "Who may call, and how much. Only the answer to a creation has a key.",
    "Sign-in": "Users of the operator's issuers of tokens (OpenID Connect).",
    "Nodes": "The machines of a cluster, behind one address.",
    "Health": "Liveness, readiness and metrics.",
}

_HEADERS = {
    "X-Request-Id": ("The request's id; also in problem documents and in the log.", True),
    "Location": ("The path of the new session.", True),
    "WWW-Authenticate": ("The required scheme.", True),
    "X-Paddock-Permissions": ("The nine bits of the file's mode, octal.", True),
    "X-Paddock-Modified": ("When the file was changed last: seconds since 1970-01-01.", False),
    "ETag": ("The version, in quotes; of a context pack's file the sha256.", False),
    "Accept-Ranges": ("`bytes`; `none`: no part of it can be requested.", True),
    "Content-Range": ("Which bytes these are, and of how many.", True),
    "X-Paddock-Skipped": ("How many entries are left out of the archive.", True),
    "X-Paddock-Skipped-Names": ("The first of them, as a JSON array of strings.", True),
    "Retry-After": ("Seconds to wait before a retry, if known.", False),
}


def document() -> dict[str, Any]:
    """The whole document, OpenAPI 3.1, as JSON values."""
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Paddock",
            "version": VERSION,
            "description": _DESCRIPTION,
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "servers": [{"url": "/"}],
        "tags": [{"name": name, "description": text} for name, text in _TAGS.items()],
        "paths": paths(OPERATIONS),
        "components": {
            "schemas": component_schemas(OPERATIONS, Problem),
            "parameters": _parameters(),
            "responses": component_responses(OPERATIONS),
            "headers": {
                name: {"description": text, "required": required, "schema": {"type": "string"}}
                for name, (text, required) in _HEADERS.items()
            },
            "examples": problem_examples(),
            "securitySchemes": {
                "key": {"type": "http", "scheme": "bearer", "description": "An API key."},
                "handle": {
                    "type": "http",
                    "scheme": "bearer",
                    "description": "The handle of the session in the path.",
                },
            },
        },
    }


def _parameters() -> dict[str, Any]:
    in_path = (
        _in_path("session_id", "A session's id.", f"^{ID_PATTERN}$", "sess-4f1c0a9be27d3586"),
        _in_path("command_id", "A command's id.", "^[0-9a-f]{16}$", "8d3c0f5a1b2e4967"),
        _number_in_path("port", "A port of the sandbox.", 8000, maximum=65535),
        _number_in_path("number", "A turn's number.", 1),
        _in_path("terminal_id", "A terminal's id.", *_prefixed("pty-", "8d3c0f5a1b2e4967")),
        _in_path(
            "entry_id", "The id of an entry of the memory.", *_prefixed("mem-", "0123456789abcdef")
        ),
        _in_path("approval_id", "An approval's id.", *_prefixed("apr-", "7d2b9e64c1f3a058")),
        _in_path(
            "hook_id",
            "A hook's id: for one of the configuration its name.",
            f"^{OUTSIDE_NAME}$",
            "hook-0123456789abcdef",
        ),
        _in_path(
            "delivery_id", "The id of a message to a hook.", *_prefixed("dlv-", "0123456789abcdef")
        ),
    )
    # By the collection that the name is of.
    names = {
        "secrets": ("A secret's name.", f"^{OUTSIDE_NAME}$", "openai"),
        "volumes": ("A volume's name.", VOLUME_NAME, "cache"),
        "snapshots": ("A snapshot's name or id.", SNAPSHOT_NAME, "base"),
        "templates": ("A template's name.", f"^{TEMPLATE_NAME}$", "website"),
        "keys": ("A key's name.", "^.{1,64}$", "ci"),
        "users": ("A user's name, or `@` and an issuer's.", "^.{1,128}$", "alice@corp"),
        "nodes": ("A node's name.", "^.{1,64}$", "node-1"),
        "owners": ("The name of the owner's key.", "^.{1,64}$", "ci"),
        "shells": ("A shell's name.", SHELL_NAME, "build"),
        "contexts": ("A code context's name.", CONTEXT_NAME, "analysis"),
    }
    last_event: dict[str, Any] = {
        "name": "Last-Event-ID",
        "in": "header",
        "required": False,
        "description": "The last event that was received; takes precedence over `after`, which "
        "also takes longer ones.",
        "schema": {"type": "string", "pattern": "^[A-Za-z0-9_-]+$", "maxLength": _MOST_HEADER},
    }
    of_files = (
        _header("If-Match", "Entity tags, or `*`: the file must be one of these versions."),
        _header("If-None-Match", "Entity tags, or `*`: the file must be none of these versions."),
        _header("Range", "One range, `bytes=FIRST-LAST`, `bytes=FIRST-` or `bytes=-COUNT`."),
    )
    return {
        **{each["name"]: each for each in (*in_path, last_event, *of_files)},
        **{f"{of}_name": _in_path("name", *described) for of, described in names.items()},
    }


def _header(name: str, description: str) -> dict[str, Any]:
    return {
        "name": name,
        "in": "header",
        "required": False,
        "description": description,
        "schema": {"type": "string", "maxLength": 2048},
    }


def _in_path(name: str, description: str, pattern: str, example: str) -> dict[str, Any]:
    return {
        "name": name,
        "in": "path",
        "required": True,
        "description": description,
        "schema": {"type": "string", "pattern": pattern},
        "example": example,
    }


def _number_in_path(name: str, description: str, example: int, **bounds: int) -> dict[str, Any]:
    schema = {"type": "integer", "minimum": 1, **bounds}
    return {**_in_path(name, description, "", ""), "schema": schema, "example": example}


def _prefixed(prefix: str, digits: str) -> tuple[str, str]:
    """The pattern of an id of 16 digits after a prefix, and an example."""
    return f"^{prefix}[0-9a-f]{{16}}$", f"{prefix}{digits}"
