"""Reads the head of a request to the proxy. Pure.

It is strict: what two programs could read differently is refused, so that no second request can be
hidden in the first one.
"""

import re
from typing import NamedTuple

from orchestrator.rules.egress.outgoing_request import UNKNOWN, Outgoing, Requested
from orchestrator.settings.hosts import Host, HostError, authority, parse_host

_MOST_HEADERS = 128
_MOST_LENGTH_DIGITS = 15
_TOKEN = rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+"
_REQUEST_LINE = re.compile(rb"(" + _TOKEN + rb") ([!-~]+) HTTP/1\.([01])")
# Control characters, except the tab, are refused; other bytes are passed on. White space around
# the value is cut off afterwards: an expression that may divide it in many ways tries them all.
_HEADER = re.compile(rb"(" + _TOKEN + rb"):([\t\x20-\x7e\x80-\xff]*)")
_PORT = re.compile(r"[0-9]{1,5}")
_MOST_METHOD = 32
# These fields concern one connection only. `Connection` may name more.
_HOP_BY_HOP = frozenset(
    b"connection keep-alive proxy-connection te trailer upgrade http2-settings".split()
)
# A client can't have these removed by naming them in `Connection`.
_KEPT = frozenset(b"host content-length transfer-encoding".split())


class HeadError(ValueError):
    """A request that is refused; the message says why."""


class RequestHead(NamedTuple):
    """A request: CONNECT, or one for a URL.

    `path` has the query; both it and `headers` are for the upstream. `length` is the length of the
    body, None if it comes in chunks. `secure`: it goes out in TLS that begins here, because it came
    in a tunnel that is inspected, or because it is `upgraded`.
    `secrets` are the names of those whose values are in `headers`. `program` is what sent it.
    """

    method: str
    host: Host
    port: int
    path: str = ""
    headers: tuple[tuple[bytes, bytes], ...] = ()
    length: int | None = 0
    secure: bool = False
    secrets: tuple[str, ...] = ()
    upgraded: bool = False
    program: str = UNKNOWN

    @property
    def connect(self) -> bool:
        """Whether it asks for a tunnel."""
        return self.method == "CONNECT"

    @property
    def requested(self) -> Requested | None:
        """What it asks of the host; None: a tunnel."""
        return None if self.connect else Requested.of(self.method, self.path, self.headers)

    @property
    def outgoing(self) -> Outgoing:
        """What the rules decide about it."""
        return Outgoing(self.host, self.port, self.requested, self.program)

    def in_tls(self, port: int) -> "RequestHead":
        """The same request, sent to that port in TLS."""
        return self._replace(port=port, secure=True, upgraded=True)

    def upstream(self) -> bytes:
        """The head as the upstream receives it: of the only request on its connection."""
        named = authority(self.host, self.port)
        usual = 443 if self.secure else 80
        if self.port == usual:
            named = named.removesuffix(f":{usual}")
        lines = [f"{self.method} {self.path} HTTP/1.1".encode(), f"Host: {named}".encode()]
        lines += [name + b": " + value for name, value in self.headers]
        return b"\r\n".join([*lines, b"Connection: close", b"", b""])


def parse_head(data: bytes) -> RequestHead:
    """Reads a head, with the empty line at its end. Raises: HeadError."""
    method, target, headers, required = _lines(data)
    if method.upper() == "CONNECT":
        return _connect(method, target, headers)
    host, port, path = _url(target)
    _check_host(headers, host, port, required=required)
    return RequestHead(method, host, port, path, _passed_on(headers), _length(headers))


def parse_inside(data: bytes, host: Host, port: int, *, secure: bool = True) -> RequestHead:
    """Reads a head in a tunnel to this host; not `secure`: without TLS. Raises: HeadError."""
    method, target, headers, _ = _lines(data)
    if method.upper() == "CONNECT":
        raise HeadError("there is a tunnel already")
    if not target.startswith("/") or "#" in target:
        raise HeadError("the target must be a path without a fragment")
    _check_host(headers, host, port, required=True)
    passed, length = _passed_on(headers), _length(headers)
    return RequestHead(method, host, port, target, passed, length, secure=secure)


def _lines(data: bytes) -> tuple[str, str, list[tuple[bytes, bytes]], bool]:
    """The method, the target and the fields, and whether Host is needed. Raises: HeadError."""
    if not data.endswith(b"\r\n\r\n"):
        raise HeadError("the head does not end in an empty line")
    first, *lines = data[:-4].split(b"\r\n")
    line = _REQUEST_LINE.fullmatch(first)
    if line is None or len(line[1]) > _MOST_METHOD:
        raise HeadError("the request line is malformed")
    if len(lines) > _MOST_HEADERS:
        raise HeadError("there are too many header fields")
    headers = [_header(each) for each in lines]
    return line[1].decode(), line[2].decode(), headers, line[3] == b"1"


