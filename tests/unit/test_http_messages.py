"""Requests and answers of HTTP/1.1 as bytes, however they are cut."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paddock.client.errors import ArgumentError
from paddock.client.http_messages import AnswerParser, BadAnswerError, Message, request_bytes

BODIES = st.binary(max_size=300)
CUTS = st.lists(st.integers(0, 900), max_size=12)
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"


def parsed(sent: bytes, cuts: list[int]) -> tuple[Message | None, AnswerParser]:
    """The answer in bytes that arrive in pieces."""
    parser, message = AnswerParser(), None
    places = sorted({min(cut, len(sent)) for cut in cuts} | {0, len(sent)})
    for start, end in pairwise(places):
        assert message is None, "the answer was complete before its last byte"
        message = parser.feed(sent[start:end])
    return message, parser


def chunked(body: bytes, sizes: list[int]) -> bytes:
    """A body in chunks, with an extension and a trailer."""
    sent, rest = b"", body
    for size in sizes:
        if piece := rest[:size]:
            sent += b"%x;name=value\r\n%b\r\n" % (len(piece), piece)
        rest = rest[size:]
    last = b"%X\r\n%b\r\n" % (len(rest), rest) if rest else b""
    return sent + last + b"0\r\nX-Sum: 1\r\n\r\n"


@given(BODIES, CUTS)
def test_a_body_with_a_length(body: bytes, cuts: list[int]) -> None:
    message, parser = parsed(HEAD + b"Content-Length: %d\r\n\r\n" % len(body) + body, cuts)
    assert message is not None
    assert (message.http_status, message.body) == (200, body)
    assert message.headers[b"content-type"] == b"application/json"
    assert parser.lasting


@given(BODIES, st.lists(st.integers(1, 90), max_size=6), CUTS)
def test_a_body_in_chunks(body: bytes, sizes: list[int], cuts: list[int]) -> None:
    sent = HEAD + b"Transfer-Encoding: chunked\r\n\r\n" + chunked(body, sizes)
    message, parser = parsed(sent, cuts)
    assert message is not None
    assert message.body == body
    assert parser.lasting


@given(BODIES, CUTS)
def test_a_body_that_the_end_of_the_connection_ends(body: bytes, cuts: list[int]) -> None:
    message, parser = parsed(HEAD + b"\r\n" + body, cuts)
    assert message is None
    ended = parser.end()
    assert ended is not None
    assert ended.body == body
    assert not parser.lasting


@given(st.data())
def test_an_answer_that_breaks_off_is_none(data: st.DataObject) -> None:
    framing = data.draw(
        st.sampled_from(
            [
                b"Content-Length: 5\r\n\r\nhello",
                b"Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
            ]
        )
    )
    sent = HEAD + framing
    parser = AnswerParser()
    assert parser.feed(sent[: data.draw(st.integers(0, len(sent) - 1))]) is None
    assert parser.end() is None


@pytest.mark.parametrize("status", [204, 304])
def test_answers_without_a_body(status: int) -> None:
    message, parser = parsed(b"HTTP/1.1 %d No\r\nContent-Length: 7\r\n\r\n" % status, [])
    assert message is not None
    assert (message.http_status, message.body, parser.lasting) == (status, b"", True)


@given(CUTS)
def test_interim_answers_are_skipped(cuts: list[int]) -> None:
    interim = b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n"
    message, _ = parsed(interim + HEAD + b"Content-Length: 2\r\n\r\n{}", cuts)
    assert message is not None
    assert (message.http_status, message.body) == (200, b"{}")
    assert b"link" not in message.headers


@pytest.mark.parametrize(
    "sent",
    [
        HEAD + b"Connection: Close\r\nContent-Length: 0\r\n\r\n",
        HEAD + b"Connection: x\r\nConnection: y, close\r\nContent-Length: 0\r\n\r\n",
        b"HTTP/1.0 200 OK\r\nConnection: keep-alive\r\nContent-Length: 0\r\n\r\n",
        # Bytes that nobody asked for.
        HEAD + b"Content-Length: 2\r\n\r\n{}HTTP/1.1 200 OK\r\n",
        b"HTTP/1.1 204 None\r\n\r\n{}",
    ],
)
def test_connections_that_are_not_used_again(sent: bytes) -> None:
    message, parser = parsed(sent, [])
    assert message is not None
    assert not parser.lasting


@pytest.mark.parametrize(
    "sent",
    [
        b"SSH-2.0-OpenSSH_9.2\r\n",
        b"\r\nHTTP/1.1 200 OK\r\n\r\n",
        b"HTTP/2.0 200 OK\r\n\r\n",
        b"HTTP/1.1  200 OK\r\n\r\n",
        b"HTTP/1.1 20 OK\r\n\r\n",
        b"HTTP/1.1 099 OK\r\n\r\n",
        b"HTTP/1.1 200OK\r\n\r\n",
        b"HTTP/1.1 101 Switching Protocols\r\n\r\n",
        b"HTTP/1.1 200 OK\nContent-Length: 0\r\n\r\n",
        HEAD + b"Content-Length: 5\r\nContent-Length: 5\r\n\r\nhello",
        HEAD + b"Content-Length: 5, 5\r\n\r\nhello",
        HEAD + b"Content-Length: +5\r\n\r\nhello",
        HEAD + b"Content-Length: 0x5\r\n\r\nhello",
        HEAD + b"Content-Length: -1\r\n\r\n",
        HEAD + b"Content-Length: \xb2\r\n\r\n",
        HEAD + b"Content-Length:\r\n\r\n",
        HEAD + b"Content-Length: 999999999999999\r\n\r\n",
        HEAD + b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        HEAD + b"Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
        HEAD + b"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        b"HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        HEAD + b"Content-Encoding: gzip\r\nContent-Length: 1\r\n\r\nx",
        HEAD + b"Content-Type: text/html\r\n\r\n",
        HEAD + b"Name : value\r\n\r\n",
        HEAD + b" folded\r\n\r\n",
        HEAD + b"no colon\r\n\r\n",
        HEAD + b": value\r\n\r\n",
        HEAD + b"Name: a\rb\r\n\r\n",
        HEAD + b"Name: a\nb\r\n\r\n",
        HEAD + b"Name: a\x00b\r\n\r\n",
        HEAD + b"N: v\r\n" * 129 + b"\r\n",
        HEAD + b"Name: " + b"x" * (64 * 1024),
        b"HTTP/1.1 100 Continue\r\n\r\n" * 17,
    ],
)
def test_malformed_answers_are_refused(sent: bytes) -> None:
    with pytest.raises(BadAnswerError):
        AnswerParser().feed(sent)


@pytest.mark.parametrize(
    "sent",
    [
        b"\r\n",
        b"x\r\n",
        b"-1\r\n",
        b"+1\r\n",
        b"0x1\r\n",
        b"1_0\r\n",
        b" 1\r\n",
        b"1\nx\r\n",
        b"1" * 16 + b"\r\n",
        b"5;a\x00\r\nhello\r\n0\r\n\r\n",
        b"4\r\nhello\r\n0\r\n\r\n",
        b"5\r\nhello\n0\r\n\r\n",
        b"10000001\r\n",
        b"0\r\nbad trailer\r\n\r\n",
        b"1;" + b"x" * 1025,
        b"0\r\n" + b"T: " + b"x" * (64 * 1024),
        b"0\r\n" + (b"T: " + b"x" * 1000 + b"\r\n") * 66,
    ],
)
def test_malformed_chunks_are_refused(sent: bytes) -> None:
    with pytest.raises(BadAnswerError):
        AnswerParser().feed(HEAD + b"Transfer-Encoding: chunked\r\n\r\n" + sent)


def test_many_chunks_are_refused_if_they_are_small() -> None:
    def chunks(size: int, count: int) -> bytes:
        piece = b"%x\r\n%b\r\n" % (size, b"x" * size) * count
        return HEAD + b"Transfer-Encoding: chunked\r\n\r\n" + piece + b"0\r\n\r\n"

    for size, count in ((1, 4000), (80, 10_000)):
        message = AnswerParser().feed(chunks(size, count))
        assert message is not None
        assert len(message.body) == size * count
    with pytest.raises(BadAnswerError, match="chunks"):
        AnswerParser().feed(chunks(1, 5000))


@pytest.mark.parametrize("framing", [b"\r\n", b"Transfer-Encoding: chunked\r\n\r\n"])
def test_a_body_has_a_limit(framing: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("paddock.client.http_messages._MOST_BODY_BYTES", 10)
    parser = AnswerParser()
    piece = b"x" * 5 if framing == b"\r\n" else b"5\r\nxxxxx\r\n"
    parser.feed(HEAD + framing + piece + piece)
    with pytest.raises(BadAnswerError, match="10 bytes"):
        parser.feed(piece)


@given(st.binary(max_size=200), CUTS)
def test_any_bytes_end_in_an_answer_or_a_refusal(data: bytes, cuts: list[int]) -> None:
    places = sorted({min(cut, len(data)) for cut in cuts} | {0, len(data)})
    for begin in (b"", HEAD, HEAD + b"Transfer-Encoding: chunked\r\n\r\n"):
        parser = AnswerParser()
        try:
            assert parser.feed(begin) is None
            for start, end in pairwise(places):
                if parser.feed(data[start:end]) is not None:
                    break
        except BadAnswerError:
            continue


def test_the_bytes_of_a_request() -> None:
    assert request_bytes("POST", "/a?b=c", "Host: h\r\n", {"X": "y"}, b"{}") == (
        b"POST /a?b=c HTTP/1.1\r\nHost: h\r\nX: y\r\nContent-Length: 2\r\n\r\n{}"
    )
    assert request_bytes("GET", "/", "Host: h\r\n", {}, None) == (
        b"GET / HTTP/1.1\r\nHost: h\r\n\r\n"
    )
    # A server may wait for a body that has no length.
    assert b"Content-Length: 0\r\n" in request_bytes("POST", "/", "", {}, None)


@pytest.mark.parametrize(
    ("target", "value"),
    [
        ("a", ""),
        ("", ""),
        ("/a b", ""),
        ("/a\r\nX: y", ""),
        ("/\u00e9", ""),
        ("/a\n", ""),
        ("/", "a\r\nX: y"),
        ("/", "a\n"),
        ("/", "\x00"),
        ("/", "\ud800"),
    ],
)
def test_nothing_can_be_added_to_a_request(target: str, value: str) -> None:
    with pytest.raises(ArgumentError):
        request_bytes("GET", target, "", {"Name": value}, None)
