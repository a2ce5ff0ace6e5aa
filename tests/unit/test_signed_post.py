"""Signed POSTs: what the receiver can verify, and what it can't make us do."""

import time
from collections.abc import AsyncIterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.ground.http_post import FAILURES, signed_headers, signed_post
from paddock.contract.signatures import signature
from paddock.webhooks import TOLERANCE, verify
from tests.support.receiver import ENDLESS, HANGS, Receiver, receiving

SECRET = "the-secret-of-the-tests"


@pytest.fixture
async def receiver() -> AsyncIterator[Receiver]:
    async with receiving("/hooks/a?team=b") as receiver:
        yield receiver


async def post(receiver: Receiver, *, seconds: float = 60, most_bytes: int = 10) -> bytes:
    headers = {"Paddock-Delivery": "d"}
    posted = await signed_post(
        receiver.url, SECRET.encode(), b"{}", headers, seconds=seconds, most_bytes=most_bytes
    )
    return posted.body


async def test_the_receiver_can_verify_it(receiver: Receiver) -> None:
    await post(receiver)
    (got,) = receiver.requests
    assert got.line == "POST /hooks/a?team=b HTTP/1.1"
    assert got.headers["paddock-delivery"] == "d"
    timestamp, signed = got.headers["paddock-timestamp"], got.headers["paddock-signature"]
    assert verify(SECRET, timestamp, signed, got.body)
    assert not verify(SECRET, timestamp, signed, got.body + b" ")
    assert not verify("another-secret-of-tests", timestamp, signed, got.body)


@given(body=st.binary(max_size=64), late=st.integers(-2 * TOLERANCE, 2 * TOLERANCE))
def test_old_messages_and_those_from_the_future_are_refused(body: bytes, late: int) -> None:
    sent = 1_800_000_000
    signed = signature(SECRET.encode(), str(sent), body)
    found = verify(SECRET, str(sent), signed, body, now=sent + late)
    assert found == (abs(late) <= TOLERANCE)


@given(timestamp=st.none() | st.text(), signed=st.none() | st.text(), body=st.binary())
def test_anything_else_is_refused(timestamp: str | None, signed: str | None, body: bytes) -> None:
    assert not verify(SECRET, timestamp, signed, body)


def test_a_signature_is_not_that_of_another_time() -> None:
    headers = signed_headers(SECRET.encode(), b"{}")
    later = str(int(time.time()) + 1)
    assert not verify(SECRET, later, headers["Paddock-Signature"], b"{}")


async def test_an_endless_answer_is_read_up_to_the_bound(receiver: Receiver) -> None:
    receiver.answer = lambda _: ENDLESS
    assert await post(receiver, most_bytes=1000) == b"x" * 1000
    assert receiver.sent < 64 * 2**20  # what the connection's buffers hold, and no more


async def test_a_short_answer_is_complete(receiver: Receiver) -> None:
    receiver.answer = lambda _: b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nfour"
    for most, body, cut in ((3, b"fou", True), (4, b"four", False), (5, b"four", False)):
        posted = await signed_post(
            receiver.url, SECRET.encode(), b"{}", {}, seconds=60, most_bytes=most
        )
        assert posted == (200, body, cut, True)


async def test_a_compressed_answer_stays_compressed(receiver: Receiver) -> None:
    receiver.answer = lambda _: (
        b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 4\r\n\r\nfour"
    )
    assert await post(receiver) == b"four"
    assert receiver.requests[0].headers["accept-encoding"] == "identity"


async def test_a_redirect_is_not_followed(receiver: Receiver) -> None:
    receiver.answer = lambda _: b"HTTP/1.1 307 Away\r\nLocation: /other\r\n\r\n"
    assert await post(receiver) == b""
    assert len(receiver.requests) == 1


async def test_a_receiver_that_hangs_is_left(receiver: Receiver) -> None:
    receiver.answer = lambda _: HANGS
    with pytest.raises(TimeoutError):
        await post(receiver, seconds=0.1)


async def test_failures_are_of_known_kinds(receiver: Receiver) -> None:
    for answer in (b"", b"SSH-2.0-x y\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nx"):
        receiver.answer = lambda _, answer=answer: answer  # type: ignore[misc]
        with pytest.raises(FAILURES):
            await post(receiver)


async def test_endless_interim_answers_are_left(receiver: Receiver) -> None:
    interim = b"HTTP/1.1 103 Early Hints\r\n\r\n"
    receiver.answer = lambda _: interim * 200_000
    began = time.thread_time()
    with pytest.raises(FAILURES, match="interim"):
        await post(receiver)
    assert time.thread_time() - began < 0.2  # all of them take seconds
    receiver.answer = lambda _: interim * 3 + b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
    assert await post(receiver) == b"ok"


async def test_a_body_that_comes_with_its_head_is_whole(receiver: Receiver) -> None:
    body = bytes(range(256)) * 512
    head = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body)
    receiver.answer = lambda _: head + body
    assert await post(receiver, most_bytes=2**20) == body
