"""A request that is to go out, as the rules see it: host, program, method and path. Pure.

A path is compared in one spelling. A path that two programs could read differently has none: no
rule about paths allows it, and each that denies paths denies it.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple
from urllib.parse import unquote_to_bytes

import re2  # type: ignore[import-untyped]

from orchestrator.settings.hosts import Host

# The program that has a connection is what the sandbox reports: advice, not proof.
UNKNOWN = "unknown"
PROGRAM_PATTERN = r"[A-Za-z0-9][A-Za-z0-9._+-]{0,63}"
_ADDRESS = re.compile(rf"\0({PROGRAM_PATTERN})\0[0-9]+".encode())

MOST_GLOB = 256
_METHOD = re.compile(r"[A-Z][A-Z-]{0,31}")
_GLOB = re.compile(r"/[^?#%\\;]*")
_STARS = re.compile(r"(\*+)")
_ESCAPE = re.compile(r"%(?![0-9A-Fa-f]{2})")
# Parts of a path that is decoded once: programs could decode them again, end a name there, or
# take them for a slash.
_AMBIGUOUS = (
    (re.compile(r"[\x00-\x1f\x7f]"), "it has a control character"),
    (re.compile(r"\\"), "it has a backslash"),
    (re.compile(r";"), "it has a semicolon"),
    (re.compile(r"//"), "it has two slashes together"),
    (re.compile(r"/\.{1,2}(/|$)"), "it has a segment of dots"),
    (re.compile(r"%[0-9A-Fa-f]{2}"), "it is escaped twice"),
)
# With these header fields, some servers use another method or path than the request line's.
_REPLACING = frozenset(
    b"x-http-method x-http-method-override x-method-override x-original-url x-rewrite-url".split()
)


def program_of(address: object) -> str:
    """The program in the address of the forwarder's side of the socket; UNKNOWN if it has none."""
    found = _ADDRESS.fullmatch(address) if isinstance(address, bytes) else None
    return UNKNOWN if found is None else found[1].decode()


def check_program(text: str) -> str:
    """Returns it. Raises: ValueError unless a rule may name it."""
    if not re.fullmatch(PROGRAM_PATTERN, text) or text == UNKNOWN:
        raise ValueError('must be the name of a program, such as "git", without its directory')
    return text


class PathError(ValueError):
    """A path that two programs could read differently; the message says why."""


def plain_path(path: str) -> str:
    """The path decoded, without its query. Raises: PathError."""
    raw = path.partition("?")[0]
    if _ESCAPE.search(raw):
        raise PathError("it has a malformed escape")
    if "%2f" in raw.lower():
        raise PathError("it has an escaped slash")
    try:
        plain = unquote_to_bytes(raw).decode()
    except UnicodeDecodeError:
        raise PathError("it is not UTF-8") from None
    for pattern, why in _AMBIGUOUS:
        if pattern.search(plain):
            raise PathError(why)
    return plain


def replacing(headers: Iterable[tuple[bytes, bytes]]) -> str | None:
    """The first header field by which a server could take another method or path."""
    names = (name.lower() for name, _ in headers)
    return next((name.decode() for name in names if name in _REPLACING), None)


@dataclass(frozen=True, slots=True)
class Glob:
    """A pattern of paths: `*` is any part of a segment, and `**` any part of the path."""

    text: str

    def matches(self, plain: str) -> bool:
        """Whether it matches the whole path, as `plain_path` returns it."""
        parts = ({"*": "[^/]*", "**": "(?s:.*)"}.get(each) for each in _STARS.split(self.text))
        escaped = map(re2.escape, _STARS.split(self.text))
        pattern = "".join(part or text for part, text in zip(parts, escaped, strict=True))
        return re2.fullmatch(pattern, plain) is not None

    def __str__(self) -> str:
        return self.text


def check_glob(text: str) -> str:
    """Returns it. Raises: ValueError if no path can match it, or if it is ambiguous."""
    if len(text) > MOST_GLOB or not _GLOB.fullmatch(text):
        raise ValueError(
            f"must begin with a slash, have at most {MOST_GLOB} characters, and none of ? # % \\ ;"
        )
    try:
        plain_path(text)
    except PathError as error:
        raise ValueError(f"matches no path: {error}") from None
    if "***" in text:
        raise ValueError("may have * and **, not more stars")
    return text


def check_method(text: str) -> str:
    """Returns it. Raises: ValueError."""
    if not _METHOD.fullmatch(text) or text == "CONNECT":
        raise ValueError('must be a method in capitals, such as "GET", and not CONNECT')
    return text


class Requested(NamedTuple):
    """A request to a host. `plain` is its path; None if it is ambiguous, as `why` explains."""

    method: str
    plain: str | None
    why: str | None = None

    @classmethod
    def of(cls, method: str, path: str, headers: Iterable[tuple[bytes, bytes]] = ()) -> "Requested":
        """From a request's line and header fields."""
        field = replacing(headers)
        if field is not None:
            return cls(method, None, f"its field {field} could replace its method or path")
        if method != method.upper():
            return cls(method, None, "its method is not in capitals, which some servers ignore")
        try:
            return cls(method, plain_path(path))
        except PathError as error:
            return cls(method, None, f"its path can be read in several ways: {error}")


class Outgoing(NamedTuple):
    """A request to a host by a program; `requested` is None for a tunnel."""

    host: Host
    port: int
    requested: Requested | None = None
    program: str = UNKNOWN
