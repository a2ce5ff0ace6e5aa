"""Servers, names and levels for the way out."""

import asyncio
import ipaddress
import re
import shutil
import ssl
import subprocess
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import TypeVar

from orchestrator.rules.egress.rules import Decider, Decision
from orchestrator.rules.policy import levels
from orchestrator.sandbox.egress.resolver import CheckedResolver, LookupFailedError
from orchestrator.settings.hosts import Address

_LEVELS = Path(levels.__file__).with_name("levels")
LOOPBACK = ipaddress.IPv4Address("127.0.0.1")


class Names:
    """The name servers: answers are taken in order, and the last one is repeated."""

    def __init__(self) -> None:
        self.answers: dict[str, list[list[str]]] = {}
        self.asked: list[str] = []

    async def look_up(self, name: str) -> Sequence[Address]:
        self.asked.append(name)
        answers = self.answers.get(name)
        if not answers:
            raise LookupFailedError(f"{name} is not known")
        found = answers.pop(0) if len(answers) > 1 else answers[0]
        return [ipaddress.ip_address(each) for each in found]


class NamesResolver(CheckedResolver):
    """Looks names up in `names`, and takes 127.0.0.1 and `others` for public addresses."""

    def __init__(self, names: Names, *others: Address) -> None:
        super().__init__(names.look_up, lambda _address: False)
        self._public = {LOOPBACK, *others}

    def decide(self, rules: Decider, address: Address, port: int) -> Decision:
        public = Decision(True, "public")
        return public if address in self._public else super().decide(rules, address, port)


def level_with(rules: str, base: str = "medium", rank: int = 210) -> str:
    """The text of a level file: the packaged one of that name, with a way out."""
    text = (_LEVELS / f"{base}.toml").read_text()
    text = re.sub(r'(?m)^network = "\w+"', 'network = "egress"', text)
    return re.sub(r"(?m)^rank = \d+", f"rank = {rank}", text) + rules


class Web:
    """A server that keeps every byte that it receives, and answers each connection once."""

    def __init__(self, answer: bytes) -> None:
        self.answer = answer
        self.received: list[bytes] = []
        self.connections = 0
        self.port = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self.received.append(b"")
        at = len(self.received) - 1
        try:
            while not _whole(self.received[at]):
                data = await reader.read(65536)
                if not data:
                    return
                self.received[at] += data
            writer.write(self.answer)
            await writer.drain()
        except OSError:
            return
        finally:
            writer.close()


class Endless(Web):
    """Answers without an end, as fast as it is read."""

    def __init__(self) -> None:
        super().__init__(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n")
        self.open = 0
        # Set once a client does not read any more.
        self.stalled = asyncio.Event()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self.open += 1
        try:
            await reader.readuntil(b"\r\n\r\n")
            writer.write(self.answer)
            while True:
                writer.write(b"y" * 65536)
                await self._drained(writer)
        except OSError:
            return
        finally:
            self.open -= 1
            writer.close()

    async def _drained(self, writer: asyncio.StreamWriter) -> None:
        draining = asyncio.ensure_future(writer.drain())
        done, _ = await asyncio.wait([draining], timeout=1)
        if not done:
            self.stalled.set()
        await draining


class Silent(Web):
    """Answers nothing until `answer_now`."""

    def __init__(self) -> None:
        super().__init__(ok(b"late\n"))
        self.open = 0
        self._answers = asyncio.Event()

    def answer_now(self) -> None:
        """Answers what is open."""
        self._answers.set()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self.open += 1
        try:
            await reader.readuntil(b"\r\n\r\n")
            ended = asyncio.ensure_future(reader.read())
            answers = asyncio.ensure_future(self._answers.wait())
            await asyncio.wait([ended, answers], return_when=asyncio.FIRST_COMPLETED)
            ended.cancel()
            answers.cancel()
            if self._answers.is_set():
                writer.write(self.answer)
                await writer.drain()
        except OSError:
            return
        finally:
            self.open -= 1
            writer.close()


W = TypeVar("W", bound=Web)


def hello() -> Web:
    """A server that says hello."""
    return Web(ok(b"hello\n"))


def _whole(request: bytes) -> bool:
    """Whether it has the head and the body, by its length or in chunks."""
    head, end, body = request.partition(b"\r\n\r\n")
    if b"transfer-encoding: chunked" in head.lower():
        return body.endswith(b"0\r\n\r\n")
    found = re.search(rb"(?i)content-length: (\d+)", head)
    return bool(end) and len(body) >= (int(found[1]) if found else 0)


def ok(body: bytes) -> bytes:
    """A complete answer."""
    return b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%s" % (
        len(body),
        body,
    )


@asynccontextmanager
async def web(
    served: W, tls: ssl.SSLContext | None = None, address: str = "127.0.0.1"
) -> AsyncIterator[W]:
    """The server, running; none of its connections is open in the end."""
    connections: dict[asyncio.Task[None] | None, asyncio.StreamWriter] = {}

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        connections[task] = writer
        try:
            await served.serve(reader, writer)
            writer.close()
            with suppress(OSError):
                await writer.wait_closed()
        finally:
            del connections[task]

    server = await asyncio.start_server(serve, address, 0, ssl=tls)
    served.port = server.sockets[0].getsockname()[1]
    async with server:
        try:
            yield served
        finally:
            for writer in connections.values():
                writer.transport.abort()
            await asyncio.gather(*filter(None, connections), return_exceptions=True)


def certificate(directory: Path, name: str, *others: str) -> ssl.SSLContext:
    """A server's context with a certificate of its own for these names."""
    openssl = shutil.which("openssl") or "openssl"
    key, cert = directory / "key.pem", directory / "cert.pem"
    subprocess.run(
        [
            *(openssl, "req", "-x509", "-newkey", "ec", "-nodes", "-days", "2"),
            *("-pkeyopt", "ec_paramgen_curve:prime256v1"),
            *("-keyout", str(key), "-out", str(cert), "-subj", f"/CN={name}"),
            *("-addext", "subjectAltName=" + ",".join(f"DNS:{each}" for each in (name, *others))),
        ],
        check=True,
        capture_output=True,
    )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(cert, key)
    return context
