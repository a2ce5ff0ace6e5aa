"""A guest's only way out: fetches from the package mirrors, and from nothing else.

QEMU starts this for each connection to the guest's proxy, with the connection as standard input
and output: `python mirror.py HOST…`. It answers one request of an HTTP proxy and ends. Standard
library only, so that it starts quickly.
"""

import http.client
import os
import shutil
import sys
from collections.abc import Collection, Iterable
from typing import BinaryIO
from urllib.parse import urlsplit

SECONDS = 120
_LONGEST_LINE = 8192
_MOST_LINES = 100
# What apt asks for besides the path.
_PASSED = frozenset({"accept", "range", "if-range", "if-modified-since", "cache-control"})
_ANSWERED = frozenset({"content-length", "content-range", "content-type", "last-modified"})


class RefusedError(Exception):
    """A request that is not passed on; the message is the status line's."""


def asked(lines: list[str], mirrors: Collection[str]) -> tuple[str, str, dict[str, str]]:
    """Method, URL and headers of what is passed on. Raises: RefusedError."""
    method, _, rest = lines[0].partition(" ")
    url = rest.rpartition(" ")[0]
    if method not in ("GET", "HEAD"):
        raise RefusedError("405 Only GET and HEAD")
    place = urlsplit(url)
    if place.scheme != "http" or place.netloc not in mirrors:
        raise RefusedError("403 Only the package mirrors")
    found = (line.partition(":") for line in lines[1:])
    headers = {name: value.strip() for name, _, value in found if name.lower() in _PASSED}
    return method, url, headers


def read_head(stream: BinaryIO) -> list[str]:
    """The lines of a request's head. Raises: RefusedError if they are too many or too long."""
    lines: list[str] = []
    for _ in range(_MOST_LINES):
        line = stream.readline(_LONGEST_LINE)
        if not line.endswith(b"\n"):
            raise RefusedError("400 A line is cut or too long")
        if line in (b"\r\n", b"\n"):
            if lines:
                return lines
            continue
        lines.append(line.decode("latin-1").strip())
    raise RefusedError("400 Too many lines")


def head(status: str, headers: Iterable[tuple[str, str]] = ()) -> bytes:
    """An answer's head; the connection ends after the answer."""
    lines = [f"HTTP/1.1 {status}", *(f"{name}: {value}" for name, value in headers)]
    return "\r\n".join([*lines, "Connection: close", "", ""]).encode("latin-1")


def serve(stream: BinaryIO, out: BinaryIO, mirrors: Collection[str], proxy: str | None) -> None:
    """Answers one request; `proxy` is the host's own way to the mirrors."""
    try:
        method, url, headers = asked(read_head(stream), mirrors)
    except (RefusedError, ValueError) as error:
        out.write(head(str(error), [("Content-Length", "0")]))
        return
    place = urlsplit(proxy or url)
    path = url if proxy else urlsplit(url)._replace(scheme="", netloc="").geturl()
    connection = http.client.HTTPConnection(place.netloc, timeout=SECONDS)
    try:
        connection.request(method, path, headers=headers)
        answer = connection.getresponse()
        kept = [each for each in answer.getheaders() if each[0].lower() in _ANSWERED]
        out.write(head(f"{answer.status} {answer.reason}", kept))
        shutil.copyfileobj(answer, out)
    except (OSError, http.client.HTTPException) as error:
        out.write(head(f"502 {type(error).__name__}", [("Content-Length", "0")]))
    finally:
        connection.close()


def main() -> int:
    """Serves this process's connection."""
    # Errors must not reach the guest as part of an answer.
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
    with sys.stdout.buffer as out:
        serve(sys.stdin.buffer, out, sys.argv[1:], os.environ.get("http_proxy"))
    return 0


if __name__ == "__main__":
    sys.exit(main())
