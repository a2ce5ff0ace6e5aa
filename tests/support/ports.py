"""Open ports of real sandboxes, and the programs that listen there."""

from dataclasses import dataclass

from aiohttp import ClientResponse

from orchestrator.rules.access.keys import ADMIN_NAME, Principal, Role
from orchestrator.sandbox.ports.host_names import host_label
from orchestrator.state.command import Command
from tests.support.box import Box
from tests.support.previews import Previews

# A key that exists: ports close with their key.
ADMIN = Principal(ADMIN_NAME, Role.ADMIN)
# Answers each WebSocket message by itself, in either form; with the standard library alone.
WEBSOCKET = """
import base64, hashlib, socketserver, struct
class Echo(socketserver.StreamRequestHandler):
    def handle(self):
        key = b""
        while (line := self.rfile.readline().strip()):
            name, _, value = line.partition(b":")
            if name.lower() == b"sec-websocket-key":
                key = value.strip()
        digest = hashlib.sha1(key + b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11").digest()
        self.wfile.write(b"HTTP/1.1 101 Switching Protocols\\r\\nUpgrade: websocket\\r\\n"
            b"Connection: Upgrade\\r\\nSec-WebSocket-Accept: " + base64.b64encode(digest)
            + b"\\r\\n\\r\\n")
        while len(head := self.rfile.read(2)) == 2:
            size = head[1] & 127
            if size == 126:
                size, = struct.unpack("!H", self.rfile.read(2))
            elif size == 127:
                size, = struct.unpack("!Q", self.rfile.read(8))
            mask = self.rfile.read(4)
            data = bytes(b ^ mask[i % 4] for i, b in enumerate(self.rfile.read(size)))
            short = struct.pack("!B", size) if size < 126 else struct.pack("!BH", 126, size)
            self.wfile.write(head[:1] + short + data)
            if head[0] & 15 == 8:
                return
server = socketserver.ThreadingTCPServer(("127.0.0.1", 8765), Echo)
print("ready", flush=True)
server.serve_forever()
"""


@dataclass
class OpenBox:
    """An open port of a session."""

    box: Box
    shown: Previews
    port: int
    token: str

    @property
    def link(self) -> str:
        """The link's path, without a slash at the end."""
        return f"/s/{self.box.session.id}/{self.port}/~{self.token}"

    @property
    def host(self) -> str:
        """The URL of its own host name, without a slash at the end."""
        session = self.box.session
        label = host_label(self.port, session.id, session.incarnation)
        named = None if label is None else self.box.plane.previews.named(label)
        assert named is not None
        return named

    @property
    def host_link(self) -> str:
        """The link at that host name, without a slash at the end."""
        return f"{self.host}/~{self.token}"

    async def get(self, path: str, **headers: str) -> ClientResponse:
        """What the program answers, to somebody with the link."""
        return await self.shown.get(self.link + path, headers=headers)


async def opened_port(box: Box, shown: Previews, port: int) -> OpenBox:
    """Opens a port."""
    ports = box.plane.ports
    token = ports.link(await ports.open(ADMIN, box.session, port, 600))
    return OpenBox(box, shown, port, token)


async def listening(box: Box, *argv: str, ready: str) -> Command:
    """A program in the background that has said that it listens."""
    command = await box.start(argv=list(argv), background=True)
    await box.printed(command, ready)
    return command


async def web_server(box: Box, port: int = 8000) -> Command:
    """Serves the workspace."""
    return await listening(
        box, "python3", "-u", "-m", "http.server", str(port), ready="Serving HTTP"
    )
