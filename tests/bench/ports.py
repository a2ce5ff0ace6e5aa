"""What an open port costs: its program through the previews' origin beside the same on the host."""

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial

from images.builder import build
from tests.bench.fetching import MIB, flat, on_host
from tests.bench.report import Result, compare
from tests.bench.rounds import alternating
from tests.support.box import Box
from tests.support.plane import opened
from tests.support.ports import listening, opened_port
from tests.support.previews import previews

_REQUESTS = 50  # one after another, in each turn
_AT_ONCE = 50
_GIB = 1024 * MIB
# Prints its port; `GET /N` answers with N bytes, and ends the connection.
_PROGRAM = """
import socketserver
class Answer(socketserver.StreamRequestHandler):
    def handle(self):
        left = int(self.rfile.readline().split()[1].rpartition(b"/")[2])
        while self.rfile.readline().strip():
            pass
        self.wfile.write(b"HTTP/1.1 200 OK\\r\\nContent-Length: %d\\r\\n"
            b"Connection: close\\r\\n\\r\\n" % left)
        block = bytes(1 << 20)
        while left:
            self.wfile.write(block[:left])
            left -= min(left, len(block))
class Server(socketserver.ThreadingTCPServer):
    request_queue_size = 128
server = Server(("127.0.0.1", 0), Answer)
print("port", server.server_address[1], flush=True)
server.serve_forever()
"""


async def ports(rounds: int, size: int = _GIB) -> list[Result]:
    """Latency, a large download and many connections, each beside the program on the host."""
    async with _ways() as (through, direct):
        one = [partial(on_host, f"{url}/1", _REQUESTS) for url in (through, direct)]
        ours, theirs = await alternating(rounds, *one)
        results = [compare("a request to an open port", ours, "direct", theirs)]
        large = [partial(on_host, f"{url}/{size}") for url in (through, direct)]
        results += await flat(f"download of {size // MIB} MiB", rounds, *large)
        many = [partial(on_host, f"{url}/{MIB}", _AT_ONCE, _AT_ONCE) for url in (through, direct)]
        results += await flat(f"{_AT_ONCE} downloads of 1 MiB at once", rounds, *many)
        return results


@asynccontextmanager
async def _ways() -> AsyncIterator[tuple[str, str]]:
    """The URLs of the program in a sandbox, by its link, and of the program on the host."""
    image = "paddock/sandbox:bench"
    await asyncio.to_thread(build, image, report=lambda _line: None)
    async with opened(image=image) as plane, previews(plane) as shown, _on_host() as port:
        box = await Box.create(plane, "high")
        command = await listening(box, "python3", "-c", _PROGRAM, ready="\n")
        said = await box.printed(command, "\n")
        inside = await opened_port(box, shown, int(said.split()[1]))
        yield f"{shown.origin}{inside.link}", f"http://127.0.0.1:{port}"


@asynccontextmanager
async def _on_host() -> AsyncIterator[int]:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", _PROGRAM), stdout=asyncio.subprocess.PIPE
    )
    try:
        assert process.stdout is not None
        yield int((await process.stdout.readline()).split()[1])
    finally:
        process.kill()
        await process.wait()