def _header(line: bytes) -> tuple[bytes, bytes]:
    """Raises: HeadError, also for a folded line or a space before the colon."""
    found = _HEADER.fullmatch(line)
    if found is None:
        raise HeadError("a header field is malformed")
    return found[1], found[2].strip(b" \t")


def _connect(method: str, target: str, headers: list[tuple[bytes, bytes]]) -> RequestHead:
    """Raises: HeadError."""
    if method != "CONNECT":
        raise HeadError("the method is not known")
    if _values(headers, b"content-length", b"transfer-encoding"):
        raise HeadError("CONNECT has no body")
    host, port = _authority(target, None)
    _check_host(headers, host, port, required=False)
    return RequestHead(method, host, port)


def _url(target: str) -> tuple[Host, int, str]:
    """The host, the port and the path of a URL. Raises: HeadError."""
    scheme, mark, rest = target.partition("://")
    if not mark or scheme.lower() != "http":
        raise HeadError("the target must be an http:// URL: use CONNECT for https://")
    if "#" in rest:
        raise HeadError("the target must not have a fragment")
    end = min((at for at in map(rest.find, "/?") if at >= 0), default=len(rest))
    host, port = _authority(rest[:end], 80)
    path = rest[end:]
    return host, port, path if path.startswith("/") else f"/{path}"


def _authority(text: str, default: int | None) -> tuple[Host, int]:
    """Raises: HeadError."""
    if "@" in text or "%" in text or "\\" in text:
        raise HeadError("the target has user information or escapes in its host")
    name, colon, digits = text.rpartition(":")
    if not colon or text.endswith("]"):
        name, digits = text, ""
    elif not digits:
        raise HeadError("the target's port is missing")
    if not digits and default is None:
        raise HeadError("the target must be a host and a port")
    if digits and not _PORT.fullmatch(digits):
        raise HeadError("the target's port is not a number")
    port = int(digits) if digits else default or 0
    if not 0 < port < 65536:
        raise HeadError("the target's port is out of range")
    if ":" in name and not (name.startswith("[") and name.endswith("]")):
        raise HeadError("an IPv6 address must be in brackets")
    try:
        return parse_host(name), port
    except HostError as error:
        raise HeadError(str(error)) from None


def _check_host(
    headers: list[tuple[bytes, bytes]], host: Host, port: int, *, required: bool
) -> None:
    """Raises: HeadError unless the header field names the target's host, once."""
    found = _values(headers, b"host")
    if not found and not required:
        return
    if len(found) != 1:
        raise HeadError("there must be one Host field")
    try:
        # Clients may leave the port out.
        named = _authority(found[0].decode("ascii"), port)
    except UnicodeDecodeError:
        raise HeadError("the Host field is malformed") from None
    if named != (host, port):
        raise HeadError("the Host field names another host than the target")


def _length(headers: list[tuple[bytes, bytes]]) -> int | None:
    """The body's length; None if it comes in chunks. Raises: HeadError."""
    lengths, codings = _values(headers, b"content-length"), _values(headers, b"transfer-encoding")
    if lengths and codings:
        raise HeadError("there are both Content-Length and Transfer-Encoding")
    if codings:
        if [coding.lower() for coding in codings] != [b"chunked"]:
            raise HeadError("the only Transfer-Encoding is chunked")
        return None
    if not lengths:
        return 0
    (length, *more) = lengths
    if more or not length.isdigit() or len(length) > _MOST_LENGTH_DIGITS:
        raise HeadError("there must be one Content-Length, a number")
    return int(length)


def _passed_on(headers: list[tuple[bytes, bytes]]) -> tuple[tuple[bytes, bytes], ...]:
    """What the upstream receives, without Host. Raises: HeadError."""
    named = {
        name.strip().lower()
        for value in _values(headers, b"connection")
        for name in value.split(b",")
    }
    if named & _KEPT:
        raise HeadError("Connection names a field that must be kept")
    dropped = _HOP_BY_HOP | named | {b"host"}
    return tuple(
        (name, value)
        for name, value in headers
        if name.lower() not in dropped and not name.lower().startswith(b"proxy-")
    )


def _values(headers: list[tuple[bytes, bytes]], *names: bytes) -> list[bytes]:
    return [value for name, value in headers if name.lower() in names]
