"""What agents of earlier protocols understand, whose sandboxes this control plane takes over. Pure.

An earlier agent ignores each member of a request that it does not know. So a member is left out
where that means the same, and otherwise the request is refused: nothing is done by half.
"""

from typing import Any, NamedTuple

from orchestrator.ground.errors import ConflictError, SandboxUnavailableError
from orchestrator.host.link.ask_tokens import ASKER
from sandbox_agent.decide.files.names import has_escape
from sandbox_agent.decide.protocol import PROTOCOL_VERSION, Message

# The protocol of the first release.
OLDEST = 9
# Before it, a program could read a file of a pack that was exchanged from outside.
_PACKS = 10
# Code contexts: their programs are files of the agent.
CODE = "code contexts"
# The first protocol that has each request; the others are in all of them.
_REQUESTS = {
    **dict.fromkeys(("file.search", "file.patch", "file.copy", "file.chmod", "file.changes"), 12),
    **dict.fromkeys(("pty.run", "pty.interrupt", "programs", "vouch", CODE), 12),
}
# The text of names that are not UTF-8.
_ESCAPES = 12
_NAMES = ("path", "source", "destination", "target")


class _Member(NamedTuple):
    """Since when there is a member, and the values that say what its absence says."""

    since: int
    silent: tuple[Any, ...]


_ANY = object()
# Since then the agent can say who has asked, and when output was read. It does the same without.
_TOLD = _Member(12, (_ANY,))
_CONDITIONS = {name: _Member(12, ()) for name in ("match", "none_match")}
_ATTRIBUTES = {"attributes": _Member(12, ())}
_MEMBERS: dict[str, dict[str, _Member]] = {
    "exec": {"merge": _Member(12, (False,)), "output_file": _Member(12, (None,))},
    "output": {"times": _TOLD},
    "pty.open": {"kept": _Member(12, (False,)), "cwd": _Member(12, ("",))},
    "file.open": {
        "modified": _Member(11, (None,)),
        "range": _Member(12, ()),
        "recursive": _Member(12, ()),
        **_CONDITIONS,
        **_ATTRIBUTES,
    },
    "file.list": {"glob": _Member(12, (None,)), **_ATTRIBUTES},
    "file.stat": _ATTRIBUTES,
    "file.delete": {"recursive": _Member(12, (False,)), **_CONDITIONS},
}


class EarlierAgentError(ConflictError):
    """The session's sandbox is of an earlier version, which can't do this."""


def taken_over(label: str | None, *, packed: bool) -> int:
    """The protocol of a sandbox's agent, by its container's label.

    `packed`: its session has a context pack. Raises: SandboxUnavailableError if it can't be taken
    over.
    """
    known = label is not None and label.isascii() and label.isdecimal() and len(label) < 6
    protocol = int(label or 0) if known else 0
    if not OLDEST <= protocol <= PROTOCOL_VERSION:
        raise SandboxUnavailableError(
            f"its agent speaks protocol {label}, and this control plane speaks {OLDEST} to "
            f"{PROTOCOL_VERSION}"
        )
    if packed and protocol < _PACKS:
        raise SandboxUnavailableError(
            f"its agent speaks protocol {protocol}, which does not protect a context pack as this "
            "version does"
        )
    return protocol


def knows(protocol: int, request: str) -> bool:
    """Whether agents of that protocol have the request."""
    return protocol >= _REQUESTS.get(request, OLDEST)


def said(protocol: int, request: str, params: Message) -> Message:
    """The request's members for an agent of that protocol. Raises: EarlierAgentError."""
    if protocol == PROTOCOL_VERSION:
        return params
    if not knows(protocol, request):
        raise _cannot(request)
    known = _MEMBERS.get(request, {}) | {ASKER: _TOLD}
    kept = {}
    for name, value in params.items():
        member = known.get(name)
        if member is None or protocol >= member.since:
            kept[name] = value
        elif value not in member.silent and _ANY not in member.silent:
            raise _cannot(f"{request} with {name}")
    if protocol < _ESCAPES and any(has_escape(str(kept.get(name, ""))) for name in _NAMES):
        raise _cannot("names of files that are not UTF-8")
    return kept


def _cannot(what: str) -> EarlierAgentError:
    return EarlierAgentError(
        f"the session's sandbox is of an earlier version, which has no {what}: set the session's "
        "permission level again, which gives it a new sandbox"
    )
