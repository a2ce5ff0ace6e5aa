"""A request that two programs could read differently is refused."""

import socket
import ssl

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.record.secrets.request_head import HeadError, parse_head
from orchestrator.sandbox.egress.client_hello import ClientHello, HelloError, check_name, read_hello
from orchestrator.sandbox.egress.request_body import BodyError, ChunkedBody, SizedBody
from orchestrator.settings.hosts import parse_host

HOST = b"Host: a.org\r\n"


def head(*lines: bytes, first: bytes = b"GET http://a.org/ HTTP/1.1") -> bytes:
    return b"\r\n".join([first, *lines, b"", b""])


def test_a_request_is_passed_on_without_what_concerns_the_proxy() -> None:
    found = parse_head(
        head(
            b"Host: A.org",
            b"User-Agent: x",
            b"Proxy-Authorization: Basic eA==",
            b"Proxy-Connection: keep-alive",
            b"Connection: x-secret, close",
            b"X-Secret: 1",
            b"Upgrade: h2c",
            b"Accept: a\tb ",
            first=b"GET http://a.org:8080/p?q=1 HTTP/1.1",
        ).replace(b"Host: A.org", b"Host: A.org:8080")
    )
    assert (found.method, found.host, found.port, found.path) == ("GET", "a.org", 8080, "/p?q=1")
    assert found.upstream() == (
        b"GET /p?q=1 HTTP/1.1\r\nHost: a.org:8080\r\nUser-Agent: x\r\nAccept: a\tb\r\n"
        b"Connection: close\r\n\r\n"
    )


def test_a_tunnel_is_requested() -> None:
    found = parse_head(b"CONNECT A.org:443 HTTP/1.0\r\n\r\n")
    assert (found.connect, found.host, found.port) == (True, "a.org", 443)
    found = parse_head(b"CONNECT [::1]:443 HTTP/1.1\r\nHost: [::1]:443\r\n\r\n")
    assert (str(found.host), found.port) == ("::1", 443)


@pytest.mark.parametrize(
    ("lines", "length"),
    [
        ([], 0),
        ([b"Content-Length: 12"], 12),
        ([b"Transfer-Encoding: chunked"], None),
        ([b"Transfer-Encoding: CHUNKED"], None),
    ],
)
def test_a_body_s_length_is_known(lines: list[bytes], length: int | None) -> None:
    assert parse_head(head(b"Host: a.org", *lines)).length == length


@pytest.mark.parametrize(
    "line",
    [
        b"GET / HTTP/1.1",
        b"GET a.org/ HTTP/1.1",
        b"GET https://a.org/ HTTP/1.1",
        b"GET http://u@a.org/ HTTP/1.1",
        b"GET http://u:p@a.org/ HTTP/1.1",
        b"GET http://a.org\\@b.org/ HTTP/1.1",
        b"GET http://a%2eorg/ HTTP/1.1",
        b"GET http://a.org/#x HTTP/1.1",
        b"GET http://a.org:/ HTTP/1.1",
        b"GET http://a.org:0/ HTTP/1.1",
        b"GET http://a.org:65536/ HTTP/1.1",
        b"GET http://a.org:8x/ HTTP/1.1",
        b"GET http:///x HTTP/1.1",
        b"GET http://::1/ HTTP/1.1",
        b"GET http://a.org/ HTTP/2.0",
        b"GET http://a.org/ HTTP/1.11",
        b"GET  http://a.org/ HTTP/1.1",
        b"GET http://a.org/ x HTTP/1.1",
        b"GET http://a.org/\x00 HTTP/1.1",
        b"G(T http://a.org/ HTTP/1.1",
        b"connect a.org:443 HTTP/1.1",
        b"CONNECT a.org HTTP/1.1",
        b"CONNECT http://a.org:443 HTTP/1.1",
        b"CONNECT u@a.org:443 HTTP/1.1",
        b"CONNECT a.org:443/ HTTP/1.1",
        b" GET http://a.org/ HTTP/1.1",
        b"",
    ],
)
def test_a_bad_request_line_is_refused(line: bytes) -> None:
    with pytest.raises(HeadError):
        parse_head(head(b"Host: a.org", first=line))


