"""A client of Connect RPC with JSON, as small as it can be."""

import base64
import json
import struct
from collections.abc import AsyncIterator, Iterable, Mapping
from typing import Any, NamedTuple

from aiohttp import ClientResponse, ClientSession
from aiohttp.test_utils import TestClient

STREAM = "application/connect+json"


class Refused(Exception):  # noqa: N818 - it is the protocol's word
    """An error of the other side."""

    def __init__(self, status: int, code: str, message: str) -> None:
        super().__init__(f"{status} {code}: {message}")
        self.status, self.code, self.message = status, code, message


class Printed(NamedTuple):
    """What came of a process: its number, its output by stream, and its end."""

    pid: int
    output: dict[str, bytes]
    end: dict[str, Any]


def envelope(message: Any, flags: int = 0) -> bytes:
    data = message if isinstance(message, bytes) else json.dumps(message).encode()
    return struct.pack(">BI", flags, len(data)) + data


class Connect:
    """Calls the methods below an address, with these headers."""

    def __init__(
        self, client: ClientSession | TestClient[Any, Any], base: str, headers: Mapping[str, str]
    ) -> None:
        self.client, self.base, self.headers = client, base, dict(headers)

    async def post(self, path: str, data: Any, **headers: str) -> ClientResponse:
        both = {**self.headers, **{name.replace("_", "-"): each for name, each in headers.items()}}
        return await self.client.post(self.base + path, data=data, headers=both)

    async def call(self, method: str, message: Any, **headers: str) -> dict[str, Any]:
        """The answer of a call with one. Raises: Refused."""
        data = json.dumps(message).encode()
        response = await self.post(method, data, Content_Type="application/json", **headers)
        answer: dict[str, Any] = await response.json(content_type=None)
        if response.status != 200:
            raise Refused(response.status, answer["code"], answer["message"])
        return answer

    async def begin(self, method: str, *messages: Any, **headers: str) -> ClientResponse:
        """The response of a call with a stream of answers."""
        data = b"".join(map(envelope, messages))
        return await self.post(method, data, Content_Type=STREAM, **headers)

    async def stream(
        self, method: str, *messages: Any, **headers: str
    ) -> AsyncIterator[dict[str, Any]]:
        """The answers of a call. Raises: Refused."""
        response = await self.begin(method, *messages, **headers)
        async for each in answers(response):
            yield each


async def answers(response: ClientResponse) -> AsyncIterator[dict[str, Any]]:
    """The messages of a stream. Raises: Refused at its end."""
    assert (response.status, response.content_type) == (200, STREAM), await response.text()
    while True:
        flags, length = struct.unpack(">BI", await response.content.readexactly(5))
        message = json.loads(await response.content.readexactly(length))
        if flags & 2:
            if "error" in message:
                raise Refused(200, message["error"]["code"], message["error"]["message"])
            return
        yield message


async def run(connect: Connect, line: str, **members: Any) -> Printed:
    """Runs a line as the SDKs do, to its end. Raises: Refused."""
    headers = members.pop("headers", {})
    process = {"cmd": "/bin/bash", "args": ["-l", "-c", line], **members.pop("process", {})}
    message = {"process": process, "stdin": False, **members}
    return await ended(connect.stream("/process.Process/Start", message, **headers))


async def ended(events: AsyncIterator[dict[str, Any]]) -> Printed:
    """A process to its end."""
    pid, output = 0, {"stdout": b"", "stderr": b"", "pty": b""}
    end: dict[str, Any] = {}
    async for each in events:
        event = each["event"]
        pid = event.get("start", {}).get("pid", pid)
        for stream, data in event.get("data", {}).items():
            output[stream] += base64.b64decode(data)
        end = event.get("end", end)
    return Printed(pid, output, end)


def encoded(data: bytes) -> str:
    return base64.b64encode(data).decode()


def form(files: Iterable[tuple[str, bytes]], boundary: str = "b0undary") -> bytes:
    """A multipart body with files, as the SDKs send it."""
    parts = [
        f'--{boundary}\r\nContent-Disposition: form-data; name="file"; filename="{name}"\r\n'
        "Content-Type: application/octet-stream\r\n\r\n".encode()
        + data
        + b"\r\n"
        for name, data in files
    ]
    return b"".join(parts) + f"--{boundary}--\r\n".encode()
