"""Input that is not HTTP: answered or dropped, counted, and without a traceback."""

import asyncio
import logging
from typing import Any

import pytest
from aiohttp.http_exceptions import BadHttpMessage

from orchestrator.ground.serving.server_log import ServerLog
from tests.api.conftest import Api
from tests.api.test_observability import scrape
from tests.support.limits import WAIT_SECONDS

LINE = b"GET /healthz HTTP/1.1\r\n"
HOST = b"Host: 127.0.0.1\r\n"
NOT_HTTP = {
    "tls": bytes.fromhex("16030100f4010000f00303") + bytes(200),
    "words": b"hello there\r\n\r\n",
    "no method": b" / HTTP/1.1\r\n\r\n",
    "version": b"GET / HTTP/9.x\r\n\r\n",
    "no version": b"GET /\r\n\r\n",
    "proxy": b"CONNECT example.org HTTP/1.1\r\n\r\n",
    "no such address": b"GET http://[::1 HTTP/1.1\r\n" + HOST + b"\r\n",
    "nul in a header": LINE + b"X: \0\r\n\r\n",
    "no colon": LINE + HOST + b"X\r\n\r\n",
    "escapes": LINE + b"\x1b[31m: x\r\n\r\n",
    "long header": LINE + b"X: " + b"x" * 100_000 + b"\r\n\r\n",
    "two lengths": LINE + HOST + b"Content-Length: 1\r\nContent-Length: 2\r\n\r\n",
    "negative length": LINE + HOST + b"Content-Length: -1\r\n\r\n",
    "length and chunks": LINE + HOST + b"Content-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
    "bad chunk": (
        b"POST /api/sessions HTTP/1.1\r\n" + HOST + b"Transfer-Encoding: chunked\r\n\r\nxyz\r\n"
    ),
    "second request": LINE + HOST + b"\r\n" + b"\x80\x81\r\n\r\n",
}


@pytest.mark.parametrize("sent", NOT_HTTP.values(), ids=NOT_HTTP)
async def test_no_traceback(api: Api, caplog: pytest.LogCaptureFixture, sent: bytes) -> None:
    with caplog.at_level(logging.DEBUG):
        await send(api, sent)
        await send(api, sent)
    told = [record for record in caplog.records if record.name != "asyncio"]
    assert not [record for record in told if record.exc_info or "\n" in record.getMessage()]
    assert len([record for record in told if record.levelno > logging.INFO]) <= 1


async def test_is_counted(api: Api, caplog: pytest.LogCaptureFixture) -> None:
    for _ in range(3):
        assert (await send(api, NOT_HTTP["tls"], eof=False)).startswith(b"HTTP/1.0 400 ")
    assert (await scrape(api))["paddock_http_malformed_total"] == 3
    (told,) = [record for record in caplog.records if record.name == "paddock.http"]
    assert told.__dict__["client"] == "127.0.0.1"
    assert told.__dict__["reason"]


def test_one_line_in_a_while_with_the_number_of_others(caplog: pytest.LogCaptureFixture) -> None:
    now = 1000.0
    counted: list[None] = []
    log = ServerLog(lambda: counted.append(None), lambda: now)

    def receive(text: str) -> None:
        log.exception("Error handling request from %s", "::1", exc_info=BadHttpMessage(text))

    for text in ("first\r\nline" + "x" * 1000, "second", "third"):
        receive(text)
    now += 61
    receive("fourth")
    assert len(counted) == 4
    first, fourth = (record.__dict__ for record in caplog.records)
    assert (first["unsaid"], fourth["unsaid"]) == (0, 2)
    assert first["reason"].startswith("first linexx")
    assert len(first["reason"]) <= 128
    assert fourth["reason"] == "fourth"


def test_what_fails_in_the_server_is_told(caplog: pytest.LogCaptureFixture) -> None:
    counted: list[Any] = []
    log = ServerLog(lambda: counted.append(None))
    log.exception("Unhandled %s", "exception", exc_info=ValueError("x"))
    (told,) = caplog.records
    assert told.getMessage() == "Unhandled exception"
    assert told.exc_info
    assert not counted


async def send(api: Api, data: bytes, *, eof: bool = True) -> bytes:
    """Sends the bytes, then, with `eof`, the end of the input; returns the answer."""
    reader, writer = await asyncio.open_connection(api.server.host, api.server.port)
    try:
        writer.write(data)
        if eof:
            writer.write_eof()
        async with asyncio.timeout(WAIT_SECONDS):
            return await reader.read()
    finally:
        writer.close()