@pytest.mark.parametrize(
    "lines",
    [
        [],
        [b"Host: b.org"],
        [b"Host: a.org", b"Host: a.org"],
        [b"Host: a.org", b"host: b.org"],
        [b"Host: a.org:81"],
        [b"Host: a.org", b"Content-Length: 1", b"Transfer-Encoding: chunked"],
        [b"Host: a.org", b"Content-Length: 1", b"Content-Length: 1"],
        [b"Host: a.org", b"Content-Length: 1, 1"],
        [b"Host: a.org", b"Content-Length: +1"],
        [b"Host: a.org", b"Content-Length: -1"],
        [b"Host: a.org", b"Content-Length: 0x1"],
        [b"Host: a.org", b"Content-Length: "],
        [b"Host: a.org", b"Content-Length: \xb2"],
        [b"Host: a.org", b"Transfer-Encoding: gzip, chunked"],
        [b"Host: a.org", b"Transfer-Encoding: xchunked"],
        [b"Host: a.org", b"Transfer-Encoding: chunked", b"Transfer-Encoding: chunked"],
        [b"Host: a.org", b"Transfer-Encoding : chunked"],
        [b"Host: a.org", b"Transfer-Encoding\t: chunked"],
        [b"Host: a.org", b"Transfer-Encoding:\x0bchunked"],
        [b"Host: a.org", b"X: a", b" folded: b"],
        [b"Host: a.org", b"\tfolded"],
        [b"Host: a.org", b"X: a\nY: b"],
        [b"Host: a.org", b"X: a\rY: b"],
        [b"Host: a.org", b"X: \x00"],
        [b"Host: a.org", b": x"],
        [b"Host: a.org", b"nocolon"],
        [b"Host: a.org", b"Connection: content-length", b"Content-Length: 5"],
        [b"Host: a.org", *[b"X: y"] * 200],
    ],
)
def test_a_head_that_can_be_read_in_two_ways_is_refused(lines: list[bytes]) -> None:
    with pytest.raises(HeadError):
        parse_head(head(*lines))


@given(st.binary(max_size=200))
def test_any_bytes_are_a_head_or_refused(data: bytes) -> None:
    for text in (data, head(b"Host: a.org", data), head(b"Host: a.org", first=data)):
        try:
            found = parse_head(text)
        except HeadError:
            continue
        # What the upstream receives is one head, and reads the same.
        if not found.connect:
            sent = found.upstream()
            assert sent.count(b"\r\n\r\n") == 1
            assert not set(sent.replace(b"\r\n", b"")) & set(b"\r\n\0")


@given(st.lists(st.binary(min_size=1, max_size=40), max_size=5), st.integers(1, 7), st.binary())
def test_the_end_of_chunks_is_found(chunks: list[bytes], step: int, rest: bytes) -> None:
    text = b"".join(b"%x\r\n%s\r\n" % (len(chunk), chunk) for chunk in chunks) + b"0\r\n\r\n"
    body, sent, taken = ChunkedBody(), text + rest, b""
    for at in range(0, len(sent), step):
        piece = sent[at : at + step]
        size = body.take(piece)
        taken += piece[:size]
        if body.complete:
            break
    assert (taken, body.complete) == (text, True)


@pytest.mark.parametrize(
    "text",
    [
        *(b"x\r\n", b"-1\r\n", b"0x1\r\n", b"1;a=b\r\na\r\n", b"1\na", b"\r\n", b" 1\r\na\r\n"),
        *(b"1\r\nab", b"1\r\na\r\n0\r\nTrailer: x\r\n\r\n", b"1" * 300, b"f" * 13 + b"\r\n"),
    ],
)
def test_malformed_chunks_are_refused(text: bytes) -> None:
    with pytest.raises(BodyError):
        ChunkedBody().take(text + b"\r\n\r\n")


def test_a_sized_body_ends_at_its_size() -> None:
    body = SizedBody(5)
    assert (body.take(b"abc"), body.complete) == (3, False)
    assert (body.take(b"defg"), body.complete) == (2, True)


def client_hello(name: str | None) -> bytes:
    """The first message of Python's own TLS client."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    context = ssl.create_default_context()
    context.check_hostname = False
    client = context.wrap_bio(incoming, outgoing, server_hostname=name)
    with pytest.raises(ssl.SSLWantReadError):
        client.do_handshake()
    return outgoing.read()


def in_records(hello: bytes, size: int) -> bytes:
    """The same message in records of that size."""
    message = hello[5:]
    pieces = [message[at : at + size] for at in range(0, len(message), size)]
    return b"".join(hello[:3] + len(piece).to_bytes(2) + piece for piece in pieces)


def test_the_name_is_read() -> None:
    hello = client_hello("a.org")
    assert read_hello(hello) == ClientHello("a.org")
    assert read_hello(hello + b"more") == ClientHello("a.org")
    assert read_hello(client_hello(None)) == ClientHello(None)


@pytest.mark.parametrize("size", [50, 100, 200])
def test_the_name_is_read_from_pieces(size: int) -> None:
    assert read_hello(in_records(client_hello("a.org"), size)) == ClientHello("a.org")


def test_an_incomplete_message_is_waited_for() -> None:
    hello = client_hello("a.org")
    assert all(read_hello(hello[:end]) is None for end in range(len(hello)))


@pytest.mark.parametrize(
    "data",
    [
        *(b"GET / HTTP/1.1\r\n", b"SSH-2.0-x\r\n", b"\x16\x02", b"\x16\x03\x01\x00\x00"),
        *(b"\x16\x03\x01\xff\xff", b"\x16\x03\x01\x00\x05\x02\x00\x00\x01\x00", b"\x80\x2e\x01"),
        b"\x16\x03\x01\x00\x04\x01\xff\xff\xff",
        b"\x16\x03\x01\x00\x08\x01\x00\x00\x04abcd",
    ],
)
def test_what_is_no_tls_is_refused(data: bytes) -> None:
    with pytest.raises(HelloError):
        read_hello(data)


def test_two_names_are_refused() -> None:
    hello = client_hello("a.org")
    at = hello.index(b"a.org") - 9
    name = hello[at : at + 14]
    message = bytearray(hello[9:])
    end = hello.index(name) - 9
    message[end:end] = name.replace(b"a.org", b"b.org")
    # The lengths of the extensions, the message and the record.
    start = 2 + 32 + 1 + message[34]
    start += 2 + int.from_bytes(message[start : start + 2])
    start += 1 + message[start]
    size = int.from_bytes(message[start : start + 2]) + len(name)
    message[start : start + 2] = size.to_bytes(2)
    whole = b"\x01" + len(message).to_bytes(3) + bytes(message)
    with pytest.raises(HelloError, match="two"):
        read_hello(hello[:3] + len(whole).to_bytes(2) + whole)


@given(st.binary(max_size=300))
def test_any_bytes_are_a_message_or_refused(data: bytes) -> None:
    for text in (data, b"\x16\x03\x01" + len(data).to_bytes(2) + data):
        try:
            read_hello(text)
        except HelloError:
            continue


@pytest.mark.slow
@given(st.integers(0, 600), st.integers(0, 255))
def test_a_changed_message_is_read_or_refused(at: int, value: int) -> None:
    hello = bytearray(client_hello("a.org"))
    hello[at % len(hello)] = value
    try:
        read_hello(bytes(hello))
    except HelloError:
        return


@pytest.mark.parametrize(
    ("name", "host", "fits"),
    [
        ("a.org", "a.org", True),
        ("A.ORG", "a.org", True),
        ("b.org", "a.org", False),
        (None, "a.org", False),
        ("a.org\x00", "a.org", False),
        (None, "1.1.1.1", True),
        ("a.org", "1.1.1.1", False),
    ],
)
def test_the_name_must_be_the_requested_host(name: str | None, host: str, fits: bool) -> None:
    hello = ClientHello(name)
    if fits:
        check_name(hello, parse_host(host))
        return
    with pytest.raises(HelloError):
        check_name(hello, parse_host(host))


def test_hello_of_a_real_connection_is_complete() -> None:
    """Guards against a helper that makes other messages than a connection does."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        theirs.sendall(client_hello("a.org"))
        assert read_hello(ours.recv(65536)) == ClientHello("a.org")
